// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "msa/error.h"
#include "msa/layer.h"
#include "reference/reference.h"

namespace msa {
namespace {

using Ints = std::vector<std::int32_t>;

/// A step whose arrays live as long as it does.
struct HostStep {
  Ints query_start_loc{0};
  Ints seq_lens;
  Ints block_table;
  std::vector<std::int64_t> slots;
  std::int64_t tokens = 0;
  std::int64_t max_seq_len = 0;

  HostStep(const Ints& lengths, const Ints& keys, std::int64_t padding = 0) : seq_lens(keys) {
    for (std::int32_t n : lengths) query_start_loc.push_back(query_start_loc.back() + n);
    block_table.assign(lengths.size() * 2, 0);
    tokens = query_start_loc.back() + padding;
    slots.assign(static_cast<std::size_t>(tokens), -1);
  }
  /// Keys that make every position of the step different: request r starts at 1000·(r + 1).
  explicit HostStep(const Ints& lengths, std::int64_t padding = 0)
      : HostStep(lengths, keys_of(lengths), padding) {}

  static Ints keys_of(const Ints& lengths) {
    Ints keys;
    for (std::int32_t n : lengths) {
      keys.push_back(n == 0 ? 0 : 1000 * static_cast<std::int32_t>(keys.size() + 1) + n);
    }
    return keys;
  }

