// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/attend/block_list.cuh"
#include "cuda/common/attend/items.h"
#include "cuda/common/ptx/barrier.cuh"
#include "cuda/common/ptx/mma.cuh"
#include "cuda/common/query_row.cuh"
#include "cuda/common/row_out.cuh"
#include "cuda/portable/decode/cache.cuh"
#include "cuda/portable/decode/config.h"
#include "cuda/portable/decode/fetch.cuh"
#include "cuda/portable/decode/fold.cuh"
#include "cuda/portable/decode/params.h"

/// \file
/// What a CTA does with an item. Pairs (row, query head) are the rows of m16 tiles. For a step of
/// keys, each of the four warps computes S of 16 of each 64 keys, takes the softmax over these
/// alone, and leaves P and (maximum, sum) in shared memory; after the step's one barrier each warp
/// computes O of 32 columns of V from all of P, and weights the four warps' parts by their maxima.
///
/// A lane 4 g + c holds rows g and g + 8 of a tile.

namespace msa::cuda::portable::decode {

template <class Cache, class S>
class Cta {
 public:
  static constexpr int tiles = S::tiles;

  __device__ Cta(const Params& p, const Item& item, Shared<S>& shared)
      : p_(p),
        item_(item),
        s_(shared),
        warp_(static_cast<int>(threadIdx.x) / warp_size),
        lane_(static_cast<int>(threadIdx.x) % warp_size),
        fetch_(p, warp_, lane_) {}

  /// The item's list and its queries.
  __device__ void prepare() {
    if (warp_ == 0) {
      make_list();
    } else {
      bring_queries();
    }
    __syncthreads();
    length_ = s_.length;
    seq_len_ = s_.seq_len;
  }

  __device__ int units() const { return ceil_div(length_, unit_pages); }

  /// Units [first, end) of the item.
  __device__ void sum(int first, int end) {
    clear(group_);
    clear(total_);
    first_unit_ = first;
    const int first_page = first * unit_pages;
    const int end_page = min(end * unit_pages, length_);
    first_step_ = first_page * S::page_steps;
    end_step_ = end_page * S::page_steps;
    if (first_step_ >= end_step_) return;
#pragma unroll
    for (int i = 0; i < S::depth; ++i) {
      bring_keys(first_step_ + i, i);
      bring_values(first_step_ + i, i);
    }
    load_queries();
    clear(unit_);
    int k_slot = 0, v_slot = 0;
#pragma unroll 1
    for (int step = first_step_; step < end_step_; ++step) {
      const int page = step / S::page_steps;
      const std::int32_t rows = s_.rows[page];
      const int first_key = s_.id[page] * page_size + step % S::page_steps * S::keys;
      const unsigned active = active_tiles(rows);
      const int parity = step & 1;
      ptx::wait_copies<2 * S::depth - 1>();
      if constexpr (tiles == 1) {
        __syncwarp();
        logits(k_slot, parity, rows, first_key, active);
        __syncwarp();
        bring_keys(step + S::depth, k_slot);
        ptx::wait_copies<2 * S::depth - 1>();
        __syncthreads();  // P and V of this step are here, and V of the step before has been used
      } else {
        __syncthreads();  // K of this step is here
        logits(k_slot, parity, rows, first_key, active);
        ptx::wait_copies<2 * S::depth - 2>();
        __syncthreads();  // likewise, and K has been used
        bring_keys(step + S::depth, k_slot);
      }
      bring_values(step + S::depth, v_slot == 0 ? S::depth : v_slot - 1);
      values(v_slot, parity, active);
      k_slot = k_slot + 1 == S::depth ? 0 : k_slot + 1;
      v_slot = v_slot == S::depth ? 0 : v_slot + 1;
      const bool ends_page = (step + 1) % S::page_steps == 0;
      if (ends_page && ((page + 1) % unit_pages == 0 || step + 1 == end_step_)) {
        end_unit(page / unit_pages, end);
        clear(unit_);
      }
    }
  }

