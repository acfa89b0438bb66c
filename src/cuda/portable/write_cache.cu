// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/common/convert.cuh"
#include "cuda/common/launch.h"
#include "cuda/common/scale.cuh"
#include "cuda/common/warp.cuh"
#include "cuda/portable/operators.h"

/// \file
/// write_cache and insert_cache: one warp a head of a token. Lane l holds the elements l, l + 32,
/// l + 64 and l + 96, so that a rotated pair lies in one lane.

namespace msa::cuda::portable {
namespace {

constexpr int row_warps = 8;  // heads of a CTA
constexpr int lane_elements = head_dim / warp_size;
constexpr int half_rotary = 32;
static_assert(half_rotary == warp_size, "a lane holds both elements of a pair");

/// Rows of heads in memory: input rows, or output rows.
struct HeadRows {
  HeadRows() = default;
  /// [T, heads, 128]
  explicit HeadRows(const ConstTensor& t, std::int64_t head_stride)
      : data(const_cast<void*>(t.data)), type(t.dtype), token(t.stride[0]), head(head_stride) {}

  void* data = nullptr;
  DType type = DType::bf16;
  std::int64_t token = 0, head = 0;  // strides in elements
};

/// A paged cache that is written by slot.
struct SlotCache {
  SlotCache() = default;
  /// [pages, heads, 128, 128] or [pages, 128, 128]
  SlotCache(const Tensor& t, const ConstTensor& slot_mapping)
      : data(t.data),
        type(t.dtype),
        pages(t.shape[0]),
        page(t.stride[0]),
        head(t.rank == 4 ? t.stride[1] : 0),
        token(t.stride[t.rank == 4 ? 2 : 1]),
        slots(slot_mapping.ptr<std::int64_t>()) {}

  /// Element at which a token's head starts; −1 where the token is not written.
  __device__ std::int64_t at(std::int64_t t, std::int64_t h) const {
    const std::int64_t slot = slots[t];
    if (slot < 0 || slot / page_size >= pages) return -1;
    return slot / page_size * page + h * head + slot % page_size * token;
  }

  void* data = nullptr;
  DType type = DType::bf16;
  std::int64_t pages = 0;
  std::int64_t page = 0, head = 0, token = 0;  // strides in elements
  const std::int64_t* slots = nullptr;         // [T]
};

/// A lane's elements of a head.
struct LaneHead {
  __device__ LaneHead(DType type, const void* data, std::int64_t start, int lane) {
    for (int i = 0; i < lane_elements; ++i) x[i] = load(type, data, start + lane + i * warp_size);
  }
  float x[lane_elements];
};

/// Stores x / scale.
__device__ void store_head(const LaneHead& head, float scale, DType type, void* data,
                           std::int64_t start, int lane) {
  for (int i = 0; i < lane_elements; ++i) {
    const float x = scale == 1.0f ? head.x[i] : head.x[i] / scale;
    store(type, data, start + lane + i * warp_size, x);
  }
}

/// A head without norm: every bit pattern as it is where type and scale allow.
__device__ void copy_head(DType from_type, const void* from, std::int64_t from_start, float scale,
                          DType to_type, void* to, std::int64_t to_start, int lane) {
  if (from_type != to_type || scale != 1.0f) {
    return store_head(LaneHead(from_type, from, from_start, lane), scale, to_type, to, to_start,
                      lane);
  }
  for (int d = lane; d < head_dim; d += warp_size) {  // activations have 16 bits
    static_cast<std::uint16_t*>(to)[to_start + d] =
        static_cast<const std::uint16_t*>(from)[from_start + d];
  }
}

struct Norm {
  Norm() = default;
  explicit Norm(const ConstTensor& w) : data(w.data), type(w.dtype) {}