  StepInputs inputs() {
    const auto requests = static_cast<std::int64_t>(seq_lens.size());
    StepInputs step;
    step.query_start_loc = query_start_loc;
    step.seq_lens_host = seq_lens;
    step.seq_lens = Tensor::dense(seq_lens.data(), DType::i32, {requests});
    step.block_table = Tensor::dense(block_table.data(), DType::i32, {requests, 2});
    step.slot_mapping = Tensor::dense(slots.data(), DType::i64, {tokens});
    step.num_actual_tokens = tokens;
    step.max_seq_len = max_seq_len;
    return step;
  }
};

Ints values(const ConstTensor& t) {
  if (!t.given()) return {};
  return {t.ptr<std::int32_t>(), t.ptr<std::int32_t>() + t.shape[0]};
}

SparseMetadata build(std::int64_t threshold, HostStep& step) {
  return MetadataBuilder(threshold).build(step.inputs());
}

// ---------------------------------------------------------------------------------------------------
// Against hand-written expectations.

struct Expectation {
  const char* name;
  std::int64_t threshold;
  Ints lengths;
  std::int64_t padding;  // T − query_start_loc[R]
  std::int64_t decodes;
  std::int64_t m;
  std::int64_t prefills;
  Ints cu_seqlens_q;  // without prefills: none
};

const Expectation expectations[] = {
    // Rule 1: threshold ≤ 1 and nothing longer.
    {"SingleTokens", 1, {1, 1, 1}, 0, 3, 1, 0, {}},
    {"SingleTokensPaddedToT", 1, {1, 1, 1}, 5, 3, 1, 0, {}},
    {"EmptyTailCountedByT", 1, {1, 1, 0, 0}, 2, 4, 1, 0, {}},
    {"EmptyTailNotCountedByT", 1, {1, 1, 0, 0}, 0, 2, 1, 0, {}},
    {"EmptyTailCountedInPart", 1, {1, 1, 0, 0, 0}, 2, 4, 1, 0, {}},
    {"EmptyInTheMiddle", 1, {1, 0, 1, 1}, 0, 1, 1, 3, {0, 0, 1, 2}},
    {"EmptyFirst", 1, {0, 1, 1}, 0, 0, 1, 3, {0, 0, 1, 2}},
    {"OnlyEmptyCounted", 1, {0, 0, 0}, 3, 3, 1, 0, {}},
    {"OnlyEmptyNotCounted", 1, {0, 0, 0}, 0, 0, 1, 0, {}},
    {"ThresholdZeroOnlyEmpty", 0, {0, 0}, 2, 2, 1, 0, {}},
    // Rule 2: the first request is longer than the threshold.
    {"FirstTooLong", 1, {2, 1, 1}, 0, 0, 1, 3, {0, 2, 3, 4}},
    {"FirstTooLongForDrafts", 4, {5, 4, 4}, 0, 0, 1, 3, {0, 5, 9, 13}},
    {"ThresholdZero", 0, {1, 1}, 0, 0, 1, 2, {0, 1, 2}},
    {"OnePrefill", 1, {300}, 0, 0, 1, 1, {0, 300}},
    // Rule 3: all as long as the first, or empty.
    {"Drafts", 4, {4, 4, 4}, 0, 3, 4, 0, {}},
    {"ShorterThanTheWindow", 4, {2, 2}, 0, 2, 2, 0, {}},
    {"DraftsWithEmptyTailCounted", 4, {3, 3, 0}, 3, 3, 3, 0, {}},
    {"DraftsWithEmptyTailHalfCounted", 4, {3, 3, 0}, 2, 2, 3, 0, {}},
    {"DraftsWithEmptyTailDropped", 4, {3, 3, 0, 0}, 0, 2, 3, 0, {}},
    {"DraftsWithEmptyInTheMiddle", 4, {3, 0, 3}, 0, 1, 3, 2, {0, 0, 3}},
    {"CapturedPaddingOnly", 4, {0, 0}, 8, 2, 4, 0, {}},
    {"CapturedPaddingOnlyUneven", 4, {0, 0}, 7, 2, 1, 0, {}},
    {"SixteenIsTheLargestWindow", 32, {16, 16}, 0, 2, 16, 0, {}},
    // Rule 4: the first other length starts the prefill part.
    {"DecodeThenPrefill", 1, {1, 1, 7, 300}, 0, 2, 1, 2, {0, 7, 307}},
    {"SingleTokenAfterAPrefill", 1, {1, 7, 1}, 0, 1, 1, 2, {0, 7, 8}},
    {"ShorterDraftStartsPrefill", 4, {4, 4, 3, 4}, 0, 2, 4, 2, {0, 3, 7}},
    {"LongerStartsPrefill", 4, {2, 2, 3}, 0, 2, 2, 1, {0, 3}},
    {"EmptyBetweenDecodeAndPrefill", 4, {2, 0, 5}, 0, 1, 2, 2, {0, 0, 5}},
    {"EmptyBetweenDecodeAndPrefillPadded", 4, {2, 0, 5}, 9, 1, 2, 2, {0, 0, 5}},
    {"EmptyInTheMiddleOfDecodes", 4, {2, 0, 2, 5}, 0, 1, 2, 3, {0, 0, 2, 7}},
    {"EmptyFirstThenPrefill", 4, {0, 5}, 0, 0, 1, 2, {0, 0, 5}},
    {"EmptyFirstThenDrafts", 4, {0, 3, 3}, 0, 0, 1, 3, {0, 0, 3, 6}},
    {"EmptyAfterAPrefill", 1, {1, 9, 0}, 0, 1, 1, 2, {0, 9, 9}},
    // Nothing at all.
    {"NoRequests", 1, {}, 0, 0, 1, 0, {}},
    {"NoRequestsButPadding", 4, {}, 8, 0, 1, 0, {}},
};

class SplitRule : public ::testing::TestWithParam<Expectation> {};
INSTANTIATE_TEST_SUITE_P(Table, SplitRule, ::testing::ValuesIn(expectations),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(SplitRule, GivesTheExpectedParts) {
  const Expectation& e = GetParam();
  HostStep step(e.lengths, e.padding);
  const SparseMetadata md = build(e.threshold, step);
  EXPECT_EQ(md.num_decodes, e.decodes);
  EXPECT_EQ(md.num_prefills, e.prefills);
  EXPECT_EQ(md.num_decode_tokens, e.decodes * e.m);
  EXPECT_EQ(md.num_actual_tokens, step.tokens);
  EXPECT_EQ(md.batch.num_decodes, e.decodes);
  EXPECT_EQ(md.batch.num_prefills, e.prefills);
  EXPECT_EQ(md.batch.decode_query_len, e.m);
  EXPECT_EQ(md.batch.num_actual_tokens, step.tokens);
  EXPECT_EQ(values(md.batch.cu_seqlens_q), e.cu_seqlens_q);
  Ints contexts;
  for (std::size_t r = static_cast<std::size_t>(e.decodes); e.prefills > 0 && r < e.lengths.size();
       ++r) {
    contexts.push_back(step.seq_lens[r] - e.lengths[r]);
  }
  EXPECT_EQ(values(md.batch.context_lens), contexts);
  EXPECT_EQ(md.slot_mapping.data, step.slots.data());
}

TEST_P(SplitRule, SlicesTheArraysOfTheRequestsThatRemain) {
  const Expectation& e = GetParam();
  HostStep step(e.lengths, e.padding);
  const SparseMetadata md = build(e.threshold, step);
  const std::int64_t requests = e.decodes + e.prefills;
  if (step.seq_lens.empty()) return;
  EXPECT_EQ(md.batch.seq_lens.shape[0], requests);
  EXPECT_EQ(md.batch.seq_lens.data, step.seq_lens.data());
  EXPECT_EQ(md.batch.block_table.shape[0], requests);
  EXPECT_EQ(md.batch.block_table.shape[1], 2);
  EXPECT_EQ(md.batch.block_table.data, step.block_table.data());
}

// ---------------------------------------------------------------------------------------------------
// Against a literal reading of the rule.

struct Parts {
  std::int64_t decodes = 0;
  std::int64_t m = 1;
  std::int64_t prefills = 0;

  bool operator==(const Parts&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Parts& p) {
  return out << "R_d " << p.decodes << ", m " << p.m << ", R_p " << p.prefills;
}

Parts literal_split(std::int64_t threshold, const Ints& lengths, std::int64_t tokens) {
  const std::size_t n = lengths.size();
  if (n == 0) return {};
  // How many requests the four rules put into the decode part.
  std::size_t decodes = n;
  const bool first =
      threshold <= 1 && *std::max_element(lengths.begin(), lengths.end()) <= threshold;
  if (!first && lengths[0] > threshold) {
    decodes = 0;
  } else if (!first) {
    for (std::size_t r = n; r-- > 0;) {
      if (lengths[r] != lengths[0] && lengths[r] != 0) decodes = r;
    }
  }
  // An empty request that anything but empty ones follow makes itself and the rest prefill.
  for (std::size_t r = decodes; r-- > 0;) {
    const bool followed =
        std::any_of(lengths.begin() + static_cast<std::ptrdiff_t>(r), lengths.end(),
                    [](std::int32_t length) { return length > 0; });
    if (lengths[r] == 0 && followed) decodes = r;
  }
  Parts parts;
  parts.prefills = static_cast<std::int64_t>(n - decodes);
  if (decodes == 0) return parts;
  const auto requests = static_cast<std::int64_t>(n);
  if (threshold > 1 && lengths[0] > 0) {
    parts.m = lengths[0];
  } else if (threshold > 1) {
    for (std::int64_t m = 1; m <= std::min<std::int64_t>(threshold, 16); ++m) {
      if (m * requests == tokens) parts.m = m;
    }
  }
  // Of the empty ones at the end, those whose padding rows T counts.
  std::int64_t rows = 0;
  for (std::size_t r = 0; r < decodes; ++r) {
    if (rows + parts.m > tokens) break;
    rows += parts.m;
    ++parts.decodes;
  }
  return parts;
}

struct RandomStep {
  std::int64_t threshold = 1;
  Ints lengths;
  std::int64_t padding = 0;
};
void showValue(const RandomStep& s, std::ostream& out) {
  out << "threshold " << s.threshold << ", padding " << s.padding << ", lengths";
  for (std::int32_t n : s.lengths) out << ' ' << n;
}

rc::Gen<RandomStep> any_step() {
  return rc::gen::exec([] {
    RandomStep s;
    s.threshold = *rc::gen::inRange<std::int64_t>(0, 9);
    const std::int32_t usual = *rc::gen::inRange<std::int32_t>(1, 9);
    const auto length =
        rc::gen::weightedOneOf<std::int32_t>({{6, rc::gen::just(usual)},
                                              {3, rc::gen::just(0)},
                                              {2, rc::gen::just(1)},
                                              {1, rc::gen::inRange<std::int32_t>(0, 20)}});
    s.lengths = *rc::gen::container<Ints>(length);
    s.padding = *rc::gen::inRange<std::int64_t>(0, 40);
    return s;
  });
}

RC_GTEST_PROP(MetadataBuilder, EqualsALiteralReadingOfTheRule, ()) {
  const RandomStep s = *any_step();
  HostStep step(s.lengths, s.padding);
  const SparseMetadata md = build(s.threshold, step);
  const Parts parts{md.num_decodes, md.batch.decode_query_len, md.num_prefills};
  RC_ASSERT(parts == literal_split(s.threshold, s.lengths, step.tokens));
}

RC_GTEST_PROP(MetadataBuilder, EveryTokenOfTheStepIsCoveredOnceAtItsPosition, ()) {
  const RandomStep s = *any_step();
  HostStep step(s.lengths, s.padding);
  const SparseMetadata md = build(s.threshold, step);
  std::vector<int> covered(static_cast<std::size_t>(step.tokens), 0);
  for (std::int64_t r = 0; r < md.batch.num_requests(); ++r) {
    const reference::RequestRows rows = reference::request_rows(md.batch, r);
    const std::int32_t length = s.lengths[static_cast<std::size_t>(r)];
    RC_ASSERT(rows.seq_len == step.seq_lens[static_cast<std::size_t>(r)]);
    RC_ASSERT(rows.end <= step.tokens);
    for (std::int64_t t = rows.begin; t < rows.end; ++t) ++covered[static_cast<std::size_t>(t)];
    if (length == 0) continue;  // at most padding rows
    RC_ASSERT(rows.begin == step.query_start_loc[static_cast<std::size_t>(r)]);
    RC_ASSERT(rows.end - rows.begin == length);
    RC_ASSERT(rows.first_position == rows.seq_len - length);
  }
  for (std::int64_t t = 0; t < step.tokens; ++t) {
    const int count = covered[static_cast<std::size_t>(t)];
    if (t < step.query_start_loc.back()) {
      RC_ASSERT(count == 1);
    } else {
      RC_ASSERT(count <= 1);
    }
  }
  // Requests that were left out had no tokens.
  for (auto r = static_cast<std::size_t>(md.batch.num_requests()); r < s.lengths.size(); ++r) {
    RC_ASSERT(s.lengths[r] == 0);
  }
}

RC_GTEST_PROP(MetadataBuilder, BoundsCoverEveryRequest, ()) {
  const RandomStep s = *any_step();
  HostStep step(s.lengths, s.padding);
  const SparseMetadata md = build(s.threshold, step);
  for (std::int64_t r = 0; r < md.batch.num_requests(); ++r) {
    const reference::RequestRows rows = reference::request_rows(md.batch, r);
    RC_ASSERT(rows.end - rows.begin <= md.batch.max_query_len);
    RC_ASSERT(rows.seq_len <= md.batch.max_seq_len);
  }
}

// ---------------------------------------------------------------------------------------------------
// Single promises.

TEST(MetadataBuilder, CallersBoundOfTheKeysIsKept) {
  HostStep step(Ints{1, 1}, Ints{5, 900});
  EXPECT_EQ(build(1, step).batch.max_seq_len, 900);
  step.max_seq_len = 4096;
  EXPECT_EQ(build(1, step).batch.max_seq_len, 4096);
}

TEST(MetadataBuilder, PrefixHitsCountOnlyNewTokens_Report56) {
  HostStep step(Ints{7, 7}, Ints{1007, 1031});  // prefixes of 1000 and 1024 tokens
  const SparseMetadata md = build(1, step);
  EXPECT_EQ(values(md.batch.cu_seqlens_q), (Ints{0, 7, 14}));
  EXPECT_EQ(values(md.batch.context_lens), (Ints{1000, 1024}));
  EXPECT_EQ(reference::request_rows(md.batch, 1).first_position, 1024);
}

TEST(MetadataBuilder, PaddingRowsOfAReplayedGraphKeepItsShape_Report42) {
  // Captured with 8 requests; 5 are real, the others' lengths are 0 or were raised to 1.
  HostStep step(Ints{1, 1, 1, 1, 1, 0, 0, 0}, Ints{9, 9, 9, 9, 9, 0, 1, 1}, 3);
  EXPECT_EQ(build(1, step).num_decodes, 8);
  HostStep eager(Ints{1, 1, 1, 1, 1, 0, 0, 0}, Ints{9, 9, 9, 9, 9, 0, 1, 1}, 0);
  EXPECT_EQ(build(1, eager).num_decodes, 5);
}

TEST(MetadataBuilder, DraftTokensAreRightAligned_Report80) {
  for (std::int32_t m = 2; m <= 8; ++m) {
    HostStep step(Ints{m, m}, Ints{130, 257});
    const SparseMetadata md = build(8, step);
    EXPECT_EQ(md.num_decodes, 2);
    for (std::int64_t r = 0; r < 2; ++r) {
      const auto rows = reference::request_rows(md.batch, r);
      EXPECT_EQ(rows.first_position, step.seq_lens[static_cast<std::size_t>(r)] - m);
    }
  }
}

TEST(MetadataBuilder, CopiesOwnTheirArrays) {
  HostStep step(Ints{1, 7}, Ints{5, 107});
  SparseMetadata copy;
  {
    const SparseMetadata original = build(1, step);
    copy = original;
    EXPECT_NE(copy.batch.cu_seqlens_q.data, original.batch.cu_seqlens_q.data);
  }
  const SparseMetadata again(copy);
  const SparseMetadata moved(std::move(copy));
  for (const SparseMetadata* md : {&again, &moved}) {
    EXPECT_EQ(values(md->batch.cu_seqlens_q), (Ints{0, 7}));
    EXPECT_EQ(values(md->batch.context_lens), (Ints{100}));
  }
}

TEST(MetadataBuilder, CopiesKeepArraysThatTheEngineHasPutInPlace) {
  HostStep step(Ints{1, 7}, Ints{5, 107});
  SparseMetadata original = build(1, step);
  Ints own = {0, 7};
  original.batch.cu_seqlens_q = Tensor::dense(own.data(), DType::i32, {2});
  const SparseMetadata copy(original);
  EXPECT_EQ(copy.batch.cu_seqlens_q.data, own.data());
}

TEST(MetadataBuilder, MetadataWithoutPrefillsCopies) {
  HostStep step(Ints{1, 1}, Ints{5, 6});
  const SparseMetadata original = build(1, step);
  const SparseMetadata copy(original);
  EXPECT_FALSE(copy.batch.cu_seqlens_q.given());
  EXPECT_EQ(copy.num_decodes, 2);
}

// ---------------------------------------------------------------------------------------------------
// Errors.

std::vector<std::string> failures(std::int64_t threshold, const StepInputs& inputs) {
  try {
    MetadataBuilder(threshold).build(inputs);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.failures();
  }
  return {};
}

/// Whether one failure mentions all of the texts.
bool mentions(const std::vector<std::string>& failures, std::initializer_list<const char*> texts) {
  return std::any_of(failures.begin(), failures.end(), [&](const std::string& failure) {
    return std::all_of(texts.begin(), texts.end(),
                       [&](const char* text) { return failure.find(text) != std::string::npos; });
  });
}

TEST(MetadataBuilderErrors, AllFailuresAreListedAtOnce) {
  HostStep step(Ints{1, 1, 1}, Ints{5, -6, 7});
  step.query_start_loc = {1, 3, 2, 9};
  StepInputs inputs = step.inputs();
  inputs.seq_lens.dtype = DType::i64;
  inputs.block_table.shape[0] = 2;
  inputs.slot_mapping.shape[0] = 1;
  inputs.max_seq_len = 6;
  const auto found = failures(1, inputs);
  EXPECT_TRUE(mentions(found, {"'query_start_loc'", "starts at 1"}));
  EXPECT_TRUE(mentions(found, {"'query_start_loc'", "falls from 3 to 2", "request 1"}));
  EXPECT_TRUE(mentions(found, {"'num_actual_tokens'", "is 3", "9"}));
  EXPECT_TRUE(mentions(found, {"'seq_lens_host'", "holds -6", "request 1"}));
  EXPECT_TRUE(mentions(found, {"'seq_lens'", "i64", "i32"}));
  EXPECT_TRUE(mentions(found, {"'block_table'", "2"}));
  EXPECT_TRUE(mentions(found, {"'slot_mapping'", "1"}));
  EXPECT_TRUE(mentions(found, {"'max_seq_len'", "is 6", "7"}));
  EXPECT_EQ(found.size(), 8u);
}

TEST(MetadataBuilderErrors, EveryMessageStartsWithTheClass) {
  HostStep step(Ints{1}, Ints{-1});
  for (const std::string& failure : failures(1, step.inputs())) {
    EXPECT_EQ(failure.rfind("MetadataBuilder: argument '", 0), 0u) << failure;
  }
}

TEST(MetadataBuilderErrors, MissingArraysAreNamed) {
  HostStep step(Ints{1, 1}, Ints{5, 6});
  StepInputs inputs = step.inputs();
  inputs.query_start_loc = {};
  EXPECT_TRUE(mentions(failures(1, inputs), {"'query_start_loc'", "is empty"}));
  inputs = step.inputs();
  inputs.seq_lens = {};
  inputs.block_table = {};
  inputs.seq_lens_host = {};
  const auto found = failures(1, inputs);
  EXPECT_TRUE(mentions(found, {"'seq_lens'", "missing"}));
  EXPECT_TRUE(mentions(found, {"'block_table'", "missing"}));
  EXPECT_TRUE(mentions(found, {"'seq_lens_host'", "has 0", "2 requests"}));
}

TEST(MetadataBuilderErrors, NegativeCountsAreNamed) {
  HostStep step(Ints{}, Ints{});
  StepInputs inputs = step.inputs();
  inputs.num_actual_tokens = -1;
  EXPECT_TRUE(mentions(failures(1, inputs), {"'num_actual_tokens'", "-1"}));
  EXPECT_THROW(MetadataBuilder(-1), Error);
}

TEST(MetadataBuilderErrors, LongDecodeWindowIsToldToBePassedAsPrefill) {
  HostStep step(Ints{17, 17}, Ints{100, 100});
  const auto found = failures(32, step.inputs());
  EXPECT_TRUE(mentions(found, {"17", "16", "pass the rows as prefill", "32"}));
  EXPECT_EQ(found.size(), 1u);
  EXPECT_TRUE(failures(16, step.inputs()).empty());
}

TEST(MetadataBuilderErrors, SlotsMayBeLeftOut) {
  HostStep step(Ints{1}, Ints{5});
  StepInputs inputs = step.inputs();
  inputs.slot_mapping = {};
  EXPECT_TRUE(failures(1, inputs).empty());
}

}  // namespace
}  // namespace msa
