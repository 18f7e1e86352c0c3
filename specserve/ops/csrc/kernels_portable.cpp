#define SPECSERVE_ISA portable
#include "k_lanes.h"

namespace specserve {
namespace {
using namespace portable;
constexpr Kernels kKLanes = {"portable k lanes", prepare, linear_k_lanes, norm, write, attend_queries, embed};
}  // namespace
const Kernels kPortableKernels = {"portable", prepare, linear, norm, write, attend_queries, embed, &kKLanes};
}  // namespace specserve
