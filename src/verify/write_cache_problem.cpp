// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "verify/write_cache_problem.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/numeric.h"
#include "msa/device.h"

namespace msa::verify {
namespace {

constexpr std::int64_t max_position = 300;
constexpr std::int64_t rotary = 64;

std::int64_t& i64(const Array& a, std::int64_t i) { return a.data<std::int64_t>()[a.at(i)]; }

/// What happens to a token besides being written, by its name.
struct Fate {
  bool no_slot, no_index_slot, far_slot, far_index_slot, no_position;
};
Fate fate_of(const WriteSpec& s, std::int64_t token) {
  if (!s.skips) return {};
  const std::int64_t n = s.first_token + token;
  return {n % 5 == 3, n % 7 == 2, n % 11 == 6, n % 11 == 4, !s.insert && n % 13 == 8};
}

}  // namespace

WriteProblem::WriteProblem(const Target& target, const WriteSpec& spec, Poison poison)
    : target_(target), spec_(spec) {
  const std::int64_t rows = spec.tokens + spec.spare_rows, head = head_dim + spec.pad;
  qkv_ = Array(target, spec.type, {rows, heads() * head_dim}, poison,
               {heads() * head_dim + spec.pad, 1}, spec.misalign);
  positions_ = Array(target, DType::i64, {rows}, poison);
  slots_ = Array(target, DType::i64, {rows}, poison);
  index_slots_ = Array(target, DType::i64, {rows}, poison);
  cos_sin_ = Array(target, spec.cos_sin, {max_position, rotary}, poison, {rotary + spec.pad, 1},
                   spec.misalign);
  for (Array& w : weights_) {
    w = Array(target, spec.weights, {head_dim}, poison, {}, spec.misalign);
  }
  q_ = Array(target, spec.type, {rows, spec.hq, head_dim}, poison, {spec.hq * head, head, 1},
             spec.misalign);
  index_q_ = Array(target, index_q_type(), {rows, spec.hi, head_dim}, poison,
                   {spec.hi * head, head, 1}, spec.misalign);
  if (spec.device_scales) {
    k_scale_ = Array(target, DType::f32, {1}, poison);
    v_scale_ = Array(target, DType::f32, {1}, poison);
    f32(k_scale_, 0) = spec.k_scale;
    f32(v_scale_, 0) = spec.v_scale;
  }
  make_caches(poison);
  fill_slots();
  fill_inputs();
}

std::int64_t WriteProblem::heads() const {
  return spec_.hq + 2 * spec_.hkv + (spec_.hi > 0 ? spec_.hi + 1 : 0);
}

std::byte* WriteProblem::input(std::int64_t token, std::int64_t head) const {
  return qkv_.data<std::byte>() +
         qkv_.at(token, head * head_dim) * static_cast<std::int64_t>(size_of(spec_.type));
}

bool WriteProblem::has_position(std::int64_t token) const {
  return !fate_of(spec_, token).no_position;
}
bool WriteProblem::in_main(std::int64_t token) const {
  const Fate f = fate_of(spec_, token);
  return spec_.main_part && !f.no_position && !f.no_slot && !f.far_slot;
}
bool WriteProblem::in_index(std::int64_t token) const {
  const Fate f = fate_of(spec_, token);
  return spec_.hi > 0 && !f.no_position && !f.no_index_slot && !f.far_index_slot;
}

void WriteProblem::fill_inputs() {
  for (std::int64_t t = 0; t < spec_.tokens; ++t) {
    const auto token = static_cast<std::uint64_t>(spec_.first_token + t);
    Rng rng(seed_of({spec_.seed, 21, token}));
    i64(positions_, t) = rng.below(max_position);
    if (!has_position(t)) i64(positions_, t) = rng.chance(50) ? -1 : max_position;
    for (std::int64_t h = 0; h < heads(); ++h) {
      std::byte* x = input(t, h);
      fill_normal(spec_.type, x, head_dim,
                  seed_of({spec_.seed, 22, token, static_cast<std::uint64_t>(h)}), spec_.gain);
      if (spec_.edit) spec_.edit(spec_.first_token + t, h, spec_.type, x);
    }
  }
  for (std::int64_t p = 0; p < max_position; ++p) {
    for (std::int64_t i = 0; i < rotary / 2; ++i) {
      const double angle = static_cast<double>(p) * std::pow(5e6, -static_cast<double>(i) / 32);
      store(spec_.cos_sin, cos_sin_.data<std::byte>(), cos_sin_.at(p, i), std::cos(angle));
      store(spec_.cos_sin, cos_sin_.data<std::byte>(), cos_sin_.at(p, i + rotary / 2),
            std::sin(angle));
    }
  }
  for (std::uint64_t w = 0; w < 4; ++w) {
    fill_normal(spec_.weights, weights_[w].data<std::byte>(), head_dim,
                seed_of({spec_.seed, 23, w}), 0.5);
  }
}

/// Distinct slots in random order; neighbours of written slots stay poisoned.
void WriteProblem::fill_slots() {
  const std::int64_t first = spec_.first_page * page_size, end = pages_ * page_size;
  for (const Array* slots : {&slots_, &index_slots_}) {
    std::vector<std::int64_t> free;
    for (std::int64_t s = first; s < end; ++s) free.push_back(s);
    Rng rng(seed_of({spec_.slot_seed, 24, slots == &slots_ ? 0u : 1u}));
    rng.shuffle(free);
    for (std::int64_t t = 0; t < spec_.tokens; ++t) {
      const Fate f = fate_of(spec_, t);
      const bool none = slots == &slots_ ? f.no_slot : f.no_index_slot;
      const bool far = slots == &slots_ ? f.far_slot : f.far_index_slot;
      std::int64_t& slot = i64(*slots, t);
      slot = free[t];
      if (none) slot = t % 2 == 0 ? -1 : -1000;
      if (far) slot = t % 2 == 0 ? end : INT64_MAX;
    }
  }
}

WriteProblem::View WriteProblem::make_pool(std::vector<std::int64_t> dims,
                                           std::vector<std::int64_t> strides, DType type,
                                           std::int64_t elements, Poison poison) {
  const std::size_t size = size_of(type);
  buffers_.push_back(std::make_unique<Buffer>(target_, static_cast<std::size_t>(elements) * size,
                                              static_cast<std::size_t>(spec_.misalign) * size,
                                              sparse()));
  Buffer* buffer = buffers_.back().get();
  const std::uint64_t bits = poison_bits(type, poison);
  if (!sparse()) buffer->fill(&bits, size);
  return {buffer, Tensor(buffer->data(), type, dims, strides)};
}

void WriteProblem::make_caches(Poison poison) {
  pages_ = spec_.first_page + spec_.tokens / page_size + 2;
  const std::int64_t half = std::int64_t{page_size} * head_dim, h = spec_.hkv;
  if (spec_.split_views) {
    const std::vector<std::int64_t> dims = {pages_, h, page_size, head_dim};
    k_ = make_pool(dims, {h * half, half, head_dim, 1}, spec_.kv, pages_ * h * half, poison);
    v_ = make_pool(dims, {h * half + 64, head_dim, h * head_dim, 1}, spec_.kv,
                   pages_ * (h * half + 64), poison);
  } else {
    const KVCacheShape shape{spec_.layers, pages_, h};
    packed_ = make_pool({}, {}, spec_.kv, shape.numel(), poison);
    packed_.tensor =
        kv_layer_view(packed_.buffer->data(), spec_.kv, spec_.layout, shape, spec_.layer);
    k_ = {packed_.buffer, packed_.tensor.narrow(3, 0, head_dim)};
    v_ = {packed_.buffer, packed_.tensor.narrow(3, head_dim, head_dim)};
  }
  if (spec_.hi == 0) return;
  const std::int64_t page = half + spec_.index_pad;
  index_ = make_pool({pages_, page_size, head_dim}, {page, head_dim, 1}, spec_.index, pages_ * page,
                     poison);
}

Tensor WriteProblem::on(const View& view, Side side) const {
  Tensor t = view.tensor;
  if (view.buffer == nullptr) return t;
  t.data = view.buffer->data(side) + (t.ptr<std::byte>() - view.buffer->data());
  if (side == Side::target) t.device = target_.device;
  return t;
}

std::byte* WriteProblem::row(const View& view, std::int64_t slot, std::int64_t head) const {
  const Tensor& t = view.tensor;
  const std::int64_t page = slot / page_size, offset = slot % page_size;
  const std::int64_t at = t.rank == 4
                              ? page * t.stride[0] + head * t.stride[1] + offset * t.stride[2]
                              : page * t.stride[0] + offset * t.stride[1];
  return t.ptr<std::byte>() + at * static_cast<std::int64_t>(size_of(t.dtype));
}

WriteCacheArgs WriteProblem::write_args(Side side) const {
  WriteCacheArgs a;
  a.qkv = qkv_.view(side);
  a.positions = positions_.view(side);
  a.cos_sin = cos_sin_.view(side);
  a.q_norm = weights_[0].view(side);
  a.k_norm = weights_[1].view(side);
  a.norm_eps = spec_.eps;
  a.slot_mapping = slots_.view(side);
  a.q_out = q_.view(side);
  a.kv_cache = spec_.split_views ? KVCache(on(k_, side), on(v_, side)) : KVCache(on(packed_, side));
  if (spec_.hi > 0) {
    a.index_q_norm = weights_[2].view(side);
    a.index_k_norm = weights_[3].view(side);
    a.index_slot_mapping = index_slots_.view(side);
    a.index_q_out = index_q_.view(side);
    a.index_cache = on(index_, side);
  }
  a.k_scale = spec_.device_scales ? Scale(ConstTensor(k_scale_.view(side))) : spec_.k_scale;
  a.v_scale = spec_.device_scales ? Scale(ConstTensor(v_scale_.view(side))) : spec_.v_scale;
  a.num_tokens = spec_.tokens;
  a.stream = target_.stream;
  return a;
}

InsertCacheArgs WriteProblem::insert_args(const WriteCacheArgs& w) const {
  const std::int64_t rows = w.qkv.shape[0];
  const auto part = [&](std::int64_t first, std::int64_t n) {
    ConstTensor t = w.qkv.narrow(1, first * head_dim, n * head_dim);
    return ConstTensor(t.data, t.dtype, {rows, n, head_dim}, {t.stride[0], head_dim, 1}, t.device);
  };
  InsertCacheArgs a;
  if (spec_.main_part) {
    a.k = part(spec_.hq, spec_.hkv);
    a.v = part(spec_.hq + spec_.hkv, spec_.hkv);
    a.slot_mapping = w.slot_mapping;
    a.kv_cache = w.kv_cache;
    a.k_scale = w.k_scale;
    a.v_scale = w.v_scale;
  }
  if (spec_.hi > 0) {
    a.index_k = w.qkv.narrow(1, (heads() - 1) * head_dim, head_dim);
    a.index_slot_mapping = w.index_slot_mapping;
    a.index_cache = w.index_cache;
  }
  a.num_tokens = spec_.tokens;
  a.stream = target_.stream;
  return a;
}

/// Gives the snapshots of the caches what the call had to write.
void WriteProblem::exclude_written(std::vector<std::vector<std::byte>>& snapshots) const {
  const auto take = [&](const View& view, std::int64_t slot, std::int64_t head) {
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      if (buffers_[i].get() != view.buffer) continue;
      const std::byte* from = row(view, slot, head);
      std::memcpy(snapshots[i].data() + (from - view.buffer->data()), from,
                  head_dim * size_of(view.tensor.dtype));
    }
  };
  for (std::int64_t t = 0; t < spec_.tokens; ++t) {
    for (std::int64_t h = 0; in_main(t) && h < spec_.hkv; ++h) {
      take(k_, i64(slots_, t), h);
      take(v_, i64(slots_, t), h);
    }
    if (in_index(t)) take(index_, i64(index_slots_, t), 0);
  }
}

