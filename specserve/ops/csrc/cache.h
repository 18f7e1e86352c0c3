// Where a slot's key and value lie; see attention.h for the layout.
#pragma once
#include <cstdint>

namespace specserve {

enum class CacheType : int { float32 = 0, float16 = 1, bfloat16 = 2 };

struct Half { uint16_t bits; };
struct Bfloat16 { uint16_t bits; };

struct CacheView {
  void* keys = nullptr;
  void* values = nullptr;
  CacheType type = CacheType::float32;
  int num_kv_heads = 0;
  int head_size = 0;
  int page_size = 0;  // a multiple of 8

  // In elements; the key's components lie 8 apart.
  int64_t tile_offset(int64_t slot, int head) const { return (slot / 8 * num_kv_heads + head) * head_size * 8; }
  int64_t key_offset(int64_t slot, int head) const { return tile_offset(slot, head) + slot % 8; }
  int64_t value_offset(int64_t slot, int head) const { return tile_offset(slot, head) + slot % 8 * head_size; }
};

}  // namespace specserve
