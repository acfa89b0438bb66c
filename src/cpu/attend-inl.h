// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0

/// \file
/// The vector code of attend. Compiled once per instruction set, as convert-inl.h.
///
/// A row of a tile is one token's one query head. For each block of the union list K and V are
/// converted to f32 once; every row that chose the block then computes its logits, folds them into
/// its running softmax and adds P · V. What a row computes never depends on the rows beside it, and
/// no row touches a key that it does not see: a NaN there cannot reach it.
///
/// Numbers: logits are halves of those of base 2, 0.72 times the scaled ones, so that every finite
/// scaled logit is one of them; differences are doubled again, which is exact. The power of two of
/// the folded scale is multiplied into q and the rest into the f32 dot product, so that tiny and
/// huge scales neither overflow nor flush. That product is rounded before the maximum is
/// subtracted: fused, a logit of 1e9 would differ from itself by the rounding of the maximum, which
/// is tens there, and the weights with it. A NaN logit makes the row's sum NaN and with it the
/// whole row; the running maximum ignores NaN. A maximum of −inf (no key, or only −inf logits) is
/// replaced by 0 where it is subtracted.

#include "cpu/attend_plan.h"
#include "cpu/math-inl.h"
#include "cpu/matmul-inl.h"
#include "cpu/parallel.h"
#include "cpu/tiles/attend.h"
#include "cpu/tiles/kernels.h"

#if defined(MSA_CPU_ATTEND_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MSA_CPU_ATTEND_INL_H_
#undef MSA_CPU_ATTEND_INL_H_
#else
#define MSA_CPU_ATTEND_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace msa::cpu::HWY_NAMESPACE {

/// Running softmax of a tile's rows.
struct SoftmaxState {
  float* out;      // [rows][128]: Σ P · V
  float* maximum;  // [rows]: of halved base-2 logits
  float* sum;      // [rows]: Σ P

  static std::int64_t floats(std::int64_t rows) { return rows * (head_dim + 2); }

  SoftmaxState(float* memory, std::int64_t rows)
      : out(memory), maximum(memory + rows * head_dim), sum(maximum + rows) {}

  void clear(std::int64_t rows) const {
    std::fill_n(out, rows * head_dim, 0.0f);
    std::fill_n(maximum, rows, -std::numeric_limits<float>::infinity());
    std::fill_n(sum, rows, 0.0f);
  }
};

/// Rows whose logits are in flight at once: a multiple of row_tile and of every common G.
inline constexpr std::int64_t chunk_rows = 24;

/// A tile's memory, cut from the thread's scratch.
struct TileScratch {
  float* keys;    // panels of K^T
  float* values;  // panels of V
  float* logits;  // [chunk_rows][128], overwritten by P
  float* work;    // of TileAttend, in place of these three
  float* q;       // [rows][128]: q times a power of two
  float* scale;   // [rows]: what is left of the logit scale
  float* states;  // two SoftmaxStates
  float* tiles;   // q as tiles

  TileScratch(const AttendCall& call, std::int64_t rows) {
    const auto round_up = [](std::int64_t n) { return (n + 15) / 16 * 16; };
    const bool panels = !call.on_tiles;
    const std::int64_t sizes[] = {panels ? row_elements * page_size : 0,
                                  panels ? row_elements * page_size : 0,
                                  panels ? chunk_rows * page_size : 0,
                                  call.on_tiles ? TileAttend::work_floats : 0,
                                  rows * row_elements,
                                  round_up(rows),
                                  2 * round_up(SoftmaxState::floats(rows)),
                                  call.on_tiles ? TileQueries::floats(rows) : 0};
    float** const parts[] = {&keys, &values, &logits, &work, &q, &scale, &states, &tiles};
    std::int64_t total = 0;
    for (std::int64_t n : sizes) total += n;
    auto* next =
        static_cast<float*>(thread_scratch(static_cast<std::size_t>(total) * sizeof(float)));
    for (std::size_t i = 0; i < std::size(sizes); ++i) {
      *parts[i] = next;
      next += sizes[i];
    }
    state_floats_ = round_up(SoftmaxState::floats(rows));
  }
  SoftmaxState state(int index, std::int64_t rows) const {
    return {states + index * state_floats_, rows};
  }

