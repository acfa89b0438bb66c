// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "verify/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>

#include "common/sanitizer.h"
#if MSA_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace msa::verify {
namespace {

#if MSA_ADDRESS_SANITIZER
/// Under the address sanitizer even a read of a guard band is a fault.
void close_band(const std::byte* begin, std::size_t bytes) {
  ASAN_POISON_MEMORY_REGION(begin, bytes);
}
void open_band(const std::byte* begin, std::size_t bytes) {
  ASAN_UNPOISON_MEMORY_REGION(begin, bytes);
}
#else
void close_band(const std::byte*, std::size_t) {}
void open_band(const std::byte*, std::size_t) {}
#endif

constexpr std::size_t boundary = 256;
constexpr int guard_byte = 0xA5;

void* reserve(std::size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  return p;
}

/// Calls f(offset) for every row of up to five dimensions, the innermost left out.
template <class F>
void for_each_row(const Tensor& t, int dim, std::int64_t offset, F&& f) {
  if (dim >= t.rank - 1 || dim >= Tensor::max_rank - 1) {
    f(offset);
    return;
  }
  for (std::int64_t i = 0; i < t.shape[dim]; ++i) {
    for_each_row(t, dim + 1, offset + i * t.stride[dim], f);
  }
}

/// Calls f(byte offset, bytes) for every run of adjacent elements of the view's rows, in row-major
/// order: a row, or each element of rows that are not dense.
template <class F>
void for_each_run(const Tensor& t, F&& f) {
  const auto size = static_cast<std::int64_t>(size_of(t.dtype));
  const std::int64_t elements = t.shape[t.rank - 1], stride = t.stride[t.rank - 1];
  for_each_row(t, 0, 0, [&](std::int64_t row) {
    if (stride == 1) {
      if (elements > 0) f(row * size, static_cast<std::size_t>(elements * size));
      return;
    }
    for (std::int64_t i = 0; i < elements; ++i) {
      f((row + i * stride) * size, static_cast<std::size_t>(size));
    }
  });
}

}  // namespace

Buffer::Buffer(const Target& target, std::size_t bytes, std::size_t misalign, bool sparse)
    : memory_(target.memory),
      bytes_(bytes),
      start_((sparse ? 0 : guard) + misalign),
      total_(start_ + bytes + guard),
      sparse_(sparse) {
  if (sparse) {
    host_ = static_cast<std::byte*>(reserve(total_));
  } else {
    host_ = static_cast<std::byte*>(::operator new (total_, std::align_val_t{boundary}));
    std::memset(host_, guard_byte, total_);
  }
  target_ = memory_->host_visible() ? host_ : static_cast<std::byte*>(memory_->allocate(total_));
  close_guards();
}

void Buffer::close_guards() const {
  if (sparse_) return;
  close_band(host_, start_);
  close_band(host_ + start_ + bytes_, guard);
}

void Buffer::open_guards() const {
  if (!sparse_) open_band(host_, total_);
}

Buffer::~Buffer() {
  open_guards();
  if (target_ != host_) memory_->free(target_);
  if (sparse_) {
    munmap(host_, total_);
  } else {
    ::operator delete (host_, std::align_val_t{boundary});
  }
}

std::byte* Buffer::data(Side side) const { return (side == Side::host ? host_ : target_) + start_; }

void Buffer::fill(const void* pattern, std::size_t size) {
  std::byte* to = data();
  if (size == 1) {
    std::memset(to, *static_cast<const unsigned char*>(pattern), bytes_);
    return;
  }
  std::size_t done = std::min(size, bytes_);
  std::memcpy(to, pattern, done);
  while (done < bytes_) {  // doubling: whole patterns are copied each time
    const std::size_t n = std::min(done, bytes_ - done);
    std::memcpy(to + done, to, n);
    done += n;
  }
}

void Buffer::upload() {
  if (target_ == host_) return;
  open_guards();
  memory_->upload(target_, host_, total_);
  close_guards();
}

void Buffer::upload(std::size_t offset, std::size_t bytes) {
  if (target_ != host_) {
    memory_->upload(data(Side::target) + offset, data(Side::host) + offset, bytes);
  }
}

void Buffer::download() {
  if (target_ == host_) return;
  open_guards();
  memory_->download(host_, target_, total_);
  close_guards();
}

void Buffer::download(std::size_t offset, std::size_t bytes) {
  if (target_ != host_) {
    memory_->download(data(Side::host) + offset, data(Side::target) + offset, bytes);
  }
}

bool Buffer::guards_intact() const {
  if (sparse_) return true;
  const auto intact = [](std::byte b) { return b == std::byte{guard_byte}; };
  open_guards();
  const bool all = std::all_of(host_, host_ + start_, intact) &&
                   std::all_of(host_ + start_ + bytes_, host_ + total_, intact);
  close_guards();
  return all;
}

