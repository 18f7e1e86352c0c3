// The sixteen outputs of a panel side by side, and the integer dot products of the weight classes: two
// vectors of eight, or one of sixteen with AVX-512 and its dot products. Lanes never mix, integer sums are
// exact and float operations are the same, so AVX2 and AVX-512 give the same bits.
#pragma once
#include "layout.h"
#include "lanes.h"

#if SPECSERVE_AVX2 && defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VNNI__)
#define SPECSERVE_AVX512 1
#else
#define SPECSERVE_AVX512 0
#endif

namespace specserve::SPECSERVE_ISA {

#if SPECSERVE_AVX512

constexpr int kMostRows = 8;        // of a register tile
constexpr int kMostFloatSums = 16;  // panels of sums that registers hold beside weights

typedef __m512 FloatPanel;
typedef __m512i IntPanel;

inline FloatPanel zero_panel() { return _mm512_setzero_ps(); }
inline FloatPanel splat_panel(float x) { return _mm512_set1_ps(x); }
inline FloatPanel mul(FloatPanel a, FloatPanel b) { return _mm512_mul_ps(a, b); }
inline FloatPanel fma(FloatPanel a, FloatPanel b, FloatPanel c) { return _mm512_fmadd_ps(a, b, c); }
inline FloatPanel to_float(IntPanel v) { return _mm512_cvtepi32_ps(v); }
inline IntPanel join_digits(IntPanel high, IntPanel low) { return _mm512_add_epi32(_mm512_slli_epi32(high, 7), low); }
inline void store(float* p, FloatPanel v) { _mm512_storeu_ps(p, v); }
inline FloatPanel load_panel(const float* p) { return _mm512_loadu_ps(p); }
inline FloatPanel load_half_panel(const uint16_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)); }
inline FloatPanel load_bfloat16_panel(const uint16_t* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16));
}

inline __m512i splat_bytes(const void* p) {
  int32_t four;
  std::memcpy(&four, p, 4);
  return _mm512_set1_epi32(four);
}

template <int M>
inline void int4_products(const uint8_t* w, const int8_t* x, size_t stride, IntPanel (&sum)[M]) {
  const __m512i nibble = _mm512_set1_epi8(15);
  for (int m = 0; m < M; ++m) sum[m] = _mm512_setzero_si512();
#pragma GCC unroll 4
  for (int q = 0; q < 4; ++q) {
    const __m512i both = _mm512_loadu_si512(w + q * 64);
    const __m512i low = _mm512_and_si512(both, nibble), high = _mm512_and_si512(_mm512_srli_epi16(both, 4), nibble);
    for (int m = 0; m < M; ++m) {
      sum[m] = _mm512_dpbusd_epi32(sum[m], low, splat_bytes(x + m * stride + q * 8));
      sum[m] = _mm512_dpbusd_epi32(sum[m], high, splat_bytes(x + m * stride + q * 8 + 4));
    }
  }
}

template <int M, int Group>
inline void int8_products(const uint8_t* w, const int16_t* x, size_t stride, IntPanel (&sum)[M]) {
  for (int m = 0; m < M; ++m) sum[m] = _mm512_setzero_si512();
#pragma GCC unroll 4
  for (int q = 0; q < Group / 2; ++q) {
    const __m512i weights = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i*)(w + q * 32)));
    for (int m = 0; m < M; ++m) sum[m] = _mm512_dpwssd_epi32(sum[m], weights, splat_bytes(x + m * stride + q * 2));
  }
}

#else

constexpr int kMostRows = 6;
constexpr int kMostFloatSums = 6;

struct FloatPanel { Float8 half[2]; };
struct IntPanel { Int8 half[2]; };

