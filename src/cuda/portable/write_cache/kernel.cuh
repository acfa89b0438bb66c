// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/dependency.cuh"
#include "cuda/common/pack.cuh"
#include "cuda/common/warp.cuh"
#include "cuda/portable/write_cache/params.h"

/// \file
/// The kernel of write_cache and insert_cache. The heads of one part and of two neighbouring tokens
/// stand in one sequence; a warp owns two neighbours in it, a team of 16 lanes each, and takes them
/// of one pair of tokens after the other: where the heads come from and go to, and their norm, is
/// found once. It asks for the next tokens' before it works on those at hand.

namespace msa::cuda::portable {

inline constexpr int team_lanes = 16;
inline constexpr int write_warps = 8;
inline constexpr int write_threads = write_warps * warp_size;
inline constexpr int half_rotary = 32;

/// A lane has elements first_element() to first_element() + 3 and those 32 further on: in the
/// rotated half of a head these are the two elements of four pairs.
__device__ inline int first_element(int lane) {
  return lane < team_lanes / 2 ? 4 * lane : half_rotary + 4 * lane;
}

/// The thread's place in its team.
__device__ inline int team_lane() { return static_cast<int>(threadIdx.x) % team_lanes; }

/// Sum over a team, the same in each of its lanes. All lanes of the warp take part.
template <class T>
__device__ inline T team_sum(T x) {
  for (int lanes = team_lanes / 2; lanes > 0; lanes /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, lanes);
  }
  return x;
}

/// A lane's elements of a head, or of something as long.
struct LaneHead {
  float low[4], high[4];  // from first_element() on, from 32 further on
};

/// The norm's factor 1 / sqrt(mean square + eps) in two steps, as heads of tiny elements may need
/// one past f32's largest number.
struct NormFactor {
  float first = 1, second = 1;
};

/// A mean square that f32 holds well: no square in it has overflowed, and what vanished is too
/// little to matter.
__device__ inline bool is_usual(float mean_square) {
  return mean_square >= 0x1p-100f && mean_square <= 0x1p100f;
}

/// The mean square in f64, for heads whose elements are as large or small as bf16 allows.
static __device__ __noinline__ NormFactor unusual_factor(LaneHead head, float eps) {
  double squares = 0;
  for (float x : head.low) squares += static_cast<double>(x) * x;
  for (float x : head.high) squares += static_cast<double>(x) * x;
  const double inverse = 1 / sqrt(team_sum(squares) / head_dim + static_cast<double>(eps));
  const bool tiny = inverse > 0x1p100;
  return {tiny ? 0x1p100f : 1.0f, static_cast<float>(tiny ? inverse * 0x1p-100 : inverse)};
}

/// cos and sin of the lane's four pairs at a position, in lanes that have pairs.
template <DType type>
struct Rotation {
  template <Rows rows>
  __device__ void load(const WriteParams& p, std::int64_t position) {
    const char* row = p.cos_sin + position * p.cos_sin_row;
    cosine.load<rows>(type, row, first_element(team_lane()));
    sine.load<rows>(type, row, half_rotary + first_element(team_lane()));
  }
  __device__ void apply(LaneHead& head) const {
    float c[4], s[4];
    cosine.widen(type, c);
    sine.widen(type, s);
    for (int i = 0; i < 4; ++i) {
      const float a = head.low[i], b = head.high[i];
      head.low[i] = a * c[i] - b * s[i];
      head.high[i] = b * c[i] + a * s[i];
    }
  }

  TableQuad cosine, sine;
};

/// Rounds a lane's elements to the type and stores them.
template <Rows rows>
__device__ inline void store_head(DType type, const LaneHead& x, char* to) {
  const auto store = [&]<DType out>() {
    store_quad<out, rows>(x.low, to);
    store_quad<out, rows>(x.high, to + half_rotary * size_of(out));
  };
  switch (type) {
    case DType::bf16:
      return store.template operator()<DType::bf16>();
    case DType::f16:
      return store.template operator()<DType::f16>();
    case DType::e4m3:
      return store.template operator()<DType::e4m3>();
    default:
      return store.template operator()<DType::e5m2>();
  }
}

/// What becomes of a part's heads.
enum class Fate {
  to_rows,   // normed and rotated, row t to row t
  to_pages,  // normed and rotated, row t to its slot
  inserted,  // as they are, row t to its slot
};

