#include "kernels.h"

namespace specserve {

const Kernels& best_kernels() {
#if defined(SPECSERVE_HAS_AVX2)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) return kAvx2Kernels;
#endif
  return kPortableKernels;
}

}  // namespace specserve
