// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/run_inputs.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "msa/error.h"
#include "scratch.h"

namespace msa::cli {
namespace {

/// A file made of zeros, with the tensors' integers where given.
class RunFile {
 public:
  void zeros(const std::string& name, DType dtype, std::initializer_list<std::int64_t> shape) {
    Tensor view = Tensor::dense(nullptr, dtype, shape);
    memory_.emplace_back(static_cast<std::size_t>(view.numel()) * size_of(dtype) + 1);
    view.data = memory_.back().data();
    add(name, view);
  }
  void integers(const std::string& name, std::vector<std::int32_t> values,
                std::initializer_list<std::int64_t> shape) {
    Tensor view = Tensor::dense(nullptr, DType::i32, shape);
    memory_.emplace_back(values.size() * 4 + 1);
    if (!values.empty()) std::memcpy(memory_.back().data(), values.data(), values.size() * 4);
    view.data = memory_.back().data();
    add(name, view);
  }
  void remove(const std::string& name) {
    std::erase_if(tensors_, [&](const TensorToStore& t) { return t.name == name; });
  }
  void metadata(const std::string& key, const std::string& value) { metadata_[key] = value; }

  SafetensorsFile open() const {
    const std::string path = scratch_folder() / "run_inputs.safetensors";
    write_safetensors(path, tensors_, metadata_);
    return SafetensorsFile::open(path);
  }

