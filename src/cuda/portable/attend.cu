// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <cfloat>

#include "cuda/common/batch.cuh"
#include "cuda/common/convert.cuh"
#include "cuda/common/launch.h"
#include "cuda/common/parts.h"
#include "cuda/common/scale.cuh"
#include "cuda/common/warp.cuh"
#include "cuda/portable/operators.h"
#include "cuda/portable/prefill/prefill.h"

/// \file
/// attend: prefill rows by prefill/, decode rows here. One CTA computes one token's G query heads
/// of one KV head. It walks the row's own list of distinct valid blocks in ascending order with a
/// running softmax, so that a row's bits depend on its q, its selection and its keys alone, and no
/// key that the row does not see is ever read.
///
/// Numbers: logits are of base 2. The power of two of the folded scale is multiplied into q and the
/// rest, below 2, into the f32 dot product, so that tiny and huge scales neither overflow nor
/// flush. A NaN logit makes the row's sum NaN and with it the whole row; the running maximum
/// ignores NaN. A maximum of −inf (no key, or only −inf logits) is replaced by 0 where it is
/// subtracted.

namespace msa::cuda::portable {
namespace {

struct PagesView {
  explicit PagesView(const ConstTensor& t)
      : data(t.ptr<char>()), page(t.stride[0]), head(t.stride[1]), token(t.stride[2]) {}

  const char* data;
  std::int64_t page, head, token;  // strides in elements
};

struct AttendParams {
  explicit AttendParams(const AttendArgs& args);

  const void* q;  // [T, Hq, 128] bf16|f16
  DType q_type;
  std::int64_t q_token, q_head;
  PagesView k, v;  // [pages, Hkv, 128, 128]
  std::int64_t pages;
  std::int64_t kv_heads;
  int group;          // G
  bool round_q;       // f16 q that meets bf16 products
  bool f16_products;  // else bf16
  bool aligned;       // rows of K start at multiples of 16 bytes

  const std::int32_t* selection;  // [T, Hs, topk]
  std::int64_t selection_token, selection_list, selection_slot;
  int topk;
  BatchView batch;

  void* out;  // [T, Hq, 128]
  DType out_type;
  std::int64_t out_token, out_head;
  float* lse;  // [T, Hq] or null
  std::int64_t lse_token, lse_head;

  float softmax_scale;
  ScaleView k_scale, v_scale;
  bool causal;
  std::int64_t rank, world;
  std::int64_t items;  // decode tokens · Hkv
};

/// A row's distinct valid blocks in ascending order.
struct BlockList {
  std::int32_t id[max_topk];
  std::int32_t page[max_topk];
  int count;
};

constexpr int no_block = 0x7fffffff;

/// Order, repeats and holes of the selection end here: every thread of the CTA takes part.
__device__ void collect_blocks(const AttendParams& p, std::int64_t token, std::int64_t head,
                               const RowPlace& row, std::int64_t visible, BlockList& list) {
  __shared__ std::int32_t ids[max_topk];
  __shared__ bool first[max_topk];
  const int i = static_cast<int>(threadIdx.x);
  std::int64_t page = -1;
  int id = no_block;
  if (i < p.topk) {
    const std::int64_t chosen =
        p.selection[token * p.selection_token + head * p.selection_list + i * p.selection_slot];
    const std::int64_t blocks = (visible + page_size - 1) / page_size;
    if (chosen >= 0 && chosen < blocks && chosen % p.world == p.rank) {
      page = find_page(p.batch, row.request, chosen / p.world, p.pages);
      if (page >= 0) id = static_cast<int>(chosen);
    }
    ids[i] = id;
  }
  __syncthreads();
  bool is_first = id != no_block;
  for (int j = 0; j < i && i < p.topk; ++j) is_first = is_first && ids[j] != id;
  if (i < p.topk) first[i] = is_first;
  const int count = __syncthreads_count(is_first);
  if (is_first) {
    int rank = 0;
    for (int j = 0; j < p.topk; ++j) rank += first[j] && ids[j] < id;
    list.id[rank] = id;
    list.page[rank] = static_cast<std::int32_t>(page);
  }
  if (i == 0) list.count = count;
}

/// The CTA's shared memory. `rows`: G padded to what the threads cover.
template <int rows>
struct Shared {
  /// Of P; a little off a power of two, for the columns that softmax reads.
  static constexpr int stride = rows + 4;

