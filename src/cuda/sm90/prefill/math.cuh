// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/sm90/common/query_row.cuh"
#include "cuda/sm90/common/row_out.cuh"
#include "cuda/sm90/common/softmax.cuh"
#include "cuda/sm90/prefill/tile.cuh"

/// \file
/// A warpgroup that computes: S[64, 128 keys] = Q · K^T and O[64, 128] += P · V of the pages that
/// its tokens chose. S of a page is multiplied while O of the page before still is, and its weights
/// are made meanwhile.
///
/// A thread is lane 4 g + c of warp w. It holds, of rows 16 w + g and + 8, columns 8 j + 2 c and +
/// 1 for each j < 16: keys of S, elements of O.

namespace msa::cuda::sm90::prefill {

template <ptx::Operand product>
class Math {
 public:
  __device__ Math(const Params& p, const Cta& cta)
      : p_(p),
        cta_(cta),
        s_(cta.shared),
        // The same for all lanes, and known to be: addresses that follow from it need no vectors.
        group_(__shfl_sync(all_lanes, static_cast<int>(threadIdx.x) / warpgroup, 0)),
        warp_(static_cast<int>(threadIdx.x) % warpgroup / warp_size),
        lane_(static_cast<int>(threadIdx.x) % warp_size),
        queries_(s_.queries[group_]) {}

  __device__ void run() {
    if (group_ == 1) end_turn();  // the first turn is the first warpgroup's
    ptx::wait(s_.list_full[0], 0);
    Loaded queries = load_queries(s_.tile[0]);
    for (TileTurn turn;; turn.advance()) {
      const Tile& tile = s_.tile[turn.index];
      if (tile.rows == 0) break;
      store_queries(queries);
      begin(tile);
      sum(tile, cta_.list(turn.index).blocks);
      // Loads of the next tile's queries are under way while this one's rows are written.
      TileTurn next = turn;
      next.advance();
      ptx::wait(s_.list_full[next.index], next.parity);
      queries = load_queries(s_.tile[next.index]);
      write(tile);
      ptx::arrive(s_.tile_free[turn.index]);
    }
    if (group_ == 0) await_turn();
  }

 private:
  static constexpr unsigned all_lanes = 0xffffffff;
  static constexpr int accumulators = 64;  // of a thread
  static constexpr int columns = 16;       // j
  static constexpr int k_steps = head_dim / 16;
  /// Weights of 2^4 at most: a row's reference need not follow its maximum closer, and O is rarely
  /// multiplied.
  static constexpr float most_over_reference = 4;
  /// Beyond, a logit's rounding could exceed the logits' distances: see weigh().
  static constexpr float largest_plain_logit = 0x1p16f;

  /// Every thread of this warpgroup is here.
  __device__ void sync() const { ptx::sync_threads(barriers::own + group_, warpgroup); }
  /// The warpgroups take turns in giving products to the tensor cores, so that one's weights are
  /// made while the other's products are.
  __device__ void await_turn() const { ptx::sync_threads(barriers::turn + group_, math_threads); }
  __device__ void end_turn() const {
    ptx::arrive_threads(barriers::turn + (group_ ^ 1), math_threads);
  }

  __device__ TileRow row_of_warp(int i) const { return {p_, half_rows * group_ + 16 * warp_ + i}; }

  /// What a lane loads of its warp's 16 rows of Q: eight elements of every second row.
  struct Loaded {
    uint4 bits[8];
  };
  __device__ static int loaded_row(int i, int lane) { return 2 * i + lane / query_lanes; }

  __device__ Loaded load_queries(const Tile& tile) const {
    Loaded loaded;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const TileRow row = row_of_warp(loaded_row(i, lane_));
      loaded.bits[i] = {0, 0, 0, 0};
      if (!row.exists(p_, tile)) continue;
      loaded.bits[i] = load_query(p_.q + row.token(tile) * p_.q_token +
                                      row.q_head(p_, tile) * p_.q_head + lane_ % query_lanes * 8,
                                  p_.q_aligned);
    }
    return loaded;
  }

