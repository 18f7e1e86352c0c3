// Eight lanes at a time: floats and 32-bit integers. AVX2+FMA+F16C when this translation unit is compiled
// for it, else the compiler's vector types, which build anywhere. Integer results are the same bits in both;
// float results only within one of them, since the portable `fma` rounds twice.
#pragma once
#include <cstdint>
#include <cstring>
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <immintrin.h>
#define SPECSERVE_AVX2 1
#else
#define SPECSERVE_AVX2 0
#endif

namespace specserve::SPECSERVE_ISA {

typedef float Float8 __attribute__((vector_size(32)));
typedef int32_t Int8 __attribute__((vector_size(32)));

inline Float8 load(const float* p) {
  Float8 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline void store(float* p, Float8 v) { std::memcpy(p, &v, sizeof v); }
inline Float8 splat(float x) { return Float8{x, x, x, x, x, x, x, x}; }
inline Float8 zero() { return splat(0.0f); }
inline Float8 mul(Float8 a, Float8 b) { return a * b; }
// Inlined by force: GCC takes a function that only prefetches for one without effect, and may drop its calls.
inline __attribute__((always_inline)) void prefetch(const void* p) { __builtin_prefetch(p, 0, 3); }

#if SPECSERVE_AVX2

inline Float8 fma(Float8 a, Float8 b, Float8 c) {
  return (Float8)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
inline Float8 to_float(Int8 v) { return (Float8)_mm256_cvtepi32_ps((__m256i)v); }
inline Float8 load_half(const uint16_t* p) {
  return (Float8)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p));
}
inline Float8 load_bfloat16(const uint16_t* p) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p));
  return (Float8)_mm256_slli_epi32(wide, 16);
}

// ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)), lanes by number: one fixed tree.
inline float sum(Float8 v) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline int sum(Int8 v) {
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128((__m256i)v), _mm256_extracti128_si256((__m256i)v, 1));
  const __m128i two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
  return _mm_cvtsi128_si32(two) + _mm_extract_epi32(two, 1);
}
// Of finite lanes.
inline float largest(Float8 v) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
inline void store_half(uint16_t* p, Float8 v) {
  _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
}

// 32 (or 16) integers that fit, narrowed in order.
inline void store_bytes(int8_t* p, const Int8 (&v)[4]) {
  const __m256i a = _mm256_packs_epi32((__m256i)v[0], (__m256i)v[1]);
  const __m256i b = _mm256_packs_epi32((__m256i)v[2], (__m256i)v[3]);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256((__m256i*)p, _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), order));
}
inline void store_shorts(int16_t* p, Int8 a, Int8 b) {
  const __m256i both = _mm256_packs_epi32((__m256i)a, (__m256i)b);
  _mm256_storeu_si256((__m256i*)p, _mm256_permute4x64_epi64(both, 0xd8));
}

#else

inline Float8 fma(Float8 a, Float8 b, Float8 c) { return a * b + c; }
inline Float8 to_float(Int8 v) { return __builtin_convertvector(v, Float8); }

inline float sum(Float8 v) { return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7])); }
inline int sum(Int8 v) {
  int total = 0;
  for (int i = 0; i < 8; ++i) total += v[i];
  return total;
}
inline float largest(Float8 v) {
  float r = v[0];
  for (int i = 1; i < 8; ++i) r = v[i] > r ? v[i] : r;
  return r;
}

inline void store_bytes(int8_t* p, const Int8 (&v)[4]) {
  for (int i = 0; i < 32; ++i) p[i] = int8_t(v[i / 8][i % 8]);
}
inline void store_shorts(int16_t* p, Int8 a, Int8 b) {
  for (int i = 0; i < 8; ++i) p[i] = int16_t(a[i]), p[8 + i] = int16_t(b[i]);
}

inline float half_to_float(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000) << 16, rest = h & 0x7fff;
  uint32_t bits;
  if (rest >= 0x7c00) bits = 0x7f800000 | ((rest & 0x3ff) << 13);
  else if (rest >= 0x0400) bits = (rest << 13) + 0x38000000;
  else {  // subnormal: an exact multiple of 2^-24
    const float value = float(rest) * 5.9604644775390625e-8f;
    std::memcpy(&bits, &value, 4);
  }
  bits |= sign;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}
inline Float8 load_half(const uint16_t* p) {
  Float8 v;
  for (int i = 0; i < 8; ++i) v[i] = half_to_float(p[i]);
  return v;
}
inline void store_half(uint16_t* p, Float8 v) {
  for (int i = 0; i < 8; ++i) {
    const _Float16 h = (_Float16)v[i];
    std::memcpy(p + i, &h, 2);
  }
}
inline Float8 load_bfloat16(const uint16_t* p) {
  Int8 bits;
  for (int i = 0; i < 8; ++i) bits[i] = int32_t(uint32_t(p[i]) << 16);
  Float8 v;
  std::memcpy(&v, &bits, sizeof v);
  return v;
}

#endif

}  // namespace specserve::SPECSERVE_ISA
