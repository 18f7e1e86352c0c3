#pragma once
#include <nanobind/nanobind.h>

namespace specserve {
void bind_suffix(nanobind::module_& m);
}