  /// Rows of out and LSE of an item that is this CTA's alone.
  __device__ void write() {
    const float v_scale = p_.v_scale.value();
    const int pairs = item_.rows * p_.group;
    const Run& run = total_;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Stats& stats = run.stats[half];
      const Normalize own_normalize(stats, v_scale);
      const int own = 16 * own_tile() + 8 * half + lane_ / 4;
      if (p_.lse != nullptr && warp_ == 0 && lane_ % 4 < tiles && own < pairs) {
        const Place place(*this, own);
        p_.lse[place.token * p_.lse_token + place.head * p_.lse_head] = lse_of(stats);
      }
#pragma unroll
      for (int t = 0; t < tiles; ++t) {
        Normalize normalize = own_normalize;
        normalize.inverse = from_owner(own_normalize.inverse, t);
        normalize.empty = from_owner(own_normalize.empty ? 1.0f : 0.0f, t) != 0;
        const int pair = 16 * t + 8 * half + lane_ / 4;
        if (pair >= pairs) continue;
        const Place place(*this, pair);
        std::uint16_t* out =
            p_.out + place.token * p_.out_token + place.head * p_.out_head + S::columns * warp_;
#pragma unroll
        for (int i = 0; i < elements / 2; ++i) {
          const float(&x)[elements] = run.o[t][half];
          const std::uint32_t bits =
              pack_out(p_.out_is_f16, normalize(x[2 * i]), normalize(x[2 * i + 1]));
          std::uint16_t* to = out + Cache::column(lane_, i);
          if (p_.out_aligned) {
            *reinterpret_cast<std::uint32_t*>(to) = bits;
          } else {
            to[0] = static_cast<std::uint16_t>(bits);
            to[1] = static_cast<std::uint16_t>(bits >> 16);
          }
        }
      }
    }
  }

  char* partials = nullptr;  // of the item, where CTAs share it

 private:
  static constexpr int blocks = S::keys / 64;     // 16 keys of each are a warp's
  static constexpr int n_tiles = 2 * blocks;      // of 8 keys, of a warp
  static constexpr int o_tiles = S::columns / 8;  // of 8 columns of V, of a warp
  static constexpr int elements = 2 * o_tiles;    // of O, of a lane and row

  /// A run of keys: O of the warp's columns of every tile, and (maximum, sum) of rows g and g + 8
  /// of the lane's own tile.
  struct Run {
    float o[tiles][2][elements];  // [tile][row g, g + 8][Cache::element]
    Stats stats[2];
  };
  __device__ static void clear(Run& run) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      run.stats[half] = no_keys();
#pragma unroll
      for (int t = 0; t < tiles; ++t) {
#pragma unroll
        for (int i = 0; i < elements; ++i) run.o[t][half][i] = 0;
      }
    }
  }
  __device__ void join(Run& run, const Run& part) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Fold fold(run.stats[half], part.stats[half]);
      run.stats[half] = fold.stats;
