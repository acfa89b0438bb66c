// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apart_place.h"
#include "cli/io/generate.h"
#include "cli/run_inputs.h"
#include "common/numeric.h"
#include "program.h"
#include "reference/reference.h"
#include "scratch.h"

namespace msa::cli {
namespace {

/// Tensors of seeded values, with the memory behind them.
class Inputs {
 public:
  void random(const std::string& name, DType dtype, std::initializer_list<std::int64_t> shape) {
    Tensor view = Tensor::dense(nullptr, dtype, shape);
    memory_.emplace_back(static_cast<std::size_t>(view.numel()) * size_of(dtype));
    view.data = memory_.back().data();
    for (std::int64_t i = 0; i < view.numel(); ++i) {
      // Twelve uniform numbers: close enough to a normal one of unit variance.
      double sum = -6;
      for (int k = 0; k < 12; ++k) sum += static_cast<double>(random_.below(1 << 20)) * 0x1p-20;
      store(dtype, view.data, i, sum);
    }
    tensors_.push_back({name, view});
  }
  void integers(const std::string& name, const std::vector<std::int32_t>& values,
                std::initializer_list<std::int64_t> shape) {
    Tensor view = Tensor::dense(nullptr, DType::i32, shape);
    memory_.emplace_back(values.size() * sizeof(std::int32_t));
    std::memcpy(memory_.back().data(), values.data(), memory_.back().size());
    view.data = memory_.back().data();
    tensors_.push_back({name, view});
  }
  std::string write(const std::string& name) const {
    const std::string path = scratch_folder() / name;
    write_safetensors(path, tensors_, {});
    return path;
  }

 private:
  SplitMix64 random_{77};
  std::deque<std::vector<char>> memory_;
  std::vector<TensorToStore> tensors_;
};

/// Two decode requests and a prefill request, four query heads over two KV heads.
Inputs batch(DType type, std::initializer_list<std::int64_t> cache_shape) {
  Inputs inputs;
  inputs.random("q", type, {7, 4, 128});
  inputs.random("kv_cache", type, cache_shape);
  inputs.integers("seq_lens", {130, 300, 200}, {3});
  inputs.integers("block_table", {0, 1, -1, 2, 3, 4, 5, 6, -1}, {3, 3});
  inputs.integers("cu_seqlens_q", {0, 5}, {2});
  return inputs;
}

void expect_close(const StoredTensor& out, const std::vector<double>& expected, double bound) {
  ASSERT_EQ(static_cast<std::size_t>(out.numel()), expected.size());
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    ASSERT_NEAR(load(*out.dtype, out.bytes.data(), i), expected[static_cast<std::size_t>(i)], bound)
        << out.name << " at " << i;
  }
}

/// Runs the program on IN and compares what it wrote with the reference on the same file.
void expect_reference(const std::string& in, const std::map<std::string, std::string>& options,
                      const std::string& arguments) {
  const std::string out_path = scratch_folder() / "out.safetensors";
  const ProgramResult result =
      run_msa("run " + in + " -o " + out_path + " --device cpu" + arguments);
  ASSERT_EQ(result.code, 0) << result.err;
  const SafetensorsFile file = SafetensorsFile::open(in), out = SafetensorsFile::open(out_path);
  RunProblem problem(file, options);
  if (problem.index_args()) problem.run();  // the reference takes the selection as it is
  const reference::AttendResult expected = reference::attend(problem.attend_args());
  expect_close(*out.find("out"), expected.out, 1.7e-2);
  expect_close(*out.find("lse"), expected.lse, 1e-3);
  EXPECT_EQ(out.metadata().at("backend"), "cpu");
  EXPECT_EQ(out.metadata().at("device"), "cpu");
}

TEST(RunCommand, AgreesWithTheReferenceOnAGivenSelection) {
  for (const DType type : {DType::bf16, DType::f16}) {
    Inputs inputs = batch(type, {7, 2, 128, 256});
    inputs.integers("selection",
                    {0, 1,  -1, 1, 0, -1, 0, 2, 1,  -1, -1, 2,  0, -1, -1, 1, 0, -1, 1, 1, 1,
                     0, -1, -1, 0, 1, 9,  1, 0, -1, 1,  -1, -1, 0, 1,  -1, 0, 1, -1, 1, 0, -1},
                    {7, 2, 3});
    expect_reference(inputs.write("given.safetensors"), {}, "");
  }
}

TEST(RunCommand, AgreesWithTheReferenceWithScalesAndATokenMajorCache) {
  Inputs inputs = batch(DType::bf16, {7, 128, 2, 256});
  inputs.integers("selection", std::vector<std::int32_t>(7, 0), {7, 1, 1});
  expect_reference(inputs.write("scaled.safetensors"),
                   {{"layout", "NHD"}, {"k_scale", "0.5"}, {"v_scale", "0.25"}, {"causal", "0"}},
                   " --layout NHD --k-scale 0.5 --v-scale 0.25 --causal 0");
}

TEST(RunCommand, ChoosesBlocksWhereTheFileHasNoSelection) {
  Inputs inputs = batch(DType::bf16, {7, 2, 128, 256});
  inputs.random("index_q", DType::bf16, {7, 2, 128});
  inputs.random("index_k", DType::bf16, {7, 128, 128});
  const std::string in = inputs.write("index.safetensors");
  expect_reference(in, {{"topk", "2"}}, " --topk 2");
  const SafetensorsFile out = SafetensorsFile::open(scratch_folder() / "out.safetensors");
  EXPECT_EQ(out.find("selection")->shape, (std::vector<std::int64_t>{7, 2, 2}));
}

TEST(RunCommand, ShapeErrorsNameTensorShapeAndExpectation) {
  Inputs inputs = batch(DType::bf16, {7, 2, 64, 256});
  const std::string in = inputs.write("wrong.safetensors");
  const ProgramResult result = run_msa("run " + in + " -o /dev/null");
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find("wrong.safetensors: tensor 'kv_cache' has shape [7, 2, 64, 256]; "
                            "expected [pages, Hkv, 128, 256]"),
            std::string::npos)
      << result.err;
}

