// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "msa/error.h"
#include "step.h"
#include "verify/compare.h"

namespace msa::serving_test {
namespace {

using verify::seed_of;

StepSpec mixed() {
  StepSpec spec;
  spec.query_lens = {1, 1, 70, 7};
  spec.seq_lens = {129, 700, 70, 263};
  return spec;
}

/// A step with what write_cache reads besides.
struct WrittenStep : Step {
  explicit WrittenStep(const StepSpec& spec) : Step(spec) {
    const verify::Target& at = host();
    const std::int64_t rows = spec.tokens() + spec.spare_rows;
    const std::int64_t width = (spec.q_heads + 2 * spec.kv_heads + spec.index_heads + 1) * head_dim;
    qkv = Array(at, spec.q_type, {rows, width}, spec.poison);
    positions = Array(at, DType::i64, {rows}, spec.poison);
    index_slots = Array(at, DType::i64, {rows}, spec.poison);
    cos_sin = Array(at, DType::f32, {4096, 64}, spec.poison);
    norms = Array(at, DType::bf16, {4, head_dim}, spec.poison);
    for (std::int64_t p = 0; p < 4096; ++p) {
      for (std::int64_t i = 0; i < 32; ++i) {
        const double angle = static_cast<double>(p) * std::pow(5e6, -static_cast<double>(i) / 32);
        verify::f32(cos_sin, p, i) = static_cast<float>(std::cos(angle));
        verify::f32(cos_sin, p, i + 32) = static_cast<float>(std::sin(angle));
      }
    }
    verify::fill_normal(DType::bf16, norms.buffer().data(), 4 * head_dim, 3, 0.1);
    std::int64_t t = 0;
    for (std::size_t r = 0; r < spec.query_lens.size(); ++r) {
      for (std::int32_t i = 0; i < spec.query_lens[r]; ++i, ++t) place(t, r, i);
    }
  }

  void place(std::int64_t t, std::size_t r, std::int32_t i) {
    const auto request = static_cast<std::int64_t>(r);
    const std::int64_t p = spec.seq_lens[r] - spec.query_lens[r] + i;
    const auto slot = [&](const Array& table) {
      return std::int64_t{verify::i32(table, request, p / page_size)} * page_size + p % page_size;
    };
    positions.data<std::int64_t>()[t] = p;
    slots.data<std::int64_t>()[t] = slot(table_array);
    index_slots.data<std::int64_t>()[t] = slot(index_table_array);
    verify::fill_normal(spec.q_type, qkv.data<std::uint16_t>() + qkv.at(t), qkv.view().shape[1],
                        seed_of({spec.seed, static_cast<std::uint64_t>(t), 21}));
  }

  /// The arguments of layer_step, with nothing that it takes from an earlier call.
  LayerStepArgs args() const {
    LayerStepArgs args;
    args.write.qkv = qkv.view();
    args.write.positions = positions.view();
    args.write.cos_sin = cos_sin.view();
    ConstTensor* const weights[] = {&args.write.q_norm, &args.write.k_norm,
                                    &args.write.index_q_norm, &args.write.index_k_norm};
    for (int i = 0; i < 4; ++i) {
      *weights[i] =
          ConstTensor::dense(norms.data<std::uint16_t>() + norms.at(i), DType::bf16, {head_dim});
    }
    args.write.slot_mapping = slots.view();
    args.write.index_slot_mapping = index_slots.view();
    args.write.q_out = q.view();
    args.write.kv_cache = KVCache(cache());
    args.write.index_q_out = index_q.view();
    args.write.index_cache = index_cache.view();
    args.write.k_scale = spec.k_scale;
    args.write.v_scale = spec.v_scale;
    args.write.num_tokens = spec.tokens();
    args.index.batch = metadata.at(layer_name).batch;
    args.index.batch.block_table = index_table();
    args.index.selection = topk.view();
    args.attend.batch = metadata.at(layer_name).batch;
    args.attend.out = out.view();
    workspace.assign(std::size_t{1} << 22, std::byte{0xff});
    args.index.workspace = {workspace.data(), workspace.size()};
    return args;
  }

  /// Everything that a step may write.
  std::vector<std::vector<std::byte>> state() const {
    std::vector<std::vector<std::byte>> all;
    for (const Array* array : {&kv, &index_cache, &q, &index_q, &topk, &out}) {
      all.push_back(verify::snapshot(*array));
    }
    return all;
  }