/// Whether queries `[rows, heads, 128]` changed in rows of tokens that have a position alone.
bool WriteProblem::only_positions_changed(const Array& queries,
                                          const std::vector<std::byte>& before) const {
  std::vector<std::byte> expected = before;
  const Tensor view = queries.view();
  const auto size = static_cast<std::int64_t>(size_of(view.dtype));
  for (std::int64_t t = 0; !spec_.insert && t < spec_.tokens; ++t) {
    for (std::int64_t h = 0; has_position(t) && h < view.shape[1]; ++h) {
      const std::int64_t at = queries.at(t, h) * size;
      std::memcpy(expected.data() + at, queries.data<std::byte>() + at,
                  static_cast<std::size_t>(head_dim * size));
    }
  }
  return std::equal(expected.begin(), expected.end(), queries.data<std::byte>()) &&
         queries.buffer().guards_intact();
}

/// Of a reservation, the slots that the call had to write.
void WriteProblem::download_caches() {
  if (!sparse()) {
    for (const auto& b : buffers_) b->download();
    return;
  }
  const auto download = [&](const View& view, std::int64_t slot, std::int64_t head) {
    view.buffer->download(static_cast<std::size_t>(row(view, slot, head) - view.buffer->data()),
                          head_dim * size_of(view.tensor.dtype));
  };
  for (std::int64_t t = 0; t < spec_.tokens; ++t) {
    for (std::int64_t h = 0; in_main(t) && h < spec_.hkv; ++h) {
      download(k_, i64(slots_, t), h);
      download(v_, i64(slots_, t), h);
    }
    if (in_index(t)) download(index_, i64(index_slots_, t), 0);
  }
}

