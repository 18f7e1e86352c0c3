// Sampling of one instruction set. Included by one translation unit each.
#pragma once
#include "draw.h"
#include "logprobs.h"
#include "truncate.h"

namespace specserve::sampling::SPECSERVE_ISA {
inline void temper(float* row, int size, float temperature) {
  for (int i = 0; i < size; ++i) row[i] /= temperature;
}

constexpr Functions functions(const char* name) { return {name, best, draw, noise, temper, truncate, logprobs}; }
}  // namespace specserve::sampling::SPECSERVE_ISA
