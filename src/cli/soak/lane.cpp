// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/soak/lane.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "cli/io/rotation.h"
#include "cli/replay/work.h"
#include "common/numeric.h"
#include "msa/copy_pages.h"

namespace msa::soak {
namespace {

// 0xff… is a NaN of every type; 0x7f… one of all but bf16, where it is 3.4e38.
constexpr std::uint8_t patterns[] = {0xff, 0x7f};
constexpr std::size_t noise_elements = std::size_t{1} << 18;
constexpr std::int64_t guard_rows = 3;  // past the largest batch
constexpr std::int64_t move_permille = 15;
constexpr std::int64_t pages_checked_per_step = 4;  // of a cache
// Multiply-adds of the reference that the rows of a step may take, one row aside: so that an
// episode of long contexts does not hold a thread for seconds a step.
constexpr double most_work = 4e7;

bool interleaved(KVLayout layout) {
  return layout == KVLayout::BLHNC || layout == KVLayout::BLNHC || layout == KVLayout::BHLNC;
}

std::size_t bytes_of(std::int64_t elements, DType type) {
  return static_cast<std::size_t>(elements) * size_of(type);
}

KVCacheShape cache_shape(const Episode& e, std::int64_t pages) {
  return {.layers = interleaved(e.layout) ? 2 : 1, .pages = pages, .heads = e.shape.kv_heads};
}
Tensor main_view(void* memory, const Episode& e, std::int64_t pages, std::int64_t layer) {
  return kv_layer_view(memory, e.kv_type, e.layout, cache_shape(e, pages), layer);
}
Tensor index_view(void* memory, const Episode& e, std::int64_t pages, std::int64_t) {
  return Tensor::dense(memory, e.index_type, {pages, page_size, head_dim});
}

/// Whether all elements of a view are made of one byte. Its last stride is 1.
bool is_full_of(const ConstTensor& view, std::uint8_t byte) {
  if (view.rank > 1) {
    for (std::int64_t i = 0; i < view.shape[0]; ++i) {
      ConstTensor part = view.narrow(0, i, 1);
      --part.rank;
      std::copy_n(view.shape.begin() + 1, part.rank, part.shape.begin());
      std::copy_n(view.stride.begin() + 1, part.rank, part.stride.begin());
      if (!is_full_of(part, byte)) return false;
    }
    return true;
  }
  const std::size_t bytes = bytes_of(view.shape[0], view.dtype);
  const auto* first = view.ptr<unsigned char>();
  return bytes == 0 || (*first == byte && std::memcmp(first, first + 1, bytes - 1) == 0);
}

}  // namespace

LaneStats& LaneStats::operator+=(const LaneStats& other) {
  rows += other.rows;
  steps += other.steps;
  tokens += other.tokens;
  episodes += other.episodes;
  moves += other.moves;
  captured_steps += other.captured_steps;
  pages_poisoned += other.pages_poisoned;
  pages_checked += other.pages_checked;
  traffic += other.traffic;
  worst_share = std::max(worst_share, other.worst_share);
  return *this;
}

Lane::Lane(std::unique_ptr<Place> place, const LaneConfig& config)
    : place_(std::move(place)), config_(config), random_(config.seed), verifier_({}) {}

LaneStats Lane::stats() const {
  LaneStats stats = stats_;
  if (traffic_) stats.traffic += traffic_->stats();
  stats.rows = verifier_.report().rows;
  stats.worst_share = verifier_.report().worst_share();
  return stats;
}

std::string Lane::step_text() const {
  return fmt::format("step {} ({}; {})", stats_.steps, way_, text_of(episode_));
}

// ---- Memory ----

Lane::Cache Lane::make_cache(Tensor (*view_of)(void*, const Episode&, std::int64_t, std::int64_t),
                             DType type, std::int64_t pages, std::int64_t elements) {
  Cache cache;
  cache.memory = Buffer(*place_, bytes_of(elements, type));
  place_->set(cache.memory.data(), patterns[0], cache.memory.bytes());
  const bool layers = view_of == main_view && interleaved(episode_.layout);
  cache.view = view_of(cache.memory.host(), episode_, pages, layers ? 1 : 0);
  if (layers) cache.other = view_of(cache.memory.host(), episode_, pages, 0);
  cache.patterns.assign(static_cast<std::size_t>(pages), patterns[0]);
  cache.pairs = Buffer(*place_, bytes_of(2 * pages, DType::i64));

  const std::size_t page = bytes_of(cache.view.numel() / pages, type);
  cache.poison = Buffer(*place_, std::size(patterns) * page);
  for (std::size_t i = 0; i < std::size(patterns); ++i) {
    place_->set(static_cast<char*>(cache.poison.data()) + i * page, patterns[i], page);
  }
  const Tensor& v = cache.view;
  const auto count = static_cast<std::int64_t>(std::size(patterns));
  cache.poison_view = v.rank == 4
                          ? cache.poison.view(type, {count, v.shape[1], page_size, 2 * head_dim})
                          : cache.poison.view(type, {count, page_size, head_dim});
  return cache;
}

void Lane::allocate_caches(std::int64_t pages, std::int64_t index_pages) {
  main_ = make_cache(main_view, episode_.kv_type, pages, cache_shape(episode_, pages).numel());
  index_ =
      make_cache(index_view, episode_.index_type, index_pages, index_pages * page_size * head_dim);
}

void Lane::end_traffic() {
  if (traffic_) stats_.traffic += traffic_->stats();
  traffic_.reset();
}

void Lane::start_episode() {
  place_->synchronize();
  end_traffic();
  episode_ = draw_episode(random_);
  ++stats_.episodes;
  const Episode& e = episode_;
  left_ = e.steps;
  traffic_.emplace(e.traffic, random_.next());
  main_ = {}, index_ = {};  // before the next ones are there: they may get the same addresses
  allocate_caches(e.traffic.pages, e.traffic.index_pages);

  max_tokens_ = traffic_->max_tokens() + guard_rows;
  columns_ = (e.traffic.max_keys + page_size - 1) / page_size + random_.below(3);
  const auto memory = [&](std::int64_t elements, DType type) {
    return Buffer(*place_, bytes_of(elements, type));
  };
  const std::int64_t q_elements = max_tokens_ * e.shape.q_heads * head_dim;
  rows_ = memory(max_tokens_ * e.shape.row_elements(), e.row_type());
  q_ = memory(q_elements, e.row_type());
  out_ = memory(q_elements, e.row_type());
  index_q_ = memory(max_tokens_ * e.shape.index_heads * head_dim, e.row_type());
  selection_ = memory(max_tokens_ * e.shape.index_heads * e.topk, DType::i32);
  lse_ = memory(max_tokens_ * e.shape.q_heads, DType::f32);
  const std::vector<std::int64_t> tokens(static_cast<std::size_t>(max_tokens_));
  positions_ = {*place_, tokens};
  slots_ = {*place_, tokens};
  index_slots_ = {*place_, tokens};
  const auto requests = static_cast<std::size_t>(e.traffic.max_batch);
  query_start_loc_.assign(requests + 1, 0);
  seq_lens_ = {*place_, std::vector<std::int32_t>(requests)};
  const std::vector<std::int32_t> table(requests * static_cast<std::size_t>(columns_));
  block_table_ = {*place_, table};
  index_table_ = {*place_, table};
  cu_seqlens_q_ = memory(e.traffic.max_batch + 1, DType::i32);
  context_lens_ = memory(e.traffic.max_batch, DType::i32);
  cos_sin_ = {*place_, cli::rotation_table(e.traffic.max_keys)};
  // As in the replay: the largest k and v of an fp8 cache stay within ±448.
  scales_ = {*place_, is_fp8(e.kv_type) ? std::vector{0.03f, 0.02f} : std::vector{1.f, 1.f}};
  builder_.emplace(e.traffic.m);

  // Uniform numbers of unit variance.
  noise_.resize(noise_elements);
  for (std::size_t i = 0; i < noise_.size(); ++i) {
    const double unit = static_cast<double>(random_.next() >> 11) * 0x1p-52 - 1;
    store(e.row_type(), noise_.data(), static_cast<std::int64_t>(i), std::sqrt(3.0) * unit);
  }
  for (Vector<std::uint16_t>& norm : norms_) {
    std::vector<std::uint16_t> weight(head_dim);
    for (std::int64_t d = 0; d < head_dim; ++d) {
      store(e.row_type(), weight.data(), d,
            0.25 * (static_cast<double>(random_.below(1 << 20)) * 0x1p-19 - 1));
    }
    norm = {*place_, weight};
  }
}

void Lane::move_caches() {
  // All steps so far are done; both caches of a kind live until the copies are.
  Cache old_main = std::move(main_), old_index = std::move(index_);
  const std::int64_t pages = traffic_->main().size() + random_.below(8);
  const std::int64_t index_pages = traffic_->index().size() + random_.below(8);
  const Traffic::Moves moves = traffic_->move(pages, index_pages);
  allocate_caches(pages, index_pages);
  copy(old_main.placed(), main_.placed(), moves.main, main_.pairs);
  copy(old_index.placed(), index_.placed(), moves.index, index_.pairs);
  place_->synchronize();
  ++stats_.moves;
}

void Lane::copy(const ConstTensor& from, const Tensor& to, const std::vector<std::int64_t>& pairs,
                const Buffer& device_pairs) {
  if (pairs.empty()) return;
  const std::size_t bytes = pairs.size() * sizeof(std::int64_t);
  std::memcpy(device_pairs.host(), pairs.data(), bytes);
  device_pairs.upload(0, bytes);
  CopyPagesArgs args;
  args.src = from;
  args.dst = to;
  args.pairs = device_pairs.view(DType::i64, {static_cast<std::int64_t>(pairs.size()) / 2, 2});
  args.stream = place_->stream();
  copy_pages(args);
}

void Lane::poison_freed(PagePool& pool, Cache& cache) {
  // A page may have been freed twice since the last step.
  std::sort(pool.freed.begin(), pool.freed.end());
  pool.freed.erase(std::unique(pool.freed.begin(), pool.freed.end()), pool.freed.end());
  std::vector<std::int64_t> pairs;
  for (const std::int32_t page : pool.freed) {
    const std::int64_t which = random_.below(std::size(patterns));
    cache.patterns[static_cast<std::size_t>(page)] = patterns[which];
    pairs.insert(pairs.end(), {which, page});
  }
  copy(cache.poison_view, cache.placed(), pairs, cache.pairs);
  stats_.pages_poisoned += static_cast<std::int64_t>(pool.freed.size());
  pool.freed.clear();
}

void Lane::poison_outputs() {
  for (const Buffer* buffer : {&q_, &index_q_, &selection_, &out_, &lse_, &workspace_}) {
    if (buffer->bytes() > 0) place_->set(buffer->data(), patterns[0], buffer->bytes());
  }
}

// ---- A step ----

void Lane::draw_rows() {
  const std::int64_t tokens = plan_->tokens() + padding_, row = episode_.shape.row_elements();
  auto* rows = rows_.host_as<std::uint16_t>();
  // Queries come from one half of the noise, keys and values from the other: a key equal to its
  // query outweighs all others, and the contract's bound on mean errors is one for averages.
  const auto half = static_cast<std::int64_t>(noise_.size()) / 2;
  const std::int64_t q = episode_.shape.q_heads * head_dim;
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::uint16_t* to = std::copy_n(noise_.begin() + random_.below(half - q), q, rows + t * row);
    std::copy_n(noise_.begin() + half + random_.below(half - (row - q)), row - q, to);
  }
  rows_.upload(0, bytes_of(tokens * row, episode_.row_type()));
}

