#define SPECSERVE_ISA portable
#include "kernels_body.h"

namespace specserve {
const Kernels kPortableKernels = {"portable", portable::prepare, portable::linear, portable::norm, portable::write, portable::attend_queries, portable::embed};
}
