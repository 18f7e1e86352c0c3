#include "threads.h"

#if defined(__linux__)
#include <climits>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace specserve {
namespace {

constexpr int kSpins = 1000;  // some 20 to 50 us

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

#if defined(__linux__)
static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
void sleep_while(std::atomic<uint32_t>& value, uint32_t old) {
  syscall(SYS_futex, &value, FUTEX_WAIT_PRIVATE, old, nullptr, nullptr, 0);
}
void wake_all(std::atomic<uint32_t>& value) {
  syscall(SYS_futex, &value, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}
#else
void sleep_while(std::atomic<uint32_t>& value, uint32_t old) { value.wait(old); }
void wake_all(std::atomic<uint32_t>& value) { value.notify_all(); }
#endif

}  // namespace

// Both sides write one variable and then read the other, so one of them sees what the other wrote: the new
// value, or a sleeper. Weaker orders than sequential consistency would let both miss it.
void Signal::raise() {
  value_.fetch_add(1, std::memory_order_seq_cst);
  if (num_sleepers_.load(std::memory_order_seq_cst)) wake_all(value_);
}

void Signal::wait_while(uint32_t old) {
  for (int spins = 0; spins < kSpins; ++spins) {
    if (value() != old) return;
    pause();
  }
  num_sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (value_.load(std::memory_order_seq_cst) == old) sleep_while(value_, old);
  num_sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

Pool::Pool(int num_threads) : num_threads_(num_threads), barrier_(num_threads) {
  for (int t = 1; t < num_threads; ++t) threads_.emplace_back([this, t] { loop(t); });
}

Pool::~Pool() {
  stop_.store(true);
  ticket_.raise();
  for (auto& thread : threads_) thread.join();
}

void Pool::run(const std::function<void(int, Barrier&)>& task) {
  task_ = &task;
  const uint32_t all = finished_.value() + uint32_t(num_threads_ - 1);
  ticket_.raise();
  task(0, barrier_);
  for (uint32_t done; (done = finished_.value()) != all;) finished_.wait_while(done);
}

void Pool::loop(int thread) {
  for (uint32_t seen = 0;; ++seen) {
    ticket_.wait_while(seen);
    if (stop_.load()) return;
    (*task_)(thread, barrier_);
    finished_.raise();
  }
}

}  // namespace specserve
