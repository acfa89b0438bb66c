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
                         std::int64_t heads) {
  const bool flat = rows.rank == 2 && rows.shape[1] == heads * head_dim;
  const bool split = rows.rank == 3 && rows.shape[1] == heads && rows.shape[2] == head_dim;
  check.require(flat || split, argument,
                cat("has ", describe(rows), "; expected [rows, ", heads * head_dim, "] or [rows, ",
                    heads, ", ", head_dim, "]"));
  if (!flat) return rows;
  check.require(rows.stride[1] == 1, argument,
                cat("has last stride ", rows.stride[1], "; allowed: 1 (", describe(rows), ")"));
  return ConstTensor(rows.data, rows.dtype, {rows.shape[0], heads, head_dim},
                     {rows.stride[0], head_dim, 1}, rows.device);
}

}  // namespace msa
