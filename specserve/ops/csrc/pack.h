// Weights into panels, once at load.
//
// GGUF block types that map onto a class without loss are taken over as they are: their integers, scales
// and minima are moved, nothing is rounded a second time. Python twin: tests/support/rounding.py.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "layout.h"

namespace specserve {

// GGUF's numbers of the types below.
enum class BlockType : int { q4_0 = 2, q4_1 = 3, q5_0 = 6, q5_1 = 7, q8_0 = 8, q4_k = 12, q5_k = 13, q6_k = 14 };

// Rows of a matrix as they are in memory: float32 or bfloat16 values, or GGUF blocks.
struct Source {
  enum class Kind : int { float32, bfloat16, blocks } kind = Kind::float32;
  BlockType type = BlockType::q8_0;
  const void* data = nullptr;
  int num_rows = 0;
  int num_inputs = 0;
};

// Owns the packed bytes of one matrix.
class PackedMatrix {
 public:
  PackedMatrix() = default;
  PackedMatrix(PackedMatrix&&) = default;
  PackedMatrix(const PackedMatrix&) = delete;
  Matrix view;
  size_t num_bytes() const { return bytes_; }
  friend PackedMatrix pack(const std::vector<Source>&, WeightClass, bool);

 private:
  struct Free { void operator()(void* p) const; };
  std::unique_ptr<uint8_t, Free> memory_;
  size_t bytes_ = 0;
};

// Which class and options a block type maps onto without loss.
Matrix shape_of(BlockType type, int num_outputs, int num_inputs);

// The sources' rows one after another (qkv), or, `interleaved`, two sources' panels in turn (gate, up).
// Floats are rounded to `weight_class`; blocks must map onto it. Throws std::invalid_argument.
PackedMatrix pack(const std::vector<Source>& sources, WeightClass weight_class, bool interleaved);

}  // namespace specserve
