// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/write_cache_kernel.h"

#include <algorithm>
#include <array>

#include "common/step.h"
#include "cpu/operators.h"
#include "cpu/parallel.h"

namespace msa::cpu {
namespace {

float value_of(const Scale& scale) {
  return scale.tensor.given() ? *scale.tensor.ptr<float>() : scale.value;
}

/// Address of an element.
const char* at(const ConstTensor& t, std::int64_t element) {
  return t.ptr<char>() + element * static_cast<std::int64_t>(size_of(t.dtype));
}
char* at(const Tensor& t, std::int64_t element) {
  return t.ptr<char>() + element * static_cast<std::int64_t>(size_of(t.dtype));
}

/// Where a token lies in a paged cache.
struct Slot {
  std::int64_t page = -1;  // −1: the token is not written
  std::int64_t offset = 0;
};

Slot slot_of(const ConstTensor& mapping, std::int64_t token, std::int64_t pages) {
  const std::int64_t slot = mapping.ptr<std::int64_t>()[token * mapping.stride[0]];
  if (slot < 0 || slot / page_size >= pages) return {};
  return {slot / page_size, slot % page_size};
}

/// One token's heads, side by side in memory or not, through the kernel.
class Writer {
 public:
  explicit Writer(const float* cos_sin = nullptr) : kernels_(write_kernels()), cos_sin_(cos_sin) {}

  /// Heads of a `[pages, heads, 128, 128]` view at a slot.
  void to_cache(const HeadRule& rule, const char* from, std::int64_t head_bytes,
                const Tensor& cache, const Slot& slot) const {
    const std::int64_t start = slot.page * cache.stride[0] + slot.offset * cache.stride[2];
    for (std::int64_t h = 0; h < cache.shape[1]; ++h) {
      kernels_.write_head(rule, from + h * head_bytes, cos_sin_,
                          at(cache, start + h * cache.stride[1]));
    }
  }

  /// The head of a `[pages, 128, 128]` view at a slot.
  void to_index_cache(const HeadRule& rule, const char* from, const Tensor& cache,
                      const Slot& slot) const {
    const std::int64_t start = slot.page * cache.stride[0] + slot.offset * cache.stride[1];
    kernels_.write_head(rule, from, cos_sin_, at(cache, start));
  }

  /// Row `token` of `[T, heads, 128]`.
  void to_rows(const HeadRule& rule, const char* from, std::int64_t head_bytes, const Tensor& rows,
               std::int64_t token) const {
    for (std::int64_t h = 0; h < rows.shape[1]; ++h) {
      kernels_.write_head(rule, from + h * head_bytes, cos_sin_,
                          at(rows, token * rows.stride[0] + h * rows.stride[1]));
    }
  }

 private:
  WriteKernels kernels_;
  const float* cos_sin_;
};

/// Runs body(token) for all tokens, several a task.
template <class Body>
void for_tokens(std::int64_t tokens, Body&& body) {
  const std::int64_t shares = std::int64_t{8} * num_threads();  // several a thread, to even out
  const std::int64_t step = std::clamp<std::int64_t>(tokens / shares, 1, 64);
  parallel_for((tokens + step - 1) / step, [&](std::int64_t task) {
    const std::int64_t end = std::min((task + 1) * step, tokens);
    for (std::int64_t t = task * step; t < end; ++t) body(t);
  });
}

/// 1 + w of a norm.
using NormWeight = std::array<float, head_dim>;

NormWeight norm_weight(const ConstTensor& w) {
  NormWeight weight{};
  if (!w.given()) return weight;
  write_kernels().load(w.dtype, w.data, head_dim, weight.data());
  for (float& x : weight) x = 1.0f + x;
  return weight;
}

/// write_cache: what is the same for all tokens.
class CacheWrite {
 public:
  explicit CacheWrite(const WriteCacheArgs& args)
      : args_(args),
        k_view_(args.kv_cache.k_view()),
        v_view_(args.kv_cache.v_view()),
        index_heads_(args.index_q_out.given() ? args.index_q_out.shape[1] : 0),
        weights_{norm_weight(args.q_norm), norm_weight(args.k_norm), norm_weight(args.index_q_norm),
                 norm_weight(args.index_k_norm)} {
    const DType from = args.qkv.dtype;
    const double eps = args.norm_eps;
    q_ = {from, args.q_out.dtype, 1.0f, weights_[0].data(), eps};
    k_ = {from, k_view_.dtype, value_of(args.k_scale), weights_[1].data(), eps};
    v_ = {from, v_view_.dtype, value_of(args.v_scale), nullptr, eps};
    index_q_ = {from, args.index_q_out.dtype, 1.0f, weights_[2].data(), eps};
    index_k_ = {from, args.index_cache.dtype, 1.0f, weights_[3].data(), eps};
  }
  CacheWrite(const CacheWrite&) = delete;
  CacheWrite& operator=(const CacheWrite&) = delete;

