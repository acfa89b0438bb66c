// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "cuda/sm90/decode/cta.cuh"
#include "cuda/sm90/decode/fold.cuh"
#include "cuda/sm90/decode/queries.cuh"
#include "cuda/sm90/decode/traits.cuh"
#include "cuda/sm90/decode/write.cuh"

/// \file
/// The warpgroup that computes. Both products are transposed ("swapAB"), as the queries are few:
/// S^T[128 keys, n] = K · Q^T and O^T[128, n] += V^T · P^T, each two wgmma tiles of 64 rows.
///
/// A thread is lane 4 g + c of warp w. It holds columns 8 j + 2 c and + 1 for each j < n / 8, and
/// of each tile the rows 16 w + g and + 8.

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
        lane_(thread_ % warp_size) {
    if (thread_ < n) s_.row[thread_] = row_of(thread_, p.row_factor);
  }

  /// Sums this CTA's pages of the item; in a cluster, sends the results to the CTAs that write
  /// them. `parity` is the item's, of those of this CTA.
  __device__ void sum(const Item& item, int parity) {
    parity_ = parity;
    // From now on every CTA counts what it receives. Here the wait is over before the list is
    // ready.
    if (p_.cluster > 1) ptx::wait_cluster();
    ptx::sync_threads(barriers::ready + parity, threads);
    length_ = s_.list_length[parity];
    seq_len_ = s_.seq_len[parity];
    first_visible_ = item.visible(p_, seq_len_, 0);
    clear(total_);
    clear(group_);
    for (int segment = cta_.first_segment; segment < cta_.end_segment; ++segment) {
      begin_segment();
      const int end = segment_begin(segment + 1, length_, n);
      for (int i = segment_begin(segment, length_, n); i < end; ++i) page(item, i);
      if constexpr (grouped) {
        if (!fresh_)
          join(
              group_, [&](int i) { return segment_stats(i); }, o_);
      }
      if (!ends_partial(segment, cta_.share, n)) continue;
      if (p_.cluster == 1) {
        fold_group();
      } else if (has_group()) {
        send_group(item, segment);
      }
      clear(group_);
    }
  }

  /// Pages of the item's list.
  __device__ int length() const { return length_; }

  /// Writes the rows of an item that is this CTA's alone.
  __device__ void write(const Item& item) {
    exchange_sums();
    const float v_scale = p_.v_scale.value();
#pragma unroll
    for (int i = 0; i < columns; ++i) {
      const Stats stats = {total_.stats[i].x, total_sum(i)};
      if (thread_ < 4) s_.stats[column(i / 2) + i % 2] = stats;  // one thread of each column
      const Normalize normalize(stats, v_scale);
      const int at = 4 * (i / 2) + i % 2;
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
        o_[tile][at] = normalize(total_.o[tile][at]);
        o_[tile][at + 2] = normalize(total_.o[tile][at + 2]);
      }
    }
    store_rows();
    sync();
    copy_rows(item);
  }

 private:
  static constexpr int pairs = n / 8;         // of columns
  static constexpr int columns = n / 4;       // of a thread
  static constexpr int accumulators = n / 2;  // of a thread and tile
  static constexpr int k_steps = head_dim / 16;
  static constexpr int boxes = Cache::widens ? 1 : 2;  // of K, and of V
  /// Batches of widened registers in use by the tensor cores while the next is widened.
  static constexpr int batches_in_flight = n <= 16 ? 1 : 0;
  static constexpr bool grouped = segments_per_group(n) > 1;

  __device__ void sync() const { ptx::sync_threads(barriers::math, math_threads); }

  __device__ void begin_segment() {
    fresh_ = true;
#pragma unroll
    for (int i = 0; i < columns; ++i) {
      maximum_[i] = -INFINITY;
      sum_[i] = 0;
    }
  }

  /// One page of the list enters the segment.
  __device__ void page(const Item& item, int index) {
    const std::int32_t id = cta_.list(parity_).id[index];
    const std::int32_t rows = cta_.list(parity_).rows[index];
    float s[2][accumulators];
    logits(s);
    const std::int32_t first_key = id * page_size;
    if (rows == (1 << item.rows) - 1) {
      scale(s);
    } else {
      scale_chosen(rows, s);
    }
    const bool at_edge = first_visible_ - first_key < page_size;  // the first row sees the least
    if (at_edge) mask(item, first_key, s);
    softmax(s);
    store_transposed([](float first, float second) { return pack<Cache::product>(first, second); },
                     s);

    if (at_edge) clear_values(seq_len_ - first_key);
    ptx::fence_async_proxy();
    sync();  // P is complete
    values();
    fresh_ = false;
  }

  /// S^T of the next page, which it takes off the ring. Columns 0-63 and 64-127 of K are summed
  /// apart: wgmma cuts bits off at every step where it adds small products to a large sum, and with
  /// one q element of 1e5 eight steps exceed LSE's bound.
  __device__ void logits(float (&s)[2][accumulators]) {
    float upper[2][accumulators];
    products(s, upper);
#pragma unroll
    for (int i = 0; i < 2 * accumulators; ++i) {
      s[i / accumulators][i % accumulators] += upper[i / accumulators][i % accumulators];
    }
  }

  __device__ void products(float (&lower)[2][accumulators], float (&upper)[2][accumulators]) {
    const std::uint32_t q = ptx::matrix_at(ptx::shared_address(cta_.queries(parity_)));
    if constexpr (Cache::widens) {
      await(ring_);
      const int g = lane_ / 4, c = lane_ % 4;
      const unsigned char* key = cta_.slot(ring_) + (16 * warp_ + g) * 128;
      // Batch b: four k steps, from chunks 2 c + b mod 2, of the keys of tile b / 2. The chunks are
      // free of bank conflicts, as key mod 8 is g.
      uint4 low = {}, high = {};
      const auto load = [&](int b) {
        const unsigned char* from = key + b / 2 * 64 * 128 + ((2 * c + b % 2) ^ g) * 16;
        low = *reinterpret_cast<const uint4*>(from);
        high = *reinterpret_cast<const uint4*>(from + 8 * 128);
      };
      load(0);
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        const std::uint32_t words[2][4] = {{low.x, low.y, low.z, low.w},
                                           {high.x, high.y, high.z, high.w}};
        std::uint32_t a[4][4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          Cache::widen(words[0][k], a[k][0], a[k][2]);
          Cache::widen(words[1][k], a[k][1], a[k][3]);
        }
        if (b < 3) load(b + 1);
        ptx::wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          ptx::wgmma((b % 2 == 0 ? lower : upper)[b / 2], a[k], q + operand_step(b % 2 * 4 + k),
                     k > 0);
        }
        ptx::wgmma_commit();
        ptx::wgmma_wait<batches_in_flight>();
      }
      ptx::wgmma_wait();
      release(1);
    } else {
      with_two_boxes([&](const std::uint32_t(&keys)[2]) {
#pragma unroll
        for (int k = 0; k < k_steps; ++k) {
          const std::uint32_t a = keys[k / 4] + ptx::step_of(k % 4 * 32);
#pragma unroll
          for (int tile = 0; tile < 2; ++tile) {
            ptx::wgmma<Cache::product, 0>((k < 4 ? lower : upper)[tile],
                                          a + ptx::step_of(tile * 64 * 128), q + operand_step(k),
                                          k % 4 > 0);
          }
        }
      });
    }
  }

  /// O^T += V^T · P^T of the page whose logits came before.
  __device__ void values() {
    const std::uint32_t p = ptx::matrix_at(ptx::shared_address(s_.weights));
    if constexpr (Cache::widens) {
      await(ring_);
      const int g = lane_ / 4, c = lane_ % 4;
      // Rows of the tiles are the columns 32 w + 4 g + {0, 1 | 2, 3} of V, four bytes of a key.
      const unsigned char* base = cta_.slot(ring_) + g % 4 * 4;
      const int chunk = 2 * warp_ + g / 4;
      std::uint32_t even[4], odd[4];  // of two k steps: keys 2 c and 2 c + 1 of each eight
      const auto load = [&](int begin) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const unsigned char* key = base + (16 * begin + 8 * i + 2 * c) * 128;
          even[i] = *reinterpret_cast<const std::uint32_t*>(key + ((chunk ^ (2 * c)) * 16));
          odd[i] =
              *reinterpret_cast<const std::uint32_t*>(key + 128 + ((chunk ^ (2 * c + 1)) * 16));
        }
      };
      load(0);
