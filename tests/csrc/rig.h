// Programs of a few ops, and the steps that run through them. Every array has exactly the size its contract
// names, so that the address sanitizer sees a kernel leave it.
#pragma once
#include <cstdlib>
#include <memory>

#include "check.h"
#include "ops.h"
#include "pack.h"
#include "plain.h"

namespace specserve::test {

// A packed matrix in memory that ends with its last panel: packing leaves room for prefetches only.
class ExactMatrix {
 public:
  explicit ExactMatrix(const PackedMatrix& packed);
  Matrix view;
  Floats row(const Kernels& kernels, int id) const;  // as numbers, [k]
  std::vector<Floats> rows(const Kernels& kernels, int num_rows) const;
  int width = 0;  // k before padding

 private:
  struct Free { void operator()(uint8_t* p) const { std::free(p); } };
  std::unique_ptr<uint8_t, Free> memory_;
};

// Random weights rounded to a class; `interleaved` makes one gated matrix of n / 2 gates and n / 2 ups, whose
// rows come in this order in `weights`.
struct RandomMatrix {
  RandomMatrix(Random& random, WeightClass weight_class, int n, int k, bool interleaved = false);
  Floats source;  // [n, k]
  std::unique_ptr<ExactMatrix> matrix;
  bool is_interleaved;
  std::vector<Floats> weights(const Kernels& kernels) const;
};

struct Step {
  std::vector<int64_t> ids, positions, slots, wanted;
  std::vector<int32_t> starts{0}, tables, key_limits;  // no limits: causal
  int table_stride = 0;
  Floats logits;
  StepInput input(int vocabulary = 0);
  int num_rows() const { return int(ids.size()); }
};

// `num_rows` rows of one sequence without a cache.
Step rows_only(int num_rows);

// A program of ops over buffers of [max_rows, width].
struct Rig {
  Rig(int num_threads, const Kernels& kernels, int max_rows) : pool(num_threads), program(pool, kernels, max_rows) {}
  Pool pool;
  Program program;
  Buffer add(int width, float value = 0.0f);       // filled with one value
  Buffer add(int width, const Floats& values);     // filled with rows
  void run(Step& step, int vocabulary = 0);
};

Floats row_of(const Buffer& buffer, int row);
bool same_bits(const Floats& a, const Floats& b);
void expect_rows(const Floats& found, const Floats& expected, double tolerance, const std::string& where);

// Of norms: large enough to be seen.
constexpr float kEps = 0.1f;

// Name of a combination, for messages.
template <typename... Parts>
std::string named(const Parts&... parts) {
  std::string text;
  ((text += [](const auto& part) {
     if constexpr (std::is_arithmetic_v<std::decay_t<decltype(part)>>) return std::to_string(part) + " ";
     else return std::string(part) + " ";
   }(parts)), ...);
  return text;
}

}  // namespace specserve::test
