#define SPECSERVE_ISA avx2
#include "k_lanes.h"

namespace specserve {
namespace {
using namespace avx2;
constexpr Kernels kKLanes = {"avx2 k lanes", prepare, linear_k_lanes, norm, write, attend_queries, embed};
}  // namespace
const Kernels kAvx2Kernels = {"avx2", prepare, linear, norm, write, attend_queries, embed, &kKLanes};
}  // namespace specserve
