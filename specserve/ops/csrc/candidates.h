// The logits of a row that are large enough, and how large the k-th largest is; twin: ops/order.py.
#pragma once
#include <algorithm>

#include "summary.h"

namespace specserve::sampling::SPECSERVE_ISA {

// Logits at least `low`, by ascending id; their number. NaN is not one of them.
inline int collect(const Blocks& blocks, const float* maxima, float low, Candidate* out) {
  int count = 0;
  for (int b = 0; b < blocks.count(); ++b) {
    if (maxima[b] < low) continue;
    const float* p = blocks[b];
    for (int i = 0; i < kBlock; i += 8)
      for (uint32_t lanes = bits_of((Int8)(load(p + i) >= low)); lanes; lanes &= lanes - 1) {
        const int lane = i + __builtin_ctz(lanes);
        out[count++] = {p[lane], b * kBlock + lane, 0};
      }
  }
  return count;
}

inline int count(const Blocks& blocks, const float* maxima, float low) {
  Int8 counts = {};
  for (int b = 0; b < blocks.count(); ++b) {
    if (maxima[b] < low) continue;
    for (int i = 0; i < kBlock; i += 8) counts -= (Int8)(load(blocks[b] + i) >= low);
  }
  int sum = 0;
  for (int i = 0; i < 8; ++i) sum += counts[i];
  return sum;
}

// At most the k-th largest logit: k blocks have one so large. -inf when there are fewer blocks.
inline float below_kth(const float* maxima, int num_blocks, int64_t k, float* copy) {
  if (k > num_blocks) return -kInfinity;
  std::memcpy(copy, maxima, sizeof(float) * num_blocks);
  float* kth = copy + k - 1;
  std::nth_element(copy, kth, copy + num_blocks, [](float a, float b) { return a > b; });
  return *kth;
}

struct Larger {  // ties: the lowest id first
  bool operator()(const Candidate& a, const Candidate& b) const {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  }
};

// The k-th largest logit, ties counted one by one; -inf when fewer than k are finite.
inline float kth_largest(const Blocks& blocks, const Scratch& scratch, int64_t k) {
  const float low = below_kth(scratch.maxima, blocks.count(), k, scratch.maxima + blocks.count());
  Candidate* c = scratch.candidates;
  const int n = collect(blocks, scratch.maxima, low, c);
  if (n < k) return -kInfinity;
  std::nth_element(c, c + k - 1, c + n, Larger());
  return c[k - 1].logit;
}

}  // namespace specserve::sampling::SPECSERVE_ISA
