// The Python module `specserve.ops._native`. Arrays cross as addresses of memory that the caller keeps
// alive (torch tensors); the interpreter lock is released while a program runs.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>

#include "bindings_sampling.h"
#include "bindings_suffix.h"
#include "ops.h"
#include "pack.h"
#include "probe.h"

namespace nb = nanobind;
using namespace specserve;

namespace {

template <typename T>
T* pointer(uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

void add_linear(Program& program, const PackedMatrix& matrix, int x, int y, uintptr_t bias, uintptr_t norm, float eps,
                int gate, bool accumulate, bool is_head, int activation_bits, int column) {
  LinearSpec spec;
  spec.matrix = &matrix.view;
  spec.bias = pointer<float>(bias);
  spec.norm = pointer<float>(norm);
  spec.eps = eps;
  spec.gate = Gate(gate);
  spec.accumulate = accumulate;
  spec.is_head = is_head;
  spec.activation_bits = activation_bits;
  spec.column = column;
  program.add(std::make_unique<LinearOp>(spec, program.buffer(x), program.buffer(y), program.max_rows(), program.num_threads()));
}

void add_attention(Program& program, int qkv, int y, int num_heads, int num_kv_heads, int head_size, float scale, int window,
                   uintptr_t q_norm, uintptr_t k_norm, float eps, uintptr_t cosine, uintptr_t sine, int half,
                   uintptr_t keys, uintptr_t values, int cache_type, int page_size) {
  AttentionSpec spec;
  spec.num_heads = num_heads;
  spec.num_kv_heads = num_kv_heads;
  spec.head_size = head_size;
  spec.scale = scale;
  spec.eps = eps;
  spec.window = window;
  spec.q_norm = pointer<float>(q_norm);
  spec.k_norm = pointer<float>(k_norm);
  spec.cosine = pointer<float>(cosine);
  spec.sine = pointer<float>(sine);
  spec.half = half;
  spec.cache = {pointer<void>(keys), pointer<void>(values), CacheType(cache_type), num_kv_heads, head_size, page_size};
  program.add(std::make_unique<AttentionOp>(spec, program.buffer(qkv), program.buffer(y)));
}

// The addresses of what `StepInput` holds. Returns its seconds: the caller's clock would count the wait for the lock too.
double run(Program& program, int num_rows, uintptr_t ids, uintptr_t positions, uintptr_t slots, uintptr_t key_limits, int num_sequences,
         uintptr_t starts, uintptr_t block_tables, int table_stride, int num_wanted, uintptr_t wanted, uintptr_t logits, int first,
         int last) {
  StepInput input;
  input.num_rows = num_rows;
  input.ids = pointer<int64_t>(ids);
  input.positions = pointer<int64_t>(positions);
  input.slots = pointer<int64_t>(slots);
  input.key_limits = pointer<int32_t>(key_limits);
  input.num_sequences = num_sequences;
  input.starts = pointer<int32_t>(starts);
  input.block_tables = pointer<int32_t>(block_tables);
  input.table_stride = table_stride;
  input.num_wanted = num_wanted;
  input.wanted = pointer<int64_t>(wanted);
  input.logits = pointer<float>(logits);
  const auto began = std::chrono::steady_clock::now();
  program.run(input, first, last);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

}  // namespace

NB_MODULE(_native, m) {
  nb::list names;
  for (const Kernels* kernels : all_kernels()) names.append(kernels->name);
  m.attr("instruction_sets") = names;  // best first
  nb::class_<Pool>(m, "Pool").def(nb::init<int>()).def_prop_ro("size", &Pool::size);
  nb::class_<PackedMatrix>(m, "PackedMatrix")
      .def_prop_ro("num_bytes", &PackedMatrix::num_bytes)
      .def_prop_ro("weight_class", [](const PackedMatrix& p) { return int(p.view.weight_class); })
      .def_prop_ro("num_outputs", [](const PackedMatrix& p) { return p.view.num_outputs; })
      .def("row", [](const PackedMatrix& p, int64_t id, int size, uintptr_t out) { best_kernels().embed(p.view, id, 1.0f, size, pointer<float>(out)); });
  m.def("pack", [](const std::vector<std::vector<uintptr_t>>& sources, int weight_class, bool interleaved) {
    std::vector<Source> list;
    for (const auto& s : sources)
      list.push_back({Source::Kind(s[0]), BlockType(s[1]), pointer<void>(s[2]), int(s[3]), int(s[4])});
    nb::gil_scoped_release release;
    return pack(list, WeightClass(weight_class), interleaved);
  });
  nb::class_<ReadProbe>(m, "ReadProbe")
      .def(nb::init<size_t>(), nb::call_guard<nb::gil_scoped_release>())
      .def("measure", &ReadProbe::measure, nb::call_guard<nb::gil_scoped_release>());
  m.def("measure_products", [](Pool& pool, const std::string& instruction_set, int products) {
    return measure_products(pool, instruction_set, Products(products));
  }, nb::call_guard<nb::gil_scoped_release>());
  nb::class_<Program>(m, "Program")
      .def("__init__",
           [](Program* self, Pool& pool, const std::string& instruction_set, int max_rows, bool k_lanes) {
             const Kernels* kernels = find_kernels(instruction_set);
             if (!kernels) throw std::invalid_argument("no kernels for " + instruction_set);
             new (self) Program(pool, k_lanes ? *kernels->k_lanes : *kernels, max_rows);
           },
           nb::arg(), nb::arg(), nb::arg(), nb::arg("k_lanes") = false, nb::keep_alive<1, 2>())
      .def("add_buffer", &Program::add_buffer)
      .def_prop_ro("num_ops", &Program::size)
      .def_prop_ro("num_bytes", &Program::num_bytes)
      .def("set_timed", &Program::set_timed)
      .def_prop_ro("op_seconds", &Program::op_seconds)
      .def("buffer_address", [](const Program& p, int index) { return uintptr_t(p.buffer(index).data); })
      .def("add_embed", [](Program& p, const PackedMatrix& table, float scale, int y) {
        p.add(std::make_unique<EmbedOp>(&table.view, scale, p.buffer(y)));
      }, nb::keep_alive<1, 2>())
      .def("add_norm", [](Program& p, int x, uintptr_t weight, float eps, int y, bool accumulate) {
        p.add(std::make_unique<NormOp>(p.buffer(x), pointer<float>(weight), eps, p.buffer(y), accumulate, p.num_threads()));
      })
      .def("add_copy", [](Program& p, int x, int y) { p.add(std::make_unique<CopyOp>(p.buffer(x), p.buffer(y))); })
      .def("add_add", [](Program& p, int x, int y) { p.add(std::make_unique<AddOp>(p.buffer(x), p.buffer(y))); })
      .def("add_gather", [](Program& p, int x, int y) { p.add(std::make_unique<GatherOp>(p.buffer(x), p.buffer(y))); })
      .def("add_linear", &add_linear, nb::keep_alive<1, 2>())
      .def("add_attention", &add_attention)
      .def("run", &run, nb::call_guard<nb::gil_scoped_release>());
  bind_sampling(m);
  bind_suffix(m);
}
