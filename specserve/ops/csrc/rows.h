// Work on single rows before and after the matrices: RMS norm, rounding of activations, rope.
#pragma once
#include "activations.h"
#include "layout.h"
#include "vector_math.h"

namespace specserve::SPECSERVE_ISA {

// y = x / sqrt(mean(x^2) + eps) * weight
inline void rms_norm(const float* x, const float* weight, float eps, int size, float* y) {
  Float8 squares = zero();
  int i = 0;
  for (; i + 8 <= size; i += 8) {
    const Float8 v = load(x + i);
    squares = fma(v, v, squares);
  }
  if (i < size) {
    const Float8 v = load_tail(x + i, size - i);
    squares = fma(v, v, squares);
  }
  const Float8 scale = splat(1.0f / std::sqrt(sum(squares) / float(size) + eps));
  for (i = 0; i + 8 <= size; i += 8) store(y + i, mul(mul(load(x + i), scale), load(weight + i)));
  if (i < size) {
    const int rest = size - i;
    store_tail(y + i, mul(mul(load_tail(x + i, rest), scale), load_tail(weight + i, rest)), rest);
  }
}

// Rows below it round to zero: their quotients would be infinite.
constexpr float kSmallest = 1e-30f;

inline Int8 round_to_int(Float8 x) {
  const Float8 rounder = splat(12582912.0f);
  return (Int8)(x + rounder) - (Int8)rounder;
}

// The group's 32 inputs, zero past the row's end.
inline void load_group(const float* x, int left, Float8 (&group)[4]) {
  for (int i = 0; i < 4; ++i, left -= 8)
    group[i] = left >= 8 ? load(x + 8 * i) : left > 0 ? load_tail(x + 8 * i, left) : zero();
}

// One group of 32 inputs as digits of row `row`, group `g`; `padded` is the matrix's k.
template <bool TwoDigits>
inline void round_group(const Float8 (&x)[4], int padded, int g, const Activations& out, size_t row) {
  constexpr float top = TwoDigits ? 16319.0f : 127.0f;  // 127 * 128 + 63
  const float peak = largest(max(max(abs(x[0]), abs(x[1])), max(abs(x[2]), abs(x[3]))));
  const Float8 inverse = splat(peak > kSmallest ? top / peak : 0.0f);
  Int8 q[4], total = {};
  for (int i = 0; i < 4; ++i) total += q[i] = round_to_int(mul(x[i], inverse));
  const size_t place = row * padded + g * kGroup, group = row * (padded / kGroup) + g;
  if constexpr (TwoDigits) {
    Int8 low[4];
    for (int i = 0; i < 4; ++i) {
      const Int8 high = (q[i] + 64) >> 7;
      low[i] = q[i] - (high << 7);
      q[i] = high;
    }
    store_bytes(out.low + place, low);
  }
  store_bytes(out.high + place, q);
  const float scale = peak / top;
  out.scales[group] = scale;
  out.sums[group] = scale * float(sum(total));
}

inline void round_groups(const float* x, int size, int padded, bool two_digits, const Activations& out, size_t row) {
  for (int g = 0; g < padded / kGroup; ++g) {
    Float8 group[4];
    load_group(x + g * kGroup, size - g * kGroup, group);
    if (two_digits) round_group<true>(group, padded, g, out, row);
    else round_group<false>(group, padded, g, out, row);
  }
}

// 16 bit, one scale per row; sums, in units of that scale, only where the matrix has minima.
inline void round_row(const float* x, int size, int padded, const Activations& out, size_t row) {
  Float8 peaks = zero();
  for (int i = 0; i < padded; i += kGroup) {
    Float8 group[4];
    load_group(x + i, size - i, group);
    for (const Float8 v : group) peaks = max(peaks, abs(v));
  }
  const float peak = largest(peaks);
  const Float8 inverse = splat(peak > kSmallest ? 32767.0f / peak : 0.0f);
  for (int i = 0; i < padded; i += kGroup) {
    Float8 group[4];
    Int8 q[4], total = {};
    load_group(x + i, size - i, group);
    for (int j = 0; j < 4; ++j) total += q[j] = round_to_int(mul(group[j], inverse));
    store_shorts(out.wide + row * padded + i, q[0], q[1]);
    store_shorts(out.wide + row * padded + i + 16, q[2], q[3]);
    if (out.sums) out.sums[(row * padded + i) / kGroup] = float(sum(total));
  }
  out.scales[row] = peak / 32767.0f;
}

// Rotates the first 2 * half entries of one head: (x_i, x_{i+half}) by the position's angle i.
inline void rope(float* x, const float* cosine, const float* sine, int half) {
  int i = 0;
  for (; i + 8 <= half; i += 8) {
    const Float8 a = load(x + i), b = load(x + i + half), c = load(cosine + i), s = load(sine + i);
    store(x + i, mul(a, c) - mul(b, s));
    store(x + i + half, mul(b, c) + mul(a, s));
  }
  for (; i < half; ++i) {
    const float a = x[i], b = x[i + half];
    x[i] = a * cosine[i] - b * sine[i];
    x[i + half] = b * cosine[i] + a * sine[i];
  }
}

}  // namespace specserve::SPECSERVE_ISA
