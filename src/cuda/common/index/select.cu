// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "cuda/common/dependency.cuh"
#include "cuda/common/index/launch.h"
#include "cuda/common/index/plan.h"
#include "cuda/common/index/top_list.cuh"
#include "cuda/common/launch_behind.h"

/// \file
/// The select kernel: lists from scores. A warp looks at a row and list, or, where there are few,
/// four of them share its blocks.

namespace msa::cuda {
namespace {

constexpr int warps = 4, threads = warps * warp_size;
/// Rows and lists from which on a warp does one alone: there are enough to fill the device.
constexpr std::int64_t many_items = 1024;

/// Scores that a warp looks at together, twice, and those of a lane: one bit each.
constexpr int chunk = 1024, chunk_each = chunk / warp_size;

/// Blocks whose scores become keys together.
constexpr int most_named = 2 * warp_size;

/// A warp's memory, for lists of up to 32 · parts blocks.
template <int parts>
struct WarpMemory {
  static constexpr int room = (parts + 2) * warp_size;
  static constexpr int step = 8;           // keys are counted so many at a time
  alignas(16) BlockKey keys[room + step];  // of candidates; keep_best() leaves zeros behind them
  alignas(16) float maxima[parts * warp_size];
  std::uint32_t named[most_named];  // blocks that will become candidates
  int count;                        // of keys
};

template <int parts>
struct SelectShared {
  WarpMemory<parts> memory[warps];
  std::int64_t valid[warps];  // blocks of a token
};

/// The scores of a row that decide on one list.
class RowScores {
 public:
  __device__ RowScores(const SelectParams& p, std::int64_t token, std::int64_t list)
      : from_(p.scores.data + token * p.scores.token +
              (p.rule.reduce_heads ? 0 : list * p.scores.head)),
        block_(p.scores.block),
        head_(p.scores.head),
        heads_(p.rule.reduce_heads ? p.heads : 1),
        together_(heads_ == 1 && block_ == 1 &&
                  reinterpret_cast<std::uintptr_t>(from_) % sizeof(float4) == 0) {}

  __device__ float operator[](std::uint32_t block) const {
    const float* at = from_ + block * block_;
    float score = *at;
    for (int head = 1; head < heads_; ++head) score = larger_score(score, at[head * head_]);
    return score;
  }

  /// Whether the scores of blocks 4 i to 4 i + 3 may be loaded together.
  __device__ bool together() const { return together_; }
  __device__ float4 four(std::uint32_t block) const {
    return *reinterpret_cast<const float4*>(from_ + block);
  }

 private:
  const float* from_;
  std::int64_t block_, head_;
  int heads_;
  bool together_;
};

/// A warp that chooses the best `topk` blocks of a row. Nothing is sorted: how many are larger is
/// counted in shared memory, where that takes no exchange between lanes.
template <int parts>
class Chooser {
 public:
  __device__ Chooser(const RowScores& scores, const RowOrder& order, int topk,
                     WarpMemory<parts>& memory)
      : scores_(scores),
        order_(order),
        topk_(topk),
        memory_(memory),
        keys_(memory.keys),
        lane_(static_cast<int>(threadIdx.x) % warp_size) {}

  __device__ void add_forced() {
    if (order_.forced_count() == 0) return;
#pragma unroll
    for (int i = 0; i < parts; ++i) add(order_.forced_key(i * warp_size + lane_));
  }

  /// The candidates [begin, end), of which no more than `open` can be chosen.
  __device__ void look_at(std::uint32_t begin, std::uint32_t end, int open) {
    // Whole fours, and up to three blocks on both sides of them.
    const std::uint32_t inner_begin = min((begin + 3) / 4 * 4, end);
    const std::uint32_t inner_end = max(end / 4 * 4, inner_begin);
    const int before = inner_begin - begin;
    named_count_ = before + (end - inner_end);
    if (lane_ < named_count_) {
      memory_.named[lane_] = lane_ < before ? begin + lane_ : inner_end + (lane_ - before);
    }
    float least = -INFINITY;
#pragma unroll 1
    for (std::uint32_t first = inner_begin; first < inner_end; first += chunk) {
      float4 fours[chunk_each / 4];
      load(first, inner_end, fours);
      float low = -INFINITY, high = -INFINITY;
      for_each_score(first, inner_end, fours, [&](int i, float x) {
        if (i < chunk_each / parts) {
          low = fmaxf(low, x);
        } else {
          high = fmaxf(high, x);
        }
      });
      __syncwarp();  // the maxima before are read
      memory_.maxima[lane_] = low;
      if constexpr (parts == 2) memory_.maxima[warp_size + lane_] = high;
      least = fmaxf(least, bound(open));
      std::uint32_t enter = 0;  // bit i: score i of this lane
      for_each_score(first, inner_end, fours,
                     [&](int i, float x) { enter |= x < least ? 0 : 1u << i; });
      name(first, enter & existing(first, inner_end));
    }
    add_named();
  }