 private:
  std::int64_t state_floats_;
};

/// The weight of a logit that lies below the largest by `difference` ≤ 0.
HWY_INLINE VF weight_of(VF difference) { return exp2_nonpositive(hn::Add(difference, difference)); }
/// The same of one number, as the vectors compute it.
HWY_INLINE float weight_of(float difference) {
  return hn::GetLane(weight_of(hn::Set(F32(), difference)));
}

/// What to subtract from logits whose maximum is `maximum`.
HWY_INLINE float subtrahend(float maximum) {
  return maximum == -std::numeric_limits<float>::infinity() ? 0.0f : maximum;
}

/// Largest finite magnitude of a row.
HWY_INLINE float largest_finite(const float* row) {
  float largest = 0;
  for (std::int64_t i = 0; i < row_elements; ++i) {
    const float a = std::fabs(row[i]);
    if (a > largest && a <= std::numeric_limits<float>::max()) largest = a;
  }
  return largest;
}

/// Multiplies 128 values by ±2^exponent, in two steps that are f32 numbers whatever the exponent.
HWY_INLINE void scale_row(float* row, int exponent, bool negate) {
  const F32 df;
  const VF first = hn::Set(df, std::ldexp(negate ? -1.0f : 1.0f, exponent / 2));
  const VF second = hn::Set(df, std::ldexp(1.0f, exponent - exponent / 2));
  for (std::int64_t i = 0; i < row_elements; i += hn::MaxLanes(df)) {
    hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(df, row + i), first), second), df, row + i);
  }
}

/// Splits `logit_scale` for one row of q: multiplies the row by its sign and power of two and
/// returns the other factor, ≥ 0 or NaN, which makes halved base-2 logits of the products. No
/// product is larger than the scaled logit; the power stops short of overflowing the row.
HWY_INLINE float fold_scale(double logit_scale, float* row) {
  if (std::isnan(logit_scale)) return std::numeric_limits<float>::quiet_NaN();
  const bool negative = std::signbit(logit_scale);
  const double magnitude = std::fabs(logit_scale);
  int exponent = magnitude == 0 || std::isinf(magnitude) ? 0 : std::ilogb(magnitude);
  if (exponent > 0) {
    const float largest = largest_finite(row);
    if (largest > 0) exponent = std::min(exponent, std::max(0, 126 - std::ilogb(largest)));
  }
  scale_row(row, exponent, negative);
  if (std::isinf(magnitude)) return std::numeric_limits<float>::infinity();
  constexpr double most = std::numeric_limits<float>::max();
  return static_cast<float>(
      std::min(std::ldexp(magnitude * std::numbers::log2e, -exponent - 1), most));
}

/// q of all rows of a tile as f32, rounded to the product type and scaled.
template <DType type>
void load_queries(const AttendCall& call, const TileRows& tile, std::int64_t head,
                  const TileScratch& scratch) {
  const bool round = type == DType::f16 && call.product_type() == DType::bf16;
  const auto* q = static_cast<const Storage<type>*>(call.q);
  for (std::int64_t i = 0; i < tile.count; ++i) {
    for (std::int64_t g = 0; g < call.group; ++g) {
      const std::int64_t r = i * call.group + g;
      float* row = scratch.q + r * row_elements;
      load_row<type>(q + (tile.first + i) * call.q_token + (head * call.group + g) * call.q_head,
                     row);
      if (round) {
        for (std::int64_t d = 0; d < row_elements; d += hn::MaxLanes(F32())) {
          hn::StoreU(round_f32<DType::bf16>(hn::LoadU(F32(), row + d)), F32(), row + d);
        }
      }
      scratch.scale[r] = fold_scale(call.logit_scale, row);
    }
  }
}

/// The visible keys of a block, as they lie in the cache.
template <DType type>
struct BlockRows {
  const Storage<type>* k = nullptr;
  const Storage<type>* v = nullptr;
  std::int64_t k_stride = 0, v_stride = 0;
  std::int64_t count = 0;