  alignas(16) float q[rows][head_dim];      // times a power of two
  alignas(16) float p[page_size * stride];  // [keys][stride]: logits, then P
  float factor[rows];                       // what is left of the logit scale
  float maximum[rows], sum[rows];           // the running softmax
  float shrink[rows];                       // of earlier results, by the last block
  BlockList list;
};

/// Splits the logit scale for one row of q: the power of two to multiply into the row, short of
/// overflowing it, and the other factor.
struct SplitScale {
  __device__ SplitScale(double scale, float largest_q) {
    if (!isfinite(scale) || scale == 0) {
      factor = static_cast<float>(scale);
      return;
    }
    exponent = ilogb(scale);
    if (exponent > 0 && largest_q > 0) exponent = min(exponent, max(0, 126 - ilogbf(largest_q)));
    const double rest = ldexp(scale, -exponent);
    factor = static_cast<float>(fmin(fmax(rest, -double{FLT_MAX}), double{FLT_MAX}));
  }
  int exponent = 0;
  float factor;
};

/// One warp a row: q as f32, rounded to the product type and scaled.
template <int rows>
__device__ void load_queries(const AttendParams& p, std::int64_t token, std::int64_t head,
                             Shared<rows>& s) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int warps = static_cast<int>(blockDim.x) / warp_size;
  const double scale =
      static_cast<double>(p.softmax_scale) * p.k_scale.value() * 1.4426950408889634074;  // log2 e
  for (int g = static_cast<int>(threadIdx.x) / warp_size; g < rows; g += warps) {
    float x[4] = {0, 0, 0, 0};
    float largest = 0;
    if (g < p.group) {
      const std::int64_t start = token * p.q_token + (head * p.group + g) * p.q_head;
      for (int i = 0; i < 4; ++i) {
        x[i] = load(p.q_type, p.q, start + lane + i * warp_size);
        if (p.round_q) x[i] = round_to<DType::bf16>(x[i]);
        const float a = fabsf(x[i]);
        if (a <= FLT_MAX) largest = fmaxf(largest, a);
      }
    }
    const SplitScale split(scale, warp_max(largest));
    for (int i = 0; i < 4; ++i) s.q[g][lane + i * warp_size] = ldexpf(x[i], split.exponent);
    if (lane == 0) {
      s.factor[g] = split.factor;
      s.maximum[g] = -INFINITY;
      s.sum[g] = 0;
    }
  }
}

/// Logits of one key a thread and `n` rows from `first` on.
template <DType type, int rows, int n>
__device__ void compute_logits(const AttendParams& p, const char* key, bool visible, int first,
                               float* logits, const Shared<rows>& s) {
  float dot[n] = {};
  if (visible) {
    using Chunk = RowChunk<type>;
    for (int begin = 0; begin < head_dim; begin += Chunk::elements) {
      Chunk chunk;
      chunk.load(key + begin * static_cast<int>(size_of(type)), p.aligned);
#pragma unroll
      for (int d = 0; d < Chunk::elements; d += 4) {
#pragma unroll
        for (int r = 0; r < n; ++r) {
          const float4 q = *reinterpret_cast<const float4*>(&s.q[first + r][begin + d]);
          dot[r] = fmaf(q.x, chunk[d], dot[r]);
          dot[r] = fmaf(q.y, chunk[d + 1], dot[r]);
          dot[r] = fmaf(q.z, chunk[d + 2], dot[r]);
          dot[r] = fmaf(q.w, chunk[d + 3], dot[r]);
        }
      }
    }
  }
  for (int r = 0; r < n; ++r) logits[r] = dot[r] * s.factor[first + r];
}

/// One warp a row: the block's logits become P, rounded, and enter the running softmax.
template <int rows>
__device__ void softmax_step(const AttendParams& p, int keys, Shared<rows>& s) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int warps = static_cast<int>(blockDim.x) / warp_size;
  for (int g = static_cast<int>(threadIdx.x) / warp_size; g < p.group; g += warps) {
    float x[4];
    float largest = -INFINITY;
    for (int i = 0; i < 4; ++i) {
      const int key = lane + i * warp_size;
      x[i] = key < keys ? s.p[key * Shared<rows>::stride + g] : -INFINITY;
      largest = fmaxf(largest, x[i]);
    }
    const float before = s.maximum[g];
    const float after = fmaxf(before, warp_max(largest));
    const float shift = after == -INFINITY ? 0.0f : after;
    float total = 0;
    for (int i = 0; i < 4; ++i) {
      const int key = lane + i * warp_size;
      const float weight = exp2f(x[i] - shift);
      total += weight;
      if (key < keys) {
        s.p[key * Shared<rows>::stride + g] =
            p.f16_products ? round_to<DType::f16>(weight) : round_to<DType::bf16>(weight);
      }
    }
    total = warp_sum(total);
    const float shrink = exp2f(before - shift);
    __syncwarp();  // every lane has read `before`
    if (lane == 0) {
      s.maximum[g] = after;
      s.sum[g] = s.sum[g] * shrink + total;
      s.shrink[g] = shrink;
    }
  }
}

