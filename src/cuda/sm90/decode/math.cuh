// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/sm90/decode/cta.cuh"
#include "cuda/sm90/decode/fold.cuh"
#include "cuda/sm90/decode/queries.cuh"
#include "cuda/sm90/decode/traits.cuh"

/// \file
/// The warpgroup that computes. Both products are transposed ("swapAB"), as the queries are few:
/// S^T[128 keys, n] = K · Q^T and O^T[128, n] += V^T · P^T, each two wgmma tiles of 64 rows.
///
/// A thread is lane 4 g + c of warp w. It holds columns 8 j + 2 c and + 1 for each j < n / 8, and of
/// each tile the rows 16 w + g and + 8.

namespace msa::cuda::sm90::decode {

template <class Cache, int n>
class Math {
 public:
  __device__ Math(const Params& p, const Cta<n>& cta)
      : p_(p),
        cta_(cta),
        s_(cta.shared),
        thread_(static_cast<int>(threadIdx.x)),
        warp_(thread_ / warp_size),
        lane_(thread_ % warp_size) {}

  /// Leaves the item's partial results in shared memory.
  __device__ void item(const Item& item) {
    const Queries<Cache, n> queries(p_, item);  // the loads start before the list is complete
    seq_len_ = length_of(p_, item);
    queries.store(p_, s_);
    ptx::fence_async_proxy();
    sync();
    ptx::wait(s_.list_full[list_.slot], list_.parity);
    const int length = s_.list_count[list_.slot];
    if (p_.cluster == 1 && partials(n) > 1) reset(total_slot);
    for (int segment = cta_.first_segment; segment < cta_.end_segment; ++segment) {
      begin_segment(segment);
      const int end = segment_begin(segment + 1, length, n);
      for (int i = segment_begin(segment, length, n); i < end; ++i) {
        page(item, i, i + 1 == end);
      }
      if (!fresh_) fold_segment(slot_of(segment));
      if (p_.cluster == 1 && partials(n) > 1 &&
          segment % segments_per_group(n) == segments_per_group(n) - 1) {
        fold_group();
      }
    }
    if (lane_ == 0) ptx::arrive(s_.list_free[list_.slot]);
    list_.advance(lists);
  }

 private:
  static constexpr int pairs = n / 8;           // of columns
  static constexpr int columns = n / 4;         // of a thread
  static constexpr int accumulators = n / 2;    // of a thread and tile
  static constexpr int k_steps = head_dim / 16;
  static constexpr int total_slot = partials(n) - 1;

  __device__ void sync() const { ptx::sync_threads(1, math_threads); }

  /// Shared memory of a partial result: a group's, or the total where groups are single segments.
  __device__ int slot_of(int segment) const {
    if (p_.cluster == 1 || p_.cluster > groups) return 0;
    return segment / segments_per_group(n) % (groups / p_.cluster);
  }

  __device__ void reset(int slot) const {
    for (int column = lane_; column < n; column += warp_size) {
      s_.stats[slot][warp_][column] = no_keys();
    }
    __syncwarp();
  }

  __device__ void begin_segment(int segment) {
    const bool starts_slot = segments_per_group(n) == 1 && p_.cluster == 1
                                 ? segment == 0
                                 : segment == cta_.first_segment ||
                                       segment % segments_per_group(n) == 0;
    if (starts_slot) reset(slot_of(segment));
    fresh_ = true;
#pragma unroll
    for (int i = 0; i < columns; ++i) {
      maximum_[i] = -INFINITY;
      sum_[i] = 0;
    }
  }

  /// One page of the list enters the segment.
  __device__ void page(const Item& item, int index, bool ends_segment) {
    const std::int32_t id = cta_.list(list_).id[index];
    const std::int32_t rows = cta_.list(list_).rows[index];
    float s[2][accumulators];
    logits(s);
    scale(s);
    const std::int32_t first_key = id * page_size;
    if (rows != (1 << item.rows) - 1 ||
        item.visible(p_, seq_len_, 0) - first_key < page_size) {
      mask(item, rows, first_key, s);
    }
    softmax(s);
    store_weights(s);
    if (ends_segment) store_sums();

    const int keys = seq_len_ - first_key;  // the page's slots that hold a key of the request
    if constexpr (!Cache::widens) {
      if (keys < page_size) clear_values(keys);
    }
    ptx::fence_async_proxy();
    sync();  // P is complete, and with it the sums of the segment
    values(keys);
    fresh_ = false;
  }

