// The pool that runs a step: every thread executes the same list of ops, each on its own share, with a
// barrier between ops that depend on each other. Nothing spins while the engine is idle.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace specserve {

// A counter that threads wait on. They spin for a while, since an op lasts microseconds, and then sleep in the
// kernel: when others want the cores, a spinning thread keeps one from the very thread it waits for.
//
// Not std::atomic::wait, which yields before it sleeps: two threads that the scheduler has put on one core
// then take turns there for milliseconds while another core idles. Only a wake-up looks for an idle core.
class Signal {
 public:
  uint32_t value() const { return value_.load(std::memory_order_acquire); }
  void raise();                   // adds one, and wakes all who wait
  void wait_while(uint32_t old);  // returns once it is another one

 private:
  alignas(64) std::atomic<uint32_t> value_{0};
  std::atomic<uint32_t> num_sleepers_{0};
};

class Barrier {
 public:
  explicit Barrier(int count) : count_(count), missing_(count) {}
  void wait() {
    const uint32_t phase = phase_.value();
    if (missing_.fetch_sub(1, std::memory_order_acq_rel) != 1) return phase_.wait_while(phase);
    missing_.store(count_, std::memory_order_relaxed);
    phase_.raise();
  }

 private:
  const int count_;
  alignas(64) std::atomic<int> missing_;
  Signal phase_;
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
  Signal ticket_;    // counts runs
  Signal finished_;  // counts threads that ended a run
  std::atomic<bool> stop_{false};
  const std::function<void(int, Barrier&)>* task_ = nullptr;
};

}  // namespace specserve