  /// What another warp has kept joins this one's candidates.
  __device__ void join(const WarpMemory<parts>& other) {
#pragma unroll 1
    for (int i = 0; i < other.count; i += warp_size) {
      add(i + lane_ < other.count ? other.keys[i + lane_] : 0);
    }
  }

  /// Of all candidates so far the best ones stay, the best first. Other warps may read them behind
  /// a barrier.
  __device__ void keep_best() {
    if (count_ <= warp_size) {
      keep_best_of<1>();
    } else {
      keep_best_of<WarpMemory<parts>::room / warp_size>();
    }
    if (lane_ == 0) memory_.count = count_;
    least_key_ = count_ < topk_ ? 0 : keys_[topk_ - 1];
  }

  /// Writes the ids of what keep_best() has left in ascending order, then −1.
  __device__ void write_ids(std::int32_t* to, std::int64_t stride) const {
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      const int own = part * warp_size + lane_;
      if (own < count_) {
        const std::int32_t id = id_of(keys_[own]);
        to[count_keys([&](BlockKey key) { return id_of(key) < id; }) * stride] = id;
      } else if (own < topk_) {
        to[own * stride] = -1;
      }
    }
  }

 private:
  /// A candidate of each lane, 0 for none.
  __device__ void add(BlockKey key) {
    unsigned enter = __ballot_sync(0xffffffffu, key > least_key_);
    if (count_ + __popc(enter) > WarpMemory<parts>::room) {
      keep_best();
      enter = __ballot_sync(0xffffffffu, key > least_key_);
    }
    if ((enter >> lane_ & 1) != 0) keys_[count_ + __popc(enter & ((1u << lane_) - 1))] = key;
    count_ += __popc(enter);
  }

  /// Names the blocks of a chunk whose bits are set. They come from all over a row, so that their
  /// scores are loaded again, but together.
  __device__ void name(std::uint32_t first, std::uint32_t bits) {
    for (;;) {
      const int mine = __popc(bits), after = warp_prefix(mine);
      int place = named_count_ + after - mine;
#pragma unroll 1
      for (; bits != 0 && place < most_named; bits &= bits - 1) {
        memory_.named[place++] = block_of(first, __ffs(static_cast<int>(bits)) - 1);
      }
      named_count_ += __shfl_sync(0xffffffffu, after, warp_size - 1);
      if (named_count_ <= most_named) return;
      named_count_ = most_named;
      add_named();
    }
  }

  /// Named blocks become candidates.
  __device__ void add_named() {
    __syncwarp();
#pragma unroll 1
    for (int i = lane_; i - lane_ < named_count_; i += warp_size) {
      BlockKey key = 0;
      if (i < named_count_) {
        const std::uint32_t block = memory_.named[i];
        key = order_.key(block, scores_[block]);
      }
      add(key);
    }
    __syncwarp();
    named_count_ = 0;
  }

  /// How many of the candidates a lane asks for. Zeros behind them are asked for too, in vain.
  template <class Asks>
  __device__ int count_keys(Asks asks) const {
    constexpr int step = WarpMemory<parts>::step;
    int found = 0;
#pragma unroll 1
    for (int i = 0; i < count_; i += step) {
#pragma unroll
      for (int j = 0; j < step; j += 2) {
        const auto [a, b] = *reinterpret_cast<const ulonglong2*>(keys_ + i + j);
        found += (asks(a) ? 1 : 0) + (asks(b) ? 1 : 0);
      }
    }
    return found;
  }

