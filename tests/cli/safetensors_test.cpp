// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/io/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <numeric>

#include "error_of.h"
#include "msa/error.h"
#include "scratch.h"

namespace msa::cli {
namespace {

std::string image_of(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string image(reinterpret_cast<const char*>(&length), sizeof(length));
  return image + header + std::string(data_bytes, '\1');
}

SafetensorsFile parse(const std::string& image) {
  return SafetensorsFile::parse(std::as_bytes(std::span(image.data(), image.size())), "x.st");
}

/// The error's text; fails the test where the image is accepted.
std::string refusal(const std::string& image) {
  return error_of([&] { parse(image); }, ErrorCode::io);
}

void expect_refused(const std::string& header, std::size_t data_bytes, const std::string& words) {
  const std::string text = refusal(image_of(header, data_bytes));
  EXPECT_NE(text.find(words), std::string::npos) << text;
  EXPECT_EQ(text.rfind("x.st: ", 0), 0U) << text;
}

TEST(Safetensors, ReadsTensorsAndMetadata) {
  const std::string image = image_of(
      R"({"__metadata__":{"a":"b"},"x":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
      R"("y":{"dtype":"F64","shape":[],"data_offsets":[12,20]}}   )",
      20);
  const SafetensorsFile file = parse(image);
  ASSERT_NE(file.find("x"), nullptr);
  EXPECT_EQ(file.find("x")->dtype, DType::bf16);
  EXPECT_EQ(file.find("x")->shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(file.find("x")->bytes.size(), 12U);
  EXPECT_EQ(file.find("y")->dtype, std::nullopt);
  EXPECT_EQ(file.find("z"), nullptr);
  EXPECT_EQ(file.metadata().at("a"), "b");
}

TEST(Safetensors, AlignsTensorsThatLieAtOddAddresses) {
  const std::string image = image_of(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                                     R"("b":{"dtype":"I64","shape":[2],"data_offsets":[3,19]}})",
                                     19);
  const SafetensorsFile file = parse(image);
  const auto* bytes = file.find("b")->bytes.data();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes) % 8, 0U);
  std::int64_t first = 0;
  std::memcpy(&first, bytes, 8);
  EXPECT_EQ(first, 0x0101010101010101);
}

// A tensor of no elements is one of any address all the same, and a call checks it.
TEST(Safetensors, AlignsEmptyTensorsToo) {
  const std::string image = image_of(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                                     R"("b":{"dtype":"I64","shape":[0,7],"data_offsets":[3,3]},)"
                                     R"("c":{"dtype":"BF16","shape":[0],"data_offsets":[3,3]}})",
                                     3);
  const SafetensorsFile file = parse(image);
  for (const auto& [name, element] : {std::pair("b", 8U), std::pair("c", 2U)}) {
    const auto bytes = file.find(name)->bytes;
    EXPECT_TRUE(bytes.empty());
    EXPECT_NE(bytes.data(), nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes.data()) % element, 0U);
  }
}

TEST(Safetensors, RefusesABrokenFrame) {
  EXPECT_NE(refusal("abc").find("has 3 bytes"), std::string::npos);
  EXPECT_NE(refusal(std::string(8, '\xff')).find("gives its header"), std::string::npos);
  EXPECT_NE(refusal(std::string("\x10\0\0\0\0\0\0\0{}", 10)).find("16 bytes; allowed: 2"),
            std::string::npos);
  expect_refused("nonsense", 0, "the header is not JSON");
  expect_refused("[1]", 0, "not a JSON object");
  expect_refused("\"\xff\"", 0, "the header is not JSON");
}

