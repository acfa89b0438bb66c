// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "msa/export.h"

/// \file
/// Element types, devices and the fixed sizes of MiniMax-M3 sparse attention.

namespace msa {

/// Elements of one attention head. Fixed by the model.
inline constexpr int head_dim = 128;
/// Tokens of one cache page, and of one selectable block: the same by contract.
inline constexpr int page_size = 128;
/// Largest number of blocks one row may select.
inline constexpr int max_topk = 64;
/// Largest number of query tokens of one decode request (m).
inline constexpr int max_decode_query_len = 16;
/// Largest number of query heads that share one KV head (G = Hq / Hkv).
inline constexpr int max_group = 16;
/// Largest number of index heads (Hi).
inline constexpr int max_index_heads = 16;
/// Default upper bound of a call's workspace, in bytes.
inline constexpr std::size_t default_workspace_cap = std::size_t{256} << 20;

/// Element type of a tensor. `u8` only names raw storage: an fp8 cache that arrives as bytes is
/// given its type with `Tensor::as(DType::e4m3)`.
enum class DType : std::int32_t {
  f32 = 0,
  bf16 = 1,
  f16 = 2,
  e4m3 = 3,  ///< OCP fp8 E4M3 (finite, "fn"): largest value 448, NaN 0x7f/0xff, no infinity
  e5m2 = 4,  ///< OCP fp8 E5M2: largest finite value 57344, has infinities
  i32 = 5,
  i64 = 6,
  u8 = 7,
};

/// Bytes of one element.
constexpr std::size_t size_of(DType type) {
  switch (type) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::i64:
      return 8;
    case DType::e4m3:
    case DType::e5m2:
    case DType::u8:
      return 1;
  }
  return 0;
}

/// "f32", "bf16", "f16", "e4m3", "e5m2", "i32", "i64", "u8"; "invalid" for anything else.
MSA_API const char* name(DType type);

/// Reads a type's name, engines' aliases included: "auto" and "bfloat16" → bf16, "float16" and
/// "half" → f16, "fp8" and "fp8_e4m3" → e4m3, "fp8_e5m2" → e5m2, … Nothing for an unknown name.
MSA_API std::optional<DType> parse_dtype(std::string_view text);

/// Where a tensor's memory lives.
enum class DeviceType : std::int32_t {
  cpu = 0,
  cuda = 1,
  cuda_host = 2,  ///< host memory that a CUDA device can reach (pinned)
};

/// "cpu", "cuda", "cuda_host".
MSA_API const char* name(DeviceType type);

/// One device.
struct Device {
  DeviceType type = DeviceType::cpu;  ///< its kind
  std::int32_t index = 0;             ///< CUDA device ordinal; 0 for the CPU

  /// The same device.
  friend constexpr bool operator==(const Device&, const Device&) = default;
};

/// The stream a call runs on: a `cudaStream_t` for CUDA tensors, ignored for CPU tensors.
struct Stream {
  void* handle = nullptr;  ///< null = the default stream
};

/// Caller-owned scratch memory on the tensors' device, at least as large as the operator's
/// `workspace_size` says. Its contents never matter, before or after a call. It overlaps no tensor
/// of the call.
struct Workspace {
  void* data = nullptr;   ///< null is fine where no byte is needed
  std::size_t bytes = 0;  ///< size of the memory at `data`
};

}  // namespace msa