  template <int each>
  __device__ void keep_best_of() {
    end_with_zeros();
    BlockKey mine[each];
    int rank[each];
#pragma unroll
    for (int j = 0; j < each; ++j) {
      const int own = j * warp_size + lane_;
      mine[j] = own < count_ ? keys_[own] : 0;
      rank[j] = count_keys([&](BlockKey key) { return key > mine[j]; });
    }
    __syncwarp();
#pragma unroll
    for (int j = 0; j < each; ++j) {
      if (mine[j] != 0 && rank[j] < topk_) keys_[rank[j]] = mine[j];
    }
    count_ = min(count_, topk_);
    __syncwarp();
    end_with_zeros();
  }

  __device__ void end_with_zeros() {
    if (lane_ < WarpMemory<parts>::step) keys_[count_ + lane_] = 0;
    __syncwarp();
  }

  /// A number that `open` or more of the maxima reach: smaller scores need no look. −inf and NaN
  /// say nothing here.
  __device__ float bound(int open) const {
    __syncwarp();
    float found = -INFINITY;
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      const float mine = memory_.maxima[part * warp_size + lane_];
      int reach[4] = {};  // chains of their own
#pragma unroll
      for (int i = 0; i < parts * warp_size; i += 4) {
        const float4 x = *reinterpret_cast<const float4*>(memory_.maxima + i);
        reach[0] += x.x >= mine ? 1 : 0;
        reach[1] += x.y >= mine ? 1 : 0;
        reach[2] += x.z >= mine ? 1 : 0;
        reach[3] += x.w >= mine ? 1 : 0;
      }
      if (reach[0] + reach[1] + reach[2] + reach[3] >= open) found = fmaxf(found, mine);
    }
    return score_of_rank(__reduce_max_sync(0xffffffffu, score_rank(found)));
  }

  /// This lane's scores of a chunk whose blocks end at `end`, a multiple of 4, where they may be
  /// loaded together; behind them −inf. All loads are under way before the first is waited for.
  __device__ void load(std::uint32_t first, std::uint32_t end,
                       float4 (&fours)[chunk_each / 4]) const {
    if (!scores_.together()) return;
#pragma unroll
    for (int i = 0; i < chunk_each / 4; ++i) {
      const std::uint32_t block = block_of(first, 4 * i);
      fours[i] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
      if (block < end) fours[i] = scores_.four(block);
    }
  }

  /// use(i, x) for each score of a lane in a chunk.
  template <class Use>
  __device__ void for_each_score(std::uint32_t first, std::uint32_t end,
                                 const float4 (&fours)[chunk_each / 4], Use use) const {
    if (scores_.together()) {
#pragma unroll
      for (int i = 0; i < chunk_each; i += 4) {
        if (first + i * warp_size >= end) break;  // of all lanes
        const float4 x = fours[i / 4];
        use(i, x.x), use(i + 1, x.y), use(i + 2, x.z), use(i + 3, x.w);
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < chunk_each && block_of(first, i) < end; ++i) {
        use(i, scores_[block_of(first, i)]);
      }
    }
  }

  /// Bits of a lane's scores in front of `end`, a multiple of 4.
  __device__ std::uint32_t existing(std::uint32_t first, std::uint32_t end) const {
    const int blocks = static_cast<int>(min(end - first, std::uint32_t{chunk})) - 4 * lane_;
    const int bits = max(blocks + 4 * warp_size - 1, 0) / (4 * warp_size) * 4;
    return bits == 32 ? 0xffffffffu : (1u << bits) - 1;
  }
  /// Block of a lane's score i of a chunk.
  __device__ std::uint32_t block_of(std::uint32_t first, int i) const {
    return first + i / 4 * (4 * warp_size) + 4 * lane_ + i % 4;
  }

  const RowScores& scores_;
  const RowOrder& order_;
  const int topk_;
  WarpMemory<parts>& memory_;
  BlockKey* const keys_;
  const int lane_;
  int named_count_ = 0;     // blocks
  int count_ = 0;           // of keys_
  BlockKey least_key_ = 0;  // smaller ones cannot be chosen
};

