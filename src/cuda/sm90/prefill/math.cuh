// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/ptx/wgmma.cuh"
#include "cuda/common/query_row.cuh"
#include "cuda/common/row_out.cuh"
#include "cuda/common/softmax.cuh"
#include "cuda/sm90/prefill/far_row.cuh"
#include "cuda/sm90/prefill/tile.cuh"

/// \file
/// A warpgroup that computes: S[64, 128 keys] = Q · K^T and O[64, 128] += P · V of the pages that
/// its tokens chose. S of a page is multiplied together with O of the page before, and its weights
/// are made while the tensor cores work for the other warpgroup.
///
/// A thread is lane 4 g + c of warp w. It holds, of rows 16 w + g and + 8, columns 8 j + 2 c and
/// + 1 for each j < 16: keys of S, elements of O.

namespace msa::cuda::sm90::prefill {

template <DType type>
class Math {
 public:
  __device__ Math(const Params& p, const Cta<type>& cta)
      : p_(p),
        cta_(cta),
        s_(cta.shared),
        // The same for all lanes, and known to be: addresses that follow from it need no vectors.
        group_(__shfl_sync(all_lanes, static_cast<int>(threadIdx.x) / warpgroup, 0)),
        warp_(static_cast<int>(threadIdx.x) % warpgroup / warp_size),
        lane_(static_cast<int>(threadIdx.x) % warp_size),
        queries_(s_.queries[group_]) {}

  __device__ void run() {
    for (ptx::Turn turn;; turn.advance()) {
      ptx::wait(s_.list_full[turn.index], turn.parity);
      const Tile& tile = s_.tile[turn.index];
      if (tile.rows == 0) return;
      const TileList list = cta_.list(turn.index);
      begin(tile);
      sum(tile, list.blocks);
      total_sums();
      const RowMask far = compute_far_rows(tile, list);
      write(tile, far);
      ptx::arrive(s_.tile_free[turn.index]);
    }
  }

 private:
  static constexpr ptx::Operand product = product_of(type);
  static constexpr unsigned all_lanes = 0xffffffff;
  static constexpr int accumulators = 64;  // of a thread
  static constexpr int columns = 16;       // j
  static constexpr int k_steps = 128 / 16;
  /// Weights of 2^4 at most: a row's reference need not follow its maximum closer, and O is rarely
  /// multiplied.
  static constexpr float most_over_reference = 4;
  /// The reference is rounded by 2^-10 at 2^14 (2^-11 at 2^13). Weights, their sum and LSE agree
  /// about that, but P rounds it away again where it should be 1: by less than out's rounding up to
  /// here.
  static constexpr float largest_reference = product == ptx::Operand::f16 ? 0x1p13f : 0x1p14f;

  /// What a page's products are looked at for.
  enum class Mask {
    none,  // every row of the warpgroup chose the page and sees all of it
    rows,  // every row that chose it sees all of it: the weights of the others are cleared when
           // they are packed, two at a time, which is a quarter of what masked products take
    keys,  // products of keys that a row did not choose or does not see become −inf
  };
  /// Whether Mask::rows is used. In 8-bit caches, whose conversions share a pipe with comparisons,
  /// it saves 13 %; in 16-bit ones it saves 3 % where nearly all pages are of that kind, and the
  /// code of a third loop costs 1 to 4 % where few are.
  static constexpr bool clears_weights = Ring<type>::widens;

  /// Every thread of this warpgroup is here.
  __device__ void sync() const { ptx::sync_threads(barriers::own + group_, warpgroup); }
  __device__ TileRow row_of_warp(int i) const { return {p_, group_rows * group_ + 16 * warp_ + i}; }

  /// The largest logit is looked for before the factor is multiplied in, which must keep the order
  /// then: a negative factor's sign goes into the query, and of a factor of 0 a query of zeros is
  /// left, or NaN.
  __device__ static void make_positive(QueryRow<product>& query) {
    if (query.factor > 0) return;
    const bool zero = query.factor == 0;
    query.factor = zero ? 1 : -query.factor;  // NaN stays
    for (std::uint32_t* bits : {&query.bits.x, &query.bits.y, &query.bits.z, &query.bits.w}) {
      *bits = zero ? times_zero<product>(*bits) : *bits ^ 0x80008000;
    }
  }