/// P · V of one column a thread and `n` rows from `first` on.
template <DType type, int rows, int n>
__device__ void add_values(const AttendParams& p, std::int64_t start, int keys, int first,
                           float* out, const Shared<rows>& s) {
  constexpr int batch = 8;  // loads in flight
  for (int r = 0; r < n; ++r) out[r] *= s.shrink[first + r];
  const auto add = [&](int key, float value) {
    const float* weights = &s.p[key * Shared<rows>::stride + first];
#pragma unroll
    for (int r = 0; r < n; r += 4) {
      const float4 w = *reinterpret_cast<const float4*>(weights + r);
      out[r] = fmaf(w.x, value, out[r]);
      out[r + 1] = fmaf(w.y, value, out[r + 1]);
      out[r + 2] = fmaf(w.z, value, out[r + 2]);
      out[r + 3] = fmaf(w.w, value, out[r + 3]);
    }
  };
  int key = 0;
  for (; key + batch <= keys; key += batch) {
    float value[batch];
#pragma unroll
    for (int i = 0; i < batch; ++i) value[i] = load<type>(p.v.data, start + (key + i) * p.v.token);
#pragma unroll
    for (int i = 0; i < batch; ++i) add(key + i, value[i]);
  }
  for (; key < keys; ++key) add(key, load<type>(p.v.data, start + key * p.v.token));
}

/// out = Σ P · V / Σ P · v_scale, LSE = ln of the sum of exponentials. P is rounded and its sum is
/// not, so that the quotient may pass the largest V by a little; out's type may end there.
template <int rows, int n>
__device__ void write_rows(const AttendParams& p, std::int64_t token, std::int64_t head, int column,
                           int first, const float* out, const Shared<rows>& s) {
  const float v_scale = p.v_scale.value();
  const float most = largest_of(p.out_type == DType::f16);
#pragma unroll
  for (int r = 0; r < n; ++r) {
    if (first + r >= p.group) break;
    const float sum = s.sum[first + r];
    // Adding 0 leaves one sign of zero.
    const float x = sum == 0 ? 0.0f : out[r] * (1.0f / sum) * v_scale + 0.0f;
    const std::int64_t q_head = head * p.group + first + r;
    store(p.out_type, p.out, token * p.out_token + q_head * p.out_head + column,
          clamp_to_largest(x, most));
  }
  const int g = static_cast<int>(threadIdx.x);
  if (p.lse == nullptr || g >= p.group) return;
  const float log2_sum = s.sum[g] == 0 ? -INFINITY : s.maximum[g] + log2f(s.sum[g]);
  p.lse[token * p.lse_token + (head * p.group + g) * p.lse_head] =
      log2_sum * 0.69314718055994530942f;  // ln 2
}