/// Blocks that token `token` of the window sees.
__device__ inline std::int64_t valid_blocks(const SelectParams& p, std::int64_t token) {
  const std::int64_t valid =
      p.valid_blocks != nullptr ? p.valid_blocks[token]
                                : pages_of(find_row(p.batch, p.window.first_token + token).visible);
  return min(max(valid, std::int64_t{0}), p.scores.blocks);
}

/// CTAs of a SM that registers are kept low for. Many rows hide each other's waiting; a CTA of a
/// few is to find room beside two of the score kernel's with few columns.
template <int parts, int sharing>
constexpr int ctas_of_sm = parts == 2     ? 4
                           : sharing == 1 ? 6
                                          : 5;

template <int parts, int sharing>
__global__ __launch_bounds__(threads, ctas_of_sm<parts, sharing>) void select_kernel(
    const __grid_constant__ SelectParams p) {
  __shared__ SelectShared<parts> s;
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  const int share = warp % sharing;
  // A score kernel lets this one begin when the calls before it have ended: lengths may be read.
  bool waited = !p.after_scores;
  if (waited) meet_dependencies();
  constexpr int cta_tokens = warps / sharing;
  // CTA by CTA the lists of some tokens; no 64-bit number is divided.
  const auto lists = static_cast<unsigned>(p.selection.lists);
  std::int64_t group = blockIdx.x / lists;
  unsigned list = blockIdx.x % lists;
  const auto advance = [&] {
    group += gridDim.x / lists;
    list += gridDim.x % lists;
    if (list >= lists) list -= lists, ++group;
  };
  for (; group * cta_tokens < p.window.tokens; advance()) {
    const std::int64_t first = group * cta_tokens, token = first + warp / sharing;
    if (threadIdx.x < cta_tokens && first + threadIdx.x < p.window.tokens) {
      s.valid[threadIdx.x] = valid_blocks(p, first + threadIdx.x);
    }
    __syncthreads();
    const std::int64_t valid = s.valid[warp / sharing];
    __syncthreads();  // it may be written again, and so may the lists of the item before
    if (!waited) meet_dependencies();
    waited = true;
    if (token >= p.window.tokens) continue;
    const int topk = p.selection.topk;
    std::int32_t* const to = p.selection.data + token * p.selection.token + list * p.selection.list;
    if (valid <= topk) {  // all of them, whatever they score
      if (share == 0) write_all_ids(valid, topk, to, p.selection.slot);
      continue;
    }
    const RowOrder order(valid, p.rule);
    const int open = topk - static_cast<int>(min(order.forced_count(), std::int64_t{topk}));
    const auto begin = static_cast<std::uint32_t>(order.first_free());
    const auto end = static_cast<std::uint32_t>(order.end_free());
    // Of one chunk several warps' parts would take as long as all of it, and then they would join.
    const bool alone = sharing == 1 || end - begin <= chunk;
    if (alone && share != 0) continue;
    const std::uint32_t part =
        alone ? end - begin : (end - begin + 4 * sharing - 1) / (4 * sharing) * 4;
    const RowScores scores(p, token, list);
    Chooser<parts> chooser(scores, order, topk, s.memory[warp]);
    if (share == 0) chooser.add_forced();
    if (open > 0) {
      chooser.look_at(min(begin + share * part, end), min(begin + (share + 1) * part, end), open);
    }
    chooser.keep_best();
    if (!alone) {
      __syncthreads();
      if (share != 0) continue;
#pragma unroll 1
      for (int i = 1; i < sharing; ++i) chooser.join(s.memory[warp + i]);
      chooser.keep_best();
    }
    chooser.write_ids(to, p.selection.slot);
  }
}

}  // namespace

void launch_select(const SelectParams& p, const Origin& origin) {
  const std::int64_t tokens = p.window.tokens, lists = p.selection.lists;
  const bool many = tokens * lists >= many_items;
  const bool one = list_parts(p.selection.topk) == 1;
  launch_behind(origin.op, origin.device,
                many ? (one ? select_kernel<1, 1> : select_kernel<2, 1>)
                     : (one ? select_kernel<1, warps> : select_kernel<2, warps>),
                (many ? (tokens + warps - 1) / warps : tokens) * lists, threads, 0, origin.stream,
                p);
}

}  // namespace msa::cuda