  /// Each warp its own 16 rows as operand A, and their logit factors. All loads are under way
  /// together.
  __device__ void load_queries(const Tile& tile) const {
    constexpr int rows_at_once = warp_size / query_lanes;
    const double scale = logit_scale(p_.softmax_scale, p_.k_scale.value());
    const int part = lane_ % query_lanes, first = lane_ / query_lanes;
    uint4 bits[16 / rows_at_once];
#pragma unroll
    for (int i = 0; i < 16 / rows_at_once; ++i) {
      const TileRow row = row_of_warp(first + i * rows_at_once);
      bits[i] = {0, 0, 0, 0};
      if (!row.exists(p_, tile)) continue;
      bits[i] = load_query(
          p_.q + row.token(tile) * p_.q_token + row.q_head(p_, tile) * p_.q_head + 8 * part,
          p_.q_aligned);
    }
#pragma unroll
    for (int i = 0; i < 16 / rows_at_once; ++i) {
      const int row = 16 * warp_ + first + i * rows_at_once;
      QueryRow<product> query(bits[i], p_.q_is_f16, scale);
      make_positive(query);
      if (part == 0) s_.factor[group_rows * group_ + row] = query.factor;
      *reinterpret_cast<uint4*>(queries_ + operand_offset<group_rows>(row, 8 * part)) = query.bits;
    }
    ptx::fence_async_proxy();
    sync();  // Q of all 64 rows is complete
  }

  __device__ void begin(const Tile& tile) {
    load_queries(tile);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int own = lane_ / 4 + 8 * r;
      token_[r] = row_of_warp(own).own_token;
      factor_[r] = s_.factor[group_rows * group_ + 16 * warp_ + own];
      visible_[r] = token_[r] < tile.rows ? tile.visible(p_, tile.seq_len, token_[r]) : 0;
      reference_[r] = -INFINITY;
      sum_[r] = 0;
      far_[r] = false;
    }
    const int tokens = group_rows >> p_.padded_group_log2;
    const int first = group_ * tokens, end = min(first + tokens, tile.rows);
    group_mask_ = end > first ? (all_lanes >> (32 - (end - first))) << first : 0;
    all_visible_ = group_mask_ != 0 ? tile.visible(p_, tile.seq_len, first) : 0;
#pragma unroll
    for (int i = 0; i < accumulators; ++i) o_[i] = 0;
  }

  /// All pages of the tile's list. Those that no token of this warpgroup chose are passed by.
  __device__ void sum(const Tile& tile, const ListView& list) {
    int pending = -1;  // the page whose weights are made and whose values are not yet used
    ptx::RingPlace pending_values;
    for (int i = 0; i < tile.length; ++i) {
      const std::uint32_t chosen = static_cast<std::uint32_t>(list.rows[i]) & group_mask_;
      const ptx::RingPlace keys = place_;
      ptx::RingPlace values = place_;
      values.advance(Ring<type>::slots, 1);
      place_.advance(Ring<type>::slots, 2);
      if (chosen == 0) {
        // The ring must be able to reach the next page.
        if (pending >= 0 && i + 1 > pending + Ring<type>::pages_ahead) {
          add_values(pending_values);
          pending = -1;
        }
        pass(keys);
        pass(values);
        continue;
      }
      const std::int32_t first_key = list.id[i] * page_size;
      const bool whole = all_visible_ - first_key >= page_size;
      if (pending < 0) {
        first_page(keys, chosen, first_key);
      } else if (whole && chosen == group_mask_) {
        next_page<Mask::none>(keys, pending_values, chosen, first_key);
      } else if (whole && clears_weights) {
        next_page<Mask::rows>(keys, pending_values, chosen, first_key);
      } else {
        next_page<Mask::keys>(keys, pending_values, chosen, first_key);
      }
      pending = i;
      pending_values = values;
    }
    if (pending >= 0) add_values(pending_values);
  }