WriteOutput WriteProblem::run(Judge& judge, const std::function<void(WriteCacheArgs&)>& change) {
  std::vector<std::vector<std::byte>> before;
  for (const auto& b : buffers_) {
    before.emplace_back(b->data(), b->data() + (sparse() ? 0 : b->bytes()));
    if (!sparse()) b->upload();
  }
  const std::vector<std::byte> q_before = snapshot(q_), index_q_before = snapshot(index_q_);
  for (const Array* a :
       {&qkv_, &positions_, &cos_sin_, &weights_[0], &weights_[1], &weights_[2], &weights_[3],
        &slots_, &index_slots_, &q_, &index_q_, &k_scale_, &v_scale_}) {
    if (a->given()) a->buffer().upload();
  }
  WriteCacheArgs call = write_args(Side::target);
  if (change) change(call);
  target_.submit([&] {
    if (spec_.insert) {
      insert_cache(insert_args(call));
    } else {
      write_cache(call);
    }
  });
  target_.synchronize();
  judge.require(last_backend() == target_.backend,
                std::string("served by backend '") + last_backend() + "'");
  for (const Array* a : {&q_, &index_q_}) a->buffer().download();
  download_caches();
  if (!sparse()) {
    exclude_written(before);
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      judge.require(std::equal(before[i].begin(), before[i].end(), buffers_[i]->data()) &&
                        buffers_[i]->guards_intact(),
                    "wrote outside of the slots of cache " + std::to_string(i));
    }
  }
  judge.require(only_positions_changed(q_, q_before), "wrote outside of q_out's rows");
  judge.require(only_positions_changed(index_q_, index_q_before),
                "wrote outside of index_q_out's rows");

  WriteOutput out;
  const auto collect = [&](std::vector<std::byte>& to, bool written, const std::byte* from,
                           DType type) {
    const std::size_t bytes = head_dim * size_of(type);
    to.resize(to.size() + bytes);
    if (written) std::memcpy(to.data() + to.size() - bytes, from, bytes);
  };
  for (std::int64_t t = 0; t < spec_.tokens; ++t) {
    const bool queries = !spec_.insert && has_position(t);
    for (std::int64_t h = 0; h < spec_.hq; ++h) {
      collect(out.q, queries, q_.data<std::byte>() + q_.at(t, h) * 2, spec_.type);
    }
    for (std::int64_t h = 0; h < spec_.hkv; ++h) {
      const bool written = in_main(t);
      collect(out.k, written, written ? row(k_, i64(slots_, t), h) : nullptr, spec_.kv);
      collect(out.v, written, written ? row(v_, i64(slots_, t), h) : nullptr, spec_.kv);
    }
    for (std::int64_t h = 0; h < spec_.hi; ++h) {
      const auto size = static_cast<std::int64_t>(size_of(index_q_type()));
      collect(out.index_q, queries, index_q_.data<std::byte>() + index_q_.at(t, h) * size,
              index_q_type());
    }
    const bool written = in_index(t);
    collect(out.index_k, written, written ? row(index_, i64(index_slots_, t), 0) : nullptr,
            spec_.index);
  }
  return out;
}

}  // namespace msa::verify