TEST(Safetensors, NamesTheTensorOfEveryFault) {
  expect_refused(R"({"x":3})", 0, "tensor 'x' is not a JSON object");
  expect_refused(R"({"x":{"shape":[1],"data_offsets":[0,1]}})", 1, "tensor 'x' has no 'dtype'");
  expect_refused(R"({"x":{"dtype":"F7","shape":[1],"data_offsets":[0,1]}})", 1,
                 "tensor 'x' has the unknown dtype 'F7'");
  expect_refused(R"({"x":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1,
                 "tensor 'x' has no 'shape' made of whole numbers");
  expect_refused(R"({"x":{"dtype":"U8","shape":[1.5],"data_offsets":[0,1]}})", 1, "'shape'");
  expect_refused(R"({"x":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,1]}})", 1,
                 "'shape'");
  expect_refused(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1,
                 "tensor 'x' has data_offsets [0]");
  expect_refused(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1, "data_offsets");
  expect_refused(R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 1, "begin ≤ end ≤ 1");
  expect_refused(R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}})", 1,
                 "of shape [2] and dtype U8 has 1 bytes of data; expected 2");
  expect_refused(R"({"x":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0,
                 "more than any file can hold");
  expect_refused(R"({"x":{"dtype":"F32","shape":[4611686018427387904,4,0],"data_offsets":[0,0]}})",
                 0, "more than any file can hold");
  expect_refused(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"z":1}})", 1,
                 "unknown key 'z'");
  expect_refused(R"({"__metadata__":{"a":1}})", 0, "metadata 'a' is not a string");
}

TEST(Safetensors, RefusesOverlapsGapsAndRepeats) {
  expect_refused(R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                 R"("y":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                 3, "tensor 'y' starts at byte 1 of the data; expected 2");
  expect_refused(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2, "there is a gap");
  expect_refused(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 2,
                 "has 2 bytes of data; its tensors end at 1");
  expect_refused(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                 R"("x":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                 2, "names 'x' twice");
}

TEST(Safetensors, WhatIsWrittenIsReadBack) {
  const std::string path = scratch_folder() / "round_trip.safetensors";
  std::vector<float> a(6);
  std::iota(a.begin(), a.end(), 0.5f);
  const std::uint16_t b[2] = {1, 2};
  const TensorToStore tensors[] = {{"a", ConstTensor::dense(a.data(), DType::f32, {2, 3})},
                                   {"b", ConstTensor::dense(b, DType::f16, {2})},
                                   {"none", ConstTensor::dense(b, DType::i64, {0, 4})}};
  write_safetensors(path, tensors, {{"key", "väl\"ue"}});
  const SafetensorsFile file = SafetensorsFile::open(path);
  ASSERT_EQ(file.tensors().size(), 3U);
  EXPECT_EQ(file.metadata().at("key"), "väl\"ue");
  EXPECT_EQ(std::memcmp(file.find("a")->bytes.data(), a.data(), 24), 0);
  EXPECT_EQ(std::memcmp(file.find("b")->bytes.data(), b, 4), 0);
  EXPECT_EQ(file.find("none")->shape, (std::vector<std::int64_t>{0, 4}));
}

TEST(Safetensors, RefusesToWriteWhatIsNotDense) {
  const float a[8] = {};
  const TensorToStore tensors[] = {{"a", ConstTensor(a, DType::f32, {2, 2}, {4, 1})}};
  EXPECT_THROW(write_safetensors(scratch_folder() / "x", tensors, {}), Error);
}

TEST(Safetensors, NamesTheFileThatCannotBeOpened) {
  try {
    SafetensorsFile::open("/no/such/file");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "/no/such/file: No such file or directory");
  }
  EXPECT_THROW(SafetensorsFile::open("/tmp"), Error);
}

TEST(Safetensors, TypeNamesGoBothWays) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16, DType::e4m3, DType::e5m2,
                           DType::i32, DType::i64, DType::u8}) {
    EXPECT_EQ(safetensors_dtype(safetensors_name(type)), type);
  }
  EXPECT_EQ(safetensors_dtype("F64"), std::nullopt);
}

}  // namespace
}  // namespace msa::cli
