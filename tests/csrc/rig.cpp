#include "rig.h"

#include <algorithm>
#include <cstring>

namespace specserve::test {

ExactMatrix::ExactMatrix(const PackedMatrix& packed) : view(packed.view), width(packed.view.num_inputs) {
  void* memory = nullptr;
  if (posix_memalign(&memory, 64, std::max<size_t>(packed.num_bytes(), 1))) throw std::bad_alloc();
  memory_.reset((uint8_t*)memory);
  std::memcpy(memory, packed.view.data, packed.num_bytes());
  view.data = memory_.get();
}

Floats ExactMatrix::row(const Kernels& kernels, int id) const {
  Floats y(width);
  kernels.embed(view, id, 1.0f, width, y.data());
  return y;
}

std::vector<Floats> ExactMatrix::rows(const Kernels& kernels, int num_rows) const {
  std::vector<Floats> all;
  for (int r = 0; r < num_rows; ++r) all.push_back(row(kernels, r));
  return all;
}

RandomMatrix::RandomMatrix(Random& random, WeightClass weight_class, int n, int k, bool interleaved)
    : source(random.floats(size_t(n) * k, 1.5f / std::sqrt(float(k)))), is_interleaved(interleaved) {
  const int height = interleaved ? n / 2 : n;
  std::vector<Source> sources;
  for (int row = 0; row < n; row += height)
    sources.push_back({Source::Kind::float32, BlockType::q8_0, source.data() + size_t(row) * k, height, k});
  matrix = std::make_unique<ExactMatrix>(pack(sources, weight_class, interleaved));
  matrix->width = k;
}

std::vector<Floats> RandomMatrix::weights(const Kernels& kernels) const {
  const int n = matrix->view.num_outputs, half = n / 2;
  if (!is_interleaved) return matrix->rows(kernels, n);
  std::vector<Floats> all;
  for (int r = 0; r < n; ++r) {
    const int panel = r % half / kPanel * 2 + r / half, lane = r % half % kPanel;
    all.push_back(matrix->row(kernels, panel * kPanel + lane));
  }
  return all;
}

StepInput Step::input(int vocabulary) {
  logits.assign(wanted.size() * vocabulary, std::nanf(""));
  StepInput in;
  in.num_rows = num_rows();
  in.ids = ids.data();
  in.positions = positions.data();
  in.slots = slots.data();
  in.key_limits = key_limits.empty() ? nullptr : key_limits.data();
  in.num_sequences = int(starts.size()) - 1;
  in.starts = starts.data();
  in.block_tables = tables.data();
  in.table_stride = table_stride;
  in.num_wanted = int(wanted.size());
  in.wanted = wanted.data();
  in.logits = logits.data();
  return in;
}

Step rows_only(int num_rows) {
  Step step;
  step.ids.assign(num_rows, 0);
  step.positions = step.slots = step.ids;
  step.starts.push_back(num_rows);
  return step;
}

Buffer Rig::add(int width, float value) {
  const Buffer buffer = program.buffer(program.add_buffer(width));
  std::fill_n(buffer.data, size_t(program.max_rows()) * width, value);
  return buffer;
}

Buffer Rig::add(int width, const Floats& values) {
  const Buffer buffer = add(width, std::nanf(""));
  std::copy(values.begin(), values.end(), buffer.data);
  return buffer;
}

void Rig::run(Step& step, int vocabulary) { program.run(step.input(vocabulary), 0, program.size()); }

Floats row_of(const Buffer& buffer, int row) {
  const float* first = buffer.data + size_t(row) * buffer.width;
  return Floats(first, first + buffer.width);
}

bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

void expect_rows(const Floats& found, const Floats& expected, double tolerance, const std::string& where) {
  expect(found.size() == expected.size(), where + ": sizes differ");
  for (size_t i = 0; i < found.size(); ++i)
    expect_near(found[i], expected[i], tolerance * (1 + std::abs(expected[i])), where + "column " + std::to_string(i));
}

}  // namespace specserve::test