void Lane::load_arrays() {
  constexpr std::int32_t stale[] = {-1, 0, std::numeric_limits<std::int32_t>::max(),
                                    std::numeric_limits<std::int32_t>::min()};
  const auto garbage = [&](std::vector<std::int32_t>& table) {
    std::fill(table.begin(), table.end(), stale[random_.below(std::size(stale))]);
  };
  garbage(block_table_.values());
  garbage(index_table_.values());
  std::int64_t t = 0;
  for (std::size_t r = 0; r < plan_->items.size(); ++r) {
    const StepItem& item = plan_->items[r];
    query_start_loc_[r] = static_cast<std::int32_t>(t);
    seq_lens_.values()[r] = static_cast<std::int32_t>(item.seq_len());
    const auto pages = static_cast<std::size_t>((item.seq_len() + page_size - 1) / page_size);
    const auto row = static_cast<std::ptrdiff_t>(r * static_cast<std::size_t>(columns_));
    std::copy_n(item.pages.begin(), pages, block_table_.values().begin() + row);
    std::copy_n(item.index_pages.begin(), pages, index_table_.values().begin() + row);
    for (std::int64_t p = item.first_position; p < item.seq_len(); ++p, ++t) {
      const auto at = static_cast<std::size_t>(t), page = static_cast<std::size_t>(p / page_size);
      positions_.values()[at] = p;
      slots_.values()[at] = std::int64_t{item.pages[page]} * page_size + p % page_size;
      index_slots_.values()[at] = std::int64_t{item.index_pages[page]} * page_size + p % page_size;
    }
  }
  query_start_loc_[plan_->items.size()] = static_cast<std::int32_t>(t);
  for (std::int64_t i = 0; i < padding_; ++i, ++t) {
    const auto at = static_cast<std::size_t>(t);
    positions_.values()[at] = 0;
    slots_.values()[at] = index_slots_.values()[at] = -1;
  }
  seq_lens_.upload(plan_->items.size());
  block_table_.upload(block_table_.values().size());
  index_table_.upload(index_table_.values().size());
  for (const Vector<std::int64_t>* numbers : {&positions_, &slots_, &index_slots_}) {
    numbers->upload(static_cast<std::size_t>(t));
  }
}

