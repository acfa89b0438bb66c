// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "api/c_call.h"
#include "msa/c_api.h"
#include "msa/layer.h"

/// \file
/// The engine's side of the C ABI: layouts.

namespace msa::c_api {
namespace {

/// One user's layouts; nothing = any.
std::optional<std::vector<KVLayout>> read_layouts(Reader& reader, const msa_kv_layout_list& given,
                                                  const std::string& name) {
  if (given.count == MSA_ANY_KV_LAYOUT) return std::nullopt;
  std::vector<KVLayout> layouts;
  if (given.count < 0) {
    reader.fail(name + ".count", cat("is ", given.count, "; allowed: 0 or more, or ",
                                     MSA_ANY_KV_LAYOUT, ", any layout"));
  }
  for (msa_kv_layout layout : reader.array(name + ".layouts", given.layouts, given.count)) {
    if (layout < MSA_LBHNC || layout > MSA_BHLNC) {
      reader.fail(name + ".layouts",
                  cat("holds ", layout, "; allowed: MSA_LBHNC to MSA_BHLNC, 0 to 5"));
    }
    layouts.push_back(static_cast<KVLayout>(layout));
  }
  return layouts;
}

void write_layouts(Reader& reader, const std::vector<KVLayout>& found, msa_kv_layout* layouts,
                   std::int64_t capacity, std::int64_t* count) {
  std::vector<msa_kv_layout> c;
  c.reserve(found.size());
  for (KVLayout layout : found) c.push_back(static_cast<msa_kv_layout>(layout));
  reader.write_array("layouts", std::span<const msa_kv_layout>(c), layouts, capacity, count);
}

}  // namespace
}  // namespace msa::c_api

using msa::cat;
using msa::c_api::guarded;
using msa::c_api::Reader;

extern "C" {

msa_status msa_negotiate_layouts(const msa_kv_layout_list* users, int64_t num_users,
                                 msa_kv_layout* layouts, int64_t capacity, int64_t* count) {
  return guarded([&] {
    Reader reader("negotiate_layouts");
    std::vector<std::optional<std::vector<msa::KVLayout>>> lists;
    if (reader.count("num_users", num_users)) {
      for (const msa_kv_layout_list& user : reader.array("users", users, num_users)) {
        const std::string name = cat("users[", lists.size(), "]");
        lists.push_back(msa::c_api::read_layouts(reader, user, name));
      }
    }
    // Of wrong lists nothing is negotiated: write_layouts refuses them with what else is wrong.
    msa::c_api::write_layouts(reader, msa::negotiate_layouts(lists), layouts, capacity, count);
  });
}

}  // extern "C"