/// Two heads of every step-th token or, of a part with an odd number of heads, of two neighbours:
/// what a warp works on. `table`: the type of cosines and sines. A loop of its own for every fate
/// and type, as the kernel is bound by its instructions: 236 a pair and 97 µs for 8,192 tokens of
/// 64/4 heads where one loop asked for each.
template <DType in, Rows rows, Fate fate, DType table>
class HeadPair {
 public:
  /// `weights`: two places of the thread's own in shared memory, write_threads apart.
  __device__ HeadPair(const WriteParams& p, const Part& part, int pair, int first_token, int step,
                      float4* weights)
      : p_(p), part_(part), weight_(weights), step_(step) {
    int head = 2 * pair + static_cast<int>(threadIdx.x) % warp_size / team_lanes;
    int token = first_token;
    if (head >= part.heads) {
      head -= part.heads;
      ++token;
    }
    token_ = static_cast<std::uint32_t>(token);
    const int element = first_element(team_lane());
    from_ = part.from + token * part.from_token + head * part.from_head +
            element * static_cast<int>(size_of(in));
    to_ = part.to + head * part.to_head + element * part.to_size;
    if constexpr (!paged) to_ += token * part.to_token;
  }

  __device__ void run() {
    fetch();
    prepare();
    while (__any_sync(0xffffffffu, token_ < p_.tokens)) step();
  }

 private:
  static constexpr bool normed = fate != Fate::inserted, paged = fate != Fate::to_rows;

  /// Of a token without a valid one nothing is written, values that are not rotated either.
  __device__ bool has_position() const { return normed || p_.positions != nullptr; }

  /// Asks for the current token's head.
  __device__ void fetch() {
    if (token_ >= p_.tokens) return;
    if (has_position()) position_ = p_.positions[token_];
    if constexpr (paged) slot_ = part_.slots[token_];
    low_.template load<rows>(from_);
    high_.template load<rows>(from_ + half_rotary * size_of(in));
  }

  /// Weights and scale. Weights wait in shared memory: in registers, of which a thread has 64 at
  /// four CTAs a SM, they would be spilled.
  __device__ void prepare() {
    if constexpr (paged) scale_ = part_.scale.value();
    if constexpr (normed) {
      const int element = first_element(team_lane());
      TableQuad low, high;
      low.load<rows>(part_.norm.type, part_.norm.data, element);
      high.load<rows>(part_.norm.type, part_.norm.data, half_rotary + element);
      float w[4];
      low.widen(part_.norm.type, w);
      weight_[0] = make_float4(1 + w[0], 1 + w[1], 1 + w[2], 1 + w[3]);
      high.widen(part_.norm.type, w);
      weight_[write_threads] = make_float4(1 + w[0], 1 + w[1], 1 + w[2], 1 + w[3]);
    }
  }

  /// Works on the head that was asked for, and asks for the next. All lanes of the warp take part,
  /// to the end: a team that left early would go through the next token on its own, and the warp
  /// twice.
  __device__ void step() {
    // Negative numbers are past every end as unsigned ones.
    bool here = token_ < p_.tokens;
    if (has_position()) {
      here = here &&
             static_cast<std::uint64_t>(position_) < static_cast<std::uint64_t>(p_.max_position);
    }
    char* to = to_;
    if constexpr (paged) {
      const auto slot = static_cast<std::uint64_t>(slot_);
      here = here && slot < static_cast<std::uint64_t>(part_.row_count);
      // Pages are counted in 32 bits: 2^31 of them exceed any device.
      constexpr std::uint64_t page = page_size;
      to += static_cast<std::uint32_t>(slot / page) * part_.to_page +
            static_cast<std::uint32_t>(slot % page) * part_.to_token;
    }
    Rotation<table> rotation;
    const bool rotates = normed && here && team_lane() < team_lanes / 2;
    if (rotates) rotation.template load<rows>(p_, position_);
    if constexpr (!normed) {
      if (part_.to_type == in && scale_ == 1.0f) {
        if (here) low_.template store<rows>(to);  // every bit pattern as it is, a NaN's too
        if (here) high_.template store<rows>(to + half_rotary * size_of(in));
        return advance();
      }
    }
    LaneHead head;
    low_.template widen<in>(head.low);
    high_.template widen<in>(head.high);
    advance();
    if constexpr (normed) normalize(head, here);
    if (rotates) rotation.apply(head);
    if constexpr (paged) {
      if (scale_ != 1.0f) {
        for (float& x : head.low) x /= scale_;
        for (float& x : head.high) x /= scale_;
      }
    }
    if (here) store_head<rows>(part_.to_type, head, to);
  }