void Lane::build_metadata() {
  const auto requests = static_cast<std::int64_t>(plan_->items.size());
  StepInputs step;
  step.query_start_loc = std::span(query_start_loc_).first(plan_->items.size() + 1);
  step.seq_lens_host = std::span(seq_lens_.values()).first(plan_->items.size());
  step.seq_lens = seq_lens_.view(DType::i32, {requests});
  step.block_table = block_table_.view(DType::i32, {requests, columns_});
  step.num_actual_tokens = plan_->tokens() + padding_;
  metadata_ = builder_->build(step);
  BatchMetadata& batch = metadata_.batch;
  if (place_->is_host() || batch.num_prefills == 0) return;
  const auto move = [&](ConstTensor& computed, const Buffer& to) {
    place_->upload(to.data(), computed.data, bytes_of(computed.numel(), DType::i32));
    computed.data = to.data();
    computed.device = place_->device();
  };
  move(batch.cu_seqlens_q, cu_seqlens_q_);
  move(batch.context_lens, context_lens_);
}

replay::StepTensors Lane::host_tensors() const {
  const Episode& e = episode_;
  const DType type = e.row_type();
  replay::StepTensors t;
  t.k_scale = scales_.values()[0];
  t.v_scale = scales_.values()[1];
  t.selection = selection_.host_view(DType::i32, {max_tokens_, e.shape.index_heads, e.topk});
  t.out = out_.host_view(type, {max_tokens_, e.shape.q_heads, head_dim});
  if (with_lse_) t.lse = lse_.host_view(DType::f32, {max_tokens_, e.shape.q_heads});
  WriteCacheArgs& w = t.write;
  w.qkv = rows_.host_view(type, {max_tokens_, e.shape.row_elements()});
  w.cos_sin = ConstTensor::dense(cos_sin_.values().data(), DType::f32,
                                 {e.traffic.max_keys, cli::rotary_elements});
  ConstTensor* const norms[] = {&w.q_norm, &w.k_norm, &w.index_q_norm, &w.index_k_norm};
  for (std::size_t i = 0; i < norms_.size(); ++i) {
    *norms[i] = ConstTensor::dense(norms_[i].values().data(), type, {head_dim});
  }
  w.q_out = q_.host_view(type, {max_tokens_, e.shape.q_heads, head_dim});
  w.kv_cache = main_.view;
  w.index_q_out = index_q_.host_view(type, {max_tokens_, e.shape.index_heads, head_dim});
  w.index_cache = index_.view;
  w.k_scale = t.k_scale;
  w.v_scale = t.v_scale;
  return t;
}

