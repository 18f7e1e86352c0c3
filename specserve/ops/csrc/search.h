// Prompt lookup in constant time a token: for every ending of `low` to `high` tokens, where it occurred with a
// token after it. Definition: `find` in draft/ngram.py; twin: ops/search.py.
//
// One open hash table per ending length. A slot holds only a position, and the tokens before it are the key,
// compared in full: a hash decides where to look, never what is equal.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace specserve {

class NgramIndex {
 public:
  // `earliest`: of several occurrences the first one counts, else the last.
  NgramIndex(int low, int high, bool earliest);
  size_t size() const { return tokens_.size(); }
  void clear();
  void extend(const std::vector<int64_t>& tokens);
  // The position behind an occurrence of the longest ending that has one; -1 when none has.
  int64_t find() const;

 private:
  struct Table {
    std::vector<uint32_t> slots;  // positions; 0 is empty, since nothing ends there
    size_t count = 0;
  };
  void add(Table& table, int length, uint32_t end, uint64_t hash);
  void grow(Table& table, int length);
  uint64_t hash(int length, uint32_t end) const;
  // The slot of the `length` tokens before `end`, or the empty one where they belong.
  size_t slot(const Table& table, int length, uint32_t end, uint64_t hash) const;

  const int low_, high_;
  const bool earliest_;
  std::vector<int64_t> tokens_;
  std::vector<Table> tables_;  // of lengths low to high
};

}  // namespace specserve