  /// The same for all lanes, and known to be, as group_.
  __device__ std::uint32_t slot_address(const ptx::RingPlace& place) const {
    return __shfl_sync(all_lanes, ptx::shared_address(cta_.slot(place)), 0);
  }
  __device__ void await(const ptx::RingPlace& place) const {
    ptx::wait(s_.slot_full[place.slot], place.parity);
    __syncwarp();
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
      const int box = step / 4, inside = ptx::step_of(step % 4 * 32);
      ptx::wgmma<product, 0>(x_, q + ptx::step_of(box * group_rows * 128) + inside,
                             k + ptx::step_of(box * static_cast<int>(box_bytes)) + inside,
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
    ptx::wgmma_fence();
    multiply_keys(keys);
    ptx::wgmma_wait();
    release(keys);
    softmax<Mask::keys>(chosen, first_key);
    shrink();
    pack_weights<Mask::keys>(chosen);
  }

  template <Mask mask>
  __device__ void next_page(const ptx::RingPlace& keys, const ptx::RingPlace& values_before,
                            std::uint32_t chosen, std::int32_t first_key) {
    await(keys);
    await(values_before);
    ptx::wgmma_fence();
    multiply_keys(keys);
    multiply_values(values_before);
    ptx::wgmma_wait<1>();
    release(keys);
    softmax<mask>(chosen, first_key);
    keep_before_wait();
    ptx::wgmma_wait();
    release(values_before);
    shrink();
    pack_weights<mask>(chosen);
  }

  /// Without it the compiler moves the weights behind the wait for O, as nothing else needs them
  /// before, and the tensor cores' work is waited for first. A store that never comes to pass,
  /// since sums are not negative, depends on all of them.
  __device__ void keep_before_wait() const {
    asm volatile("{.reg .pred p; setp.lt.f32 p, %1, 0f00000000; @p st.shared.f32 [%0], %1;}" ::"r"(
                     ptx::shared_address(&s_.factor[0])),
                 "f"(sum_[0] + sum_[1])
                 : "memory");
  }

  __device__ void add_values(const ptx::RingPlace& values) {
    await(values);
    ptx::wgmma_fence();
    multiply_values(values);
    ptx::wgmma_wait();
    release(values);
  }

  /// Whether the thread's row r chose the page.
  __device__ bool chose(int r, std::uint32_t chosen) const {
    return (chosen >> token_[r] & 1) != 0;
  }
  /// Keys from `first_key` on that it sees.
  __device__ int keys_of(int r, std::uint32_t chosen, std::int32_t first_key) const {
    return chose(r, chosen) ? visible_[r] - first_key : 0;
  }
  /// Column 8 j + 2 c + e.
  __device__ int key_of(int j, int e) const { return 8 * j + 2 * (lane_ % 4) + e; }

  /// x_ from products to weights over each row's reference. A row that did not choose the page
  /// keeps its reference and gets weights of 0, with Mask::rows when they are packed.
  template <Mask mask>
  __device__ void softmax(std::uint32_t chosen, std::int32_t first_key) {
    // Two chains a row: with one, half of the time went into waiting for the comparison before.
    float largest[2][2] = {{-INFINITY, -INFINITY}, {-INFINITY, -INFINITY}};
    const int keys[] = {keys_of(0, chosen, first_key), keys_of(1, chosen, first_key)};
    for_each_weight([&](int r, int j, int e, float& x) {
      if (mask == Mask::keys && key_of(j, e) >= keys[r]) x = -INFINITY;
      largest[r][e] = fmaxf(largest[r][e], x);
    });
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = fmaxf(largest[r][0], largest[r][1]);
      top = fmaxf(top, __shfl_xor_sync(all_lanes, top, 1));
      top = fmaxf(top, __shfl_xor_sync(all_lanes, top, 2));
      const float logit = __fmul_rn(top, factor_[r]), before = reference_[r];
      const bool grows =
          logit > before + most_over_reference && (mask != Mask::rows || chose(r, chosen));
      reference_[r] = grows ? logit : before;
      shrink_[r] = grows ? exp2_fast(before - logit) : 1;
      far_[r] = far_[r] || fabsf(shift_of(reference_[r])) > largest_reference;
    }
    weigh<mask>(chosen);
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

  /// The product with the factor is rounded together with the difference, which saves 64
  /// of a page's 460 instructions and 10 % of the time. The product is exact then and the reference
  /// is not: a weight of 1 differs from it by what the reference was rounded by. A row where that
  /// is more than P rounds away is far_, and computed again at the end. (Choosing between this and
  /// rounded products for each page, even where all rows choose this, takes 12 % more time.)
  template <Mask mask>
  __device__ void weigh(std::uint32_t chosen) {
    const float shift[] = {shift_of(reference_[0]), shift_of(reference_[1])};
    float total[2][2] = {};
    for_each_weight([&](int r, int, int e, float& x) {
      x = exp2_fast(__fmaf_rn(x, factor_[r], -shift[r]));
      total[r][e] += x;
    });
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (mask == Mask::rows && !chose(r, chosen)) continue;
      sum_[r] = __fmaf_rn(sum_[r], shrink_[r], __fadd_rn(total[r][0], total[r][1]));
    }
  }

  /// O follows the references; in most pages there is nothing to do for any row of the warp.
  __device__ void shrink() {
    if (!__any_sync(all_lanes, shrink_[0] != 1 || shrink_[1] != 1)) return;
#pragma unroll
    for (int i = 0; i < accumulators; ++i) o_[i] *= shrink_[i / 2 % 2];
  }

