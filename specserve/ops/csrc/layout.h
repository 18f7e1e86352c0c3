// How packed weights lie in memory, the same for every instruction set.
//
// A matrix [n, k] is cut into panels of 16 outputs. A panel is one contiguous stream, k sequential, so a
// thread reads its panels once, front to back, whatever the number of rows it multiplies.
//
//   float32   per k:        16 floats
//   bfloat16  per k:        16 bfloat16
//   int8      per group:    for each pair of k: 16 outputs x 2 int8, then 16 scales [, 16 minima]
//   int4      per group:    for each 8 of k: 16 outputs x 4 bytes, byte j = k+j low, k+4+j high nibble;
//                           then 16 scales, 16 minima
//
// A group is 32 (or 16) of k. Weight = scale * q + minimum; scales and minima are half or float.
// The last panel is padded with zero weights; k is a multiple of the group.
#pragma once
#include <cstddef>
#include <cstdint>

namespace specserve {

constexpr int kPanel = 16;
constexpr int kGroup = 32;

enum class WeightClass : int { float32 = 0, bfloat16 = 1, int8 = 2, int4 = 3 };

// Of one group of a panel, in the integer classes.
constexpr size_t group_bytes(WeightClass c, int group, bool wide_scales, bool has_minimum) {
  const size_t quants = c == WeightClass::int4 ? kPanel * group / 2 : kPanel * group;
  return quants + kPanel * (wide_scales ? 4 : 2) * (has_minimum ? 2 : 1);
}

// What multiplies what. Activation digits of the integer classes: see `activations.h`.
struct Matrix {
  WeightClass weight_class = WeightClass::float32;
  int num_outputs = 0;     // n
  int num_inputs = 0;      // k
  int group = kGroup;      // integer classes
  bool has_minimum = false;
  bool wide_scales = false;  // float, else half
  const uint8_t* data = nullptr;  // 64-byte aligned

  int num_panels() const { return (num_outputs + kPanel - 1) / kPanel; }
  int num_pairs() const { return (num_outputs / 2 + kPanel - 1) / kPanel; }  // interleaved halves
  int num_groups() const { return num_inputs / group; }
  size_t scale_bytes() const { return wide_scales ? 4 : 2; }
  size_t group_bytes() const { return specserve::group_bytes(weight_class, group, wide_scales, has_minimum); }
  size_t panel_bytes() const {
    switch (weight_class) {
      case WeightClass::float32: return size_t(4) * kPanel * num_inputs;
      case WeightClass::bfloat16: return size_t(2) * kPanel * num_inputs;
      default: return group_bytes() * num_groups();
    }
  }
};

}  // namespace specserve
