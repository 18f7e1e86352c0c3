// What the machine gives to the threads of a pool: bytes read per second, multiplications per second. A
// benchmark measures both in the run whose steps it judges; a figure from another day judges nothing.
// Python side: specserve/ops/probe.py.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "threads.h"

namespace specserve {

// The multiplications the weight classes are made of, each product added to a sum.
enum class Products : int {
  float32 = 0,      // fused multiply-add: float32, bfloat16
  int16_pairs = 1,  // 16 x 16 bits, added in pairs: int8 weights
  int8_pairs = 2,   // 8 x 8 bits, added in pairs or fours: int4 weights
};

// Reads a buffer from end to end. It must be far larger than all caches together.
class ReadProbe {
 public:
  explicit ReadProbe(size_t num_bytes);
  size_t num_bytes() const { return num_bytes_; }
  // Bytes per second of all threads together, each taking the next piece when it has read one.
  double measure(Pool& pool, const std::string& instruction_set) const;

 private:
  struct Free { void operator()(void* p) const; };
  size_t num_bytes_;
  std::unique_ptr<uint8_t, Free> data_;
};

// Multiplications per second of all threads together, operands in registers: no kernel can do better.
// Throws std::invalid_argument for an instruction set without a probe.
double measure_products(Pool& pool, const std::string& instruction_set, Products products);

}  // namespace specserve
