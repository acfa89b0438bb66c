// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/widen.cuh"
#include "cuda/sm90/index/math_warp.cuh"

/// \file
/// The warpgroup that computes, for tiles of up to 64 columns: products of a page's keys, along the
/// 64 rows of wgmma, and the tile's queries, along its n; then the largest of each column.
///
/// A thread is lane 4 g + c of warp w. Of each half of a page (64 keys) it holds the keys
/// 16 w + g and + 8 of the columns 8 j + 2 c and + 1.

namespace msa::cuda::sm90::index {

/// Where a warp's maxima of `columns` columns are found. Lane 4 g + c ends up with `each` of them,
/// from i = each · (g / sharing) of its own columns on; where there are fewer columns than lanes,
/// `sharing` lanes have the same.
template <int columns>
struct MaximaOrder {
  static constexpr int each = columns < 32 ? 1 : columns / 32;
  static constexpr int sharing = columns < 32 ? 32 / columns : 1;
  /// Column at place `place` of the board.
  __device__ static int column(int place) {
    const int i = place / (4 * each) * each + place % each, c = place / each % 4;
    return 8 * (i / 2) + 2 * c + i % 2;
  }
  __device__ static int place(int column) {
    const int i = column / 8 * 2 + column % 2, c = column % 8 / 2;
    return (i / each * 4 + c) * each + i % each;
  }
  /// The first place of this lane.
  __device__ static int first_place(int lane) { return (lane / 4 / sharing * 4 + lane % 4) * each; }
  __device__ static bool writes(int lane) { return lane / 4 % sharing == 0; }
};

/// `Sink` takes the maxima, of some blocks at a time.
template <class Keys, int n, class Sink>
class Math : MathWarp<Keys, n> {
  using Base = MathWarp<Keys, n>;

 public:
  __device__ Math(const ScoreParams& p, const Cta<Keys, n>& cta) : Base(p, cta) {}

  __device__ void run() {
    Base::for_each_segment([this](const Segment& segment) {
      Sink sink(p_, s_, segment);
      if (segment.page_begin < segment.page_end) score(segment, sink);
      sink.end();
    });
  }

 private:
  using Base::address_of, Base::cta_, Base::k_steps, Base::key_step;
  using Base::lane_, Base::p_, Base::query_step, Base::release, Base::ring_, Base::s_, Base::warp_;
  static_assert(Team<n>::warpgroups == 1);
  static constexpr int accumulators = n / 2;  // of a thread and half
  static constexpr int own_columns = n / 4;   // of a thread
  static constexpr int board_pages = Board<n>::pages;
  using Order = MaximaOrder<n>;

  __device__ void score(const Segment& segment, const Sink& sink) {
    const std::int32_t seen_by_all = segment.visible(0);
    for (std::int32_t block = segment.page_begin; block < segment.page_end; ++block) {
      Base::await_page();
      float best[own_columns];
      if (Base::page_of_slot() < 0) {
        find_maxima<Edge::none>(block, best);
      } else if (seen_by_all - block * page_size < page_size) {
        find_maxima<Edge::some>(block, best);
      } else {
        find_maxima<Edge::all>(block, best);
      }
      Base::advance();
      to_board(block, best);
      if ((block + 1) % board_pages != 0 && block + 1 < segment.page_end) continue;
      sync();  // the board is complete
      const std::int32_t first = block / board_pages * board_pages;
      sink.take(warp_, lane_, max(first, segment.page_begin), block + 1);
      sync();  // and may be written again
    }
  }

  /// This warp's maxima of the ring's next page. No branch lies between the products and their end:
  /// the compiler would let each wait for the one before (ptxas C7518).
  template <Edge edge>
  __device__ void find_maxima(std::int32_t block, float (&best)[own_columns]) {
    float sums[2][accumulators];
    multiply<0>(sums[0]);
    multiply<1>(sums[1]);
    ptx::wgmma_wait<1>();
    take_maxima<edge>(0, block, sums[0], best);
    ptx::wgmma_wait();
    if constexpr (!Keys::widens) release();
    take_maxima<edge>(1, block, sums[1], best);
  }

  __device__ void sync() const { ptx::sync_threads(barriers::board, warpgroup); }

