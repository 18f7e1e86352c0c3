// The dispatch table: one set of kernels per instruction set, chosen once at load.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "activations.h"
#include "cache.h"
#include "layout.h"

namespace specserve {

enum class Gate : int { none = 0, silu = 1, gelu_tanh = 2 };

// Rows before a matrix: y = norm(x) when `norm` is given, then rounded for the integer classes.
struct PrepareCall {
  const Matrix* matrix = nullptr;
  const float* x = nullptr;  // [rows, x_stride], the first `size` are used
  size_t x_stride = 0;
  int size = 0;
  const float* norm = nullptr;  // [size] or null
  float eps = 0.0f;
  int activation_bits = 8;
  float* floats = nullptr;  // [rows, k]: the float classes' input, scratch of the others
  Activations digits;
};

// y[r, :] = x[r, :] W^T (+ bias) (+ y[r, :] when `accumulate`), or with a gate act(first half) * second half,
// whose panels alternate.
struct LinearCall {
  const Matrix* matrix = nullptr;
  const float* bias = nullptr;  // [n]
  const float* x = nullptr;     // float classes: [rows, x_stride]
  size_t x_stride = 0;
  Activations digits;           // integer classes
  bool two_digits = false;
  int num_rows = 0;
  float* y = nullptr;
  size_t y_stride = 0;
  bool accumulate = false;
  Gate gate = Gate::none;
};

constexpr int kMaxQueries = 48;  // rows x heads of one work item
constexpr int kMaxHead = 256;    // head size

// One layer's attention, as `specserve.ops.attention.Attention`.
struct AttentionSpec {
  int num_heads = 0, num_kv_heads = 0, head_size = 0;
  float scale = 1.0f, eps = 0.0f;
  int window = 0;                 // 0: none
  const float* q_norm = nullptr;  // [head_size] or null
  const float* k_norm = nullptr;
  const float* cosine = nullptr;  // [positions, half]
  const float* sine = nullptr;
  int half = 0;
  CacheView cache;
};

struct AttentionCall {
  const AttentionSpec* spec = nullptr;
  int num_rows = 0;
  const float* qkv = nullptr;  // [num_rows, stride]: query heads, key heads, value heads
  size_t stride = 0;
  const int64_t* positions = nullptr;
  const int64_t* slots = nullptr;
  const int32_t* key_limits = nullptr;  // [num_rows]: keys the row may see; null: its position + 1
  float* out = nullptr;                 // [num_rows, out_stride]
  size_t out_stride = 0;
};

struct Kernels {
  const char* name;
  void (*prepare)(const PrepareCall&, int first_row, int last_row);
  // Panels [first, last), or with a gate pairs of panels.
  void (*linear)(const LinearCall&, int first, int last);
  void (*norm)(const float* x, size_t x_stride, const float* weight, float eps, int size, float* y, size_t y_stride, int first_row, int last_row);
  // Keys, normed and turned, and values into the cache: items [first, last) of num_kv_heads x num_rows.
  void (*write)(const AttentionCall&, int first, int last);
  // Queries [first, last), at most `kMaxQueries`, of one sequence's rows from `first_row` on and one kv head.
  void (*attend)(const AttentionCall&, const int32_t* block_table, int first_row, int first, int last, int kv_head);
  void (*embed)(const Matrix&, int64_t id, float scale, int size, float* y);  // the first `size` of k
  const Kernels* k_lanes = nullptr;  // the same with the `linear` of k_lanes.h, a yardstick
};

extern const Kernels kAvx512Kernels;
extern const Kernels kAvx2Kernels;
extern const Kernels kPortableKernels;
// Those that this build and this machine have, best first; the portable ones always are.
const std::vector<const Kernels*>& all_kernels();
inline const Kernels& best_kernels() { return *all_kernels().front(); }
// The set of that name, or null.
const Kernels* find_kernels(const std::string& name);

}  // namespace specserve
