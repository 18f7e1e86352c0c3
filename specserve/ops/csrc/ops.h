// The ops of a recorded program. Each holds where its input and output lie and shares its work out.
#pragma once
#include "program.h"

namespace specserve {

// y[r] = table row of the step's id r, times scale.
class EmbedOp : public Op {
 public:
  EmbedOp(const Matrix* table, float scale, Buffer y) : table_(table), scale_(scale), y_(y) {}
  void run(const Context& context) override;

 private:
  const Matrix* table_;
  float scale_;
  Buffer y_;
};

// y[r] = norm(x[r]), or y[r] += norm(x[r]) for sandwich norms.
class NormOp : public Op {
 public:
  NormOp(Buffer x, const float* weight, float eps, Buffer y, bool accumulate, int num_threads)
      : x_(x), y_(y), weight_(weight), eps_(eps), own_(accumulate ? num_threads : 0, std::vector<float>(x.width)) {}
  void run(const Context& context) override;

 private:
  Buffer x_, y_;
  const float* weight_;
  float eps_;
  std::vector<std::vector<float>> own_;  // a row per thread, when accumulating: x may be y, or be read again
};

// y = x, for streams that are added to later.
class CopyOp : public Op {
 public:
  CopyOp(Buffer x, Buffer y) : x_(x), y_(y) {}
  void run(const Context& context) override;

 private:
  Buffer x_, y_;
};

// y += x
class AddOp : public Op {
 public:
  AddOp(Buffer x, Buffer y) : x_(x), y_(y) {}
  void run(const Context& context) override;

 private:
  Buffer x_, y_;
};

// y[i] = x[wanted[i]]
class GatherOp : public Op {
 public:
  GatherOp(Buffer x, Buffer y) : x_(x), y_(y) {}
  void run(const Context& context) override;

 private:
  Buffer x_, y_;
};

struct LinearSpec {
  const Matrix* matrix = nullptr;
  const float* bias = nullptr;
  const float* norm = nullptr;  // norm of the input first
  float eps = 0.0f;
  Gate gate = Gate::none;
  bool accumulate = false;
  bool is_head = false;  // as many rows as the step wants, into the step's logits
  int activation_bits = 8;
  int column = 0;  // where in the output's rows its own columns begin
};

class LinearOp : public Op {
 public:
  LinearOp(const LinearSpec& spec, Buffer x, Buffer y, int max_rows, int num_threads);
  void run(const Context& context) override;
  void reset() override { shares_.reset(); }

 private:
  // Up to so many rows every thread prepares all of them for itself: that is cheaper than a barrier.
  static constexpr int kOwnRows = 1;
  struct Scratch {
    std::unique_ptr<float[]> floats;
    std::unique_ptr<int8_t[]> high, low;
    std::unique_ptr<int16_t[]> wide;
    std::unique_ptr<float[]> scales, sums;
    Activations digits() const { return {high.get(), low.get(), wide.get(), scales.get(), sums.get()}; }
  };
  Scratch make_scratch(int rows) const;
  LinearSpec spec_;
  Buffer x_, y_;
  Scratch shared_;
  std::vector<Scratch> own_;
  Shares shares_;
};

// Keys and values of all rows into the cache, then attention by sequence, kv head and a number of queries.
class AttentionOp : public Op {
 public:
  // Throws std::invalid_argument where the kernels' tiles would not hold the shape.
  AttentionOp(const AttentionSpec& spec, Buffer qkv, Buffer y);
  void run(const Context& context) override;
  void reset() override { shares_.reset(); }

 private:
  AttentionSpec spec_;
  Buffer qkv_, y_;
  Shares shares_;
};

}  // namespace specserve