  /// As operand A, and each row's logit factor.
  __device__ void store_queries(const Loaded& loaded) const {
    const double scale = logit_scale(p_.softmax_scale, p_.k_scale.value());
    const int part = lane_ % query_lanes;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int row = 16 * warp_ + loaded_row(i, lane_);
      QueryRow<product> query(loaded.bits[i], p_.q_is_f16, scale);
      // The largest logit is found before the factor is multiplied in, which must keep the order.
      if (query.factor < 0) {
        constexpr std::uint32_t signs = 0x80008000;
        query.factor = -query.factor;
        query.bits = {query.bits.x ^ signs, query.bits.y ^ signs, query.bits.z ^ signs,
                      query.bits.w ^ signs};
      }
      if (part == 0) s_.factor[half_rows * group_ + row] = query.factor;
      *reinterpret_cast<uint4*>(queries_ + operand_offset<half_rows>(row, 8 * part)) = query.bits;
    }
    ptx::fence_async_proxy();
    sync();  // Q of all 64 rows is complete
  }

  __device__ void begin(const Tile& tile) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int own = lane_ / 4 + 8 * r;
      token_[r] = row_of_warp(own).own_token;
      factor_[r] = s_.factor[half_rows * group_ + 16 * warp_ + own];
      visible_[r] = token_[r] < tile.rows ? tile.visible(p_, tile.seq_len, token_[r]) : 0;
      reference_[r] = -INFINITY;
      sum_[r] = 0;
    }
    const int tokens = half_rows >> p_.padded_group_log2;
    const int first = group_ * tokens, end = min(first + tokens, tile.rows);
    group_mask_ = end > first ? (all_lanes >> (32 - (end - first))) << first : 0;
    all_visible_ = group_mask_ != 0 ? tile.visible(p_, tile.seq_len, first) : 0;
