// Sampling of one instruction set. Included by one translation unit each.
#pragma once
#include "draw.h"
#include "logprobs.h"
#include "truncate.h"

namespace specserve::sampling::SPECSERVE_ISA {
constexpr Functions functions(const char* name) { return {name, best, draw, noise, truncate, logprobs}; }
}  // namespace specserve::sampling::SPECSERVE_ISA
