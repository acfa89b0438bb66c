// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "api/host_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "api/batch.h"
#include "api/dispatch.h"
#include "calls.h"
#include "error_of.h"
#include "scoped_env.h"

/// \file
/// MSA_CHECK=1 for tensors of a device: through a backend that stands for one here, and without any
/// backend that could serve the call. tests/gpu has the rest.

namespace msa {
namespace {

using ::testing::HasSubstr;

constexpr Device gpu{DeviceType::cuda, 0};

/// Stands for a backend whose memory only it can read: tensors point far past their contents, so
/// that a look at them from the host is a fault.
class FarBackend final : public Backend {
 public:
  const char* name() const override { return "far"; }
  Reasons unavailable() const override { return {}; }
  Reasons supports(const AttendArgs&) const override { return {}; }
  Reasons supports(const IndexArgs&) const override { return {}; }
  Reasons supports(const IndexScoresArgs&) const override { return {}; }
  Reasons supports(const SelectArgs&) const override { return {}; }
  Reasons supports(const MergeArgs&) const override { return {}; }
  Reasons supports(const WriteCacheArgs&) const override { return {}; }
  Reasons supports(const InsertCacheArgs&) const override { return {}; }
  Reasons supports(const CopyPagesArgs&) const override { return {}; }
  std::size_t workspace_size(const AttendArgs&) const override { return 0; }
  std::size_t workspace_size(const IndexArgs&) const override { return 0; }
  std::size_t workspace_size(const IndexScoresArgs&) const override { return 0; }
  std::size_t workspace_size(const SelectArgs&) const override { return 0; }
  void run(const AttendArgs&) const override {}
  void run(const IndexArgs&) const override {}
  void run(const IndexScoresArgs&) const override {}
  void run(const SelectArgs&) const override {}
  void run(const MergeArgs&) const override {}
  void run(const WriteCacheArgs&) const override {}
  void run(const InsertCacheArgs&) const override {}
  void run(const CopyPagesArgs&) const override {}

  bool capturing(const char*, Device, Stream) const override { return captures; }
  void download(const char* op, Device device, Stream stream, void* to, const void* from,
                std::size_t bytes) const override {
    EXPECT_STREQ(op, "attend");
    EXPECT_EQ(device, gpu);
    EXPECT_EQ(stream.handle, &captures);
    read.push_back(bytes);
    std::memcpy(to, static_cast<const char*>(from) - distance, bytes);
  }

  static constexpr std::ptrdiff_t distance = std::ptrdiff_t{1} << 40;
  bool captures = false;
  mutable std::vector<std::size_t> read;
};

/// `host` as the far backend's.
ConstTensor far(ConstTensor host) {
  host.data = host.ptr<char>() + FarBackend::distance;
  host.device = gpu;
  return host;
}

class FarReader : public ::testing::Test {
 protected:
  FarBackend backend_;
  HostReader reader_{"attend", Stream{&backend_.captures},
                     [this]() -> const Backend& { return backend_; }};
};

TEST_F(FarReader, CopiesWhatIsThereAndKeepsStrides) {
  std::vector<std::int32_t> values(40);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int32_t>(i);
  ASSERT_TRUE(reader_.reads(gpu));
  const ConstTensor rows = reader_.read(far({values.data(), DType::i32, {9, 3}, {4, 1}}), 2);
  EXPECT_EQ(rows.device, Device{});
  EXPECT_EQ(rows.ptr<std::int32_t>()[rows.stride[0] + 2], 6);
  // Head-major lists seen token-major: the strides fall back.
  const ConstTensor lists =
      reader_.read(far({values.data(), DType::i32, {4, 2, 5}, {5, 20, 1}}), 3);
  EXPECT_EQ(lists.ptr<std::int32_t>()[2 * lists.stride[0] + lists.stride[1] + 4], 34);
  EXPECT_EQ(backend_.read, (std::vector<std::size_t>{7 * 4, 35 * 4}));
  const ConstTensor none = far({values.data(), DType::i32, {4, 0}, {1, 1}});
  EXPECT_EQ(reader_.read(none, 4).data, none.data);
  EXPECT_EQ(reader_.read(far({values.data(), DType::i32, {4}, {1}}), 0).numel(), 4);
  EXPECT_EQ(backend_.read.size(), 2U);
}

TEST_F(FarReader, HostMemoryIsReadInPlace) {
  const std::int32_t value = 7;
  const ConstTensor host = ConstTensor::dense(&value, DType::i32, {1});
  EXPECT_TRUE(reader_.reads({}));
  EXPECT_TRUE(reader_.reads({DeviceType::cuda_host, 0}));
  EXPECT_EQ(reader_.read(host, 1).data, &value);
  backend_.captures = true;
  EXPECT_TRUE(reader_.reads({}));
  EXPECT_FALSE(reader_.reads(gpu));
  EXPECT_TRUE(backend_.read.empty());
}

TEST_F(FarReader, ABatchIsCheckedAsOneOnTheHost) {
  testing::AttendCall call;
  BatchMetadata batch = call.args.batch;
  auto* table = static_cast<std::int32_t*>(const_cast<void*>(batch.block_table.data));
  table[1] = 77;
  for (ConstTensor* t :
       {&batch.seq_lens, &batch.block_table, &batch.cu_seqlens_q, &batch.context_lens}) {
    *t = far(*t);
  }
  Checker check("attend");
  const BatchMetadata host = reader_.read(batch);
  check_batch_memory(check, host);
  check_visible_cells(check, host, 4);
  ASSERT_EQ(check.count(), 1U);
  try {
    check.raise();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("'block_table' holds page 77 in column 1 of request 0"));
  }
}

TEST_F(FarReader, AFactorIsReadWhereItLies) {
  const std::vector<float> factors = {0.5f, -1};
  Checker check("attend");
  check_factor(check, reader_, "k_scale",
               Scale(far(ConstTensor::dense(factors.data(), DType::f32, {}))));
  check_factor(check, reader_, "k_scale",
               Scale(far(ConstTensor::dense(factors.data(), DType::f32, {1}))));
  EXPECT_EQ(check.count(), 0U);
  check_factor(check, reader_, "v_scale",
               Scale(far(ConstTensor::dense(&factors[1], DType::f32, {1}))));
  ASSERT_EQ(check.count(), 1U);
  EXPECT_THAT(check.failures().front(), HasSubstr("argument 'v_scale' is -1; allowed: one finite"));
  EXPECT_EQ(backend_.read, (std::vector<std::size_t>{4, 4, 4}));
  backend_.captures = true;
  check_factor(check, reader_, "v_scale",
               Scale(far(ConstTensor::dense(&factors[1], DType::f32, {1}))));
  EXPECT_EQ(check.count(), 1U);
}

TEST(MsaCheck, WithoutABackendForTheDeviceNothingIsRead) {
  testing::AttendCall call;
  AttendArgs& a = call.args;
  for (ConstTensor* t : {&a.q, &a.kv_cache.packed, &a.selection, &a.batch.seq_lens,
                         &a.batch.block_table, &a.batch.cu_seqlens_q, &a.batch.context_lens}) {
    *t = far(*t);
  }
  for (Tensor* t : {&a.out, &a.lse}) {
    t->data = t->ptr<char>() + FarBackend::distance;
    t->device = gpu;
  }
  const ScopedEnv check("MSA_CHECK", "1"), backend("MSA_BACKEND", "cpu");
  EXPECT_THAT(error_of([&] { attend(a); }, ErrorCode::unsupported),
              HasSubstr("attend: backend cpu cannot serve the call: "));
}

}  // namespace
}  // namespace msa