inline FloatPanel splat_panel(float x) { return {splat(x), splat(x)}; }
inline FloatPanel zero_panel() { return splat_panel(0.0f); }
inline FloatPanel mul(FloatPanel a, FloatPanel b) { return {mul(a.half[0], b.half[0]), mul(a.half[1], b.half[1])}; }
inline FloatPanel fma(FloatPanel a, FloatPanel b, FloatPanel c) {
  return {fma(a.half[0], b.half[0], c.half[0]), fma(a.half[1], b.half[1], c.half[1])};
}
inline FloatPanel to_float(IntPanel v) { return {to_float(v.half[0]), to_float(v.half[1])}; }
inline IntPanel join_digits(IntPanel high, IntPanel low) {
  return {(high.half[0] << 7) + low.half[0], (high.half[1] << 7) + low.half[1]};
}
inline void store(float* p, FloatPanel v) { store(p, v.half[0]), store(p + 8, v.half[1]); }
inline FloatPanel load_panel(const float* p) { return {load(p), load(p + 8)}; }
inline FloatPanel load_half_panel(const uint16_t* p) { return {load_half(p), load_half(p + 8)}; }
inline FloatPanel load_bfloat16_panel(const uint16_t* p) { return {load_bfloat16(p), load_bfloat16(p + 8)}; }

#if SPECSERVE_AVX2

inline __m256i splat_bytes(const void* p) {
  int32_t four;
  std::memcpy(&four, p, 4);
  return _mm256_set1_epi32(four);
}

// The products of a group are summed in 16 bits: 16 of them are at most 15 * 127 * 16 = 30480.
template <int M>
inline void int4_products(const uint8_t* w, const int8_t* x, size_t stride, IntPanel (&integer)[M]) {
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
      const __m256i a = splat_bytes(x + m * stride + q * 8), b = splat_bytes(x + m * stride + q * 8 + 4);
      for (int v = 0; v < 2; ++v) {
        sum[m][v] = _mm256_add_epi16(sum[m][v], _mm256_maddubs_epi16(low[v], a));
        sum[m][v] = _mm256_add_epi16(sum[m][v], _mm256_maddubs_epi16(high[v], b));
      }
    }
  }
  const __m256i one = _mm256_set1_epi16(1);
  for (int m = 0; m < M; ++m)
    for (int v = 0; v < 2; ++v) integer[m].half[v] = (Int8)_mm256_madd_epi16(sum[m][v], one);
}

template <int M, int Group>
inline void int8_products(const uint8_t* w, const int16_t* x, size_t stride, IntPanel (&integer)[M]) {
  __m256i sum[M][2];
  for (int m = 0; m < M; ++m) sum[m][0] = sum[m][1] = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int q = 0; q < Group / 2; ++q) {
    __m256i weights[2];
    for (int v = 0; v < 2; ++v)
      weights[v] = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)(w + (q * 2 + v) * 16)));
    for (int m = 0; m < M; ++m) {
      const __m256i both = splat_bytes(x + m * stride + q * 2);
      for (int v = 0; v < 2; ++v)
        sum[m][v] = _mm256_add_epi32(sum[m][v], _mm256_madd_epi16(weights[v], both));
    }
  }
  for (int m = 0; m < M; ++m)
    for (int v = 0; v < 2; ++v) integer[m].half[v] = (Int8)sum[m][v];
}

#else

template <int M>
inline void int4_products(const uint8_t* w, const int8_t* x, size_t stride, IntPanel (&integer)[M]) {
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
      integer[m].half[v] = sum;
    }
  }
}

template <int M, int Group>
inline void int8_products(const uint8_t* w, const int16_t* x, size_t stride, IntPanel (&integer)[M]) {
  for (int m = 0; m < M; ++m) {
    for (int v = 0; v < 2; ++v) {
      Int8 sum = {};
      for (int q = 0; q < Group / 2; ++q) {
        const int8_t* block = (const int8_t*)w + (q * 2 + v) * 16;
        const int16_t* pair = x + m * stride + q * 2;
        for (int o = 0; o < 8; ++o) sum[o] += block[o * 2] * pair[0] + block[o * 2 + 1] * pair[1];
      }
      integer[m].half[v] = sum;
    }
  }
}

#endif
#endif

}  // namespace specserve::SPECSERVE_ISA
