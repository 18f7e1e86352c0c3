// The kernels of one instruction set. Included by one translation unit each.
#pragma once
#include <algorithm>

#include "attention.h"
#include "kernels.h"
#include "rows.h"
#include "tiles.h"

namespace specserve::SPECSERVE_ISA {

// Enough rows that their digits stay in the second-level cache while all panels pass over them.
constexpr int kRowBlock = 128;

void prepare(const PrepareCall& call, int first_row, int last_row) {
  const Matrix& matrix = *call.matrix;
  const int k = matrix.num_inputs;
  const bool is_float = matrix.weight_class <= WeightClass::bfloat16;
  Activations digits = call.digits;
  for (int r = first_row; r < last_row; ++r) {
    const float* x = call.x + r * call.x_stride;
    if (call.norm) {
      float* y = call.floats + size_t(r) * k;
      rms_norm(x, call.norm, call.eps, call.size, y);
      x = y;
    } else if (is_float) {
      std::memcpy(call.floats + size_t(r) * k, x, sizeof(float) * call.size);
    }
    if (matrix.weight_class == WeightClass::int4)
      round_groups(x, call.size, k, call.activation_bits > 8, digits, r);
    else if (matrix.weight_class == WeightClass::int8)
      round_row(x, call.size, k, digits, r);
  }
}

template <int M>
void integer_tile(const LinearCall& call, const uint8_t* w, int row, float* out) {
  const Matrix& matrix = *call.matrix;
  if (matrix.weight_class == WeightClass::int4) {
    if (matrix.wide_scales)
      return call.two_digits ? int4_tile<M, true, true>(matrix, w, call.digits, row, out)
                             : int4_tile<M, true, false>(matrix, w, call.digits, row, out);
    return call.two_digits ? int4_tile<M, false, true>(matrix, w, call.digits, row, out)
                           : int4_tile<M, false, false>(matrix, w, call.digits, row, out);
  }
  if (matrix.group == 16) return int8_tile<M, 16, true, false>(matrix, w, call.digits, row, out);
  if (matrix.has_minimum) return int8_tile<M, 32, true, true>(matrix, w, call.digits, row, out);
  return int8_tile<M, 32, false, false>(matrix, w, call.digits, row, out);
}

// Beyond so many rows a panel is read again from the first-level cache, which does not hold two.
constexpr int kMostPaired = 2 * kMostRows;

template <int M, WeightClass C>
void float_panels(const LinearCall& call, const uint8_t* w, int num_panels, int row, float* out) {
  const float* x = call.x + row * call.x_stride;
  if constexpr (2 * M <= kMostFloatSums) {
    if (num_panels == 2 && call.num_rows <= kMostPaired) return float_tile<M, 2, C>(*call.matrix, w, x, call.x_stride, out);
  }
  for (int p = 0; p < num_panels; ++p)
    float_tile<M, 1, C>(*call.matrix, w + p * call.matrix->panel_bytes(), x, call.x_stride, out + p * M * kPanel);
}

// One panel or two in a row: `out` is [num_panels][M][16].
template <int M>
void tile(const LinearCall& call, const uint8_t* w, int num_panels, int row, float* out) {
  const WeightClass c = call.matrix->weight_class;
  if (c == WeightClass::float32) return float_panels<M, WeightClass::float32>(call, w, num_panels, row, out);
  if (c == WeightClass::bfloat16) return float_panels<M, WeightClass::bfloat16>(call, w, num_panels, row, out);
  for (int p = 0; p < num_panels; ++p)
    integer_tile<M>(call, w + p * call.matrix->panel_bytes(), row, out + p * M * kPanel);
}

// Rows of one tile, as many as its sums fit in registers: never a remainder of one where two even halves do.
inline int tile_rows(WeightClass c, int left) {
  const int most = SPECSERVE_AVX512 ? 8 : c == WeightClass::int8 ? 5 : c == WeightClass::int4 ? 4 : 6;
  if (left <= most) return left;
  return left < 2 * most ? (left + 1) / 2 : most;
}

template <int M = kMostRows>
void multiply(const LinearCall& call, const uint8_t* w, int num_panels, int row, int count, float* out) {
  if constexpr (M > 1) {
    if (count < M) return multiply<M - 1>(call, w, num_panels, row, count, out);
  }
  tile<M>(call, w, num_panels, row, out);
}

inline void add_bias(const LinearCall& call, int first, int width, int count, float* out) {
  if (!call.bias) return;
  for (int m = 0; m < count; ++m)
    for (int i = 0; i < width; ++i) out[m * kPanel + i] += call.bias[first + i];
}

void finish_panel(const LinearCall& call, int panel, int row, int count, float* out) {
  const int first = panel * kPanel, width = std::min(kPanel, call.matrix->num_outputs - first);
  add_bias(call, first, width, count, out);
  for (int m = 0; m < count; ++m) {
    float* y = call.y + (row + m) * call.y_stride + first;
    const float* o = out + m * kPanel;
    for (int i = 0; i < width; ++i) y[i] = call.accumulate ? y[i] + o[i] : o[i];
  }
}

inline Float8 activate(Gate gate, Float8 x) { return gate == Gate::silu ? silu(x) : gelu_tanh(x); }

void finish_gate(const LinearCall& call, int pair, int row, int count, float* gate, float* up) {
  const int half = call.matrix->num_outputs / 2, first = pair * kPanel, width = std::min(kPanel, half - first);
  add_bias(call, first, width, count, gate);
  add_bias(call, half + first, width, count, up);
  for (int m = 0; m < count; ++m) {
    alignas(32) float result[kPanel];
    for (int i = 0; i < kPanel; i += 8)
      store(result + i, mul(activate(call.gate, load(gate + m * kPanel + i)), load(up + m * kPanel + i)));
    std::memcpy(call.y + (row + m) * call.y_stride + first, result, sizeof(float) * width);
  }
}

// Two panels, or the last one alone: without a gate outputs, with it a gate and what it gates.
void multiply_panels(const LinearCall& call, int panel, int num_panels, int first_row, int end_row) {
  alignas(64) float out[2 * kMostRows * kPanel];
  const uint8_t* w = call.matrix->data + call.matrix->panel_bytes() * panel;
  for (int row = first_row; row < end_row;) {
    const int count = tile_rows(call.matrix->weight_class, end_row - row);
    multiply(call, w, num_panels, row, count, out);
    if (call.gate != Gate::none) {
      finish_gate(call, panel / 2, row, count, out, out + count * kPanel);
    } else {
      for (int p = 0; p < num_panels; ++p) finish_panel(call, panel + p, row, count, out + p * count * kPanel);
    }
    row += count;
  }
}

void linear(const LinearCall& call, int first, int last) {
  if (call.gate != Gate::none) first *= 2, last *= 2;
  for (int block = 0; block < call.num_rows; block += kRowBlock) {
    const int end = std::min(block + kRowBlock, call.num_rows);
    for (int panel = first; panel < last; panel += 2)
      multiply_panels(call, panel, std::min(2, last - panel), block, end);
  }
}

void norm(const float* x, size_t x_stride, const float* weight, float eps, int size, float* y, size_t y_stride,
          int first_row, int last_row) {
  for (int r = first_row; r < last_row; ++r) rms_norm(x + r * x_stride, weight, eps, size, y + r * y_stride);
}

inline void store_as(float* p, Float8 v) { store(p, v); }
inline void store_as(Half* p, Float8 v) { store_half((uint16_t*)p, v); }
inline void store_as(Bfloat16* p, Float8 v) {
  for (int i = 0; i < 8; ++i) {
    uint32_t bits;
    const float x = v[i];
    std::memcpy(&bits, &x, 4);
    p[i].bits = (bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
}

template <typename T>
void write_head(const CacheView& cache, int64_t slot, int head, const float* k, const float* v) {
  T* key = (T*)cache.keys + cache.key_offset(slot, head);
  T* value = (T*)cache.values + cache.value_offset(slot, head);
  for (int d = 0; d < cache.head_size; d += 8) {
    T column[8];
    store_as(column, load(k + d));
    for (int i = 0; i < 8; ++i) key[(d + i) * kTile] = column[i];
    store_as(value + d, load(v + d));
  }
}

// A head of one row, normed where `weight` says so, and turned by its position.
inline void turn_head(const AttentionSpec& spec, const float* x, const float* weight, int64_t position, float* y) {
  if (weight) rms_norm(x, weight, spec.eps, spec.head_size, y);
  else std::memcpy(y, x, sizeof(float) * spec.head_size);
  rope(y, spec.cosine + position * spec.half, spec.sine + position * spec.half, spec.half);
}

// Head by head: neighbouring slots share cache lines, which two threads should not write in turn.
void write(const AttentionCall& call, int first, int last) {
  const AttentionSpec& spec = *call.spec;
  alignas(32) float key[kMaxHead];
  for (int i = first; i < last; ++i) {
    const int head = i / call.num_rows, r = i % call.num_rows;
    const float* k = call.qkv + r * call.stride + (spec.num_heads + head) * spec.head_size;
    const float* v = k + spec.num_kv_heads * spec.head_size;
    turn_head(spec, k, spec.k_norm, call.positions[r], key);
    if (spec.cache.type == CacheType::float32) write_head<float>(spec.cache, call.slots[r], head, key, v);
    else if (spec.cache.type == CacheType::float16) write_head<Half>(spec.cache, call.slots[r], head, key, v);
    else write_head<Bfloat16>(spec.cache, call.slots[r], head, key, v);
  }
}

void load_query(const AttentionCall& call, int row, int head, Queries& s, int i) {
  const AttentionSpec& spec = *call.spec;
  const int position = int(call.positions[row]);
  turn_head(spec, call.qkv + row * call.stride + head * spec.head_size, spec.q_norm, position, s.q[i]);
  for (int d = 0; d < spec.head_size; d += 8) store(&s.q[i][d], mul(load(&s.q[i][d]), splat(spec.scale)));
  s.end_key[i] = call.key_limits ? call.key_limits[row] : position + 1;
  s.first_key[i] = spec.window > 0 ? std::max(0, position + 1 - spec.window) : 0;
}

// Query i of a kv head is row i / group, head i % group of those that share it.
void attend_queries(const AttentionCall& call, const int32_t* block_table, int first_row, int first, int last, int kv_head) {
  static thread_local Queries s;  // scratch only: filled anew by every call
  const AttentionSpec& spec = *call.spec;
  const int group = spec.num_heads / spec.num_kv_heads, size = spec.head_size;
  s.count = last - first;
  s.head_size = size;
  for (int i = 0; i < s.count; ++i)
    load_query(call, first_row + (first + i) / group, kv_head * group + (first + i) % group, s, i);
  if (spec.cache.type == CacheType::float32) attend<float>(s, spec.cache, block_table, kv_head);
  else if (spec.cache.type == CacheType::float16) attend<Half>(s, spec.cache, block_table, kv_head);
  else attend<Bfloat16>(s, spec.cache, block_table, kv_head);
  for (int i = 0; i < s.count; ++i) {
    const int r = first_row + (first + i) / group, h = kv_head * group + (first + i) % group;
    float* out = call.out + r * call.out_stride + h * size;
    for (int d = 0; d < size; d += 8) store(out + d, load(&s.out[i][d]) / splat(s.total[i]));
  }
}

// A row of the packed table, the weights as the matrix holds them.
void embed(const Matrix& matrix, int64_t id, float scale, int size, float* y) {
  const int lane = int(id % kPanel);
  const uint8_t* w = matrix.data + matrix.panel_bytes() * (id / kPanel);
  if (matrix.weight_class == WeightClass::float32) {
    for (int i = 0; i < size; ++i) y[i] = ((const float*)w)[i * kPanel + lane] * scale;
  } else if (matrix.weight_class == WeightClass::bfloat16) {
    for (int i = 0; i < size; ++i) {
      const uint32_t bits = uint32_t(((const uint16_t*)w)[i * kPanel + lane]) << 16;
      float v;
      std::memcpy(&v, &bits, 4);
      y[i] = v * scale;
    }
  } else {
    const bool is_int4 = matrix.weight_class == WeightClass::int4;
    const int group = matrix.group;
    const size_t scale_bytes = matrix.scale_bytes() * kPanel;
    for (int g = 0; g < matrix.num_groups(); ++g, w += matrix.group_bytes()) {
      const uint8_t* tail = w + (is_int4 ? kPanel * group / 2 : kPanel * group);
      alignas(32) float scales[kPanel], minima[kPanel] = {};
      for (int v = 0; v < kPanel; v += 8) {
        store(scales + v, matrix.wide_scales ? load((const float*)tail + v) : load_half((const uint16_t*)tail + v));
        if (matrix.has_minimum)
          store(minima + v, matrix.wide_scales ? load((const float*)(tail + scale_bytes) + v)
                                               : load_half((const uint16_t*)(tail + scale_bytes) + v));
      }
      for (int i = 0; i < std::min(group, size - g * group); ++i) {
        int q;
        if (is_int4) {
          const uint8_t both = w[(i / 8 * 2 + lane / 8) * 32 + lane % 8 * 4 + i % 4];
          q = i % 8 < 4 ? both & 15 : both >> 4;
        } else {
          q = ((const int8_t*)w)[(i / 2 * 2 + lane / 8) * 16 + lane % 8 * 2 + i % 2];
        }
        y[g * group + i] = (scales[lane] * float(q) + minima[lane]) * scale;
      }
    }
  }
}

}  // namespace specserve::SPECSERVE_ISA
