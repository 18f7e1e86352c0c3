#define SPECSERVE_ISA avx512
#include "k_lanes.h"

namespace specserve {
namespace {
using namespace avx512;
constexpr Kernels kKLanes = {"avx512 k lanes", prepare, linear_k_lanes, norm, write, attend_queries, embed};
}  // namespace
const Kernels kAvx512Kernels = {"avx512", prepare, linear, norm, write, attend_queries, embed, &kKLanes};
}  // namespace specserve