 private:
  void add(const std::string& name, const Tensor& view) {
    remove(name);
    tensors_.push_back({name, view});
  }
  std::vector<TensorToStore> tensors_;
  std::deque<std::vector<char>> memory_;
  std::map<std::string, std::string> metadata_;
};

/// Two decode requests and a prefill request of three tokens.
RunFile mixed_batch() {
  RunFile file;
  file.zeros("q", DType::bf16, {5, 4, 128});
  file.zeros("kv_cache", DType::bf16, {4, 1, 128, 256});
  file.integers("seq_lens", {130, 5, 200}, {3});
  file.integers("block_table", {0, 1, 2, -1, 3, 2}, {3, 2});
  file.integers("cu_seqlens_q", {0, 3}, {2});
  file.integers("selection", std::vector<std::int32_t>(5 * 16, -1), {5, 1, 16});
  return file;
}

std::string refusal(const RunFile& file, const std::map<std::string, std::string>& options = {}) {
  const SafetensorsFile opened = file.open();
  try {
    RunProblem problem(opened, options);
    problem.run();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return "";
}

void expect_words(const std::string& text, std::initializer_list<const char*> words) {
  for (const char* word : words) EXPECT_NE(text.find(word), std::string::npos) << text;
}

TEST(RunInputs, SplitsTheBatchByCuSeqlens) {
  const SafetensorsFile file = mixed_batch().open();
  const RunProblem problem(file, {});
  const BatchMetadata& batch = problem.attend_args().batch;
  EXPECT_EQ(batch.num_decodes, 2);
  EXPECT_EQ(batch.decode_query_len, 1);
  EXPECT_EQ(batch.num_prefills, 1);
  EXPECT_EQ(batch.context_lens.ptr<std::int32_t>()[0], 197);
  EXPECT_EQ(batch.max_query_len, 3);
  EXPECT_EQ(batch.max_seq_len, 200);
  EXPECT_TRUE(problem.ignored().empty());
}

TEST(RunInputs, ASingleLongRequestIsAPrefillAShortOneADecode) {
  for (const std::int64_t tokens : {16, 17}) {
    RunFile file;
    file.zeros("q", DType::f16, {tokens, 4, 128});
    file.zeros("k", DType::f16, {2, 2, 128, 128});
    file.zeros("v", DType::f16, {2, 2, 128, 128});
    file.integers("seq_lens", {200}, {1});
    file.zeros("selection", DType::i64, {tokens, 2, 3});
    const SafetensorsFile opened = file.open();
    const RunProblem problem(opened, {});
    const BatchMetadata& batch = problem.attend_args().batch;
    EXPECT_EQ(batch.num_decodes, tokens == 16 ? 1 : 0);
    EXPECT_EQ(batch.num_prefills, tokens == 16 ? 0 : 1);
    EXPECT_EQ(batch.block_table.ptr<std::int32_t>()[1], 1);  // pages in order
  }
}

TEST(RunInputs, LayoutsNameTheDimensionsOfTheCache) {
  RunFile file = mixed_batch();
  file.zeros("kv_cache", DType::bf16, {4, 128, 1, 256});
  file.metadata("layout", "NHD");
  const SafetensorsFile token_major = file.open();
  const ConstTensor view = RunProblem(token_major, {}).attend_args().kv_cache.packed;
  EXPECT_EQ(view.shape[0], 4);
  EXPECT_EQ(view.shape[1], 1);
  EXPECT_EQ(view.shape[2], 128);

  file.zeros("kv_cache", DType::bf16, {4, 3, 1, 128, 256});
  const SafetensorsFile layers = file.open();
  const RunProblem problem(layers, {{"layout", "BLHNC"}, {"layer", "2"}});
  const ConstTensor layer = problem.attend_args().kv_cache.packed;
  EXPECT_EQ(layer.stride[0], 3 * 128 * 256);
  EXPECT_EQ(
      layer.ptr<char>() - reinterpret_cast<const char*>(layers.find("kv_cache")->bytes.data()),
      2 * 128 * 256 * 2);
  expect_words(refusal(file, {{"layout", "BLHNC"}, {"layer", "3"}}), {"'layer' is 3", "has 3"});
}

TEST(RunInputs, OptionsWinOverMetadata) {
  RunFile file = mixed_batch();
  file.metadata("k_scale", "0.5");
  file.metadata("v_scale", "0.25");
  file.metadata("causal", "false");
  file.metadata("kv_shard", "1/3");
  const SafetensorsFile opened = file.open();
  const RunProblem problem(opened, {{"k_scale", "2"}});
  EXPECT_EQ(problem.attend_args().k_scale.value, 2);
  EXPECT_EQ(problem.attend_args().v_scale.value, 0.25f);
  EXPECT_FALSE(problem.attend_args().causal);
  EXPECT_EQ(problem.attend_args().kv_shard.world, 3);
}

TEST(RunInputs, MissingTensorsAreNamedWithTheirShape) {
  for (const char* tensor : {"q", "kv_cache", "seq_lens", "block_table", "selection"}) {
    RunFile file = mixed_batch();
    file.remove(tensor);
    expect_words(refusal(file), {"run_inputs.safetensors: there is no tensor", tensor, "["});
  }
}

TEST(RunInputs, WrongShapesNameTensorShapeAndExpectation) {
  RunFile file = mixed_batch();
  file.zeros("q", DType::bf16, {5, 4, 64});
  expect_words(refusal(file), {"tensor 'q' has shape [5, 4, 64]; expected [T, Hq, 128]"});

  file = mixed_batch();
  file.zeros("kv_cache", DType::bf16, {4, 1, 16, 256});
  expect_words(refusal(file), {"tensor 'kv_cache' has shape [4, 1, 16, 256]; expected "
                               "[pages, Hkv, 128, 256]"});

  file = mixed_batch();
  file.integers("cu_seqlens_q", {0, 9}, {2});
  expect_words(refusal(file),
               {"tensor 'cu_seqlens_q' (shape [2]) must ascend from 0 to at most 5"});

  file = mixed_batch();
  file.integers("cu_seqlens_q", {0, 2}, {2});
  expect_words(refusal(file), {"2 decode requests cannot share 3 rows of tensor 'q'"});

  file = mixed_batch();
  file.integers("context_lens", {1, 2}, {2});
  expect_words(refusal(file), {"tensor 'context_lens' has shape [2]; expected [R_p = 1]"});

  file = mixed_batch();
  file.integers("selection", std::vector<std::int32_t>(4 * 16, -1), {4, 1, 16});
  expect_words(refusal(file), {"selection", "[4, 1, 16]", "5"});
}

TEST(RunInputs, WrongTypesAndValuesAreRefused) {
  RunFile file = mixed_batch();
  file.zeros("seq_lens", DType::f32, {3});
  expect_words(refusal(file), {"tensor 'seq_lens' has dtype F32 (shape [3]); expected I32 or I64"});

  file = mixed_batch();
  file.zeros("kv_cache", DType::u8, {4, 1, 128, 256});
  expect_words(refusal(file), {"tensor 'kv_cache' has dtype U8", "kv_dtype"});
  const SafetensorsFile bytes = file.open();
  const RunProblem typed(bytes, {{"kv_dtype", "fp8_e5m2"}});
  EXPECT_EQ(typed.attend_args().kv_cache.packed.dtype, DType::e5m2);
}

TEST(RunInputs, WrongSettingsAreRefused) {
  const std::pair<const char*, const char*> wrong[] = {
      {"layout", "ABC"},   {"layer", "x"},    {"softmax_scale", "1e"},    {"causal", "yes"},
      {"kv_shard", "3/3"}, {"kv_shard", "1"}, {"num_actual_tokens", "6"}, {"decode_query_len", "2"},
      {"k_scale", ""}};
  for (const auto& [key, value] : wrong) {
    EXPECT_NE(refusal(mixed_batch(), {{key, value}}), "") << key;
  }
}

/// The mixed batch with an indexer in the place of its selection.
RunFile indexed_batch() {
  RunFile file = mixed_batch();
  file.remove("selection");
  file.zeros("index_q", DType::bf16, {5, 1, 128});
  file.zeros("index_k", DType::bf16, {4, 128, 128});
  return file;
}

TEST(RunInputs, AWrongValueOfASettingHidesNoOther) {
  expect_words(refusal(indexed_batch(), {{"topk", "65"},
                                         {"init_blocks", "2147483648"},
                                         {"local_blocks", "-1"},
                                         {"softmax_scale", "nan"},
                                         {"k_scale", "-1"},
                                         {"v_scale", "0"},
                                         {"kv_shard", "0/2000000000"},
                                         {"causal", "x"},
                                         {"decode_query_len", "17"}}),
               {"setting 'topk' is 65; allowed: 1 to 64",
                "setting 'init_blocks' is 2147483648; allowed: 0 to 2147483647",
                "setting 'local_blocks' is -1; allowed: 0 to 2147483647",
                "setting 'softmax_scale' is 'nan'; allowed: a finite number",
                "setting 'k_scale' is '-1'; allowed: a finite positive number",
                "setting 'v_scale' is '0'; allowed: a finite positive number",
                "setting 'kv_shard' is '0/2000000000'; expected RANK/WORLD with 0 ≤ RANK < WORLD ≤ "
                "1073741824",
                "setting 'causal' is 'x'; expected 0 or 1",
                "setting 'decode_query_len' is 17; allowed: 1 to 16 (pass the rows of longer "
                "requests as prefill, by 'cu_seqlens_q')"});
  for (const char* wrong : {"0", "-1", "17"}) {
    expect_words(refusal(mixed_batch(), {{"decode_query_len", wrong}}),
                 {"setting 'decode_query_len' is ", wrong, "; allowed: 1 to 16"});
  }
}

TEST(RunInputs, LengthsAndRowsThatDoNotFitAreNamed) {
  RunFile file = mixed_batch();
  file.integers("seq_lens", {130, 5, std::numeric_limits<std::int32_t>::min()}, {3});
  expect_words(refusal(file), {"tensor 'seq_lens' (shape [3]) holds -2147483648 at position 2; "
                               "allowed: 0 or more"});

  file = mixed_batch();
  file.integers("selection", std::vector<std::int32_t>(6 * 16, -1), {6, 1, 16});
  expect_words(refusal(file, {{"k_scale", "0"}}),
               {"tensor 'selection' has shape [6, 1, 16]; expected T = 5 rows, as tensor 'q' has",
                "setting 'k_scale' is '0'"});
  file = indexed_batch();
  file.zeros("index_q", DType::bf16, {6, 1, 128});
  expect_words(refusal(file), {"tensor 'index_q' has shape [6, 1, 128]; expected T = 5 rows"});

  file = mixed_batch();
  file.remove("cu_seqlens_q");
  file.integers("seq_lens", {500, 500}, {2});
  file.integers("block_table", {0, 1, 2, 3, 3, 2, 1, 0}, {2, 4});
  file.zeros("q", DType::bf16, {34, 4, 128});
  file.integers("selection", std::vector<std::int32_t>(34, -1), {34, 1, 1});
  expect_words(refusal(file), {"2 decode requests share 34 rows of tensor 'q', 17 each; allowed: 1 "
                               "to 16 (pass the rows of longer requests as prefill"});
}

TEST(RunInputs, ATableThatIsMadeUpHasPagesForAllKeys) {
  RunFile file;
  file.zeros("q", DType::bf16, {2, 4, 128});
  file.zeros("kv_cache", DType::bf16, {3, 1, 128, 256});
  file.zeros("selection", DType::i32, {2, 1, 3});
  file.integers("seq_lens", {384}, {1});
  const SafetensorsFile fits = file.open();
  EXPECT_NO_THROW(RunProblem(fits, {}));
  file.integers("seq_lens", {385}, {1});
  expect_words(refusal(file),
               {"there is no tensor 'block_table', and the 3 pages of the cache hold "
                "fewer keys than the 385 of tensor 'seq_lens'"});
  // Of two shards each holds every other block.
  const SafetensorsFile shard = file.open();
  EXPECT_NO_THROW(RunProblem(shard, {{"kv_shard", "1/2"}}));
}

TEST(RunInputs, EmptyTensorsLieAnywhere) {
  RunFile file;
  file.zeros("odd", DType::u8, {1});  // what follows starts at an odd byte
  file.zeros("q", DType::bf16, {0, 4, 128});
  file.zeros("kv_cache", DType::bf16, {0, 1, 128, 256});
  file.integers("seq_lens", {}, {0});
  file.integers("block_table", {}, {0, 0});
  file.integers("selection", {}, {0, 1, 3});
  const SafetensorsFile opened = file.open();
  RunProblem problem(opened, {});
  EXPECT_NO_THROW(problem.run());
  EXPECT_EQ(problem.outputs().front().view.shape[0], 0);
}

TEST(RunInputs, UnreadTensorsAreReported) {
  RunFile file = mixed_batch();
  file.zeros("sequence_lengths", DType::f32, {1});
  const SafetensorsFile opened = file.open();
  EXPECT_EQ(RunProblem(opened, {}).ignored(), std::vector<std::string>{"sequence_lengths"});
}

TEST(RunInputs, AllFaultsOfAFileAreListed) {
  RunFile file = mixed_batch();
  file.zeros("q", DType::f32, {1, 4, 128});
  file.zeros("kv_cache", DType::bf16, {4, 1, 64, 256});
  file.integers("seq_lens", {130, 5}, {2});
  file.integers("block_table", {0, 1}, {2});
  file.remove("cu_seqlens_q");
  file.zeros("selection", DType::f32, {1, 1, 16});
  expect_words(refusal(file, {{"causal", "yes"}, {"k_scale", ""}}),
               {"tensor 'q' has dtype F32 (shape [1, 4, 128]); expected BF16 or F16",
                ("tensor 'kv_cache' has shape [4, 1, 64, 256]; expected [pages, Hkv, 128, 256] "
                 "(pages of 64 tokens; allowed: 128)"),
                "2 decode requests cannot share 1 rows of tensor 'q'",
                "tensor 'block_table' has shape [2]; expected [R, W]",
                "tensor 'selection' has dtype F32 (shape [1, 1, 16]); expected I32 or I64",
                "setting 'causal' is 'yes'", "setting 'k_scale' is ''"});

  file = mixed_batch();
  file.remove("selection");
  file.zeros("index_q", DType::bf16, {5, 1, 128});
  file.zeros("index_k", DType::bf16, {4, 32, 128});
  expect_words(refusal(file, {{"topk", "65"}, {"reduce_heads", "2"}, {"layout", "XYZ"}}),
               {"setting 'layout' is 'XYZ'", "setting 'reduce_heads' is '2'; expected 0 or 1",
                "setting 'topk' is 65; allowed: 1 to 64",
                ("tensor 'index_k' has shape [4, 32, 128]; expected [pages, 128, 128] "
                 "(pages of 32 tokens; allowed: 128)")});

  // What depends on a faulty tensor is not guessed at.
  file = mixed_batch();
  file.remove("seq_lens");
  file.zeros("q", DType::bf16, {5, 4, 64});
  const std::string label = file.open().label();
  EXPECT_EQ(refusal(file), label + ": tensor 'q' has shape [5, 4, 64]; expected [T, Hq, 128]\n" +
                               label +
                               ": there is no tensor 'seq_lens'; expected one of shape [R]");
}

TEST(RunInputs, UnusedSettingsAreReported) {
  RunFile file = mixed_batch();
  file.metadata("kv_dtype", "e4m3");
  const SafetensorsFile opened = file.open();
  const RunProblem problem(opened, {{"topk", "0"}, {"k_scale", "2"}});
  EXPECT_EQ(problem.ignored_settings(), (std::vector<std::string>{"kv_dtype", "topk"}));
  EXPECT_TRUE(problem.ignored().empty());
}

}  // namespace
}  // namespace msa::cli