  /// Gemma RMSNorm of a head. The mean square in f64: squares of large bf16 and f16 elements
  /// overflow f32. A tiny head is brought into f32's comfortable range first.
  __device__ void apply(LaneHead& head, double eps, int lane) const {
    double squares = 0;
    for (float x : head.x) squares += static_cast<double>(x) * x;
    const double inverse = 1 / sqrt(warp_sum(squares) / head_dim + eps);
    const bool tiny = inverse > 0x1p100;
    const float first = tiny ? 0x1p100f : 1.0f;
    const auto second = static_cast<float>(tiny ? inverse * 0x1p-100 : inverse);
    for (int i = 0; i < lane_elements; ++i) {
      const float weight = 1.0f + load(type, data, lane + i * warp_size);
      head.x[i] = head.x[i] * first * second * weight;
    }
  }

  const void* data = nullptr;  // [128]
  DType type = DType::f32;
};

struct WriteParams {
  explicit WriteParams(const WriteCacheArgs& args);

  HeadRows qkv;  // [T, heads, 128]
  const std::int64_t* positions;
  const void* cos_sin;  // [max_pos, 64]
  DType cos_sin_type;
  std::int64_t cos_sin_row, max_position;
  Norm q_norm, k_norm, index_q_norm, index_k_norm;
  double eps;
  HeadRows q, index_q;
  SlotCache k, v, index_k;
  ScaleView k_scale, v_scale;
  std::int64_t q_heads, kv_heads, index_heads;
  std::int64_t heads;  // of an input row
  std::int64_t items;  // T · heads
};

/// NeoX rotation of elements (i, i + 32), i < 32.
__device__ void rotate(const WriteParams& p, std::int64_t position, LaneHead& head, int lane) {
  const std::int64_t row = position * p.cos_sin_row;
  const float cosine = load(p.cos_sin_type, p.cos_sin, row + lane);
  const float sine = load(p.cos_sin_type, p.cos_sin, row + half_rotary + lane);
  const float a = head.x[0], b = head.x[1];
  head.x[0] = a * cosine - b * sine;
  head.x[1] = b * cosine + a * sine;
}

/// One head of one token.
__device__ void write_head(const WriteParams& p, std::int64_t t, std::int64_t h, int lane) {
  const std::int64_t position = p.positions[t];
  if (position < 0 || position >= p.max_position) return;
  const std::int64_t from = t * p.qkv.token + h * head_dim;
  const auto normed = [&](const Norm& norm) {
    LaneHead head(p.qkv.type, p.qkv.data, from, lane);
    norm.apply(head, p.eps, lane);
    rotate(p, position, head, lane);
    return head;
  };
  const auto to_rows = [&](const Norm& norm, const HeadRows& rows, std::int64_t head) {
    store_head(normed(norm), 1.0f, rows.type, rows.data, t * rows.token + head * rows.head, lane);
  };
  const auto to_cache = [&](const Norm& norm, const SlotCache& cache, std::int64_t head,
                            float scale) {
    const std::int64_t at = cache.at(t, head);
    if (at >= 0) store_head(normed(norm), scale, cache.type, cache.data, at, lane);
  };
  if (h < p.q_heads) return to_rows(p.q_norm, p.q, h);
  h -= p.q_heads;
  if (h < p.kv_heads) return to_cache(p.k_norm, p.k, h, p.k_scale.value());
  h -= p.kv_heads;
  if (h < p.kv_heads) {
    const std::int64_t at = p.v.at(t, h);
    if (at >= 0) {
      copy_head(p.qkv.type, p.qkv.data, from, p.v_scale.value(), p.v.type, p.v.data, at, lane);
    }
    return;
  }
  h -= p.kv_heads;
  if (h < p.index_heads) return to_rows(p.index_q_norm, p.index_q, h);
  to_cache(p.index_k_norm, p.index_k, 0, 1.0f);
}

__global__ __launch_bounds__(row_warps* warp_size) void write_kernel(const WriteParams p) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const std::int64_t step = std::int64_t{gridDim.x} * row_warps;
  for (std::int64_t i = std::int64_t{blockIdx.x} * row_warps + warp; i < p.items; i += step) {
    write_head(p, i / p.heads, i % p.heads, lane);
  }
}

WriteParams::WriteParams(const WriteCacheArgs& args)
    : qkv(args.qkv, head_dim),
      positions(args.positions.ptr<std::int64_t>()),
      cos_sin(args.cos_sin.data),
      cos_sin_type(args.cos_sin.dtype),
      cos_sin_row(args.cos_sin.stride[0]),
      max_position(args.cos_sin.shape[0]),
      q_norm(args.q_norm),
      k_norm(args.k_norm),
      index_q_norm(args.index_q_norm),
      index_k_norm(args.index_k_norm),
      eps(args.norm_eps),
      q(ConstTensor(args.q_out), args.q_out.stride[1]),
      k(args.kv_cache.k_view(), args.slot_mapping),
      v(args.kv_cache.v_view(), args.slot_mapping),
      k_scale(args.k_scale),
      v_scale(args.v_scale),
      q_heads(args.q_out.shape[1]),
      kv_heads(args.kv_cache.shape_view().shape[1]),
      index_heads(0) {
  heads = q_heads + 2 * kv_heads;
  if (args.index_q_out.given()) {
    index_q = HeadRows(ConstTensor(args.index_q_out), args.index_q_out.stride[1]);
    index_k = SlotCache(args.index_cache, args.index_slot_mapping);
    index_heads = args.index_q_out.shape[1];
    heads += index_heads + 1;
  }
  items = args.num_tokens * heads;
}

/// One kind of head that insert_cache moves.
struct InsertPart {
  HeadRows from;  // [T, heads, 128]
  SlotCache to;
  ScaleView scale;
  std::int64_t heads = 0;  // 0: not given
};

struct InsertParams {
  explicit InsertParams(const InsertCacheArgs& args);