  BlockRows() = default;
  BlockRows(const AttendCall& call, std::int64_t head, const UnionBlock& block)
      : k(first(call.k, head, block)),
        v(first(call.v, head, block)),
        k_stride(call.k.token),
        v_stride(call.v.token),
        count(block.keys) {}

 private:
  static const Storage<type>* first(const AttendCall::Pages& pages, std::int64_t head,
                                    const UnionBlock& block) {
    return static_cast<const Storage<type>*>(pages.data) + block.page * pages.page +
           head * pages.head;
  }
};

/// A block as panels of f32: converted all at once where several chunks of rows need them, else
/// each into the same few kilobytes just before its use. Meanwhile the rows converted next are
/// fetched.
template <DType type>
class BlockPanels {
 public:
  /// `rows`: how many rows of q will be multiplied with the block.
  BlockPanels(const BlockRows<type>& block, const BlockRows<type>& next, std::int64_t rows,
              const TileScratch& scratch)
      : block_(block), keys_(scratch.keys), values_(scratch.values), keep_(rows > chunk_rows) {
    constexpr std::int64_t bytes = row_elements * sizeof(Storage<type>);
    const auto prefetch = [&](const Storage<type>* first, std::int64_t stride, std::int64_t count) {
      const std::int64_t steps = row_elements / panel_width * ((rows + row_tile - 1) / row_tile);
      return RowPrefetch(first, stride * static_cast<std::int64_t>(sizeof(Storage<type>)), bytes,
                         count, steps);
    };
    if (keep_) {
      during_keys = prefetch(next.k, next.k_stride, next.count);
      during_values = prefetch(next.v, next.v_stride, next.count);
      for (std::int64_t p = 0; p * panel_width < block.count; ++p) {
        pack_keys(p, keys_ + p * panel_size);
      }
      for (std::int64_t p = 0; p * panel_width < row_elements; ++p) {
        pack_values(p, values_ + p * panel_size);
      }
    } else {
      during_keys = prefetch(block.v, block.v_stride, block.count);
      during_values = prefetch(next.k, next.k_stride, next.count);
    }
  }

  /// Panel `p` of K^T, good until the next call.
  const float* key_panel(std::int64_t p) const {
    if (keep_) return keys_ + p * panel_size;
    pack_keys(p, keys_);
    return keys_;
  }
  /// Panel `p` of V, good until the next call.
  const float* value_panel(std::int64_t p) const {
    if (keep_) return values_ + p * panel_size;
    pack_values(p, values_);
    return values_;
  }

  RowPrefetch during_keys, during_values;  ///< to be advanced by the products

 private:
  void pack_keys(std::int64_t p, float* panel) const {
    pack_key_panel<type>(block_.k, block_.k_stride, block_.count, p, panel);
  }
  void pack_values(std::int64_t p, float* panel) const {
    pack_value_panel<type>(block_.v, block_.v_stride, block_.count, p, panel);
  }

  const BlockRows<type>& block_;
  float* keys_;
  float* values_;
  bool keep_;
};

/// Folds one row's logits of a block into its softmax: `logits` become P, rounded; returns the
/// factor by which earlier results shrink.
template <DType product>
HWY_INLINE float softmax_step(float* logits, std::int64_t keys, float scale, float* maximum,
                              float* sum) {
  const F32 df;
  const auto lanes = static_cast<std::int64_t>(hn::MaxLanes(df));
  const VF minus_infinity = hn::Set(df, -std::numeric_limits<float>::infinity());
  const VF factor = hn::Set(df, scale);
  VF largest = minus_infinity;
  std::int64_t j = 0;
  for (; j + lanes <= keys; j += lanes) {
    largest = hn::Max(largest, hn::LoadU(df, logits + j));
  }
  if (j < keys) {
    const auto visible = hn::FirstN(df, static_cast<std::size_t>(keys - j));
    largest = hn::Max(largest, hn::IfThenElse(visible, hn::LoadU(df, logits + j), minus_infinity));
  }
  const float block_maximum = hn::GetLane(hn::MaxOfLanes(df, largest)) * scale;
  const float before = *maximum;
  const float after = block_maximum > before ? block_maximum : before;
  const VF shift = hn::Set(df, subtrahend(after));
  // Rounding keeps order, so that no product exceeds that of the largest.
  const auto weights = [&](std::int64_t first) {
    return weight_of(hn::Sub(hn::Mul(hn::LoadU(df, logits + first), factor), shift));
  };
  VF total = hn::Zero(df);
  for (j = 0; j + lanes <= keys; j += lanes) {
    const VF p = weights(j);
    total = hn::Add(total, p);
    hn::StoreU(round_probability<product>(p), df, logits + j);
  }
  if (j < keys) {
    const auto visible = hn::FirstN(df, static_cast<std::size_t>(keys - j));
    const VF p = hn::IfThenElseZero(visible, weights(j));
    total = hn::Add(total, p);
    hn::StoreU(round_probability<product>(p), df, logits + j);
  }
  const float shrink = weight_of(before - subtrahend(after));
  *maximum = after;
  *sum = *sum * shrink + hn::GetLane(hn::SumOfLanes(df, total));
  return shrink;
}

