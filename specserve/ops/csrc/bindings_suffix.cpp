// The suffix tree in the Python module; its caller and twin is ops/suffix.py. The interpreter lock stays held: a
// call takes microseconds, and getting the lock back can take milliseconds.
#include "bindings_suffix.h"

#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "suffix.h"

namespace nb = nanobind;

namespace specserve {

void bind_suffix(nb::module_& m) {
  nb::class_<SuffixMemory>(m, "SuffixMemory")
      .def(nb::init<>())
      .def_prop_ro("num_bytes", &SuffixMemory::num_bytes);
  nb::class_<SuffixTree>(m, "SuffixTree")
      .def(nb::init<uint16_t, SuffixMemory&>(), nb::keep_alive<1, 3>())
      .def_prop_ro("num_texts", &SuffixTree::num_texts)
      .def_prop_ro("num_tokens", &SuffixTree::num_tokens)
      .def("start", &SuffixTree::start)
      .def("append", &SuffixTree::append)
      .def("finish", &SuffixTree::finish)
      .def("evict", &SuffixTree::evict)
      .def_prop_ro("first", &SuffixTree::first)
      .def("text", &SuffixTree::text)
      .def("count", &SuffixTree::count)
      .def("speculate", [](SuffixTree& tree, uint64_t serial, const SuffixTree::Tokens& context, int64_t max_tokens,
                           double factor, float min_probability) {
        Guess guess = tree.speculate(serial, context, {max_tokens, factor, min_probability});
        return std::tuple(std::move(guess.tokens), guess.score, guess.match, guess.work);
      });
}

}  // namespace specserve
