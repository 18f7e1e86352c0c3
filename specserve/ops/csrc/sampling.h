// Sampling of one row of logits, one table of functions per instruction set. All tables give the same bits,
// which are those of the Python twins: ops/draw.py, ops/philox.py, ops/temper.py, ops/truncate.py, ops/logprobs.py.
#pragma once
#include <cstdint>
#include <string>

namespace specserve::sampling {

constexpr int kBlock = 64;  // ids that a row's summary has one maximum for

struct Candidate {
  float logit;
  int32_t id;
  int64_t mass;
};

// Memory of one thread for rows of up to `size` ids.
struct Scratch {
  float* row;             // [size]
  float* maxima;          // [2, blocks]
  Candidate* candidates;  // [size]
};

// What a draw's noise is a function of, together with the id.
struct Key {
  uint64_t seed;
  uint64_t index;
  uint32_t purpose;
};

struct Truncation {
  int64_t top_k;    // 0: off
  double top_p;     // 1: off
  bool has_min_p;
  float log_min_p;
  bool is_off(int size) const { return !(0 < top_k && top_k < size) && !(top_p < 1.0) && !has_min_p; }
};

struct LogprobsCall {
  int64_t id;
  int num_top;
  float* values;     // [1 + num_top]: of the id, then of the best ones
  int64_t* ranks;    // [1 + num_top]
  int64_t* top_ids;  // [num_top]
};

struct Functions {
  const char* name;
  int64_t (*best)(const float* row, int size, const Scratch&);
  int64_t (*draw)(const float* row, int size, const Key&, const Scratch&);
  void (*noise)(const Key&, int size, float* out);
  void (*temper)(float* row, int size, float temperature);
  void (*truncate)(float* row, int size, const Truncation&, const Scratch&);
  void (*logprobs)(const float* row, int size, const LogprobsCall&, const Scratch&);
};

extern const Functions kAvx2Functions;
extern const Functions kPortableFunctions;
// "portable" by that name; for any other set the best that this build and this machine have.
const Functions& find_functions(const std::string& instruction_set);

}  // namespace specserve::sampling
