// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <limits>
#include <memory>

#include "cpu/attend_kernel.h"
#include "cpu/attend_plan.h"
#include "cpu/operators.h"
#include "cpu/parallel.h"
#include "cpu/tiles/kernels.h"

/// \file
/// attend: which tiles there are and which threads run them. No choice made here changes a bit: a
/// row of prefill does not depend on its tile, and decode's groups are the same wherever they run.

namespace msa::cpu {
namespace {

/// A task should be long beside the cost of handing it out, and there should be several a thread.
constexpr std::int64_t tasks_per_thread = 4;

/// Tokens of a prefill tile: 128 rows of q share a converted page, on tiles, where converting
/// it costs as much as multiplying it with three groups of rows, 512; fewer where the call is too
/// small to give every thread work.
std::int64_t prefill_tile_tokens(const AttendArgs& args, const AttendCall& call) {
  const std::int64_t tokens = args.batch.num_actual_tokens - args.batch.num_decode_tokens();
  const std::int64_t rows = call.on_tiles ? 512 : 128;
  const std::int64_t largest = std::clamp<std::int64_t>(rows / call.group, 1, max_tile_tokens);
  const std::int64_t wanted = tasks_per_thread * num_threads();
  return std::clamp<std::int64_t>(tokens * call.kv_heads / wanted, 1, largest);
}

/// Rows that belong to no request: 0 and −inf.
void write_empty(const AttendCall& call, const TileRows& rows) {
  const std::int64_t heads = call.kv_heads * call.group;
  const auto size = static_cast<std::int64_t>(size_of(call.out.type));
  for (std::int64_t t = rows.first; t < rows.first + rows.count; ++t) {
    for (std::int64_t h = 0; h < heads; ++h) {
      std::memset(
          static_cast<char*>(call.out.data) + (t * call.out.token + h * call.out.head) * size, 0,
          static_cast<std::size_t>(head_dim * size));
      if (call.lse.data != nullptr) {
        static_cast<float*>(call.lse.data)[t * call.lse.token + h * call.lse.head] =
            -std::numeric_limits<float>::infinity();
      }
    }
  }
}

/// Parts that each decode item's groups are cut into: as few as give all threads equal work, since
/// each part waits for its first page and converts its queries; 1 where there are items enough.
std::int64_t decode_parts(const DecodeSplit& split) {
  const std::int64_t threads = num_threads();
  std::int64_t parts = 1;
  while (parts < split.groups && split.items * parts % threads != 0 &&
         split.items * parts < tasks_per_thread * threads) {
    ++parts;
  }
  return parts;
}

/// Room for the decode groups' partials, or null where there is none.
float* decode_partials(const AttendArgs& args, const DecodeSplit& split) {
  const std::size_t bytes = split.workspace_bytes();
  void* memory = args.workspace.data;
  std::size_t space = args.workspace.bytes;
  if (bytes == 0 || memory == nullptr || space < bytes) return nullptr;
  return static_cast<float*>(std::align(64, bytes - 64, memory, space));
}

/// Whether products are computed on tiles: the contract's are those of bf16, as f16 ones would lose
/// three bits of q or of the cache.
bool on_tiles(const AttendCall& call) {
  return tiles::kernels() != nullptr && call.product_type() == DType::bf16;
}

}  // namespace

std::size_t workspace_size(const AttendArgs& args) { return DecodeSplit(args).workspace_bytes(); }

void attend(const AttendArgs& args) {
  AttendCall call(args);
  call.on_tiles = on_tiles(call);
  const AttendKernel kernel = attend_kernel();
  const BatchRows rows(args.batch, prefill_tile_tokens(args, call));
  const DecodeSplit split(args);
  const std::int64_t parts = decode_parts(split);
  float* const partials = parts > 1 ? decode_partials(args, split) : nullptr;
  const std::int64_t item_floats = split.groups * split.partial_floats();

  const auto prefill_tiles = static_cast<std::int64_t>(rows.prefill.size());
  const std::int64_t prefill_tasks = prefill_tiles * call.kv_heads;
  const std::int64_t decode_tasks = split.items * (partials != nullptr ? parts : 1);
  parallel_for(prefill_tasks + decode_tasks, [&](std::int64_t task) {
    if (task < prefill_tasks) {
      // Heads outermost: neighbouring tiles of one head share pages in the outer caches.
      kernel.tile(call, rows.prefill[task % prefill_tiles], task / prefill_tiles,
                  std::numeric_limits<std::int64_t>::max());
      return;
    }
    task -= prefill_tasks;
    if (partials == nullptr) {
      kernel.tile(call, rows.decode[task / call.kv_heads], task % call.kv_heads,
                  decode_group_blocks);
      return;
    }
    const std::int64_t item = task / parts;
    const std::int64_t part = task % parts;
    kernel.groups(call, rows.decode[item / call.kv_heads], item % call.kv_heads,
                  split.groups * part / parts, split.groups * (part + 1) / parts,
                  partials + item * item_floats);
  });
  if (partials != nullptr) {
    parallel_for(split.items, [&](std::int64_t item) {
      kernel.fold(call, rows.decode[item / call.kv_heads], item % call.kv_heads,
                  partials + item * item_floats);
    });
  }
  for (const TileRows& empty : rows.uncovered) write_empty(call, empty);
}

}  // namespace msa::cpu
