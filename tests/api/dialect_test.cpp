// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "api/dispatch.h"
#include "error_of.h"
#include "msa/attend.h"

namespace msa {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// A caller that calls everything `<…>`.
class Bracketed final : public Dialect {
 public:
  std::string argument(std::string_view name) const override { return cat("<", name, ">"); }
  std::string type(DType type) const override { return cat("type ", static_cast<int>(type)); }
  std::string_view typing() const override { return "name it"; }
};

AttendArgs attend_of(DType q, DType cache) {
  static std::array<char, 1 << 17> memory{};
  AttendArgs args;
  args.q = ConstTensor::dense(memory.data(), q, {1, 1, 128});
  args.kv_cache = ConstTensor::dense(memory.data(), cache, {1, 1, 128, 256});
  args.selection = ConstTensor::dense(memory.data(), DType::i32, {1, 1, 0});
  args.out = Tensor::dense(memory.data(), DType::f16, {1, 1, 128});
  args.batch.num_actual_tokens = 1;
  return args;
}

TEST(Dialect, NamesArgumentsAndTypesWhileItLives) {
  const AttendArgs args = attend_of(static_cast<DType>(-7), DType::u8);
  {
    const Bracketed dialect;
    const std::string text = error_of([&] { attend(args); });
    EXPECT_THAT(text, HasSubstr("'<q>' has dtype type -7; allowed: bf16, f16"));
    EXPECT_THAT(text, HasSubstr("'<kv_cache>' has dtype type 7"));
    EXPECT_THAT(text, HasSubstr("; name it"));
    EXPECT_THAT(text, HasSubstr("'<selection.topk>' is 0"));
    EXPECT_THAT(text, HasSubstr("'<out>' shares memory with '<kv_cache>'"));
  }
  const std::string text = error_of([&] { attend(args); });
  EXPECT_THAT(text, HasSubstr("'kv_cache' has dtype u8"));
  EXPECT_THAT(text, HasSubstr("as(DType)"));
  EXPECT_THAT(text, Not(HasSubstr("<")));
}

TEST(Dialect, TheLaterOfTwoSpeaks) {
  const Bracketed outer;
  {
    class Plain final : public Dialect {
     public:
      std::string argument(std::string_view name) const override { return std::string(name); }
      std::string type(DType type) const override { return name(type); }
      std::string_view typing() const override { return ""; }
    };
    const Plain inner;
    EXPECT_EQ(Checker("op").shown("q"), "q");
  }
  EXPECT_EQ(Checker("op").shown("q"), "<q>");
}

/// Gives what it is asked for, or less.
class Source final : public WorkspaceSource {
 public:
  explicit Source(std::size_t most) : most_(most) {}
  Workspace find(std::size_t bytes) override {
    ++calls;
    memory_.resize(std::min(bytes, most_));
    return {memory_.data(), memory_.size()};
  }
  int calls = 0;

 private:
  std::size_t most_;
  std::vector<char> memory_;
};

TEST(WorkspaceSource, IsNotAskedByAWrongCall) {
  AttendArgs args = attend_of(DType::f16, DType::u8);
  Source plenty(std::size_t{1} << 30);
  error_of([&] { attend(args, plenty); });
  EXPECT_EQ(plenty.calls, 0);
}

TEST(WorkspaceSource, IsAskedOnceAndMayHaveTooLittle) {
  static std::array<char, 1 << 16> memory{};
  IndexArgs args;
  args.index_q = ConstTensor::dense(memory.data(), DType::f16, {1, 1, 128});
  args.index_cache = ConstTensor::dense(memory.data() + 4096, DType::bf16, {1, 128, 128});
  args.selection = Tensor::dense(memory.data() + 49152, DType::i32, {1, 1, 4});
  static constexpr std::int32_t length = 128;
  static constexpr std::array<std::int32_t, 8192> pages{};
  args.batch.seq_lens = ConstTensor::dense(&length, DType::i32, {1});
  args.batch.block_table = ConstTensor::dense(pages.data(), DType::i32, {1, 8192});
  args.batch.num_decodes = args.batch.num_actual_tokens = args.batch.decode_query_len = 1;
  args.batch.max_query_len = 1;
  args.batch.max_seq_len = 8192 * 128;
  const std::size_t needed = workspace_size(args);
  ASSERT_GT(needed, 0);
  Source plenty(needed);
  index_blocks(args, plenty);
  EXPECT_EQ(plenty.calls, 1);
  Source little(needed - 1);
  EXPECT_THAT(error_of([&] { index_blocks(args, little); }, ErrorCode::workspace),
              HasSubstr("'workspace' has"));
}

}  // namespace
}  // namespace msa
