#include "pack.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

namespace specserve {

namespace {

// A row's weights as integers: value[i] = scale[i / group] * q[i] + minimum[i / group].
struct Row {
  std::vector<int> q;
  std::vector<float> scale, minimum;
};

float half(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, 2);
  _Float16 h;
  std::memcpy(&h, &bits, 2);
  return float(h);
}

uint16_t to_half(float x) {
  const _Float16 h = _Float16(x);
  uint16_t bits;
  std::memcpy(&bits, &h, 2);
  return bits;
}

uint16_t to_bfloat16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fc0;
  return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// --- GGUF blocks: layouts as documented by the gguf package ----------------------------------------

struct BlockShape {
  int size, bytes;
};

BlockShape block_shape(BlockType type) {
  switch (type) {
    case BlockType::q4_0: return {32, 18};
    case BlockType::q4_1: return {32, 20};
    case BlockType::q5_0: return {32, 22};
    case BlockType::q5_1: return {32, 24};
    case BlockType::q8_0: return {32, 34};
    case BlockType::q4_k: return {256, 144};
    case BlockType::q5_k: return {256, 176};
    case BlockType::q6_k: return {256, 210};
  }
  throw std::invalid_argument("unknown block type " + std::to_string(int(type)));
}

// 4 and 5 bit blocks of 32: nibbles (low half first), the fifth bits in a 32-bit word.
void read_small_block(const uint8_t* p, BlockType type, int* q, float* scale, float* minimum) {
  const bool has_minimum = type == BlockType::q4_1 || type == BlockType::q5_1;
  const bool is_5bit = type == BlockType::q5_0 || type == BlockType::q5_1;
  *scale = half(p);
  p += 2;
  if (has_minimum) *minimum = half(p), p += 2;
  uint32_t fifth = 0;
  if (is_5bit) std::memcpy(&fifth, p, 4), p += 4;
  for (int i = 0; i < 16; ++i) {
    q[i] = (p[i] & 15) | int((fifth >> i) & 1) << 4;
    q[i + 16] = (p[i] >> 4) | int((fifth >> (i + 16)) & 1) << 4;
  }
  if (type == BlockType::q4_0) *minimum = -8.0f * *scale;  // q stays unsigned: exact
  if (type == BlockType::q5_0)
    for (int i = 0; i < 32; ++i) q[i] -= 16;
}

// Six-bit scales and minima of a 256-block's eight groups, in 12 bytes.
void unpack_k_scales(const uint8_t* p, int group, int* scale, int* minimum) {
  if (group < 4) {
    *scale = p[group] & 63;
    *minimum = p[group + 4] & 63;
  } else {
    *scale = (p[group + 4] & 15) | (p[group - 4] >> 6) << 4;
    *minimum = (p[group + 4] >> 4) | (p[group] >> 6) << 4;
  }
}

void read_k_block(const uint8_t* p, BlockType type, int* q, float* scale, float* minimum) {
  const float d = half(p), dmin = half(p + 2);
  const uint8_t* packed = p + 4;
  const uint8_t* fifth = p + 16;
  const uint8_t* nibbles = p + (type == BlockType::q5_k ? 48 : 16);
  for (int g = 0; g < 8; ++g) {
    int s, m;
    unpack_k_scales(packed, g, &s, &m);
    scale[g] = d * float(s);
    minimum[g] = -dmin * float(m);
    for (int i = 0; i < 32; ++i) {
      const uint8_t both = nibbles[g / 2 * 32 + i];
      int v = g % 2 ? both >> 4 : both & 15;
      if (type == BlockType::q5_k) v |= ((fifth[i] >> g) & 1) << 4;
      q[g * 32 + i] = v;
    }
  }
}

void read_q6_k_block(const uint8_t* p, int* q, float* scale) {
  const int8_t* scales = (const int8_t*)p + 192;
  const float d = half(p + 208);
  for (int g = 0; g < 16; ++g) scale[g] = d * float(scales[g]);
  for (int i = 0; i < 256; ++i) {
    const int part = i / 128, within = i % 128, lane = within % 32, quarter = within / 32;
    const uint8_t low = p[part * 64 + lane + (quarter % 2) * 32];
    const uint8_t high = p[128 + part * 32 + lane];
    q[i] = ((quarter / 2 ? low >> 4 : low & 15) | ((high >> (2 * quarter)) & 3) << 4) - 32;
  }
}

void read_row(const Source& source, int row, Row& out, int group) {
  const BlockShape shape = block_shape(source.type);
  const int blocks = source.num_inputs / shape.size, per_block = shape.size / group;
  const uint8_t* p = (const uint8_t*)source.data + size_t(row) * blocks * shape.bytes;
  for (int b = 0; b < blocks; ++b, p += shape.bytes) {
    int* q = &out.q[b * shape.size];
    float* scale = &out.scale[b * per_block];
    float* minimum = &out.minimum[b * per_block];
    if (source.type == BlockType::q8_0) {
      *scale = half(p);
      for (int i = 0; i < 32; ++i) q[i] = int8_t(p[2 + i]);
    } else if (source.type == BlockType::q6_k) {
      read_q6_k_block(p, q, scale);
    } else if (source.type == BlockType::q4_k || source.type == BlockType::q5_k) {
      read_k_block(p, source.type, q, scale, minimum);
    } else {
      read_small_block(p, source.type, q, scale, minimum);
    }
  }
}

// --- floats -------------------------------------------------------------------------------------------

float float_at(const Source& source, size_t index) {
  if (source.kind == Source::Kind::float32) return ((const float*)source.data)[index];
  const uint32_t bits = uint32_t(((const uint16_t*)source.data)[index]) << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

// int8: symmetric, the group's largest magnitude at 127. int4: the group's range in 15 steps. Rounded
// against the scale as it is stored, in half precision.
void round_row(const Source& source, int row, const Matrix& matrix, Row& out) {
  const int k = source.num_inputs;
  for (int g = 0; g < matrix.num_groups(); ++g) {
    float low = 0.0f, high = 0.0f;
    for (int i = g * kGroup; i < std::min((g + 1) * kGroup, k); ++i) {
      const float v = float_at(source, size_t(row) * k + i);
      low = std::min(low, v);
      high = std::max(high, v);
    }
    const bool is_int8 = matrix.weight_class == WeightClass::int8;
    const float step = is_int8 ? std::max(high, -low) / 127.0f : (high - low) / 15.0f;
    const _Float16 scale = _Float16(step), minimum = is_int8 ? _Float16(0) : _Float16(low);
    out.scale[g] = float(scale);
    out.minimum[g] = float(minimum);
    const float inverse = float(scale) > 0.0f ? 1.0f / float(scale) : 0.0f;
    for (int i = g * kGroup; i < (g + 1) * kGroup; ++i) {
      const float v = i < k ? float_at(source, size_t(row) * k + i) : float(minimum);
      const int q = int(std::nearbyint((v - float(minimum)) * inverse));
      out.q[i] = is_int8 ? std::clamp(q, -127, 127) : std::clamp(q, 0, 15);
    }
  }
}

// --- panels -------------------------------------------------------------------------------------------

void put_float_row(const Source& source, int row, const Matrix& matrix, uint8_t* panel, int lane) {
  const int k = source.num_inputs;
  for (int i = 0; i < k; ++i) {
    const float v = float_at(source, size_t(row) * k + i);
    if (matrix.weight_class == WeightClass::float32) ((float*)panel)[i * kPanel + lane] = v;
    else ((uint16_t*)panel)[i * kPanel + lane] = to_bfloat16(v);
  }
}

void put_integer_row(const Row& row, const Matrix& matrix, uint8_t* panel, int lane) {
  const bool is_int4 = matrix.weight_class == WeightClass::int4;
  const int group = matrix.group;
  const size_t quants = is_int4 ? kPanel * group / 2 : kPanel * group, tail = matrix.scale_bytes() * kPanel;
  for (int g = 0; g < matrix.num_groups(); ++g) {
    uint8_t* w = panel + matrix.group_bytes() * g;
    for (int i = 0; i < group; ++i) {
      const int q = row.q[g * group + i];
      if (is_int4) w[(i / 8 * 2 + lane / 8) * 32 + lane % 8 * 4 + i % 4] |= uint8_t(i % 8 < 4 ? q : q << 4);
      else w[(i / 2 * 2 + lane / 8) * 16 + lane % 8 * 2 + i % 2] = uint8_t(int8_t(q));
    }
    for (int part = 0; part < (matrix.has_minimum ? 2 : 1); ++part) {
      const float v = part ? row.minimum[g] : row.scale[g];
      uint8_t* place = w + quants + part * tail + lane * matrix.scale_bytes();
      const uint16_t h = to_half(v);
      if (matrix.wide_scales) std::memcpy(place, &v, 4);
      else std::memcpy(place, &h, 2);
    }
  }
}

// Where a source's row lies: panel and lane.
size_t place_of(int source, int row, const std::vector<int>& offsets, bool interleaved) {
  if (!interleaved) return size_t(offsets[source]) + row;
  return size_t(row / kPanel * 2 + source) * kPanel + row % kPanel;
}

Matrix common_shape(const std::vector<Source>& sources, WeightClass weight_class, int num_outputs) {
  const int k = sources[0].num_inputs;
  for (const Source& source : sources)
    if (source.num_inputs != k || source.kind != sources[0].kind ||
        (source.kind == Source::Kind::blocks && source.type != sources[0].type))
      throw std::invalid_argument("sources of one matrix must have one width and one type");
  if (sources[0].kind == Source::Kind::blocks) {
    const Matrix matrix = shape_of(sources[0].type, num_outputs, k);
    if (matrix.weight_class != weight_class) throw std::invalid_argument("block type does not map onto the class");
    return matrix;
  }
  Matrix matrix;
  matrix.weight_class = weight_class;
  matrix.num_outputs = num_outputs;
  matrix.has_minimum = weight_class == WeightClass::int4;
  matrix.num_inputs = weight_class >= WeightClass::int8 ? (k + kGroup - 1) / kGroup * kGroup : k;
  return matrix;
}

}  // namespace

void PackedMatrix::Free::operator()(void* p) const { std::free(p); }

Matrix shape_of(BlockType type, int num_outputs, int num_inputs) {
  Matrix m;
  m.num_outputs = num_outputs;
  m.num_inputs = num_inputs;
  const bool is_int4 = type == BlockType::q4_0 || type == BlockType::q4_1 || type == BlockType::q4_k;
  m.weight_class = is_int4 ? WeightClass::int4 : WeightClass::int8;
  m.has_minimum = is_int4 || type == BlockType::q5_1 || type == BlockType::q5_k;
  m.wide_scales = type == BlockType::q4_k || type == BlockType::q5_k || type == BlockType::q6_k || type == BlockType::q5_1;
  m.group = type == BlockType::q6_k ? 16 : kGroup;
  if (num_inputs % block_shape(type).size) throw std::invalid_argument("row is no whole number of blocks");
  return m;
}

PackedMatrix pack(const std::vector<Source>& sources, WeightClass weight_class, bool interleaved) {
  std::vector<int> offsets;
  int total = 0;
  for (const Source& source : sources) offsets.push_back(total), total += source.num_rows;
  if (interleaved && (sources.size() != 2 || sources[0].num_rows != sources[1].num_rows))
    throw std::invalid_argument("interleaving takes two sources of the same height");
  PackedMatrix result;
  result.view = common_shape(sources, weight_class, total);
  Matrix& matrix = result.view;
  const int panels = interleaved ? 2 * ((sources[0].num_rows + kPanel - 1) / kPanel) : matrix.num_panels();
  result.bytes_ = matrix.panel_bytes() * panels;
  const size_t padded = (result.bytes_ + 4096 + 63) / 64 * 64;  // kernels prefetch past the end
  result.memory_.reset((uint8_t*)std::aligned_alloc(64, padded));
  if (!result.memory_) throw std::bad_alloc();
  std::memset(result.memory_.get(), 0, padded);
  Row row{std::vector<int>(matrix.num_inputs), std::vector<float>(matrix.num_inputs / 16 + 1),
          std::vector<float>(matrix.num_inputs / 16 + 1)};
  for (size_t s = 0; s < sources.size(); ++s) {
    for (int r = 0; r < sources[s].num_rows; ++r) {
      const size_t place = place_of(int(s), r, offsets, interleaved);
      uint8_t* panel = result.memory_.get() + matrix.panel_bytes() * (place / kPanel);
      const int lane = int(place % kPanel);
      if (weight_class <= WeightClass::bfloat16) {
        put_float_row(sources[s], r, matrix, panel, lane);
        continue;
      }
      if (sources[s].kind == Source::Kind::blocks) read_row(sources[s], r, row, matrix.group);
      else round_row(sources[s], r, matrix, row);
      put_integer_row(row, matrix, panel, lane);
    }
  }
  matrix.data = result.memory_.get();
  return result;
}

}  // namespace specserve
