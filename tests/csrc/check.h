// What the tests share: claims, and random numbers from fixed seeds.
#pragma once
#include <cmath>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace specserve::test {

// A test is a claim and code that throws where it does not hold. Tests register themselves.
struct Test {
  Test(const char* claim, std::function<void()> run);
  const char* claim;
  std::function<void()> run;
};

inline void expect(bool holds, const std::string& otherwise) {
  if (!holds) throw std::runtime_error(otherwise);
}

// NaN is near nothing.
inline void expect_near(double found, double expected, double tolerance, const std::string& where) {
  if (!(std::abs(found - expected) <= tolerance))
    throw std::runtime_error(where + ": " + std::to_string(found) + " instead of " + std::to_string(expected));
}

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  int below(int end) { return int(engine_() % uint32_t(end)); }
  bool coin() { return below(2) == 1; }
  template <typename T>
  T one_of(const std::vector<T>& values) { return values[below(int(values.size()))]; }
  float uniform() { return float(engine_()) * 0x1p-31f - 1.0f; }  // [-1, 1]
  std::vector<float> floats(size_t count, float scale = 1.0f) {
    std::vector<float> values(count);
    for (float& v : values) v = uniform() * scale;
    return values;
  }
  std::vector<uint8_t> bytes(size_t count) {
    std::vector<uint8_t> values(count);
    for (uint8_t& v : values) v = uint8_t(below(256));
    return values;
  }

 private:
  std::mt19937 engine_;
};

}  // namespace specserve::test
