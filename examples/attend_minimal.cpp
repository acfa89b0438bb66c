// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
// One token attends to two selected blocks of its request's paged cache.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "msa/msa.h"

int main() {
  // Three pages of one KV head, K | V in each row; bf16 keys of 0, values 0, 1 and 2 by page.
  std::vector<std::uint16_t> cache(3 * 128 * 256), q(4 * 128), out(4 * 128);
  const std::uint16_t value_of_page[] = {0x0000, 0x3f80, 0x4000};
  for (std::size_t i = 0; i < cache.size(); ++i) {
    if (i % 256 >= 128) cache[i] = value_of_page[i / (128 * 256)];
  }
  std::vector<std::int32_t> lens = {300}, table = {2, 0, 1}, blocks = {0, 2};

  msa::AttendArgs args;
  args.q = msa::ConstTensor::dense(q.data(), msa::DType::bf16, {1, 4, 128});
  args.kv_cache = msa::ConstTensor::dense(cache.data(), msa::DType::bf16, {3, 1, 128, 256});
  args.selection = msa::ConstTensor::dense(blocks.data(), msa::DType::i32, {1, 1, 2});
  args.out = msa::Tensor::dense(out.data(), msa::DType::bf16, {1, 4, 128});
  args.batch.seq_lens = msa::ConstTensor::dense(lens.data(), msa::DType::i32, {1});
  args.batch.block_table = msa::ConstTensor::dense(table.data(), msa::DType::i32, {1, 3});
  args.batch.num_decodes = args.batch.num_actual_tokens = args.batch.max_query_len = 1;
  args.batch.max_seq_len = 300;
  std::vector<std::byte> workspace(msa::workspace_size(args));
  args.workspace = {workspace.data(), workspace.size()};
  msa::attend(args);

  // Block 0 is page 2 (128 keys), block 2 is page 1 (300 - 256 = 44 keys).
  std::printf("out = 0x%04x on backend %s; expected bf16((128 * 2 + 44 * 1) / 172) = 0x3fdf\n",
              out[0], msa::last_backend());
  return out[0] == 0x3fdf ? 0 : 1;
}
