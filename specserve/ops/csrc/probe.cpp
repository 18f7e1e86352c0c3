#include "probe.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>

namespace specserve {

namespace {

using Clock = std::chrono::steady_clock;
typedef uint64_t Word4 __attribute__((vector_size(32)));

constexpr size_t kPiece = size_t(1) << 20;
constexpr int64_t kRepeats = int64_t(1) << 19;

struct Multiply {
  void (*run)();  // kRepeats times
  int per_repeat;  // multiplications
};

struct Probes {
  const char* name;
  uint64_t (*read)(const uint8_t* data, size_t num_bytes);
  Multiply multiply[3];  // by `Products`
};

// Two halves at a time: two streams keep more lines in flight than one.
inline __attribute__((always_inline)) uint64_t read_piece(const uint8_t* data, size_t num_bytes) {
  Word4 sum[4] = {};
  const size_t half = num_bytes / 2;
  for (size_t i = 0; i < half; i += 128) {
    for (int j = 0; j < 4; ++j) {
      Word4 a, b;
      std::memcpy(&a, data + i + 32 * j, sizeof a);
      std::memcpy(&b, data + half + i + 32 * j, sizeof b);
      sum[j] += a + b;
    }
  }
  const Word4 total = sum[0] + sum[1] + sum[2] + sum[3];
  return total[0] + total[1] + total[2] + total[3];
}

// --- portable: what the compiler makes of vector types ----------------------------------------------

uint64_t read_portable(const uint8_t* data, size_t num_bytes) { return read_piece(data, num_bytes); }

// The empty statements hide that all chains are the same, and that nobody wants them.
template <typename Vector>
void multiply_portable() {
  constexpr int chains = 8;
  Vector a = Vector{} + 1, b = Vector{}, sum[chains] = {};
  asm volatile("" : "+m"(a), "+m"(b));
  for (Vector& chain : sum) asm volatile("" : "+m"(chain));
  for (int64_t n = 0; n < kRepeats; ++n)
    for (Vector& chain : sum) chain = chain * a + b;
  for (Vector& chain : sum) asm volatile("" : "+m"(chain));
}

typedef float Float4 __attribute__((vector_size(16)));
typedef uint32_t Word32x4 __attribute__((vector_size(16)));
constexpr Multiply kInts = {multiply_portable<Word32x4>, 32};
constexpr Probes kPortable = {"portable", read_portable, {{multiply_portable<Float4>, 32}, kInts, kInts}};

// --- x86: instructions as they are ---------------------------------------------------------------------
// Written in C++ a compiler would see that all products are the same one, or run out of registers. All
// registers are zero; 14 and 15 are the factors.

#if defined(__x86_64__)

__attribute__((target("avx2"))) uint64_t read_avx2(const uint8_t* data, size_t num_bytes) { return read_piece(data, num_bytes); }

#define SPECSERVE_REPEAT(body)                                                                             \
  int64_t left = kRepeats;                                                                                 \
  asm volatile("vzeroall\n.p2align 5\n0:\n" body "dec %0\njnz 0b\nvzeroupper"                             \
               : "+r"(left)::"cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", \
                 "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15")
// One instruction multiplies and adds.
#define SPECSERVE_FUSED(name, v, sum) name " %%" v "14, %%" v "15, %%" v #sum "\n"
#define SPECSERVE_TEN_FUSED(name, v)                                                               \
  SPECSERVE_FUSED(name, v, 0) SPECSERVE_FUSED(name, v, 1) SPECSERVE_FUSED(name, v, 2)              \
  SPECSERVE_FUSED(name, v, 3) SPECSERVE_FUSED(name, v, 4) SPECSERVE_FUSED(name, v, 5)              \
  SPECSERVE_FUSED(name, v, 6) SPECSERVE_FUSED(name, v, 7) SPECSERVE_FUSED(name, v, 8) SPECSERVE_FUSED(name, v, 9)
// Two do.
#define SPECSERVE_PAIR(multiply, add, product, sum) \
  multiply " %%ymm14, %%ymm15, %%ymm" #product "\n" add " %%ymm" #product ", %%ymm" #sum ", %%ymm" #sum "\n"
#define SPECSERVE_SIX_PAIRS(multiply, add)                                             \
  SPECSERVE_PAIR(multiply, add, 0, 6) SPECSERVE_PAIR(multiply, add, 1, 7)              \
  SPECSERVE_PAIR(multiply, add, 2, 8) SPECSERVE_PAIR(multiply, add, 3, 9)              \
  SPECSERVE_PAIR(multiply, add, 4, 10) SPECSERVE_PAIR(multiply, add, 5, 11)

void float32_avx2() { SPECSERVE_REPEAT(SPECSERVE_TEN_FUSED("vfmadd231ps", "ymm")); }
void int16_pairs_avx2() { SPECSERVE_REPEAT(SPECSERVE_SIX_PAIRS("vpmaddwd", "vpaddd")); }
void int8_pairs_avx2() { SPECSERVE_REPEAT(SPECSERVE_SIX_PAIRS("vpmaddubsw", "vpaddw")); }
constexpr Probes kAvx2 = {
    "avx2", read_avx2, {{float32_avx2, 10 * 8}, {int16_pairs_avx2, 6 * 16}, {int8_pairs_avx2, 6 * 32}}};

void float32_avx512() { SPECSERVE_REPEAT(SPECSERVE_TEN_FUSED("vfmadd231ps", "zmm")); }
void int16_pairs_avx512() { SPECSERVE_REPEAT(SPECSERVE_TEN_FUSED("vpdpwssd", "zmm")); }
void int8_pairs_avx512() { SPECSERVE_REPEAT(SPECSERVE_TEN_FUSED("vpdpbusd", "zmm")); }
constexpr Probes kAvx512 = {
    "avx512", read_avx2, {{float32_avx512, 10 * 16}, {int16_pairs_avx512, 10 * 32}, {int8_pairs_avx512, 10 * 64}}};

bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
bool has_avx512() { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vnni"); }

#endif

const Probes& find_probes(const std::string& name) {
#if defined(__x86_64__)
  if (name == kAvx2.name && has_avx2()) return kAvx2;
  if (name == kAvx512.name && has_avx512()) return kAvx512;
#endif
  if (name == kPortable.name) return kPortable;
  throw std::invalid_argument("no probes for " + name);
}

// Seconds between the moment all threads are awake and the moment all are done.
template <typename Work>
double time(Pool& pool, const Work& work) {
  double seconds = 0.0;
  const std::function<void(int, Barrier&)> task = [&](int thread, Barrier& barrier) {
    barrier.wait();
    const auto began = Clock::now();
    work();
    barrier.wait();
    if (thread == 0) seconds = std::chrono::duration<double>(Clock::now() - began).count();
  };
  pool.run(task);
  return seconds;
}

}  // namespace

void ReadProbe::Free::operator()(void* p) const { std::free(p); }

ReadProbe::ReadProbe(size_t num_bytes)
    : num_bytes_((num_bytes + kPiece - 1) / kPiece * kPiece), data_((uint8_t*)std::aligned_alloc(64, num_bytes_)) {
  if (!data_) throw std::bad_alloc();
  std::memset(data_.get(), 1, num_bytes_);  // unwritten pages would all be one page of zeros
}

double ReadProbe::measure(Pool& pool, const std::string& instruction_set) const {
  const Probes& probes = find_probes(instruction_set);
  std::atomic<size_t> next{0};
  std::atomic<uint64_t> sum{0};
  const double seconds = time(pool, [&] {
    uint64_t own = 0;
    for (size_t i; (i = next.fetch_add(kPiece, std::memory_order_relaxed)) < num_bytes_;)
      own += probes.read(data_.get() + i, kPiece);
    sum.fetch_add(own, std::memory_order_relaxed);
  });
  // Also a use of what was read.
  if (sum.load() != num_bytes_ / 8 * 0x0101010101010101u) throw std::logic_error("the read probe missed bytes");
  return double(num_bytes_) / seconds;
}

double measure_products(Pool& pool, const std::string& instruction_set, Products products) {
  const Probes& probes = find_probes(instruction_set);
  const Multiply& multiply = probes.multiply[int(products)];
  const double seconds = time(pool, [&] { multiply.run(); });
  return double(multiply.per_repeat) * kRepeats * pool.size() / seconds;
}

}  // namespace specserve
