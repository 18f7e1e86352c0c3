// Row-wise arithmetic in one fixed order: sums over eight lanes, then a fixed tree; one exponential for
// body and tail. Tails are loaded into zeroed lanes, so every element meets the same instructions.
#pragma once
#include <cmath>

#include "lanes.h"

namespace specserve::SPECSERVE_ISA {

inline Float8 load_tail(const float* p, int count) {
  Float8 v = zero();
  std::memcpy(&v, p, sizeof(float) * count);
  return v;
}
inline void store_tail(float* p, Float8 v, int count) { std::memcpy(p, &v, sizeof(float) * count); }

inline Float8 select(Int8 mask, Float8 a, Float8 b) { return (Float8)((mask & (Int8)a) | (~mask & (Int8)b)); }
inline Float8 max(Float8 a, Float8 b) { return select((Int8)(a > b), a, b); }
inline Float8 min(Float8 a, Float8 b) { return select((Int8)(a < b), a, b); }
inline Float8 abs(Float8 a) { return (Float8)((Int8)a & 0x7fffffff); }

// e^x to about 2 ulp; 0 below -87.3 (denormals are not worth their price), largest finite base above 88.3.
inline Float8 exp(Float8 x) {
  const Float8 lowest = splat(-87.3f), highest = splat(88.3f);
  const Int8 too_small = (Int8)(x < lowest);
  x = min(max(x, lowest), highest);
  const Float8 rounder = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Float8 shifted = fma(x, splat(1.44269504088896341f), rounder);
  const Float8 n = shifted - rounder;
  Float8 r = fma(n, splat(-0.693145751953125f), x);  // ln 2 in two parts
  r = fma(n, splat(-1.42860682030941723e-6f), r);
  Float8 p = splat(1.9875691500e-4f);
  p = fma(p, r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  p = fma(p, mul(r, r), r) + splat(1.0f);
  const Int8 exponent = (((Int8)shifted - (Int8)rounder) + 127) << 23;
  return select(too_small, zero(), mul(p, (Float8)exponent));
}

inline Float8 silu(Float8 x) { return x / (splat(1.0f) + exp(zero() - x)); }

// tanh form of GELU: 0.5 x (1 + tanh(u)) = x / (1 + e^(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3)
inline Float8 gelu_tanh(Float8 x) {
  const Float8 cubed = mul(mul(x, x), x);
  const Float8 u = mul(splat(0.7978845608028654f), fma(splat(0.044715f), cubed, x));
  return x / (splat(1.0f) + exp(mul(splat(-2.0f), u)));
}

}  // namespace specserve::SPECSERVE_ISA
