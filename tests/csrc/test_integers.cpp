// The integer classes in every instruction set: digits and sums agree in every bit, and with plain loops.
#include <algorithm>
#include <cstring>

#include "rig.h"

namespace specserve::test {
namespace {

constexpr uint16_t kOne = 0x3c00;  // 1 as a half float

// What multiplies integers that rows hold exactly: weights of scale 1, minimum 0.
struct Kind {
  const char* name;
  BlockType type;
  int size, bytes;
  int activation_bits;
  int top;  // the largest digit: a group (a row) that holds it is rounded with scale 1
};
const std::vector<Kind> kKinds = {
    {"int4 x 8 bit", BlockType::q4_1, 32, 20, 8, 127},     {"int4 x 15 bit", BlockType::q4_1, 32, 20, 16, 16319},
    {"int4 wide x 8 bit", BlockType::q4_k, 256, 144, 8, 127}, {"int4 wide x 15 bit", BlockType::q4_k, 256, 144, 16, 16319},
    {"int8", BlockType::q8_0, 32, 34, 8, 32767},           {"int8 minima", BlockType::q5_1, 32, 24, 8, 32767},
    {"int8 minima k", BlockType::q5_k, 256, 176, 8, 32767},  {"int8 groups of 16", BlockType::q6_k, 256, 210, 8, 32767},
};

void put_half(uint8_t* p, uint16_t half) { std::memcpy(p, &half, 2); }

// Blocks of random (or, `extreme`, largest) integers with scale 1 and minimum 0.
std::vector<uint8_t> unit_blocks(Random& random, const Kind& kind, int count, bool extreme) {
  std::vector<uint8_t> data = extreme ? std::vector<uint8_t>(size_t(count) * kind.bytes, kind.type == BlockType::q8_0 ? 0x80 : 0xff)
                                      : random.bytes(size_t(count) * kind.bytes);
  for (int b = 0; b < count; ++b) {
    uint8_t* p = &data[size_t(b) * kind.bytes];
    const bool has_minimum = kind.type != BlockType::q8_0 && kind.type != BlockType::q6_k;
    put_half(kind.type == BlockType::q6_k ? p + 208 : p, kOne);
    if (has_minimum) put_half(p + 2, 0);
    if (kind.type == BlockType::q6_k) std::memset(p + 192, 1, 16);
    if (kind.type == BlockType::q4_k || kind.type == BlockType::q5_k) {  // six-bit scales: 1 for all eight groups
      std::memset(p + 4, 1, 4);
      std::memset(p + 8, 0, 4);
      std::memset(p + 12, 1, 4);
    }
  }
  return data;
}

// Rows of integers, every group of 16 holding the largest digit.
Floats integer_rows(Random& random, const Kind& kind, int num_rows, int k, bool extreme) {
  Floats x(size_t(num_rows) * k);
  for (size_t i = 0; i < x.size(); ++i) {
    const int digit = extreme || i % 16 == 3 ? kind.top : random.below(2 * kind.top + 1) - kind.top;
    x[i] = float(random.coin() && !extreme ? -digit : digit);
  }
  return x;
}

Floats multiply(const Kernels& kernels, const Matrix& matrix, const Kind& kind, const Floats& x, int num_rows) {
  Rig rig(1, kernels, num_rows);
  LinearSpec spec;
  spec.matrix = &matrix;
  spec.activation_bits = kind.activation_bits;
  const Buffer in = rig.add(matrix.num_inputs, x), out = rig.add(matrix.num_outputs);
  rig.program.add(std::make_unique<LinearOp>(spec, in, out, num_rows, 1));
  Step step = rows_only(num_rows);
  rig.run(step);
  return Floats(out.data, out.data + size_t(num_rows) * matrix.num_outputs);
}

void check(Random& random, const Kind& kind, int num_rows, bool extreme) {
  const int k = kind.size, n = 19;
  const std::vector<uint8_t> data = unit_blocks(random, kind, n, extreme);
  const WeightClass weight_class = shape_of(kind.type, n, k).weight_class;
  const ExactMatrix matrix(pack({{Source::Kind::blocks, kind.type, data.data(), n, k}}, weight_class, false));
  const Floats x = integer_rows(random, kind, num_rows, k, extreme);
  const std::vector<Floats> weights = matrix.rows(best_kernels(), n);
  Floats expected(size_t(num_rows) * n);
  for (int r = 0; r < num_rows; ++r)
    for (int o = 0; o < n; ++o) {
      float sum = 0;  // groups in order, each an exact integer rounded once to float
      for (int g = 0; g < matrix.view.num_groups(); ++g) {
        int64_t integer = 0;
        for (int i = g * matrix.view.group; i < (g + 1) * matrix.view.group; ++i)
          integer += int64_t(weights[o][i]) * int64_t(x[size_t(r) * k + i]);
        sum = float(double(sum) + double(float(integer)));
      }
      expected[size_t(r) * n + o] = sum;
    }
  for (const Kernels* kernels : all_kernels())
    expect(same_bits(multiply(*kernels, matrix.view, kind, x, num_rows), expected),
           named(kind.name, "in", kernels->name, "rows", num_rows, extreme ? "extreme" : "random"));
}

const Test sums("sums of integer products are exact in every instruction set, the largest ones too", [] {
  Random random(10);
  for (const Kind& kind : kKinds)
    for (int num_rows = 1; num_rows <= 9; ++num_rows)
      for (bool extreme : {false, true}) check(random, kind, num_rows, extreme);
});

// Everything `prepare` writes, as bytes.
struct Digits {
  Digits(int rows, const Matrix& matrix)
      : high(size_t(rows) * matrix.num_inputs), low(high), wide(high.size()), scales(size_t(rows) * matrix.num_groups()), sums(scales) {}
  Activations view(bool has_sums) { return {high.data(), low.data(), wide.data(), scales.data(), has_sums ? sums.data() : nullptr}; }
  bool operator==(const Digits& other) const {
    return high == other.high && low == other.low && wide == other.wide && same_bits(scales, other.scales) && same_bits(sums, other.sums);
  }
  std::vector<int8_t> high, low;
  std::vector<int16_t> wide;
  Floats scales, sums;
};

const Test digits("activations are rounded to the same digits in every instruction set", [] {
  Random random(11);
  for (WeightClass weight_class : {WeightClass::int8, WeightClass::int4})
    for (int bits : {8, 16})
      for (int k : {1, 8, 31, 32, 33, 100})
        for (float scale : {0.0f, 1e-42f, 1e-30f, 1.0f, 1e30f}) {
          const RandomMatrix weights(random, weight_class, 1, k);
          const Matrix& matrix = weights.matrix->view;
          const Floats x = random.floats(size_t(3) * k, scale);
          std::vector<Digits> found;
          for (const Kernels* kernels : all_kernels()) {
            found.emplace_back(3, matrix);
            PrepareCall call;
            call.matrix = &matrix;
            call.x = x.data();
            call.x_stride = call.size = k;
            call.activation_bits = bits;
            call.digits = found.back().view(matrix.has_minimum);
            kernels->prepare(call, 0, 3);
            expect(found.back() == found.front(), named("class", int(weight_class), "bits", bits, "k", k, "scale", scale, kernels->name));
          }
        }
});

}  // namespace
}  // namespace specserve::test
