#include "program.h"

#include <algorithm>
#include <functional>

namespace specserve {

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
  const auto began = Clock::now();
  const std::function<void(int, Barrier&)> task = [&](int thread, Barrier& barrier) {
    const Context context{kernels_, input, thread, pool_.size(), barrier};
    for (int i = first; i < last; ++i) {
      ops_[i]->run(context);
      if (is_timed()) arrivals_[thread][i] = Clock::now();
      barrier.wait();
    }
  };
  pool_.run(task);
  if (is_timed()) add_up(began, first, last);
}

void Program::set_timed(bool timed) {
  arrivals_.assign(timed ? pool_.size() : 0, std::vector<Clock::time_point>(ops_.size()));
  op_seconds_.assign(timed ? ops_.size() : 0, 0.0);
}

void Program::add_up(Clock::time_point began, int first, int last) {
  for (int i = first; i < last; ++i) {
    auto ended = began;
    for (const auto& arrivals : arrivals_) ended = std::max(ended, arrivals[i]);
    op_seconds_[i] = std::chrono::duration<double>(ended - began).count();
    began = ended;
  }
}

}  // namespace specserve
