// argmax of logits + Gumbel noise; twin: ops/draw.py, operation by operation.
//
// The noise is computed only where it can matter: from the word's leading bits it is at most
// U = -ln(word / 2^32), rounded up, and rounding is monotone, so an id with logit + U below a score that was
// reached is out.
#pragma once
#include <cmath>

#include "philox.h"
#include "summary.h"

namespace specserve::sampling::SPECSERVE_ISA {

constexpr float kMostNoise = 23.0f;

// ln(2^e (1 + f)) as the twin's `_log`.
inline Float8 logarithm(Float8 e, Float8 f) {
  const Float8 s = f / (f + 2.0f);
  const Float8 z = s * s;
  Float8 series = float(2.0 / 9) * z;
  for (const float coefficient : {float(2.0 / 7), float(2.0 / 5), float(2.0 / 3)}) series = (series + coefficient) * z;
  const float high = float(355.0 / 512), low = float(0.6931471805599453 - 355.0 / 512);
  return e * high + (e * low + (series + 2.0f) * s);
}

// x = 2^e m, sqrt(1/2) <= m < sqrt(2).
inline void split(Float8 x, Float8& e, Float8& m) {
  const Int8 exponent = ((Int8)x - 0x3f3504f3) >> 23;
  e = to_float(exponent);
  m = (Float8)((Int8)x - (exponent << 23));
}

// (h + 1/2) 2^-32 of unsigned words, rounded once: both halves are exact, and so is the power of two.
inline Float8 unit(Int8 words) {
  const Float8 high = to_float((Int8)((Bits8)words >> 16)), low = to_float(words & 0xffff);
  return (high * 65536.0f + (low + 0.5f)) * 0x1p-32f;
}

inline Float8 gumbel(Int8 words) {
  const Float8 exact = unit(words), most = splat(1.0f - 0x1p-24f);
  const Float8 w = select((Int8)(exact < most), exact, most);
  Float8 e, m;
  split(1.0f - w, e, m);
  const Float8 exponential = -logarithm(e, select((Int8)(e == 0.0f), -w, m - 1.0f));
  split(exponential, e, m);
  return -logarithm(e, m - 1.0f);
}

// Not less than `gumbel`. The bits of a float, as a number, are its logarithm to base 2 within 0.09 from below.
inline Float8 bound(Int8 words) {
  const Float8 half = to_float((Int8)((Bits8)words >> 1));  // word / 2, rounded
  const float ln2 = 0.693147182f, slack = 1e-3f;
  return (158 * ln2 + slack) - to_float((Int8)half) * (ln2 * 0x1p-23f);
}

inline void noise(const Key& key, int size, float* out) {
  const Hash hash(key);
  for (int first = 0; first < size; first += 32) {
    Int8 words[4];
    float found[32];
    hash.words(first, words);
    for (int v = 0; v < 4; ++v) store(found + 8 * v, gumbel(words[v]));
    std::memcpy(out + first, found, sizeof(float) * (size - first < 32 ? size - first : 32));
  }
}

struct Winner {
  float score;
  int id;
  void consider(Float8 scores, int first, uint32_t lanes) {
    for (; lanes; lanes &= lanes - 1) {
      const int lane = __builtin_ctz(lanes);
      if (scores[lane] > score || (scores[lane] == score && first + lane < id)) score = scores[lane], id = first + lane;
    }
  }
};

inline void search_block(const float* logits, int first, const Hash& hash, Winner& winner) {
  for (int i = 0; i < kBlock; i += 32) {
    Int8 words[4];
    hash.words(first + i, words);
    for (int v = 0; v < 4; ++v) {
      const Float8 x = load(logits + i + 8 * v);
      const uint32_t lanes = bits_of((Int8)(x + bound(words[v]) >= winner.score));
      if (lanes) winner.consider(x + gumbel(words[v]), first + i + 8 * v, lanes);
    }
  }
}

int64_t best(const float* row, int size, const Scratch& scratch) {
  return summarise(Blocks(row, size), scratch.maxima).id;
}

int64_t draw(const float* row, int size, const Key& key, const Scratch& scratch) {
  const Blocks blocks(row, size);
  const Best best = summarise(blocks, scratch.maxima);
  if (!std::isfinite(best.logit)) return best.id;
  const Hash hash(key);
  Winner winner{-kInfinity, best.id};
  search_block(blocks[best.id / kBlock], best.id / kBlock * kBlock, hash, winner);
  for (int b = 0; b < blocks.count(); ++b)
    if (scratch.maxima[b] + kMostNoise >= winner.score) search_block(blocks[b], b * kBlock, hash, winner);
  return winner.id;
}

}  // namespace specserve::sampling::SPECSERVE_ISA
