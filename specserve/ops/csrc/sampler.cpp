#include "sampler.h"

#include <algorithm>
#include <stdexcept>

#include "program.h"

namespace specserve {

namespace {

// Rough costs of an id on one thread, and what it takes to be worth waking another.
constexpr double kBestCost = 0.1, kTemperCost = 0.15, kDrawCost = 1.0, kTruncateCost = 0.8, kLogprobsCost = 0.6, kWorthSharing = 3e5;

void check(bool is_right, const char* message) {
  if (!is_right) throw std::invalid_argument(message);
}

}  // namespace

Sampler::Sampler(Pool& pool, const sampling::Functions& functions)
    : pool_(pool), functions_(functions), memory_(pool.size()) {}

void Sampler::reserve(int size) {
  if (size <= size_) return;
  size_ = size;
  const size_t num_blocks = (size_t(size) + sampling::kBlock - 1) / sampling::kBlock;
  for (Memory& memory : memory_) {
    memory.row.reset(new float[size]);
    memory.maxima.reset(new float[2 * num_blocks]);
    memory.candidates.reset(new sampling::Candidate[size]);
  }
}

template <typename Task>
void Sampler::run(LogitsView logits, double nanoseconds, const Task& task) {
  check(logits.size > 0 || logits.num_rows == 0, "rows without ids");
  reserve(logits.size);
  if (pool_.size() == 1 || logits.num_rows < 2 || nanoseconds < kWorthSharing) {
    for (int row = 0; row < logits.num_rows; ++row) task(row, memory_[0].scratch());
    return;
  }
  Shares shares;
  const std::function<void(int, Barrier&)> loop = [&](int thread, Barrier&) {
    for (int row; (row = shares.take()) < logits.num_rows;) task(row, memory_[thread].scratch());
  };
  pool_.run(loop);
}

std::vector<int64_t> Sampler::draw(LogitsView logits, const DrawKeys& keys) {
  const size_t n = logits.num_rows;
  check(keys.temperatures.size() == n && keys.seeds.size() == n && keys.indices.size() == n, "one key for each row");
  std::vector<int64_t> tokens(n);
  double nanoseconds = 0.0;
  for (double temperature : keys.temperatures) nanoseconds += logits.size * (temperature > 0.0 ? kDrawCost : kBestCost);
  run(logits, nanoseconds, [&](int row, const sampling::Scratch& scratch) {
    const float* x = logits.row(row);
    if (!(keys.temperatures[row] > 0.0)) tokens[row] = functions_.best(x, logits.size, scratch);
    else tokens[row] = functions_.draw(x, logits.size, {keys.seeds[row], keys.indices[row], keys.purpose}, scratch);
  });
  return tokens;
}

// Rows behind a refusal are not drawn: `ends[i]` is the first refused place of sequence i known so far. Only
// the smallest one counts, so threads that are ahead of each other agree in the end.
Accepted Sampler::accept(LogitsView logits, const std::vector<std::vector<int64_t>>& drafts, const DrawKeys& keys) {
  const size_t n = drafts.size();
  check(keys.temperatures.size() == n && keys.seeds.size() == n && keys.indices.size() == n, "one key for each draft");
  std::vector<int> owners, firsts;
  double nanoseconds = 0.0;
  for (size_t i = 0; i < n; ++i) {
    firsts.push_back(int(owners.size()));
    owners.resize(owners.size() + 1 + drafts[i].size(), int(i));
    nanoseconds += (1.0 + drafts[i].size()) * logits.size * (keys.temperatures[i] > 0.0 ? kDrawCost : kBestCost);
  }
  check(owners.size() == size_t(logits.num_rows), "one row for each draft's token and one more");
  std::vector<int64_t> own(owners.size());
  std::vector<std::atomic<int>> ends(n);
  for (size_t i = 0; i < n; ++i) ends[i].store(int(drafts[i].size()), std::memory_order_relaxed);
  run(logits, nanoseconds, [&](int row, const sampling::Scratch& scratch) {
    const int i = owners[row], place = row - firsts[i];
    if (place > ends[i].load(std::memory_order_relaxed)) return;
    const float* x = logits.row(row);
    if (!(keys.temperatures[i] > 0.0)) own[row] = functions_.best(x, logits.size, scratch);
    else own[row] = functions_.draw(x, logits.size, {keys.seeds[i], keys.indices[i] + place, keys.purpose}, scratch);
    if (place == int(drafts[i].size()) || own[row] == drafts[i][place]) return;
    for (int end = ends[i].load(); place < end && !ends[i].compare_exchange_weak(end, place);) {}
  });
  Accepted found;
  for (size_t i = 0; i < n; ++i) {
    found.accepted.push_back(ends[i].load());
    found.next_tokens.push_back(own[firsts[i] + found.accepted[i]]);
  }
  return found;
}

void Sampler::temper(LogitsView logits, const std::vector<double>& temperatures) {
  check(temperatures.size() == size_t(logits.num_rows), "one temperature for each row");
  const auto changes = [](double temperature) { return temperature != 0.0 && temperature != 1.0; };
  const auto num_rows = std::count_if(temperatures.begin(), temperatures.end(), changes);
  run(logits, double(num_rows) * logits.size * kTemperCost, [&](int row, const sampling::Scratch&) {
    if (changes(temperatures[row])) functions_.temper(logits.row(row), logits.size, float(temperatures[row]));
  });
}

void Sampler::truncate(LogitsView logits, const std::vector<sampling::Truncation>& truncations) {
  check(truncations.size() == size_t(logits.num_rows), "one truncation for each row");
  double nanoseconds = 0.0;
  for (const auto& t : truncations) nanoseconds += t.is_off(logits.size) ? 0.0 : logits.size * kTruncateCost;
  run(logits, nanoseconds, [&](int row, const sampling::Scratch& scratch) {
    const sampling::Truncation& t = truncations[row];
    if (!t.is_off(logits.size)) functions_.truncate(logits.row(row), logits.size, t, scratch);
  });
}

void Sampler::logprobs(LogitsView logits, const std::vector<int64_t>& ids, int num_top, float* values, int64_t* ranks,
                       int64_t* top_ids) {
  check(ids.size() == size_t(logits.num_rows), "one id for each row");
  check(num_top >= 0 && num_top <= logits.size, "more top ids than there are");
  for (int64_t id : ids) check(id >= 0 && id < logits.size, "an id outside the vocabulary");
  run(logits, double(logits.num_rows) * logits.size * kLogprobsCost, [&](int row, const sampling::Scratch& scratch) {
    const size_t first = size_t(row) * (1 + num_top);
    int64_t* const tops = top_ids + size_t(row) * num_top;
    const sampling::LogprobsCall call{ids[row], num_top, values + first, ranks + first, tops};
    functions_.logprobs(logits.row(row), logits.size, call, scratch);
  });
}

void penalize(LogitsView logits, int num_entries, const int64_t* rows, const int64_t* ids, const int64_t* counts,
              const Penalties& penalties) {
  for (int e = 0; e < num_entries; ++e) {
    const int64_t r = rows[e];
    const float factor = float(penalties.repetition[r]), occurrences = float(counts[e]);
    float& logit = logits.row(int(r))[ids[e]];
    logit = logit > 0.0f ? logit / factor : logit * factor;
    logit -= float(penalties.frequency[r]) * occurrences;
    logit -= float(penalties.presence[r]) * (occurrences > 0.0f ? 1.0f : 0.0f);
  }
}

namespace sampling {

const Functions& find_functions(const std::string& instruction_set) {
#if defined(SPECSERVE_HAS_X86)
  if (instruction_set != kPortableFunctions.name && __builtin_cpu_supports("avx2")) return kAvx2Functions;
#endif
  return kPortableFunctions;
}

}  // namespace sampling

}  // namespace specserve
