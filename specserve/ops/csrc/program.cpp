#include "program.h"

#include <chrono>
#include <functional>

namespace specserve {

using Clock = std::chrono::steady_clock;

Program::Program(Pool& pool, const Kernels& kernels, int max_rows)
    : pool_(pool), kernels_(kernels), max_rows_(max_rows) {}

int Program::add_buffer(int width) {
  const size_t count = size_t(max_rows_) * width;
  memory_.push_back(std::make_unique<float[]>(count));
  num_bytes_ += count * sizeof(float);
  buffers_.push_back({memory_.back().get(), width});
  return int(buffers_.size()) - 1;
}

void Program::run(const StepInput& input, int first, int last) {
  for (int i = first; i < last; ++i) ops_[i]->reset();
  const std::function<void(int, Barrier&)> task = [&](int thread, Barrier& barrier) {
    const Context context{kernels_, input, thread, pool_.size(), barrier};
    const bool is_timed = thread == 0 && !op_seconds_.empty();
    auto began = Clock::now();
    for (int i = first; i < last; ++i) {
      ops_[i]->run(context);
      barrier.wait();
      if (!is_timed) continue;
      const auto ended = Clock::now();
      op_seconds_[i] = std::chrono::duration<double>(ended - began).count();
      began = ended;
    }
  };
  pool_.run(task);
}

}  // namespace specserve
