// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "serving/forward.h"

namespace msa {

const SparseMetadata* find_metadata(const char* call, const LayerContext& layer,
                                    const ForwardContext& context) {
  if (context.metadata == nullptr) return nullptr;
  const auto found = context.metadata->find(layer.name);
  if (found != context.metadata->end()) return &found->second;
  std::string known;
  for (const auto& entry : *context.metadata) {
    known += (known.empty() ? "'" : ", '") + entry.first + "'";
  }
  Checker check(call);
  check.fail("layer",
             cat("is named '", layer.name, "', which has no metadata in this step; allowed: ",
                 known.empty() ? "none, the step's metadata is empty" : known));
  check.raise();
  return nullptr;
}

ConstTensor view_by_head(Checker& check, const char* argument, const ConstTensor& rows,
                         const HeadRows& rule) {
  const bool split = rows.rank == 3;
  const std::string flat_label = cat(rule.heads_label, "·128");
  Extents extents = {Extent::at_least("T", rule.tokens)};
  if (split) {
    extents.push_back(Extent::exactly(rule.heads_label, rule.heads));
    extents.push_back(Extent::exactly("128", head_dim));
  } else {
    extents.push_back(Extent::exactly(flat_label.c_str(), rule.heads * head_dim));
  }
  const std::size_t failures = check.count();
  check.tensor(argument, rows,
               {.dtypes = rule.dtypes,
                .extents = extents,
                .dense_last = true,
                .output = rule.output,
                .touched = rule.tokens > 0});
  if (check.count() > failures) check.settle(argument);
  if (split || rows.rank != 2) return rows;
  return ConstTensor(rows.data, rows.dtype, {rows.shape[0], rule.heads, head_dim},
                     {rows.stride[0], head_dim, 1}, rows.device);
}

}  // namespace msa