LayerStepArgs Lane::arguments() {
  const Episode& e = episode_;
  const DType type = e.row_type();
  LayerStepArgs a;
  WriteCacheArgs& w = a.write;
  w.qkv = rows_.view(type, {max_tokens_, e.shape.row_elements()});
  w.positions = positions_.view(DType::i64, {max_tokens_});
  w.cos_sin = cos_sin_.view(DType::f32, {e.traffic.max_keys, cli::rotary_elements});
  ConstTensor* const norms[] = {&w.q_norm, &w.k_norm, &w.index_q_norm, &w.index_k_norm};
  for (std::size_t i = 0; i < norms_.size(); ++i) *norms[i] = norms_[i].view(type, {head_dim});
  w.slot_mapping = slots_.view(DType::i64, {max_tokens_});
  w.index_slot_mapping = index_slots_.view(DType::i64, {max_tokens_});
  w.q_out = q_.view(type, {max_tokens_, e.shape.q_heads, head_dim});
  w.kv_cache = main_.placed();
  w.index_q_out = index_q_.view(type, {max_tokens_, e.shape.index_heads, head_dim});
  w.index_cache = index_.placed();
  if (e.device_scales) {
    const ConstTensor both = scales_.view(DType::f32, {2});
    w.k_scale = Scale(both.narrow(0, 0, 1));
    w.v_scale = Scale(both.narrow(0, 1, 1));
  } else {
    w.k_scale = scales_.values()[0];
    w.v_scale = scales_.values()[1];
  }
  w.num_tokens = plan_->tokens() + padding_;
  w.stream = place_->stream();

  a.index.index_q = w.index_q_out;
  a.index.index_cache = w.index_cache;
  a.index.batch = metadata_.batch;
  a.index.batch.block_table =
      index_table_.view(DType::i32, {metadata_.batch.num_requests(), columns_});
  a.index.selection = selection_.view(DType::i32, {max_tokens_, e.shape.index_heads, e.topk});
  a.index.stream = w.stream;

  a.attend.q = w.q_out;
  a.attend.kv_cache = w.kv_cache;
  a.attend.selection = a.index.selection;
  a.attend.batch = metadata_.batch;
  a.attend.out = out_.view(type, {max_tokens_, e.shape.q_heads, head_dim});
  if (with_lse_) a.attend.lse = lse_.view(DType::f32, {max_tokens_, e.shape.q_heads});
  a.attend.k_scale = w.k_scale;
  a.attend.v_scale = w.v_scale;
  a.attend.invariant = e.invariant;
  a.attend.stream = w.stream;
  return a;
}

