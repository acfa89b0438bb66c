// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
// One token attends to two selected blocks of its request's paged cache.
#include <cstdio>
#include <vector>

#include "msa/msa.h"

int main() {
  std::vector<std::uint16_t> q(4 * 128), out(4 * 128), cache(128 * 256);  // bf16; page 0: zeros
  cache.resize(2 * 128 * 256, 0x3f80);                                    // page 1: ones
  cache.resize(3 * 128 * 256, 0x4000);                                    // page 2: twos
  const std::int32_t length = 300, table[] = {2, 0, 1}, blocks[] = {0, 2};
  msa::AttendArgs args;
  args.q = msa::ConstTensor::dense(q.data(), msa::DType::bf16, {1, 4, 128});
  args.kv_cache = msa::ConstTensor::dense(cache.data(), msa::DType::bf16, {3, 1, 128, 256});
  args.selection = msa::ConstTensor::dense(blocks, msa::DType::i32, {1, 1, 2});
  args.out = msa::Tensor::dense(out.data(), msa::DType::bf16, {1, 4, 128});
  args.batch.seq_lens = msa::ConstTensor::dense(&length, msa::DType::i32, {1});
  args.batch.block_table = msa::ConstTensor::dense(table, msa::DType::i32, {1, 3});
  args.batch.num_decodes = args.batch.num_actual_tokens = args.batch.max_query_len = 1;
  args.batch.max_seq_len = length;
  std::vector<std::byte> workspace(msa::workspace_size(args));
  args.workspace = {workspace.data(), workspace.size()};
  msa::attend(args);
  std::printf("0x%04x; expected bf16((128 * 2 + 44 * 1) / 172) = 0x3fdf\n", out[0]);
  return out[0] == 0x3fdf ? 0 : 1;
}
