// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "program.h"
#include "scratch.h"

/// \file
/// `msa replay` as a user runs it: the process, its exit code and its words.

namespace msa::cli {
namespace {

using Json = nlohmann::json;

class ReplayCommand : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = scratch_folder() / name;
    std::ofstream(path) << text;
    return "'" + path + "'";
  }
  /// Three requests, two of which share a prefix.
  std::string mooncake() const {
    return write(
        "trace.jsonl",
        "{\"timestamp\":0,\"input_length\":1500,\"output_length\":5,\"hash_ids\":[1,2,3]}\n"
        "{\"timestamp\":9,\"input_length\":700,\"output_length\":9,\"hash_ids\":[7,8]}\n"
        "{\"timestamp\":400,\"input_length\":1300,\"output_length\":4,"
        "\"hash_ids\":[1,2,4]}\n");
  }
  Json json(const std::string& arguments, const std::string& environment = "") const {
    const ProgramResult outcome = run_msa("replay " + arguments + " --json", environment);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    Json report = Json::parse(outcome.out, nullptr, false);
    EXPECT_TRUE(report.is_object()) << outcome.out;
    return report;
  }
};

TEST_F(ReplayCommand, PrintsTheTableAndHowToRepeatIt) {
  const ProgramResult outcome = run_msa("replay " + mooncake() + " --all --shard 4/1");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  for (const char* words :
       {"3 of 3 requests, seed 1", "prefill", "mixed", "write_cache", "index_blocks", "attend",
        "prompt tokens found", "prefix groups evicted", " 0 wrong", "digest        0x",
        "--requests 3 --seed 1 --shard 4/1"}) {
    EXPECT_NE(outcome.out.find(words), std::string::npos) << words << "\n" << outcome.out;
  }
}

TEST_F(ReplayCommand, ReportsAsJson) {
  const Json report =
      json(mooncake() + " --requests 3 --shard 8/1 --draft 3 --kv e4m3 --layout HND");
  EXPECT_EQ(report["command"], "replay");
  EXPECT_EQ(report["options"]["layout"], "LBHNC");
  EXPECT_EQ(report["options"]["kv"], "e4m3");
  EXPECT_EQ(report["options"]["draft"], 3);
  EXPECT_EQ(report["scheduler"]["requests_served"], 3);
  EXPECT_EQ(report["scheduler"]["cached_tokens"], 1024);
  EXPECT_EQ(report["scheduler"]["generated_tokens"], 18);
  EXPECT_EQ(report["checks"]["wrong"], 0);
  EXPECT_GT(report["checks"]["rows"], 0);
  ASSERT_EQ(report["steps"].size(), 4u);
  EXPECT_EQ(report["steps"][3]["kind"], "all");
  EXPECT_EQ(report["steps"][3]["steps"], report["scheduler"]["steps"]);
  EXPECT_EQ(report["phases"].size(), 8u);
  EXPECT_TRUE(report["environment"].is_object());
  EXPECT_EQ(report["digest"].get<std::string>().size(), 18u);
}

TEST_F(ReplayCommand, DigestIsTheSameForAnyNumberOfThreads) {
  const std::string arguments = mooncake() + " --all --shard 4/1";
  const Json digest = json(arguments, "MSA_THREADS=1")["digest"];
  EXPECT_EQ(json(arguments, "MSA_THREADS=2")["digest"], digest);
  EXPECT_EQ(json(arguments + " --threads 3")["digest"], digest);
}

TEST_F(ReplayCommand, ThePrintedCommandRepeatsTheRun) {
  const Json chosen = json(mooncake() + " --budget-seconds 500 --shard 4/1 --chunk 300");
  EXPECT_GT(chosen["calibration_seconds"], 0.0);
  const std::string command = chosen["reproduce"];
  ASSERT_EQ(command.rfind("msa replay ", 0), 0u);
  const Json again = json(command.substr(11));
  EXPECT_EQ(again["digest"], chosen["digest"]);
  EXPECT_EQ(again["calibration_seconds"], 0.0);
}

TEST_F(ReplayCommand, ServesTheTraceOfTheMainJob) {
  const Json report = json("'" MSA_SOURCE_DIR
                           "/data/mooncake_conversation_200.jsonl' --requests 1 --verify-rows 1");
  EXPECT_EQ(report["trace_requests"], 200);
  EXPECT_EQ(report["scheduler"]["requests_served"], 1);
  EXPECT_EQ(report["scheduler"]["prompt_tokens"], 6758);
  EXPECT_EQ(report["scheduler"]["generated_tokens"], 500);
  EXPECT_EQ(report["checks"]["wrong"], 0);
  EXPECT_GE(report["checks"]["rows"], 500);  // one a step at least
}

