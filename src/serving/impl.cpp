// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "api/dispatch.h"
#include "common/numeric.h"
#include "serving/forward.h"

namespace msa {
namespace {

constexpr const char* call_name = "SparseImpl::forward";
constexpr std::int64_t max_int32 = std::numeric_limits<std::int32_t>::max();

/// The cache under the type that the layer was made for: fp8 caches arrive as bytes. One of another
/// type or number of heads is reported here, and given on with them set right, so that attend
/// speaks of the rest alone.
ConstTensor typed_cache(Checker& check, ConstTensor cache, const SparseImpl::Config& config) {
  if (!cache.given()) return cache;
  const DType wanted = config.kv_cache_dtype;
  const bool bytes = cache.dtype == DType::u8 && is_fp8(wanted);
  if (!check.require(bytes || cache.dtype == wanted, "kv_cache", "has dtype ", name(cache.dtype),
                     "; allowed: ", name(wanted), is_fp8(wanted) ? " or u8" : "", " (",
                     describe(cache), ")")) {
    cache.dtype = size_of(cache.dtype) > 1 ? DType::bf16 : DType::e4m3;  // no wider than it is
  } else if (bytes) {
    cache.dtype = wanted;
  }
  if (!check.require(cache.rank != 4 || cache.shape[1] == config.num_kv_heads, "kv_cache", "has ",
                     cache.shape[1], " heads; allowed: num_kv_heads = ", config.num_kv_heads, " (",
                     describe(cache), ")")) {
    cache.shape[1] = config.num_kv_heads;
    cache.stride[1] = 0;
  }
  return cache;
}

/// The whole step as one call of attend: decode rows [0, nd), prefill rows [nd, T).
AttendArgs attend_args(Checker& check, const SparseImpl::Config& config,
                       const SparseMetadata& metadata, const LayerContext& layer,
                       const ConstTensor& query, const ConstTensor& kv_cache, const Tensor& output,
                       const ForwardContext& context) {
  check.show_as("q", "query");
  check.show_as("out", "output");
  check.show_as("selection", "topk_indices");
  const std::int64_t tokens = metadata.batch.num_actual_tokens;
  HeadRows rule{{DType::bf16, DType::f16}, tokens, "Hq", config.num_heads};
  AttendArgs args;
  args.q = view_by_head(check, "q", query, rule);
  rule.output = true;
  const ConstTensor out = view_by_head(check, "out", output, rule);
  args.out = Tensor(output.data, out.dtype, out.shape, out.stride, out.device);
  args.out.rank = out.rank;
  args.kv_cache = typed_cache(check, kv_cache, config);
  args.selection = layer.topk_indices;
  args.batch = metadata.batch;
  args.softmax_scale = config.scale;
  if (is_fp8(config.kv_cache_dtype)) {
    args.k_scale = layer.k_scale;
    args.v_scale = layer.v_scale;
  }
  args.invariant = config.invariant;
  args.workspace_cap = context.workspace_cap;
  args.workspace = context.workspace;
  args.stream = context.stream;
  return args;
}

}  // namespace

SparseImpl::SparseImpl(const Config& config) : config_(config) {
  Checker check("SparseImpl");
  const bool q_ok = check.range("num_heads", config.num_heads, 1, max_int32);
  const bool kv_ok = check.range("num_kv_heads", config.num_kv_heads, 1, max_int32);
  if (q_ok && kv_ok) {
    check.require(config.num_heads % config.num_kv_heads == 0 &&
                      config.num_heads / config.num_kv_heads <= max_group,
                  "num_heads", "is ", config.num_heads, "; allowed: 1 to ", max_group,
                  " times num_kv_heads, ", config.num_kv_heads);
  }
  check.require(std::isfinite(config.scale), "scale", "is ", config.scale,
                "; allowed: a finite number");
  check.require(SparseBackend::supports_kv_cache_dtype(msa::name(config.kv_cache_dtype)),
                "kv_cache_dtype", "is ", msa::name(config.kv_cache_dtype),
                "; allowed: bf16, f16, e4m3, e5m2");
  check.raise();
}

Tensor SparseImpl::forward(const LayerContext& layer, const ConstTensor& query,
                           const Tensor& kv_cache, const Tensor& output,
                           const ForwardContext& context) const {
  if (const SparseMetadata* metadata = find_metadata(call_name, layer, context)) {
    Checker check(call_name);
    attend(check, attend_args(check, config_, *metadata, layer, query, kv_cache, output, context));
  }
  return output;
}

std::size_t SparseImpl::workspace_size(const LayerContext& layer, const ConstTensor& query,
                                       const Tensor& kv_cache, const Tensor& output,
                                       const ForwardContext& context) const {
  const SparseMetadata* metadata = find_metadata(call_name, layer, context);
  if (metadata == nullptr) return 0;
  Checker check(call_name, Scope::shapes);
  return msa::workspace_size(
      check, attend_args(check, config_, *metadata, layer, query, kv_cache, output, context));
}

}  // namespace msa