  /// Starts the products of the page's keys 64 · half and on with all columns.
  template <int half>
  __device__ void multiply(float (&sums)[accumulators]) {
    const std::uint32_t q = ptx::matrix_at(address_of(cta_.queries));
    const unsigned char* page = Base::page() + half * 64 * 128;
    if constexpr (Keys::widens) {
      // Four k steps are made of chunks 2 c + batch of a key, which are free of bank conflicts, as
      // key mod 8 is g.
      const int g = lane_ / 4, c = lane_ % 4;
      const unsigned char* key = page + (16 * warp_ + g) * 128;
      uint4 low[2], high[2];
#pragma unroll
      for (int batch = 0; batch < 2; ++batch) {
        const unsigned char* from = key + ((2 * c + batch) ^ g) * 16;
        low[batch] = *reinterpret_cast<const uint4*>(from);
        high[batch] = *reinterpret_cast<const uint4*>(from + 8 * 128);
      }
      if (half == 1) release();
      ptx::wgmma_wait();  // the registers of the half before are free
      std::uint32_t a[k_steps][4];
#pragma unroll
      for (int k = 0; k < k_steps; ++k) {
        const uint4 &l = low[k / 4], &h = high[k / 4];
        const std::uint32_t low_words[] = {l.x, l.y, l.z, l.w};
        const std::uint32_t high_words[] = {h.x, h.y, h.z, h.w};
        widen<DType::e4m3>(low_words[k % 4], a[k][0], a[k][2]);
        widen<DType::e4m3>(high_words[k % 4], a[k][1], a[k][3]);
      }
      ptx::wgmma_fence();
#pragma unroll
      for (int k = 0; k < k_steps; ++k) {
        ptx::wgmma(sums, a[k], q + query_step(k), k > 0);
      }
    } else {
      const std::uint32_t keys = ptx::matrix_at(address_of(page));
      ptx::wgmma_fence();
      if constexpr (Keys::boxes == 1) {
#pragma unroll
        for (int k = 0; k < k_steps; ++k) {
          ptx::wgmma_e4m3(sums, keys + key_step(k), q + query_step(k), k > 0);
        }
      } else {
#pragma unroll
        for (int step = 0; step < Keys::planes * k_steps; ++step) {
          const int k = step % k_steps;
          const std::uint32_t plane = ptx::step_of(step / k_steps * n * Keys::query_bytes);
          ptx::wgmma<ptx::Operand::bf16, 0>(sums, keys + key_step(k), q + plane + query_step(k),
                                            step > 0);
        }
      }
    }
    ptx::wgmma_commit();
  }

  /// The largest of each own column over this half and, after the first, those before.
  template <Edge edge>
  __device__ void take_maxima(int half, std::int32_t block, const float (&sums)[accumulators],
                              float (&best)[own_columns]) const {
    const std::int32_t key = block * page_size + half * 64 + 16 * warp_ + lane_ / 4;
    const std::int32_t* visible = s_.visible + lane_ % 4 * 2;
#pragma unroll
    for (int i = 0; i < own_columns; ++i) {
      const int at = 4 * (i / 2) + i % 2;
      float here;
      if constexpr (edge == Edge::all) {
        here = larger(sums[at], sums[at + 2]);
      } else {  // −inf for keys that the column's row does not see
        const std::int32_t seen = edge == Edge::none ? 0 : visible[8 * (i / 2) + i % 2];
        here = larger(key < seen ? sums[at] : -INFINITY, key + 8 < seen ? sums[at + 2] : -INFINITY);
      }
      best[i] = half == 0 ? here : larger(best[i], here);
    }
  }

  /// The warp's maxima of every column, onto the board. Lanes that share a column exchange one half
  /// of what they hold for the other's other half.
  __device__ void to_board(std::int32_t block, float (&best)[own_columns]) const {
    halve<own_columns, 16>(best);
    float* to = s_.board.maxima[block % board_pages] + warp_ * n + Order::first_place(lane_);
    if (!Order::writes(lane_)) return;
#pragma unroll
    for (int i = 0; i < Order::each; ++i) to[i] = best[i];
  }

  template <int count, int mask>
  __device__ void halve(float (&best)[own_columns]) const {
    constexpr int kept = count > 1 ? count / 2 : 1;
    const bool upper = (lane_ & mask) != 0;
#pragma unroll
    for (int i = 0; i < kept; ++i) {
      const float mine = upper ? best[count - kept + i] : best[i];
      const float other = upper ? best[i] : best[count - kept + i];
      best[i] = larger(mine, __shfl_xor_sync(0xffffffffu, other, mask));
    }
    if constexpr (mask > 4) halve<kept, mask / 2>(best);
  }
};

}  // namespace msa::cuda::sm90::index
