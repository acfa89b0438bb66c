// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>

#include "reference/decode.h"
#include "reference/reference.h"

namespace msa::reference {
namespace {

constexpr std::int64_t half_rotary = 32;  // element i is rotated with element i + 32

/// Gemma RMSNorm over the 128 elements, then the rotation of the first 64.
void norm_and_rotate(std::vector<double>& x, const ConstTensor& weight, double eps,
                     const double* cos_sin) {
  double squares = 0;
  for (double e : x) squares += e * e;
  const double inverse = 1 / std::sqrt(squares / head_dim + eps);
  for (std::int64_t d = 0; d < head_dim; ++d) {
    double w;
    load_row(weight, d * weight.stride[0], 1, &w);
    x[d] *= inverse * (1 + w);
  }
  for (std::int64_t i = 0; i < half_rotary; ++i) {
    const double a = x[i], b = x[i + half_rotary];
    const double cosine = cos_sin[i], sine = cos_sin[i + half_rotary];
    x[i] = a * cosine - b * sine;
    x[i + half_rotary] = b * cosine + a * sine;
  }
}

}  // namespace

WriteResult write_cache(const WriteCacheArgs& args) {
  const std::int64_t tokens = args.num_tokens, q_heads = args.q_out.shape[1];
  const std::int64_t kv_heads = args.kv_cache.shape_view().shape[1];
  const std::int64_t index_heads = args.index_q_out.given() ? args.index_q_out.shape[1] : 0;
  WriteResult result{std::vector<double>(tokens * q_heads * head_dim),
                     std::vector<double>(tokens * kv_heads * head_dim),
                     std::vector<double>(tokens * kv_heads * head_dim),
                     std::vector<double>(tokens * index_heads * head_dim),
                     std::vector<double>(index_heads > 0 ? tokens * head_dim : 0)};
  struct Part {
    std::vector<double>& to;
    std::int64_t heads;
    const ConstTensor* norm;  // none for v, which is kept as it is
  };
  const Part parts[] = {{result.q, q_heads, &args.q_norm},
                        {result.k, kv_heads, &args.k_norm},
                        {result.v, kv_heads, nullptr},
                        {result.index_q, index_heads, &args.index_q_norm},
                        {result.index_k, index_heads > 0 ? 1 : 0, &args.index_k_norm}};
  std::vector<double> x(head_dim), cos_sin(2 * half_rotary);
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::int64_t position;
    std::memcpy(&position, args.positions.ptr<std::int64_t>() + t * args.positions.stride[0],
                sizeof position);
    if (position < 0 || position >= args.cos_sin.shape[0]) continue;  // nothing of it is written
    load_row(args.cos_sin, position * args.cos_sin.stride[0], 2 * half_rotary, cos_sin.data());
    std::int64_t from = t * args.qkv.stride[0];
    for (const Part& part : parts) {
      for (std::int64_t h = 0; h < part.heads; ++h, from += head_dim) {
        load_row(args.qkv, from, head_dim, x.data());
        if (part.norm != nullptr) norm_and_rotate(x, *part.norm, args.norm_eps, cos_sin.data());
        std::copy(x.begin(), x.end(), part.to.begin() + (t * part.heads + h) * head_dim);
      }
    }
  }
  return result;
}

}  // namespace msa::reference