  /// S^T of the next page, which it takes off the ring.
  __device__ void logits(float (&s)[2][accumulators]) {
    const std::uint32_t q = ptx::shared_address(s_.queries);
    if constexpr (Cache::widens) {
      await(ring_);
      const int g = lane_ / 4, c = lane_ % 4;
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
        const unsigned char* key = cta_.slot(ring_) + (64 * tile + 16 * warp_ + g) * 128;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int chunk = ((2 * c + i) ^ g) * 16;  // conflict-free, as key mod 8 is g
          const uint4 low = *reinterpret_cast<const uint4*>(key + chunk);
          const uint4 high = *reinterpret_cast<const uint4*>(key + 8 * 128 + chunk);
          const std::uint32_t words[2][4] = {{low.x, low.y, low.z, low.w},
                                             {high.x, high.y, high.z, high.w}};
          std::uint32_t a[4][4];
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            Cache::widen(words[0][k], a[k][0], a[k][2]);
            Cache::widen(words[1][k], a[k][1], a[k][3]);
          }
          ptx::wgmma_fence();
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            ptx::wgmma(s[tile], a[k], ptx::matrix_descriptor(q + operand_step(4 * i + k)),
                       i + k > 0);
          }
          ptx::wgmma_commit();
          ptx::wgmma_wait<1>();  // one batch of registers is widened while another is used
        }
      }
      ptx::wgmma_wait();
      release(1);
    } else {
      ptx::RingPlace second = ring_;
      second.advance(p_.slots);
      await(ring_);
      await(second);
      const std::uint32_t keys[] = {ptx::shared_address(cta_.slot(ring_)),
                                    ptx::shared_address(cta_.slot(second))};
      ptx::wgmma_fence();
#pragma unroll
      for (int k = 0; k < k_steps; ++k) {
        const std::uint32_t a = keys[k / 4] + k % 4 * 32;
#pragma unroll
        for (int tile = 0; tile < 2; ++tile) {
          ptx::wgmma<Cache::product, 0>(s[tile], ptx::matrix_descriptor(a + tile * 64 * 128),
                                        ptx::matrix_descriptor(q + operand_step(k)), k > 0);
        }
      }
      ptx::wgmma_commit();
      ptx::wgmma_wait();
      release(2);
    }
  }

  /// O^T += V^T · P^T of the page whose logits came before; slots from `keys` on hold no key.
  __device__ void values(int keys) {
    const std::uint32_t p = ptx::shared_address(s_.weights);
    if constexpr (Cache::widens) {
      await(ring_);
      const int g = lane_ / 4, c = lane_ % 4;
      // Rows of the tiles are the columns 32 w + 4 g + {0, 1 | 2, 3} of V, four bytes of a key.
      const unsigned char* base = cta_.slot(ring_) + g % 4 * 4;
      const int chunk = 2 * warp_ + g / 4;
      const auto load = [&](int key) {
        const auto word = *reinterpret_cast<const std::uint32_t*>(base + key * 128 +
                                                                  ((chunk ^ key % 8) * 16));
        return key < keys ? word : 0;
      };
#pragma unroll
      for (int begin = 0; begin < k_steps; begin += 2) {
        std::uint32_t a[2][2][4];  // [k step][tile]
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int step = i / 2, half = i % 2;
          const int key = 16 * (begin + step) + 8 * half + 2 * c;
          const std::uint32_t even = load(key), odd = load(key + 1);
          std::uint32_t(&first)[4] = a[step][0], (&second)[4] = a[step][1];
          Cache::widen(__byte_perm(even, odd, 0x5140), first[2 * half], first[2 * half + 1]);
          Cache::widen(__byte_perm(even, odd, 0x7362), second[2 * half], second[2 * half + 1]);
        }
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < 2; ++step) {
          const int k = begin + step;
#pragma unroll
          for (int tile = 0; tile < 2; ++tile) {
            ptx::wgmma(o_[tile], a[step][tile], ptx::matrix_descriptor(p + operand_step(k)),
                       k > 0 || !fresh_);
          }
        }
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();
      }
      ptx::wgmma_wait();
      release(1);
    } else {
      ptx::RingPlace second = ring_;
      second.advance(p_.slots);
      await(ring_);
      await(second);
      const std::uint32_t v[] = {ptx::shared_address(cta_.slot(ring_)),
                                 ptx::shared_address(cta_.slot(second))};
      ptx::wgmma_fence();
#pragma unroll
      for (int k = 0; k < k_steps; ++k) {
#pragma unroll
        for (int tile = 0; tile < 2; ++tile) {
          ptx::wgmma<Cache::product, 1>(o_[tile], ptx::matrix_descriptor(v[tile] + k * 16 * 128),
                                        ptx::matrix_descriptor(p + operand_step(k)),
                                        k > 0 || !fresh_);
        }
      }
      ptx::wgmma_commit();
      ptx::wgmma_wait();
      release(2);
    }
  }

  /// Offset of k step `k` in Q or P.
  __device__ static int operand_step(int k) { return k / 4 * (n * 128) + k % 4 * 32; }

  __device__ void await(const ptx::RingPlace& place) const {
    ptx::wait(s_.slot_full[place.slot], place.parity);
  }
  /// This warp is done with the next `count` slots.
  __device__ void release(int count) {
    for (int i = 0; i < count; ++i) {
      __syncwarp();
      if (lane_ == 0) ptx::arrive(s_.slot_free[ring_.slot]);
      ring_.advance(p_.slots);
    }
  }

  __device__ int column(int pair) const { return 8 * pair + 2 * (lane_ % 4); }

  __device__ void scale(float (&s)[2][accumulators]) const {
#pragma unroll
    for (int j = 0; j < pairs; ++j) {
      const float2 factor = *reinterpret_cast<const float2*>(&s_.factor[column(j)]);
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          s[tile][4 * j + 2 * half] *= factor.x;
          s[tile][4 * j + 2 * half + 1] *= factor.y;
        }
      }
    }
  }

  /// −inf for keys that a column's row does not see or did not choose.
  __device__ void mask(const Item& item, std::int32_t rows, std::int32_t first_key,
                       float (&s)[2][accumulators]) const {
    const int key = 16 * warp_ + lane_ / 4;
#pragma unroll
    for (int i = 0; i < columns; ++i) {
      const int row = s_.row[column(i / 2) + i % 2];
      const bool chose = rows >> row & 1;
      const int keys = chose ? item.visible(p_, seq_len_, row) - first_key : 0;
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float& x = s[tile][4 * (i / 2) + 2 * half + i % 2];
          if (key + 64 * tile + 8 * half >= keys) x = -INFINITY;
        }
      }
    }
  }

  /// Logits become weights over the segment's new maximum; what was summed before shrinks.
  __device__ void softmax(float (&s)[2][accumulators]) {
    float largest[columns];
#pragma unroll
    for (int i = 0; i < columns; ++i) {
      const int at = 4 * (i / 2) + i % 2;
      float x = fmaxf(fmaxf(s[0][at], s[0][at + 2]), fmaxf(s[1][at], s[1][at + 2]));
      for (int lanes = 4; lanes < warp_size; lanes *= 2) {
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lanes));
      }
      largest[i] = x;
    }
    if (lane_ < 4) {
#pragma unroll
      for (int i = 0; i < columns; ++i) s_.maximum[column(i / 2) + i % 2][warp_] = largest[i];
    }
    sync();  // every warp's maxima are there, and P of the page before has been used
