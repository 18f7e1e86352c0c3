// Vectors for sampling: eight floats or integers, four 64-bit words. Nothing here rounds differently from one
// instruction set to another (no fused multiply-add), so sampling gives the same bits on all of them.
#pragma once
#include <cstdint>
#include <cstring>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace specserve::sampling::SPECSERVE_ISA {

typedef float Float8 __attribute__((vector_size(32)));
typedef int32_t Int8 __attribute__((vector_size(32)));
typedef uint32_t Bits8 __attribute__((vector_size(32)));
typedef uint64_t Word4 __attribute__((vector_size(32)));
typedef double Double4 __attribute__((vector_size(32)));

inline Float8 load(const float* p) {
  Float8 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline void store(float* p, Float8 v) { std::memcpy(p, &v, sizeof v); }
inline Float8 splat(float x) { return Float8{x, x, x, x, x, x, x, x}; }
inline Int8 splat(int32_t x) { return Int8{x, x, x, x, x, x, x, x}; }
inline Word4 splat(uint64_t x) { return Word4{x, x, x, x}; }
inline Float8 select(Int8 mask, Float8 a, Float8 b) { return (Float8)((mask & (Int8)a) | (~mask & (Int8)b)); }

#if defined(__AVX2__)

// v where it is larger, else m; so m where v is NaN.
inline Float8 larger(Float8 v, Float8 m) { return (Float8)_mm256_max_ps((__m256)v, (__m256)m); }
inline Float8 to_float(Int8 v) { return (Float8)_mm256_cvtepi32_ps((__m256i)v); }
inline Double4 low_doubles(Float8 v) { return (Double4)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)v)); }
inline Double4 high_doubles(Float8 v) { return (Double4)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)v, 1)); }
// One bit per lane.
inline uint32_t bits_of(Int8 mask) { return uint32_t(_mm256_movemask_ps((__m256)mask)); }
// Products of the low halves.
inline Word4 multiply(Word4 a, Word4 b) { return (Word4)_mm256_mul_epu32((__m256i)a, (__m256i)b); }
// Low halves of a, b, c, d side by side: lanes 0 and 2 into one vector, 1 and 3 into the other.
inline void interleave(Word4 a, Word4 b, Word4 c, Word4 d, Int8& even, Int8& odd) {
  const __m256i ab = _mm256_blend_epi32((__m256i)a, _mm256_slli_epi64((__m256i)b, 32), 0xaa);
  const __m256i cd = _mm256_blend_epi32((__m256i)c, _mm256_slli_epi64((__m256i)d, 32), 0xaa);
  even = (Int8)_mm256_unpacklo_epi64(ab, cd);
  odd = (Int8)_mm256_unpackhi_epi64(ab, cd);
}

#else

inline Float8 larger(Float8 v, Float8 m) { return select((Int8)(v > m), v, m); }
inline Float8 to_float(Int8 v) { return __builtin_convertvector(v, Float8); }
inline Double4 low_doubles(Float8 v) { return Double4{v[0], v[1], v[2], v[3]}; }
inline Double4 high_doubles(Float8 v) { return Double4{v[4], v[5], v[6], v[7]}; }
inline uint32_t bits_of(Int8 mask) {
  uint32_t bits = 0;
  for (int i = 0; i < 8; ++i) bits |= uint32_t(mask[i] & 1) << i;
  return bits;
}
inline Word4 multiply(Word4 a, Word4 b) { return (a & 0xffffffff) * (b & 0xffffffff); }
inline void interleave(Word4 a, Word4 b, Word4 c, Word4 d, Int8& even, Int8& odd) {
  const Word4* words[] = {&a, &b, &c, &d};
  for (int i = 0; i < 8; ++i) {
    even[i] = int32_t((*words[i % 4])[i / 4 * 2]);
    odd[i] = int32_t((*words[i % 4])[i / 4 * 2 + 1]);
  }
}

#endif

}  // namespace specserve::sampling::SPECSERVE_ISA
