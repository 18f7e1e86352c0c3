#pragma once
#include <nanobind/nanobind.h>

namespace specserve {
void bind_sampling(nanobind::module_& m);
}
