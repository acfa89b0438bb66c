// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "msa/write_cache.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "api/dispatch.h"

namespace msa {
namespace {

constexpr std::int64_t max_int32 = std::numeric_limits<std::int32_t>::max();

constexpr DTypes activation_types = {DType::bf16, DType::f16};
constexpr DTypes weight_types = {DType::bf16, DType::f16, DType::f32};

/// One i64 number a token.
void check_per_token(Checker& check, const char* argument, const ConstTensor& t,
                     std::int64_t tokens) {
  check.tensor(argument, t,
               {.dtypes = {DType::i64},
                .extents = {Extent::at_least("T", tokens)},
                .dense_last = true,
                .touched = tokens > 0});
}

void check_index_cache(Checker& check, const Tensor& cache) {
  const bool ok = check.tensor(
      "index_cache", cache,
      {.dtypes = {DType::bf16, DType::e4m3},
       .extents = {Extent::any("pages"), Extent::any("128"), Extent::exactly("128", head_dim)},
       .dense_last = true,
       .output = true});
  if (ok) {
    check.require(cache.shape[1] == page_size, "index_cache", "has pages of ", cache.shape[1],
                  " tokens; allowed: ", page_size, " (", describe(cache), ")");
  }
}

bool has_index(const WriteCacheArgs& a) {
  return a.index_q_out.given() || a.index_cache.given() || a.index_slot_mapping.given() ||
         a.index_q_norm.given() || a.index_k_norm.given();
}

void check_weights(Checker& check, const WriteCacheArgs& a, bool with_index) {
  const auto weight = [&](const char* argument, const ConstTensor& t) {
    check.tensor(argument, t,
                 {.dtypes = weight_types,
                  .extents = {Extent::exactly("128", head_dim)},
                  .dense_last = true});
  };
  weight("q_norm", a.q_norm);
  weight("k_norm", a.k_norm);
  if (with_index) {
    weight("index_q_norm", a.index_q_norm);
    weight("index_k_norm", a.index_k_norm);
  }
  check.require(std::isfinite(a.norm_eps) && a.norm_eps >= 0, "norm_eps", "is ", a.norm_eps,
                "; allowed: a finite number, at least 0");
  check.tensor("cos_sin", a.cos_sin,
               {.dtypes = weight_types,
                .extents = {Extent::any("max_pos"), Extent::exactly("64", 64)},
                .dense_last = true});
}

void check_outputs(Checker& check, const WriteCacheArgs& a, bool with_index) {
  const auto rows = [&](const char* argument, const Tensor& t, const char* heads,
                        const DTypes& types) {
    return check.tensor(argument, t,
                        {.dtypes = types,
                         .extents = {Extent::at_least("T", a.num_tokens),
                                     Extent::at_least(heads, 1), Extent::exactly("128", head_dim)},
                         .dense_last = true,
                         .output = true,
                         .touched = a.num_tokens > 0});
  };
  const bool known = a.qkv.dtype == DType::bf16 || a.qkv.dtype == DType::f16;
  const DTypes own = known ? DTypes{a.qkv.dtype} : activation_types;
  rows("q_out", a.q_out, "Hq", own);
  if (!with_index) return;
  DTypes index_types = own;
  if (std::find(own.begin(), own.end(), a.index_cache.dtype) == own.end()) {
    index_types.push_back(a.index_cache.dtype);
  }
  if (rows("index_q_out", a.index_q_out, "Hi", index_types)) {
    check.range("index_q_out.Hi", a.index_q_out.shape[1], 1, max_index_heads);
  }
  check_index_cache(check, a.index_cache);
  check_per_token(check, "index_slot_mapping", a.index_slot_mapping, a.num_tokens);
}

/// Columns of qkv; nothing where they leave 63 bits.
std::optional<std::int64_t> qkv_width(std::int64_t q_heads, std::int64_t kv_heads,
                                      std::int64_t index_heads) {
  std::int64_t heads = 0, width = 0;
  if (__builtin_mul_overflow(kv_heads, 2, &heads) ||
      __builtin_add_overflow(heads, q_heads, &heads) ||
      (index_heads > 0 && (__builtin_add_overflow(heads, index_heads, &heads) ||
                           __builtin_add_overflow(heads, 1, &heads))) ||
      __builtin_mul_overflow(heads, head_dim, &width)) {
    return std::nullopt;
  }
  return width;
}

void validate(Checker& check, const WriteCacheArgs& a) {
  check.range("num_tokens", a.num_tokens, 0, max_int32);
  const bool with_index = has_index(a);
  const std::int64_t kv_heads = check_kv_cache(check, ConstKVCache(a.kv_cache), true);
  check_outputs(check, a, with_index);
  const std::int64_t q_heads = a.q_out.rank == 3 ? a.q_out.shape[1] : 0;
  const std::int64_t index_heads =
      with_index && a.index_q_out.rank == 3 ? a.index_q_out.shape[1] : 0;
  const bool widths_known = kv_heads > 0 && q_heads > 0 && (!with_index || index_heads > 0);
  const std::optional<std::int64_t> width =
      widths_known ? qkv_width(q_heads, kv_heads, index_heads) : std::nullopt;
  check.require(!widths_known || width.has_value(), "q_out", "has ", q_heads, " heads beside ",
                kv_heads, " KV heads and ", index_heads,
                " index heads; allowed: as many as make fewer than 2^63 columns of qkv");
  check.tensor(
      "qkv", a.qkv,
      {.dtypes = activation_types,
       .extents = {Extent::at_least("T", a.num_tokens),
                   width ? Extent::exactly("(Hq + 2·Hkv + (Hi > 0 ? Hi + 1 : 0))·128", *width)
                         : Extent::any("(Hq + 2·Hkv + (Hi > 0 ? Hi + 1 : 0))·128")},
       .dense_last = true,
       .touched = a.num_tokens > 0});
  check_per_token(check, "positions", a.positions, a.num_tokens);
  check_per_token(check, "slot_mapping", a.slot_mapping, a.num_tokens);
  check_weights(check, a, with_index);
  check.scale("k_scale", a.k_scale);
  check.scale("v_scale", a.v_scale);
  check.placement({{"qkv", a.qkv},
                   {"positions", a.positions},
                   {"cos_sin", a.cos_sin},
                   {"q_norm", a.q_norm},
                   {"k_norm", a.k_norm},
                   {"index_q_norm", a.index_q_norm},
                   {"index_k_norm", a.index_k_norm},
                   {"slot_mapping", a.slot_mapping},
                   {"index_slot_mapping", a.index_slot_mapping},
                   {"k_scale", a.k_scale.tensor},
                   {"v_scale", a.v_scale.tensor}},
                  {{"q_out", a.q_out},
                   {"kv_cache", a.kv_cache.packed},
                   {"v_cache", a.kv_cache.v},
                   {"k_cache", a.kv_cache.k},
                   {"index_q_out", a.index_q_out},
                   {"index_cache", a.index_cache}});
}

void validate(Checker& check, const InsertCacheArgs& a) {
  check.range("num_tokens", a.num_tokens, 0, max_int32);
  const bool main =
      a.k.given() || a.v.given() || a.slot_mapping.given() || a.kv_cache.shape_view().given();
  const bool index = a.index_k.given() || a.index_slot_mapping.given() || a.index_cache.given();
  check.require(main || index, "kv_cache",
                "and 'index_cache' are both missing; allowed: either part or both");
  if (main) {
    const std::int64_t kv_heads = check_kv_cache(check, ConstKVCache(a.kv_cache), true);
    const Extent heads = kv_heads > 0 ? Extent::exactly("Hkv", kv_heads) : Extent::any("Hkv");
    const auto rows = [&](const char* argument, const ConstTensor& t) {
      check.tensor(argument, t,
                   {.dtypes = activation_types,
                    .extents = {Extent::at_least("T", a.num_tokens), heads,
                                Extent::exactly("128", head_dim)},
                    .dense_last = true,
                    .touched = a.num_tokens > 0});
    };
    rows("k", a.k);
    rows("v", a.v);
    const auto allowed = [](DType type) { return type == DType::bf16 || type == DType::f16; };
    const bool both = a.k.given() && allowed(a.k.dtype) && a.v.given() && allowed(a.v.dtype);
    check.require(!both || a.k.dtype == a.v.dtype, "v", "has dtype ", name(a.v.dtype),
                  "; expected k's, ", name(a.k.dtype));
    check_per_token(check, "slot_mapping", a.slot_mapping, a.num_tokens);
  }
  if (index) {
    check_index_cache(check, a.index_cache);
    check.tensor(
        "index_k", a.index_k,
        {.dtypes = activation_types,
         .extents = {Extent::at_least("T", a.num_tokens), Extent::exactly("128", head_dim)},
         .dense_last = true,
         .touched = a.num_tokens > 0});
    check_per_token(check, "index_slot_mapping", a.index_slot_mapping, a.num_tokens);
  }
  check.scale("k_scale", a.k_scale);
  check.scale("v_scale", a.v_scale);
  check.placement({{"k", a.k},
                   {"v", a.v},
                   {"slot_mapping", a.slot_mapping},
                   {"index_k", a.index_k},
                   {"index_slot_mapping", a.index_slot_mapping},
                   {"k_scale", a.k_scale.tensor},
                   {"v_scale", a.v_scale.tensor}},
                  {{"kv_cache", a.kv_cache.packed},
                   {"v_cache", a.kv_cache.v},
                   {"k_cache", a.kv_cache.k},
                   {"index_cache", a.index_cache}});
}

/// MSA_CHECK=1: slots in range and named once.
void check_slots(Checker& check, HostReader& host, const char* argument, const ConstTensor& given,
                 std::int64_t tokens, std::int64_t pages) {
  if (!given.given() || !host.reads(given.device)) return;
  const ConstTensor slots = host.read(given, tokens);
  std::vector<std::int64_t> used;
  int reported = 0;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t slot = slots.ptr<std::int64_t>()[t];
    if (slot >= pages * page_size && ++reported <= 4) {
      check.fail(argument, cat("holds slot ", slot, " for token ", t, "; allowed: below pages · ",
                               page_size, " = ", pages * page_size));
    }
    if (slot >= 0) used.push_back(slot);
  }
  std::sort(used.begin(), used.end());
  const auto twice = std::adjacent_find(used.begin(), used.end());
  if (twice != used.end()) check.fail(argument, cat("names slot ", *twice, " twice"));
}

void check_memory(Checker& check, const WriteCacheArgs& a, HostReader& host) {
  if (!host.reads(a.qkv.device)) return;
  check_slots(check, host, "slot_mapping", a.slot_mapping, a.num_tokens,
              a.kv_cache.shape_view().shape[0]);
  check_slots(check, host, "index_slot_mapping", a.index_slot_mapping, a.num_tokens,
              a.index_cache.shape[0]);
  const ConstTensor positions = host.read(a.positions, a.num_tokens);
  int reported = 0;
  for (std::int64_t t = 0; t < a.num_tokens; ++t) {
    const std::int64_t position = positions.ptr<std::int64_t>()[t];
    if ((position < 0 || position >= a.cos_sin.shape[0]) && ++reported <= 4) {
      check.fail("positions", cat("holds ", position, " for token ", t,
                                  "; allowed: 0 to max_pos − 1 = ", a.cos_sin.shape[0] - 1));
    }
  }
  check_factor(check, host, "k_scale", a.k_scale);
  check_factor(check, host, "v_scale", a.v_scale);
}

void check_memory(Checker& check, const InsertCacheArgs& a, HostReader& host) {
  check_slots(check, host, "slot_mapping", a.slot_mapping, a.num_tokens,
              a.kv_cache.shape_view().shape[0]);
  check_slots(check, host, "index_slot_mapping", a.index_slot_mapping, a.num_tokens,
              a.index_cache.shape[0]);
  check_factor(check, host, "k_scale", a.k_scale);
  check_factor(check, host, "v_scale", a.v_scale);
}

}  // namespace

void check_call(const WriteCacheArgs& args) {
  check_call("write_cache", args, validate, check_memory);
}

void write_cache(const WriteCacheArgs& args) { call("write_cache", args, validate, check_memory); }
void insert_cache(const InsertCacheArgs& args) {
  call("insert_cache", args, validate, check_memory);
}

}  // namespace msa
