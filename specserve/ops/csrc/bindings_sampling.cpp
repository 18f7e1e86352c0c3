// The sampling part of the Python module; twins and callers are in ops/native_sampling.py and ops/search.py.
#include "bindings_sampling.h"

#include <cmath>

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "sampler.h"
#include "search.h"

namespace nb = nanobind;

namespace specserve {

namespace {

using Doubles = std::vector<double>;
using Words = std::vector<uint64_t>;
using Ids = std::vector<int64_t>;

LogitsView view(uintptr_t logits, int num_rows, int size) { return {reinterpret_cast<float*>(logits), num_rows, size}; }

Ids draw(Sampler& sampler, uintptr_t logits, int num_rows, int size, const Doubles& temperatures, const Words& seeds,
         const Words& indices, uint32_t purpose) {
  nb::gil_scoped_release release;
  return sampler.draw(view(logits, num_rows, size), {temperatures, seeds, indices, purpose});
}

std::pair<std::vector<int>, Ids> accept(Sampler& sampler, uintptr_t logits, int num_rows, int size,
                                        const std::vector<Ids>& drafts, const Doubles& temperatures, const Words& seeds,
                                        const Words& indices, uint32_t purpose) {
  nb::gil_scoped_release release;
  Accepted found = sampler.accept(view(logits, num_rows, size), drafts, {temperatures, seeds, indices, purpose});
  return {std::move(found.accepted), std::move(found.next_tokens)};
}

void temper(Sampler& sampler, uintptr_t logits, int num_rows, int size, const Doubles& temperatures) {
  nb::gil_scoped_release release;
  sampler.temper(view(logits, num_rows, size), temperatures);
}

// `log_min_p` is -inf where min_p is off.
void truncate(Sampler& sampler, uintptr_t logits, int num_rows, int size, const Ids& top_k, const Doubles& top_p,
              const Doubles& log_min_p) {
  nb::gil_scoped_release release;
  std::vector<sampling::Truncation> truncations;
  for (size_t r = 0; r < top_k.size(); ++r)
    truncations.push_back({top_k[r], top_p.at(r), log_min_p.at(r) > -HUGE_VAL, float(log_min_p.at(r))});
  sampler.truncate(view(logits, num_rows, size), truncations);
}

void logprobs(Sampler& sampler, uintptr_t logits, int num_rows, int size, const Ids& ids, int num_top, uintptr_t values,
              uintptr_t ranks, uintptr_t top_ids) {
  nb::gil_scoped_release release;
  sampler.logprobs(view(logits, num_rows, size), ids, num_top, reinterpret_cast<float*>(values),
                   reinterpret_cast<int64_t*>(ranks), reinterpret_cast<int64_t*>(top_ids));
}

void penalize_entries(uintptr_t logits, int num_rows, int size, int num_entries, uintptr_t rows, uintptr_t ids,
                      uintptr_t counts, const Doubles& repetition, const Doubles& frequency, const Doubles& presence) {
  nb::gil_scoped_release release;
  penalize(view(logits, num_rows, size), num_entries, reinterpret_cast<int64_t*>(rows), reinterpret_cast<int64_t*>(ids),
           reinterpret_cast<int64_t*>(counts), {repetition, frequency, presence});
}

}  // namespace

void bind_sampling(nb::module_& m) {
  nb::class_<Sampler>(m, "Sampler")
      .def("__init__",
           [](Sampler* self, Pool& pool, const std::string& instruction_set) {
             new (self) Sampler(pool, sampling::find_functions(instruction_set));
           },
           nb::keep_alive<1, 2>())
      .def("draw", &draw)
      .def("accept", &accept)
      .def("temper", &temper)
      .def("truncate", &truncate)
      .def("logprobs", &logprobs)
      .def("noise", [](const Sampler& sampler, uint64_t seed, uint64_t index, uint32_t purpose, int size,
                       uintptr_t out) {
        sampler.noise({seed, index, purpose}, size, reinterpret_cast<float*>(out));
      });
  m.def("penalize", &penalize_entries);
  nb::class_<NgramIndex>(m, "NgramIndex")
      .def(nb::init<int, int, bool>())
      .def_prop_ro("size", &NgramIndex::size)
      .def("clear", &NgramIndex::clear)
      .def("extend", &NgramIndex::extend)
      .def("find", &NgramIndex::find);
}

}  // namespace specserve