#pragma unroll
      for (int begin = 0; begin < k_steps; begin += 2) {
        std::uint32_t a[2][2][4];  // [k step][tile]
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int half = i % 2;
          std::uint32_t(&first)[4] = a[i / 2][0], (&second)[4] = a[i / 2][1];
          Cache::widen(__byte_perm(even[i], odd[i], 0x5140), first[2 * half], first[2 * half + 1]);
          Cache::widen(__byte_perm(even[i], odd[i], 0x7362), second[2 * half],
                       second[2 * half + 1]);
        }
        if (begin + 2 < k_steps) load(begin + 2);
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < 2; ++step) {
          const int k = begin + step;
#pragma unroll
          for (int tile = 0; tile < 2; ++tile) {
            ptx::wgmma(o_[tile], a[step][tile], p + operand_step(k), k > 0 || !fresh_);
          }
        }
        ptx::wgmma_commit();
        ptx::wgmma_wait<batches_in_flight>();
      }
      ptx::wgmma_wait();
      release(1);
    } else {
      with_two_boxes([&](const std::uint32_t(&v)[2]) {
#pragma unroll
        for (int k = 0; k < k_steps; ++k) {
#pragma unroll
          for (int tile = 0; tile < 2; ++tile) {
            ptx::wgmma<Cache::product, 1>(o_[tile], v[tile] + ptx::step_of(k * 16 * 128),
                                          p + operand_step(k), k > 0 || !fresh_);
          }
        }
      });
    }
  }

  /// Multiplies by K or V of a page of 16-bit elements, which lie in the ring's next two boxes, and
  /// takes them off the ring.
  template <class Multiply>
  __device__ void with_two_boxes(Multiply multiply) {
    ptx::RingPlace second = ring_;
    second.advance(p_.slots, 1);
    await(ring_);
    await(second);
    const std::uint32_t boxes[] = {ptx::matrix_at(ptx::shared_address(cta_.slot(ring_))),
                                   ptx::matrix_at(ptx::shared_address(cta_.slot(second)))};
    ptx::wgmma_fence();
    multiply(boxes);
    ptx::wgmma_commit();
    ptx::wgmma_wait();
    release(2);
  }

  /// Where k step `k` of Q or P is.
  __device__ static int operand_step(int k) { return ptx::step_of(k / 4 * (n * 128) + k % 4 * 32); }

  __device__ void await(const ptx::RingPlace& place) const {
    ptx::wait(s_.slot_full[place.slot], place.parity);
    __syncwarp();
  }
  /// This warp is done with the next `count` slots.
  __device__ void release(int count) {
    __syncwarp();
    for (int i = 0; i < count; ++i) {
      if (lane_ == 0) ptx::arrive(s_.slot_free[ring_.slot]);
      ring_.advance(p_.slots, 1);
    }
    __syncwarp();
  }

  __device__ int column(int pair) const { return 8 * pair + 2 * (lane_ % 4); }

  /// Rounded here whatever follows: contracted with the subtraction of the maximum, a huge logit
  /// would differ from itself.
  __device__ void scale(float (&s)[2][accumulators]) const {
#pragma unroll
    for (int j = 0; j < pairs; ++j) {
      const float2 factor = *reinterpret_cast<const float2*>(&s_.factor[parity_][column(j)]);
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float* x = &s[tile][4 * j + 2 * half];
          x[0] = __fmul_rn(x[0], factor.x);
          x[1] = __fmul_rn(x[1], factor.y);
        }
      }
    }
  }

  /// The same, and −inf in columns whose row did not choose the page.
  __device__ void scale_chosen(std::int32_t rows, float (&s)[2][accumulators]) const {
#pragma unroll
    for (int i = 0; i < columns; ++i) {
      const int at = 4 * (i / 2) + i % 2, own = column(i / 2) + i % 2;
      const float factor = s_.factor[parity_][own];
      const bool chosen = (rows >> s_.row[own] & 1) != 0;
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
        s[tile][at] = chosen ? __fmul_rn(s[tile][at], factor) : -INFINITY;
        s[tile][at + 2] = chosen ? __fmul_rn(s[tile][at + 2], factor) : -INFINITY;
      }
    }
  }

  /// −inf for keys that a column's row does not see.
  __device__ void mask(const Item& item, std::int32_t first_key,
                       float (&s)[2][accumulators]) const {
    const int key = 16 * warp_ + lane_ / 4;
#pragma unroll
    for (int i = 0; i < columns; ++i) {
      const int keys = item.visible(p_, seq_len_, s_.row[column(i / 2) + i % 2]) - first_key;
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
      largest[i] = fmaxf(fmaxf(s[0][at], s[0][at + 2]), fmaxf(s[1][at], s[1][at + 2]));
    }
    store_maxima(largest);
    sync();  // every warp's maxima are there, and P of the page before has been used
#pragma unroll
    for (int i = 0; i < columns; ++i) {
      const auto& all = *reinterpret_cast<const float4*>(s_.maximum[column(i / 2) + i % 2]);
      const float before = maximum_[i];
      maximum_[i] = fmaxf(fmaxf(fmaxf(all.x, all.y), fmaxf(all.z, all.w)), before);
      const float shift = shift_of(maximum_[i]);
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
      if (fresh_) {
        sum_[i] = total;
      } else {
        const float shrink = exp2_fast(before - shift);
        sum_[i] = __fmaf_rn(sum_[i], shrink, total);
#pragma unroll
        for (int tile = 0; tile < 2; ++tile) {
          o_[tile][at] *= shrink;
          o_[tile][at + 2] *= shrink;
        }
      }
    }
  }

  /// The warp's maximum of each column. The 8 lanes of a column halve the columns that they look
  /// after in every exchange: 7 shuffles for 8 columns, 4 for 4, 3 for 2 instead of three for each.
  __device__ void store_maxima(float (&x)[columns]) const {
    int own = 0, lanes = warp_size / 2;
#pragma unroll
    for (int kept = columns / 2; kept > 0; kept /= 2) {
      const bool upper = (lane_ & lanes) != 0;
      own += upper ? kept : 0;
#pragma unroll
      for (int i = 0; i < kept; ++i) {
        const float other = __shfl_xor_sync(0xffffffffu, upper ? x[i] : x[i + kept], lanes);
        x[i] = fmaxf(upper ? x[i + kept] : x[i], other);
      }
      lanes /= 2;
    }
    for (; lanes >= 4; lanes /= 2) x[0] = fmaxf(x[0], __shfl_xor_sync(0xffffffffu, x[0], lanes));
    s_.maximum[column(own / 2) + own % 2][warp_] = x[0];  // the same from all that have it
  }

  /// Tiles of 64 rows, transposed, as [n][128] of 16 bits in P's place: P, or the rows of out.
  template <class Pack>
  __device__ void store_transposed(Pack pack_two, const float (&x)[2][accumulators]) const {
    // Matrix i of a lane's address: tile i / 2, rows 16 w + 8 (i mod 2) of it, 8 columns.
    const int matrix = lane_ / 8, row = lane_ % 8;
    const int chunk = (2 * warp_ + matrix % 2) ^ row;
    const std::uint32_t address =
        ptx::shared_address(s_.weights) + matrix / 2 * (n * 128) + row * 128 + chunk * 16;
#pragma unroll
    for (int j = 0; j < pairs; ++j) {
      const std::uint32_t bits[] = {
          pack_two(x[0][4 * j], x[0][4 * j + 1]), pack_two(x[0][4 * j + 2], x[0][4 * j + 3]),
          pack_two(x[1][4 * j], x[1][4 * j + 1]), pack_two(x[1][4 * j + 2], x[1][4 * j + 3])};
      ptx::store_matrices_transposed(address + j * 8 * 128, bits);
    }
  }

  /// The sums of a column's 32 threads come together.
  __device__ void exchange_sums() const {
#pragma unroll
    for (int i = 0; i < columns; ++i) {
      float x = total_.stats[i].y;
      for (int lanes = 4; lanes < warp_size; lanes *= 2) {
        x += __shfl_xor_sync(0xffffffffu, x, lanes);
      }
      if (lane_ < 4) s_.sum[column(i / 2) + i % 2][warp_] = x;
    }
    sync();
  }
  __device__ float total_sum(int i) const {
    const auto& parts = *reinterpret_cast<const float4*>(s_.sum[column(i / 2) + i % 2]);
    return (parts.x + parts.y) + (parts.z + parts.w);
  }

  /// Slots of the page past the request's `keys` keys may hold anything, and 0 · NaN is NaN.
  __device__ void clear_values(int keys) const {
    ptx::RingPlace place = ring_;
    for (int box = 0; box < boxes; ++box) {
      await(place);
      for (int i = keys * 8 + thread_; i < page_size * 8; i += math_threads) {
        reinterpret_cast<uint4*>(cta_.slot(place))[i] = {0, 0, 0, 0};
      }
      place.advance(p_.slots, 1);
    }
  }

  /// A run of pages: its segments or groups so far.
  struct Run {
    float o[2][accumulators];
    Stats stats[columns];
    bool empty;
  };
  struct NoRun {};  // where a group is one segment, that alone holds its numbers

  __device__ static void clear(NoRun&) {}
  __device__ static void clear(Run& run) {
    run.empty = true;
#pragma unroll
    for (int i = 0; i < columns; ++i) run.stats[i] = no_keys();
#pragma unroll
    for (int i = 0; i < 2 * accumulators; ++i) run.o[i / accumulators][i % accumulators] = 0;
  }

  /// The sum is this thread's part of it: weights are the same for all threads of a column, so that
  /// folding parts and adding them up at the end saves an exchange for every segment.
  __device__ Stats segment_stats(int i) const { return {maximum_[i], sum_[i]}; }
  __device__ Stats group_stats(int i) const {
    if constexpr (grouped) return group_.stats[i];
    return segment_stats(i);
  }
  __device__ const float (&group_o() const)[2][accumulators] {
    if constexpr (grouped) return group_.o;
    return o_;
  }

  /// Whether the group has a page.
  __device__ bool has_group() const {
    if constexpr (grouped) return !group_.empty;
    return !fresh_;
  }

  /// The group joins the total.
  __device__ void fold_group() {
    if (has_group())
      join(
          total_, [&](int i) { return group_stats(i); }, group_o());
  }

  /// A part joins the run.
  template <class PartStats>
  __device__ void join(Run& run, PartStats stats, const float (&o)[2][accumulators]) const {
    run.empty = false;
#pragma unroll
    for (int i = 0; i < columns; ++i) {
      const int at = 4 * (i / 2) + i % 2;
      const Fold fold(run.stats[i], stats(i));
      run.stats[i] = fold.stats;
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
        run.o[tile][at] = fold(run.o[tile][at], o[tile][at]);
        run.o[tile][at + 2] = fold(run.o[tile][at + 2], o[tile][at + 2]);
      }
    }
  }

  __device__ int element(int tile, int half) const {
    return Cache::element(warp_, lane_ / 4, tile, half);
  }

  /// The partial result that ends with `segment`, to the CTAs that write its columns.
  __device__ void send_group(const Item& item, int segment) const {
    const int group = segment / segments_per_group(n);
    const int partial = partial_index(segment, cta_.share, n);
    const int count = partials_of_group(cta_.share, n);
    const int per_cta_log2 = columns_of_cta_log2(p_.cluster_log2, n);
    const int thread = 8 * warp_ + lane_ / 4;  // of the 32 that share a column
    const float(&o)[2][accumulators] = group_o();
#pragma unroll
    for (int i = 0; i < columns; ++i) {
      const int own = column(i / 2) + i % 2;
      if (own >= item.rows * p_.group) continue;
      const int rank = own >> per_cta_log2;
      PartialColumn& to = cta_.received(own - (rank << per_cta_log2), group, partial, count);
      const std::uint32_t barrier = ptx::cluster_address(&s_.received, rank);
      const int at = 4 * (i / 2) + i % 2;
      const Stats stats = group_stats(i);
      ptx::send(ptx::cluster_address(&to.o[thread], rank),
                {o[0][at], o[0][at + 2], o[1][at], o[1][at + 2]}, barrier);
      ptx::send(ptx::cluster_address(&to.sum[thread], rank), stats.y, barrier);
      if (thread == 0) ptx::send(ptx::cluster_address(&to.maximum, rank), stats.x, barrier);
    }
  }

  /// o_ as rows of out's type in P's place.
  __device__ void store_rows() const {
    if constexpr (Cache::widens) {
#pragma unroll
      for (int i = 0; i < columns; ++i) {
        const int at = 4 * (i / 2) + i % 2;
        const uint2 bits = {pack_out(p_.out_is_f16, o_[0][at], o_[0][at + 2]),
                            pack_out(p_.out_is_f16, o_[1][at], o_[1][at + 2])};
        *reinterpret_cast<uint2*>(s_.weights +
                                  operand_offset<n>(column(i / 2) + i % 2, element(0, 0))) = bits;
      }
    } else {
      store_transposed(
          [&](float first, float second) { return pack_out(p_.out_is_f16, first, second); }, o_);
    }
  }

  /// Eight elements a thread.
  __device__ void copy_rows(const Item& item) const {
    constexpr int chunks = head_dim / 8;
    for (int i = thread_; i < item.rows * p_.group * chunks; i += math_threads) {
      const int column = i / chunks, first = i % chunks * 8;
      const auto bits =
          *reinterpret_cast<const uint4*>(s_.weights + operand_offset<n>(column, first));
      const OutRow row(p_, item, s_.row[column], column);
      store_eight(row.out + first, bits, p_.out_aligned);
      if (first == 0) row.write_lse(p_, s_.stats[column]);
    }
  }

  const Params& p_;
  const Cta<n>& cta_;
  Shared<n>& s_;
  int thread_, warp_, lane_;
  int parity_ = 0;
  std::int32_t seq_len_ = 0;
  std::int32_t first_visible_ = 0;  // keys that the item's first row sees
  ptx::RingPlace ring_;

  // The segment.
  float o_[2][accumulators];
  float maximum_[columns];
  float sum_[columns];  // of this thread's keys
  bool fresh_ = true;   // no page yet: O is not initialized

  int length_ = 0;
  std::conditional_t<grouped, Run, NoRun> group_;
  Run total_;
};

}  // namespace msa::cuda::sm90::decode
