// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/io/workload.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "msa/error.h"

namespace msa::cli {
namespace {

std::vector<Workload> read(const std::string& text) {
  std::istringstream stream(text);
  return read_workloads(stream, "w.jsonl");
}

std::vector<std::string> refusals(const std::string& text) {
  try {
    read(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    return error.failures();
  }
  ADD_FAILURE() << "accepted: " << text;
  return {""};
}

TEST(Workloads, ReadsEveryKey) {
  const std::vector<Workload> all = read(
      R"({"version":1,"op":"decode","hq":64,"hkv":4,"kv":"e4m3","layout":"NHD","m":4,"batch":8,)"
      R"("context":4096,"keep":0.97,"seed":7})"
      "\n\n  \n"
      R"({"op":"prefill","tokens":2048,"context":24576})"
      "\r\n");
  ASSERT_EQ(all.size(), 2U);
  const Workload expected{.op = WorkloadOp::decode,
                          .hq = 64,
                          .hkv = 4,
                          .kv = DType::e4m3,
                          .layout = KVLayout::LBNHC,
                          .m = 4,
                          .batch = 8,
                          .context = 4096,
                          .keep = 970,
                          .seed = 7};
  EXPECT_EQ(all[0], expected);
  EXPECT_EQ(all[1].tokens, 2048);
  EXPECT_EQ(all[1].keep, 900);
  EXPECT_EQ(all[1].rows(), 2048);
  EXPECT_EQ(all[1].seq_len(), 24576 + 2048);
}

TEST(Workloads, WhatIsWrittenIsReadBack) {
  const Workload workload{.op = WorkloadOp::layer, .kv = DType::e5m2, .tokens = 9, .context = 3};
  EXPECT_EQ(read(to_json(workload).dump()), std::vector<Workload>{workload});
  const Workload dense{.op = WorkloadOp::decode, .m = 2, .context = 3, .dense = true};
  EXPECT_EQ(read(to_json(dense).dump()), std::vector<Workload>{dense});
}

TEST(Workloads, FaultsNameTheLine) {
  EXPECT_EQ(refusals("{\"op\":\"write\",\"tokens\":1}\n{\"op\":\"write\",\"token\":1}")[0],
            "w.jsonl:2: has the unknown key 'token'; allowed: version, op, hq, hkv, kv, layout, m, "
            "tokens, batch, context, keep, seed, selection, dense");
  EXPECT_EQ(refusals("nonsense")[0], "w.jsonl:1: is not JSON from byte 2 on");
  EXPECT_EQ(refusals("[1]")[0], "w.jsonl:1: is not a JSON object");
  EXPECT_EQ(refusals("{}")[0], "w.jsonl:1: has no 'op'");
  EXPECT_EQ(refusals("")[0], "w.jsonl: holds no workload");
  EXPECT_EQ(refusals(R"({"version":2,"op":"write","tokens":1})")[0],
            "w.jsonl:1: 'version' is 2; this program reads 1");
  EXPECT_EQ(refusals(R"({"op":"write","tokens":1.5})")[0],
            "w.jsonl:1: 'tokens' is 1.5; allowed: a whole number");
  EXPECT_EQ(refusals(R"({"op":"write","tokens":18446744073709551615})")[0],
            "w.jsonl:1: 'tokens' is 18446744073709551615; allowed: a whole number");
  EXPECT_EQ(refusals(R"({"op":"write","tokens":1,"keep":1.5})")[0],
            "w.jsonl:1: 'keep' is 1.5; allowed: a number from 0 to 1");
  EXPECT_EQ(refusals(R"({"op":"write","tokens":1,"kv":"f99"})")[0],
            "w.jsonl:1: 'kv' is \"f99\"; allowed: bf16, f16, e4m3, e5m2");
}

TEST(Workloads, AKeyGivenTwiceIsRefused) {
  EXPECT_EQ(refusals(R"({"op":"decode","m":1,"m":2,"context":5})"),
            std::vector<std::string>{"w.jsonl:1: names 'm' twice"});
}

TEST(Workloads, ANumberBeyondEveryTypeIsNotTakenForBadJson) {
  EXPECT_EQ(refusals(R"({"op":"decode","m":1,"context":5,"seed":1e400})"),
            std::vector<std::string>{"w.jsonl:1: holds a number beyond the range of f64"});
}

TEST(Workloads, LimitsAreThoseThatAreAllowed) {
  EXPECT_EQ(refusals(R"({"op":"decode","m":17,"context":99})"),
            std::vector<std::string>{"w.jsonl:1: 'm' is 17; allowed: 1 to 16"});
  EXPECT_EQ(refusals(R"({"op":"index","m":-1,"context":99})"),
            std::vector<std::string>{"w.jsonl:1: 'm' is -1; allowed: 1 to 16"});
  EXPECT_EQ(refusals(R"({"op":"prefill","tokens":1048577})"),
            std::vector<std::string>{"w.jsonl:1: 'tokens' is 1048577; allowed: 1 to 1048576"});
  EXPECT_EQ(refusals(R"({"op":"decode","m":0,"context":99})"),
            std::vector<std::string>{
                "w.jsonl:1: a decode workload needs 'm' of at least 1 and no 'tokens'"});
  EXPECT_EQ(refusals(R"({"op":"index","m":2,"context":1})"),
            std::vector<std::string>{
                "w.jsonl:1: an index workload needs a 'context' of at least 'm' keys"});
}

TEST(Workloads, AllFaultsOfALineAreListed) {
  EXPECT_EQ(refusals(R"({"op":"none","kv":3,"x":1})").size(), 3U);
}

TEST(Workloads, ShapesThatNoOperatorTakesAreRefused) {
  for (const char* line :
       {R"({"op":"decode","m":17,"context":99})", R"({"op":"decode","m":0,"context":99})",
        R"({"op":"decode","m":4,"context":3})", R"({"op":"decode","m":1,"tokens":1,"context":9})",
        R"({"op":"prefill","m":1,"tokens":4})", R"({"op":"prefill"})",
        R"({"op":"index","m":1,"tokens":1,"context":9})", R"({"op":"layer"})",
        R"({"op":"write","tokens":1,"hq":9,"hkv":2})", R"({"op":"write","tokens":1,"hq":17})",
        R"({"op":"write","tokens":1,"batch":0})", R"({"op":"write","tokens":-1})",
        R"({"op":"write","tokens":1,"kv":"f32"})", R"({"op":"write","tokens":1,"dense":true})",
        R"({"op":"layer","tokens":1,"dense":true})", R"({"op":"decode","m":1,"dense":1})",
        R"({"op":"decode","m":1,"context":4611686018427387904})"}) {
    EXPECT_EQ(refusals(line)[0].rfind("w.jsonl:1: ", 0), 0U) << line;
  }
}

TEST(Workloads, LabelsTellShapesApart) {
  EXPECT_EQ(label({.op = WorkloadOp::decode, .m = 1, .batch = 8, .context = 4096}),
            "decode 16/1 bf16 LBHNC m 1 batch 8 context 4096");
  EXPECT_EQ(label({.op = WorkloadOp::decode, .m = 0, .context = 9}),
            "decode 16/1 bf16 LBHNC m 0 batch 1 context 9");
  EXPECT_EQ(label({.op = WorkloadOp::prefill, .tokens = 512, .context = 0, .keep = 970}),
            "prefill 16/1 bf16 LBHNC tokens 512 batch 1 context 0 keep 0.97");
  EXPECT_EQ(label({.op = WorkloadOp::layer, .m = 1, .context = 9, .dense = true}),
            "layer 16/1 bf16 LBHNC m 1 batch 1 context 9 dense");
  EXPECT_EQ(label({.op = WorkloadOp::write, .tokens = 5}),
            "write 16/1 bf16 LBHNC tokens 5 batch 1");
}

}  // namespace
}  // namespace msa::cli
