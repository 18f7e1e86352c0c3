// Packing: what a panel holds is what the source said, and reading blocks stays inside them.
#include <algorithm>
#include <cstring>

#include "rig.h"

namespace specserve::test {
namespace {

struct Type {
  BlockType type;
  int size, bytes;
  std::vector<int> scales;  // where half floats lie
};
const std::vector<Type> kTypes = {
    {BlockType::q4_0, 32, 18, {0}},       {BlockType::q4_1, 32, 20, {0, 2}},    {BlockType::q5_0, 32, 22, {0}},
    {BlockType::q5_1, 32, 24, {0, 2}},    {BlockType::q8_0, 32, 34, {0}},       {BlockType::q4_k, 256, 144, {0, 2}},
    {BlockType::q5_k, 256, 176, {0, 2}},  {BlockType::q6_k, 256, 210, {208}},
};

// Any bytes are a valid block once its scales are ordinary half floats.
std::vector<uint8_t> random_blocks(Random& random, const Type& type, int count) {
  std::vector<uint8_t> data = random.bytes(size_t(count) * type.bytes);
  for (int b = 0; b < count; ++b)
    for (int at : type.scales) {
      const uint16_t half = uint16_t(0x2000 + random.below(0x400));  // 1/128 to 1/64
      std::memcpy(&data[size_t(b) * type.bytes + at], &half, 2);
    }
  return data;
}

const Test blocks("blocks of every type are read inside their bytes, to the same numbers by all kernels", [] {
  Random random(7);
  for (const Type& type : kTypes)
    for (int height : {0, 1, 15, 16, 17, 40})
      for (int per_row : {1, 3}) {
        const int k = per_row * type.size;
        const std::vector<uint8_t> data = random_blocks(random, type, height * per_row);
        const Source source{Source::Kind::blocks, type.type, data.data(), height, k};
        const ExactMatrix matrix(pack({source}, shape_of(type.type, height, k).weight_class, false));
        for (const Kernels* kernels : all_kernels())
          for (int r = 0; r < height; ++r) {
            const Floats row = matrix.row(*kernels, r);
            expect(std::all_of(row.begin(), row.end(), [](float v) { return std::isfinite(v); }), "finite");
            expect(same_bits(row, matrix.row(*all_kernels().back(), r)), named("type", int(type.type), "differs in", kernels->name));
          }
      }
});

const Test rounding("int8 and int4 are within half a step of the weights, whatever the group holds", [] {
  Random random(8);
  for (WeightClass weight_class : {WeightClass::int8, WeightClass::int4})
    for (int k : {1, 31, 32, 33, 95}) {
      const float scale = random.one_of<float>({1e-3f, 1.0f, 300.0f});
      Floats weights = random.floats(size_t(5) * k, scale);
      std::fill_n(weights.begin(), k, 0.0f);                             // a row of zeros
      for (int i = 0; i < k; ++i) weights[k + i] = std::abs(weights[k + i]);  // one of one sign
      const Source source{Source::Kind::float32, BlockType::q8_0, weights.data(), 5, k};
      ExactMatrix matrix(pack({source}, weight_class, false));
      matrix.width = k;
      for (int r = 0; r < 5; ++r) {
        const Floats found = matrix.row(best_kernels(), r);
        for (int i = 0; i < k; ++i) {  // half a step, and the steps' own rounding to half floats
          const float step = weight_class == WeightClass::int8 ? scale / 127 : 2 * scale / 15;
          expect_near(found[i], weights[size_t(r) * k + i], 0.51 * step + 2e-3 * scale, named("k", k, "row", r));
        }
      }
    }
});

const Test together("sources lie one under the other or in turn; what does not fit together is refused", [] {
  Random random(9);
  const Floats a = random.floats(7 * 20), b = random.floats(18 * 20);
  const Source first{Source::Kind::float32, BlockType::q8_0, a.data(), 7, 20};
  const Source second{Source::Kind::float32, BlockType::q8_0, b.data(), 18, 20};
  const ExactMatrix both(pack({first, second}, WeightClass::float32, false));
  for (int r = 0; r < 25; ++r) {
    const float* expected = r < 7 ? &a[r * 20] : &b[(r - 7) * 20];
    expect(same_bits(both.row(best_kernels(), r), Floats(expected, expected + 20)), "one under the other");
  }
  Source narrow = second, other = second;
  narrow.num_inputs = 19;
  other.kind = Source::Kind::bfloat16;
  const auto is_refused = [](const std::vector<Source>& sources, WeightClass weight_class, bool interleaved) {
    try {
      pack(sources, weight_class, interleaved);
    } catch (const std::invalid_argument&) {
      return true;
    }
    return false;
  };
  expect(is_refused({first, narrow}, WeightClass::float32, false), "two widths");
  expect(is_refused({first, other}, WeightClass::float32, false), "two types");
  expect(is_refused({first, second}, WeightClass::float32, true), "two heights, in turn");
  expect(is_refused({{Source::Kind::blocks, BlockType::q8_0, a.data(), 1, 32}}, WeightClass::int4, false), "not its class");
  expect(is_refused({{Source::Kind::blocks, BlockType::q8_0, a.data(), 1, 33}}, WeightClass::int8, false), "half a block");
});

}  // namespace
}  // namespace specserve::test
