// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/attend_plan.h"

#include <cstring>

namespace msa::cpu {
namespace {

std::int32_t at(const ConstTensor& t, std::int64_t i) {
  return t.ptr<std::int32_t>()[i * t.stride[0]];
}

float value_of(const Scale& scale) {
  return scale.tensor.given() ? *scale.tensor.ptr<float>() : scale.value;
}

AttendCall::Pages pages_of(const ConstTensor& t) {
  return {t.data, t.stride[0], t.stride[1], t.stride[2]};
}

/// A token's choice of a block, ordered by block.
struct Choice {
  std::int64_t block;
  std::int64_t token;
};

void append_choices(const AttendCall& call, const TileRows& tile, std::int64_t head,
                    std::int64_t token, std::vector<Choice>& choices) {
  const std::int64_t blocks = (tile.visible(token, call.causal) + page_size - 1) / page_size;
  const std::int32_t* ids = call.selection + (tile.first + token) * call.selection_token +
                            (call.lists == 1 ? 0 : head) * call.selection_list;
  for (std::int64_t i = 0; i < call.topk; ++i) {
    const std::int64_t block = ids[i * call.selection_slot];
    if (block < 0 || block >= blocks || block % call.world != call.rank) continue;
    if (block / call.world < call.table_width) choices.push_back({block, token});
  }
}

/// Rows [begin, end) of a prefill request in tiles.
void append_tiles(TileRows rows, std::int64_t tile_tokens, std::vector<TileRows>& tiles) {
  const std::int64_t end = rows.first + rows.count;
  while (rows.first < end) {
    rows.count = std::min(tile_tokens, end - rows.first);
    tiles.push_back(rows);
    rows.first += rows.count;
    rows.position += rows.count;
  }
}

}  // namespace

AttendCall::AttendCall(const AttendArgs& args)
    : q(args.q.data),
      q_type(args.q.dtype),
      q_token(args.q.stride[0]),
      q_head(args.q.stride[1]),
      k(pages_of(args.kv_cache.k_view())),
      v(pages_of(args.kv_cache.v_view())),
      cache_type(args.kv_cache.shape_view().dtype),
      pages(args.kv_cache.shape_view().shape[0]),
      kv_heads(args.kv_cache.shape_view().shape[1]),
      group(args.q.shape[1] / kv_heads),
      selection(args.selection.ptr<std::int32_t>()),
      selection_token(args.selection.stride[0]),
      selection_list(args.selection.stride[1]),
      selection_slot(args.selection.stride[2]),
      lists(args.selection.shape[1]),
      topk(args.selection.shape[2]),
      table(args.batch.block_table.ptr<std::int32_t>()),
      table_row(args.batch.block_table.stride[0]),
      table_column(args.batch.block_table.stride[1]),
      table_width(args.batch.block_table.shape[1]),
      out{args.out.data, args.out.dtype, args.out.stride[0], args.out.stride[1]},
      logit_scale(static_cast<double>(args.softmax_scale) * value_of(args.k_scale)),
      v_scale(value_of(args.v_scale)),
      causal(args.causal),
      rank(args.kv_shard.rank),
      world(args.kv_shard.world) {
  if (args.lse.given()) lse = {args.lse.data, DType::f32, args.lse.stride[0], args.lse.stride[1]};
}

DType AttendCall::product_type() const { return size_of(cache_type) == 1 ? q_type : cache_type; }

std::vector<UnionBlock> union_list(const AttendCall& call, const TileRows& tile,
                                   std::int64_t head) {
  std::vector<Choice> choices;
  choices.reserve(static_cast<std::size_t>(tile.count * call.topk));
  for (std::int64_t i = 0; i < tile.count; ++i) append_choices(call, tile, head, i, choices);
  std::sort(choices.begin(), choices.end(),
            [](const Choice& a, const Choice& b) { return a.block < b.block; });

  std::vector<UnionBlock> list;
  for (const Choice& choice : choices) {
    if (list.empty() || list.back().block != choice.block) {
      const std::int64_t column = choice.block / call.world;
      list.push_back(
          {choice.block, call.table[tile.request * call.table_row + column * call.table_column]});
    }
    UnionBlock& last = list.back();
    last.tokens |= std::uint64_t{1} << choice.token;
    const std::int64_t keys = tile.visible(choice.token, call.causal) - choice.block * page_size;
    last.keys = std::max(last.keys, std::min<std::int64_t>(keys, page_size));
  }
  std::erase_if(list, [&](const UnionBlock& b) { return b.page < 0 || b.page >= call.pages; });
  return list;
}

BatchRows::BatchRows(const BatchMetadata& batch, std::int64_t tile_tokens) {
  const std::int64_t m = batch.decode_query_len;
  const std::int64_t total = batch.num_actual_tokens;
  for (std::int64_t r = 0; r < batch.num_decodes; ++r) {
    const std::int64_t seq_len = at(batch.seq_lens, r);
    decode.push_back({r, r * m, m, seq_len - m, seq_len});
  }
  // Lengths that do not fit together are the caller's error: rows are taken once, in order.
  std::int64_t next = batch.num_decode_tokens();
  const std::int64_t first_prefill = next;
  for (std::int64_t p = 0; p < batch.num_prefills; ++p) {
    const std::int64_t start = first_prefill + at(batch.cu_seqlens_q, p);
    const std::int64_t begin = std::clamp(start, next, total);
    const std::int64_t end =
        std::clamp(first_prefill + at(batch.cu_seqlens_q, p + 1), begin, total);
    if (begin > next) uncovered.push_back({-1, next, begin - next, 0, 0});
    const std::int64_t request = batch.num_decodes + p;
    append_tiles({request, begin, end - begin, at(batch.context_lens, p) + (begin - start),
                  at(batch.seq_lens, request)},
                 tile_tokens, prefill);
    next = end;
  }
  if (total > next) uncovered.push_back({-1, next, total - next, 0, 0});
}

DecodeSplit::DecodeSplit(const AttendArgs& args) : cap_(args.workspace_cap) {
  const std::int64_t kv_heads = args.kv_cache.shape_view().shape[1];
  const std::int64_t m = args.batch.decode_query_len;
  items = args.batch.num_decodes * kv_heads;
  groups = (m * args.selection.shape[2] + decode_group_blocks - 1) / decode_group_blocks;
  rows = m * (kv_heads > 0 ? args.q.shape[1] / kv_heads : 0);
}

std::size_t DecodeSplit::workspace_bytes() const {
  // Beyond this many items any machine has enough to do without splitting them.
  constexpr std::int64_t most_items = 256;
  constexpr std::size_t alignment = 64;
  if (items == 0 || items > most_items || groups < 2) return 0;
  const auto bytes = static_cast<std::size_t>(items * groups * partial_floats()) * sizeof(float);
  return bytes + alignment <= cap_ ? bytes + alignment : 0;
}

}  // namespace msa::cpu