  template <Mask mask>
  __device__ void pack_weights(std::uint32_t chosen) {
    const std::uint32_t kept[] = {chose(0, chosen) ? ~0u : 0, chose(1, chosen) ? ~0u : 0};
#pragma unroll
    for (int i = 0; i < accumulators; i += 2) {
      std::uint32_t& two = weights_[i / 8][i % 8 / 2];
      two = pack<product>(x_[i], x_[i + 1]);
      if (mask == Mask::rows) two &= kept[i / 2 % 2];
    }
  }

  /// Rows of this warp.
  struct RowMask {
    unsigned of[2];  // bit 4 i: row i, and row 8 + i
    __device__ bool holds(int row) const { return (of[row / 8] >> row % 8 * 4 & 1) != 0; }
  };

  /// The sums of a row's four lanes. A row with a logit of +inf is NaN already.
  __device__ void total_sums() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum_[r] += __shfl_xor_sync(all_lanes, sum_[r], 1);
      sum_[r] += __shfl_xor_sync(all_lanes, sum_[r], 2);
      far_[r] = far_[r] && reference_[r] < INFINITY;
    }
  }

  /// The rows that weigh() could not do; they are written as well.
  __device__ RowMask compute_far_rows(const Tile& tile, const TileList& list) const {
    const RowMask far = {__ballot_sync(all_lanes, far_[0]), __ballot_sync(all_lanes, far_[1])};
    if ((far.of[0] | far.of[1]) == 0) return far;
    __syncwarp();
    for (int i = 0; i < 16; ++i) {
      const TileRow row = row_of_warp(i);
      if (far.holds(i) && row.exists(p_, tile)) {
        const int own = 16 * warp_ + i;
        compute_far_row<type>(p_, tile, list, row, queries_, own,
                              s_.factor[group_rows * group_ + own]);
      }
    }
    return far;
  }

  /// Rows of out, through the place of this warp's queries, but for those of `done`.
  __device__ void write(const Tile& tile, const RowMask& done) {
    sync();  // no product of the warpgroup reads Q any more
    const Stats stats[] = {{reference_[0], sum_[0]}, {reference_[1], sum_[1]}};
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
          ptx::shared_address(queries_ + operand_offset<group_rows>(own, 8 * (j + matrix / 2))),
          bits);
    }
    __syncwarp();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const TileRow row = row_of_warp(lane_ / 4 + 8 * r);
      const bool wanted = row.exists(p_, tile) && !far_[r];
      if (p_.lse == nullptr || lane_ % 4 != 0 || !wanted) continue;
      p_.lse[row.token(tile) * p_.lse_token + row.q_head(p_, tile) * p_.lse_head] =
          lse_of(stats[r]);
    }
    copy_rows(tile, done);
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
  __device__ void copy_rows(const Tile& tile, const RowMask& done) const {
    constexpr int chunks = head_dim / 8;
    const int chunk = lane_ % chunks;
#pragma unroll
    for (int i = 0; i < 16; i += warp_size / chunks) {
      const int own = i + lane_ / chunks;
      const TileRow row = row_of_warp(own);
      const auto bits = *reinterpret_cast<const uint4*>(
          queries_ + operand_offset<group_rows>(16 * warp_ + own, 8 * chunk));
      if (!row.exists(p_, tile) || done.holds(own)) continue;
      store_eight(
          p_.out + row.token(tile) * p_.out_token + row.q_head(p_, tile) * p_.out_head + 8 * chunk,
          bits, p_.out_aligned);
    }
  }

  const Params& p_;
  const Cta<type>& cta_;
  Shared& s_;
  int group_, warp_, lane_;  // warpgroup of the CTA, warp of it, lane of it
  unsigned char* queries_;   // of this warpgroup
  ptx::RingPlace place_;

  std::uint32_t group_mask_ = 0;  // the warpgroup's tokens
  std::int32_t all_visible_ = 0;  // keys that all of them see
  // Of this thread's two rows.
  int token_[2];  // of the tile
  std::int32_t visible_[2];
  float factor_[2];
  float reference_[2], sum_[2];  // of the weights: what is subtracted from logits, and their sum
  float shrink_[2];              // by the last page's reference
  bool far_[2];                  // a reference was too large for weigh()

  float o_[accumulators];
  float x_[accumulators];              // products, then weights
  std::uint32_t weights_[k_steps][4];  // P as operand A
};

}  // namespace msa::cuda::sm90::prefill