/// Rows that a block is computed for, up to chunk_rows at once, in runs that see equally many keys.
struct RowChunk {
  struct Run {
    std::int64_t begin, end, keys;
  };
  const float* q[chunk_rows];
  float* logits[chunk_rows];
  float* out[chunk_rows];
  float shrink[chunk_rows];
  std::int64_t row[chunk_rows];  // of the tile
  Run runs[chunk_rows];
  std::int64_t rows = 0, num_runs = 0;

  void add(std::int64_t r, std::int64_t keys, const TileScratch& scratch,
           const SoftmaxState& state) {
    q[rows] = scratch.q + r * row_elements;
    logits[rows] = scratch.logits + rows * page_size;
    out[rows] = state.out + r * row_elements;
    row[rows] = r;
    if (num_runs == 0 || runs[num_runs - 1].keys != keys) runs[num_runs++] = {rows, rows, keys};
    runs[num_runs - 1].end = ++rows;
  }
};

template <DType product, DType type>
void attend_chunk(RowChunk& chunk, BlockPanels<type>& panels, const TileScratch& scratch,
                  const SoftmaxState& state) {
  std::int64_t most_keys = 0;
  for (std::int64_t i = 0; i < chunk.num_runs; ++i) {
    most_keys = std::max(most_keys, chunk.runs[i].keys);
  }
  for (std::int64_t key = 0; key < most_keys; key += panel_width) {
    const float* panel = panels.key_panel(key / panel_width);
    for (std::int64_t i = 0; i < chunk.num_runs; ++i) {
      const auto [begin, end, keys] = chunk.runs[i];
      if (key >= keys) continue;
      multiply_panel<false>(end - begin, chunk.q + begin, panel, row_elements, nullptr,
                            chunk.logits + begin, key, &panels.during_keys);
    }
  }
  for (std::int64_t i = 0; i < chunk.num_runs; ++i) {
    for (std::int64_t j = chunk.runs[i].begin; j < chunk.runs[i].end; ++j) {
      const std::int64_t r = chunk.row[j];
      chunk.shrink[j] = softmax_step<product>(chunk.logits[j], chunk.runs[i].keys, scratch.scale[r],
                                              state.maximum + r, state.sum + r);
    }
  }
  for (std::int64_t column = 0; column < row_elements; column += panel_width) {
    const float* panel = panels.value_panel(column / panel_width);
    for (std::int64_t i = 0; i < chunk.num_runs; ++i) {
      const auto [begin, end, keys] = chunk.runs[i];
      multiply_panel<true>(end - begin, chunk.logits + begin, panel, keys, chunk.shrink + begin,
                           chunk.out + begin, column, &panels.during_values);
    }
  }
}

