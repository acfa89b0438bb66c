// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/common/ptx/mma.cuh"
#include "cuda/common/warp.cuh"
#include "cuda/portable/index/config.h"
#include "cuda/portable/index/params.h"

/// \file
/// A warp's part of the ring: it asks for its keys of each slot of a segment, in turn. A key's
/// chunks of 16 bytes are swizzled by the key.

namespace msa::cuda::portable::index {

template <class Keys, int n>
class Fetch {
  using Sizes = Team<Keys, n>;

 public:
  /// `part`: this warp's of the first slot, `warp`: among the CTA's.
  __device__ Fetch(const ScoreParams& p, const Segment& s, std::uint32_t part, int warp)
      : p_(p),
        request_(s.request),
        end_(s.page_end),
        block_(s.page_begin),
        lane_(static_cast<int>(threadIdx.x) % warp_size),
        to_(part) {
    const int key = warp * keys + lane_ / chunks, chunk = lane_ % chunks;
    from_ = p_.keys + key * p_.key_token + chunk * 16;
    to_ += lane_ / chunks * Keys::key_bytes + (chunk ^ key % 8) * 16;
    found_ = page_of(block_ + lane_);
    ahead_ = page_of(block_ + warp_size + lane_);
  }

  /// Asks for the next slot; whether its page exists is the lowest bit of exists().
  __device__ void next() {
    std::int32_t page = -1;
    if (block_ < end_) page = __shfl_sync(0xffffffffu, found_, index_);
    exists_ = exists_ << 1 | (page >= 0 ? 1u : 0u);
    if (page >= 0) {
      const char* from = from_ + page * p_.key_page + part_ * Sizes::slot_keys * p_.key_token;
      const std::uint32_t to = to_ + slot_ * Sizes::slot_bytes;
      if (p_.keys_aligned) {
#pragma unroll
        for (int i = 0; i < copies; ++i) ptx::copy_16(place(to, i), from + i * step_bytes());
      } else {
#pragma unroll 1
        for (int i = 0; i < copies; ++i) copy(place(to, i), from + i * step_bytes());
      }
    }
    ptx::commit_copies();
    slot_ = slot_ + 1 == Sizes::slots ? 0 : slot_ + 1;
    if (++part_ < Sizes::slots_a_page) return;
    part_ = 0;
    ++block_;
    if (++index_ < warp_size) return;
    index_ = 0;
    found_ = ahead_;
    ahead_ = page_of(block_ + warp_size + lane_);
  }

  /// Bit i: whether the page of the slot asked for i slots ago exists.
  __device__ std::uint32_t exists() const { return exists_; }

 private:
  static constexpr int keys = warp_slot_bytes / Keys::key_bytes;  // of a warp and slot
  static constexpr int chunks = Keys::key_bytes / 16;             // of a key
  static constexpr int step = warp_size / chunks;                 // keys that are copied together
  static constexpr int copies = keys / step;

  __device__ std::int64_t step_bytes() const { return step * p_.key_token; }
  /// Where a lane's copy `i` goes: step · i keys on, swizzled by that key.
  __device__ static std::uint32_t place(std::uint32_t to, int i) {
    return (to ^ step * i % 8 * 16) + step * i * Keys::key_bytes;
  }

  __device__ std::int32_t page_of(std::int32_t block) const {
    if (block >= end_) return -1;
    return static_cast<std::int32_t>(find_page(p_.batch, request_, block, p_.pages));
  }

  /// 16 bytes from where elements alone are aligned.
  __device__ static void copy(std::uint32_t to, const char* from) {
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (Keys::key_bytes == 256) {
        const auto* two = reinterpret_cast<const std::uint16_t*>(from) + 2 * i;
        words[i] = two[0] | std::uint32_t{two[1]} << 16;
      } else {
        const auto* four = reinterpret_cast<const std::uint8_t*>(from) + 4 * i;
        words[i] = four[0] | std::uint32_t{four[1]} << 8 | std::uint32_t{four[2]} << 16 |
                   std::uint32_t{four[3]} << 24;
      }
    }
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]), "r"(words[1]),
                 "r"(words[2]), "r"(words[3])
                 : "memory");
  }

  const ScoreParams& p_;
  const std::int32_t request_, end_;
  std::int32_t block_;
  const int lane_;
  int part_ = 0;   // of the page
  int index_ = 0;  // of the page, among `found_`
  int slot_ = 0;
  std::int32_t found_, ahead_;  // pages, one a lane
  std::uint32_t exists_ = 0;
  const char* from_;  // this lane's first chunk, of page 0
  std::uint32_t to_;  // and of slot 0
};

}  // namespace msa::cuda::portable::index
