#include "plain.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace specserve::test {

Floats plain_norm(const Floats& x, const float* weight, float eps) {
  double squares = 0;
  for (float v : x) squares += double(v) * v;
  const double scale = 1 / std::sqrt(squares / double(x.size()) + eps);
  Floats y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = float(x[i] * scale * weight[i]);
  return y;
}

Floats as_rounded(const Floats& x, WeightClass weight_class, int activation_bits) {
  if (weight_class <= WeightClass::bfloat16) return x;
  const bool is_int8 = weight_class == WeightClass::int8;
  const size_t group = is_int8 ? x.size() : kGroup;
  const float top = is_int8 ? 32767.0f : activation_bits > 8 ? 16319.0f : 127.0f;
  Floats y(x.size());
  for (size_t first = 0; first < x.size(); first += group) {
    const size_t end = std::min(first + group, x.size());
    float peak = 0;
    for (size_t i = first; i < end; ++i) peak = std::max(peak, std::abs(x[i]));
    if (peak <= 1e-30f) continue;
    const float inverse = top / peak;
    for (size_t i = first; i < end; ++i) y[i] = float(std::nearbyint(x[i] * inverse) * double(peak / top));
  }
  return y;
}

Floats plain_linear(const std::vector<Floats>& weights, const Floats& x, const float* bias) {
  Floats y(weights.size());
  for (size_t o = 0; o < weights.size(); ++o) {
    double sum = bias ? bias[o] : 0;
    for (size_t i = 0; i < x.size(); ++i) sum += double(weights[o][i]) * x[i];
    y[o] = float(sum);
  }
  return y;
}

Floats plain_gate(const Floats& x, Gate gate) {
  const size_t half = x.size() / 2;
  Floats y(half);
  for (size_t i = 0; i < half; ++i) {
    const double g = x[i], u = std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
    y[i] = float((gate == Gate::silu ? g / (1 + std::exp(-g)) : 0.5 * g * (1 + std::tanh(u))) * x[half + i]);
  }
  return y;
}

float cached(const void* tensor, CacheType type, int64_t index) {
  if (type == CacheType::float32) return ((const float*)tensor)[index];
  const uint16_t bits = ((const uint16_t*)tensor)[index];
  if (type == CacheType::bfloat16) {
    const uint32_t wide = uint32_t(bits) << 16;
    float v;
    std::memcpy(&v, &wide, 4);
    return v;
  }
  _Float16 v;
  std::memcpy(&v, &bits, 2);
  return float(v);
}

void plain_turn(float* head, const AttentionSpec& spec, const float* norm, int64_t position) {
  if (norm) {
    const Floats y = plain_norm(Floats(head, head + spec.head_size), norm, spec.eps);
    std::copy(y.begin(), y.end(), head);
  }
  for (int i = 0; i < spec.half; ++i) {
    const double c = spec.cosine[position * spec.half + i], s = spec.sine[position * spec.half + i];
    const double a = head[i], b = head[i + spec.half];
    head[i] = float(a * c - b * s);
    head[i + spec.half] = float(b * c + a * s);
  }
}

Floats plain_attention(const float* query, const AttentionSpec& spec, int kv_head, int first, int end,
                       const std::function<int64_t(int)>& slot_of) {
  const CacheView& cache = spec.cache;
  std::vector<double> scores, out(spec.head_size, 0.0);
  for (int p = first; p < end; ++p) {
    const int64_t key = cache.key_offset(slot_of(p), kv_head);
    double score = 0;
    for (int d = 0; d < spec.head_size; ++d) score += double(query[d]) * cached(cache.keys, cache.type, key + d * 8);
    scores.push_back(score * spec.scale);
  }
  const double peak = *std::max_element(scores.begin(), scores.end());
  double total = 0;
  for (double& score : scores) total += score = std::exp(score - peak);
  for (int p = first; p < end; ++p) {
    const int64_t value = cache.value_offset(slot_of(p), kv_head);
    for (int d = 0; d < spec.head_size; ++d) out[d] += scores[p - first] / total * cached(cache.values, cache.type, value + d);
  }
  return Floats(out.begin(), out.end());
}

}  // namespace specserve::test
