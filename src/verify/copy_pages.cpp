// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "msa/copy_pages.h"

#include <cstring>
#include <string>

#include "msa/device.h"
#include "msa/kv_cache.h"
#include "verify/compare.h"
#include "verify/inputs.h"
#include "verify/memory.h"

/// \file
/// copy_pages: every form of page, within and between caches.

namespace msa::verify {
namespace {

/// Which part of a page is copied.
enum class Part { packed, k, v, index };

struct CopySpec {
  Part part = Part::packed;
  DType type = DType::bf16;
  std::int64_t heads = 3;
  KVLayout src = KVLayout::LBHNC;
  KVLayout dst = KVLayout::LBHNC;
  bool within = false;  // dst is src
  std::int64_t pairs = 5;
  bool bad_pairs = false;     // some name no page
  std::int64_t misalign = 0;  // elements; dst's base
  std::int64_t dst_page_pad = 0;
  std::int64_t first_page = 0;  // > 0: dst's page ids start here, in a sparse reservation
};

constexpr std::int64_t pages = 12;

struct Pool {
  std::shared_ptr<Buffer> buffer;
  Tensor view;  // on the host

  Tensor on(const Target& target, Side side) const {
    Tensor t = view;
    t.data = buffer->data(side) + (view.ptr<std::byte>() - buffer->data());
    if (side == Side::target) t.device = target.device;
    return t;
  }
};

Pool make_pool(const Target& target, const CopySpec& s, KVLayout layout, bool destination) {
  const std::int64_t n = pages + (destination ? s.first_page : 0);
  const KVCacheShape shape{2, n, s.heads};
  const std::int64_t page_pad = destination ? s.dst_page_pad : 0;
  const std::int64_t index_page = std::int64_t{page_size} * head_dim + page_pad;
  const std::int64_t elements = s.part == Part::index ? n * index_page : shape.numel();
  const std::size_t size = size_of(s.type);
  const std::size_t misalign = destination ? static_cast<std::size_t>(s.misalign) * size : 0;
  Pool pool;
  pool.buffer = std::make_shared<Buffer>(target, static_cast<std::size_t>(elements) * size,
                                         misalign, destination && s.first_page > 0);
  const Tensor packed = kv_layer_view(pool.buffer->data(), s.type, layout, shape, 1);
  switch (s.part) {
    case Part::packed:
      pool.view = packed;
      break;
    case Part::k:
      pool.view = packed.narrow(3, 0, head_dim);
      break;
    case Part::v:
      pool.view = packed.narrow(3, head_dim, head_dim);
      break;
    case Part::index:
      pool.view =
          Tensor(pool.buffer->data(), s.type, {n, page_size, head_dim}, {index_page, head_dim, 1});
      break;
  }
  if (destination && s.first_page > 0) return pool;
  // Any bits: a copy must keep NaN payloads too.
  Rng rng(destination ? 2 : 1);
  for (std::size_t i = 0; i + 8 <= pool.buffer->bytes(); i += 8) {
    const std::uint64_t bits = rng.next();
    std::memcpy(pool.buffer->data() + i, &bits, sizeof bits);
  }
  return pool;
}

std::vector<std::byte> page_bytes(const Tensor& view, std::int64_t page) {
  return dense_bytes(view.narrow(0, page, 1));
}

void put_page(const Tensor& view, std::int64_t page, const std::vector<std::byte>& bytes) {
  const std::size_t size = size_of(view.dtype);
  const std::byte* from = bytes.data();
  const std::int64_t heads = view.rank == 4 ? view.shape[1] : 1,
                     content = view.shape[view.rank - 1];
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t j = 0; j < page_size; ++j) {
      const std::int64_t at = page * view.stride[0] + (view.rank == 4 ? h * view.stride[1] : 0) +
                              j * view.stride[view.rank - 2];
      std::memcpy(view.ptr<std::byte>() + static_cast<std::size_t>(at) * size, from,
                  static_cast<std::size_t>(content) * size);
      from += static_cast<std::size_t>(content) * size;
    }
  }
}

/// What the page's strides span.
void download_page(Buffer& buffer, const Tensor& view, std::int64_t page) {
  const std::size_t size = size_of(view.dtype);
  const std::byte* first =
      view.ptr<std::byte>() + static_cast<std::size_t>(page * view.stride[0]) * size;
  std::int64_t elements = 1;
  for (int i = 1; i < view.rank; ++i) elements += (view.shape[i] - 1) * view.stride[i];
  buffer.download(static_cast<std::size_t>(first - buffer.data()),
                  static_cast<std::size_t>(elements) * size);
}

