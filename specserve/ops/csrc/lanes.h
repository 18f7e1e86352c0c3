// Eight lanes at a time: floats, 32-bit integers, and the integer dot products of the weight classes.
// AVX2+FMA+F16C when this translation unit is compiled for it, else the compiler's vector types, which
// build anywhere. Integer results are the same bits in both; float results only within one of them, since
// the portable `fma` rounds twice.
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
inline Int8 add(Int8 a, Int8 b) { return a + b; }
inline Int8 shift_left_7(Int8 a) { return a << 7; }
inline void prefetch(const void* p) { __builtin_prefetch(p, 0, 3); }

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

// One group of 32 k: integer[m][v] lane o = sum over k of w[k][8 v + o] * x[m][k].
template <int M>
inline void int4_products(const uint8_t* w, const int8_t* x, size_t stride, Int8 (&integer)[M][2]) {
  const __m256i nibble = _mm256_set1_epi8(15);
  __m256i sum[M][2];
  for (int m = 0; m < M; ++m) sum[m][0] = sum[m][1] = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int q = 0; q < 4; ++q) {
    __m256i low[2], high[2];
    for (int v = 0; v < 2; ++v) {
      const __m256i both = _mm256_loadu_si256((const __m256i*)(w + (q * 2 + v) * 32));
      low[v] = _mm256_and_si256(both, nibble);
      high[v] = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
    }
    for (int m = 0; m < M; ++m) {
      int32_t first, second;
      std::memcpy(&first, x + m * stride + q * 8, 4);
      std::memcpy(&second, x + m * stride + q * 8 + 4, 4);
      const __m256i a = _mm256_set1_epi32(first), b = _mm256_set1_epi32(second);
      for (int v = 0; v < 2; ++v) {
        sum[m][v] = _mm256_add_epi16(sum[m][v], _mm256_maddubs_epi16(low[v], a));
        sum[m][v] = _mm256_add_epi16(sum[m][v], _mm256_maddubs_epi16(high[v], b));
      }
    }
  }
  const __m256i one = _mm256_set1_epi16(1);
  for (int m = 0; m < M; ++m)
    for (int v = 0; v < 2; ++v) integer[m][v] = (Int8)_mm256_madd_epi16(sum[m][v], one);
}

template <int M, int Group>
inline void int8_products(const uint8_t* w, const int16_t* x, size_t stride, Int8 (&integer)[M][2]) {
  __m256i sum[M][2];
  for (int m = 0; m < M; ++m) sum[m][0] = sum[m][1] = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int q = 0; q < Group / 2; ++q) {
    __m256i weights[2];
    for (int v = 0; v < 2; ++v)
      weights[v] = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)(w + (q * 2 + v) * 16)));
    for (int m = 0; m < M; ++m) {
      int32_t pair;
      std::memcpy(&pair, x + m * stride + q * 2, 4);
      const __m256i both = _mm256_set1_epi32(pair);
      for (int v = 0; v < 2; ++v)
        sum[m][v] = _mm256_add_epi32(sum[m][v], _mm256_madd_epi16(weights[v], both));
    }
  }
  for (int m = 0; m < M; ++m)
    for (int v = 0; v < 2; ++v) integer[m][v] = (Int8)sum[m][v];
}

#else

inline Float8 fma(Float8 a, Float8 b, Float8 c) { return a * b + c; }
inline Float8 to_float(Int8 v) { return __builtin_convertvector(v, Float8); }

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
inline Float8 load_bfloat16(const uint16_t* p) {
  Int8 bits;
  for (int i = 0; i < 8; ++i) bits[i] = int32_t(uint32_t(p[i]) << 16);
  Float8 v;
  std::memcpy(&v, &bits, sizeof v);
  return v;
}

template <int M>
inline void int4_products(const uint8_t* w, const int8_t* x, size_t stride, Int8 (&integer)[M][2]) {
  for (int m = 0; m < M; ++m) {
    for (int v = 0; v < 2; ++v) {
      Int8 sum = {};
      for (int q = 0; q < 4; ++q) {
        const uint8_t* block = w + (q * 2 + v) * 32;
        const int8_t* digits = x + m * stride + q * 8;
        for (int j = 0; j < 4; ++j)
          for (int o = 0; o < 8; ++o)
            sum[o] += (block[o * 4 + j] & 15) * digits[j] + (block[o * 4 + j] >> 4) * digits[4 + j];
      }
      integer[m][v] = sum;
    }
  }
}

template <int M, int Group>
inline void int8_products(const uint8_t* w, const int16_t* x, size_t stride, Int8 (&integer)[M][2]) {
  for (int m = 0; m < M; ++m) {
    for (int v = 0; v < 2; ++v) {
      Int8 sum = {};
      for (int q = 0; q < Group / 2; ++q) {
        const int8_t* block = (const int8_t*)w + (q * 2 + v) * 16;
        const int16_t* pair = x + m * stride + q * 2;
        for (int o = 0; o < 8; ++o) sum[o] += block[o * 2] * pair[0] + block[o * 2 + 1] * pair[1];
      }
      integer[m][v] = sum;
    }
  }
}

#endif

}  // namespace specserve::SPECSERVE_ISA
