// Activations as the integer kernels read them.
//
//   int4 x 8 bit    one digit:  x = s_g * q,            q in [-127, 127], s_g per group of 32
//   int4 x 15 bit   two digits: x = s_g * (128 h + l),  h in [-127, 127], l in [-64, 63]
//   int8 x 16 bit   x = s * q,                          q in [-32767, 32767], s per row
//
// `sums[g]` is the group's sum of x as rounded, which the minima of the weights multiply.
// Python twin: tests/support/rounding.py.
#pragma once
#include <cstdint>

namespace specserve {

struct Activations {
  int8_t* high = nullptr;    // [rows, k] digits h (the only one at 8 bit)
  int8_t* low = nullptr;     // [rows, k] digits l, 15 bit only
  int16_t* wide = nullptr;   // [rows, k] 16 bit
  float* scales = nullptr;   // [rows, groups], or [rows] for 16 bit
  float* sums = nullptr;     // [rows, groups]
};

}  // namespace specserve
