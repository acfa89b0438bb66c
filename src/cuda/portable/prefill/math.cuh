// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/query_row.cuh"
#include "cuda/common/row_out.cuh"
#include "cuda/common/softmax.cuh"
#include "cuda/portable/prefill/fetch.cuh"

/// \file
/// A warp's part of a tile: S[32, 64 keys] = Q · K^T and O[32, 128] += P · V of the half pages that
/// its tokens chose, as two row tiles of 16, each of which may be left out.
///
/// A lane 4 g + c holds, of each row tile's rows g and g + 8, columns 8 j + 2 c and + 1: keys of S
/// (j < 8), elements of O (j < 16). S rounded is P as operand A.

namespace msa::cuda::portable::prefill {

template <DType type>
class Math {
 public:
  __device__ Math(const Params& p, const Cta<type>& cta) : p_(p), cta_(cta) {}

  /// Loads this warp's rows of Q.
  __device__ void begin(const Tile& tile) {
    load_queries(tile);
#pragma unroll
    for (int t = 0; t < row_tiles; ++t) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        reference_[t][r] = -INFINITY;
        sum_[t][r] = 0;
      }
#pragma unroll
      for (int i = 0; i < 64; ++i) o_[t][i / 4][i % 4] = 0;
    }
    __syncwarp();
  }

  /// Adds the half page of a step, whose operands lie at `keys` and behind.
  __device__ void add(int step, const unsigned char* keys) {
    const std::uint32_t chosen = cta_.list[step / 2].tokens;
    const bool first = (chosen & tokens_of(0)) != 0, second = (chosen & tokens_of(1)) != 0;
    if (first && second) {
      add_tiles<0, 2>(step, keys);
    } else if (first) {
      add_tiles<0, 1>(step, keys);
    } else if (second) {
      add_tiles<1, 2>(step, keys);
    }
  }

  /// Rows of out and LSE.
  __device__ void write() {
    const Tile& tile = cta_.tile;
    __syncwarp();
    const Place at;
    const float v_scale = p_.v_scale.value();
#pragma unroll
    for (int t = 0; t < row_tiles; ++t) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float& sum = sum_[t][r];
        sum += __shfl_xor_sync(all_lanes, sum, 1);
        sum += __shfl_xor_sync(all_lanes, sum, 2);
        const Stats stats = {reference_[t][r], sum};
        const Normalize normalize(stats, v_scale);
        const int own = own_row(at, t, r);
#pragma unroll
        for (int j = 0; j < 16; ++j) {
          const float(&o)[4] = o_[t][j];
          *reinterpret_cast<std::uint32_t*>(queries(at) + chunk_offset(own, j) + at.lane % 4 * 4) =
              pack_out(p_.out_is_f16, normalize(o[2 * r]), normalize(o[2 * r + 1]));
        }
        const TileRow row(p_, at.warp * warp_rows + own);
        if (p_.lse == nullptr || at.lane % 4 != 0 || !row.exists(p_, tile)) continue;
        p_.lse[row.token(tile) * p_.lse_token + row.q_head(p_, tile) * p_.lse_head] = lse_of(stats);
      }
    }
    __syncwarp();
    copy_rows(tile);
  }

 private:
  static constexpr ptx::Operand product =
      type == DType::bf16 ? ptx::Operand::bf16 : ptx::Operand::f16;
  static constexpr unsigned all_lanes = 0xffffffff;

  /// Where this thread stands; found again wherever it is needed.
  struct Place {
    int warp = opaque(static_cast<int>(threadIdx.x)) / warp_size;
    int lane = opaque(static_cast<int>(threadIdx.x)) % warp_size;
  };
  /// The warp's rows of Q; its rows of out are collected in their place.
  __device__ unsigned char* queries(const Place& at) const {
    return cta_.queries + at.warp * warp_rows * row_bytes;
  }
  /// The lane's row r of row tile t, of the warp's.
  __device__ static int own_row(const Place& at, int t, int r) {
    return row_tile * t + at.lane / 4 + 8 * r;
  }
  __device__ int own_token(const Place& at, int t, int r) const {
    return (at.warp * warp_rows + own_row(at, t, r)) >> p_.padded_group_log2;
  }

  /// The tile's tokens in a row tile, a bit each.
  __device__ std::uint32_t tokens_of(int t) const {
    const int count = row_tile >> p_.padded_group_log2;
    const int first = (Place().warp * row_tiles + t) * count;
    const int end = min(first + count, cta_.tile.rows);
    return end > first ? (0xffffffffu >> (32 - (end - first))) << first : 0;
  }

  __device__ void load_queries(const Tile& tile) const {
    constexpr int rows_at_once = warp_size / query_lanes, batch = 8;
    const double scale = logit_scale(p_.softmax_scale, p_.k_scale.value());
    const Place at;
    const int part = at.lane % query_lanes, first = at.lane / query_lanes;
#pragma unroll 1
    for (int begin = 0; begin < warp_rows; begin += batch * rows_at_once) {
      uint4 bits[batch];
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        const TileRow row(p_, at.warp * warp_rows + begin + i * rows_at_once + first);
        bits[i] = {0, 0, 0, 0};
        if (!row.exists(p_, tile)) continue;
        bits[i] = load_query(
            p_.q + row.token(tile) * p_.q_token + row.q_head(p_, tile) * p_.q_head + 8 * part,
            p_.q_aligned);
      }
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        const int own = begin + i * rows_at_once + first;
        const QueryRow<product> query(bits[i], p_.q_is_f16, scale);
        if (part == 0) cta_.factors[at.warp * warp_rows + own] = query.factor;
        *reinterpret_cast<uint4*>(queries(at) + chunk_offset(own, part)) = query.bits;
      }
    }
    __syncwarp();
  }

  /// Row tiles [begin, end).
  template <int begin, int end>
  __device__ void add_tiles(int step, const unsigned char* keys) {
    float x[row_tiles][8][4];  // products, then weights
    multiply_keys<begin, end>(x, keys);
#pragma unroll
    for (int t = begin; t < end; ++t) {
      scale(x[t], t);
      mask(x[t], t, step);
      softmax(x[t], t);
    }
    multiply_values<begin, end>(x, keys + operand_bytes);
  }

  template <int begin, int end>
  __device__ void multiply_keys(float (&x)[row_tiles][8][4], const unsigned char* keys) const {
    const Place at;
    const int matrix = at.lane / 8, row = at.lane % 8;
    // Of A: matrices 0 and 1 are rows 0 and 8 of the left 8 columns. Of B: 0 and 1 are the left and
    // right 8 elements of keys 0 to 7.
    const std::uint32_t q = ptx::shared_address(queries(at)) + (matrix % 2 * 8 + row) * row_bytes;
    const std::uint32_t k = ptx::shared_address(keys) + (matrix / 2 * 8 + row) * row_bytes;
    const std::uint32_t q_chunk = (matrix / 2 ^ row) << 4, k_chunk = (matrix % 2 ^ row) << 4;
#pragma unroll
    for (int t = begin; t < end; ++t) {
#pragma unroll
      for (int i = 0; i < 32; ++i) x[t][i / 4][i % 4] = 0;
    }
#pragma unroll
    for (int step = 0; step < head_dim / 16; ++step) {
      std::uint32_t a[row_tiles][4];
#pragma unroll
      for (int t = begin; t < end; ++t) {
        ptx::load_matrices(a[t], q + t * row_tile * row_bytes + (q_chunk ^ step << 5));
      }
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        std::uint32_t b[4];
        ptx::load_matrices(b, k + j * 8 * row_bytes + (k_chunk ^ step << 5));
#pragma unroll
        for (int t = begin; t < end; ++t) {
          ptx::mma<product>(x[t][j], a[t], b[0], b[1]);
          ptx::mma<product>(x[t][j + 1], a[t], b[2], b[3]);
        }
      }
    }
  }

  template <int begin, int end>
  __device__ void multiply_values(const float (&x)[row_tiles][8][4], const unsigned char* values) {
    const Place at;
    const int matrix = at.lane / 8, row = at.lane % 8;
    const std::uint32_t v = ptx::shared_address(values) + (matrix % 2 * 8 + row) * row_bytes;
    const std::uint32_t v_chunk = (matrix / 2 ^ row) << 4;
#pragma unroll
    for (int step = 0; step < half_keys / 16; ++step) {
      std::uint32_t a[row_tiles][4];
#pragma unroll
      for (int t = begin; t < end; ++t) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float(&two)[4] = x[t][2 * step + i / 2];
          a[t][i] = pack<product>(two[i % 2 * 2], two[i % 2 * 2 + 1]);
        }
      }
