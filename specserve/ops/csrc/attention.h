// Attention over pages with an online softmax (Milakov & Gimelshein 2018) over blocks of 64 absolute
// positions. A block's scores, its maximum, its sum and its products with V are computed in one order that
// depends on the row's own first and last key only: neither on neighbours, nor on where a chunk, a page or
// a window of another row began. A masked lane weighs exactly 0 and its V is never multiplied, so stale
// slots may hold NaN.
//
// Both lie in tiles of 8 slots: keys as [slot / 8][kv head][head size][slot % 8], so that lanes are keys,
// values as [slot / 8][kv head][slot % 8][head size].
#pragma once
#include <algorithm>
#include <limits>

#include "cache.h"
#include "kernels.h"
#include "vector_math.h"

namespace specserve::SPECSERVE_ISA {

constexpr int kBlock = 64;       // positions per softmax block
constexpr int kTile = 8;         // slots per key tile

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

// Q queries against N key tiles: twelve sums or so, enough to hide the latency of a multiply-add.
template <int Q, int N, typename T>
inline void score_tiles(Queries& s, int query, const T* const* keys, int tile) {
  Float8 sum[Q][N];
  for (int i = 0; i < Q; ++i)
    for (int n = 0; n < N; ++n) sum[i][n] = zero();
  for (int d = 0; d < s.head_size; ++d) {
    Float8 key[N];
    for (int n = 0; n < N; ++n) key[n] = load_as_float(keys[tile + n] + d * kTile);
    for (int i = 0; i < Q; ++i) {
      const Float8 q = splat(s.q[query + i][d]);
      for (int n = 0; n < N; ++n) sum[i][n] = fma(key[n], q, sum[i][n]);
    }
  }
  for (int i = 0; i < Q; ++i)
    for (int n = 0; n < N; ++n) store(&s.score[query + i][(tile + n) * kTile], sum[i][n]);
}

template <int Q, int N, typename T>
inline int score_queries(Queries& s, int query, const T* const* tiles, int num_tiles) {
  for (; query + Q <= s.count; query += Q) {
    int tile = 0;
    for (; tile + N <= num_tiles; tile += N) score_tiles<Q, N>(s, query, tiles, tile);
    for (; tile < num_tiles; ++tile) score_tiles<Q, 1>(s, query, tiles, tile);
  }
  return query;
}

template <typename T>
inline void score_block(Queries& s, const T* const* tiles, int num_tiles) {
  int query = score_queries<6, 2>(s, 0, tiles, num_tiles);
  query = score_queries<3, 4>(s, query, tiles, num_tiles);
  score_queries<1, 8>(s, query, tiles, num_tiles);
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

// out[query .. query + Q)[d .. d + 8 N) = out * decay + sum over j in [low, high) of weight_j * V_j, j in order.
template <int Q, int N, typename T>
inline void add_value_columns(Queries& s, int query, const T* const* rows, int low, int high, int d) {
  Float8 sum[Q][N];
  for (int i = 0; i < Q; ++i)
    for (int n = 0; n < N; ++n) sum[i][n] = mul(load(&s.out[query + i][d + 8 * n]), splat(s.decay[query + i]));
  for (int j = low; j < high; ++j) {
    Float8 value[N];
    for (int n = 0; n < N; ++n) value[n] = load_as_float(rows[j] + d + 8 * n);
    for (int i = 0; i < Q; ++i) {
      const Float8 weight = splat(s.score[query + i][j]);
      for (int n = 0; n < N; ++n) sum[i][n] = fma(value[n], weight, sum[i][n]);
    }
  }
  for (int i = 0; i < Q; ++i)
    for (int n = 0; n < N; ++n) store(&s.out[query + i][d + 8 * n], sum[i][n]);
}

template <int Q, int N, typename T>
inline void add_values(Queries& s, int query, const T* const* rows, int low, int high) {
  int d = 0;
  for (; d + 8 * N <= s.head_size; d += 8 * N) add_value_columns<Q, N>(s, query, rows, low, high, d);
  for (; d < s.head_size; d += 8) add_value_columns<Q, 1>(s, query, rows, low, high, d);
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
    if (same >= 6) same = 6, add_values<6, 2>(s, query, rows, low, high);
    else if (same >= 3) same = 3, add_values<3, 4>(s, query, rows, low, high);
    else same = 1, add_values<1, 8>(s, query, rows, low, high);
    query += same;
  }
}

// The slots of one softmax block, as far as it is used.
template <typename T>
struct Block {
  int num_tiles = 0;
  const T* keys[kBlock / kTile];
  const T* values[kBlock / kTile];
  const T* rows[kBlock];
};

template <typename T>
inline Block<T> find_block(const CacheView& cache, const int32_t* block_table, int kv_head, int start, int end) {
  Block<T> block;
  block.num_tiles = (std::min(kBlock, end - start) + kTile - 1) / kTile;
  for (int t = 0; t < block.num_tiles; ++t) {
    const int position = start + t * kTile;
    const int64_t slot = int64_t(block_table[position / cache.page_size]) * cache.page_size + position % cache.page_size;
    block.keys[t] = (const T*)cache.keys + cache.tile_offset(slot, kv_head);
    block.values[t] = (const T*)cache.values + cache.tile_offset(slot, kv_head);
    for (int j = 0; j < kTile; ++j) block.rows[t * kTile + j] = block.values[t] + j * cache.head_size;
  }
  return block;
}

// Tiles lie apart, so the hardware's prefetcher does not find the next one.
template <typename T>
inline void prefetch_tiles(const T* const* tiles, int num_tiles, int head_size) {
  for (int t = 0; t < num_tiles; ++t)
    for (int i = 0; i < head_size * kTile; i += 64 / int(sizeof(T))) __builtin_prefetch(tiles[t] + i, 0, 2);
}

// All keys of the sequence that any query sees.
template <typename T>
void attend(Queries& s, const CacheView& cache, const int32_t* block_table, int kv_head) {
  for (int i = 0; i < s.count; ++i) {
    s.peak[i] = -std::numeric_limits<float>::infinity();
    s.total[i] = 0.0f;
    std::memset(s.out[i], 0, sizeof(float) * s.head_size);
  }
  const int first = *std::min_element(s.first_key, s.first_key + s.count);
  const int end = *std::max_element(s.end_key, s.end_key + s.count);
  Block<T> block = find_block<T>(cache, block_table, kv_head, first / kBlock * kBlock, end);
  for (int start = first / kBlock * kBlock; start < end; start += kBlock) {
    prefetch_tiles(block.values, block.num_tiles, s.head_size);
    score_block(s, block.keys, block.num_tiles);
    bool sees[kMaxQueries];
    for (int i = 0; i < s.count; ++i) sees[i] = weigh(s, i, start);
    const Block<T> next = find_block<T>(cache, block_table, kv_head, start + kBlock, end);
    prefetch_tiles(next.keys, next.num_tiles, s.head_size);
    value_block(s, block.rows, start, sees);
    block = next;
  }
}

}  // namespace specserve::SPECSERVE_ISA
