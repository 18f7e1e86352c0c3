// Matrices over rows: every class, every option, odd sizes.
#include <algorithm>

#include "rig.h"

namespace specserve::test {
namespace {

const std::vector<WeightClass> kClasses = {WeightClass::float32, WeightClass::bfloat16, WeightClass::int8, WeightClass::int4};
const std::vector<int> kOutputs = {1, 7, 15, 16, 17, 33, 48, 70}, kInputs = {1, 5, 31, 32, 33, 64, 100};
const std::vector<int> kRows = {0, 1, 2, 4, 5, 6, 7, 9, 13, 17, 130};

// A linear op with random options, and its definition.
struct Case {
  Case(Random& random, WeightClass weight_class, int n, int k);
  Floats expected(const Kernels& kernels, const std::vector<Floats>& weights, const Floats& x, const Floats& before) const;
  int num_columns() const { return spec.gate == Gate::none ? n : n / 2; }
  int n, k;
  RandomMatrix matrix;
  Floats bias, norm;
  LinearSpec spec;
  std::string name;
};

Case::Case(Random& random, WeightClass weight_class, int n, int k)
    : n(n), k(k), matrix(random, weight_class, n, k, n % 2 == 0 && random.coin()), bias(random.floats(n)), norm(random.floats(k)) {
  spec.matrix = &matrix.matrix->view;
  spec.gate = matrix.is_interleaved ? random.one_of<Gate>({Gate::silu, Gate::gelu_tanh}) : Gate::none;
  spec.bias = random.coin() ? bias.data() : nullptr;
  spec.norm = random.coin() ? norm.data() : nullptr;
  spec.eps = kEps;
  spec.activation_bits = random.coin() ? 8 : 16;
  if (spec.gate == Gate::none) {
    spec.is_head = random.below(4) == 0;
    spec.accumulate = !spec.is_head && random.coin();
    spec.column = spec.is_head ? 0 : random.below(4);
  }
  name = named("class", int(weight_class), "bits", spec.activation_bits, "n", n, "k", k, "gate", int(spec.gate), "bias",
               spec.bias != nullptr, "norm", spec.norm != nullptr, "accumulate", spec.accumulate, "head", spec.is_head);
}

Floats Case::expected(const Kernels& kernels, const std::vector<Floats>& weights, const Floats& x, const Floats& before) const {
  Floats input = x;
  // A digit may tip where a norm's last bit differs, so the norm is the kernels' own: it has its own test.
  if (spec.norm) kernels.norm(x.data(), k, norm.data(), spec.eps, k, input.data(), k, 0, 1);
  input = as_rounded(input, spec.matrix->weight_class, spec.activation_bits);
  Floats y = plain_linear(weights, input, spec.bias);
  if (spec.gate != Gate::none) return plain_gate(y, spec.gate);
  for (int i = 0; i < n && spec.accumulate; ++i) y[i] += before[spec.column + i];
  return y;
}

void check(const Case& c, const Kernels& kernels, Random& random, int num_rows, int num_threads) {
  const int right = c.spec.is_head ? 0 : random.below(3), width = c.spec.column + c.num_columns() + right;
  const int max_rows = std::max(1, num_rows + random.below(2));
  const std::string where = named(kernels.name, "threads", num_threads, "rows", num_rows) + c.name;
  Rig rig(num_threads, kernels, max_rows);
  const Floats x = random.floats(size_t(num_rows) * c.k), before = random.floats(size_t(max_rows) * width);
  const Buffer in = rig.add(c.k, x), out = rig.add(width, before);
  rig.program.add(std::make_unique<LinearOp>(c.spec, in, out, max_rows, num_threads));
  Step step = rows_only(num_rows);
  if (c.spec.is_head) step.wanted.assign(num_rows, 0);  // its rows are those gathered before
  rig.run(step, c.n);
  const std::vector<Floats> weights = c.matrix.weights(kernels);
  for (int r = 0; r < max_rows; ++r) {
    const Floats old(before.begin() + r * width, before.begin() + (r + 1) * width);
    Floats y = old;
    if (r < num_rows) {
      const Floats row = c.expected(kernels, weights, Floats(x.begin() + r * c.k, x.begin() + (r + 1) * c.k), old);
      if (c.spec.is_head)
        expect_rows(Floats(step.logits.begin() + r * c.n, step.logits.begin() + (r + 1) * c.n), row, 2e-5, where);
      else
        std::copy(row.begin(), row.end(), y.begin() + c.spec.column);
    }
    expect_rows(row_of(out, r), y, 2e-5, where);
  }
}

const Test matrices("a matrix over rows equals plain loops, and writes its own columns of its own rows only", [] {
  Random random(1);
  for (const Kernels* kernels : all_kernels())
    for (WeightClass weight_class : kClasses)
      for (int n : kOutputs)
        for (int k : kInputs) {
          const Case c(random, weight_class, n, k);
          check(c, *kernels, random, random.one_of(kRows), 1 + random.below(4));
        }
});

const Test splits("a row's bits depend neither on the rows beside it nor on the number of threads", [] {
  Random random(2);
  for (const Kernels* kernels : all_kernels())
    for (WeightClass weight_class : kClasses)
      for (int bits : {8, 16}) {
        Case c(random, weight_class, 50, 100);
        c.spec.activation_bits = bits;
        c.spec.is_head = c.spec.accumulate = false;
        const Floats x = random.floats(17 * 100);
        const auto rows = [&](int first, int count, int num_threads) {
          Rig rig(num_threads, *kernels, count);
          const Buffer in = rig.add(100, Floats(x.begin() + first * 100, x.begin() + (first + count) * 100)), out = rig.add(60);
          rig.program.add(std::make_unique<LinearOp>(c.spec, in, out, count, num_threads));
          Step step = rows_only(count);
          rig.run(step);
          return Floats(out.data, out.data + count * 60);
        };
        const Floats whole = rows(0, 17, 2);
        for (int count = 1; count <= 17; ++count) {
          const int first = random.below(17 - count + 1);
          const Floats part(whole.begin() + first * 60, whole.begin() + (first + count) * 60);
          expect(same_bits(rows(first, count, 1 + count % 4), part), named("bits differ:", kernels->name, count, "rows") + c.name);
        }
      }
});

const Test lanes("with several sums along k the products are the same within rounding, and other bits", [] {
  Random random(3);
  for (const Kernels* kernels : all_kernels()) {
    expect(!kernels->k_lanes->k_lanes && kernels->k_lanes->linear != kernels->linear, "a yardstick of its own");
    for (WeightClass weight_class : kClasses) {
      for (int n : kOutputs)
        for (int k : kInputs) {
          const Case c(random, weight_class, n, k);
          if (c.spec.gate == Gate::none) check(c, *kernels->k_lanes, random, random.one_of(kRows), 1 + random.below(4));
        }
      Case c(random, weight_class, 17, 1000);
      const Floats x = random.floats(9 * 1000);
      const auto rows = [&](const Kernels& set) {
        Rig rig(1, set, 9);
        const Buffer in = rig.add(1000, x), out = rig.add(40);
        rig.program.add(std::make_unique<LinearOp>(c.spec, in, out, 9, 1));
        Step step = rows_only(9);
        step.wanted.assign(9, 0);
        rig.run(step, 17);
        return c.spec.is_head ? step.logits : Floats(out.data, out.data + 9 * 40);
      };
      expect(!same_bits(rows(*kernels), rows(*kernels->k_lanes)), named("the same order:", kernels->name, int(weight_class)));
    }
  }
});

}  // namespace
}  // namespace specserve::test
