// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/replay/trace.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "error_of.h"
#include "msa/error.h"

namespace msa::replay {
namespace {

std::vector<TraceRequest> read(const std::string& text, std::int64_t limit = 0) {
  std::istringstream in(text);
  return read_trace(in, "t", limit);
}

/// The text of the error that reading `text` ends with; fails the test where it is read.
std::string fault(const std::string& text) {
  return error_of([&] { read(text); }, ErrorCode::io);
}

/// A Mooncake line whose fields are given as JSON texts.
std::string line(const std::string& timestamp, const std::string& input, const std::string& output,
                 const std::string& hashes) {
  return "{\"timestamp\": " + timestamp + ", \"input_length\": " + input +
         ", \"output_length\": " + output + ", \"hash_ids\": " + hashes + "}\n";
}

constexpr const char* header = "arrival_ms,input_length,output_length\n";

void expect_fault(const std::string& text, const std::string& where, const std::string& what) {
  const std::string told = fault(text);
  EXPECT_NE(told.find(where), std::string::npos) << told;
  EXPECT_NE(told.find(what), std::string::npos) << told;
}

TEST(ReplayTrace, ReadsMooncakeLines) {
  const auto trace = read(line("0", "513", "7", "[3, 18446744073709551615]") + "\n  \r\n" +
                          line("12.5", "1", "0", "[9]"));
  ASSERT_EQ(trace.size(), 2u);
  EXPECT_EQ(trace[0].input_length, 513);
  EXPECT_EQ(trace[0].output_length, 7);
  EXPECT_EQ(trace[0].hash_ids, (std::vector<std::uint64_t>{3, 18446744073709551615u}));
  EXPECT_EQ(trace[1].arrival_ms, 12.5);
  EXPECT_EQ(trace[1].output_length, 0);
}

TEST(ReplayTrace, ReadsAzureRowsInAnyColumnOrder) {
  const auto trace = read(
      "\xEF\xBB\xBFinput_length, note ,arrival_ms,output_length\r\n\r\n10,x,0.0,2\r\n20,,4.5,3");
  ASSERT_EQ(trace.size(), 2u);
  EXPECT_EQ(trace[0].input_length, 10);
  EXPECT_EQ(trace[1].arrival_ms, 4.5);
  EXPECT_EQ(trace[1].output_length, 3);
  EXPECT_TRUE(trace[1].hash_ids.empty());
}

TEST(ReplayTrace, StopsAtTheLimit) {
  EXPECT_EQ(read(line("0", "1", "1", "[0]") + "not a line", 1).size(), 1u);
}

TEST(ReplayTrace, ReadsTheTracesOfTheRepository) {
  const std::string data = std::string(MSA_SOURCE_DIR) + "/data/";
  const auto conversation = load_trace(data + "mooncake_conversation_200.jsonl");
  ASSERT_EQ(conversation.size(), 200u);
  EXPECT_EQ(conversation[0].input_length, 6758);
  EXPECT_EQ(conversation[0].hash_ids.size(), 14u);
  std::int64_t tokens = 0;
  for (const TraceRequest& request : conversation) tokens += request.input_length;
  EXPECT_EQ(tokens, 2782179);
  EXPECT_EQ(load_trace(data + "mooncake_synthetic_200.jsonl").size(), 200u);
  EXPECT_EQ(load_trace(data + "azure2023_code_200.csv").size(), 200u);
  const auto azure = load_trace(data + "azure2023_conversation_200.csv");
  ASSERT_EQ(azure.size(), 200u);
  EXPECT_EQ(azure[1].arrival_ms, 4314.6);
}

TEST(ReplayTrace, NamesFileLineFieldAndValueOfEachFault) {
  const std::string good = line("5", "10", "1", "[0]");
  expect_fault(good + line("6", "-3", "1", "[0]"), "t:2:", "'input_length' is -3");
  expect_fault(good + line("6", "0", "1", "[]"), "t:2:", "'input_length' is 0");
  expect_fault(good + line("6", "2.5", "1", "[0]"), "t:2:", "'input_length' is 2.5");
  expect_fault(good + line("6", "99999999999999999999", "1", "[0]"), "t:2:", "'input_length' is");
  expect_fault(good + line("6", "10", "-1", "[0]"), "t:2:", "'output_length' is -1");
  expect_fault(good + line("6", "10", "18446744073709551615", "[0]"), "t:2:", "'output_length'");
  expect_fault(good + line("-1", "10", "1", "[0]"), "t:2:", "'timestamp' is -1");
  expect_fault(good + line("1e300", "10", "1", "[0]"), "t:2:", "'timestamp' is 1e+300");
  expect_fault(good + line("\"now\"", "10", "1", "[0]"), "t:2:", "'timestamp' is \"now\"");
  expect_fault(good + line("4", "10", "1", "[0]"), "t:2:", "no less than the request before it");
  expect_fault(good + line("6", "513", "1", "[0]"), "t:2:", "'hash_ids' has 1 ids; allowed: 2");
  expect_fault(good + line("6", "512", "1", "[0,1]"), "t:2:", "'hash_ids' has 2 ids; allowed: 1");
  expect_fault(good + line("6", "10", "1", "[-1]"), "t:2:", "'hash_ids[0]' is -1");
  expect_fault(good + line("6", "10", "1", "7"), "t:2:", "'hash_ids' is 7");
  expect_fault(good + line("6", "1000000", "1000000", "[0]"), "t:2:", "allowed: ");
  expect_fault(good + "{\"timestamp\": 6}", "t:2:", "field 'output_length' is missing");
  expect_fault(
      good + "{\"timestamp\": ", "t:2:", "the line is not JSON from byte 14 on: {\"timest");
  expect_fault(good + "[1]", "t:2:", "the line is not a JSON object: [1]");
  expect_fault(good + line("6", "10", "1, \"output_length\": 2", "[0]"),
               "t:2:", "the line names 'output_length' twice");
  expect_fault(good + line("1e400", "10", "1", "[0]"),
               "t:2:", "the line holds a number beyond the range of f64");
}

TEST(ReplayTrace, NamesFileLineColumnAndCellOfEachFault) {
  const std::string good = std::string(header) + "5,10,1\n";
  expect_fault(good + "6,-3,1", "t:3:", "'input_length' is '-3'");
  expect_fault(good + "6,10,", "t:3:", "'output_length' is ''");
  expect_fault(good + "6,10,1x", "t:3:", "'output_length' is '1x'");
  expect_fault(good + "6,99999999999999999999,1", "t:3:", "'input_length'");
  expect_fault(good + "nan,10,1", "t:3:", "'arrival_ms' is 'nan'");
  expect_fault(good + "inf,10,1", "t:3:", "'arrival_ms' is 'inf'");
  expect_fault(good + "4,10,1", "t:3:", "no less than the request before it (5)");
  expect_fault(good + "6,10", "t:3:", "the row has 2 cells; allowed: 3");
  expect_fault("arrival_ms,input_length\n", "t:1:", "column 'output_length' is missing");
}

TEST(ReplayTrace, ListsAllFaultsOfAFileUpToALimit) {
  const std::string two = fault(line("0", "-1", "-1", "[0]"));
  EXPECT_NE(two.find("'input_length' is -1"), std::string::npos) << two;
  EXPECT_NE(two.find("'output_length' is -1"), std::string::npos) << two;
  std::string many;
  for (int i = 0; i < 1000; ++i) many += line("0", "-1", "1", "[0]");
  EXPECT_NE(fault(many).find("too many faults, stopped at line 20"), std::string::npos);
}

TEST(ReplayTrace, RefusesWhatHoldsNoRequest) {
  expect_fault("", "t:", "holds no request");
  expect_fault(" \n\r\n", "t:", "holds no request");
  expect_fault(header, "t:", "holds no request");
  EXPECT_THROW(load_trace("/nonexistent/trace.jsonl"), Error);
  EXPECT_THROW(load_trace("/"), Error);
}

TEST(ReplayTrace, RefusesLinesOfAnyLength) {
  expect_fault(line("0", "1", "1", "[0]") + "{" + std::string(2 << 20, ' ') + "}",
               "t:2:", "the line has 2097154 bytes");
}

}  // namespace
}  // namespace msa::replay
