// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "cuda/common/device.h"
#include "cuda/common/devices.h"
#include "cuda/common/launch.h"
#include "cuda/portable/operators.h"
#include "cuda/portable/write_cache/kernel.cuh"

/// \file
/// Host side of write_cache and insert_cache: what becomes of each head of a row.

namespace msa::cuda::portable {
namespace {

std::int64_t bytes(DType type, std::int64_t elements) {
  return elements * static_cast<std::int64_t>(size_of(type));
}

/// Of four elements.
std::size_t quad_bytes(DType type) { return 4 * size_of(type); }

void set_type(Part& part, DType type) {
  part.to_type = type;
  part.to_size = static_cast<int>(size_of(type));
}

/// What a launch depends on of a device.
struct Traits {
  std::int64_t ctas = 0;  // that run at once
  bool has_dependent_launch = false;
};

Traits find_traits(const char* op, void (*kernel)(WriteParams), int device) {
  int sms = 0, ctas_of_sm = 0;
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device), op,
        "cudaDeviceGetAttribute");
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&ctas_of_sm, kernel, write_threads, 0), op,
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  return {std::int64_t{sms} * ctas_of_sm, capability(device) >= first_with_dependent_launch};
}

template <DType in, Rows rows>
void launch_kernel(const char* op, int device, Stream stream, const WriteParams& p) {
  const auto kernel = write_kernel<in, rows>;
  // Asked once for each device that notes have room for.
  static DeviceNotes<Traits> notes;
  const auto find = [&](int asked) { return find_traits(op, kernel, asked); };
  const Traits traits = device < max_devices ? notes.of(device, find) : find(device);
  const auto ctas_of = [](std::int64_t warps) { return (warps + write_warps - 1) / write_warps; };
  // One wave of CTAs at most, whose warps take several tokens each where there are more; on any
  // device a whole row's.
  const std::int64_t ctas =
      std::max(std::min(ctas_of((p.tokens + 1) / 2 * p.pairs), traits.ctas), ctas_of(p.pairs));
  if (traits.has_dependent_launch) {
    launch_dependent(op, kernel, ctas, write_threads, 0, stream, p);
  } else {
    launch(op, kernel, ctas, write_threads, stream, p);
  }
}

void launch_rows(const char* op, const ConstTensor& rows, Stream stream, const WriteParams& p) {
  if (p.tokens == 0 || p.pairs == 0) return;
  const bool bf16 = rows.dtype == DType::bf16;
  const auto run = p.aligned ? bf16 ? launch_kernel<DType::bf16, Rows::aligned>
                                    : launch_kernel<DType::f16, Rows::aligned>
                   : bf16 ? launch_kernel<DType::bf16, Rows::unaligned>
                             : launch_kernel<DType::f16, Rows::unaligned>;
  run(op, rows.device.index, stream, p);
}

}  // namespace

Part& WriteParams::add(std::int64_t heads, const Norm& norm) {
  Part& part = parts[part_count++];
  part.heads = static_cast<int>(heads);
  part.norm = norm;
  pairs += part.pairs();
  return part;
}

Norm WriteParams::norm_of(const ConstTensor& weights) {
  require_aligned(weights.data, quad_bytes(weights.dtype), {});
  return {weights.ptr<char>(), weights.dtype};
}

void WriteParams::require_aligned(const void* base, std::size_t unit,
                                  std::initializer_list<std::int64_t> strides) {
  std::uintptr_t all = reinterpret_cast<std::uintptr_t>(base);
  for (std::int64_t stride : strides) all |= static_cast<std::uintptr_t>(stride);
  aligned = aligned && all % unit == 0;
}

void WriteParams::read(Part& part, const ConstTensor& rows, std::int64_t first_head) {
  part.from_token = bytes(rows.dtype, rows.stride[0]);
  part.from_head = bytes(rows.dtype, rows.rank == 3 ? rows.stride[1] : head_dim);
  part.from = rows.ptr<char>() + first_head * part.from_head;
  require_aligned(part.from, quad_bytes(rows.dtype), {part.from_token, part.from_head});
}

