#define SPECSERVE_ISA portable
#include "sampling_body.h"

namespace specserve::sampling {
const Functions kPortableFunctions = portable::functions("portable");
}
