// One pass over a row: the largest logit of every block of 64 ids. What looks for large logits afterwards
// visits few blocks. NaN counts as -inf.
#pragma once
#include <limits>

#include "sampling.h"
#include "sampling_lanes.h"

namespace specserve::sampling::SPECSERVE_ISA {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A row in blocks of 64 logits; the last one is filled up with NaN, which nobody counts, so that nobody has
// tails.
class Blocks {
 public:
  Blocks(const float* row, int size) : count_((size + kBlock - 1) / kBlock), full_(size / kBlock), row_(row) {
    for (int i = 0; i < kBlock; ++i) tail_[i] = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(tail_, row + full_ * kBlock, sizeof(float) * (size - full_ * kBlock));
  }
  int count() const { return count_; }
  const float* operator[](int b) const { return b < full_ ? row_ + size_t(b) * kBlock : tail_; }

 private:
  const int count_, full_;
  const float* row_;
  float tail_[kBlock];
};

struct Best {
  float logit;
  int id;  // the lowest of equals; 0 when every logit is -inf
};

inline float largest(Float8 v) {
  float r = v[0];
  for (int i = 1; i < 8; ++i) r = v[i] > r ? v[i] : r;
  return r;
}

inline Best summarise(const Blocks& blocks, float* maxima) {
  Best best{-kInfinity, 0};
  int where = -1;
  for (int b = 0; b < blocks.count(); ++b) {
    const float* p = blocks[b];
    Float8 m[4];
    for (int i = 0; i < 4; ++i) m[i] = larger(load(p + 8 * i), splat(-kInfinity));
    for (int i = 0; i < 4; ++i) m[i] = larger(load(p + 8 * i + 32), m[i]);
    maxima[b] = largest(larger(larger(m[0], m[1]), larger(m[2], m[3])));
    if (maxima[b] > best.logit) best.logit = maxima[b], where = b;
  }
  if (where < 0) return best;
  const float* p = blocks[where];
  while (p[best.id] != best.logit) ++best.id;
  best.id += where * kBlock;
  return best;
}

}  // namespace specserve::sampling::SPECSERVE_ISA
