// The pool that runs a step: every thread executes the same list of ops, each on its own share, with a
// barrier between ops that depend on each other. Threads spin at most ~50 us for work, then sleep;
// nothing spins while the engine is idle.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace specserve {

constexpr int kSpins = 1000;  // some 20 to 50 us

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Spins while `value` is `old`, since an op lasts microseconds; then sleeps. Sleeping matters when other
// processes want the cores: a spinning thread keeps a core from the very thread it waits for.
template <typename T>
void wait_while(std::atomic<T>& value, T old) {
  for (int spins = 0; spins < kSpins; ++spins) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause();
  }
  value.wait(old, std::memory_order_acquire);
}

class Barrier {
 public:
  explicit Barrier(int count) : count_(count), waiting_(count) {}
  void wait() {
    const uint32_t phase = phase_.load(std::memory_order_relaxed);
    if (waiting_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      waiting_.store(count_, std::memory_order_relaxed);
      phase_.store(phase + 1, std::memory_order_release);
      phase_.notify_all();
      return;
    }
    while (phase_.load(std::memory_order_acquire) == phase) wait_while(phase_, phase);
  }

 private:
  const int count_;
  alignas(64) std::atomic<int> waiting_;
  alignas(64) std::atomic<uint32_t> phase_{0};
};

class Pool {
 public:
  explicit Pool(int num_threads);
  ~Pool();
  int size() const { return num_threads_; }
  // Runs task(thread, barrier) on all threads, the caller being thread 0; returns when all are done.
  void run(const std::function<void(int, Barrier&)>& task);

 private:
  void loop(int thread);
  const int num_threads_;
  Barrier barrier_;
  std::vector<std::thread> threads_;
  std::atomic<uint32_t> ticket_{0};   // counts runs; a change wakes the threads
  std::atomic<uint32_t> finished_{0};  // counts threads that ended a run
  std::atomic<bool> stop_{false};
  const std::function<void(int, Barrier&)>* task_ = nullptr;
};

}  // namespace specserve
