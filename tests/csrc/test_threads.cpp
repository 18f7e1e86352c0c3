// Pools: every thread runs every task once, barriers hold, and a pool may end at any time.
#include <atomic>
#include <thread>

#include "rig.h"

namespace specserve::test {
namespace {

const Test tasks("every thread runs every task once, between barriers that all reach", [] {
  for (int num_threads = 1; num_threads <= 4; ++num_threads) {
    Pool pool(num_threads);
    std::vector<int> turns(num_threads);  // each thread's own, read by the others behind barriers only
    for (int run = 1; run <= 50; ++run) {
      std::atomic<int> num_wrong{0};
      pool.run([&](int thread, Barrier& barrier) {
        for (int turn = 0; turn < 3; ++turn) {
          ++turns[thread];
          barrier.wait();
          for (int t : turns) num_wrong += t != (run - 1) * 3 + turn + 1;
          barrier.wait();
        }
      });
      expect(num_wrong == 0, named("threads", num_threads, "run", run));
    }
  }
});

const Test endings("pools end unused, after a run, and many after each other", [] {
  for (int i = 0; i < 20; ++i) {
    Pool unused(1 + i % 4);
    Pool used(1 + i % 4);
    std::atomic<int> num_calls{0};
    used.run([&](int, Barrier&) { ++num_calls; });
    expect(num_calls == used.size(), "all were called");
  }
});

// A network in small: a matrix in, a gate, a matrix out, over rows that change every step.
struct Network {
  Network(Pool& pool, const RandomMatrix& up, const RandomMatrix& down, const Floats& norm) : program(pool, best_kernels(), 9) {
    const int k = up.matrix->width;
    in = program.buffer(program.add_buffer(k));
    middle = program.buffer(program.add_buffer(down.matrix->width));
    LinearSpec first, second;
    first.matrix = &up.matrix->view;
    first.gate = Gate::silu;
    first.norm = norm.data();
    second.matrix = &down.matrix->view;
    second.accumulate = true;
    program.add(std::make_unique<LinearOp>(first, in, middle, 9, pool.size()));
    program.add(std::make_unique<LinearOp>(second, middle, in, 9, pool.size()));
  }
  Floats run(int seed, int num_steps) {
    Random random(seed);
    Floats results;
    for (int i = 0; i < num_steps; ++i) {
      const int num_rows = random.below(10);
      const Floats x = random.floats(size_t(num_rows) * in.width);
      std::copy(x.begin(), x.end(), in.data);
      Step step = rows_only(num_rows);
      program.run(step.input(), 0, program.size());
      results.insert(results.end(), in.data, in.data + size_t(num_rows) * in.width);
    }
    return results;
  }
  Program program;
  Buffer in, middle;
};

const Test concurrent("two pools run programs over the same weights at the same time, to the same bits as alone", [] {
  Random random(13);
  const Floats norm = random.floats(50);
  for (WeightClass weight_class : {WeightClass::float32, WeightClass::int8, WeightClass::int4}) {
    const RandomMatrix up(random, weight_class, 140, 50, true), down(random, weight_class, 50, 70);
    const auto run = [&](int num_threads, int seed) {
      Pool pool(num_threads);
      return Network(pool, up, down, norm).run(seed, 40);
    };
    const Floats alone[] = {run(1, 1), run(1, 2)};
    Floats found[2];
    std::thread other([&] { found[1] = run(3, 2); });
    found[0] = run(2, 1);
    other.join();
    for (int i : {0, 1}) expect(same_bits(found[i], alone[i]), named("class", int(weight_class), "pool", i));
  }
});

const Test shared("two programs take turns on one pool", [] {
  Random random(14);
  const Floats norm = random.floats(50);
  const RandomMatrix up(random, WeightClass::int4, 140, 50, true), down(random, WeightClass::int4, 50, 70);
  Pool pool(3);
  Network a(pool, up, down, norm), b(pool, up, down, norm);
  for (int i = 0; i < 10; ++i) expect(same_bits(a.run(i, 3), b.run(i, 3)), "the same network");
});

}  // namespace
}  // namespace specserve::test
