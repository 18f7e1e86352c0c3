// Sampling of many rows: shares of whole rows on the pool's threads, or on the calling thread alone when
// waking the others would cost more. Who computes a row does not change its result.
#pragma once
#include <memory>
#include <vector>

#include "sampling.h"
#include "threads.h"

namespace specserve {

// Logits [num_rows, size], one row after the other.
struct LogitsView {
  float* data;
  int num_rows;
  int size;
  float* row(int r) const { return data + size_t(r) * size; }
};

// Of each row, or of each sequence's first row.
struct DrawKeys {
  std::vector<double> temperatures;
  std::vector<uint64_t> seeds;
  std::vector<uint64_t> indices;
  uint32_t purpose;
};

// How many drafts of each sequence are kept, and the token that follows them.
struct Accepted {
  std::vector<int> accepted;
  std::vector<int64_t> next_tokens;
};

class Sampler {
 public:
  Sampler(Pool& pool, const sampling::Functions& functions);
  Sampler(const Sampler&) = delete;

  std::vector<int64_t> draw(LogitsView logits, const DrawKeys& keys);
  Accepted accept(LogitsView logits, const std::vector<std::vector<int64_t>>& drafts, const DrawKeys& keys);
  // ops/temper.py: a temperature for each row.
  void temper(LogitsView logits, const std::vector<double>& temperatures);
  void truncate(LogitsView logits, const std::vector<sampling::Truncation>& truncations);
  // values [num_rows, 1 + num_top], ranks the same, top_ids [num_rows, num_top].
  void logprobs(LogitsView logits, const std::vector<int64_t>& ids, int num_top, float* values, int64_t* ranks,
                int64_t* top_ids);
  // The noise of ids [0, size).
  void noise(const sampling::Key& key, int size, float* out) const { functions_.noise(key, size, out); }

 private:
  struct Memory {
    std::unique_ptr<float[]> row, maxima;
    std::unique_ptr<sampling::Candidate[]> candidates;
    sampling::Scratch scratch() const { return {row.get(), maxima.get(), candidates.get()}; }
  };
  // task(row, scratch) for every row, in order of rows when on one thread; `nanoseconds` is the work of all.
  template <typename Task>
  void run(LogitsView logits, double nanoseconds, const Task& task);
  void reserve(int size);

  Pool& pool_;
  const sampling::Functions& functions_;
  std::vector<Memory> memory_;  // of each thread
  int size_ = 0;                // of the longest row so far
};

// ops/penalties.py: entry e changes logit `ids[e]` of row `rows[e]`.
struct Penalties {
  std::vector<double> repetition, frequency, presence;  // of each row
};
void penalize(LogitsView logits, int num_entries, const int64_t* rows, const int64_t* ids, const int64_t* counts,
              const Penalties& penalties);

}  // namespace specserve
