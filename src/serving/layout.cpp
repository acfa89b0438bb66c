// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "api/check.h"
#include "msa/layer.h"

namespace msa {
namespace {

bool contains(std::span<const KVLayout> layouts, KVLayout layout) {
  return std::find(layouts.begin(), layouts.end(), layout) != layouts.end();
}

}  // namespace

std::vector<KVLayout> negotiate_layouts(
    std::span<const std::optional<std::vector<KVLayout>>> users) {
  const auto has_list = [](const auto& user) { return user.has_value(); };
  const auto first = std::find_if(users.begin(), users.end(), has_list);
  const std::span<const KVLayout> preferred =
      first == users.end() ? std::span<const KVLayout>(all_kv_layouts) : std::span(**first);
  std::vector<KVLayout> common;
  for (KVLayout layout : preferred) {
    const bool accepted = std::all_of(users.begin(), users.end(), [&](const auto& user) {
      return !user.has_value() || contains(*user, layout);
    });
    if (accepted && !contains(common, layout)) common.push_back(layout);
  }
  return common;
}

const char* SparseBackend::name() { return "MSA_SPARSE"; }

std::vector<KVLayout> SparseBackend::supported_kv_cache_layouts(int /*arch*/) {
  // Head-major first: a (page, head) tile is then one contiguous run of memory on every device.
  return {all_kv_layouts.begin(), all_kv_layouts.end()};
}

bool SparseBackend::supports_kv_cache_dtype(const std::string& dtype) {
  const auto type = parse_dtype(dtype);
  return type == DType::bf16 || type == DType::f16 || type == DType::e4m3 || type == DType::e5m2;
}

std::vector<int> SparseBackend::supported_block_sizes() { return {page_size}; }

void SparseBackend::check_block_size(std::int64_t block_size) {
  Checker check("SparseBackend");
  check.require(block_size == page_size, "block_size", "is ", block_size,
                " tokens a page; allowed: ", page_size, ", the size of a selectable block");
  check.raise();
}

std::array<std::int64_t, 4> SparseBackend::kv_cache_shape(std::int64_t pages,
                                                          std::int64_t kv_heads) {
  Checker check("SparseBackend");
  check.require(pages >= 0, "pages", "is ", pages, "; allowed: 0 or more");
  check.require(kv_heads >= 1, "kv_heads", "is ", kv_heads, "; allowed: 1 or more");
  check.raise();
  return {pages, kv_heads, page_size, 2 * head_dim};
}

}  // namespace msa
