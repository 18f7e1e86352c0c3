// The children of all nodes of a suffix tree: arrays while they are few, open hash tables from there on, all in
// blocks of 2^n entries from one store. No pointer into a fan outlives a change of that fan.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace specserve {

struct Child {
  int32_t token;  // the first of the edge
  uint32_t ref;   // what the owner makes of it; never kNoChild
};
constexpr uint32_t kNoChild = ~0u;

struct Fan {
  uint32_t block = 0;
  uint32_t size : 27 = 0;
  uint32_t log_capacity : 5 = 0;  // 0: no block yet
};

class Fans {
 public:
  Fans() : free_(32) {}
  size_t num_bytes() const { return num_used_ * sizeof(Child); }
  Child* find(const Fan& fan, int32_t token) const;  // null when it is not there
  void add(Fan& fan, int32_t token, uint32_t ref);   // which is not there yet
  void erase(Fan& fan, int32_t token);               // which is there
  void clear(Fan& fan);
  Child& only(const Fan& fan) const { return *at(fan.block); }  // of a fan of size 1: few enough for an array

  template <typename F>
  void each(const Fan& fan, F visit) const {
    if (!fan.log_capacity) return;
    const uint32_t end = is_array(fan) ? fan.size : 1u << fan.log_capacity;
    const Child* children = at(fan.block);
    for (uint32_t i = 0; i < end; ++i)
      if (children[i].ref != kNoChild) visit(children[i]);
  }

 private:
  static constexpr int kArray = 3, kChunk = 10;  // log2 of the longest array, and of a chunk's entries
  static bool is_array(const Fan& fan) { return fan.log_capacity <= kArray; }
  static uint32_t home(int32_t token, int log) { return uint32_t(token) * 0x9E3779B1u >> (32 - log); }
  Child* at(uint32_t block) const { return chunks_[block >> kChunk].get() + (block & ((1u << kChunk) - 1)); }
  void resize(Fan& fan, int log);
  static void put(Child* table, int log, Child child);
  uint32_t take(int log);
  uint32_t carve(int log);
  void give(uint32_t block, int log);
  uint32_t add_chunk(int log);

  std::vector<std::unique_ptr<Child[]>> chunks_;  // a block longer than a chunk has one of its own
  std::vector<uint32_t> empty_chunks_;
  std::vector<std::vector<uint32_t>> free_;  // blocks by log2 of their entries
  size_t num_used_ = 0;                      // entries of blocks in use
};

}  // namespace specserve
