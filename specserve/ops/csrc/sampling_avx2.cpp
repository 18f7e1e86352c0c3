#define SPECSERVE_ISA avx2
#include "sampling_body.h"

namespace specserve::sampling {
const Functions kAvx2Functions = avx2::functions("avx2");
}