Array::Array(const Target& target, DType dtype, std::vector<std::int64_t> dims, Poison poison,
             std::vector<std::int64_t> strides, std::int64_t misalign)
    : device_(target.device) {
  if (strides.empty()) {
    strides.assign(dims.size(), 1);
    for (std::size_t i = dims.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * dims[i];
  }
  std::int64_t extent = 1;
  bool empty = false;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    extent += std::max<std::int64_t>(dims[i] - 1, 0) * strides[i];
    empty = empty || dims[i] == 0;
  }
  if (empty) extent = 0;
  buffer_ = std::make_shared<Buffer>(target, static_cast<std::size_t>(extent) * size_of(dtype),
                                     static_cast<std::size_t>(misalign) * size_of(dtype));
  fill_poison(dtype, buffer_->data(), extent, poison);
  host_ = Tensor(buffer_->data(), dtype, dims, strides);
}

Tensor Array::view(Side side) const {
  Tensor t = host_;
  t.data = buffer_->data(side);
  if (side == Side::target) t.device = device_;
  return t;
}

std::int64_t Array::at(std::int64_t i, std::int64_t j, std::int64_t k, std::int64_t l) const {
  return i * host_.stride[0] + j * host_.stride[1] + k * host_.stride[2] + l * host_.stride[3];
}

std::uint64_t poison_bits(DType type, Poison poison) {
  const bool nan = poison == Poison::nan;
  switch (type) {
    case DType::f32:
      return nan ? 0x7fc12345 : 0x7f7fffff;
    case DType::bf16:
      return nan ? 0x7fc1 : 0x7f7f;
    case DType::f16:
      return nan ? 0x7e01 : 0x7bff;
    case DType::e4m3:
      return nan ? 0x7f : 0x7e;
    case DType::e5m2:
      return nan ? 0x7f : 0x7b;
    case DType::i32:
      return nan ? 0xffffffff : 0x7fffffff;
    case DType::i64:
      return nan ? ~std::uint64_t{0} : ~std::uint64_t{0} >> 1;
    case DType::u8:
      return nan ? 0xff : 0x7f;
  }
  return 0;
}

void fill_poison(DType type, void* to, std::int64_t n, Poison poison) {
  const std::uint64_t bits = poison_bits(type, poison);
  switch (size_of(type)) {
    case 1:
      std::memset(to, static_cast<int>(bits), static_cast<std::size_t>(n));
      break;
    case 2:
      std::fill_n(static_cast<std::uint16_t*>(to), n, static_cast<std::uint16_t>(bits));
      break;
    case 4:
      std::fill_n(static_cast<std::uint32_t*>(to), n, static_cast<std::uint32_t>(bits));
      break;
    default:
      std::fill_n(static_cast<std::uint64_t*>(to), n, bits);
  }
}

std::vector<std::byte> dense_bytes(const Tensor& view) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(view.numel()) * size_of(view.dtype));
  std::byte* to = bytes.data();
  for_each_run(view, [&](std::int64_t offset, std::size_t n) {
    std::memcpy(to, static_cast<const std::byte*>(view.data) + offset, n);
    to += n;
  });
  return bytes;
}

bool untouched_outside(const Array& array, const std::vector<std::byte>& before,
                       std::int64_t rows) {
  std::vector<std::byte> expected = before;
  const Tensor owned = array.view().narrow(0, 0, rows);
  const std::byte* now = array.buffer().data();
  for_each_run(owned, [&](std::int64_t offset, std::size_t n) {
    std::memcpy(expected.data() + offset, now + offset, n);
  });
  return std::equal(expected.begin(), expected.end(), now) && array.buffer().guards_intact();
}

std::vector<std::byte> snapshot(const Array& array) {
  const std::byte* data = array.buffer().data();
  return {data, data + array.buffer().bytes()};
}

Tensor FarArrays::blank(const Tensor& like, int dim) {
  std::vector<std::byte> poison(static_cast<std::size_t>(like.numel()) * size_of(like.dtype));
  fill_poison(like.dtype, poison.data(), like.numel(), Poison::nan);
  return place(like, dim, poison);
}

Tensor FarArrays::place(const Tensor& like, int dim, const std::vector<std::byte>& elements) {
  Tensor view = like;
  view.stride[dim] = past / std::max<std::int64_t>(like.shape[dim] - 1, 1) + 1;
  std::int64_t extent = 1;
  for (int i = 0; i < view.rank; ++i) extent += (view.shape[i] - 1) * view.stride[i];
  buffers_.push_back(std::make_unique<Buffer>(
      target_, static_cast<std::size_t>(extent) * size_of(view.dtype), 0, true));
  Buffer& buffer = *buffers_.back();
  const std::byte* next = elements.data();
  for_each_run(view, [&](std::int64_t offset, std::size_t n) {
    std::memcpy(buffer.data() + offset, next, n);
    buffer.upload(static_cast<std::size_t>(offset), n);
    next += n;
  });
  view.data = buffer.data(Side::target);
  view.device = target_.device;
  return view;
}

std::vector<std::byte> FarArrays::contents(const Tensor& view) const {
  for (const auto& buffer : buffers_) {
    if (buffer->data(Side::target) != view.data) continue;
    for_each_run(view, [&](std::int64_t offset, std::size_t n) {
      buffer->download(static_cast<std::size_t>(offset), n);
    });
    Tensor on_host = view;
    on_host.data = buffer->data();
    return dense_bytes(on_host);
  }
  throw std::logic_error("no view of these arrays");
}

}  // namespace msa::verify