#pragma unroll
      for (int t = 0; t < tiles; ++t) {
        const Weights own = {from_owner(fold.weight_a, t), from_owner(fold.weight_b, t)};
#pragma unroll
        for (int i = 0; i < elements; ++i) {
          run.o[t][half][i] = own(run.o[t][half][i], part.o[t][half][i]);
        }
      }
    }
  }
  /// The four lanes of a row share the tiles' numbers out among them.
  __device__ int own_tile() const { return lane_ % 4 % tiles; }
  __device__ float from_owner(float x, int t) const {
    return tiles == 1 ? x : __shfl_sync(0xffffffffu, x, (lane_ & ~3) | t);
  }
  /// Where a pair's row of out is.
  struct Place {
    __device__ Place(const Cta& cta, int pair) {
      const int row = cta.s_.row[pair];
      token = cta.item_.first_token + row;
      head = cta.item_.head * cta.p_.group + pair - row * cta.p_.group;
    }
    std::int64_t token;
    int head;
  };

  __device__ void make_list() {
    const std::int32_t seq_len = item_.seq_len(p_);
    auto* scratch = reinterpret_cast<std::int32_t*>(s_.k);
    const ListScratch places = {scratch, scratch + max_ids(1), s_.page,
                                reinterpret_cast<std::uint32_t*>(scratch + 2 * max_ids(1)),
                                reinterpret_cast<std::uint32_t*>(scratch + 2 * max_ids(1)) + 32};
    const int length = build_list(p_, item_, seq_len, {s_.id, s_.rows}, places);
    if (lane_ == 0) {
      s_.length = length;
      s_.seq_len = seq_len;
    }
  }

  __device__ unsigned char* queries() const {
    if constexpr (S::q_in_registers) return s_.v[S::depth];
    return s_.q;
  }

  /// The other warps: 16 lanes look after a pair, eight neighbouring elements each.
  __device__ void bring_queries() {
    constexpr int step = 2 * (S::warps - 1);
    constexpr int batch = 3;  // loads of a lane that are under way together
    const int lane = lane_ % query_lanes;
    const int pairs = item_.rows * p_.group;
    const double scale = logit_scale(p_.softmax_scale, p_.k_scale.value());
    const std::uint16_t* first =
        p_.q + item_.first_token * p_.q_token + item_.head * p_.group * p_.q_head + lane * 8;
    unsigned char* to = queries();
#pragma unroll 1
    for (int begin = 2 * (warp_ - 1) + lane_ / query_lanes; begin - lane_ / query_lanes < S::rows;
         begin += batch * step) {
      uint4 loaded[batch];
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        const int pair = begin + i * step;
        loaded[i] = {0, 0, 0, 0};
        if (pair >= pairs) continue;
        const int row = row_of(pair, p_.row_factor);
        const std::uint16_t* from = first + row * p_.q_token + (pair - row * p_.group) * p_.q_head;
        loaded[i] = cuda::load_query(from, p_.q_aligned);
      }
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        const int pair = begin + i * step;
        const QueryRow<Cache::product> row(loaded[i], p_.q_is_f16, scale);
        if (pair >= S::rows) continue;
        if (lane == 0) {
          s_.factor[pair] = row.factor;
          s_.row[pair] = static_cast<std::uint8_t>(min(row_of(pair, p_.row_factor), 31));
        }
        const std::uint32_t words[] = {row.bits.x, row.bits.y, row.bits.z, row.bits.w};
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          const int at = Cache::q_position(8 * lane + 2 * w);
          *reinterpret_cast<std::uint32_t*>(to + pair * 256 + ((at / 8) ^ pair % 8) * 16 +
                                            at % 8 * 2) = words[w];
        }
      }
    }
  }

  /// A lane's part of operand A of Q, or of P.
  template <int row_bytes>
  __device__ std::uint32_t row_offset() const {
    return lane_offset<row_bytes>(lane_ % 16, lane_ / 16);
  }
  /// K step `step` of tile `t`.
  template <int row_bytes>
  __device__ static void load_rows(std::uint32_t at, int t, int step, std::uint32_t (&a)[4]) {
    ptx::load_matrices(a, stepped<row_bytes>(at, 16 * t, 2 * step));
  }
  __device__ void load_queries() {
    if constexpr (S::q_in_registers) {
      const std::uint32_t from = ptx::shared_address(queries()) + row_offset<256>();
#pragma unroll
      for (int k = 0; k < head_dim / 16; ++k) load_rows<256>(from, 0, k, q_[k]);
    }
  }

  /// Asks for the keys of a step, or ends an empty group: the waits count groups.
  __device__ void bring_keys(int step, int slot) const {
    if (step < end_step_) bring(p_.k, s_.k[slot], step);
    ptx::commit_copies();
  }
  __device__ void bring_values(int step, int slot) const {
    if (step < end_step_) bring(p_.v, s_.v[slot], step);
    ptx::commit_copies();
  }
  __device__ void bring(const HalfView& view, unsigned char* slot, int step) const {
    const int page = step / S::page_steps, begin = step % S::page_steps * S::keys;
    const char* from =
        view.data + s_.page[page] * view.page + item_.head * view.head + begin * view.token;
    fetch_.bring(ptx::shared_address(slot), slot, from, view.token,
                 seq_len_ - s_.id[page] * page_size - begin);
  }

  /// Bit t: some row of tile t chose the page.
  __device__ unsigned active_tiles(std::int32_t rows) const {
    if constexpr (tiles == 1) return 1;
    unsigned active = 0;
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
      const int begin = s_.row[16 * t], end = s_.row[16 * t + 15] + 1;
      const std::uint32_t own =
          (end >= 32 ? 0xffffffffu : (1u << end) - 1) & (0xffffffffu << begin);
      active |= (static_cast<std::uint32_t>(rows) & own) != 0 ? 1u << t : 0;
    }
    return active;
  }

  /// This warp's part of S of a step, one group of keys by one tile, which becomes P.
  __device__ void logits(int slot, int parity, std::int32_t rows, int first_key, unsigned active) {
    const int group = warp_ % key_groups, tile = tiles == 1 ? 0 : warp_ / key_groups;
    if (tiles > 1 && (active >> tile & 1) == 0) return;
    const std::uint32_t keys = ptx::shared_address(s_.k[slot]) + Cache::key_offset(group, lane_);
    const bool all =
        rows == (1 << item_.rows) - 1 && item_.visible(p_, seq_len_, 0) - first_key >= S::keys;
    float s[n_tiles][4];
#pragma unroll
    for (int block = 0; block < blocks; ++block) {
      // Halves of the dimensions are summed apart: low bits are cut off wherever small products
      // meet a large sum.
      float part[2][2][4] = {};
#pragma unroll
      for (int pair = 0; pair < head_dim / 32; ++pair) {
        std::uint32_t b[2][2][2];
        Cache::load_keys(keys, block, pair, b);
#pragma unroll
        for (int step = 0; step < 2; ++step) {
          std::uint32_t a[4];
          load_query(tile, 2 * pair + step, a);
#pragma unroll
          for (int n = 0; n < 2; ++n) {
            ptx::mma<Cache::product>(part[pair / 2][n], a, b[step][n][0], b[step][n][1]);
          }
        }
      }
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) s[2 * block + n][e] = part[0][n][e] + part[1][n][e];
      }
    }
    softmax(s, group, tile, parity, rows, first_key, all);
  }
  __device__ void load_query(int t, int step, std::uint32_t (&a)[4]) const {
    if constexpr (S::q_in_registers) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = q_[step][i];
    } else {
      load_rows<256>(ptx::shared_address(s_.q) + row_offset<256>(), t, step, a);
    }
  }

  __device__ void softmax(float (&s)[n_tiles][4], int group, int t, int parity, std::int32_t rows,
                          int first_key, bool all) {
    unsigned char* p = s_.p[parity];
    const int c = lane_ % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int pair = 16 * t + 8 * half + lane_ / 4;
      const float factor = s_.factor[pair];
      float largest = -INFINITY;
      int keys = S::keys;
      if (!all) {
        const int row = s_.row[pair];
        keys = (rows >> row & 1) != 0 ? item_.visible(p_, seq_len_, row) - first_key : 0;
      }
#pragma unroll
      for (int n = 0; n < n_tiles; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = s[n][2 * half + e];
          // Rounded here whatever follows: contracted with the subtraction of the maximum, a huge
          // logit would differ from itself.
          x = __fmul_rn(x, factor);
          if (!all && n / 2 * 64 + 16 * group + n % 2 * 8 + 2 * c + e >= keys) x = -INFINITY;
          largest = fmaxf(largest, x);
        }
      }
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
      const float shift = shift_of(largest);
      float total = 0;
      const std::uint32_t at = lane_offset<2 * S::keys>(pair, 2 * group) + 4 * c;
