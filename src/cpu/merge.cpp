// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/isa.h"
#include "cpu/operators.h"
#include "cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/merge.cpp"
#include "hwy/foreach_target.h"
// Each target's copy of the vector code comes after foreach_target.h.
#include "cpu/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace msa::cpu::HWY_NAMESPACE {

/// out = a · weight_a + b · weight_b of one row of 128 elements; `out` may be `a` or `b`.
void merge_row(DType type, const void* a, const void* b, void* out, float weight_a,
               float weight_b) {
  with_dtype(type, [&](auto t) {
    using T = Storage<t.value>;
    const F32 df;
    for (std::int64_t d = 0; d < row_elements; d += hn::MaxLanes(df)) {
      const VF from_b =
          hn::Mul(load_f32<t.value>(static_cast<const T*>(b) + d), hn::Set(df, weight_b));
      const VF x = hn::MulAdd(load_f32<t.value>(static_cast<const T*>(a) + d),
                              hn::Set(df, weight_a), from_b);
      store_f32<t.value>(x, static_cast<T*>(out) + d);
    }
  });
}

}  // namespace msa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace msa::cpu {
namespace {

using MergeRow = void(DType type, const void* a, const void* b, void* out, float weight_a,
                      float weight_b);

constexpr float infinity = std::numeric_limits<float>::infinity();

const char* row_of(const ConstTensor& t, std::int64_t token, std::int64_t head) {
  return static_cast<const char*>(t.data) +
         (token * t.stride[0] + head * t.stride[1]) * static_cast<std::int64_t>(size_of(t.dtype));
}

float lse_at(const ConstTensor& t, std::int64_t token, std::int64_t head) {
  return t.ptr<float>()[token * t.stride[0] + head * t.stride[1]];
}

/// Merges one row; the sides' LSEs are read before anything is written, as `lse` may be one of
/// them.
void merge_one(const MergeArgs& args, MergeRow* merge_row, std::int64_t token, std::int64_t head) {
  const float a = lse_at(args.lse_a, token, head);
  const float b = lse_at(args.lse_b, token, head);
  const char* const from_a = row_of(args.out_a, token, head);
  const char* const from_b = row_of(args.out_b, token, head);
  char* const out = const_cast<char*>(row_of(args.out, token, head));
  float& lse = args.lse.ptr<float>()[token * args.lse.stride[0] + head * args.lse.stride[1]];
  const std::size_t bytes = head_dim * size_of(args.out.dtype);

  if (a == -infinity && b == -infinity) {
    std::memset(out, 0, bytes);
    lse = -infinity;
  } else if (a == -infinity || b == -infinity) {
    std::memmove(out, a == -infinity ? from_b : from_a, bytes);
    lse = a == -infinity ? b : a;
  } else {
    // f64 for the few numbers of a row: weights that add up to 1 within an f32 ulp. A NaN on either
    // side makes both weights NaN.
    const double largest = a > b ? a : b;
    const double exp_a = std::exp(a - largest);
    const double exp_b = std::exp(b - largest);
    const double sum = exp_a + exp_b;
    merge_row(args.out.dtype, from_a, from_b, out, static_cast<float>(exp_a / sum),
              static_cast<float>(exp_b / sum));
    lse = static_cast<float>(largest + std::log(sum));
  }
}

}  // namespace

void merge_states(const MergeArgs& args) {
  const std::int64_t heads = args.out.shape[1];
  MergeRow* const merge_row = MSA_CPU_CHOOSE(merge_row);
  // A row costs tens of nanoseconds: a task takes enough of them to be worth handing out.
  constexpr std::int64_t rows_per_task = 512;
  const std::int64_t rows = args.out.shape[0] * heads;
  parallel_for((rows + rows_per_task - 1) / rows_per_task, [&](std::int64_t task) {
    const std::int64_t end = std::min(rows, (task + 1) * rows_per_task);
    for (std::int64_t r = task * rows_per_task; r < end; ++r) {
      merge_one(args, merge_row, r / heads, r % heads);
    }
  });
}

}  // namespace msa::cpu
#endif  // HWY_ONCE