#pragma unroll
      for (int j = 0; j < 16; j += 2) {
        std::uint32_t b[4];
        ptx::load_transposed(b, v + step * 16 * row_bytes + (v_chunk ^ j << 4));
#pragma unroll
        for (int t = begin; t < end; ++t) {
          ptx::mma<product>(o_[t][j], a[t], b[0], b[1]);
          ptx::mma<product>(o_[t][j + 1], a[t], b[2], b[3]);
        }
      }
    }
  }

  /// x from products to logits.
  __device__ void scale(float (&x)[8][4], int t) const {
    const Place at;
    const float* const factors = cta_.factors + at.warp * warp_rows;
    const float factor[] = {factors[own_row(at, t, 0)], factors[own_row(at, t, 1)]};
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      x[i / 4][i % 4] = __fmul_rn(x[i / 4][i % 4], factor[i % 4 / 2]);
    }
  }

  /// Logits of keys that a row does not see, or did not choose, become −inf.
  __device__ void mask(float (&x)[8][4], int t, int step) const {
    const Tile& tile = cta_.tile;
    const HalfPage half(tile, step);
    const std::uint32_t unchosen = ~cta_.list[half.entry].tokens;
    if (!half.partial && (unchosen & tokens_of(t)) == 0) return;
    const Place at;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int token = own_token(at, t, r);
      int keys = half.partial ? tile.visible(p_, tile.seq_len, token) - half.first_key : half_keys;
      if ((unchosen >> token & 1) != 0) keys = 0;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          if (8 * j + 2 * (at.lane % 4) + e >= keys) x[j][2 * r + e] = -INFINITY;
        }
      }
    }
  }

  /// x from logits to weights over each row's reference.
  __device__ void softmax(float (&x)[8][4], int t) {
    float shrink[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float largest[2] = {-INFINITY, -INFINITY};
#pragma unroll
      for (int j = 0; j < 8; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          largest[e] = fmaxf(largest[e], x[j][2 * r + e]);
        }
      }
      float top = fmaxf(largest[0], largest[1]);
      top = fmaxf(top, __shfl_xor_sync(all_lanes, top, 1));
      top = fmaxf(top, __shfl_xor_sync(all_lanes, top, 2));
      const float before = reference_[t][r];
      // The reference is the maximum, so that the largest weight, 1, is exact in P: left behind by
      // up to 4, which saves multiplications of O, a row's one large weight was rounded too, and
      // two cases of the grid exceeded twice rounded math's own error by 3 and 5 %.
      const bool grows = top > before;
      reference_[t][r] = grows ? top : before;
      shrink[r] = grows ? exp2_fast(before - top) : 1;
      const float shift = shift_of(reference_[t][r]);
      float total[2] = {};
#pragma unroll
      for (int j = 0; j < 8; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& weight = x[j][2 * r + e];
          weight = exp2_fast(__fadd_rn(weight, -shift));
          total[e] += weight;
        }
      }
      sum_[t][r] = __fmaf_rn(sum_[t][r], shrink[r], __fadd_rn(total[0], total[1]));
    }
    // O follows the references; mostly there is nothing to do for any row.
    if (!__any_sync(all_lanes, shrink[0] != 1 || shrink[1] != 1)) return;
#pragma unroll
    for (int i = 0; i < 64; ++i) o_[t][i / 4][i % 4] *= shrink[i % 4 / 2];
  }

  /// 16 lanes a row.
  __device__ void copy_rows(const Tile& tile) const {
    constexpr int chunks = head_dim / 8;
    const Place at;
    const int chunk = at.lane % chunks;
#pragma unroll 4
    for (int i = 0; i < warp_rows; i += warp_size / chunks) {
      const int own = i + at.lane / chunks;
      const TileRow row(p_, at.warp * warp_rows + own);
      if (!row.exists(p_, tile)) continue;
      store_eight(
          p_.out + row.token(tile) * p_.out_token + row.q_head(p_, tile) * p_.out_head + 8 * chunk,
          *reinterpret_cast<const uint4*>(queries(at) + chunk_offset(own, chunk)), p_.out_aligned);
    }
  }

  const Params& p_;
  const Cta<type>& cta_;
  float reference_[row_tiles][2], sum_[row_tiles][2];  // of the weights
  float o_[row_tiles][16][4];
};

}  // namespace msa::cuda::portable::prefill
