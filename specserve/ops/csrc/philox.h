// Philox4x32-10 for thirty-two token ids at a time; twin: ops/philox.py, which has the layout of the counter.
#pragma once
#include "sampling.h"
#include "sampling_lanes.h"

namespace specserve::sampling::SPECSERVE_ISA {

class Hash {
 public:
  explicit Hash(const Key& key)
      : index_(splat(key.index & 0xffffffff)), purpose_(splat(key.purpose | (key.index >> 32 << 8))) {
    uint32_t low = uint32_t(key.seed), high = uint32_t(key.seed >> 32);
    for (int round = 0; round < kRounds; ++round) {
      low_[round] = splat(uint64_t(low));
      high_[round] = splat(uint64_t(high));
      low += 0x9E3779B9;
      high += 0xBB67AE85;
    }
  }

  // The words of ids [first, first + 32), first being a multiple of 4. Two hashes of four counters side by side:
  // one alone would wait for the result of every operation. A counter's words lie in the low halves of 64-bit
  // lanes; what is in the high halves never matters, since products take the low ones.
  void words(uint32_t first, Int8 (&out)[4]) const {
    const uint64_t block = first >> 2;
    Word4 c0[2], c1[2], c2[2], c3[2], p0[2], p1[2];
    for (int h = 0; h < 2; ++h) {
      c0[h] = splat(block + 4 * h) + Word4{0, 2, 1, 3};  // as `interleave` wants them
      c1[h] = index_, c2[h] = purpose_, c3[h] = splat(uint64_t(0));
    }
    for (int round = 0; round < kRounds; ++round) {
      for (int h = 0; h < 2; ++h) p0[h] = multiply(c0[h], splat(uint64_t(0xD2511F53)));
      for (int h = 0; h < 2; ++h) p1[h] = multiply(c2[h], splat(uint64_t(0xCD9E8D57)));
      for (int h = 0; h < 2; ++h) {
        c0[h] = (p1[h] >> 32) ^ (c1[h] ^ low_[round]);
        c2[h] = (p0[h] >> 32) ^ (c3[h] ^ high_[round]);
        c1[h] = p1[h];
        c3[h] = p0[h];
      }
    }
    for (int h = 0; h < 2; ++h) interleave(c0[h], c1[h], c2[h], c3[h], out[2 * h], out[2 * h + 1]);
  }

 private:
  static constexpr int kRounds = 10;
  const Word4 index_, purpose_;
  Word4 low_[kRounds], high_[kRounds];
};

}  // namespace specserve::sampling::SPECSERVE_ISA