void Lane::call() {
  LayerStepArgs a = arguments();
  const std::size_t bytes =
      std::max({workspace_size(a), workspace_size(a.index), workspace_size(a.attend)});
  if (bytes > workspace_.bytes()) {
    workspace_ = Buffer(*place_, bytes);
    place_->set(workspace_.data(), patterns[0], bytes);
  }
  a.index.workspace = a.attend.workspace = {workspace_.data(), workspace_.bytes()};
  const auto one_by_one = [a] {
    write_cache(a.write);
    index_blocks(a.index);
    attend(a.attend);
  };
  const std::int64_t draw = random_.below(100);
  if (draw < 45) {
    way_ = "one by one";
    one_by_one();
  } else if (draw < 90) {
    way_ = "layer_step";
    layer_step(a);
  } else {
    way_ = draw < 95 ? "one by one, recorded" : "layer_step, recorded";
    if (draw < 95) {
      recordings_.push_back(place_->record(one_by_one));
    } else {
      recordings_.push_back(place_->record([a] { layer_step(a); }));
    }
    recordings_.back()->run();
    ++stats_.captured_steps;
  }
}

void Lane::launch() {
  recordings_.clear();
  way_ = "not called yet";
  if (left_ == 0) {
    start_episode();
  } else if (random_.chance(move_permille)) {
    move_caches();
  }
  --left_;
  plan_ = &traffic_->next();
  const bool empty = std::any_of(plan_->items.begin(), plan_->items.end(),
                                 [](const StepItem& item) { return item.query_len == 0; });
  padding_ = !empty && random_.chance(300) ? random_.below(guard_rows + 1) : 0;
  with_lse_ = random_.chance(700);
  poison_freed(traffic_->main(), main_);
  poison_freed(traffic_->index(), index_);
  poison_outputs();
  draw_rows();
  load_arrays();
  build_metadata();
  call();
}

