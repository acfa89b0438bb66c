// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cuda/common/tensor_map.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "cuda/common/launch.h"
#include "msa/error.h"

namespace msa::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

/// From the driver at run time: the library links none.
Encode find_encode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                              12000, cudaEnableDefault, &found);
  if (status != cudaSuccess || found != cudaDriverEntryPointSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  return reinterpret_cast<Encode>(function);
}

struct Dimension {
  const char* name;
  int index;
};
constexpr Dimension strided[] = {{"token", 2}, {"head", 1}, {"page", 0}};
constexpr std::int64_t row_bytes = 128;
constexpr std::int64_t alignment = 16;
constexpr std::int64_t stride_limit = std::int64_t{1} << 40;

/// Bytes from one index to the next; a dimension of one index may come with any stride, which must
/// not decide.
std::int64_t stride_bytes(const ConstTensor& view, int dimension) {
  const auto size = static_cast<std::int64_t>(size_of(view.dtype));
  if (view.shape[dimension] == 1) return page_size * head_dim * size;
  return view.stride[dimension] * size;
}

}  // namespace

Reasons tensor_map_reasons(const char* name, const ConstTensor& view) {
  Reasons reasons;
  if (view.shape[0] == 0 || view.shape[1] == 0) {
    reasons.push_back(std::string(name) + " is empty");
    return reasons;
  }
  if (reinterpret_cast<std::uintptr_t>(view.data) % alignment != 0) {
    reasons.push_back(std::string(name) + " does not start at a multiple of 16 bytes");
  }
  for (const Dimension& d : strided) {
    const std::int64_t bytes = stride_bytes(view, d.index);
    if (bytes % alignment == 0 && bytes > 0 && bytes < stride_limit) continue;
    reasons.push_back(std::string(name) + " has a " + d.name + " stride of " +
                      std::to_string(bytes) + " bytes; allowed: multiples of 16 below 2^40");
  }
  return reasons;
}

CUtensorMap tile_map(const char* op, const ConstTensor& view) {
  static const Encode encode = find_encode();
  CUtensorMap map{};
  const bool bytes = size_of(view.dtype) == 1;
  const CUtensorMapDataType type = bytes                       ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                   : view.dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                               : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  const auto size = static_cast<std::int64_t>(size_of(view.dtype));
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(view.shape[3]), page_size,
                                static_cast<cuuint64_t>(view.shape[1]),
                                static_cast<cuuint64_t>(view.shape[0])};
  cuuint64_t strides[3];
  std::transform(std::begin(strided), std::end(strided), strides, [&](const Dimension& d) {
    return static_cast<cuuint64_t>(stride_bytes(view, d.index));
  });
  const cuuint32_t box[] = {static_cast<cuuint32_t>(row_bytes / size), page_size, 1, 1};
  const cuuint32_t steps[] = {1, 1, 1, 1};
  // No L2 promotion: pages are read once, and fetching 256 bytes at a time costs 4-5 % here.
  const CUresult status =
      encode == nullptr
          ? CUDA_ERROR_NOT_SUPPORTED
          : encode(&map, type, 4, const_cast<void*>(view.data), extents, strides, box, steps,
                   CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                   CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    throw Error(ErrorCode::device, std::string(op) + ": cuTensorMapEncodeTiled failed with code " +
                                       std::to_string(static_cast<int>(status)));
  }
  return map;
}

}  // namespace msa::cuda