  InsertPart parts[3];  // k, v, index_k
  std::int64_t heads = 0;
  std::int64_t items = 0;  // T · heads
};

InsertParams::InsertParams(const InsertCacheArgs& args) {
  const Tensor k = args.kv_cache.k_view(), v = args.kv_cache.v_view();
  if (k.given()) {
    parts[0] = {HeadRows(args.k, args.k.stride[1]), SlotCache(k, args.slot_mapping),
                ScaleView(args.k_scale), k.shape[1]};
    parts[1] = {HeadRows(args.v, args.v.stride[1]), SlotCache(v, args.slot_mapping),
                ScaleView(args.v_scale), k.shape[1]};
  }
  if (args.index_cache.given()) {
    parts[2] = {HeadRows(args.index_k, 0), SlotCache(args.index_cache, args.index_slot_mapping),
                ScaleView(), 1};
  }
  for (const InsertPart& part : parts) heads += part.heads;
  items = args.num_tokens * heads;
}

__global__ __launch_bounds__(row_warps* warp_size) void insert_kernel(const InsertParams p) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const std::int64_t step = std::int64_t{gridDim.x} * row_warps;
  for (std::int64_t i = std::int64_t{blockIdx.x} * row_warps + warp; i < p.items; i += step) {
    const std::int64_t t = i / p.heads;
    std::int64_t h = i % p.heads;
    int part = 0;
    while (h >= p.parts[part].heads) h -= p.parts[part++].heads;
    const InsertPart& rule = p.parts[part];
    const std::int64_t at = rule.to.at(t, h);
    if (at < 0) continue;
    copy_head(rule.from.type, rule.from.data, t * rule.from.token + h * rule.from.head,
              rule.scale.value(), rule.to.type, rule.to.data, at, lane);
  }
}

template <class Params>
void launch_heads(const char* op, void (*kernel)(Params), Stream stream, const Params& params) {
  launch(op, kernel, (params.items + row_warps - 1) / row_warps, row_warps * warp_size, stream,
         params);
}

}  // namespace

void write_cache(const WriteCacheArgs& args) {
  launch_heads("write_cache", write_kernel, args.stream, WriteParams(args));
}

void insert_cache(const InsertCacheArgs& args) {
  launch_heads("insert_cache", insert_kernel, args.stream, InsertParams(args));
}

}  // namespace msa::cuda::portable
