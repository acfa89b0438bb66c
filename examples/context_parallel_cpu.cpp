// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
// Context parallelism: each of several ranks holds every world-th block of a long request, attends
// to its own, and the partial results are merged. Here the ranks are a loop; between machines, out
// and lse are what has to be sent.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "bf16.h"
#include "msa/msa.h"

namespace {

using msa::ConstTensor;
using msa::DType;
using msa::Tensor;

constexpr std::int64_t heads = 16;       // query heads, on one KV head
constexpr std::int64_t tokens = 2000;    // keys of the request
constexpr std::int64_t blocks = 16;      // ceil(2000 / 128), all selected
constexpr std::size_t page = 128 * 256;  // elements of one page of one head
constexpr std::int32_t world = 3;

struct Partial {
  std::vector<std::uint16_t> out = std::vector<std::uint16_t>(heads * 128);
  std::vector<float> lse = std::vector<float>(heads);

  Tensor out_view() { return Tensor::dense(out.data(), DType::bf16, {1, heads, 128}); }
  Tensor lse_view() { return Tensor::dense(lse.data(), DType::f32, {1, heads}); }
};

/// One decode token over the blocks that `cache` holds: block b in page b / shard.world.
Partial attend(const std::vector<std::uint16_t>& q, const std::vector<std::uint16_t>& cache,
               msa::KVShard shard) {
  const std::int64_t pages = static_cast<std::int64_t>(cache.size() / page);
  std::vector<std::int32_t> table(pages), selection(blocks);
  for (std::int32_t i = 0; i < pages; ++i) table[i] = i;
  for (std::int32_t b = 0; b < blocks; ++b) selection[b] = b;
  const std::int32_t seq_len = tokens;

  Partial result;
  msa::AttendArgs args;
  args.q = ConstTensor::dense(q.data(), DType::bf16, {1, heads, 128});
  args.kv_cache = ConstTensor::dense(cache.data(), DType::bf16, {pages, 1, 128, 256});
  args.selection = ConstTensor::dense(selection.data(), DType::i32, {1, 1, blocks});
  args.out = result.out_view();
  args.lse = result.lse_view();
  args.batch.seq_lens = ConstTensor::dense(&seq_len, DType::i32, {1});
  args.batch.block_table = ConstTensor::dense(table.data(), DType::i32, {1, pages});
  args.batch.num_decodes = 1;
  args.batch.num_actual_tokens = 1;
  args.batch.max_query_len = 1;
  args.batch.max_seq_len = tokens;  // lengths stay global on every rank
  args.kv_shard = shard;
  std::vector<std::byte> workspace(msa::workspace_size(args));
  args.workspace = {workspace.data(), workspace.size()};
  msa::attend(args);
  return result;
}

}  // namespace

int main() {
  const std::vector<std::uint16_t> q = normal_bf16(heads * 128, 1);
  const std::vector<std::uint16_t> cache = normal_bf16(blocks * page, 2);
  Partial whole = attend(q, cache, {});

  Partial merged;
  for (std::int32_t rank = 0; rank < world; ++rank) {
    std::vector<std::uint16_t> own;
    for (std::int64_t b = rank; b < blocks; b += world) {
      own.insert(own.end(), cache.begin() + b * page, cache.begin() + (b + 1) * page);
    }
    Partial part = attend(q, own, {rank, world});
    std::printf("rank %d of %d: %zu blocks, lse[0] = %.4f\n", rank, world, own.size() / page,
                part.lse[0]);
    if (rank == 0) {
      merged = part;
      continue;
    }
    msa::MergeArgs merge;
    merge.out_a = merged.out_view();
    merge.lse_a = merged.lse_view();
    merge.out_b = part.out_view();
    merge.lse_b = part.lse_view();
    merge.out = merged.out_view();  // in place on a
    merge.lse = merged.lse_view();
    msa::merge_states(merge);
  }

  float difference = 0, largest = 0;
  for (std::size_t i = 0; i < whole.out.size(); ++i) {
    largest = std::max(largest, std::abs(to_float(whole.out[i])));
    difference = std::max(difference, std::abs(to_float(whole.out[i]) - to_float(merged.out[i])));
  }
  std::printf("lse[0] of one rank %.4f, merged %.4f; largest difference of out %.5f of %.5f\n",
              whole.lse[0], merged.lse[0], difference, largest);
  const bool same_lse = std::abs(whole.lse[0] - merged.lse[0]) < 1e-3f;
  return same_lse && largest > 0 && difference <= 0.01f * largest ? 0 : 1;
}
