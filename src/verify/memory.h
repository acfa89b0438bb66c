// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "msa/tensor.h"
#include "verify/verify.h"

/// \file
/// Buffers between guard bands, strided arrays in them, and the poison that fills whatever a row
/// does not own.

namespace msa::verify {

/// What memory that nobody owns holds: quiet NaNs (and −1 in integers), or the largest finite
/// values (and INT_MAX). Results must be the same bits.
enum class Poison { nan, huge };

/// Which copy of an array a view points to: the host's (for the reference) or the target's.
enum class Side { host, target };

/// Bytes between two guard bands, on the host and on the target.
class Buffer {
 public:
  /// `misalign` bytes past a 256-byte boundary. `sparse`: only a reservation, for caches far larger
  /// than what is touched; no guard bands and no poison.
  Buffer(const Target& target, std::size_t bytes, std::size_t misalign = 0, bool sparse = false);
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  std::byte* data(Side side = Side::host) const;
  std::size_t bytes() const { return bytes_; }
  /// Repeats `pattern` (of `size` bytes) over the host's copy.
  void fill(const void* pattern, std::size_t size);

  void upload();  ///< all of it; a sparse buffer uploads by ranges
  void upload(std::size_t offset, std::size_t bytes);
  void download();  ///< all of it; a sparse buffer downloads by ranges
  void download(std::size_t offset, std::size_t bytes);
  /// After download(): whether both guard bands are as they were made.
  bool guards_intact() const;

 private:
  static constexpr std::size_t guard = 4096;

  void close_guards() const;  ///< to every access that a sanitizer sees
  void open_guards() const;

  Memory* memory_;
  std::size_t bytes_;
  std::size_t start_;  // of the payload in both copies
  std::size_t total_;
  bool sparse_;
  std::byte* host_ = nullptr;
  std::byte* target_ = nullptr;  // = host_ where the memory is host-visible
};

/// A strided array in a buffer of its own, fully poisoned when made.
class Array {
 public:
  Array() = default;
  /// Row-major with `strides` where given (in elements), `misalign` elements off a 256-byte
  /// boundary.
  Array(const Target& target, DType dtype, std::vector<std::int64_t> dims, Poison poison,
        std::vector<std::int64_t> strides = {}, std::int64_t misalign = 0);

  bool given() const { return buffer_ != nullptr; }
  Tensor view(Side side = Side::host) const;
  Buffer& buffer() const { return *buffer_; }
  template <class T>
  T* data() const {
    return reinterpret_cast<T*>(buffer_->data());
  }
  /// Offset of an element.
  std::int64_t at(std::int64_t i, std::int64_t j = 0, std::int64_t k = 0, std::int64_t l = 0) const;

 private:
  std::shared_ptr<Buffer> buffer_;
  Tensor host_;
  Device device_;
};

/// The i32 / f32 element of an array.
inline std::int32_t& i32(const Array& a, std::int64_t i, std::int64_t j = 0, std::int64_t k = 0) {
  return a.data<std::int32_t>()[a.at(i, j, k)];
}
inline float& f32(const Array& a, std::int64_t i, std::int64_t j = 0, std::int64_t k = 0) {
  return a.data<float>()[a.at(i, j, k)];
}

/// Bits of the poison of an element type, in the low size_of(type) bytes.
std::uint64_t poison_bits(DType type, Poison poison);
/// Fills `n` elements with poison.
void fill_poison(DType type, void* to, std::int64_t n, Poison poison);

/// The elements of the view as a dense array of their bits.
std::vector<std::byte> dense_bytes(const Tensor& view);
/// Whether every byte of the array outside of the first `rows` of dimension 0 of the view, gaps
/// between strides included, still equals `before` (the buffer's bytes), and both guards are
/// intact.
bool untouched_outside(const Array& array, const std::vector<std::byte>& before, std::int64_t rows);
/// The bytes of the host's copy.
std::vector<std::byte> snapshot(const Array& array);

/// Copies of arrays in reservations of their own, one dimension stretched until offsets pass 2^31
/// elements.
class FarArrays {
 public:
  static constexpr std::int64_t past = std::int64_t{1} << 31;  // elements

  explicit FarArrays(const Target& target) : target_(target) {}

  /// The elements of a host view where the last index of `dim` lies past 2^31 elements; the other
  /// strides stay. A view of the target's memory.
  Tensor spread(const Tensor& from, int dim = 0) { return place(from, dim, dense_bytes(from)); }
  /// Poison in the shape of a view, for an output: a call has to write all of it.
  Tensor blank(const Tensor& like, int dim = 0);
  /// The elements of a view that these functions returned, as the target left them, dense.
  std::vector<std::byte> contents(const Tensor& view) const;

 private:
  Tensor place(const Tensor& like, int dim, const std::vector<std::byte>& elements);

  const Target& target_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

}  // namespace msa::verify
