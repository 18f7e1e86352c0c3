// Register tiles: M rows times one panel of 16 outputs. Every output element is accumulated over k in one
// fixed order, by the same operations whatever M is, so a row's result does not depend on its neighbours.
// `out` is [M][16].
//
// Included once per instruction set, inside namespace SPECSERVE_ISA.
#pragma once
#include "activations.h"
#include "panel.h"

namespace specserve::SPECSERVE_ISA {

template <int M>
inline void store_rows(const FloatPanel (&sum)[M], float* out) {
  for (int m = 0; m < M; ++m) store(out + m * kPanel, sum[m]);
}

// --- float32 and bfloat16 -----------------------------------------------------------------------

template <WeightClass C>
inline FloatPanel load_weights(const uint8_t* w) {
  if constexpr (C == WeightClass::float32) return load_panel((const float*)w);
  else return load_bfloat16_panel((const uint16_t*)w);
}

// P panels one after the other in memory, `out` [P][M][16]: a single panel's chain of additions is too slow
// for the memory behind it.
template <int M, int P, WeightClass C>
void float_tile(const Matrix& matrix, const uint8_t* w, const float* x, size_t stride, float* out) {
  constexpr size_t step = (C == WeightClass::float32 ? 4 : 2) * kPanel;
  const size_t panel = matrix.panel_bytes();
  FloatPanel sum[P][M];
  for (int p = 0; p < P; ++p)
    for (int m = 0; m < M; ++m) sum[p][m] = zero_panel();
  const int k = matrix.num_inputs;
  for (int i = 0; i < k; ++i, w += step) {
    FloatPanel weights[P];
    for (int p = 0; p < P; ++p) {
      prefetch(w + p * panel + 1024);
      weights[p] = load_weights<C>(w + p * panel);
    }
    for (int m = 0; m < M; ++m) {
      const FloatPanel v = splat_panel(x[m * stride + i]);
      for (int p = 0; p < P; ++p) sum[p][m] = fma(weights[p], v, sum[p][m]);
    }
  }
  for (int p = 0; p < P; ++p) store_rows<M>(sum[p], out + p * M * kPanel);
}

// --- integer classes ----------------------------------------------------------------------------

template <bool Wide>
inline FloatPanel load_scales(const uint8_t* p) {
  if constexpr (Wide) return load_panel((const float*)p);
  else return load_half_panel((const uint16_t*)p);
}

// sum += scale_w * scale_x * integer (+ minimum * sum_x), in this order.
template <int M, bool Wide, bool Minimum>
inline void add_group(const uint8_t* scales, const IntPanel (&integer)[M], const float* row_scales,
                      const float* row_sums, size_t stride, FloatPanel (&sum)[M]) {
  const FloatPanel scale = load_scales<Wide>(scales);
  for (int m = 0; m < M; ++m) {
    const FloatPanel s = row_scales ? mul(scale, splat_panel(row_scales[m * stride])) : scale;
    sum[m] = fma(s, to_float(integer[m]), sum[m]);
  }
  if constexpr (Minimum) {
    const FloatPanel minimum = load_scales<Wide>(scales + kPanel * (Wide ? 4 : 2));
    for (int m = 0; m < M; ++m) sum[m] = fma(minimum, splat_panel(row_sums[m * stride]), sum[m]);
  }
}

template <int M, bool Wide, bool TwoDigits>
void int4_tile(const Matrix& matrix, const uint8_t* w, const Activations& x, size_t row, float* out) {
  const int k = matrix.num_inputs, groups = matrix.num_groups();
  const size_t bytes = matrix.group_bytes();
  const int8_t* high = x.high + row * k;
  const int8_t* low = TwoDigits ? x.low + row * k : nullptr;
  FloatPanel sum[M];
  for (int m = 0; m < M; ++m) sum[m] = zero_panel();
  for (int g = 0; g < groups; ++g, w += bytes) {
    for (size_t b = 0; b < bytes; b += 64) prefetch(w + 4 * bytes + b);
    IntPanel integer[M];
    int4_products<M>(w, high + g * kGroup, k, integer);
    if constexpr (TwoDigits) {
      IntPanel lower[M];
      int4_products<M>(w, low + g * kGroup, k, lower);
      for (int m = 0; m < M; ++m) integer[m] = join_digits(integer[m], lower[m]);
    }
    add_group<M, Wide, true>(w + kPanel * kGroup / 2, integer, x.scales + row * groups + g,
                             x.sums + row * groups + g, groups, sum);
  }
  store_rows<M>(sum, out);
}

// int8 x 16 bit: 32 products of at most 127 * 32767 fit 32 bits. The row's scale is applied once, at the end.
template <int M, int Group, bool Wide, bool Minimum>
void int8_tile(const Matrix& matrix, const uint8_t* w, const Activations& x, size_t row, float* out) {
  const int k = matrix.num_inputs, groups = matrix.num_groups();
  const size_t bytes = matrix.group_bytes();
  const int16_t* wide = x.wide + row * k;
  FloatPanel sum[M];
  for (int m = 0; m < M; ++m) sum[m] = zero_panel();
  for (int g = 0; g < groups; ++g, w += bytes) {
    for (size_t b = 0; b < bytes; b += 64) prefetch(w + 3 * bytes + b);
    IntPanel integer[M];
    int8_products<M, Group>(w, wide + g * Group, k, integer);
    add_group<M, Wide, Minimum>(w + kPanel * Group, integer, nullptr,
                                Minimum ? x.sums + row * groups + g : nullptr, groups, sum);
  }
  for (int m = 0; m < M; ++m) sum[m] = mul(sum[m], splat_panel(x.scales[row + m]));
  store_rows<M>(sum, out);
}

}  // namespace specserve::SPECSERVE_ISA
