#include "search.h"

#include <algorithm>

namespace specserve {

namespace {

// From an ending's hash to that of the ending one token longer.
uint64_t longer(uint64_t hash, int64_t token) {
  hash = (hash ^ uint64_t(token)) * 0x9E3779B97F4A7C15;
  return hash ^ (hash >> 32);
}

}  // namespace

NgramIndex::NgramIndex(int low, int high, bool earliest)
    : low_(low), high_(high), earliest_(earliest), tables_(high - low + 1) {
  clear();
}

void NgramIndex::clear() {
  tokens_.clear();
  for (Table& table : tables_) table = {std::vector<uint32_t>(64), 0};
}

void NgramIndex::extend(const std::vector<int64_t>& tokens) {
  for (int64_t token : tokens) {
    // Only now does the text before it have a token after it.
    const uint32_t end = uint32_t(tokens_.size());
    uint64_t hash = 0;
    for (int length = 1; length <= high_ && length <= int64_t(end); ++length) {
      hash = longer(hash, tokens_[end - length]);
      if (length >= low_) add(tables_[length - low_], length, end, hash);
    }
    tokens_.push_back(token);
  }
}

int64_t NgramIndex::find() const {
  const uint32_t end = uint32_t(tokens_.size());
  for (int length = std::min<int64_t>(high_, end); length >= low_; --length) {
    const Table& table = tables_[length - low_];
    const uint32_t position = table.slots[slot(table, length, end, hash(length, end))];
    if (position) return position;
  }
  return -1;
}

void NgramIndex::add(Table& table, int length, uint32_t end, uint64_t hash) {
  uint32_t& position = table.slots[slot(table, length, end, hash)];
  if (position && earliest_) return;
  const bool is_new = position == 0;
  position = end;
  if (is_new && ++table.count * 2 > table.slots.size()) grow(table, length);
}

void NgramIndex::grow(Table& table, int length) {
  std::vector<uint32_t> old(table.slots.size() * 2);
  old.swap(table.slots);
  for (uint32_t end : old)
    if (end) table.slots[slot(table, length, end, hash(length, end))] = end;
}

uint64_t NgramIndex::hash(int length, uint32_t end) const {
  uint64_t hash = 0;
  for (int i = 1; i <= length; ++i) hash = longer(hash, tokens_[end - i]);
  return hash;
}

size_t NgramIndex::slot(const Table& table, int length, uint32_t end, uint64_t hash) const {
  const int64_t* ending = tokens_.data() + end - length;
  const size_t mask = table.slots.size() - 1;
  size_t place = hash & mask;
  while (table.slots[place]) {
    if (std::equal(ending, ending + length, tokens_.data() + table.slots[place] - length)) break;
    place = (place + 1) & mask;
  }
  return place;
}

}  // namespace specserve
