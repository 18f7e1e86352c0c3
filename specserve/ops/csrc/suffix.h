// Counted continuations of texts: what followed each substring of up to `depth` tokens, and how often. Definition
// and twin: ops/suffix.py.
//
// A trie of the strings S_i = text[i : i + depth] (shorter at a text's end), a chain of single children being one
// edge. An edge is a slice of a stored text, named by where one occurrence of the whole string from the root starts.
// count(w) is the number of S_i that begin with w. What one token more changes are the strings that end with the
// text: each becomes a token longer, at most `depth` of them; removing a text takes its strings out one by one.
//
// A string that is alone behind its last branching costs no node: a `ref` with the upper bit set is the position
// where it starts, and it grows with its text. So there are less nodes than branchings and ends of texts.
//
// `start` of a node is its latest occurrence: in the youngest text, there the last. Texts leave oldest first, so
// when a node's `start` leaves, all its occurrences do, and no edge ever names a text that is gone.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "suffix_fans.h"
#include "suffix_texts.h"

namespace specserve {

struct GuessLimits {
  int64_t max_tokens;
  double factor;          // guesses per token of the match
  float min_probability;  // of all guesses up to one, together
};

struct Guess {
  std::vector<int32_t> tokens;
  float score = 0.0f;  // the sum of the guesses' probabilities
  int match = 0;       // length of the ending whose continuation it is
  uint64_t work = 0;   // nodes visited
};

struct SuffixNode {
  uint32_t parent = 0;
  uint32_t count = 0;
  uint32_t start = 0;
  uint32_t heavy = kNoChild;  // the child that occurs most often; of several the one with the latest start
  uint32_t second = 0;        // no other child occurs more often than this
  uint32_t depth = 0;         // tokens from the root
  Fan fan;
};

// What trees are made of. What one gives back any other may take, so many trees need no more than they hold at once.
struct SuffixMemory {
  SuffixMemory() = default;
  SuffixMemory(const SuffixMemory&) = delete;
  size_t num_bytes() const { return pages.num_bytes() + nodes.num_bytes() + fans.num_bytes(); }
  TextPages pages;
  Elements<SuffixNode, 8> nodes;
  Fans fans;
};

class SuffixTree {
 public:
  using Tokens = std::vector<int32_t>;
  SuffixTree(uint16_t depth, SuffixMemory& memory);  // which outlives it
  SuffixTree(const SuffixTree&) = delete;
  ~SuffixTree();
  size_t num_texts() const { return texts_.num_texts(); }
  size_t num_tokens() const { return texts_.num_tokens(); }
  uint64_t start() { return texts_.start(); }
  // False when the text is no longer there.
  bool append(uint64_t serial, const Tokens& tokens);
  void finish(uint64_t serial);  // it will not grow any more
  bool evict();                  // the oldest text; false when there is none
  uint64_t first() const { return texts_.first(); }  // the oldest text's serial number
  Tokens text(uint64_t serial);                      // empty when it is no longer there
  int64_t count(const Tokens& tokens) const;
  // The best continuation of an ending of `context`, which is shorter than the context itself and occurs here.
  // `serial`: a text that `context` ends with, as far as both go; what is known of its endings need not be looked for.
  Guess speculate(uint64_t serial, const Tokens& context, const GuessLimits& limits);

 private:
  using Node = SuffixNode;
  struct Place {  // the first `length` tokens of a string, behind its parent's depth
    uint32_t ref;
    uint32_t length;
  };
  static constexpr uint32_t kAlone = 1u << 31;
  static bool is_alone(uint32_t ref) { return ref & kAlone; }
  uint32_t count_of(uint32_t ref) const { return is_alone(ref) ? 1 : nodes_[ref].count; }
  uint32_t start_of(uint32_t ref) const { return is_alone(ref) ? ref & ~kAlone : nodes_[ref].start; }
  uint32_t depth_of(uint32_t ref) const {
    if (!is_alone(ref)) return nodes_[ref].depth;
    const uint32_t left = texts_.left(ref & ~kAlone);
    return left < depth_ ? left : depth_;
  }
  uint32_t later(uint32_t a, uint32_t b) const { return texts_.is_later(a, b) ? a : b; }
  bool is_heavier(uint32_t a, uint32_t b) const;

  void push(uint64_t serial, int32_t token);
  uint32_t extend(uint32_t ref, uint32_t start, int32_t token);
  uint32_t branch_off(uint32_t ref, uint32_t start, int32_t token);
  uint32_t divide(uint32_t ref, Child& child, uint32_t start);
  uint32_t meet(uint32_t ref, Child& child, uint32_t start);
  uint32_t insert_between(uint32_t ref, Child& child, uint32_t start);
  void remove(uint32_t start, uint32_t length);
  void detach(uint32_t ref, int32_t token);
  void dissolve_if_needless(uint32_t ref);
  void replace(uint32_t old, uint32_t ref);
  void rise(uint32_t ref, uint32_t child);
  void rank(uint32_t ref);

  bool locate(const int32_t* tokens, uint32_t length, Place& place, uint64_t& work) const;
  void follow(Place place, int64_t budget, float min_probability, Guess& guess) const;

  const uint32_t depth_;
  Elements<Node, 8>& nodes_;
  Fans& fans_;
  Texts texts_;
  const uint32_t root_;
  std::vector<uint32_t> old_ends_;
};

}  // namespace specserve