/// One block for all rows that chose it.
template <DType product, DType type>
void attend_block(const AttendCall& call, const TileRows& tile, const UnionBlock& block,
                  BlockPanels<type>& panels, const TileScratch& scratch,
                  const SoftmaxState& state) {
  RowChunk chunk;
  for (std::uint64_t left = block.tokens; left != 0; left &= left - 1) {
    const std::int64_t token = std::countr_zero(left);
    const std::int64_t keys = std::min<std::int64_t>(
        tile.visible(token, call.causal) - block.block * page_size, page_size);
    for (std::int64_t r = token * call.group; r < (token + 1) * call.group; ++r) {
      chunk.add(r, keys, scratch, state);
      if (chunk.rows < chunk_rows) continue;
      attend_chunk<product>(chunk, panels, scratch, state);
      chunk.rows = chunk.num_runs = 0;
    }
  }
  if (chunk.rows > 0) attend_chunk<product>(chunk, panels, scratch, state);
}

/// The blocks [begin, end) of a union list, into `state`.
void attend_blocks(const AttendCall& call, const TileRows& tile, std::int64_t head,
                   const std::vector<UnionBlock>& list, std::int64_t begin, std::int64_t end,
                   const TileScratch& scratch, const SoftmaxState& state) {
  const std::int64_t rows = tile.count * call.group;
  state.clear(rows);
  if constexpr (tiles::built) {
    if (call.on_tiles) {
      const TileAttend tiles(call, tile, head, scratch.work);
      tiles.run(list, begin, end, {scratch.q, scratch.scale, state.maximum, state.sum, state.out},
                TileQueries(scratch.tiles, rows));
      return;
    }
  }
  const DType product = call.product_type();
  with_cache_type(call.cache_type, [&](auto type) {
    constexpr DType cache = type.value;
    for (std::int64_t b = begin; b < end; ++b) {
      const UnionBlock& block = list[b];
      const bool last = b + 1 == static_cast<std::int64_t>(list.size());
      const BlockRows<cache> here(call, head, block);
      const BlockRows<cache> next =
          last ? BlockRows<cache>() : BlockRows<cache>(call, head, list[b + 1]);
      BlockPanels<cache> panels(here, next, std::popcount(block.tokens) * call.group, scratch);
      if (cache == DType::f16 || (cache != DType::bf16 && product == DType::f16)) {
        attend_block<DType::f16, cache>(call, tile, block, panels, scratch, state);
      } else {
        attend_block<DType::bf16, cache>(call, tile, block, panels, scratch, state);
      }
    }
  });
}

/// Adds a group's result to the total of the groups before it.
void fold_state(std::int64_t rows, const SoftmaxState& group, const SoftmaxState& total) {
  const F32 df;
  for (std::int64_t r = 0; r < rows; ++r) {
    const float before = total.maximum[r];
    const float after = std::max(before, group.maximum[r]);
    const float old_weight = weight_of(before - subtrahend(after));
    const float new_weight = weight_of(group.maximum[r] - subtrahend(after));
    total.maximum[r] = after;
    total.sum[r] = total.sum[r] * old_weight + group.sum[r] * new_weight;
    float* out = total.out + r * row_elements;
    const float* add = group.out + r * row_elements;
    for (std::int64_t d = 0; d < row_elements; d += hn::MaxLanes(df)) {
      const VF old = hn::Mul(hn::LoadU(df, out + d), hn::Set(df, old_weight));
      hn::StoreU(hn::MulAdd(hn::LoadU(df, add + d), hn::Set(df, new_weight), old), df, out + d);
    }
  }
}

/// One row's result: out = Σ P · V / Σ P · v_scale, LSE = ln of the sum of exponentials. P is
/// rounded and its sum is not, so that the quotient may pass the largest V by a little; out's type
/// may end there, and the exact result does not pass it.
template <DType type>
HWY_INLINE void write_row(const AttendCall& call, std::int64_t token, std::int64_t q_head,
                          const float* row, float maximum, float sum) {
  const F32 df;
  auto* out =
      static_cast<Storage<type>*>(call.out.data) + token * call.out.token + q_head * call.out.head;
  const bool empty = sum == 0;
  const VF inverse = hn::Set(df, 1.0f / sum);
  const VF v_scale = hn::Set(df, call.v_scale);
  for (std::int64_t d = 0; d < row_elements; d += hn::MaxLanes(df)) {
    // Adding 0 leaves one sign of zero: rounding to −0 would depend on the order of the blocks.
    VF x = hn::Mul(hn::Mul(hn::LoadU(df, row + d), inverse), v_scale);
    x = empty ? hn::Zero(df) : hn::Add(x, hn::Zero(df));
    store_f32<type>(clamp_to_largest<type>(x), out + d);
  }
  if (call.lse.data == nullptr) return;
  const double log2_sum = empty ? -std::numeric_limits<double>::infinity()
                                : 2.0 * maximum + std::log2(static_cast<double>(sum));
  static_cast<float*>(call.lse.data)[token * call.lse.token + q_head * call.lse.head] =
      static_cast<float>(log2_sum * std::numbers::ln2);
}

