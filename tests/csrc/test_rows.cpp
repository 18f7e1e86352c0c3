// The ops that handle whole rows, and programs cut at an op.
#include <thread>

#include "rig.h"

namespace specserve::test {
namespace {

const std::vector<WeightClass> kClasses = {WeightClass::float32, WeightClass::bfloat16, WeightClass::int8, WeightClass::int4};
const std::vector<int> kWidths = {1, 7, 8, 9, 31, 32, 33, 40, 100};

const Test embeddings("an embedding row is the table's, scaled, at widths that are no whole number of groups", [] {
  Random random(3);
  for (const Kernels* kernels : all_kernels())
    for (WeightClass weight_class : kClasses)
      for (int width : kWidths) {
        const int height = 1 + random.below(40), num_rows = random.below(6);
        const RandomMatrix table(random, weight_class, height, width);
        Rig rig(1 + random.below(4), *kernels, std::max(1, num_rows));
        const Buffer out = rig.add(width, -1.0f);
        rig.program.add(std::make_unique<EmbedOp>(&table.matrix->view, 3.0f, out));
        Step step = rows_only(num_rows);
        for (int64_t& id : step.ids) id = random.below(height);
        if (num_rows) step.ids.back() = height - 1;
        rig.run(step);
        const float rounding = weight_class <= WeightClass::bfloat16 ? 0.01f : weight_class == WeightClass::int8 ? 0.02f : 0.3f;
        for (int r = 0; r < num_rows; ++r) {
          const std::string where = named(kernels->name, "class", int(weight_class), "width", width);
          Floats expected(table.source.begin() + step.ids[r] * width, table.source.begin() + (step.ids[r] + 1) * width);
          for (float& v : expected) v *= 3;
          expect_rows(row_of(out, r), expected, weight_class == WeightClass::float32 ? 1e-6 : rounding, where);
        }
      }
});

const Test norms("a norm equals plain loops, also where it adds to a stream", [] {
  Random random(4);
  for (const Kernels* kernels : all_kernels())
    for (int width : kWidths)
      for (bool accumulate : {false, true}) {
        const int num_rows = random.below(9);
        Rig rig(1 + random.below(4), *kernels, std::max(1, num_rows));
        const Floats x = random.floats(size_t(num_rows) * width, 3), y = random.floats(size_t(num_rows) * width);
        const Floats weight = random.floats(width);
        const Buffer in = rig.add(width, x), out = rig.add(width, y);
        rig.program.add(std::make_unique<NormOp>(in, weight.data(), kEps, out, accumulate, rig.pool.size()));
        Step step = rows_only(num_rows);
        rig.run(step);
        for (int r = 0; r < num_rows; ++r) {
          Floats expected = plain_norm(Floats(x.begin() + r * width, x.begin() + (r + 1) * width), weight.data(), kEps);
          for (int i = 0; i < width && accumulate; ++i) expected[i] += y[r * width + i];
          expect(same_bits(row_of(in, r), Floats(x.begin() + r * width, x.begin() + (r + 1) * width)), "its input is left alone");
          expect_rows(row_of(out, r), expected, 1e-5, named(kernels->name, "width", width, "accumulate", accumulate));
        }
      }
});

const Test sums("rows are added to a stream", [] {
  Random random(15);
  for (int width : kWidths)
    for (int num_rows : {0, 1, 5}) {
      Rig rig(1 + random.below(4), best_kernels(), 5);
      const Floats x = random.floats(5 * width), y = random.floats(5 * width);
      const Buffer in = rig.add(width, x), out = rig.add(width, y);
      rig.program.add(std::make_unique<AddOp>(in, out));
      Step step = rows_only(num_rows);
      rig.run(step);
      for (int i = 0; i < 5 * width; ++i) expect(out.data[i] == (i < num_rows * width ? y[i] + x[i] : y[i]), named("width", width));
    }
});

const Test copies("rows are copied and gathered as they are, none when none are wanted", [] {
  Random random(5);
  for (int num_rows : {0, 1, 3, 8})
    for (int num_wanted : {0, 1, 5}) {
      if (num_rows == 0 && num_wanted) continue;
      const int max_rows = std::max({1, num_rows, num_wanted}), width = 9;
      Rig rig(1 + random.below(4), best_kernels(), max_rows);
      const Floats x = random.floats(size_t(num_rows) * width);
      const Buffer in = rig.add(width, x), copy = rig.add(width, -1.0f), gathered = rig.add(width, -1.0f);
      rig.program.add(std::make_unique<CopyOp>(in, copy));
      rig.program.add(std::make_unique<GatherOp>(in, gathered));
      Step step = rows_only(num_rows);
      for (int i = 0; i < num_wanted; ++i) step.wanted.push_back(random.below(num_rows));
      rig.run(step);
      for (int r = 0; r < max_rows; ++r) {
        expect(same_bits(row_of(copy, r), r < num_rows ? row_of(in, r) : Floats(width, -1.0f)), "copy");
        const Floats wanted = r < num_wanted ? row_of(in, int(step.wanted[r])) : Floats(width, -1.0f);
        expect(same_bits(row_of(gathered, r), wanted), "gather");
      }
    }
});

const Test cuts("a program runs in parts, and times its ops when asked", [] {
  Random random(6);
  const Floats weight = random.floats(20), x = random.floats(60);
  Rig rig(2, best_kernels(), 3);
  const Buffer in = rig.add(20, x), middle = rig.add(20), out = rig.add(20);
  rig.program.add(std::make_unique<NormOp>(in, weight.data(), kEps, middle, false, 2));
  rig.program.add(std::make_unique<CopyOp>(middle, out));
  Step step = rows_only(3);
  rig.program.run(step.input(), 0, 1);
  expect(same_bits(row_of(out, 0), Floats(20, 0.0f)), "the second op did not run yet");
  rig.program.set_timed(true);
  rig.program.run(step.input(), 1, 2);
  for (int r = 0; r < 3; ++r) expect(same_bits(row_of(out, r), row_of(middle, r)), "the rest ran");
  expect(rig.program.op_seconds().size() == 2, "one time per op");
  rig.program.run(step.input(), 2, 2);
});

}  // namespace
}  // namespace specserve::test