/// 128 threads, or 256 where n = 8; each holds one key, then one column, of `n` rows.
template <DType type, int n>
__global__ __launch_bounds__(2 * page_size) void attend_kernel(const AttendParams p) {
  constexpr int rows = n == 8 ? max_group : n;
  __shared__ Shared<rows> s;
  const int lane = static_cast<int>(threadIdx.x) % page_size;  // key or column
  const int first = static_cast<int>(threadIdx.x) / page_size * n;
  for (std::int64_t item = blockIdx.x; item < p.items; item += gridDim.x) {
    const std::int64_t token = item / p.kv_heads, head = item % p.kv_heads;
    const RowPlace row = find_row(p.batch, token);
    const std::int64_t visible = p.causal ? row.visible : row.seq_len;
    collect_blocks(p, token, head, row, visible, s.list);
    load_queries(p, token, head, s);
    __syncthreads();
    float out[n] = {};
    for (int i = 0; i < s.list.count; ++i) {
      const std::int64_t page = s.list.page[i];
      const int keys = static_cast<int>(
          min(visible - std::int64_t{s.list.id[i]} * page_size, std::int64_t{page_size}));
      const std::int64_t key = page * p.k.page + head * p.k.head + lane * p.k.token;
      compute_logits<type, rows, n>(p, p.k.data + key * static_cast<std::int64_t>(size_of(type)),
                                    lane < keys, first, &s.p[lane * Shared<rows>::stride + first],
                                    s);
      __syncthreads();
      softmax_step(p, keys, s);
      __syncthreads();
      add_values<type, rows, n>(p, page * p.v.page + head * p.v.head + lane, keys, first, out, s);
      __syncthreads();
    }
    write_rows<rows, n>(p, token, head, lane, first, out, s);
    __syncthreads();
  }
}

bool is_aligned(const PagesView& k, DType type) {
  const auto size = static_cast<std::int64_t>(size_of(type));
  return (reinterpret_cast<std::uintptr_t>(k.data) | static_cast<std::uintptr_t>(k.page * size) |
          static_cast<std::uintptr_t>(k.head * size) |
          static_cast<std::uintptr_t>(k.token * size)) %
             16 ==
         0;
}

AttendParams::AttendParams(const AttendArgs& args)
    : q(args.q.data),
      q_type(args.q.dtype),
      q_token(args.q.stride[0]),
      q_head(args.q.stride[1]),
      k(args.kv_cache.k_view()),
      v(args.kv_cache.v_view()),
      pages(args.kv_cache.shape_view().shape[0]),
      kv_heads(args.kv_cache.shape_view().shape[1]),
      group(static_cast<int>(args.q.shape[1] / kv_heads)),
      selection(args.selection.ptr<std::int32_t>()),
      selection_token(args.selection.stride[0]),
      selection_list(args.selection.shape[1] == 1 ? 0 : args.selection.stride[1]),
      selection_slot(args.selection.stride[2]),
      topk(static_cast<int>(args.selection.shape[2])),
      batch(args.batch),
      out(args.out.data),
      out_type(args.out.dtype),
      out_token(args.out.stride[0]),
      out_head(args.out.stride[1]),
      lse(args.lse.given() ? args.lse.ptr<float>() : nullptr),
      lse_token(args.lse.stride[0]),
      lse_head(args.lse.stride[1]),
      softmax_scale(args.softmax_scale),
      k_scale(args.k_scale),
      v_scale(args.v_scale),
      causal(args.causal),
      rank(args.kv_shard.rank),
      world(args.kv_shard.world),
      items(args.batch.num_decode_tokens() * kv_heads) {
  const DType cache = args.kv_cache.shape_view().dtype;
  const DType product = size_of(cache) == 1 ? q_type : cache;
  f16_products = product == DType::f16;
  round_q = q_type == DType::f16 && product == DType::bf16;
  aligned = is_aligned(k, cache);
}

template <DType type>
void launch_attend(const AttendArgs& args) {
  const AttendParams params(args);
  if (params.group <= 4) {
    launch("attend", attend_kernel<type, 4>, params.items, page_size, args.stream, params);
  } else {
    const int threads = params.group <= 8 ? page_size : 2 * page_size;
    launch("attend", attend_kernel<type, 8>, params.items, threads, args.stream, params);
  }
}

void attend_decode(const AttendArgs& args) {
  switch (args.kv_cache.shape_view().dtype) {
    case DType::bf16:
      return launch_attend<DType::bf16>(args);
    case DType::f16:
      return launch_attend<DType::f16>(args);
    case DType::e4m3:
      return launch_attend<DType::e4m3>(args);
    default:
      return launch_attend<DType::e5m2>(args);
  }
}

}  // namespace

void attend(const AttendArgs& args) {
  if (args.batch.num_decodes > 0) attend_decode(args);
  if (args.batch.num_actual_tokens > args.batch.num_decode_tokens()) {
    prefill::attend(prefill_part(args));
  }
}

}  // namespace msa::cuda::portable
