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

// Of a panel, per input.
constexpr size_t input_bytes(WeightClass c) { return (c == WeightClass::float32 ? 4 : 2) * kPanel; }

template <WeightClass C>
inline FloatPanel load_weights(const uint8_t* w) {
  if constexpr (C == WeightClass::float32) return load_panel((const float*)w);
  else return load_bfloat16_panel((const uint16_t*)w);
}

// Input x[0] of each of M rows times P panels that lie `panel` bytes apart; `sum` is [P][M].
template <int M, int P, WeightClass C>
inline __attribute__((always_inline)) void add_input(const uint8_t* w, size_t panel, const float* x, size_t stride,
                                                     FloatPanel (&sum)[P * M]) {
  FloatPanel weights[P];
  for (int p = 0; p < P; ++p) {
    prefetch(w + p * panel + 1024);
    weights[p] = load_weights<C>(w + p * panel);
  }
  for (int m = 0; m < M; ++m) {
    const FloatPanel v = splat_panel(x[m * stride]);
    for (int p = 0; p < P; ++p) sum[p * M + m] = fma(weights[p], v, sum[p * M + m]);
  }
}

// P panels one after the other in memory, `out` [P][M][16]: a single panel's chain of additions is too slow
// for the memory behind it.
template <int M, int P, WeightClass C>
void float_tile(const Matrix& matrix, const uint8_t* w, const float* x, size_t stride, float* out) {
  const size_t panel = matrix.panel_bytes();
  FloatPanel sum[P * M];
  for (FloatPanel& s : sum) s = zero_panel();
  for (int i = 0; i < matrix.num_inputs; ++i) add_input<M, P, C>(w + i * input_bytes(C), panel, x + i, stride, sum);
  store_rows<P * M>(sum, out);
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
inline __attribute__((always_inline)) void add_int4_group(const Matrix& matrix, const uint8_t* w, const Activations& x,
                                                          size_t row, int g, FloatPanel (&sum)[M]) {
  constexpr size_t bytes = group_bytes(WeightClass::int4, kGroup, Wide, true);
  const int k = matrix.num_inputs, groups = matrix.num_groups();
  for (size_t b = 0; b < bytes; b += 64) prefetch(w + (g + 4) * bytes + b);
  IntPanel integer[M];
  int4_products<M>(w + g * bytes, x.high + row * k + g * kGroup, k, integer);
  if constexpr (TwoDigits) {
    IntPanel lower[M];
    int4_products<M>(w + g * bytes, x.low + row * k + g * kGroup, k, lower);
    for (int m = 0; m < M; ++m) integer[m] = join_digits(integer[m], lower[m]);
  }
  add_group<M, Wide, true>(w + g * bytes + kPanel * kGroup / 2, integer, x.scales + row * groups + g,
                           x.sums + row * groups + g, groups, sum);
}

// The tiles of integers are functions of their own: inlined side by side, GCC makes those of one row up to a
// tenth slower.
template <int M, bool Wide, bool TwoDigits>
__attribute__((noinline)) void int4_tile(const Matrix& matrix, const uint8_t* w, const Activations& x, size_t row,
                                         float* out) {
  FloatPanel sum[M];
  for (FloatPanel& s : sum) s = zero_panel();
  for (int g = 0; g < matrix.num_groups(); ++g) add_int4_group<M, Wide, TwoDigits>(matrix, w, x, row, g, sum);
  store_rows<M>(sum, out);
}

// int8 x 16 bit: 32 products of at most 127 * 32767 fit 32 bits. The row's scale waits for the end.
template <int M, int Group, bool Wide, bool Minimum>
inline __attribute__((always_inline)) void add_int8_group(const Matrix& matrix, const uint8_t* w, const Activations& x,
                                                          size_t row, int g, FloatPanel (&sum)[M]) {
  constexpr size_t bytes = group_bytes(WeightClass::int8, Group, Wide, Minimum);
  const int k = matrix.num_inputs, groups = matrix.num_groups();
  for (size_t b = 0; b < bytes; b += 64) prefetch(w + (g + 3) * bytes + b);
  IntPanel integer[M];
  int8_products<M, Group>(w + g * bytes, x.wide + row * k + g * Group, k, integer);
  add_group<M, Wide, Minimum>(w + g * bytes + kPanel * Group, integer, nullptr,
                              Minimum ? x.sums + row * groups + g : nullptr, groups, sum);
}

template <int M, int Group, bool Wide, bool Minimum>
__attribute__((noinline)) void int8_tile(const Matrix& matrix, const uint8_t* w, const Activations& x, size_t row,
                                         float* out) {
  FloatPanel sum[M];
  for (FloatPanel& s : sum) s = zero_panel();
  for (int g = 0; g < matrix.num_groups(); ++g) add_int8_group<M, Group, Wide, Minimum>(matrix, w, x, row, g, sum);
  for (int m = 0; m < M; ++m) sum[m] = mul(sum[m], splat_panel(x.scales[row + m]));
  store_rows<M>(sum, out);
}

}  // namespace specserve::SPECSERVE_ISA
