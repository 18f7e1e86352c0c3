#include "suffix_fans.h"

#include <algorithm>

namespace specserve {

Child* Fans::find(const Fan& fan, int32_t token) const {
  if (!fan.size) return nullptr;
  Child* children = at(fan.block);
  if (is_array(fan)) {
    for (uint32_t i = 0; i < fan.size; ++i)
      if (children[i].token == token) return children + i;
    return nullptr;
  }
  const uint32_t mask = (1u << fan.log_capacity) - 1;
  for (uint32_t i = home(token, fan.log_capacity); children[i].ref != kNoChild; i = (i + 1) & mask)
    if (children[i].token == token) return children + i;
  return nullptr;
}

void Fans::add(Fan& fan, int32_t token, uint32_t ref) {
  const uint64_t capacity = fan.log_capacity ? 1u << fan.log_capacity : 0;
  const bool is_full = is_array(fan) ? fan.size == capacity : (fan.size + 1) * uint64_t(4) > capacity * 3;
  if (is_full) resize(fan, fan.log_capacity + 1);
  Child* children = at(fan.block);
  if (is_array(fan)) children[fan.size] = {token, ref};
  else put(children, fan.log_capacity, {token, ref});
  ++fan.size;
}

void Fans::erase(Fan& fan, int32_t token) {
  Child* hole = find(fan, token);
  Child* children = at(fan.block);
  --fan.size;
  if (is_array(fan)) {
    *hole = children[fan.size];
  } else {
    // Whoever was pushed past the hole moves into it, so that no search stops too early.
    const uint32_t mask = (1u << fan.log_capacity) - 1;
    uint32_t empty = uint32_t(hole - children);
    for (uint32_t i = (empty + 1) & mask; children[i].ref != kNoChild; i = (i + 1) & mask) {
      if (((i - home(children[i].token, fan.log_capacity)) & mask) < ((i - empty) & mask)) continue;
      children[empty] = children[i];
      empty = i;
    }
    children[empty].ref = kNoChild;
  }
  if (!fan.size) clear(fan);
  else if (fan.log_capacity > 1 && fan.size * (is_array(fan) ? 2ull : 4ull) <= 1u << fan.log_capacity)
    resize(fan, fan.log_capacity - 1);
}

void Fans::clear(Fan& fan) {
  if (fan.log_capacity) give(fan.block, fan.log_capacity);
  fan = Fan();
}

void Fans::resize(Fan& fan, int log) {
  const uint32_t block = take(log);
  Child* table = at(block);
  if (log > kArray) std::fill(table, table + (1u << log), Child{0, kNoChild});
  uint32_t count = 0;
  each(fan, [&](const Child& child) {
    if (log > kArray) put(table, log, child);
    else table[count++] = child;
  });
  if (fan.log_capacity) give(fan.block, fan.log_capacity);
  fan.block = block;
  fan.log_capacity = log;
}

void Fans::put(Child* table, int log, Child child) {
  uint32_t i = home(child.token, log);
  while (table[i].ref != kNoChild) i = (i + 1) & ((1u << log) - 1);
  table[i] = child;
}

uint32_t Fans::take(int log) {
  num_used_ += size_t(1) << log;
  return log > kChunk ? add_chunk(log) : carve(log);
}

uint32_t Fans::carve(int log) {
  if (free_[log].empty()) {
    if (log == kChunk) return add_chunk(log);
    const uint32_t whole = carve(log + 1);
    free_[log].push_back(whole + (1u << log));
    return whole;
  }
  const uint32_t block = free_[log].back();
  free_[log].pop_back();
  return block;
}

void Fans::give(uint32_t block, int log) {
  num_used_ -= size_t(1) << log;
  if (log <= kChunk) return free_[log].push_back(block);
  chunks_[block >> kChunk].reset();
  empty_chunks_.push_back(block >> kChunk);
}

uint32_t Fans::add_chunk(int log) {
  if (empty_chunks_.empty()) {
    empty_chunks_.push_back(uint32_t(chunks_.size()));
    chunks_.emplace_back();
  }
  const uint32_t chunk = empty_chunks_.back();
  empty_chunks_.pop_back();
  chunks_[chunk] = std::make_unique<Child[]>(size_t(1) << log);
  return chunk << kChunk;
}

}  // namespace specserve
