// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "verify/attend_problem.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <stdexcept>

#include "common/numeric.h"
#include "msa/device.h"

namespace msa::verify {
namespace {

std::int64_t blocks_of(std::int64_t keys) { return (keys + page_size - 1) / page_size; }

std::vector<std::int32_t> distinct_blocks(Rng& rng, std::int64_t valid, std::int64_t n) {
  std::set<std::int32_t> ids;
  while (static_cast<std::int64_t>(ids.size()) < std::min(n, valid)) {
    ids.insert(static_cast<std::int32_t>(rng.below(valid)));
  }
  return {ids.begin(), ids.end()};
}

std::int32_t invalid_id(Rng& rng, std::int64_t valid) {
  switch (rng.below(6)) {
    case 0:
      return std::numeric_limits<std::int32_t>::max();
    case 1:
      return 2143289344;  // the bits of a NaN, as a broken top-k emits them
    case 2:
      return std::numeric_limits<std::int32_t>::min();
    case 3:
      return static_cast<std::int32_t>(-2 - rng.below(100));
    case 4:
      return static_cast<std::int32_t>(valid + rng.below(3));
    default:
      return -1;
  }
}

/// Valid, invalid and repeated ids in any order; one row in ten is empty.
std::vector<std::int32_t> messy_ids(Rng& rng, std::int64_t valid, std::int64_t topk) {
  std::vector<std::int32_t> ids;
  if (!rng.chance(10)) ids = distinct_blocks(rng, valid, rng.below(topk) + 1);
  const auto good = static_cast<std::int64_t>(ids.size());
  while (static_cast<std::int64_t>(ids.size()) < topk) {
    ids.push_back(good > 0 && rng.chance(40) ? ids[rng.below(good)] : invalid_id(rng, valid));
  }
  rng.shuffle(ids);
  return ids;
}

/// The `topk` ids of one list of one row.
std::vector<std::int32_t> draw(Ids style, Rng& rng, std::int64_t position, std::int64_t valid,
                               std::int64_t topk) {
  std::vector<std::int32_t> ids;
  const std::int64_t own = valid - 1;
  switch (style) {
    case Ids::sorted:
      ids = distinct_blocks(rng, valid, topk);
      if (valid > 0) ids.back() = static_cast<std::int32_t>(own);
      break;
    case Ids::messy:
      return messy_ids(rng, valid, topk);
    case Ids::no_own:
      ids = distinct_blocks(rng, own, topk);
      break;
    case Ids::disjoint:
      for (std::int64_t b = std::max<std::int64_t>(position, 0) % 3; b < valid; b += 3) {
        if (static_cast<std::int64_t>(ids.size()) < topk) ids.push_back(static_cast<int>(b));
      }
      break;
    case Ids::block0:
      ids = {0};
      break;
    case Ids::late:
      ids = distinct_blocks(rng, valid, std::max<std::int64_t>(topk / 4, 1));
      while (static_cast<std::int64_t>(ids.size()) < topk) {
        ids.insert(ids.begin(), invalid_id(rng, valid));
      }
      break;
    case Ids::beyond:
      for (std::int64_t i = 0; i < topk; ++i) ids.push_back(static_cast<int>(valid + i));
      break;
    case Ids::none:
      break;
  }
  ids.resize(static_cast<std::size_t>(topk), -1);
  return ids;
}

}  // namespace

void Elements::set(std::int64_t i, double x) const {
  store(type, data, i, x);
  if (type == DType::e5m2 && std::isinf(x)) {  // which store saturates
    data[i] = x > 0 ? std::byte{0x7c} : std::byte{0xfc};
  }
}
double Elements::get(std::int64_t i) const { return load(type, data, i); }
void Elements::fill(std::int64_t begin, std::int64_t n, double x) const {
  for (std::int64_t i = begin; i < begin + n; ++i) set(i, x);
}

AttendProblem::AttendProblem(const Target& target, const AttendSpec& spec, Poison poison)
    : target_(target), spec_(spec), rows_(token_rows(spec.batch)) {
  const std::int64_t rows = tokens() + spec.spare_rows;
  const std::int64_t hs = spec.one_list ? 1 : spec.hkv;
  const std::int64_t head = head_dim + spec.head_pad;
  const std::vector<std::int64_t> strides = {spec.hq * head + spec.head_pad, head, 1};
  q_ = Array(target, spec.q, {rows, spec.hq, head_dim}, poison, strides, spec.misalign);
  out_ = Array(target, spec.out, {rows, spec.hq, head_dim}, poison, strides, spec.misalign);
  lse_ = Array(target, DType::f32, {rows, spec.hq}, poison, {spec.hq + spec.head_pad, 1},
               spec.misalign);
  selection_ =
      Array(target, DType::i32, {rows, hs, spec.topk}, poison,
            spec.head_major_selection ? std::vector<std::int64_t>{spec.topk, rows * spec.topk, 1}
                                      : std::vector<std::int64_t>{},
            spec.misalign);
  if (spec.device_scales) {
    k_scale_ = Array(target, DType::f32, {1}, poison);
    v_scale_ = Array(target, DType::f32, {1}, poison);
    f32(k_scale_, 0) = spec.k_scale;
    f32(v_scale_, 0) = spec.v_scale;
  }
  for (std::int64_t r = 0; r < spec.batch.num_requests(); ++r) {
    const Request& request = spec.batch.request(r);
    std::int64_t& keys = keys_of_[request.content];
    keys = std::max(keys, request.keys);
  }
  draw_ids();
  place_pages();
  fill_table(poison);
  make_cache(poison);
  fill_queries();
  workspace_ = Array(target, DType::u8,
                     {static_cast<std::int64_t>(workspace_size(args(Side::target)))}, poison);
}

std::int64_t AttendProblem::visible(std::int64_t row) const {
  const TokenRow& r = rows_[row];
  if (r.request < 0) return 0;
  if (!spec_.causal) return spec_.batch.request(r.request).keys;
  return std::max<std::int64_t>(r.position + 1, 0);
}

std::int64_t AttendProblem::selected_keys(std::int64_t row, std::int64_t list) const {
  std::set<std::int64_t> ids;
  for (std::int64_t i = 0; i < spec_.topk; ++i) ids.insert(i32(selection_, row, list, i));
  std::int64_t keys = 0;
  for (std::int64_t b : ids) {
    if (b < 0 || b % spec_.shard.world != spec_.shard.rank) continue;
    keys += std::clamp<std::int64_t>(visible(row) - b * page_size, 0, page_size);
  }
  return keys;
}

void AttendProblem::draw_ids() {
  const std::int64_t lists = selection_.view().shape[1];
  for (std::int64_t t = 0; t < tokens(); ++t) {
    const TokenRow& row = rows_[t];
    const std::int64_t valid = blocks_of(visible(t));
    for (std::int64_t list = 0; list < lists; ++list) {
      Rng rng(seed_of({spec_.seed, 1, row.content, static_cast<std::uint64_t>(row.position),
                       static_cast<std::uint64_t>(list)}));
      std::vector<std::int32_t> ids = draw(spec_.ids, rng, row.position, valid, spec_.topk);
      if (spec_.edit_ids) spec_.edit_ids(row.content, row.position, list, ids);
      for (std::int64_t i = 0; i < spec_.topk; ++i) {
        i32(selection_, t, list, i) = ids[i];
        if (row.request < 0 || ids[i] < 0 || ids[i] >= valid) continue;
        std::vector<bool>& heads = used_[{row.content, ids[i]}];
        heads.resize(static_cast<std::size_t>(spec_.hkv), false);
        for (std::int64_t h = 0; h < spec_.hkv; ++h) {
          if (lists == 1 || h == list) heads[h] = true;
        }
      }
    }
  }
}

void AttendProblem::place_pages() {
  std::vector<std::int64_t> slots;
  for (const auto& [block, heads] : used_) {
    if (block.second % spec_.shard.world == spec_.shard.rank) pages_[block] = 0;
  }
  const std::int64_t n = static_cast<std::int64_t>(pages_.size()) + 1 + spec_.spare_pages;
  for (std::int64_t i = 0; i < n; ++i) slots.push_back(spec_.first_page + i);
  Rng rng(seed_of({spec_.page_seed, 2}));
  rng.shuffle(slots);
  for (auto& [block, page] : pages_) {
    page = slots.back();
    slots.pop_back();
  }
  poison_page_ = slots.empty() ? -1 : slots.back();
  pool_ = spec_.first_page + n;
}

void AttendProblem::fill_table(Poison poison) {
  const std::int64_t world = spec_.shard.world;
  const std::int64_t columns =
      spec_.batch.table_columns((blocks_of(spec_.batch.max_keys()) + world - 1) / world);
  batch_ = BatchArrays(target_, spec_.batch, columns, poison);
  for (std::int64_t r = 0; r < spec_.batch.num_requests(); ++r) {
    const Request& request = spec_.batch.request(r);
    const std::int64_t room = spec_.batch.table_room(r, columns);
    for (std::int64_t b = spec_.shard.rank; b < blocks_of(request.keys); b += world) {
      if (b / world >= room) break;
      const auto page = pages_.find({request.content, b});
      std::int32_t& cell = i32(batch_.table(), r, b / world);
      cell = static_cast<std::int32_t>(page == pages_.end() ? poison_page_ : page->second);
      Rng rng(seed_of({spec_.seed, 3, request.content, static_cast<std::uint64_t>(b)}));
      if (!spec_.garbage_cells || !rng.chance(30)) continue;
      const std::int32_t bad[] = {-1, static_cast<std::int32_t>(pool_),
                                  std::numeric_limits<std::int32_t>::max(),
                                  std::numeric_limits<std::int32_t>::min()};
      cell = bad[rng.below(4)];
    }
  }
}

std::byte* AttendProblem::make_pool(std::int64_t elements) {
  const std::size_t size = size_of(spec_.kv);
  caches_.push_back(std::make_unique<Buffer>(target_, static_cast<std::size_t>(elements) * size,
                                             static_cast<std::size_t>(spec_.misalign) * size,
                                             spec_.first_page > 0));
  return caches_.back()->data();
}

void AttendProblem::make_views() {
  const std::int64_t half = std::int64_t{page_size} * head_dim;  // K of one page and head
  const std::int64_t heads = spec_.hkv * half;
  const std::vector<std::int64_t> dims = {pool_, spec_.hkv, page_size, head_dim};
  if (spec_.form == Form::pools) {
    k_ = Tensor(make_pool(pool_ * heads), spec_.kv, dims,
                std::vector<std::int64_t>{heads, half, head_dim, 1});
    v_ = Tensor(make_pool(pool_ * (heads + 64)), spec_.kv, dims,
                std::vector<std::int64_t>{heads + 64, head_dim, spec_.hkv * head_dim, 1});
    return;
  }
  if (spec_.form == Form::interleaved) {
    const std::vector<std::int64_t> strides = {2 * spec_.layers * heads, head_dim,
                                               spec_.hkv * head_dim, 1};
    const auto size = static_cast<std::int64_t>(size_of(spec_.kv));
    std::byte* base = make_pool(2 * spec_.layers * pool_ * heads) + 2 * spec_.layer * heads * size;
    k_ = Tensor(base, spec_.kv, dims, strides);
    v_ = Tensor(base + heads * size, spec_.kv, dims, strides);
    return;
  }
  const KVCacheShape shape{spec_.layers, pool_, spec_.hkv};
  packed_ = kv_layer_view(make_pool(shape.numel()), spec_.kv, spec_.layout, shape, spec_.layer);
  k_ = packed_.narrow(3, 0, head_dim);
  v_ = packed_.narrow(3, head_dim, head_dim);
}

Elements AttendProblem::cache_row(std::uint64_t content, std::int64_t block, std::int64_t head,
                                  std::int64_t token, int part) const {
  const Tensor& t = part == 0 ? k_ : v_;
  const std::int64_t at =
      pages_.at({content, block}) * t.stride[0] + head * t.stride[1] + token * t.stride[2];
  return {spec_.kv, t.ptr<std::byte>() + at * static_cast<std::int64_t>(size_of(spec_.kv))};
}

void AttendProblem::make_cache(Poison poison) {
  make_views();
  const std::size_t size = size_of(spec_.kv);
  if (spec_.first_page == 0) {
    const std::uint64_t bits = poison_bits(spec_.kv, poison);
    for (const auto& cache : caches_) cache->fill(&bits, size);
  } else {  // of a reservation, only the pages of the call
    for (std::int64_t i = 0; i < (pool_ - spec_.first_page) * spec_.hkv * page_size; ++i) {
      for (const Tensor& t : {k_, v_}) {
        const std::int64_t page = spec_.first_page + i / (spec_.hkv * page_size);
        const std::int64_t at = page * t.stride[0] + i / page_size % spec_.hkv * t.stride[1] +
                                i % page_size * t.stride[2];
        fill_poison(spec_.kv, t.ptr<std::byte>() + at * static_cast<std::int64_t>(size), head_dim,
                    poison);
      }
    }
  }
  for (const auto& [block, page] : pages_) {
    const std::vector<bool>& heads = used_.at(block);
    for (std::int64_t h = 0; h < spec_.hkv; ++h) {
      if (heads[h]) fill_tile(block, h);
    }
  }
}

void AttendProblem::fill_tile(const Block& block, std::int64_t head) {
  const std::size_t half = head_dim * size_of(spec_.kv);
  std::vector<std::byte> tile(2 * page_size * half);
  const auto seed = seed_of({spec_.seed, 4, block.first, static_cast<std::uint64_t>(block.second),
                             static_cast<std::uint64_t>(head)});
  for (std::int64_t j = 0; j < page_size; ++j) {
    for (int part = 0; part < 2; ++part) {
      fill_normal(spec_.kv, tile.data() + static_cast<std::size_t>(2 * j + part) * half, head_dim,
                  seed + static_cast<std::uint64_t>(2 * j + part),
                  part == 0 ? spec_.k_gain : spec_.v_gain);
    }
  }
  if (spec_.edit_tile) spec_.edit_tile(block.first, block.second, head, {spec_.kv, tile.data()});
  const std::int64_t keys =
      std::min<std::int64_t>(keys_of_.at(block.first) - block.second * page_size, page_size);
  for (std::int64_t j = 0; j < keys; ++j) {
    for (int part = 0; part < 2; ++part) {
      std::memcpy(cache_row(block.first, block.second, head, j, part).data,
                  tile.data() + static_cast<std::size_t>(2 * j + part) * half, half);
    }
  }
}

void AttendProblem::fill_queries() {
  for (std::int64_t t = 0; t < tokens(); ++t) {
    const TokenRow& row = rows_[t];
    if (row.request < 0) continue;  // poison: padding rows are not read
    for (std::int64_t h = 0; h < spec_.hq; ++h) {
      const Elements e{spec_.q, q_.data<std::byte>() + q_.at(t, h) * 2};
      fill_normal(spec_.q, e.data, head_dim,
                  seed_of({spec_.seed, 6, row.content, static_cast<std::uint64_t>(row.position),
                           static_cast<std::uint64_t>(h)}),
                  spec_.q_gain);
      if (spec_.edit_q) spec_.edit_q(row.content, row.position, h, e);
    }
  }
}

AttendArgs AttendProblem::args(Side side) const {
  AttendArgs a;
  const auto at = [&](Tensor t, std::size_t pool) {
    const std::ptrdiff_t offset = t.ptr<std::byte>() - caches_[pool]->data();
    t.data = caches_[pool]->data(side) + offset;
    if (side == Side::target) t.device = target_.device;
    return t;
  };
  a.q = q_.view(side);
  a.kv_cache = spec_.form == Form::packed ? ConstKVCache(at(packed_, 0))
                                          : ConstKVCache(at(k_, 0), at(v_, caches_.size() - 1));
  a.selection = selection_.view(side);
  a.batch = batch_.metadata(side);
  a.out = out_.view(side);
  if (spec_.with_lse) a.lse = lse_.view(side);
  a.softmax_scale = spec_.softmax_scale;
  a.k_scale = spec_.device_scales ? Scale(ConstTensor(k_scale_.view(side))) : spec_.k_scale;
  a.v_scale = spec_.device_scales ? Scale(ConstTensor(v_scale_.view(side))) : spec_.v_scale;
  a.causal = spec_.causal;
  a.invariant = spec_.invariant;
  a.kv_shard = spec_.shard;
  a.workspace_cap = spec_.workspace_cap;
  if (workspace_.given()) {
    a.workspace = {workspace_.buffer().data(side), workspace_.buffer().bytes()};
  }
  a.stream = target_.stream;
  return a;
}

void AttendProblem::upload() {
  batch_.upload();
  for (const Array* a : {&q_, &selection_, &out_, &lse_, &workspace_, &k_scale_, &v_scale_}) {
    if (a->given()) a->buffer().upload();
  }
  if (spec_.first_page == 0) {
    for (const auto& cache : caches_) cache->upload();
    return;
  }
  // Of a reservation, the tiles of the pages in use, each with what its stride spans.
  const auto upload_tile = [&](const Tensor& t, Buffer& cache, std::int64_t page,
                               std::int64_t head) {
    const std::byte* first = t.ptr<std::byte>() + (page * t.stride[0] + head * t.stride[1]) *
                                                      static_cast<std::int64_t>(size_of(t.dtype));
    const std::int64_t elements = (page_size - 1) * t.stride[2] + head_dim;
    cache.upload(static_cast<std::size_t>(first - cache.data()),
                 static_cast<std::size_t>(elements) * size_of(t.dtype));
  };
  for (std::int64_t page = spec_.first_page; page < pool_; ++page) {
    for (std::int64_t head = 0; head < spec_.hkv; ++head) {
      upload_tile(k_, *caches_.front(), page, head);
      upload_tile(v_, *caches_.back(), page, head);
    }
  }
}

AttendOutput AttendProblem::run(Judge& judge, const std::function<void(AttendArgs&)>& change) {
  const std::vector<std::byte> out_before = snapshot(out_), lse_before = snapshot(lse_);
  upload();
  AttendArgs call = args(Side::target);
  if (change) change(call);
  const std::int64_t rows = call.batch.num_actual_tokens;
  judge.require(call.workspace.bytes <= spec_.workspace_cap, "workspace_size is above the cap");
  target_.submit([&] { attend(call); });
  target_.synchronize();
  for (const Array* a : {&out_, &lse_, &workspace_}) a->buffer().download();
  const std::string expected =
      expected_backend(target_, {call.kv_cache.k_view(), call.kv_cache.v_view()});
  judge.require(last_backend() == expected, std::string("served by backend '") + last_backend() +
                                                "' instead of '" + expected + "'");
  judge.require(untouched_outside(out_, out_before, rows), "wrote outside of out's rows");
  judge.require(untouched_outside(lse_, lse_before, spec_.with_lse ? rows : 0),
                "wrote outside of lse's rows");
  judge.require(workspace_.buffer().guards_intact(), "wrote outside of the workspace");
  AttendOutput output{dense_bytes(out_.view().narrow(0, 0, rows)), {}};
  if (spec_.with_lse) output.lse = dense_bytes(lse_.view().narrow(0, 0, rows));
  return output;
}

void AttendProblem::take_contents(const AttendProblem& other) {
  const auto copy = [](Buffer& to, const Buffer& from) {
    if (to.bytes() != from.bytes()) throw std::logic_error("problems of different shapes");
    std::memcpy(to.data(), from.data(), to.bytes());
  };
  copy(q_.buffer(), other.q_.buffer());
  copy(selection_.buffer(), other.selection_.buffer());
  copy(table().buffer(), other.table().buffer());
  copy(seq_lens().buffer(), other.seq_lens().buffer());
  if (spec_.device_scales) {
    copy(k_scale_.buffer(), other.k_scale_.buffer());
    copy(v_scale_.buffer(), other.v_scale_.buffer());
  }
  for (std::size_t i = 0; i < caches_.size(); ++i) copy(*caches_[i], *other.caches_[i]);
}

}  // namespace msa::verify
