// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <pmmintrin.h>
#include <xmmintrin.h>
#endif

#include "calls.h"
#include "error_of.h"
#include "scoped_env.h"

namespace msa {
namespace {

using ::testing::HasSubstr;

TEST(Dispatch, RemembersAndLogsTheBackend) {
  struct Log {
    std::vector<std::string> lines;
  } log;
  set_log_callback(
      [](void* context, const char* op, const char* backend) {
        static_cast<Log*>(context)->lines.push_back(std::string(op) + " " + backend);
      },
      &log);
  testing::AttendCall call;
  attend(call.args);
  testing::IndexCall index;
  index_blocks(index.args);
  set_log_callback(nullptr, nullptr);
  EXPECT_STREQ(last_backend(), "cpu");
  EXPECT_THAT(log.lines, ::testing::ElementsAre("attend cpu", "index_blocks cpu"));
}

TEST(Dispatch, BackendsListTheCpuAsAvailable) {
  const std::vector<BackendInfo> all = backends();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.back().name, "cpu");
  EXPECT_TRUE(all.back().reasons.empty());
}

TEST(Dispatch, MsaBackendForcesOneByName) {
  testing::AttendCall call;
  {
    const ScopedEnv env("MSA_BACKEND", "cpu");
    EXPECT_NO_THROW(attend(call.args));
  }
  const ScopedEnv env("MSA_BACKEND", "abacus");
  EXPECT_THAT(error_of([&] { attend(call.args); }, ErrorCode::invalid_argument),
              HasSubstr("MSA_BACKEND is 'abacus'; allowed in this build: "));
}

TEST(Dispatch, MsaCheckIsOnOrOffAndNothingElse) {
  testing::MergeCall merge;  // nothing of it is ever read for a check
  for (const char* value : {"", "0", "1"}) {
    const ScopedEnv env("MSA_CHECK", value);
    EXPECT_NO_THROW(merge_states(merge.args)) << value;
  }
  for (const char* value : {"7", "on", "true", "01", " 1"}) {
    const ScopedEnv env("MSA_CHECK", value);
    const std::string text = "MSA_CHECK is '" + std::string(value) + "'; allowed: 0, 1";
    EXPECT_THAT(error_of([&] { merge_states(merge.args); }, ErrorCode::invalid_argument),
                HasSubstr(text));
    testing::LayerStepCall step;
    const auto before = step.memory->contents();
    const std::string of_step =
        error_of([&] { layer_step(step.args); }, ErrorCode::invalid_argument);
    EXPECT_THAT(of_step, HasSubstr(text));
    EXPECT_EQ(of_step.find(text), of_step.rfind(text)) << "once for all of its operators";
    EXPECT_EQ(step.memory->contents(), before);
  }
}

/// Ends the process: 0 where every operator refuses its call, or its size query, for all of
/// `parts`, said once, with its memory untouched.
[[noreturn]] void exit_unless_all_refuse(const std::vector<std::string>& parts) {
  int wrong = 0;
  for (const auto& make : testing::call_makers()) {
    testing::Call call;
    std::deque<std::vector<std::byte>> before;
    std::string text;
    try {
      call = make();  // asks for the workspace's size where there is one
      before = call.memory->contents();
      call.run();
    } catch (const Error& error) {
      if (error.code() == ErrorCode::invalid_argument) text = error.what();
    }
    const bool refused = std::all_of(parts.begin(), parts.end(), [&](const std::string& part) {
      const std::size_t at = text.find(part);
      return at != std::string::npos && text.find(part, at + 1) == std::string::npos;
    });
    if (refused && (before.empty() || call.memory->contents() == before)) continue;
    ++wrong;
    std::fprintf(stderr, "%s: '%s'\n", call.op.c_str(), text.c_str());
  }
  std::_Exit(wrong);
}

// Read once a process, so each is tried in a process of its own.
TEST(DispatchDeathTest, AWrongSwitchOfTheCpuIsAnErrorOfEveryCall) {
#if defined(MSA_TEST_EMULATED)
  GTEST_SKIP() << "an emulated program cannot execute itself again";
#endif
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string threads = "MSA_THREADS is 'abc'", isa = "MSA_CPU_ISA is 'mmx'";
  {
    const ScopedEnv env("MSA_THREADS", "abc");
    EXPECT_EXIT(exit_unless_all_refuse({threads}), ::testing::ExitedWithCode(0), "");
  }
  const ScopedEnv env("MSA_CPU_ISA", "mmx");
  EXPECT_EXIT(exit_unless_all_refuse({isa}), ::testing::ExitedWithCode(0), "");
  const ScopedEnv both("MSA_THREADS", "abc");
  EXPECT_EXIT(exit_unless_all_refuse({threads, isa}), ::testing::ExitedWithCode(0), "");
}

TEST(Dispatch, NoBackendForTheDeviceIsAnErrorWithReasons) {
  testing::IndexCall call;
  const Device gpu{DeviceType::cuda, 0};
  IndexArgs& a = call.args;
  for (ConstTensor* t : {&a.index_q, &a.index_cache, &a.batch.seq_lens, &a.batch.block_table,
                         &a.batch.cu_seqlens_q, &a.batch.context_lens}) {
    t->device = gpu;
  }
  a.selection.device = gpu;
  EXPECT_THAT(error_of([&] { index_blocks(a); }, ErrorCode::unsupported),
              HasSubstr("index_blocks: backend cpu cannot serve the call: "));
}

/// Runs a call with workspaces that are missing or a byte too short; each must be refused with the
/// size that it has and the size that it needs, before anything is written.
template <class Args, class Run>
void expect_short_workspaces_refused(const testing::Memory& memory, const Args& args,
                                     Workspace& workspace, const std::string& op, Run run) {
  SCOPED_TRACE(op);
  const std::size_t needed = workspace_size(args);
  ASSERT_GT(needed, 1U);
  std::vector<char> enough(needed);
  const Workspace wrong[] = {
      {}, {nullptr, needed}, {enough.data(), 0}, {enough.data(), 1}, {enough.data(), needed - 1}};
  const auto before = memory.contents();
  for (const Workspace& given : wrong) {
    workspace = given;
    const std::string text = error_of([&] { run(args); }, ErrorCode::workspace);
    EXPECT_THAT(text, ::testing::StartsWith(op + ": argument 'workspace' has " +
                                            std::to_string(given.bytes) + " bytes at "));
    EXPECT_THAT(text,
                HasSubstr("; allowed: at least workspace_size(args) = " + std::to_string(needed)));
    EXPECT_EQ(memory.contents(), before);
  }
  workspace = {enough.data(), needed};
  EXPECT_NO_THROW(run(args));
  EXPECT_NE(memory.contents(), before);
}

/// Long enough for the indexer to split a row's blocks.
constexpr std::int64_t split_seq_len = 4096;
/// Wide enough for attend to split a decode row's blocks.
constexpr std::int64_t split_topk = 64;

TEST(Dispatch, AShortWorkspaceIsRefusedWithBothSizes) {
  testing::AttendCall call;
  call.args.selection = call.memory->dense(DType::i32, {4, 2, split_topk});
  std::memset(call.args.lse.data, 0xff, sizeof(float));  // what the call is seen to write
  expect_short_workspaces_refused(*call.memory, call.args, call.args.workspace, "attend",
                                  [](const AttendArgs& args) { attend(args); });
  testing::IndexCall index;
  index.args.batch.max_seq_len = split_seq_len;
  expect_short_workspaces_refused(*index.memory, index.args, index.args.workspace, "index_blocks",
                                  [](const IndexArgs& args) { index_blocks(args); });
}

// index_blocks and attend share the workspace; each says what it needs itself.
TEST(Dispatch, AShortWorkspaceOfALayerStepIsRefusedBeforeTheCacheIsWritten) {
  testing::LayerStepCall by_index;
  std::memset(by_index.args.attend.lse.data, 0xff, sizeof(float));
  by_index.args.index.batch.max_seq_len = split_seq_len;
  expect_short_workspaces_refused(*by_index.memory, by_index.args, by_index.args.index.workspace,
                                  "index_blocks",
                                  [](const LayerStepArgs& args) { layer_step(args); });
  testing::LayerStepCall by_attend;
  by_attend.args.index.selection = by_attend.memory->dense(DType::i32, {4, 2, split_topk});
  expect_short_workspaces_refused(*by_attend.memory, by_attend.args, by_attend.args.index.workspace,
                                  "attend", [](const LayerStepArgs& args) { layer_step(args); });
}

// On the CPU these keep nothing between their passes.
TEST(Dispatch, WhereNothingIsNeededNoWorkspaceIsEnough) {
  testing::ScoresCall scores;
  EXPECT_EQ(workspace_size(scores.args), 0U);
  scores.args.workspace = {};
  EXPECT_NO_THROW(index_scores(scores.args));
  testing::SelectCall select;
  EXPECT_EQ(workspace_size(select.args), 0U);
  select.args.workspace = {};
  EXPECT_NO_THROW(select_blocks(select.args));
}

/// bf16 numbers from 1 to 2 that differ from row to row.
void fill_varied(const ConstTensor& view) {
  auto* const bits = static_cast<std::uint16_t*>(const_cast<void*>(view.data));
  for (std::int64_t i = 0; i < view.numel(); ++i) {
    bits[i] = static_cast<std::uint16_t>(0x3f80 + (i * 37 + i / 128) % 128);
  }
}

// Below the smallest chunk the CPU works without a workspace: no cap is wrong, and none shows.
TEST(Dispatch, EveryWorkspaceCapIsServedWithTheSameBits) {
  const std::size_t caps[] = {default_workspace_cap, 0, 1, 4096, SIZE_MAX};
  std::vector<std::deque<std::vector<std::byte>>> results;
  for (const std::size_t cap : caps) {
    testing::AttendCall call;
    call.args.selection = call.memory->dense(DType::i32, {4, 2, split_topk});
    call.args.workspace_cap = cap;
    fill_varied(call.args.q);
    fill_varied(call.args.kv_cache.packed);
    testing::IndexCall index;
    fill_varied(index.args.index_q);
    fill_varied(index.args.index_cache);
    index.args.batch.max_seq_len = split_seq_len;
    index.args.workspace_cap = cap;
    const std::size_t sizes[] = {workspace_size(call.args), workspace_size(index.args)};
    std::vector<char> memory(std::max(sizes[0], sizes[1]));
    for (const std::size_t size : sizes) EXPECT_LE(size, cap);
    call.args.workspace = {memory.data(), sizes[0]};
    index.args.workspace = {memory.data(), sizes[1]};
    attend(call.args);
    index_blocks(index.args);
    results.push_back(call.memory->contents());
    for (const auto& block : index.memory->contents()) results.back().push_back(block);
    EXPECT_EQ(results.back(), results.front()) << cap;
  }
}

#if defined(__x86_64__)
/// Denormal operands and results count as 0 on this thread while it lives.
class FlushedDenormals {
 public:
  FlushedDenormals() : saved_(_mm_getcsr()) {
    _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
    _MM_SET_DENORMALS_ZERO_MODE(_MM_DENORMALS_ZERO_ON);
  }
  FlushedDenormals(const FlushedDenormals&) = delete;
  FlushedDenormals& operator=(const FlushedDenormals&) = delete;
  ~FlushedDenormals() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
};

// Scales are folded before any task runs, on the caller's thread.
TEST(Dispatch, ResultsDoNotDependOnTheCallersFloatEnvironment) {
  const auto result = [](float softmax_scale, float k_scale) {
    testing::AttendCall call;
    fill_varied(call.args.q);
    fill_varied(call.args.kv_cache.packed);
    call.args.softmax_scale = softmax_scale;
    call.args.k_scale = k_scale;
    attend(call.args);
    return call.memory->contents();
  };
  for (const auto& [softmax_scale, k_scale] :
       {std::pair(1e-40f, 1e38f), std::pair(1e38f, 1e-40f)}) {
    const auto expected = result(softmax_scale, k_scale);
    const FlushedDenormals flushed;
    const unsigned before = _mm_getcsr();
    EXPECT_EQ(result(softmax_scale, k_scale), expected) << softmax_scale;
    EXPECT_EQ(_mm_getcsr(), before);
  }
}
#endif

TEST(MsaCheck, ReportsMetadataThatTheOperatorsSurvive) {
  testing::AttendCall call;
  auto* seq_lens = static_cast<std::int32_t*>(const_cast<void*>(call.args.batch.seq_lens.data));
  auto* table = static_cast<std::int32_t*>(const_cast<void*>(call.args.batch.block_table.data));
  auto* ids = static_cast<std::int32_t*>(const_cast<void*>(call.args.selection.data));
  table[0] = 99;
  ids[1] = 2143289344;
  seq_lens[1] = 1000;
  EXPECT_NO_THROW(attend(call.args));
  const ScopedEnv env("MSA_CHECK", "1");
  const std::string text = error_of([&] { attend(call.args); }, ErrorCode::invalid_argument);
  EXPECT_THAT(text, HasSubstr("'block_table' holds page 99 in column 0 of request 0"));
  EXPECT_THAT(text, HasSubstr("'selection' holds block 2143289344 at [0, 0, 1]"));
  EXPECT_THAT(text,
              HasSubstr("'seq_lens' holds 1000 for request 1; allowed: 0 to max_seq_len = 130"));
  EXPECT_THAT(text, HasSubstr("'context_lens' holds 126 for prefill request 0"));
}

std::int32_t* values(const ConstTensor& view) {
  return static_cast<std::int32_t*>(const_cast<void*>(view.data));
}

// Pages of blocks that no row selects may be gone.
TEST(MsaCheck, AttendNeedsThePagesOfVisibleSelectedBlocksAlone) {
  const ScopedEnv env("MSA_CHECK", "1");
  testing::AttendCall
      call;  // rows of requests 0, 1, 1, 1, the first of which see 2, 1, 1, 2 blocks
  std::int32_t* const table = values(call.args.batch.block_table);
  std::int32_t* const ids = values(call.args.selection);
  const std::int64_t row = call.args.selection.shape[1] * call.args.selection.shape[2];
  const auto text = [&] { return error_of([&] { attend(call.args); }); };
  std::fill_n(ids, 4 * row, -1);
  table[0] = table[2] = -1;
  table[1] = table[3] = 4096;
  EXPECT_NO_THROW(attend(call.args));
  ids[3] = 1;            // of row 0
  ids[row] = 1;          // not visible to row 1
  ids[3 * row + 1] = 1;  // of row 3
  ids[3 * row + 2] = 1;
  EXPECT_THAT(text(), HasSubstr("'block_table' holds page 4096 in column 1 of request 0"));
  EXPECT_THAT(text(), HasSubstr("'block_table' holds page 4096 in column 1 of request 1"));
  EXPECT_THAT(text(), ::testing::Not(HasSubstr("column 0")));
  // Without the mask row 1 sees the block as well; a narrow table has no such column.
  ids[3 * row + 1] = ids[3 * row + 2] = -1;
  EXPECT_THAT(text(), ::testing::Not(HasSubstr("of request 1")));
  call.args.causal = false;
  EXPECT_THAT(text(), HasSubstr("in column 1 of request 1"));
  call.args.batch.block_table = call.args.batch.block_table.narrow(1, 0, 1);
  EXPECT_THAT(text(), HasSubstr("'block_table' has 1 columns, but request 0 of 130 keys needs "
                                "column 1"));
  std::fill_n(ids, 4 * row, -1);
  EXPECT_NO_THROW(attend(call.args));
  // Of two shards the second holds block 1 in column 0.
  call.args.kv_shard = {1, 2};
  ids[0] = 0;
  EXPECT_NO_THROW(attend(call.args));
  ids[0] = 1;
  EXPECT_THAT(text(), HasSubstr("'block_table' holds page -1 in column 0 of request 0"));
}

TEST(MsaCheck, TheIndexerNeedsThePagesOfAllVisibleBlocks) {
  const ScopedEnv env("MSA_CHECK", "1");
  testing::IndexCall call;
  EXPECT_NO_THROW(index_blocks(call.args));
  values(call.args.batch.block_table)[3] = -1;
  EXPECT_THAT(error_of([&] { index_blocks(call.args); }),
              HasSubstr("'block_table' holds page -1 in column 1 of request 1"));
}

TEST(MsaCheck, FactorsInMemoryAreWhatNumbersMustBe) {
  const ScopedEnv env("MSA_CHECK", "1");
  for (const auto& make : testing::call_makers()) {
    for (std::size_t i = 0; i < make().scales.size(); ++i) {
      for (const auto& [factor, text] :
           {std::pair(std::nanf(""), "nan"), std::pair(-1.0f, "-1"), std::pair(0.0f, "0"),
            std::pair(std::numeric_limits<float>::infinity(), "inf"), std::pair(2.0f, "")}) {
        const testing::Call call = make();
        const Tensor one = call.memory->dense(DType::f32, {1});
        *one.ptr<float>() = factor;
        *call.scales[i].scale = Scale(ConstTensor(one));
        SCOPED_TRACE(call.op + " " + call.scales[i].name + " " + std::to_string(factor));
        if (factor == 2.0f) {
          EXPECT_NO_THROW(call.run());
          continue;
        }
        EXPECT_THAT(error_of(call.run), HasSubstr("argument '" + call.scales[i].name + "' is " +
                                                  text + "; allowed: one finite positive factor"));
      }
    }
  }
}

TEST(MsaCheck, ReportsBoundsThatAreTooSmall) {
  const ScopedEnv env("MSA_CHECK", "1");
  const auto text_of = [](std::int64_t max_query_len, std::int64_t max_seq_len) {
    testing::AttendCall call;  // a decode request of one token, a prefill request of three
    call.args.batch.max_query_len = max_query_len;
    call.args.batch.max_seq_len = max_seq_len;
    return error_of([&] { attend(call.args); }, ErrorCode::invalid_argument);
  };
  EXPECT_THAT(text_of(0, 130),
              HasSubstr("'max_query_len' is 0; allowed: at least decode_query_len = 1"));
  EXPECT_THAT(text_of(2, 130), HasSubstr("'cu_seqlens_q' gives prefill request 0 3 tokens; "
                                         "allowed: 0 to max_query_len = 2"));
  EXPECT_THAT(text_of(3, 129), HasSubstr("allowed: 0 to max_seq_len = 129"));
  // Without decode requests their length bounds nothing.
  testing::AttendCall prefills;
  BatchMetadata& batch = prefills.args.batch;
  batch.num_decodes = 0;
  batch.decode_query_len = 9;
  batch.num_actual_tokens = 3;
  batch.seq_lens = batch.seq_lens.narrow(0, 1, 1);
  batch.block_table = batch.block_table.narrow(0, 1, 1);
  EXPECT_NO_THROW(attend(prefills.args));
}

TEST(MsaCheck, ReportsSlotsPositionsAndPages) {
  const ScopedEnv env("MSA_CHECK", "1");
  testing::WriteCall write;
  EXPECT_NO_THROW(write_cache(write.args));
  auto* slots = static_cast<std::int64_t*>(const_cast<void*>(write.args.slot_mapping.data));
  auto* positions = static_cast<std::int64_t*>(const_cast<void*>(write.args.positions.data));
  slots[1] = 512;
  positions[2] = 8;
  const std::string text = error_of([&] { write_cache(write.args); }, ErrorCode::invalid_argument);
  EXPECT_THAT(text, HasSubstr("'slot_mapping' holds slot 512 for token 1"));
  EXPECT_THAT(text, HasSubstr("'positions' holds 8 for token 2"));
  slots[1] = slots[0];
  EXPECT_THAT(error_of([&] { write_cache(write.args); }, ErrorCode::invalid_argument),
              HasSubstr("'slot_mapping' names slot 0 twice"));
}

TEST(MsaCheck, ReportsAPageThatIsSourceAndDestinationUnderAnyView) {
  const ScopedEnv env("MSA_CHECK", "1");
  testing::Memory memory;
  const KVCacheShape shape{.layers = 1, .pages = 8, .heads = 2};
  for (const KVLayout layout : {KVLayout::LBHNC, KVLayout::LBNHC, KVLayout::LHBNC}) {
    SCOPED_TRACE(name(layout));
    const Tensor cache = kv_layer_view(memory.dense(DType::bf16, {shape.numel()}).data, DType::bf16,
                                       layout, shape, 0);
    CopyPagesArgs a;
    a.pairs = memory.i64({0, 1, 1, 3}, {2, 2});
    a.src = cache.narrow(0, 0, 4);
    a.dst = cache.narrow(0, 4, 4);
    EXPECT_NO_THROW(copy_pages(a));
    const auto refused = [&](const char* text) {
      EXPECT_THAT(error_of([&] { copy_pages(a); }, ErrorCode::invalid_argument), HasSubstr(text));
    };
    a.dst = cache.narrow(0, 0, 4);
    refused("'pairs' names source page 1 and destination page 1, which share memory");
    a.src = cache.narrow(0, 3, 4);  // its page 0 is page 3 of dst
    refused("'pairs' names source page 0 and destination page 3, which share memory");
    a.src = cache.narrow(0, 2, 4);  // its page 1 is page 3 of dst
    refused("'pairs' names source page 1 and destination page 3, which share memory");
    a.src = cache.narrow(0, 4, 4);
    EXPECT_NO_THROW(copy_pages(a));
    // Pages that no pair names may be shared.
    a.src = cache.narrow(0, 1, 4);
    a.pairs = memory.i64({1, 1}, {1, 2});
    EXPECT_NO_THROW(copy_pages(a));
    // Few pages far apart.
    a.src = a.dst = cache;
    a.pairs = memory.i64({0, 2, 7, 5}, {2, 2});
    EXPECT_NO_THROW(copy_pages(a));
    a.pairs = memory.i64({0, 2, 7, 7}, {2, 2});
    refused("'pairs' names source page 7 and destination page 7, which share memory");
    // Every other page of the cache.
    a.src.shape[0] = 4;
    a.src.stride[0] *= 2;
    a.pairs = memory.i64({1, 3, 2, 1}, {2, 2});
    EXPECT_NO_THROW(copy_pages(a));
    a.pairs = memory.i64({1, 3, 2, 4}, {2, 2});
    refused("'pairs' names source page 2 and destination page 4, which share memory");
    // K and V of one row are different memory.
    a.pairs = memory.i64({1, 1}, {1, 2});
    a.src = cache.narrow(3, 0, 128);
    a.dst = cache.narrow(3, 128, 128);
    EXPECT_NO_THROW(copy_pages(a));
  }
}

// Comparing every source with every destination took a minute and more of this.
TEST(MsaCheck, ManyMovesInsideOneCacheAreCheckedInNoTime) {
  const ScopedEnv env("MSA_CHECK", "1");
  constexpr std::int64_t moves = 20000;
  // Refused for its last move, the call touches no page: the cache needs no memory.
  void* const nowhere = reinterpret_cast<void*>(std::uintptr_t{1} << 40);
  CopyPagesArgs a;
  a.src = a.dst = Tensor::dense(nowhere, DType::bf16, {2 * moves, 128, 128});
  std::vector<std::int64_t> pairs;
  for (std::int64_t i = 0; i < moves; ++i) pairs.insert(pairs.end(), {i, moves + i});
  pairs[pairs.size() - 2] = 2 * moves - 1;
  testing::Memory memory;
  a.pairs = memory.i64(pairs, {moves, 2});
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(error_of([&] { copy_pages(a); }, ErrorCode::invalid_argument),
              HasSubstr("'pairs' names source page 39999 and destination page 39999, which share"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace msa