void write_tile(const AttendCall& call, const TileRows& tile, std::int64_t head,
                const SoftmaxState& state) {
  for (std::int64_t r = 0; r < tile.count * call.group; ++r) {
    const std::int64_t token = tile.first + r / call.group;
    const std::int64_t q_head = head * call.group + r % call.group;
    const float* row = state.out + r * row_elements;
    if (call.out.type == DType::f16) {
      write_row<DType::f16>(call, token, q_head, row, state.maximum[r], state.sum[r]);
    } else {
      write_row<DType::bf16>(call, token, q_head, row, state.maximum[r], state.sum[r]);
    }
  }
}

void load_tile(const AttendCall& call, const TileRows& tile, std::int64_t head,
               const TileScratch& scratch) {
  if (call.q_type == DType::f16) {
    load_queries<DType::f16>(call, tile, head, scratch);
  } else {
    load_queries<DType::bf16>(call, tile, head, scratch);
  }
  if constexpr (tiles::built) {
    const std::int64_t rows = tile.count * call.group;
    if (call.on_tiles) TileQueries(scratch.tiles, rows).pack(scratch.q, scratch.scale, rows);
  }
}

void attend_tile(const AttendCall& call, const TileRows& tile, std::int64_t head,
                 std::int64_t group_blocks) {
  const std::vector<UnionBlock> list = union_list(call, tile, head);
  const auto size = static_cast<std::int64_t>(list.size());
  const std::int64_t rows = tile.count * call.group;
  const TileScratch scratch(call, rows);
  const SoftmaxState total = scratch.state(0, rows);
  load_tile(call, tile, head, scratch);
  const SoftmaxState group = scratch.state(1, rows);
  std::int64_t begin = 0;
  do {
    const std::int64_t end = begin + std::min(group_blocks, size - begin);
    attend_blocks(call, tile, head, list, begin, end, scratch, begin == 0 ? total : group);
    if (begin > 0) fold_state(rows, group, total);
    begin = end;
  } while (begin < size);
  write_tile(call, tile, head, total);
}

void attend_groups(const AttendCall& call, const TileRows& tile, std::int64_t head,
                   std::int64_t first, std::int64_t last, float* partials) {
  std::vector<UnionBlock> list = union_list(call, tile, head);
  // What lies behind these groups is fetched by others.
  const auto size = std::min(static_cast<std::int64_t>(list.size()), last * decode_group_blocks);
  list.resize(static_cast<std::size_t>(size));
  if (first * decode_group_blocks >= size) return;
  const std::int64_t rows = tile.count * call.group;
  const TileScratch scratch(call, rows);
  load_tile(call, tile, head, scratch);
  for (std::int64_t group = first; group * decode_group_blocks < size; ++group) {
    const std::int64_t begin = group * decode_group_blocks;
    attend_blocks(call, tile, head, list, begin, std::min(begin + decode_group_blocks, size),
                  scratch, SoftmaxState(partials + group * SoftmaxState::floats(rows), rows));
  }
}

void attend_fold(const AttendCall& call, const TileRows& tile, std::int64_t head, float* partials) {
  const auto size = static_cast<std::int64_t>(union_list(call, tile, head).size());
  const std::int64_t rows = tile.count * call.group;
  const SoftmaxState total(partials, rows);
  if (size == 0) total.clear(rows);
  for (std::int64_t group = 1; group * decode_group_blocks < size; ++group) {
    fold_state(rows, SoftmaxState(partials + group * SoftmaxState::floats(rows), rows), total);
  }
  write_tile(call, tile, head, total);
}

}  // namespace msa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
