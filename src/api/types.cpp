// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "msa/types.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <utility>

#include "msa/error.h"
#include "msa/kv_cache.h"

namespace msa {
namespace {

std::string lower(std::string_view text) {
  std::string s(text);
  std::transform(s.begin(), s.end(), s.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return s;
}

template <class Value, std::size_t N>
std::optional<Value> find(const std::array<std::pair<std::string_view, Value>, N>& names,
                          std::string_view text) {
  const std::string wanted = lower(text);
  for (const auto& [known, value] : names) {
    if (lower(known) == wanted) return value;
  }
  return std::nullopt;
}

std::string join(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : "\n") + line;
  return text;
}

}  // namespace

const char* name(DType type) {
  switch (type) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::e4m3:
      return "e4m3";
    case DType::e5m2:
      return "e5m2";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
    case DType::u8:
      return "u8";
  }
  return "invalid";
}

std::optional<DType> parse_dtype(std::string_view text) {
  static constexpr auto names = std::to_array<std::pair<std::string_view, DType>>({
      {"f32", DType::f32},       {"float32", DType::f32},
      {"float", DType::f32},     {"bf16", DType::bf16},
      {"bfloat16", DType::bf16}, {"auto", DType::bf16},
      {"f16", DType::f16},       {"float16", DType::f16},
      {"half", DType::f16},      {"fp16", DType::f16},
      {"e4m3", DType::e4m3},     {"fp8", DType::e4m3},
      {"fp8_e4m3", DType::e4m3}, {"float8_e4m3fn", DType::e4m3},
      {"f8_e4m3", DType::e4m3},  {"e5m2", DType::e5m2},
      {"fp8_e5m2", DType::e5m2}, {"float8_e5m2", DType::e5m2},
      {"f8_e5m2", DType::e5m2},  {"i32", DType::i32},
      {"int32", DType::i32},     {"i64", DType::i64},
      {"int64", DType::i64},     {"u8", DType::u8},
      {"uint8", DType::u8},
  });
  return find(names, text);
}

const char* name(DeviceType type) {
  switch (type) {
    case DeviceType::cpu:
      return "cpu";
    case DeviceType::cuda:
      return "cuda";
    case DeviceType::cuda_host:
      return "cuda_host";
  }
  return "invalid";
}

const char* name(KVLayout layout) {
  switch (layout) {
    case KVLayout::LBHNC:
      return "LBHNC";
    case KVLayout::LBNHC:
      return "LBNHC";
    case KVLayout::LHBNC:
      return "LHBNC";
    case KVLayout::BLHNC:
      return "BLHNC";
    case KVLayout::BLNHC:
      return "BLNHC";
    case KVLayout::BHLNC:
      return "BHLNC";
  }
  return "invalid";
}

std::optional<KVLayout> parse_kv_layout(std::string_view text) {
  static constexpr auto names = std::to_array<std::pair<std::string_view, KVLayout>>({
      {"LBHNC", KVLayout::LBHNC},
      {"HND", KVLayout::LBHNC},
      {"LBNHC", KVLayout::LBNHC},
      {"NHD", KVLayout::LBNHC},
      {"LHBNC", KVLayout::LHBNC},
      {"BLHNC", KVLayout::BLHNC},
      {"BLNHC", KVLayout::BLNHC},
      {"BHLNC", KVLayout::BHLNC},
  });
  return find(names, text);
}

const char* name(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::workspace:
      return "workspace";
    case ErrorCode::device:
      return "device";
    case ErrorCode::io:
      return "io";
    case ErrorCode::internal:
      return "internal";
  }
  return "unknown";
}

Error::Error(ErrorCode code, std::vector<std::string> failures)
    : std::runtime_error(join(failures)), code_(code), failures_(std::move(failures)) {}

Error::Error(ErrorCode code, std::string failure)
    : Error(code, std::vector<std::string>{std::move(failure)}) {}

}  // namespace msa
