// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "common/numeric.h"
#include "cpu/operators.h"
#include "msa/attend.h"

/// \file
/// A small attend call in memory of its own, for the unit tests of the CPU backend.

namespace msa::testing {

struct AttendShape {
  std::int64_t heads = 16;
  std::int64_t kv_heads = 1;
  std::int64_t lists = 0;  // 0: as many as KV heads
  std::int64_t topk = 16;
  std::int64_t m = 1;
  std::vector<std::int32_t> decode_lens = {};  // seq_lens of decode requests
  std::vector<std::pair<std::int32_t, std::int32_t>> prefill_lens = {};  // query and seq_len
  std::int64_t padding = 0;                                              // tokens of no request
  DType q = DType::bf16;
  DType cache = DType::bf16;
  DType out = DType::bf16;
  int keep_percent = 85;  // chance that a row keeps its neighbour's choice
  std::uint32_t seed = 1;
};

class AttendCase {
 public:
  explicit AttendCase(const AttendShape& s) : shape(s), random(s.seed) {
    for (std::int32_t n : s.decode_lens) seq_lens.push_back(n);
    cu.push_back(0);
    for (auto [query, length] : s.prefill_lens) {
      seq_lens.push_back(length);
      context.push_back(length - query);
      cu.push_back(cu.back() + query);
    }
    tokens = static_cast<std::int64_t>(s.decode_lens.size()) * s.m + cu.back() + s.padding;
    fill_table();
    fill_cache();
    q.resize(tokens * s.heads * 128 * size_of(s.q));
    fill(s.q, q);
    fill_selection();
    out.assign(tokens * s.heads * 128 * size_of(s.out), 0xff);
    lse.assign(tokens * s.heads, std::numeric_limits<float>::quiet_NaN());
  }

  std::int64_t lists() const { return shape.lists == 0 ? shape.kv_heads : shape.lists; }
  std::int64_t requests() const { return static_cast<std::int64_t>(seq_lens.size()); }

  AttendArgs args() {
    AttendArgs a;
    a.q = ConstTensor::dense(q.data(), shape.q, {tokens, shape.heads, 128});
    a.kv_cache = ConstTensor::dense(cache.data(), shape.cache, {pages, shape.kv_heads, 128, 256});
    a.selection = ConstTensor::dense(selection.data(), DType::i32, {tokens, lists(), shape.topk});
    a.batch.seq_lens = ConstTensor::dense(seq_lens.data(), DType::i32, {requests()});
    a.batch.block_table = ConstTensor::dense(table.data(), DType::i32, {requests(), width});
    a.batch.cu_seqlens_q =
        ConstTensor::dense(cu.data(), DType::i32, {static_cast<std::int64_t>(cu.size())});
    a.batch.context_lens =
        ConstTensor::dense(context.data(), DType::i32, {static_cast<std::int64_t>(context.size())});
    a.batch.num_decodes = static_cast<std::int64_t>(shape.decode_lens.size());
    a.batch.num_prefills = static_cast<std::int64_t>(shape.prefill_lens.size());
    a.batch.decode_query_len = shape.m;
    a.batch.num_actual_tokens = tokens;
    for (std::int32_t n : seq_lens) {
      a.batch.max_seq_len = std::max<std::int64_t>(a.batch.max_seq_len, n);
    }
    a.batch.max_query_len = std::max<std::int64_t>(shape.m, tokens);
    a.out = Tensor::dense(out.data(), shape.out, {tokens, shape.heads, 128});
    a.lse = Tensor::dense(lse.data(), DType::f32, {tokens, shape.heads});
    return a;
  }

  /// Runs the CPU backend with a workspace of the size that it asks for, filled with NaN.
  void run(AttendArgs a, bool with_workspace = true) {
    std::vector<float> workspace(cpu::workspace_size(a) / 4 + 1,
                                 std::numeric_limits<float>::quiet_NaN());
    if (with_workspace) a.workspace = {workspace.data(), cpu::workspace_size(a)};
    cpu::attend(a);
  }

