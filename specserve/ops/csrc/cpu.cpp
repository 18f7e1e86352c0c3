#include "kernels.h"

namespace specserve {

namespace {

std::vector<const Kernels*> find_all() {
  std::vector<const Kernels*> found;
#if defined(SPECSERVE_HAS_X86)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
  if (avx2 && avx512) found.push_back(&kAvx512Kernels);
  if (avx2) found.push_back(&kAvx2Kernels);
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
