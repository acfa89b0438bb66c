// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/query_row.cuh"
#include "cuda/sm90/decode/cta.cuh"
#include "cuda/sm90/decode/traits.cuh"

/// \file
/// The three warps that bring an item's queries, as operand B of the logits, while the item before
/// is computed: at 256 requests the math warps waited 2.5 µs an item for them.

namespace msa::cuda::sm90::decode {

/// One warp of them: 16 lanes look after a query head, eight neighbouring elements each.
template <class Cache, int n>
class Queries {
 public:
  /// `warp` of query_warps.
  __device__ Queries(const Params& p, const Cta<n>& cta, int warp)
      : p_(p),
        cta_(cta),
        first_(2 * warp + static_cast<int>(threadIdx.x) % warp_size / lanes),
        lane_(static_cast<int>(threadIdx.x) % lanes) {}

  /// `parity` is the item's, of those of this CTA.
  __device__ void run(const Item& item, int parity) {
#pragma unroll 1
    for (int column = first_; column - first_ < n; column += batch * step) {
      load(item, column);
      store(column, parity);
    }
    ptx::fence_async_proxy();
    __syncwarp();
    ptx::arrive_threads(barriers::ready + parity, threads);
  }

 private:
  static constexpr int lanes = query_lanes;     // of a column
  static constexpr int step = 2 * query_warps;  // columns at once
  /// Loads of a lane that are under way together.
  static constexpr int batch = n == 8 ? 2 : 3;

  __device__ void load(const Item& item, int first_column) {
    const int columns = item.rows * p_.group;
    const std::uint16_t* first =
        p_.q + item.first_token * p_.q_token + item.head * p_.group * p_.q_head + lane_ * 8;
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const int column = first_column + i * step;
      bits_[i] = {0, 0, 0, 0};
      if (column >= columns) continue;
      const int row = row_of(column, p_.row_factor);
      const std::uint16_t* from = first + row * p_.q_token + (column - row * p_.group) * p_.q_head;
      bits_[i] = load_query(from, p_.q_aligned);
    }
  }

  /// Writes them as products of the cache's type take them, and each column's logit factor.
  __device__ void store(int first_column, int parity) const {
    const double scale = logit_scale(p_.softmax_scale, p_.k_scale.value());
    unsigned char* queries = cta_.queries(parity);
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const int column = first_column + i * step;
      const QueryRow<Cache::product> row(bits_[i], p_.q_is_f16, scale);
      if (column >= n) continue;
      if (lane_ == 0) cta_.shared.factor[parity][column] = row.factor;
      const uint4& bits = row.bits;
      if constexpr (Cache::widens) {
        store_two(queries, column, 0, bits.x);
        store_two(queries, column, 2, bits.y);
        store_two(queries, column, 4, bits.z);
        store_two(queries, column, 6, bits.w);
      } else {
        *reinterpret_cast<uint4*>(queries + operand_offset<n>(column, 8 * lane_)) = bits;
      }
    }
  }

  /// Where the products look for element d. In 8-bit caches a thread reads 16 bytes of a key at
  /// once and takes what its registers hold for consecutive k steps; a dot product does not mind
  /// the order: d = 32 c + 16 i + 4 s + 2 j + e is element 2 c + 8 j + e of k step 4 i + s.
  __device__ static int position(int d) {
    const int c = d / 32, step = d % 32 / 4, j = d / 2 % 2;
    return step * 16 + 2 * c + 8 * j;
  }

  /// Elements 8 · lane + `first` and the next.
  __device__ void store_two(unsigned char* queries, int column, int first,
                            std::uint32_t bits) const {
    const int offset = operand_offset<n>(column, position(8 * lane_ + first));
    *reinterpret_cast<std::uint32_t*>(queries + offset) = bits;
  }

  const Params& p_;
  const Cta<n>& cta_;
  int first_, lane_;  // column of the first step, lane of it
  uint4 bits_[batch];
};

}  // namespace msa::cuda::sm90::decode