  /// Fills `bytes` with elements of unit variance.
  void fill(DType type, std::vector<std::uint8_t>& bytes) {
    std::normal_distribution<float> normal;
    const std::size_t n = bytes.size() / size_of(type);
    for (std::size_t i = 0; i < n; ++i) store(type, bytes.data(), i, normal(random));
  }
  /// Element address of one slot of one page: K at 0 … 127, V at 128 … 255.
  std::int64_t slot(std::int64_t page, std::int64_t head, std::int64_t token) const {
    return ((page * shape.kv_heads + head) * 128 + token) * 256;
  }
  /// Physical slot of one key of a request.
  std::int64_t key_slot(std::int64_t request, std::int64_t key, std::int64_t head = 0) const {
    return slot(table[request * width + key / 128], head, key % 128);
  }

  AttendShape shape;
  std::mt19937 random;
  std::int64_t tokens = 0, pages = 0, width = 0;
  std::vector<std::int32_t> seq_lens, cu, context, table, selection;
  std::vector<std::uint8_t> q, cache, out;
  std::vector<float> lse;

 private:
  void fill_table() {
    for (std::int32_t n : seq_lens) width = std::max<std::int64_t>(width, (n + 127) / 128);
    width += 2;
    table.assign(requests() * width, std::numeric_limits<std::int32_t>::max());
    for (std::int64_t r = 0; r < requests(); ++r) {
      for (std::int64_t b = 0; b * 128 < seq_lens[r]; ++b) table[r * width + b] = pages++;
    }
    ++pages;  // one that nobody owns
    std::vector<std::int32_t> order(pages);
    for (std::int64_t i = 0; i < pages; ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    for (std::int32_t& page : table) {
      if (page < pages) page = order[page];
    }
  }

  /// Owned slots hold numbers, all others NaN patterns.
  void fill_cache() {
    cache.assign(pages * shape.kv_heads * 128 * 256 * size_of(shape.cache), 0xff);
    std::normal_distribution<float> normal;
    for (std::int64_t r = 0; r < requests(); ++r) {
      for (std::int64_t key = 0; key < seq_lens[r]; ++key) {
        for (std::int64_t h = 0; h < shape.kv_heads; ++h) {
          const std::int64_t at = key_slot(r, key, h);
          for (std::int64_t d = 0; d < 256; ++d)
            store(shape.cache, cache.data(), at + d, normal(random));
        }
      }
    }
  }

  void fill_selection() {
    selection.assign(tokens * lists() * shape.topk, -1);
    std::int64_t t = 0;
    const std::int64_t decodes = static_cast<std::int64_t>(shape.decode_lens.size());
    for (std::int64_t r = 0; r < requests(); ++r) {
      const bool decode = r < decodes;
      const std::int64_t n = decode ? shape.m : shape.prefill_lens[r - decodes].first;
      for (std::int64_t i = 0; i < n; ++i, ++t) choose(t, seq_lens[r] - n + i, i > 0);
    }
  }

  /// Random blocks up to the own one, as an unsorted list with holes, repeats and ids that are not
  /// visible; mostly those of the row before.
  void choose(std::int64_t t, std::int64_t position, bool has_neighbour) {
    const std::int64_t valid = position < 0 ? 0 : position / 128 + 1;
    for (std::int64_t l = 0; l < lists(); ++l) {
      std::int32_t* ids = selection.data() + (t * lists() + l) * shape.topk;
      for (std::int64_t i = 0; i < shape.topk; ++i) {
        if (has_neighbour && static_cast<int>(random() % 100) < shape.keep_percent) {
          ids[i] = ids[i - lists() * shape.topk];
        } else if (random() % 16 == 0) {
          ids[i] = random() % 2 == 0 ? -1 : static_cast<std::int32_t>(valid + random() % 3);
        } else if (valid > 0) {
          ids[i] = i == 0 ? valid - 1 : random() % valid;
        }
      }
    }
  }
};

}  // namespace msa::testing