  __device__ void advance() {
    token_ += step_;
    from_ += step_ * part_.from_token;
    if constexpr (!paged) to_ += step_ * part_.to_token;
    fetch();
  }

  /// Gemma RMSNorm. All lanes of the warp take part.
  __device__ void normalize(LaneHead& head, bool here) const {
    float squares = 0;
    for (float x : head.low) squares = fmaf(x, x, squares);
    for (float x : head.high) squares = fmaf(x, x, squares);
    const float mean = team_sum(squares) * (1.0f / head_dim) + p_.eps;
    NormFactor factor{1, rsqrtf(mean)};
    if (__any_sync(0xffffffffu, here && !is_usual(mean))) {
      const NormFactor exact = unusual_factor(head, p_.eps);
      if (!is_usual(mean)) factor = exact;
      for (float& x : head.low) x *= factor.first;
      for (float& x : head.high) x *= factor.first;
    }
    const float4 low = weight_[0], high = weight_[write_threads];
    const float weights[2][4] = {{low.x, low.y, low.z, low.w}, {high.x, high.y, high.z, high.w}};
    for (int i = 0; i < 4; ++i) {
      head.low[i] = head.low[i] * factor.second * weights[0][i];
      head.high[i] = head.high[i] * factor.second * weights[1][i];
    }
  }

  const WriteParams& p_;
  const Part& part_;
  float4* weight_;       // 1 + w of the lane's elements
  std::uint32_t token_;  // room for a step past the last, 2^31 − 1
  int step_;
  const char* from_;  // of the current token, at the lane's first element
  char* to_;          // of the current token, or of slot 0, likewise
  float scale_ = 1;

  // Of the current token, on their way:
  std::int64_t position_ = 0, slot_ = 0;
  Quad low_, high_;
};

/// A warp's part, and its place in it.
struct WarpWork {
  const Part& part;
  int pair, first_token, step;
  float4* weights;
};

template <DType in, Rows rows, Fate fate, DType table = DType::f32>
__device__ inline void run_heads(const WriteParams& p, const WarpWork& w) {
  HeadPair<in, rows, fate, table> heads(p, w.part, w.pair, w.first_token, w.step, w.weights);
  meet_dependencies();
  heads.run();
}
template <DType in, Rows rows, DType table>
__device__ inline void run_normed(const WriteParams& p, const WarpWork& w) {
  if (w.part.slots == nullptr) {
    run_heads<in, rows, Fate::to_rows, table>(p, w);
  } else {
    run_heads<in, rows, Fate::to_pages, table>(p, w);
  }
}

/// CTAs of a SM that leave each thread registers enough: of four, 64, in which other devices' code
/// and rows that are read by elements do not fit.
#if __CUDA_ARCH__ == 900
template <Rows rows>
inline constexpr int ctas_per_sm = rows == Rows::aligned ? 4 : 3;
#else
template <Rows rows>
inline constexpr int ctas_per_sm = 3;
#endif

template <DType in, Rows rows>
__global__ __launch_bounds__(write_threads, ctas_per_sm<rows>) void write_kernel(
    const __grid_constant__ WriteParams p) {
  __shared__ float4 weights[2 * write_threads];
  // The same in all lanes, and known to be so: what depends on it is computed once a warp.
  const int warp = static_cast<int>(blockIdx.x) * write_warps +
                   __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / warp_size, 0);
  // Warps past the last whole two tokens have nothing to do.
  const int step = static_cast<int>(gridDim.x) * write_warps / p.pairs;
  if (warp >= step * p.pairs) return;
  int pair = warp % p.pairs, i = 0;
  for (; pair >= p.parts[i].pairs(); ++i) pair -= p.parts[i].pairs();
  const WarpWork work{p.parts[i], pair, 2 * (warp / p.pairs), 2 * step, weights + threadIdx.x};
  if (work.part.norm.data == nullptr) return run_heads<in, rows, Fate::inserted>(p, work);
  switch (p.cos_sin_type) {
    case DType::bf16:
      return run_normed<in, rows, DType::bf16>(p, work);
    case DType::f16:
      return run_normed<in, rows, DType::f16>(p, work);
    default:
      return run_normed<in, rows, DType::f32>(p, work);
  }
}

}  // namespace msa::cuda::portable