TEST(RunCommand, WritesNoTensorsToStdout) {
  Inputs inputs = batch(DType::bf16, {7, 2, 128, 256});
  inputs.integers("selection", std::vector<std::int32_t>(7, 0), {7, 1, 1});
  const std::string command =
      "run " + inputs.write("stdout.safetensors") + " --device cpu --output ";
  for (const char* output : {"-", "''"}) {
    const ProgramResult result = run_msa(command + output);
    EXPECT_EQ(result.code, 2) << output;
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find("run: --output is '"), std::string::npos) << result.err;
    EXPECT_FALSE(std::filesystem::exists("-"));
  }
}

TEST(RunCommand, WrongSettingsDoNotHideEachOther) {
  Inputs inputs = batch(DType::bf16, {7, 2, 128, 256});
  inputs.random("index_q", DType::bf16, {7, 2, 128});
  inputs.random("index_k", DType::bf16, {7, 128, 128});
  const ProgramResult result =
      run_msa("run " + inputs.write("settings.safetensors") +
              " -o /dev/null --topk 65 --k-scale -1 --softmax-scale nan --decode-query-len 17");
  EXPECT_EQ(result.code, 2);
  for (const char* words : {"'topk' is 65; allowed: 1 to 64", "'k_scale' is '-1'; allowed",
                            "'softmax_scale' is 'nan'; allowed", "'decode_query_len' is 17"}) {
    EXPECT_NE(result.err.find(words), std::string::npos) << words << "\n" << result.err;
  }
}

TEST(RunCommand, ReportsAsJson) {
  Inputs inputs = batch(DType::bf16, {7, 2, 128, 256});
  inputs.integers("selection", std::vector<std::int32_t>(7, 0), {7, 1, 1});
  const ProgramResult result =
      run_msa("run " + inputs.write("json.safetensors") + " -o " +
              scratch_folder() / "json_out.safetensors --device cpu --topk 3 --json");
  ASSERT_EQ(result.code, 0) << result.err;
  const nlohmann::json report = nlohmann::json::parse(result.out);
  EXPECT_EQ(report.at("outputs").at("out"), "bf16 [7, 4, 128]");
  EXPECT_EQ(report.at("backend"), "cpu");
  EXPECT_EQ(report.at("device"), "cpu");
  EXPECT_EQ(report.at("ignored_settings"), nlohmann::json::array({"topk"}));
}

TEST(RunCommand, APlaceWithMemoryOfItsOwnGivesTheSameBits) {
  Inputs inputs = batch(DType::bf16, {2, 7, 128, 2, 256});
  inputs.random("index_q", DType::bf16, {7, 2, 128});
  inputs.random("index_k", DType::bf16, {7, 128, 128});
  const SafetensorsFile file = SafetensorsFile::open(inputs.write("apart.safetensors"));
  const std::map<std::string, std::string> options = {{"layout", "NHD"}, {"layer", "1"}};
  RunProblem here(file, options), there(file, options);
  ApartPlace apart;
  EXPECT_GT(here.run(), 0);
  EXPECT_GT(there.run(apart), 0);
  EXPECT_EQ(apart.allocations, 0);
  const std::vector<TensorToStore> want = here.outputs(), got = there.outputs();
  ASSERT_EQ(got.size(), 3U);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const std::size_t bytes =
        static_cast<std::size_t>(want[i].view.numel()) * size_of(want[i].view.dtype);
    EXPECT_EQ(std::memcmp(got[i].view.data, want[i].view.data, bytes), 0) << want[i].name;
  }
  expect_refused_for_want_of_the_device([&](Place& nowhere) { there.run(nowhere); });
}

TEST(RunCommand, WithoutADeviceSaysWhyAndLeavesTheOutputAlone) {
  Inputs inputs = batch(DType::bf16, {7, 2, 128, 256});
  inputs.integers("selection", std::vector<std::int32_t>(7, 0), {7, 1, 1});
  const std::string out = scratch_folder() / "no_device.safetensors";
  const std::string command = "run " + inputs.write("device.safetensors") + " -o " + out;
  // Hidden devices are as good as none.
  const ProgramResult none = run_msa(command + " --device cuda", "CUDA_VISIBLE_DEVICES=");
  EXPECT_EQ(none.code, 3);
  EXPECT_EQ(none.out, "");
  EXPECT_NE(none.err.find("run: argument '--device' is 'cuda': "), std::string::npos) << none.err;
  EXPECT_FALSE(std::filesystem::exists(out));
  const ProgramResult automatic = run_msa(command, "CUDA_VISIBLE_DEVICES=");
  EXPECT_EQ(automatic.code, 0) << automatic.err;
  EXPECT_EQ(SafetensorsFile::open(out).metadata().at("device"), "cpu");
  for (const char* wrong : {"gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0"}) {
    const ProgramResult result = run_msa(command + " --device " + wrong);
    EXPECT_EQ(result.code, 2) << wrong;
    EXPECT_NE(result.err.find("allowed: auto, cpu, cuda, or cuda:N"), std::string::npos)
        << result.err;
  }
}

}  // namespace
}  // namespace msa::cli
