#define SPECSERVE_ISA avx512
#include "kernels_body.h"

namespace specserve {
const Kernels kAvx512Kernels = {"avx512", avx512::prepare, avx512::linear, avx512::norm, avx512::write, avx512::attend_queries, avx512::embed};
}
