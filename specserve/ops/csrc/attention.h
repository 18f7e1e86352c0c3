// Attention over pages with an online softmax (Milakov & Gimelshein 2018) over blocks of 64 absolute
// positions. A block's scores, its maximum, its sum and its products with V are computed in one order that
// depends on the row's own first and last key only: neither on neighbours, nor on where a chunk, a page or
// a window of another row began. A masked lane weighs exactly 0 and its V is never multiplied, so stale
// slots may hold NaN.
//
// Keys lie in tiles of 8 slots, [slot / 8][kv head][head size][slot % 8], so that lanes are keys; values
// lie as [slot][kv head][head size].
#pragma once
#include <algorithm>
#include <limits>

#include "cache.h"
#include "vector_math.h"

namespace specserve::SPECSERVE_ISA {

constexpr int kBlock = 64;       // positions per softmax block
constexpr int kTile = 8;         // slots per key tile
constexpr int kMaxQueries = 48;  // rows x heads of one work item
constexpr int kMaxHead = 256;

template <typename T>
inline Float8 load_as_float(const T* p);
template <>
inline Float8 load_as_float<float>(const float* p) { return load(p); }
template <>
inline Float8 load_as_float<Half>(const Half* p) { return load_half((const uint16_t*)p); }
template <>
inline Float8 load_as_float<Bfloat16>(const Bfloat16* p) { return load_bfloat16((const uint16_t*)p); }

// One kv head of one sequence seen by `count` queries.
struct Queries {
  int count = 0;
  int head_size = 0;
  alignas(32) float q[kMaxQueries][kMaxHead];       // already scaled
  alignas(32) float out[kMaxQueries][kMaxHead];     // running weighted sum of V
  alignas(32) float score[kMaxQueries][kBlock];
  float peak[kMaxQueries];                          // running maximum
  float total[kMaxQueries];                         // running sum of weights
  float decay[kMaxQueries];
  int first_key[kMaxQueries], end_key[kMaxQueries];  // keys [first, end) are visible
};

template <int Q, typename T>
inline void score_tile(Queries& s, int query, const T* keys, int column) {
  Float8 sum[Q];
  for (int i = 0; i < Q; ++i) sum[i] = zero();
  for (int d = 0; d < s.head_size; ++d) {
    const Float8 k = load_as_float(keys + d * kTile);
    for (int i = 0; i < Q; ++i) sum[i] = fma(k, splat(s.q[query + i][d]), sum[i]);
  }
  for (int i = 0; i < Q; ++i) store(&s.score[query + i][column], sum[i]);
}

template <typename T>
inline void score_block(Queries& s, const T* const* tiles, int num_tiles) {
  for (int t = 0; t < num_tiles; ++t) {
    int query = 0;
    for (; query + 6 <= s.count; query += 6) score_tile<6>(s, query, tiles[t], t * kTile);
    for (; query + 3 <= s.count; query += 3) score_tile<3>(s, query, tiles[t], t * kTile);
    for (; query < s.count; ++query) score_tile<1>(s, query, tiles[t], t * kTile);
  }
}

// Turns the block's scores into weights and updates maximum and sum; false when the query sees no key of it.
inline bool weigh(Queries& s, int query, int block_start) {
  const int low = std::max(s.first_key[query] - block_start, 0);
  const int high = std::min(s.end_key[query] - block_start, kBlock);
  if (low >= high) return false;
  float* score = s.score[query];
  const float none = -std::numeric_limits<float>::infinity();
  for (int j = 0; j < low; ++j) score[j] = none;
  for (int j = high; j < kBlock; ++j) score[j] = none;
  Float8 peak8 = load(score);
  for (int j = 8; j < kBlock; j += 8) peak8 = max(peak8, load(score + j));
  const float peak = std::max(s.peak[query], largest(peak8));
  Float8 total = zero();
  for (int j = 0; j < kBlock; j += 8) {
    const Float8 weight = exp(load(score + j) - splat(peak));
    store(score + j, weight);
    total = total + weight;
  }
  const Float8 decay = exp(splat(s.peak[query]) - splat(peak));
  s.decay[query] = decay[0];
  s.total[query] = s.total[query] * decay[0] + sum(total);
  s.peak[query] = peak;
  return true;
}

// out[query .. query + Q) = out * decay + sum over j in [low, high) of weight_j * V_j, j in order.
template <int Q, typename T>
inline void add_values(Queries& s, int query, const T* const* rows, int low, int high) {
  for (int d = 0; d < s.head_size; d += 8) {
    Float8 sum[Q];
    for (int i = 0; i < Q; ++i) sum[i] = mul(load(&s.out[query + i][d]), splat(s.decay[query + i]));
    for (int j = low; j < high; ++j) {
      const Float8 v = load_as_float(rows[j] + d);
      for (int i = 0; i < Q; ++i) sum[i] = fma(v, splat(s.score[query + i][j]), sum[i]);
    }
    for (int i = 0; i < Q; ++i) store(&s.out[query + i][d], sum[i]);
  }
}

template <typename T>
inline void value_block(Queries& s, const T* const* rows, int block_start, const bool* sees) {
  int query = 0;
  while (query < s.count) {
    if (!sees[query]) {
      ++query;
      continue;
    }
    const int low = std::max(s.first_key[query] - block_start, 0);
    const int high = std::min(s.end_key[query] - block_start, kBlock);
    int same = 1;  // neighbours with the same range share the pass over V
    while (same < 6 && query + same < s.count && sees[query + same] &&
           std::max(s.first_key[query + same] - block_start, 0) == low &&
           std::min(s.end_key[query + same] - block_start, kBlock) == high)
      ++same;
    if (same >= 6) same = 6, add_values<6>(s, query, rows, low, high);
    else if (same >= 3) same = 3, add_values<3>(s, query, rows, low, high);
    else same = 1, add_values<1>(s, query, rows, low, high);
    query += same;
  }
}

// All keys of the sequence that any query sees. `keys` and `values` are the layer's cache.
template <typename T>
void attend(Queries& s, const CacheView& cache, const int32_t* block_table, int kv_head) {
  for (int i = 0; i < s.count; ++i) {
    s.peak[i] = -std::numeric_limits<float>::infinity();
    s.total[i] = 0.0f;
    std::memset(s.out[i], 0, sizeof(float) * s.head_size);
  }
  const int first = *std::min_element(s.first_key, s.first_key + s.count);
  const int end = *std::max_element(s.end_key, s.end_key + s.count);
  for (int start = first / kBlock * kBlock; start < end; start += kBlock) {
    const int count = std::min(kBlock, end - start), num_tiles = (count + kTile - 1) / kTile;
    const T* tiles[kBlock / kTile];
    const T* rows[kBlock];
    for (int t = 0; t < num_tiles; ++t) {
      const int position = start + t * kTile;
      const int64_t slot = int64_t(block_table[position / cache.page_size]) * cache.page_size + position % cache.page_size;
      tiles[t] = (const T*)cache.keys + cache.key_offset(slot, kv_head);
      for (int j = 0; j < kTile; ++j) rows[t * kTile + j] = (const T*)cache.values + cache.value_offset(slot + j, kv_head);
    }
    score_block(s, tiles, num_tiles);
    bool sees[kMaxQueries];
    for (int i = 0; i < s.count; ++i) sees[i] = weigh(s, i, start);
    value_block(s, rows, start, sees);
  }
}

}  // namespace specserve::SPECSERVE_ISA
