#include "kernels.h"

namespace specserve {

namespace {

std::vector<const Kernels*> find_all() {
  std::vector<const Kernels*> found;
#if defined(SPECSERVE_HAS_AVX2)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) found.push_back(&kAvx2Kernels);
#endif
  found.push_back(&kPortableKernels);
  return found;
}

}  // namespace

const std::vector<const Kernels*>& all_kernels() {
  static const std::vector<const Kernels*> found = find_all();
  return found;
}

const Kernels* find_kernels(const std::string& name) {
  for (const Kernels* kernels : all_kernels())
    if (name == kernels->name) return kernels;
  return nullptr;
}

}  // namespace specserve
