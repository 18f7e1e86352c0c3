#include "suffix.h"

#include <algorithm>
#include <cassert>

namespace specserve {

SuffixTree::SuffixTree(uint16_t depth, SuffixMemory& memory)
    : depth_(depth), nodes_(memory.nodes), fans_(memory.fans), texts_(memory.pages), root_(nodes_.add()) {}

SuffixTree::~SuffixTree() {
  for (std::vector<uint32_t> left{root_}; !left.empty();) {
    const uint32_t ref = left.back();
    left.pop_back();
    fans_.each(nodes_[ref].fan, [&](const Child& child) {
      if (!is_alone(child.ref)) left.push_back(child.ref);
    });
    fans_.clear(nodes_[ref].fan);
    nodes_.remove(ref);
  }
  while (num_texts()) texts_.drop();
}

bool SuffixTree::append(uint64_t serial, const Tokens& tokens) {
  if (!texts_.find(serial)) return false;
  for (int32_t token : tokens) push(serial, token);
  return true;
}

void SuffixTree::finish(uint64_t serial) {
  Text* text = texts_.find(serial);
  if (!text) return;
  text->grows = false;
  text->ends = {};
}

bool SuffixTree::evict() {
  const Text* text = texts_.find(texts_.first());
  if (!text) return false;
  for (uint32_t i = 0; i < text->size; ++i) remove(texts_.position(*text, i), std::min(depth_, text->size - i));
  texts_.drop();
  return true;
}

SuffixTree::Tokens SuffixTree::text(uint64_t serial) {
  Tokens tokens;
  if (const Text* text = texts_.find(serial))
    for (uint32_t i = 0; i < text->size; ++i) tokens.push_back(texts_.at(texts_.position(*text, i), 0));
  return tokens;
}

// The text's strings become a token longer, the shortest first, and the empty one begins. Those that are alone
// grow by themselves, and whatever is longer than such a string is alone too: `ends` has no gaps.
void SuffixTree::push(uint64_t serial, int32_t token) {
  texts_.push(serial, token);
  Text& text = *texts_.find(serial);
  old_ends_.clear();
  old_ends_.swap(text.ends);
  for (uint32_t length = 0; length <= old_ends_.size(); ++length) {
    const uint32_t start = texts_.position(text, text.size - 1 - length);
    const uint32_t ref = extend(length ? old_ends_[length - 1] : root_, start, token);
    if (!is_alone(ref) && length + 1 < depth_) text.ends.push_back(ref);
  }
}

// The string at `start`, which ended in node `ref`, goes on with `token`. Returns where it ends now.
uint32_t SuffixTree::extend(uint32_t ref, uint32_t start, int32_t token) {
  Node& node = nodes_[ref];
  Child* child = fans_.find(node.fan, token);
  if (!child) return branch_off(ref, start, token);
  if (depth_of(child->ref) > node.depth + 1) return divide(ref, *child, start);
  if (is_alone(child->ref)) return meet(ref, *child, start);
  const uint32_t end = child->ref;
  ++nodes_[end].count;
  nodes_[end].start = later(nodes_[end].start, start);
  rise(ref, end);
  dissolve_if_needless(ref);
  return end;
}

// Nothing went on like this before: from here on the string is alone.
uint32_t SuffixTree::branch_off(uint32_t ref, uint32_t start, int32_t token) {
  Node& node = nodes_[ref];
  const uint32_t alone = kAlone | start;
  if (ref != root_ && !node.fan.size && node.count == 1) {  // it was already
    replace(ref, alone);
    nodes_.remove(ref);
  } else {
    fans_.add(node.fan, token, alone);
    rise(ref, alone);
  }
  return alone;
}

// The string ends a token down the edge to `child`, which goes on.
uint32_t SuffixTree::divide(uint32_t ref, Child& child, uint32_t start) {
  Node& node = nodes_[ref];
  const uint32_t below = child.ref;
  if (ref != root_ && node.fan.size == 1 && node.count == count_of(below) + 1) {
    // The node was there for this end alone, and moves along with it.
    ++node.depth;
    child.token = texts_.at(start_of(below), node.depth);
    return ref;
  }
  const uint32_t end = insert_between(ref, child, later(start_of(below), start));
  Node& middle = nodes_[end];
  fans_.add(middle.fan, texts_.at(start_of(below), middle.depth), below);
  middle.heavy = below;
  if (!is_alone(below)) nodes_[below].parent = end;
  rise(ref, end);
  return end;
}

// The string ends where `child`, which was alone, ends too; that one's text must know, should it go on.
uint32_t SuffixTree::meet(uint32_t ref, Child& child, uint32_t start) {
  const uint32_t other = start_of(child.ref);
  const uint32_t end = insert_between(ref, child, later(other, start));
  Text& text = texts_.text_of(other);
  const uint32_t depth = nodes_[end].depth;
  if (text.grows && depth < depth_) {
    assert(text.ends.size() == depth - 1);
    text.ends.push_back(end);
  }
  rise(ref, end);
  dissolve_if_needless(ref);
  return end;
}

// A node one token below `ref`, in the place of `child`, where one string more than in `child` passes or ends.
uint32_t SuffixTree::insert_between(uint32_t ref, Child& child, uint32_t start) {
  const uint32_t added = nodes_.add();
  Node &node = nodes_[ref], &middle = nodes_[added];
  middle.parent = ref;
  middle.count = count_of(child.ref) + 1;
  middle.start = start;
  middle.depth = node.depth + 1;
  if (node.heavy == child.ref) node.heavy = added;
  child.ref = added;
  return added;
}

// Takes the string of `length` tokens at `start` out; it belongs to the oldest text.
void SuffixTree::remove(uint32_t start, uint32_t length) {
  for (uint32_t ref = root_;;) {
    const int32_t token = texts_.at(start, nodes_[ref].depth);
    const uint32_t below = fans_.find(nodes_[ref].fan, token)->ref;
    if (count_of(below) == 1) {
      if (!is_alone(below)) nodes_.remove(below);  // it ends here, or there would be no node
      return detach(ref, token);
    }
    Node& node = nodes_[below];
    --node.count;
    if (below == nodes_[ref].heavy && node.count <= nodes_[ref].second) rank(ref);
    if (node.depth == length) return dissolve_if_needless(below);
    ref = below;
  }
}

void SuffixTree::detach(uint32_t ref, int32_t token) {
  Node& node = nodes_[ref];
  const bool was_heavy = fans_.find(node.fan, token)->ref == node.heavy;
  fans_.erase(node.fan, token);
  if (was_heavy) rank(ref);
  dissolve_if_needless(ref);
}

// A node where nothing branches and nothing ends is a place on an edge.
void SuffixTree::dissolve_if_needless(uint32_t ref) {
  Node& node = nodes_[ref];
  if (ref == root_ || node.fan.size != 1) return;
  const uint32_t below = fans_.only(node.fan).ref;
  if (count_of(below) != node.count) return;
  replace(ref, below);
  if (!is_alone(below)) nodes_[below].parent = node.parent;
  fans_.clear(node.fan);
  nodes_.remove(ref);
}

// `ref` in the place of its parent's child `old`, with the same occurrences.
void SuffixTree::replace(uint32_t old, uint32_t ref) {
  Node& parent = nodes_[nodes_[old].parent];
  fans_.find(parent.fan, texts_.at(nodes_[old].start, parent.depth))->ref = ref;
  if (parent.heavy == old) parent.heavy = ref;
}

bool SuffixTree::is_heavier(uint32_t a, uint32_t b) const {
  const uint32_t one = count_of(a), other = count_of(b);
  return one != other ? one > other : texts_.is_later(start_of(a), start_of(b));
}

// After `child` of `ref` has occurred once more. Nobody asks what follows nothing: the root has no order.
void SuffixTree::rise(uint32_t ref, uint32_t child) {
  Node& node = nodes_[ref];
  if (ref == root_ || child == node.heavy) return;
  if (node.heavy != kNoChild && !is_heavier(child, node.heavy)) {
    node.second = std::max(node.second, count_of(child));
    return;
  }
  if (node.heavy != kNoChild) node.second = std::max(node.second, count_of(node.heavy));
  node.heavy = child;
}

void SuffixTree::rank(uint32_t ref) {
  Node& node = nodes_[ref];
  if (ref == root_) return;
  node.heavy = kNoChild;
  node.second = 0;
  fans_.each(node.fan, [&](const Child& child) { rise(ref, child.ref); });
}

}  // namespace specserve
