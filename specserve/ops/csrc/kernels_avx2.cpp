#define SPECSERVE_ISA avx2
#include "kernels_body.h"

namespace specserve {
const Kernels kAvx2Kernels = {"avx2", avx2::prepare, avx2::linear, avx2::norm, avx2::write, avx2::attend_queries, avx2::embed};
}