void WriteParams::write_rows(Part& part, const ConstTensor& rows) {
  part.to = const_cast<char*>(rows.ptr<char>());
  set_type(part, rows.dtype);
  part.to_token = bytes(rows.dtype, rows.stride[0]);
  part.to_head = bytes(rows.dtype, rows.stride[1]);
  require_aligned(part.to, quad_bytes(rows.dtype), {part.to_token, part.to_head});
}

void WriteParams::write_pages(Part& part, const ConstTensor& cache,
                              const ConstTensor& slot_mapping) {
  part.to = const_cast<char*>(cache.ptr<char>());
  set_type(part, cache.dtype);
  part.to_page = bytes(cache.dtype, cache.stride[0]);
  part.to_head = cache.rank == 4 ? bytes(cache.dtype, cache.stride[1]) : 0;
  part.to_token = bytes(cache.dtype, cache.stride[cache.rank == 4 ? 2 : 1]);
  part.slots = slot_mapping.ptr<std::int64_t>();
  part.row_count = cache.shape[0] * page_size;
  require_aligned(part.to, quad_bytes(cache.dtype), {part.to_page, part.to_head, part.to_token});
}

WriteParams::WriteParams(const WriteCacheArgs& args)
    : tokens(args.num_tokens),
      eps(args.norm_eps),
      positions(args.positions.ptr<std::int64_t>()),
      cos_sin(args.cos_sin.ptr<char>()),
      cos_sin_type(args.cos_sin.dtype),
      cos_sin_row(bytes(args.cos_sin.dtype, args.cos_sin.stride[0])),
      max_position(args.cos_sin.shape[0]) {
  require_aligned(cos_sin, quad_bytes(cos_sin_type), {cos_sin_row});
  // Parts in the order of a row.
  std::int64_t first_head = 0;
  const auto next = [&](std::int64_t heads, const Norm& norm) -> Part& {
    Part& part = add(heads, norm);
    read(part, args.qkv, first_head);
    first_head += heads;
    return part;
  };
  const std::int64_t kv_heads = args.kv_cache.shape_view().shape[1];
  write_rows(next(args.q_out.shape[1], norm_of(args.q_norm)), args.q_out);
  Part& k = next(kv_heads, norm_of(args.k_norm));
  write_pages(k, args.kv_cache.k_view(), args.slot_mapping);
  k.scale = ScaleView(args.k_scale);
  Part& v = next(kv_heads, Norm());
  write_pages(v, args.kv_cache.v_view(), args.slot_mapping);
  v.scale = ScaleView(args.v_scale);
  if (!args.index_q_out.given()) return;
  write_rows(next(args.index_q_out.shape[1], norm_of(args.index_q_norm)), args.index_q_out);
  write_pages(next(1, norm_of(args.index_k_norm)), args.index_cache, args.index_slot_mapping);
}

WriteParams::WriteParams(const InsertCacheArgs& args) : tokens(args.num_tokens) {
  const auto insert = [&](const ConstTensor& rows, const ConstTensor& cache,
                          const ConstTensor& slots, const Scale& scale) {
    Part& part = add(cache.rank == 4 ? cache.shape[1] : 1, Norm());
    read(part, rows, 0);
    write_pages(part, cache, slots);
    part.scale = ScaleView(scale);
  };
  const Tensor k = args.kv_cache.k_view(), v = args.kv_cache.v_view();
  if (k.given()) {
    insert(args.k, k, args.slot_mapping, args.k_scale);
    insert(args.v, v, args.slot_mapping, args.v_scale);
  }
  if (args.index_cache.given()) {
    insert(args.index_k, args.index_cache, args.index_slot_mapping, Scale());
  }
}

void write_cache(const WriteCacheArgs& args) {
  launch_rows("write_cache", args.qkv, args.stream, WriteParams(args));
}

void insert_cache(const InsertCacheArgs& args) {
  const ConstTensor& rows = args.k.given() ? args.k : args.index_k;
  launch_rows("insert_cache", rows, args.stream, WriteParams(args));
}

}  // namespace msa::cuda::portable
