// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/decode.h"
#include "reference/reference.h"

namespace msa::reference {

AttendResult merge_states(const MergeArgs& args) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const std::int64_t tokens = args.out_a.shape[0], heads = args.out_a.shape[1];
  AttendResult result{std::vector<double>(tokens * heads * head_dim),
                      std::vector<double>(tokens * heads)};
  std::vector<double> a(head_dim), b(head_dim);
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t h = 0; h < heads; ++h) {
      double la, lb;
      load_row(args.lse_a, t * args.lse_a.stride[0] + h * args.lse_a.stride[1], 1, &la);
      load_row(args.lse_b, t * args.lse_b.stride[0] + h * args.lse_b.stride[1], 1, &lb);
      load_row(args.out_a, t * args.out_a.stride[0] + h * args.out_a.stride[1], head_dim, a.data());
      load_row(args.out_b, t * args.out_b.stride[0] + h * args.out_b.stride[1], head_dim, b.data());
      const double largest = std::max(la, lb);
      const double wa = std::exp(la - largest), wb = std::exp(lb - largest);
      double* out = result.out.data() + (t * heads + h) * head_dim;
      double& lse = result.lse[t * heads + h];
      if (la == -infinity && lb == -infinity) {
        lse = -infinity;  // no key on either side: a row of zeros
      } else if (la == -infinity) {
        std::copy(b.begin(), b.end(), out);
        lse = lb;
      } else if (lb == -infinity) {
        std::copy(a.begin(), a.end(), out);
        lse = la;
      } else {
        for (std::int64_t d = 0; d < head_dim; ++d) out[d] = (wa * a[d] + wb * b[d]) / (wa + wb);
        lse = largest + std::log(wa + wb);
      }
    }
  }
  return result;
}

}  // namespace msa::reference
