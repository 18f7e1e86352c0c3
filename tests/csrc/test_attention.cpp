// Attention over pages: every head size, page size, window and cache type. Slots that nobody wrote or sees hold
// NaN, and block tables end with the sequence: past its pages stands a page that does not exist.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "rig.h"

namespace specserve::test {
namespace {

constexpr int kNoPage = -(1 << 20);
constexpr int kContext = 280;

struct Sequence {
  int there, rows;  // rows of earlier steps, and of this one
};
using Batch = std::vector<Sequence>;
// Causal, or a block drafter's rows, each of which sees all rows of the step or any number of keys.
enum class Sight { causal, block, any };
const std::vector<Batch> kBatches = {
    {{0, 1}}, {{0, 7}, {12, 1}, {3, 0}, {130, 1}, {0, 1}, {61, 9}}, {{63, 2}, {0, 70}}, {{200, 17}, {64, 1}}, {{5, 0}}, {},
};

// The options of one layer with memory behind them.
struct Layer {
  Layer(Random& random, int head_size, int num_heads, int num_kv_heads);
  AttentionSpec spec;
  Floats q_norm, k_norm, cosine, sine;
};

Layer::Layer(Random& random, int head_size, int num_heads, int num_kv_heads) : q_norm(random.floats(head_size)), k_norm(random.floats(head_size)) {
  spec.num_heads = num_heads;
  spec.num_kv_heads = num_kv_heads;
  spec.head_size = head_size;
  spec.scale = 1.0f / std::sqrt(float(head_size));
  spec.eps = kEps;
  spec.window = random.one_of<int>({0, 0, 1, 5, 64, 70, 200});
  if (random.coin()) spec.q_norm = q_norm.data(), spec.k_norm = k_norm.data();
  spec.half = random.one_of<int>({0, head_size / 4, head_size / 2, 1});
  for (int i = 0; i < kContext * spec.half; ++i) {
    const float angle = random.uniform() * 3;
    cosine.push_back(std::cos(angle));
    sine.push_back(std::sin(angle));
  }
  spec.cosine = cosine.data();
  spec.sine = sine.data();
}

// The first key in the window of the row at `position`.
int first_seen(const AttentionSpec& spec, int position) { return spec.window ? std::max(0, position + 1 - spec.window) : 0; }

// A cache whose pages are dealt out in random order, and a step over it.
struct Scene {
  Scene(Random& random, Layer& layer, const Batch& batch, CacheType type, int page_size, Sight sight);
  int64_t slot(int sequence, int position) const {
    const CacheView& cache = layer.spec.cache;
    return int64_t(step.tables[size_t(sequence) * step.table_stride + position / cache.page_size]) * cache.page_size + position % cache.page_size;
  }
  void fill(Random& random, int sequence, int position);  // as a row of an earlier step left it
  void put(void* tensor, int64_t index, float value);
  Layer& layer;
  const Batch& batch;
  std::vector<uint32_t> wide_keys, wide_values;    // float32
  std::vector<uint16_t> short_keys, short_values;  // 16 bit
  Step step;
  Floats qkv;
};

Scene::Scene(Random& random, Layer& layer, const Batch& batch, CacheType type, int page_size, Sight sight) : layer(layer), batch(batch) {
  std::vector<int> counts;
  for (const Sequence& s : batch) counts.push_back((s.there + s.rows + page_size - 1) / page_size);
  std::vector<int> free(std::accumulate(counts.begin(), counts.end(), 0));  // all are used: the last slot too
  std::iota(free.begin(), free.end(), 0);
  for (size_t i = free.size(); i > 1; --i) std::swap(free[i - 1], free[random.below(int(i))]);
  step.table_stride = counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
  const size_t size = free.size() * page_size * layer.spec.num_kv_heads * layer.spec.head_size;
  if (type == CacheType::float32) wide_keys.assign(size, 0x7fc00000), wide_values = wide_keys;
  else short_keys.assign(size, 0x7fff), short_values = short_keys;
  layer.spec.cache = {type == CacheType::float32 ? (void*)wide_keys.data() : short_keys.data(),
                      type == CacheType::float32 ? (void*)wide_values.data() : short_values.data(),
                      type, layer.spec.num_kv_heads, layer.spec.head_size, page_size};
  for (size_t s = 0; s < batch.size(); ++s) {
    for (int i = 0; i < step.table_stride; ++i) {
      step.tables.push_back(i < counts[s] ? free.back() : kNoPage);
      if (i < counts[s]) free.pop_back();
    }
    for (int p = first_seen(layer.spec, batch[s].there); p < batch[s].there; ++p) fill(random, int(s), p);
    for (int p = batch[s].there; p < batch[s].there + batch[s].rows; ++p) {
      step.ids.push_back(0);
      step.positions.push_back(p);
      step.slots.push_back(slot(int(s), p));
      const int context = batch[s].there + batch[s].rows, seen = first_seen(layer.spec, p);
      if (sight != Sight::causal) step.key_limits.push_back(sight == Sight::block ? context : seen + 1 + random.below(context - seen));
    }
    step.starts.push_back(step.num_rows());
  }
  qkv = random.floats(size_t(step.num_rows()) * (layer.spec.num_heads + 2 * layer.spec.num_kv_heads) * layer.spec.head_size, 2);
}

void Scene::put(void* tensor, int64_t index, float value) {
  const CacheType type = layer.spec.cache.type;
  if (type == CacheType::float32) ((float*)tensor)[index] = value;
  else if (type == CacheType::float16) ((uint16_t*)tensor)[index] = uint16_t(0x3000 | (int(value * 1e6f) & 0x8bff));
  else ((uint16_t*)tensor)[index] = uint16_t(0x3e00 | (int(value * 1e6f) & 0x807f));
}

void Scene::fill(Random& random, int sequence, int position) {
  const CacheView& cache = layer.spec.cache;
  for (int h = 0; h < cache.num_kv_heads; ++h)
    for (int d = 0; d < cache.head_size; ++d) {
      put(cache.keys, cache.key_offset(slot(sequence, position), h) + d * 8, random.uniform());
      put(cache.values, cache.value_offset(slot(sequence, position), h) + d, random.uniform());
    }
}

double coarseness(CacheType type) { return type == CacheType::float32 ? 1e-5 : type == CacheType::float16 ? 1e-3 : 8e-3; }

// What the step wrote, and what each of its rows reads.
void check_rows(const Scene& scene, const Buffer& out, const std::string& where) {
  const AttentionSpec& spec = scene.layer.spec;
  const int size = spec.head_size, group = spec.num_heads / spec.num_kv_heads, width = (spec.num_heads + 2 * spec.num_kv_heads) * size;
  int row = 0;
  for (size_t s = 0; s < scene.batch.size(); ++s)
    for (int i = 0; i < scene.batch[s].rows; ++i, ++row) {
      const int position = int(scene.step.positions[row]);
      Floats qkv(scene.qkv.begin() + row * width, scene.qkv.begin() + (row + 1) * width);
      for (int h = 0; h < spec.num_kv_heads; ++h) {
        float* key = &qkv[(spec.num_heads + h) * size];
        const float* value = &qkv[(spec.num_heads + spec.num_kv_heads + h) * size];
        plain_turn(key, spec, spec.k_norm, position);
        const int64_t slot = scene.step.slots[row];
        for (int d = 0; d < size; ++d) {
          const double error = coarseness(spec.cache.type) * 4;
          expect_near(cached(spec.cache.keys, spec.cache.type, spec.cache.key_offset(slot, h) + d * 8), key[d], error, where + "key");
          expect_near(cached(spec.cache.values, spec.cache.type, spec.cache.value_offset(slot, h) + d), value[d], error, where + "value");
        }
      }
      for (int h = 0; h < spec.num_heads; ++h) {
        if (spec.num_heads > 4 && (row + h) % 5) continue;  // a fifth of many heads, another one in each row
        plain_turn(&qkv[h * size], spec, spec.q_norm, position);
        const int first = first_seen(spec, position);
        const int end = scene.step.key_limits.empty() ? position + 1 : scene.step.key_limits[row];
        const Floats expected = plain_attention(&qkv[h * size], spec, h / group, first, end,
                                                [&](int p) { return scene.slot(int(s), p); });
        const float* found = out.data + size_t(row) * out.width + h * size;
        expect_rows(Floats(found, found + size), expected, 2e-5, where + named("row", row, "head", h));
      }
    }
}

void check(Random& random, const Kernels& kernels, int head_size, CacheType type, const Batch& batch) {
  const auto [heads, kv_heads] = random.one_of<std::pair<int, int>>({{1, 1}, {4, 4}, {6, 2}, {9, 3}, {8, 1}, {50, 1}});
  Layer layer(random, head_size, heads, kv_heads);
  const int page_size = random.one_of<int>({8, 16, 24, 40, 64}), num_threads = 1 + random.below(4);
  const Sight sight = random.one_of<Sight>({Sight::causal, Sight::causal, Sight::block, Sight::any});
  Scene scene(random, layer, batch, type, page_size, sight);
  const int num_rows = scene.step.num_rows();
  Rig rig(num_threads, kernels, std::max(1, num_rows));
  const Buffer in = rig.add((heads + 2 * kv_heads) * head_size, scene.qkv), out = rig.add(heads * head_size);
  rig.program.add(std::make_unique<AttentionOp>(layer.spec, in, out));
  rig.run(scene.step);
  check_rows(scene, out, named(kernels.name, "head size", head_size, "heads", heads, kv_heads, "cache", int(type), "page", page_size,
                               "window", layer.spec.window, "sight", int(sight), "half", layer.spec.half, "threads", num_threads));
}

const Test attention("attention equals plain loops, reads no slot of nobody and no page past a sequence's own", [] {
  Random random(12);
  for (const Kernels* kernels : all_kernels())
    for (int head_size : {8, 24, 64, 80, 96, 128, 256})
      for (CacheType type : {CacheType::float32, CacheType::float16, CacheType::bfloat16})
        for (const Batch& batch : kBatches) check(random, *kernels, head_size, type, batch);
});

const Test refusals("shapes that the kernels' tiles do not hold are refused", [] {
  for (const auto& [head_size, page_size] : {std::pair{264, 8}, {20, 8}, {64, 12}}) {
    AttentionSpec spec;
    spec.head_size = head_size, spec.cache.page_size = page_size;
    bool is_refused = false;
    try {
      AttentionOp(spec, {}, {});
    } catch (const std::invalid_argument&) {
      is_refused = true;
    }
    expect(is_refused, named("head size", head_size, "page", page_size));
  }
});

}  // namespace
}  // namespace specserve::test
