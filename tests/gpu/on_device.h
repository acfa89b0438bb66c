// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/place.h"
#include "msa/msa.h"

/// \file
/// Calls on host memory, made calls on device memory.

namespace msa::gpu_test {

/// Calls f(tensor) for every tensor of a call; f takes outputs as Tensor&, inputs as ConstTensor&.
template <class Pointer, class F>
void each_tensor(BasicKVCache<Pointer>& cache, F&& f) {
  f(cache.packed);
  f(cache.k);
  f(cache.v);
}
template <class F>
void each_tensor(BatchMetadata& b, F&& f) {
  f(b.seq_lens);
  f(b.block_table);
  f(b.cu_seqlens_q);
  f(b.context_lens);
}
template <class F>
void each_tensor(AttendArgs& a, F&& f) {
  f(a.q);
  each_tensor(a.kv_cache, f);
  f(a.selection);
  each_tensor(a.batch, f);
  f(a.out);
  f(a.lse);
}
template <class F>
void each_tensor(IndexArgs& a, F&& f) {
  f(a.index_q);
  f(a.index_cache);
  each_tensor(a.batch, f);
  f(a.selection);
}
template <class F>
void each_tensor(IndexScoresArgs& a, F&& f) {
  f(a.index_q);
  f(a.index_cache);
  each_tensor(a.batch, f);
  f(a.scores);
}
template <class F>
void each_tensor(SelectArgs& a, F&& f) {
  f(a.scores);
  f(a.valid_blocks);
  f(a.selection);
}
template <class F>
void each_tensor(MergeArgs& a, F&& f) {
  f(a.out_a);
  f(a.lse_a);
  f(a.out_b);
  f(a.lse_b);
  f(a.out);
  f(a.lse);
}
template <class F>
void each_tensor(WriteCacheArgs& a, F&& f) {
  f(a.qkv);
  f(a.positions);
  f(a.cos_sin);
  f(a.q_norm);
  f(a.k_norm);
  f(a.index_q_norm);
  f(a.index_k_norm);
  f(a.slot_mapping);
  f(a.index_slot_mapping);
  f(a.q_out);
  each_tensor(a.kv_cache, f);
  f(a.index_q_out);
  f(a.index_cache);
}
template <class F>
void each_tensor(InsertCacheArgs& a, F&& f) {
  f(a.k);
  f(a.v);
  f(a.index_k);
  f(a.slot_mapping);
  f(a.index_slot_mapping);
  each_tensor(a.kv_cache, f);
  f(a.index_cache);
}
template <class F>
void each_tensor(CopyPagesArgs& a, F&& f) {
  f(a.src);
  f(a.dst);
  f(a.pairs);
}

/// The memory of one call in a place. Outputs start as bytes that no operator writes there.
class Moved {
 public:
  explicit Moved(Place& place) : place_(place) {}
  Moved(const Moved&) = delete;
  Moved& operator=(const Moved&) = delete;
  ~Moved() {
    for (const Piece& piece : pieces_) place_.free(piece.data, piece.bytes);
  }

  /// Of dense tensors.
  void operator()(ConstTensor& tensor) {
    if (tensor.given()) tensor.data = move(tensor.data, bytes_of(tensor));
    tensor.device = place_.device();
  }
  void operator()(Tensor& tensor) {
    if (tensor.given()) {
      tensor.data = move(tensor.data, bytes_of(tensor));
      place_.set(tensor.data, 0xAB, bytes_of(tensor));
    }
    tensor.device = place_.device();
  }
  /// `args` on this memory and on the place's stream.
  template <class Args>
  Args moved(Args args) {
    each_tensor(args, *this);
    args.stream = place_.stream();
    if constexpr (requires { args.workspace; }) {
      const std::size_t bytes = workspace_size(args);
      args.workspace = {move(std::vector<std::byte>(bytes + 1).data(), bytes + 1), bytes};
    }
    return args;
  }

  /// Every byte of it, after all calls so far.
  std::vector<std::byte> contents() const {
    std::vector<std::byte> all;
    for (const Piece& piece : pieces_) {
      const std::size_t at = all.size();
      all.resize(at + piece.bytes);
      place_.download(all.data() + at, piece.data, piece.bytes);
    }
    return all;
  }

 private:
  struct Piece {
    void* data;
    std::size_t bytes;
  };

  static std::size_t bytes_of(const ConstTensor& tensor) {
    return static_cast<std::size_t>(tensor.numel()) * size_of(tensor.dtype);
  }
  void* move(const void* from, std::size_t bytes) {
    void* memory = place_.allocate(bytes);
    pieces_.push_back({memory, bytes});
    place_.upload(memory, from, bytes);
    return memory;
  }

  Place& place_;
  std::vector<Piece> pieces_;
};

}  // namespace msa::gpu_test