  void write(std::int64_t token) const {
    const WriteCacheArgs& a = args_;
    const std::int64_t position = a.positions.ptr<std::int64_t>()[token * a.positions.stride[0]];
    if (position < 0 || position >= a.cos_sin.shape[0]) return;
    float cos_sin[2 * half_rotary];
    write_kernels().load(a.cos_sin.dtype, at(a.cos_sin, position * a.cos_sin.stride[0]),
                         2 * half_rotary, cos_sin);
    const Writer writer(cos_sin);
    const auto head = static_cast<std::int64_t>(head_dim * size_of(a.qkv.dtype));
    const char* from = at(a.qkv, token * a.qkv.stride[0]);
    writer.to_rows(q_, from, head, a.q_out, token);
    from += a.q_out.shape[1] * head;
    const Slot slot = slot_of(a.slot_mapping, token, k_view_.shape[0]);
    if (slot.page >= 0) {
      writer.to_cache(k_, from, head, k_view_, slot);
      writer.to_cache(v_, from + k_view_.shape[1] * head, head, v_view_, slot);
    }
    from += 2 * k_view_.shape[1] * head;
    if (index_heads_ == 0) return;
    writer.to_rows(index_q_, from, head, a.index_q_out, token);
    const Slot index_slot = slot_of(a.index_slot_mapping, token, a.index_cache.shape[0]);
    if (index_slot.page >= 0) {
      writer.to_index_cache(index_k_, from + index_heads_ * head, a.index_cache, index_slot);
    }
  }

 private:
  const WriteCacheArgs& args_;
  const Tensor k_view_;
  const Tensor v_view_;
  const std::int64_t index_heads_;
  const std::array<NormWeight, 4> weights_;
  HeadRule q_, k_, v_, index_q_, index_k_;
};

}  // namespace

void write_cache(const WriteCacheArgs& args) {
  const CacheWrite call(args);
  for_tokens(args.num_tokens, [&](std::int64_t token) { call.write(token); });
}

void insert_cache(const InsertCacheArgs& args) {
  const Tensor k_view = args.kv_cache.k_view(), v_view = args.kv_cache.v_view();
  const HeadRule k{args.k.dtype, k_view.dtype, value_of(args.k_scale)};
  const HeadRule v{args.v.dtype, v_view.dtype, value_of(args.v_scale)};
  const HeadRule index_k{args.index_k.dtype, args.index_cache.dtype};
  const Writer writer;
  const std::int64_t k_head = step_bytes(args.k, 1), v_head = step_bytes(args.v, 1);
  for_tokens(args.num_tokens, [&](std::int64_t t) {
    if (k_view.given()) {
      const Slot slot = slot_of(args.slot_mapping, t, k_view.shape[0]);
      if (slot.page >= 0) {
        writer.to_cache(k, at(args.k, t * args.k.stride[0]), k_head, k_view, slot);
        writer.to_cache(v, at(args.v, t * args.v.stride[0]), v_head, v_view, slot);
      }
    }
    if (args.index_cache.given()) {
      const Slot slot = slot_of(args.index_slot_mapping, t, args.index_cache.shape[0]);
      if (slot.page >= 0) {
        writer.to_index_cache(index_k, at(args.index_k, t * args.index_k.stride[0]),
                              args.index_cache, slot);
      }
    }
  });
}

}  // namespace msa::cpu
