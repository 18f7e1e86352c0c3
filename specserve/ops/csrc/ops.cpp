#include "ops.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace specserve {

namespace {

struct Range {
  int first, last;
};

Range own_share(const Context& context, int count) {
  return {int(int64_t(count) * context.thread / context.num_threads),
          int(int64_t(count) * (context.thread + 1) / context.num_threads)};
}

void add_row(const float* x, int size, float* y) {
  for (int i = 0; i < size; ++i) y[i] += x[i];
}

constexpr int kFewQueries = 3;  // one register tile's: splitting further saves nothing

}  // namespace

void EmbedOp::run(const Context& context) {
  const Range rows = own_share(context, context.input.num_rows);
  for (int r = rows.first; r < rows.last; ++r)
    context.kernels.embed(*table_, context.input.ids[r], scale_, y_.width, y_.data + size_t(r) * y_.width);
}

void NormOp::run(const Context& context) {
  const Range rows = own_share(context, context.input.num_rows);
  if (own_.empty()) {
    context.kernels.norm(x_.data, x_.width, weight_, eps_, x_.width, y_.data, y_.width, rows.first, rows.last);
    return;
  }
  for (int r = rows.first; r < rows.last; ++r) {
    float* own = own_[context.thread].data();
    context.kernels.norm(x_.data + size_t(r) * x_.width, x_.width, weight_, eps_, x_.width, own, x_.width, 0, 1);
    add_row(own, x_.width, y_.data + size_t(r) * y_.width);
  }
}

void AddOp::run(const Context& context) {
  const Range rows = own_share(context, context.input.num_rows);
  for (int r = rows.first; r < rows.last; ++r)
    add_row(x_.data + size_t(r) * x_.width, x_.width, y_.data + size_t(r) * y_.width);
}

void CopyOp::run(const Context& context) {
  const Range rows = own_share(context, context.input.num_rows);
  if (rows.first < rows.last)
    std::memcpy(y_.data + size_t(rows.first) * y_.width, x_.data + size_t(rows.first) * x_.width,
                sizeof(float) * size_t(rows.last - rows.first) * x_.width);
}

void GatherOp::run(const Context& context) {
  const Range rows = own_share(context, context.input.num_wanted);
  for (int i = rows.first; i < rows.last; ++i)
    std::memcpy(y_.data + size_t(i) * y_.width, x_.data + size_t(context.input.wanted[i]) * x_.width, sizeof(float) * x_.width);
}

LinearOp::LinearOp(const LinearSpec& spec, Buffer x, Buffer y, int max_rows, int num_threads)
    : spec_(spec), x_(x), y_(y), shared_(make_scratch(max_rows)) {
  for (int t = 0; t < num_threads; ++t) own_.push_back(make_scratch(std::min(kOwnRows, max_rows)));
}

LinearOp::Scratch LinearOp::make_scratch(int rows) const {
  const Matrix& matrix = *spec_.matrix;
  const size_t count = size_t(rows) * matrix.num_inputs;
  const bool is_float = matrix.weight_class <= WeightClass::bfloat16;
  Scratch scratch;
  if (spec_.norm) scratch.floats = std::make_unique<float[]>(count);
  if (is_float) return scratch;
  if (matrix.weight_class == WeightClass::int8) scratch.wide = std::make_unique<int16_t[]>(count);
  else scratch.high = std::make_unique<int8_t[]>(count), scratch.low = std::make_unique<int8_t[]>(count);
  scratch.scales = std::make_unique<float[]>(size_t(rows) * matrix.num_groups());
  if (matrix.has_minimum) scratch.sums = std::make_unique<float[]>(size_t(rows) * matrix.num_groups());
  return scratch;
}

void LinearOp::run(const Context& context) {
  const Matrix& matrix = *spec_.matrix;
  const int rows = spec_.is_head ? context.input.num_wanted : context.input.num_rows;
  if (rows == 0) return;
  const bool is_own = rows <= kOwnRows;
  Scratch& scratch = is_own ? own_[context.thread] : shared_;
  const bool needs_preparation = spec_.norm || matrix.weight_class >= WeightClass::int8;
  if (needs_preparation) {
    PrepareCall prepare;
    prepare.matrix = &matrix;
    prepare.x = x_.data;
    prepare.x_stride = x_.width;
    prepare.size = x_.width;
    prepare.norm = spec_.norm;
    prepare.eps = spec_.eps;
    prepare.activation_bits = spec_.activation_bits;
    prepare.floats = scratch.floats.get();
    prepare.digits = scratch.digits();
    const Range share = is_own ? Range{0, rows} : own_share(context, rows);
    context.kernels.prepare(prepare, share.first, share.last);
    if (!is_own) context.barrier.wait();
  }
  LinearCall call;
  call.matrix = &matrix;
  call.bias = spec_.bias;
  call.x = spec_.norm ? scratch.floats.get() : x_.data;
  call.x_stride = spec_.norm ? matrix.num_inputs : x_.width;
  call.digits = scratch.digits();
  call.two_digits = spec_.activation_bits > 8;
  call.num_rows = rows;
  call.y = spec_.is_head ? context.input.logits : y_.data + spec_.column;
  call.y_stride = spec_.is_head ? matrix.num_outputs : y_.width;
  call.accumulate = spec_.accumulate;
  call.gate = spec_.gate;
  const int units = spec_.gate == Gate::none ? matrix.num_panels() : matrix.num_pairs();
  // A few shares per thread: enough to even out a core that the rest of the process keeps busy.
  const int step = std::max(1, units / (8 * context.num_threads));
  for (int first = shares_.take() * step; first < units; first = shares_.take() * step)
    context.kernels.linear(call, first, std::min(first + step, units));
}

AttentionOp::AttentionOp(const AttentionSpec& spec, Buffer qkv, Buffer y) : spec_(spec), qkv_(qkv), y_(y) {
  if (spec.head_size % 8 || spec.head_size > kMaxHead || spec.cache.page_size % 8)
    throw std::invalid_argument("attention: head size or page size");
}

void AttentionOp::run(const Context& context) {
  const StepInput& input = context.input;
  AttentionCall call;
  call.spec = &spec_;
  call.num_rows = input.num_rows;
  call.qkv = qkv_.data;
  call.stride = qkv_.width;
  call.positions = input.positions;
  call.slots = input.slots;
  call.key_limits = input.key_limits;
  call.out = y_.data;
  call.out_stride = y_.width;
  const Range items = own_share(context, spec_.num_kv_heads * input.num_rows);
  context.kernels.write(call, items.first, items.last);
  context.barrier.wait();

  // A kv head's queries are split only as far as the threads need it: each part reads the keys again.
  const int group = spec_.num_heads / spec_.num_kv_heads;
  const int num_heads = input.num_sequences * spec_.num_kv_heads;
  const int parts = (2 * context.num_threads + num_heads - 1) / std::max(num_heads, 1);
  int wanted = shares_.take(), item = 0;
  for (int s = 0; s < input.num_sequences; ++s) {
    const int first_row = input.starts[s], count = (input.starts[s + 1] - first_row) * group;
    const int most = std::min(kMaxQueries, std::max((count + parts - 1) / parts, kFewQueries));
    for (int first = 0; first < count; first += most) {
      for (int h = 0; h < spec_.num_kv_heads; ++h, ++item) {
        if (item != wanted) continue;
        const int last = std::min(first + most, count);
        context.kernels.attend(call, input.block_tables + size_t(s) * input.table_stride, first_row, first, last, h);
        wanted = shares_.take();
      }
    }
  }
}

}  // namespace specserve
