#include "threads.h"

namespace specserve {

Pool::Pool(int num_threads) : num_threads_(num_threads), barrier_(num_threads) {
  for (int t = 1; t < num_threads; ++t) threads_.emplace_back([this, t] { loop(t); });
}

Pool::~Pool() {
  stop_.store(true);
  ticket_.fetch_add(1, std::memory_order_release);
  ticket_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void Pool::run(const std::function<void(int, Barrier&)>& task) {
  task_ = &task;
  const uint32_t all = finished_.load(std::memory_order_relaxed) + uint32_t(num_threads_ - 1);
  ticket_.fetch_add(1, std::memory_order_release);
  ticket_.notify_all();
  task(0, barrier_);
  for (uint32_t done; (done = finished_.load(std::memory_order_acquire)) != all;) wait_while(finished_, done);
}

void Pool::loop(int thread) {
  for (uint32_t seen = 0;;) {
    while (ticket_.load(std::memory_order_acquire) == seen) wait_while(ticket_, seen);
    ++seen;
    if (stop_.load()) return;
    (*task_)(thread, barrier_);
    finished_.fetch_add(1, std::memory_order_release);
    finished_.notify_all();
  }
}

}  // namespace specserve