#pragma unroll
    for (int i = 0; i < accumulators; ++i) o_[i] = 0;
  }

  /// All pages of the tile's list. Those that no token of this warpgroup chose are passed by.
  __device__ void sum(const Tile& tile, const ListView& list) {
    int pending = -1;  // the page whose P is made and whose V is not yet used
    ptx::RingPlace pending_place;
    for (int i = 0; i < tile.length; ++i) {
      const auto rows = static_cast<std::uint32_t>(list.rows[i]);
      const std::uint32_t chosen = rows & group_mask_;
      const ptx::RingPlace keys = place_;
      ptx::RingPlace values = place_;
      values.advance(slots, 1);
      place_.advance(slots, 2);
      if (chosen == 0) {
        // The ring must be able to reach the next page.
        if (pending >= 0 && i + 1 > pending + pages_ahead) {
          add_values(pending_place);
          pending = -1;
        }
        pass(keys);
        pass(values);
        continue;
      }
      both_ = (rows & ~group_mask_) != 0;
      const std::int32_t first_key = list.id[i] * page_size;
      const bool plain = chosen == group_mask_ && all_visible_ - first_key >= page_size;
      if (pending < 0) {
        first_page(keys, chosen, first_key);
      } else if (plain) {
        next_page<false>(keys, pending_place, chosen, first_key);
      } else {
        next_page<true>(keys, pending_place, chosen, first_key);
      }
      pending = i;
      pending_place = values;
    }
    if (pending >= 0) add_values(pending_place);
  }

  /// See group_.
  __device__ std::uint32_t slot_address(const ptx::RingPlace& place) const {
    return __shfl_sync(all_lanes, ptx::shared_address(cta_.slot(place)), 0);
  }
  __device__ void await(const ptx::RingPlace& place) const {
    ptx::wait(s_.slot_full[place.slot], place.parity);
  }
  __device__ void release(const ptx::RingPlace& place) const {
    __syncwarp();
    if (lane_ == 0) ptx::arrive(s_.slot_free[place.slot]);
  }
  /// Lets go of what this warpgroup does not need; a turn of the slot must have begun before it may
  /// be counted as over.
  __device__ void pass(const ptx::RingPlace& place) const {
    await(place);
    release(place);
  }

  __device__ void multiply_keys(const ptx::RingPlace& place) {
    const std::uint32_t q = ptx::matrix_at(ptx::shared_address(queries_));
    const std::uint32_t k = ptx::matrix_at(slot_address(place));
#pragma unroll
    for (int step = 0; step < k_steps; ++step) {
      const int half = step / 4, inside = ptx::step_of(step % 4 * 32);
      ptx::wgmma<product, 0>(x_, q + ptx::step_of(half * half_rows * 128) + inside,
                             k + ptx::step_of(half * static_cast<int>(box_bytes)) + inside,
                             step > 0);
    }
    ptx::wgmma_commit();
  }
  __device__ void multiply_values(const ptx::RingPlace& place) {
    const std::uint32_t v = ptx::matrix_at(slot_address(place), box_bytes);
#pragma unroll
    for (int step = 0; step < k_steps; ++step) {
      ptx::wgmma_along_n<product>(o_, weights_[step], v + ptx::step_of(step * 16 * 128), 1);
    }
    ptx::wgmma_commit();
  }

  __device__ void first_page(const ptx::RingPlace& keys, std::uint32_t chosen,
                             std::int32_t first_key) {
    await(keys);
    if (both_) await_turn();
    ptx::wgmma_fence();
    multiply_keys(keys);
    if (both_) end_turn();
    ptx::wgmma_wait();
    release(keys);
    softmax<true>(chosen, first_key);
    shrink();
    pack_weights();
  }

  /// Logits and weights of one page while the tensor cores add the page before to O. `masked`: some
  /// row of the warpgroup did not choose the page, or does not see all of it.
  template <bool masked>
  __device__ void next_page(const ptx::RingPlace& keys, const ptx::RingPlace& values,
                            std::uint32_t chosen, std::int32_t first_key) {
    await(keys);
    await(values);
    if (both_) await_turn();
    ptx::wgmma_fence();
    multiply_keys(keys);
    multiply_values(values);
    if (both_) end_turn();
    ptx::wgmma_wait<1>();
    release(keys);
    softmax<masked>(chosen, first_key);
    ptx::wgmma_wait();
    release(values);
    shrink();
    pack_weights();
  }

  __device__ void add_values(const ptx::RingPlace& values) {
    await(values);
    ptx::wgmma_fence();
    multiply_values(values);
    ptx::wgmma_wait();
    release(values);
  }

  /// Keys of the page that the thread's row r sees, counted from `first_key`.
  __device__ int keys_of(int r, std::uint32_t chosen, std::int32_t first_key) const {
    return (chosen >> token_[r] & 1) != 0 ? visible_[r] - first_key : 0;
  }
  /// Column 8 j + 2 c + e.
  __device__ int key_of(int j, int e) const { return 8 * j + 2 * (lane_ % 4) + e; }

  /// x_ from products to weights over each row's reference. A row that did not choose the page
  /// keeps its reference and gets weights of 0.
  template <bool masked>
  __device__ void softmax(std::uint32_t chosen, std::int32_t first_key) {
    // Two chains a row: with one, half of the time went into waiting for the comparison before.
    float largest[2][2] = {{-INFINITY, -INFINITY}, {-INFINITY, -INFINITY}};
    const int keys[] = {keys_of(0, chosen, first_key), keys_of(1, chosen, first_key)};
    for_each_weight([&](int r, int j, int e, float& x) {
      if (masked && key_of(j, e) >= keys[r]) x = -INFINITY;
      largest[r][e] = fmaxf(largest[r][e], x);
    });
    bool far = false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = fmaxf(largest[r][0], largest[r][1]);
      top = fmaxf(top, __shfl_xor_sync(all_lanes, top, 1));
      top = fmaxf(top, __shfl_xor_sync(all_lanes, top, 2));
      // No key at all stays −inf, whatever the factor.
      const float logit = top == -INFINITY ? top : __fmul_rn(top, factor_[r]);
      const float before = reference_[r];
      reference_[r] = logit > before + most_over_reference ? logit : before;
      shrink_[r] = exp2_fast(before - shift_of(reference_[r]));
      far = far || !(fabsf(shift_of(reference_[r])) <= largest_plain_logit) || factor_[r] == 0;
    }
    if (__any_sync(all_lanes, far)) {
      weigh_carefully(keys);
    } else {
      weigh();
    }
  }

  /// use(row, j, e, x) for every element of x_.
  template <class Use>
  __device__ void for_each_weight(Use use) {
#pragma unroll
    for (int j = 0; j < columns; ++j) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        use(r, j, 0, x_[4 * j + 2 * r]);
        use(r, j, 1, x_[4 * j + 2 * r + 1]);
      }
    }
  }

  /// The product with the factor is rounded together with the difference: it is exact, and the
  /// reference is not, by up to 2^-9 here.
  __device__ void weigh() {
    const float shift[] = {shift_of(reference_[0]), shift_of(reference_[1])};
    float total[2][2] = {};
    for_each_weight([&](int r, int, int e, float& x) {
      x = exp2_fast(__fmaf_rn(x, factor_[r], -shift[r]));
      total[r][e] += x;
    });
    add_to_sums(total);
  }

  /// Of the same rows, and of those where the reference is so large, or not finite, that a logit
  /// would differ from itself: these round each product first.
  __device__ void weigh_carefully(const int (&keys)[2]) {
    const float shift[] = {shift_of(reference_[0]), shift_of(reference_[1])};
    float total[2][2] = {};
    for_each_weight([&](int r, int j, int e, float& x) {
      const float distance = fabsf(shift[r]) <= largest_plain_logit
                                 ? __fmaf_rn(x, factor_[r], -shift[r])
                                 : __fadd_rn(__fmul_rn(x, factor_[r]), -shift[r]);
      x = key_of(j, e) < keys[r] ? exp2_fast(distance) : 0;  // −inf times a factor of 0 is NaN
      total[r][e] += x;
    });
    add_to_sums(total);
  }

  __device__ void add_to_sums(const float (&total)[2][2]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum_[r] = __fmaf_rn(sum_[r], shrink_[r], __fadd_rn(total[r][0], total[r][1]));
    }
  }

  /// O follows the references; in most pages there is nothing to do for any row of the warp.
  __device__ void shrink() {
    if (!__any_sync(all_lanes, shrink_[0] != 1 || shrink_[1] != 1)) return;
#pragma unroll
    for (int i = 0; i < accumulators; ++i) o_[i] *= shrink_[i / 2 % 2];
  }

  __device__ void pack_weights() {
#pragma unroll
    for (int i = 0; i < accumulators; i += 2) {
      weights_[i / 8][i % 8 / 2] = pack<product>(x_[i], x_[i + 1]);
    }
  }

  /// Rows of out, through the place of this warp's queries.
  __device__ void write(const Tile& tile) {
    sync();  // no product of the warpgroup reads Q any more
    Stats stats[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float total = sum_[r];
      total += __shfl_xor_sync(all_lanes, total, 1);
      total += __shfl_xor_sync(all_lanes, total, 2);
      stats[r] = {reference_[r], total};
    }
    normalize(stats);
    // Matrix m of a lane's address: rows 8 (m mod 2) of the warp's, columns 8 (j + m / 2).
    const int matrix = lane_ / 8, own = 16 * warp_ + matrix % 2 * 8 + lane_ % 8;
#pragma unroll
    for (int j = 0; j < columns; j += 2) {
      std::uint32_t bits[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float first = o_[4 * j + 2 * i], second = o_[4 * j + 2 * i + 1];
        bits[i] = p_.out_is_f16 ? pack<ptx::Operand::f16>(first, second)
                                : pack<ptx::Operand::bf16>(first, second);
      }
      ptx::store_matrices(
          ptx::shared_address(queries_ + operand_offset<half_rows>(own, 8 * (j + matrix / 2))),
          bits);
    }
    __syncwarp();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const TileRow row = row_of_warp(lane_ / 4 + 8 * r);
      if (p_.lse == nullptr || lane_ % 4 != 0 || !row.exists(p_, tile)) continue;
      p_.lse[row.token(tile) * p_.lse_token + row.q_head(p_, tile) * p_.lse_head] =
          lse_of(stats[r]);
    }
    copy_rows(tile);
  }

  /// O / sum · v_scale, within out's type; 0 without a key. Adding 0 leaves one sign of zero.
  __device__ void normalize(const Stats (&stats)[2]) {
    const float v_scale = p_.v_scale.value(), most = largest_of(p_.out_is_f16);
    float top = 0;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float inverse = reciprocal_fast(stats[r].y);
      const bool empty = stats[r].y == 0;
#pragma unroll
      for (int j = 0; j < columns; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = o_[4 * j + 2 * r + e];
          x = empty ? 0 : __fmaf_rn(x, inverse, 0.0f);
          if (v_scale != 1) x = __fmaf_rn(x, v_scale, 0.0f);
          top = fmaxf(top, fabsf(x));
        }
      }
    }
    if (!__any_sync(all_lanes, top > most)) return;