TEST_F(ReplayCommand, ServesAnAzureTraceAndDrawsIt) {
  const std::string trace =
      write("trace.csv", "arrival_ms,input_length,output_length\n0,300,5\n52,40,8\n");
  const std::string plot = scratch_folder() / "report.svg";
  const std::string report = scratch_folder() / "report.json";
  const ProgramResult outcome = run_msa("replay " + trace + " --all --shard 4/1 --seed 5 --plot '" +
                                        plot + "' --json '" + report + "'");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("seed 5"), std::string::npos);
  EXPECT_EQ(read_text(plot).rfind("<svg ", 0), 0u);
  EXPECT_EQ(Json::parse(read_text(report))["scheduler"]["cached_tokens"], 0);
}

TEST_F(ReplayCommand, ADrawingOnStdoutIsAllThatIsThere) {
  const std::string arguments = "replay " + mooncake() + " --requests 1 --shard 4/1 --plot -";
  const ProgramResult outcome = run_msa(arguments);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.rfind("<svg ", 0), 0u) << outcome.out.substr(0, 200);
  EXPECT_EQ(outcome.out.find("digest   "), std::string::npos);
  const ProgramResult both = run_msa(arguments + " --json");
  EXPECT_EQ(both.code, 2);
  EXPECT_EQ(both.out, "");
  EXPECT_NE(both.err.find("replay: --plot and --json cannot share stdout"), std::string::npos);
}

TEST_F(ReplayCommand, WithoutADeviceSaysWhy) {
  const std::string arguments = "replay " + mooncake() + " --all --shard 4/1";
  for (const char* device : {"cuda", "cuda:0"}) {
    const ProgramResult none = run_msa(arguments + " --device " + device, "CUDA_VISIBLE_DEVICES=");
    EXPECT_EQ(none.code, 3);
    EXPECT_EQ(none.out, "");
    EXPECT_NE(none.err.find(std::string("replay: argument '--device' is '") + device + "': "),
              std::string::npos)
        << none.err;
  }
  const ProgramResult restricted = run_msa(arguments + " --device cuda", "MSA_BACKEND=cpu");
  EXPECT_EQ(restricted.code, 3);
  EXPECT_NE(restricted.err.find("takes tensors of a device"), std::string::npos) << restricted.err;
  const Json report = json(mooncake() + " --all --shard 4/1", "MSA_BACKEND=cpu");
  EXPECT_EQ(report["device"], "cpu");
  EXPECT_EQ(report["backend"], "cpu");
}

TEST_F(ReplayCommand, RefusesWrongUseInWords) {
  const std::string trace = mooncake();
  struct Case {
    std::string arguments, words;
  };
  const Case cases[] = {
      {"/nonexistent.jsonl", "/nonexistent.jsonl: cannot be opened"},
      {write("bad.jsonl", "{\"timestamp\":0}"), "bad.jsonl:1: field 'input_length' is missing"},
      {trace + " --requests 4", "'requests' is 4; allowed: 1 to 3"},
      {trace + " --requests 1 --all", "--all"},
      {trace + " --all --shard 16", "'shard' is '16'; allowed: HQ/HKV"},
      {trace + " --all --shard 40/2", "'shard' is 40/2"},
      {trace + " --all --kv f64", "'kv' is 'f64'; allowed: bf16, f16, e4m3, e5m2"},
      {trace + " --all --index-kv e5m2", "'index-kv' is e5m2; allowed: bf16, e4m3"},
      {trace + " --all --layout ABC", "'layout' is 'ABC'; allowed: LBHNC"},
      {trace + " --all --draft 16", "--draft: is '16'; allowed: whole numbers from 0 to 15"},
      {trace + " --all --pages 5", "'pages' is 5; allowed: at least 13, for request 0"},
      {trace + " --all --pages 1000000000", "'pages' is 1000000000, caches of "},
      {trace + " --all --threads 5000",
       "--threads: is '5000'; allowed: whole numbers from 1 to 4096"},
      {trace + " --all --chunk 0", "--chunk: is '0'; allowed: whole numbers from 1"},
      {"", "trace is required"}};
  for (const Case& c : cases) {
    const ProgramResult outcome = run_msa("replay " + c.arguments);
    EXPECT_EQ(outcome.code, 2) << c.arguments;
    EXPECT_NE((outcome.err + outcome.out).find(c.words), std::string::npos) << c.arguments << "\n"
                                                                            << outcome.err;
  }
}

}  // namespace
}  // namespace msa::cli
