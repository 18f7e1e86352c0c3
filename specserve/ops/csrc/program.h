// A network recorded once and run natively: buffers, ops, and one call per step.
//
// All threads execute the op list in order, each taking shares of an op's work from a common counter; a
// barrier separates ops. Who computes a share does not change its result. Buffers are [max_rows, width]
// floats; the step's rows come from arrays that the caller fills before each call.
#pragma once
#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include "kernels.h"
#include "threads.h"

namespace specserve {

// What a step brings: a ragged batch of rows, as `specserve.types.Rows`.
struct StepInput {
  int num_rows = 0;
  const int64_t* ids = nullptr;
  const int64_t* positions = nullptr;
  const int64_t* slots = nullptr;
  const int32_t* key_limits = nullptr;  // null: causal
  int num_sequences = 0;
  const int32_t* starts = nullptr;        // [num_sequences + 1]
  const int32_t* block_tables = nullptr;  // [num_sequences, table_stride]
  int table_stride = 0;
  int num_wanted = 0;                   // rows whose output the last ops compute
  const int64_t* wanted = nullptr;
  float* logits = nullptr;  // [num_wanted, vocabulary]
};

struct Buffer {
  float* data = nullptr;
  int width = 0;
};

// Shares of one op, handed out in order to whoever asks.
class Shares {
 public:
  void reset() { next_.store(0, std::memory_order_relaxed); }
  int take() { return next_.fetch_add(1, std::memory_order_relaxed); }

 private:
  alignas(64) std::atomic<int> next_{0};
};

struct Context {
  const Kernels& kernels;
  const StepInput& input;
  int thread;
  int num_threads;
  Barrier& barrier;
};

class Op {
 public:
  virtual ~Op() = default;
  virtual void run(const Context& context) = 0;
  virtual void reset() {}
};

class Program {
 public:
  Program(Pool& pool, const Kernels& kernels, int max_rows);
  Program(const Program&) = delete;
  int add_buffer(int width);
  Buffer buffer(int index) const { return buffers_[index]; }
  void add(std::unique_ptr<Op> op) { ops_.push_back(std::move(op)); }
  int max_rows() const { return max_rows_; }
  int num_threads() const { return pool_.size(); }
  size_t num_bytes() const { return num_bytes_; }
  // Ops [first, last) on the step's rows; the whole program is (0, size).
  void run(const StepInput& input, int first, int last);
  int size() const { return int(ops_.size()); }
  // While timed, `op_seconds` holds the last run's wall time of each op: an op ends when its last thread has
  // done its share, which no single thread could tell, since it may be woken late.
  void set_timed(bool timed);
  const std::vector<double>& op_seconds() const { return op_seconds_; }

 private:
  using Clock = std::chrono::steady_clock;
  bool is_timed() const { return !arrivals_.empty(); }
  void add_up(Clock::time_point began, int first, int last);

  Pool& pool_;
  const Kernels& kernels_;
  const int max_rows_;
  size_t num_bytes_ = 0;
  std::vector<Buffer> buffers_;
  std::vector<std::unique_ptr<float[]>> memory_;
  std::vector<std::unique_ptr<Op>> ops_;
  std::vector<std::vector<Clock::time_point>> arrivals_;  // [threads][ops], while timed
  std::vector<double> op_seconds_;
};

}  // namespace specserve