#pragma unroll
    for (int i = 0; i < accumulators; ++i) o_[i] = clamp_to_largest(o_[i], most);
  }

  /// 16 lanes a row.
  __device__ void copy_rows(const Tile& tile) const {
    constexpr int chunks = head_dim / 8;
    const int chunk = lane_ % chunks;
#pragma unroll
    for (int i = 0; i < 16; i += warp_size / chunks) {
      const int own = i + lane_ / chunks;
      const TileRow row = row_of_warp(own);
      const auto bits = *reinterpret_cast<const uint4*>(
          queries_ + operand_offset<half_rows>(16 * warp_ + own, 8 * chunk));
      if (!row.exists(p_, tile)) continue;
      store_eight(
          p_.out + row.token(tile) * p_.out_token + row.q_head(p_, tile) * p_.out_head + 8 * chunk,
          bits, p_.out_aligned);
    }
  }

  const Params& p_;
  const Cta& cta_;
  Shared& s_;
  int group_, warp_, lane_;  // warpgroup of the CTA, warp of it, lane of it
  unsigned char* queries_;   // of this warpgroup
  ptx::RingPlace place_;

  std::uint32_t group_mask_ = 0;  // the warpgroup's tokens
  std::int32_t all_visible_ = 0;  // keys that all of them see
  bool both_ = false;             // a token of the other warpgroup chose the page too
  // Of this thread's two rows.
  int token_[2];  // of the tile
  std::int32_t visible_[2];
  float factor_[2];
  float reference_[2], sum_[2];  // of the weights: what is subtracted from logits, and their sum
  float shrink_[2];              // by the page's reference

  float o_[accumulators];
  float x_[accumulators];              // products, then weights
  std::uint32_t weights_[k_steps][4];  // P as operand A
};

}  // namespace msa::cuda::sm90::prefill
