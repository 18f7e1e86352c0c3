// Log-probabilities and ranks; twin: ops/logprobs.py.
#pragma once
#include <cmath>

#include "candidates.h"
#include "mass.h"

namespace specserve::sampling::SPECSERVE_ISA {

// NaN as -inf; without a finite best logit the best ids are equally likely.
inline void clean(const float* row, int size, float best, float* out) {
  const bool is_finite = std::isfinite(best);
  for (int i = 0; i < size; ++i) {
    const float x = row[i] == row[i] ? row[i] : -kInfinity;
    out[i] = is_finite ? x : x == best ? 0.0f : -kInfinity;
  }
}

// Ids, log-probabilities and ranks of the t best, all of them at least `low`; a rank counts the ids at least
// as likely.
inline void top(const Blocks& blocks, float low, double log_total, const LogprobsCall& call, const Scratch& scratch) {
  const int t = call.num_top;
  Candidate* c = scratch.candidates;
  const int n = collect(blocks, scratch.maxima, low, c);
  std::nth_element(c, c + t - 1, c + n, Larger());
  std::sort(c, c + t, Larger());
  int64_t rank = t;
  for (int i = t; i < n; ++i) rank += c[i].logit == c[t - 1].logit;
  for (int i = t - 1; i >= 0; --i) {
    if (i + 1 < t && c[i].logit != c[i + 1].logit) rank = i + 1;
    call.top_ids[i] = c[i].id;
    call.values[1 + i] = float(double(c[i].logit) - log_total);
    call.ranks[1 + i] = rank;
  }
}

void logprobs(const float* row, int size, const LogprobsCall& call, const Scratch& scratch) {
  const Blocks blocks(row, size);
  const float best = summarise(blocks, scratch.maxima).logit, logit = row[call.id];
  const float low =
      call.num_top ? below_kth(scratch.maxima, blocks.count(), call.num_top, scratch.maxima + blocks.count()) : best;
  // NaN can be among what is counted or listed only when -inf is, too.
  const bool is_clean = std::isfinite(best) && logit > -kInfinity && low > -kInfinity;
  if (!is_clean && row != scratch.row) {
    clean(row, size, best, scratch.row);
    return logprobs(scratch.row, size, call, scratch);
  }
  const double log_total = double(best) + std::log(double(total(blocks, scratch.maxima, best, -kInfinity)) * 0x1p-40);
  call.values[0] = float(double(logit) - log_total);
  call.ranks[0] = count(blocks, scratch.maxima, logit);
  if (call.num_top) top(blocks, low, log_total, call, scratch);
}

}  // namespace specserve::sampling::SPECSERVE_ISA
