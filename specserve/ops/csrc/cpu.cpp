#include "kernels.h"

namespace specserve {

namespace {

const Kernels* avx2_kernels() {
#if defined(SPECSERVE_HAS_AVX2)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) return &kAvx2Kernels;
#endif
  return nullptr;
}

}  // namespace

const Kernels& best_kernels() {
  const Kernels* kernels = avx2_kernels();
  return kernels ? *kernels : kPortableKernels;
}

const Kernels* find_kernels(const std::string& name) {
  if (name == kPortableKernels.name) return &kPortableKernels;
  const Kernels* kernels = avx2_kernels();
  return kernels && name == kernels->name ? kernels : nullptr;
}

}  // namespace specserve
