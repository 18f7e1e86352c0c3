// min_p, top-k, top-p; twin: ops/truncate.py. What stays is said by a threshold, and by how many of the ids
// exactly at it stay, lowest first. Masses are whole numbers, so the nucleus needs no sorting: halves of the
// candidates are taken or left by their sums.
#pragma once
#include <cmath>

#include "candidates.h"
#include "mass.h"

namespace specserve::sampling::SPECSERVE_ISA {

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

struct Cut {
  float threshold;
  int64_t num_at_threshold;
};

// The shortest run of the largest candidates whose mass reaches `goal` > 0; all when it is never reached.
inline Cut cut(Candidate* c, int n, int64_t goal, float low) {
  while (n > 0) {
    const float a = c[0].logit, b = c[n / 2].logit, d = c[n - 1].logit;
    const float pivot = std::max(std::min(a, b), std::min(std::max(a, b), d));
    Candidate* equal = std::partition(c, c + n, [&](const Candidate& x) { return x.logit > pivot; });
    Candidate* less = std::partition(equal, c + n, [&](const Candidate& x) { return x.logit == pivot; });
    int64_t above = 0;
    for (Candidate* x = c; x != equal; ++x) above += x->mass;
    if (goal <= above) {
      n = int(equal - c);
      continue;
    }
    goal -= above;
    const int64_t each = equal->mass, at = each * (less - equal);
    if (goal <= at) return {pivot, (goal + each - 1) / each};
    goal -= at;
    n -= int(less - c);
    c = less;
  }
  return {low, kAll};
}

inline Cut nucleus(const Blocks& blocks, float best, float low, double top_p, const Scratch& scratch) {
  const float* maxima = scratch.maxima;
  Candidate* c = scratch.candidates;
  const int64_t goal = std::max(int64_t(1), int64_t(std::ceil(top_p * double(total(blocks, maxima, best, low)))));
  for (const float depth : {2.0f, 4.0f, 8.0f, 16.0f, kDepth}) {
    const int n = collect(blocks, maxima, std::max(low, best - depth), c);
    int64_t reached = 0;
    for (int i = 0; i < n; ++i) reached += c[i].mass = mass(c[i].logit - best);
    if (reached >= goal) return cut(c, n, goal, low);
  }
  return {low, kAll};
}

inline void keep(float* row, const Blocks& blocks, int size, const float* maxima, Cut cut) {
  const Float8 nothing = splat(-kInfinity);
  for (int b = 0; b < blocks.count(); ++b) {
    float kept[kBlock];
    for (int i = 0; i < kBlock; i += 8) {
      const Float8 x = load(blocks[b] + i);
      store(kept + i, select((Int8)(x >= cut.threshold), x, nothing));
    }
    if (cut.num_at_threshold != kAll && maxima[b] >= cut.threshold)
      for (float& x : kept)
        if (x == cut.threshold && --cut.num_at_threshold < 0) x = -kInfinity;
    std::memcpy(row + b * kBlock, kept, sizeof(float) * std::min(kBlock, size - b * kBlock));
  }
}

void truncate(float* row, int size, const Truncation& t, const Scratch& scratch) {
  const Blocks blocks(row, size);
  const float best = summarise(blocks, scratch.maxima).logit;
  Cut cut{-kInfinity, kAll};
  if (std::isfinite(best)) {
    if (t.has_min_p) cut.threshold = best + t.log_min_p;
    if (0 < t.top_k && t.top_k < size) cut.threshold = std::max(cut.threshold, kth_largest(blocks, scratch, t.top_k));
    if (t.top_p < 1.0) cut = nucleus(blocks, best, cut.threshold, t.top_p, scratch);
  }
  keep(row, blocks, size, scratch.maxima, cut);
}

}  // namespace specserve::sampling::SPECSERVE_ISA