// ---- Its check ----

std::vector<std::int64_t> Lane::sample() {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(plan_->tokens()));
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto all = static_cast<std::int64_t>(tokens.size());
  const std::int64_t count = std::min(all, config_.rows_per_step);
  for (std::int64_t i = 0; i < count; ++i) {
    std::swap(tokens[static_cast<std::size_t>(i)],
              tokens[static_cast<std::size_t>(i + random_.below(all - i))]);
  }
  tokens.resize(static_cast<std::size_t>(count));
  return tokens;
}

void Lane::spoil(std::int64_t token) {
  const std::uint16_t number = 0x4248;  // 50 in bf16, 3.1 in f16: no value is so large
  const std::size_t row = bytes_of(episode_.shape.q_heads * head_dim, episode_.row_type());
  place_->upload(static_cast<char*>(out_.data()) + static_cast<std::size_t>(token) * row, &number,
                 sizeof number);
}

void Lane::download() {
  for (const Buffer* buffer : {&q_, &index_q_, &selection_, &out_, &lse_}) buffer->download();
  main_.memory.download();
  index_.memory.download();
}

std::string Lane::check_rows() {
  const std::vector<std::int64_t> tokens = sample();
  if (stats_.steps == config_.fault_step) spoil(tokens.front());
  download();
  const replay::StepTensors host = host_tensors();
  const LayerShape& shape = episode_.shape;
  double work = 0;
  for (const std::int64_t token : tokens) {
    std::int64_t row = token;
    auto item = plan_->items.begin();
    for (; row >= item->query_len; ++item) row -= item->query_len;
    if (!verifier_.check_row(*item, row, token, host)) {
      return fmt::format("row {}: {}", token, verifier_.report().complaints.front());
    }
    const replay::Work of_row = replay::rows_work(shape, item->first_position + row, 1);
    work += of_row.index + of_row.attend;
    if (work > most_work) break;
  }
  return "";
}

std::string Lane::check_padding() const {
  const replay::StepTensors t = host_tensors();
  const std::int64_t first = plan_->tokens(), end = first + padding_;
  if (!is_full_of(t.out.narrow(0, first, padding_), 0)) {
    return fmt::format("rows {} to {}: no request covers them, but out is not 0", first, end - 1);
  }
  if (!is_full_of(t.selection.narrow(0, first, padding_), 0xff)) {
    return fmt::format("rows {} to {}: no request covers them, but ids are not -1", first, end - 1);
  }
  if (!is_full_of(t.out.narrow(0, end, max_tokens_ - end), patterns[0])) {
    return fmt::format("rows from {}: past the batch, but out was written", end);
  }
  return "";
}

std::string Lane::check_untouched(PagePool& pool, const Cache& cache, const char* name) {
  for (std::int64_t i = 0; i < pages_checked_per_step; ++i) {
    const std::int64_t page = random_.below(pool.size());
    if (cache.other.given() && !is_full_of(cache.other.narrow(0, page, 1), patterns[0])) {
      return fmt::format("page {} of another layer in the {} cache was written", page, name);
    }
    if (!pool.is_free(page)) continue;
    ++stats_.pages_checked;
    if (!is_full_of(cache.view.narrow(0, page, 1),
                    cache.patterns[static_cast<std::size_t>(page)])) {
      return fmt::format("page {} of the {} cache is free, but was written", page, name);
    }
  }
  return "";
}

std::string Lane::finish() {
  std::string wrong = check_rows();
  if (wrong.empty()) wrong = check_padding();
  if (wrong.empty()) wrong = check_untouched(traffic_->main(), main_, "main");
  if (wrong.empty()) wrong = check_untouched(traffic_->index(), index_, "index");
  if (!wrong.empty()) return wrong;
  ++stats_.steps;
  stats_.tokens += plan_->tokens();
  traffic_->complete();
  return "";
}

}  // namespace msa::soak