Outcome check_copy(const Target& target, const CopySpec& s) {
  Judge judge;
  const Pool src = make_pool(target, s, s.src, false);
  const Pool dst = s.within ? src : make_pool(target, s, s.dst, true);
  const std::int64_t last = dst.view.shape[0] - 1;
  const Array pairs(target, DType::i64, {s.pairs, 2}, Poison::nan, {3, 1});
  auto* numbers = pairs.data<std::int64_t>();
  for (std::int64_t i = 0; i < s.pairs; ++i) {
    // Sources 0, 1, …; destinations from the last page downwards.
    std::int64_t from = i, to = last - i;
    if (s.bad_pairs && i % 3 == 1) from = i % 2 == 0 ? -1 : pages;
    if (s.bad_pairs && i % 3 == 2) to = i % 2 == 0 ? INT64_MIN : INT64_MAX;
    numbers[i * 3] = from;
    numbers[i * 3 + 1] = to;
  }
  std::vector<std::byte> want;
  const bool sparse = s.first_page > 0;
  if (!sparse) want.assign(dst.buffer->data(), dst.buffer->data() + dst.buffer->bytes());
  std::vector<std::vector<std::byte>> contents;
  for (std::int64_t i = 0; i < s.pairs; ++i) contents.push_back(page_bytes(src.view, i));

  src.buffer->upload();
  if (!sparse) dst.buffer->upload();
  pairs.buffer().upload();
  CopyPagesArgs args;
  args.src = src.on(target, Side::target);
  args.dst = dst.on(target, Side::target);
  args.pairs = pairs.view(Side::target);
  args.stream = target.stream;
  target.submit([&] { copy_pages(args); });
  target.synchronize();
  if (sparse) {
    for (std::int64_t i = 0; i < s.pairs; ++i) download_page(*dst.buffer, dst.view, last - i);
  } else {
    dst.buffer->download();
  }
  judge.require(last_backend() == target.backend,
                std::string("served by backend '") + last_backend() + "'");

  Tensor expected = dst.view;
  if (!sparse) expected.data = want.data() + (dst.view.ptr<std::byte>() - dst.buffer->data());
  for (std::int64_t i = 0; i < s.pairs; ++i) {
    const std::int64_t from = numbers[i * 3], to = numbers[i * 3 + 1];
    if (from < 0 || from >= pages || to < 0 || to > last) continue;
    if (sparse) {
      judge.require(page_bytes(dst.view, to) == contents[i], "page " + std::to_string(to));
    } else {
      put_page(expected, to, contents[i]);
    }
  }
  if (!sparse) {
    judge.same_bits(dst.buffer->data(), want.data(), 1, {static_cast<std::int64_t>(want.size())},
                    "the destination's memory");
  }
  judge.require(dst.buffer->guards_intact(), "wrote outside of the destination");
  return judge.outcome();
}

void add(std::vector<Case>& cases, const std::string& name, const CopySpec& spec,
         bool slow = false) {
  cases.push_back(
      {"copy_pages", "grid", name, [spec](const Target& t) { return check_copy(t, spec); }, slow});
}

const char* name_of(Part part) {
  const char* names[] = {"packed pages", "K halves", "V halves", "index pages"};
  return names[static_cast<int>(part)];
}

}  // namespace

void add_copy_cases(std::vector<Case>& cases) {
  for (Part part : {Part::packed, Part::k, Part::v, Part::index}) {
    for (DType type : {DType::bf16, DType::f16, DType::e4m3, DType::e5m2, DType::u8}) {
      CopySpec s;
      s.part = part;
      s.type = type;
      const std::string suffix = std::string(name_of(part)) + ", " + name(type);
      add(cases, "between caches, " + suffix, s);
      s.within = true;
      add(cases, "within a cache, " + suffix, s);
      s.within = false;
      s.bad_pairs = true;
      s.pairs = 9;
      s.misalign = 1;
      s.dst_page_pad = 7;
      add(cases, "pairs that name no page, misaligned, " + suffix, s);
    }
    for (KVLayout layout : all_kv_layouts) {
      CopySpec s;
      s.part = part;
      s.src = layout;
      s.dst = layout;
      if (part == Part::index) break;
      add(cases, std::string(name(layout)) + ", " + name_of(part), s);
      s.within = true;
      add(cases, std::string("within ") + name(layout) + ", " + name_of(part), s);
      s.within = false;
      s.dst = KVLayout::LBNHC;
      add(cases, std::string(name(layout)) + " to LBNHC, " + name_of(part), s);
    }
    CopySpec none;
    none.part = part;
    none.pairs = 0;
    add(cases, std::string("zero size: no pair, ") + name_of(part), none);
    CopySpec far;
    far.part = part;
    far.heads = 4;
    far.first_page = part == Part::index ? 262144 : 17000;
    add(cases, std::string("offsets past 2^31 elements, ") + name_of(part), far, true);
  }
}

}  // namespace msa::verify