#pragma unroll
    for (int i = 0; i < columns; ++i) {
      const auto& all = *reinterpret_cast<const float4*>(s_.maximum[column(i / 2) + i % 2]);
      const float before = maximum_[i];
      maximum_[i] = fmaxf(fmaxf(fmaxf(all.x, all.y), fmaxf(all.z, all.w)), before);
      const float shift = shift_of(maximum_[i]);
      const float shrink = exp2_fast(before - shift);
      float total = 0;
      const int at = 4 * (i / 2) + i % 2;
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float& x = s[tile][at + 2 * half];
          x = exp2_fast(x - shift);
          total += x;
        }
      }
      sum_[i] = __fmaf_rn(sum_[i], shrink, total);
      if (!fresh_) {
#pragma unroll
        for (int tile = 0; tile < 2; ++tile) {
          o_[tile][at] *= shrink;
          o_[tile][at + 2] *= shrink;
        }
      }
    }
  }

  /// P, rounded to the product type, as operand B: [n][128 keys].
  __device__ void store_weights(const float (&s)[2][accumulators]) const {
    // Matrix i of a lane's address: tile i / 2, keys 16 w + 8 (i mod 2) of it, 8 columns.
    const int matrix = lane_ / 8, row = lane_ % 8;
    const int chunk = (2 * warp_ + matrix % 2) ^ row;
    const std::uint32_t address = ptx::shared_address(s_.weights) + matrix / 2 * (n * 128) +
                                  row * 128 + chunk * 16;
#pragma unroll
    for (int j = 0; j < pairs; ++j) {
      const std::uint32_t bits[] = {pack<Cache::product>(s[0][4 * j], s[0][4 * j + 1]),
                                    pack<Cache::product>(s[0][4 * j + 2], s[0][4 * j + 3]),
                                    pack<Cache::product>(s[1][4 * j], s[1][4 * j + 1]),
                                    pack<Cache::product>(s[1][4 * j + 2], s[1][4 * j + 3])};
      ptx::store_matrices_transposed(address + j * 8 * 128, bits);
    }
  }

  __device__ void store_sums() const {
#pragma unroll
    for (int i = 0; i < columns; ++i) {
      float x = sum_[i];
      for (int lanes = 4; lanes < warp_size; lanes *= 2) {
        x += __shfl_xor_sync(0xffffffffu, x, lanes);
      }
      if (lane_ < 4) s_.sum[column(i / 2) + i % 2][warp_] = x;
    }
  }

  /// Slots of the page past the request's last key may hold anything, and 0 · NaN is NaN.
  __device__ void clear_values(int keys) const {
    ptx::RingPlace place = ring_;
    for (int box = 0; box < 2; ++box) {
      await(place);
      for (int i = keys * 8 + thread_; i < page_size * 8; i += math_threads) {
        reinterpret_cast<uint4*>(cta_.slot(place))[i] = {0, 0, 0, 0};
      }
      place.advance(p_.slots);
    }
  }

  __device__ float4& cell(int slot, int tile, int pair) const {
    return reinterpret_cast<float4*>(s_.partial[slot])[(tile * pairs + pair) * math_threads +
                                                       thread_];
  }
  __device__ float4& stats(int slot, int pair) const {
    return *reinterpret_cast<float4*>(&s_.stats[slot][warp_][column(pair)]);
  }

  __device__ void fold_segment(int slot) {
#pragma unroll
    for (int j = 0; j < pairs; ++j) {
      float sum[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const auto& parts = *reinterpret_cast<const float4*>(s_.sum[column(j) + e]);
        sum[e] = (parts.x + parts.y) + (parts.z + parts.w);
      }
      fold(slot, j, {maximum_[2 * j], sum[0], maximum_[2 * j + 1], sum[1]},
           [&](int tile) -> float4 {
             return {o_[tile][4 * j], o_[tile][4 * j + 1], o_[tile][4 * j + 2],
                     o_[tile][4 * j + 3]};
           });
    }
  }

  __device__ void fold_group() {
#pragma unroll
    for (int j = 0; j < pairs; ++j) {
      fold(total_slot, j, stats(0, j), [&](int tile) { return cell(0, tile, j); });
    }
  }

  template <class Source>
  __device__ void fold(int slot, int pair, const float4& source_stats, Source source) const {
    float4& old = stats(slot, pair);
    const PairFold fold(old, source_stats);
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      float4& to = cell(slot, tile, pair);
      to = fold(to, source(tile));
    }
    __syncwarp();  // the lanes of a column have read its statistics
    old = fold.stats();
    __syncwarp();
  }

  const Params& p_;
  const Cta<n>& cta_;
  Shared<n>& s_;
  int thread_, warp_, lane_;
  std::int32_t seq_len_ = 0;
  ptx::RingPlace ring_;
  ptx::RingPlace list_;

  // The segment.
  float o_[2][accumulators];
  float maximum_[columns];
  float sum_[columns];  // of this thread's keys
  bool fresh_ = true;   // no page yet: O is not initialized
};

}  // namespace msa::cuda::sm90::decode
