// A yardstick: the tiles of `tiles.h` with several sums along k per output, which are added up at the end, as
// kernels have them that owe nobody the order of their additions. Packed weights, steps and tile shapes are
// the same, so the difference in time is what the fixed order costs. `specserve bench kernels` measures it;
// no model is run with it, for its bits depend on the number of rows.
//
// Included once per instruction set, after `kernels_body.h`. Python side: specserve/ops/k_lanes.py.
#pragma once
#include "kernels_body.h"

namespace specserve::SPECSERVE_ISA {

// Few rows leave registers for more sums, and need them more.
constexpr int num_lanes(int rows) { return rows <= 2 ? 4 : 2; }

// Steps [0, count) go to L sums of N panels by turns: step(i, sum) adds step i's products.
template <int N, int L, typename Step>
inline __attribute__((always_inline)) void add_in_lanes(int count, const Step& step, FloatPanel (&total)[N]) {
  FloatPanel sum[L][N];
  for (auto& lane : sum)
    for (FloatPanel& s : lane) s = zero_panel();
  for (int i = 0; i < count; i += L) {
#pragma GCC unroll 4
    for (int l = 0; l < L; ++l)
      if (i + l < count) step(i + l, sum[l]);
  }
  const FloatPanel one = splat_panel(1.0f);
  for (int n = 0; n < N; ++n) {
    total[n] = sum[0][n];
    for (int l = 1; l < L; ++l) total[n] = fma(sum[l][n], one, total[n]);
  }
}

template <int M, int P, WeightClass C>
void float_k_lanes(const LinearCall& call, const uint8_t* w, int row, float* out) {
  const size_t panel = call.matrix->panel_bytes();
  const float* x = call.x + row * call.x_stride;
  FloatPanel total[P * M];
  const auto step = [&](int i, FloatPanel (&sum)[P * M]) __attribute__((always_inline)) {
    add_input<M, P, C>(w + i * input_bytes(C), panel, x + i, call.x_stride, sum);
  };
  add_in_lanes<P * M, num_lanes(M)>(call.matrix->num_inputs, step, total);
  store_rows<P * M>(total, out);
}

template <int M, bool Wide, bool TwoDigits>
void int4_k_lanes(const LinearCall& call, const uint8_t* w, int row, float* out) {
  FloatPanel total[M];
  const auto step = [&](int g, FloatPanel (&sum)[M]) __attribute__((always_inline)) {
    add_int4_group<M, Wide, TwoDigits>(*call.matrix, w, call.digits, row, g, sum);
  };
  add_in_lanes<M, num_lanes(M)>(call.matrix->num_groups(), step, total);
  store_rows<M>(total, out);
}

template <int M, int Group, bool Wide, bool Minimum>
void int8_k_lanes(const LinearCall& call, const uint8_t* w, int row, float* out) {
  FloatPanel total[M];
  const auto step = [&](int g, FloatPanel (&sum)[M]) __attribute__((always_inline)) {
    add_int8_group<M, Group, Wide, Minimum>(*call.matrix, w, call.digits, row, g, sum);
  };
  add_in_lanes<M, num_lanes(M)>(call.matrix->num_groups(), step, total);
  for (int m = 0; m < M; ++m) total[m] = mul(total[m], splat_panel(call.digits.scales[row + m]));
  store_rows<M>(total, out);
}

template <int M>
void integer_k_lanes(const LinearCall& call, const uint8_t* w, int row, float* out) {
  const Matrix& matrix = *call.matrix;
  if (matrix.weight_class == WeightClass::int4) {
    if (matrix.wide_scales && call.two_digits) return int4_k_lanes<M, true, true>(call, w, row, out);
    if (matrix.wide_scales) return int4_k_lanes<M, true, false>(call, w, row, out);
    if (call.two_digits) return int4_k_lanes<M, false, true>(call, w, row, out);
    return int4_k_lanes<M, false, false>(call, w, row, out);
  }
  if (matrix.group == 16) return int8_k_lanes<M, 16, true, false>(call, w, row, out);
  if (matrix.has_minimum) return int8_k_lanes<M, 32, true, true>(call, w, row, out);
  return int8_k_lanes<M, 32, false, false>(call, w, row, out);
}

template <int M, WeightClass C>
void float_panels_k_lanes(const LinearCall& call, const uint8_t* w, int num_panels, int row, float* out) {
  if constexpr (2 * M <= kMostFloatSums) {
    if (num_panels == 2) return float_k_lanes<M, 2, C>(call, w, row, out);
  }
  for (int p = 0; p < num_panels; ++p)
    float_k_lanes<M, 1, C>(call, w + p * call.matrix->panel_bytes(), row, out + p * M * kPanel);
}

template <int M>
void tile_k_lanes(const LinearCall& call, const uint8_t* w, int num_panels, int row, float* out) {
  const WeightClass c = call.matrix->weight_class;
  if (c == WeightClass::float32) return float_panels_k_lanes<M, WeightClass::float32>(call, w, num_panels, row, out);
  if (c == WeightClass::bfloat16) return float_panels_k_lanes<M, WeightClass::bfloat16>(call, w, num_panels, row, out);
  for (int p = 0; p < num_panels; ++p)
    integer_k_lanes<M>(call, w + p * call.matrix->panel_bytes(), row, out + p * M * kPanel);
}

// Eight rows as `linear` cuts them, one row, and other numbers made of these. Gates are not for the yardstick.
constexpr int kTileRows = kMostRows >= 8 ? 8 : 4;

void linear_k_lanes(const LinearCall& call, int first, int last) {
  alignas(64) float out[2 * kTileRows * kPanel];
  for (int panel = first; panel < last; panel += 2) {
    const int num_panels = std::min(2, last - panel);
    const uint8_t* w = call.matrix->data + call.matrix->panel_bytes() * panel;
    for (int row = 0; row < call.num_rows;) {
      const int count = call.num_rows - row >= kTileRows ? kTileRows : 1;
      if (count == 1) tile_k_lanes<1>(call, w, num_panels, row, out);
      else tile_k_lanes<kTileRows>(call, w, num_panels, row, out);
      for (int p = 0; p < num_panels; ++p) finish_panel(call, panel + p, row, count, out + p * count * kPanel);
      row += count;
    }
  }
}

}  // namespace specserve::SPECSERVE_ISA
