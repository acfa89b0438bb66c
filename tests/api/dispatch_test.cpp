// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "calls.h"

namespace msa {
namespace {

using ::testing::HasSubstr;

/// Sets an environment variable for the length of a test.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~ScopedEnv() { unsetenv(name_); }
  ScopedEnv(const ScopedEnv&) = delete;
  ScopedEnv& operator=(const ScopedEnv&) = delete;

 private:
  const char* name_;
};

template <class Body>
std::string error_of(Body body, ErrorCode code) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

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
  EXPECT_THAT(error_of([&] { attend(call.args); }, ErrorCode::unsupported),
              HasSubstr("MSA_BACKEND is 'abacus'; allowed in this build: "));
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

TEST(Dispatch, AShortWorkspaceIsRefusedWithBothSizes) {
  testing::IndexCall call;
  call.args.workspace = {};
  const std::size_t needed = workspace_size(call.args);
  if (needed == 0) GTEST_SKIP() << "this shape needs no workspace";
  EXPECT_THAT(error_of([&] { index_blocks(call.args); }, ErrorCode::workspace),
              HasSubstr("'workspace' has 0 bytes at "));
}

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
    // K and V of one row are different memory.
    a.src = cache.narrow(3, 0, 128);
    a.dst = cache.narrow(3, 128, 128);
    EXPECT_NO_THROW(copy_pages(a));
  }
}

}  // namespace
}  // namespace msa