  Array qkv, positions, index_slots, cos_sin, norms;
  std::vector<std::int32_t> short_lens;  // for a test's own seq_lens
  mutable std::vector<std::byte> workspace;
};

/// The same by three calls with every argument spelled out.
void three_calls(const WrittenStep& step) {
  LayerStepArgs args = step.args();
  write_cache(args.write);
  args.index.index_q = step.index_q.view();
  args.index.index_cache = step.index_cache.view();
  index_blocks(args.index);
  args.attend.q = step.q.view();
  args.attend.kv_cache = ConstKVCache(step.cache());
  args.attend.k_scale = step.spec.k_scale;
  args.attend.v_scale = step.spec.v_scale;
  args.attend.selection = step.topk.view();
  args.attend.workspace = args.index.workspace;
  attend(args.attend);
}

TEST(LayerStep, EqualsTheThreeCallsBitForBit) {
  for (DType kv_type : {DType::bf16, DType::e4m3}) {
    StepSpec spec = mixed();
    spec.kv_type = kv_type;
    spec.padding = 0;
    if (kv_type == DType::e4m3) {
      spec.k_scale = 0.25f;
      spec.v_scale = 0.5f;
    }
    const WrittenStep fused(spec);
    const WrittenStep separate(spec);
    ASSERT_EQ(fused.state(), separate.state());
    const auto before = fused.state();
    layer_step(fused.args());
    three_calls(separate);
    EXPECT_EQ(fused.state(), separate.state());
    const auto after = fused.state();
    for (std::size_t i = 0; i < after.size(); ++i) EXPECT_NE(after[i], before[i]) << i;
  }
}

TEST(LayerStep, WrittenKeysAreThoseThatAttendSees) {
  const WrittenStep step(mixed());
  layer_step(step.args());
  EXPECT_LE(verify::distance(step.result(), step.expected()).relative_l2, 4e-3);
}

TEST(LayerStep, WorkspaceOfTheStatedSizeIsEnough) {
  const WrittenStep a(mixed());
  const WrittenStep b(mixed());
  layer_step(a.args());
  LayerStepArgs args = b.args();
  args.index.workspace.bytes = workspace_size(args);
  layer_step(args);
  EXPECT_EQ(a.state(), b.state());
}

TEST(LayerStep, FailuresOfAllThreeAreListedAndNothingIsWritten) {
  const WrittenStep step(mixed());
  const auto before = step.state();
  LayerStepArgs args = step.args();
  args.write.norm_eps = -1;
  args.index.selection.dtype = DType::f32;
  args.attend.out = {};
  args.attend.batch.num_actual_tokens = 1;
  std::vector<std::string> found;
  try {
    layer_step(args);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    found = error.failures();
  }
  for (const char* text :
       {"write_cache: argument 'norm_eps'", "index_blocks: argument 'selection'",
        "attend: argument 'out'", "layer_step: argument 'attend.batch.num_actual_tokens' is 1"}) {
    EXPECT_TRUE(std::any_of(found.begin(), found.end(), [&](const std::string& failure) {
      return failure.rfind(text, 0) == 0;
    })) << text;
  }
  EXPECT_EQ(step.state(), before);
}

TEST(LayerStep, LateFailureLeavesTheCachesUntouched) {
  const WrittenStep step(mixed());
  const auto before = step.state();
  LayerStepArgs args = step.args();
  args.attend.out.data = nullptr;  // only the last call could notice
  EXPECT_THROW(layer_step(args), Error);
  EXPECT_EQ(step.state(), before);
}

/// MSA_CHECK=1 for one scope.
class CheckedMemory {
 public:
  CheckedMemory() { setenv("MSA_CHECK", "1", 1); }
  CheckedMemory(const CheckedMemory&) = delete;
  CheckedMemory& operator=(const CheckedMemory&) = delete;
  ~CheckedMemory() { unsetenv("MSA_CHECK"); }
};

TEST(LayerStepMsaCheck, AHealthyStepPasses) {
  const CheckedMemory on;
  WrittenStep step(mixed());
  step.topk.data<std::int32_t>()[0] = 2143289344;  // stale: no id before index_blocks has run
  layer_step(step.args());
  EXPECT_LE(verify::distance(step.result(), step.expected()).relative_l2, 4e-3);
}

TEST(LayerStepMsaCheck, WhatIsWrongInMemoryIsFoundBeforeAnythingIsWritten) {
  struct Fault {
    const char* text;
    std::function<void(WrittenStep&, LayerStepArgs&)> make;
  };
  const Fault faults[] = {
      {"write_cache: argument 'slot_mapping' holds slot 99999",
       [](WrittenStep& s, LayerStepArgs&) { s.slots.data<std::int64_t>()[3] = 99999; }},
      {"write_cache: argument 'positions' holds -1",
       [](WrittenStep& s, LayerStepArgs&) { s.positions.data<std::int64_t>()[0] = -1; }},
      {"index_blocks: argument 'block_table' holds page -1",
       [](WrittenStep& s, LayerStepArgs&) { verify::i32(s.index_table_array, 1, 2) = -1; }},
      {"attend: argument 'block_table' holds page 12345",
       [](WrittenStep& s, LayerStepArgs&) { verify::i32(s.table_array, 3, 0) = 12345; }},
      {"attend: argument 'seq_lens' holds 700",
       [](WrittenStep&, LayerStepArgs& a) { a.attend.batch.max_seq_len = 699; }},
      {"attend.batch.max_seq_len' is 600, 5 blocks; allowed: at least the 6 blocks",
       [](WrittenStep& s, LayerStepArgs& a) {
         // Of shorter requests than those that the indexer sees: ids past the bound would follow.
         s.short_lens = {129, 600, 70, 263};
         a.attend.batch.seq_lens = ConstTensor::dense(s.short_lens.data(), DType::i32, {4});
         a.attend.batch.max_seq_len = 600;
       }},
  };
  const CheckedMemory on;
  for (const Fault& fault : faults) {
    SCOPED_TRACE(fault.text);
    WrittenStep step(mixed());
    LayerStepArgs args = step.args();
    fault.make(step, args);
    const auto before = step.state();
    try {
      layer_step(args);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find(fault.text), std::string::npos) << error.what();
    }
    EXPECT_EQ(step.state(), before);
  }
}

}  // namespace
}  // namespace msa::serving_test
