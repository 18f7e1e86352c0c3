// The definitions, as plain loops in double precision: what the kernels are compared with.
#pragma once
#include <functional>
#include <vector>

#include "ops.h"

namespace specserve::test {

using Floats = std::vector<float>;

Floats plain_norm(const Floats& x, const float* weight, float eps);

// x as an integer class multiplies it: rounded to digits, and back.
Floats as_rounded(const Floats& x, WeightClass weight_class, int activation_bits);

// weights [n][k] times x, plus bias when there is one.
Floats plain_linear(const std::vector<Floats>& weights, const Floats& x, const float* bias);

// act(first half) * second half
Floats plain_gate(const Floats& x, Gate gate);

// Element `index` of a cache tensor.
float cached(const void* tensor, CacheType type, int64_t index);

// Head norms and rope of one head, in place.
void plain_turn(float* head, const AttentionSpec& spec, const float* norm, int64_t position);

// Query [head size] over keys [first, end) of a kv head; `slot_of` finds a position's slot.
Floats plain_attention(const float* query, const AttentionSpec& spec, int kv_head, int first, int end,
                       const std::function<int64_t(int)>& slot_of);

}  // namespace specserve::test