#pragma unroll
      for (int n = 0; n < n_tiles; ++n) {
        const float x = exp2_fast(__fadd_rn(s[n][2 * half], -shift));
        const float y = exp2_fast(__fadd_rn(s[n][2 * half + 1], -shift));
        total = __fadd_rn(total, __fadd_rn(x, y));
        *reinterpret_cast<std::uint32_t*>(p + (at ^ (n % 2 * 16)) + n / 2 * 128) =
            pack<Cache::product>(x, y);
      }
      total = __fadd_rn(total, __shfl_xor_sync(0xffffffffu, total, 1));
      total = __fadd_rn(total, __shfl_xor_sync(0xffffffffu, total, 2));
      if (c == 0) s_.stats[parity][pair][group] = {largest, total};
    }
  }

  /// P · V of a step joins the unit.
  __device__ void values(int slot, int parity, unsigned active) {
    const std::uint32_t v =
        ptx::shared_address(s_.v[slot]) + Cache::template value_offset<S::columns>(warp_, lane_);
    const std::uint32_t p = ptx::shared_address(s_.p[parity]) + row_offset<2 * S::keys>();
    join_stats(parity, active);
#pragma unroll(tiles == 1 ? key_groups : 2)
    for (int w = 0; w < key_groups; ++w) {
      std::uint32_t b[blocks][o_tiles][2];
#pragma unroll
      for (int block = 0; block < blocks; ++block) {
        Cache::template load_values<o_tiles>(v, 64 * block + 16 * w, b[block]);
      }
      float own_weight[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        own_weight[half] = weight_of(own_stats(parity, half)[w].x, unit_.stats[half].x);
      }
#pragma unroll
      for (int t = 0; t < tiles; ++t) {
        if (tiles != 1 && (active >> t & 1) == 0) continue;
        float o[o_tiles][4] = {};
#pragma unroll
        for (int block = 0; block < blocks; ++block) {
          std::uint32_t a[4];
          load_rows<2 * S::keys>(p, t, 4 * block + w, a);
#pragma unroll
          for (int n = 0; n < o_tiles; ++n) {
            ptx::mma<Cache::product>(o[n], a, b[block][n][0], b[block][n][1]);
          }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float weight = from_owner(own_weight[half], t);
#pragma unroll
          for (int n = 0; n < o_tiles; ++n) {
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              float& to = unit_.o[t][half][Cache::element(n, e)];
              to = __fmaf_rn(o[n][2 * half + e], weight, to);
            }
          }
        }
      }
    }
  }

  /// What keys of this maximum weigh beside a larger one.
  __device__ static float weight_of(float maximum, float largest) {
    return exp2_fast(__fadd_rn(maximum, -shift_of(largest)));
  }

  /// (maximum, sum) of the lane's own tile by warps.
  __device__ const float2* own_stats(int parity, int half) const {
    return s_.stats[parity][16 * own_tile() + 8 * half + lane_ / 4];
  }

  /// The step's maxima and sums join the unit, whose O shrinks.
  __device__ void join_stats(int parity, unsigned active) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float shrink = 1;
      if (tiles == 1 || (active >> own_tile() & 1) != 0) {
        const auto* from = reinterpret_cast<const float4*>(own_stats(parity, half));
        const float4 low = from[0], high = from[1];
        const float maxima[] = {low.x, low.z, high.x, high.z};
        const float sums[] = {low.y, low.w, high.y, high.w};
        Stats& stats = unit_.stats[half];
        const float before = stats.x;
        stats.x = fmaxf(fmaxf(fmaxf(maxima[0], maxima[1]), fmaxf(maxima[2], maxima[3])), before);
        shrink = weight_of(before, stats.x);
        stats.y = __fmul_rn(stats.y, shrink);
#pragma unroll
        for (int w = 0; w < key_groups; ++w) {
          stats.y = __fmaf_rn(sums[w], weight_of(maxima[w], stats.x), stats.y);
        }
      }
