// Register tiles: M rows times one panel of 16 outputs. Every output element is accumulated over k in one
// fixed order, by the same instructions whatever M is, so a row's result does not depend on its
// neighbours. `out` is [M][16].
//
// Included once per instruction set, inside namespace SPECSERVE_ISA.
#pragma once
#include <cstring>

#include "activations.h"
#include "layout.h"
#include "lanes.h"

namespace specserve::SPECSERVE_ISA {

// --- float32 and bfloat16 -----------------------------------------------------------------------

template <WeightClass C>
inline void load_weights(const uint8_t* w, Float8& a, Float8& b) {
  if constexpr (C == WeightClass::float32) {
    a = load((const float*)w);
    b = load((const float*)w + 8);
  } else {
    a = load_bfloat16((const uint16_t*)w);
    b = load_bfloat16((const uint16_t*)w + 8);
  }
}

template <int M, WeightClass C>
void float_tile(const Matrix& matrix, const uint8_t* w, const float* x, size_t stride, float* out) {
  constexpr size_t step = (C == WeightClass::float32 ? 4 : 2) * kPanel;
  Float8 sum[M][2];
  for (int m = 0; m < M; ++m) sum[m][0] = sum[m][1] = zero();
  const int k = matrix.num_inputs;
  for (int i = 0; i < k; ++i, w += step) {
    prefetch(w + 1024);
    Float8 a, b;
    load_weights<C>(w, a, b);
    for (int m = 0; m < M; ++m) {
      const Float8 v = splat(x[m * stride + i]);
      sum[m][0] = fma(a, v, sum[m][0]);
      sum[m][1] = fma(b, v, sum[m][1]);
    }
  }
  for (int m = 0; m < M; ++m) {
    store(out + m * kPanel, sum[m][0]);
    store(out + m * kPanel + 8, sum[m][1]);
  }
}

// --- integer classes ----------------------------------------------------------------------------

template <bool Wide>
inline Float8 load_scales(const uint8_t* p) {
  if constexpr (Wide) return load((const float*)p);
  else return load_half((const uint16_t*)p);
}

// sum += scale_w * scale_x * integer (+ minimum * sum_x), in this order.
template <int M, bool Wide, bool Minimum>
inline void add_group(const uint8_t* scales, const Int8 (&integer)[M][2], const float* row_scales,
                      const float* row_sums, size_t stride, Float8 (&sum)[M][2]) {
  constexpr size_t bytes = kPanel * (Wide ? 4 : 2);
  for (int v = 0; v < 2; ++v) {
    const Float8 scale = load_scales<Wide>(scales + v * bytes / 2);
    for (int m = 0; m < M; ++m) {
      const Float8 s = row_scales ? mul(scale, splat(row_scales[m * stride])) : scale;
      sum[m][v] = fma(s, to_float(integer[m][v]), sum[m][v]);
    }
    if constexpr (Minimum) {
      const Float8 minimum = load_scales<Wide>(scales + bytes + v * bytes / 2);
      for (int m = 0; m < M; ++m) sum[m][v] = fma(minimum, splat(row_sums[m * stride]), sum[m][v]);
    }
  }
}

// int4: the products of a group are summed in 16 bits: 16 of them at most 15 * 127 * 16 = 30480.
template <int M, bool Wide, bool TwoDigits>
void int4_tile(const Matrix& matrix, const uint8_t* w, const Activations& x, size_t row, float* out) {
  const int k = matrix.num_inputs, groups = matrix.num_groups();
  const size_t bytes = matrix.group_bytes();
  const int8_t* high = x.high + row * k;
  const int8_t* low = TwoDigits ? x.low + row * k : nullptr;
  Float8 sum[M][2];
  for (int m = 0; m < M; ++m) sum[m][0] = sum[m][1] = zero();
  for (int g = 0; g < groups; ++g, w += bytes) {
    for (size_t b = 0; b < bytes; b += 64) prefetch(w + 4 * bytes + b);
    Int8 integer[M][2];
    int4_products<M>(w, high + g * kGroup, k, integer);
    if constexpr (TwoDigits) {
      Int8 lower[M][2];
      int4_products<M>(w, low + g * kGroup, k, lower);
      for (int m = 0; m < M; ++m)
        for (int v = 0; v < 2; ++v) integer[m][v] = add(shift_left_7(integer[m][v]), lower[m][v]);
    }
    add_group<M, Wide, true>(w + kPanel * kGroup / 2, integer, x.scales + row * groups + g,
                             x.sums + row * groups + g, groups, sum);
  }
  for (int m = 0; m < M; ++m) {
    store(out + m * kPanel, sum[m][0]);
    store(out + m * kPanel + 8, sum[m][1]);
  }
}

// int8 x 16 bit: 32 products of at most 127 * 32767 fit 32 bits. The row's scale is applied once, at the end.
template <int M, int Group, bool Wide, bool Minimum>
void int8_tile(const Matrix& matrix, const uint8_t* w, const Activations& x, size_t row, float* out) {
  const int k = matrix.num_inputs, groups = matrix.num_groups();
  const size_t bytes = matrix.group_bytes();
  const int16_t* wide = x.wide + row * k;
  Float8 sum[M][2];
  for (int m = 0; m < M; ++m) sum[m][0] = sum[m][1] = zero();
  for (int g = 0; g < groups; ++g, w += bytes) {
    for (size_t b = 0; b < bytes; b += 64) prefetch(w + 3 * bytes + b);
    Int8 integer[M][2];
    int8_products<M, Group>(w, wide + g * Group, k, integer);
    add_group<M, Wide, Minimum>(w + kPanel * Group, integer, nullptr,
                                Minimum ? x.sums + row * groups + g : nullptr, groups, sum);
  }
  for (int m = 0; m < M; ++m) {
    const Float8 scale = splat(x.scales[row + m]);
    store(out + m * kPanel, mul(sum[m][0], scale));
    store(out + m * kPanel + 8, mul(sum[m][1], scale));
  }
}

}  // namespace specserve::SPECSERVE_ISA
