// exp(logit - best) in whole multiples of 2^-40; twin: ops/mass.py, operation by operation. Whole numbers add
// up to the same total in any order.
#pragma once
#include "summary.h"

namespace specserve::sampling::SPECSERVE_ISA {

constexpr float kDepth = 29.0f;  // so far below the best a mass is 0

// Adding this number to a double rounds it to an integer, which the low bits of the sum then hold.
constexpr double kMagic = 0x1.8p52;
constexpr uint64_t kMagicBits = 0x4338000000000000;

// Several vectors side by side: one alone would wait for the result of every operation. `below` is logit - best,
// at most 0. Masses of vector v are in out[v] (lanes 0 to 3) and out[N + v], `kMagicBits` too large.
template <int N>
inline void masses(const Float8 (&below)[N], Word4 (&out)[2 * N]) {
  constexpr double ln2 = 0.6931471805599453, ln4 = ln2 * ln2;
  constexpr float series[] = {float(ln4 * ln4 * ln2 / 120), float(ln4 * ln4 / 24), float(ln4 * ln2 / 6),
                              float(ln4 / 2),               float(ln2),            1.0f};
  constexpr float rounder = 0x1.8p23f + 40;  // the same for floats; and n + 40 is the result's exponent
  Float8 shifted[N], r[N], p[N];
  for (int v = 0; v < N; ++v) {
    const Float8 y = larger(below[v], splat(-kDepth)) * float(1 / ln2);
    shifted[v] = y + rounder;
    r[v] = y - (shifted[v] - rounder);
    p[v] = splat(float(ln4 * ln4 * ln4 / 720));
  }
  for (const float coefficient : series)
    for (int v = 0; v < N; ++v) p[v] = p[v] * r[v] + coefficient;
  for (int v = 0; v < N; ++v) {
    const Float8 scaled = (Float8)((Int8)p[v] + ((Int8)shifted[v] << 23));
    out[v] = (Word4)(low_doubles(scaled) + kMagic);
    out[N + v] = (Word4)(high_doubles(scaled) + kMagic);
  }
}

inline int64_t mass(float below) {
  const Float8 one[1] = {splat(below)};
  Word4 found[2];
  masses(one, found);
  return int64_t(found[0][0] - kMagicBits);
}

// Of the logits that are at least `low`. NaN is not one of them.
inline int64_t total(const Blocks& blocks, const float* maxima, float best, float low) {
  Word4 sums[2] = {};
  uint64_t offset = 0;
  const float least = low > best - kDepth ? low : best - kDepth;
  for (int b = 0; b < blocks.count(); ++b) {
    if (maxima[b] < least) continue;
    const float* p = blocks[b];
    offset += kBlock * kMagicBits;
    for (int i = 0; i < kBlock; i += 32) {
      Float8 below[4];
      Word4 found[8];
      for (int v = 0; v < 4; ++v) {
        const Float8 x = load(p + i + 8 * v);
        below[v] = select((Int8)(x >= low), x, splat(-kInfinity)) - best;
      }
      masses(below, found);
      for (int v = 0; v < 8; ++v) sums[v & 1] += found[v];
    }
  }
  const Word4 sum = sums[0] + sums[1];
  return int64_t(sum[0] + sum[1] + sum[2] + sum[3] - offset);
}

}  // namespace specserve::sampling::SPECSERVE_ISA