#pragma unroll
      for (int t = 0; t < tiles; ++t) {
        const float own = from_owner(shrink, t);
#pragma unroll
        for (int i = 0; i < elements; ++i)
          unit_.o[t][half][i] = __fmul_rn(unit_.o[t][half][i], own);
      }
    }
  }

  /// The unit joins its group, or leaves as a partial result, as does a group that is complete.
  __device__ void end_unit(int u, int end) {
    const bool joins = joins_group(u, first_unit_);
    const bool shared = partials != nullptr;
    if (!joins) return store(unit_, u);  // only where CTAs share the item
    join(group_, unit_);
    if ((u + 1) % group_units != 0 && u + 1 != end) return;
    if (shared) {
      store(group_, u / group_units * group_units);
    } else {
      join(total_, group_);
    }
    clear(group_);
  }

  __device__ void store(const Run& run, int place) const {
    char* to = partials + place * partial_bytes(tiles);
    auto* stats = reinterpret_cast<Stats*>(to + S::rows * head_dim * sizeof(float));
    const int pairs = item_.rows * p_.group;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int own = 16 * own_tile() + 8 * half + lane_ / 4;
      if (warp_ == 0 && lane_ % 4 < tiles && own < pairs) stats[own] = run.stats[half];
#pragma unroll
      for (int t = 0; t < tiles; ++t) {
        const int pair = 16 * t + 8 * half + lane_ / 4;
        if (pair >= pairs) continue;
        auto* o = reinterpret_cast<float*>(to) + pair * head_dim + S::columns * warp_;
        const float(&x)[elements] = run.o[t][half];
#pragma unroll
        for (int i = 0; i < elements / 2; ++i) {
          *reinterpret_cast<float2*>(o + Cache::column(lane_, i)) = {x[2 * i], x[2 * i + 1]};
        }
      }
    }
  }

  const Params& p_;
  const Item& item_;
  Shared<S>& s_;
  int warp_, lane_;
  Fetch<Cache, S> fetch_;
  int length_ = 0;  // pages of the list
  std::int32_t seq_len_ = 0;
  int first_unit_ = 0, first_step_ = 0, end_step_ = 0;

  std::uint32_t q_[head_dim / 16][4];
  Run unit_, group_, total_;
};

}  // namespace msa::cuda::portable::decode
