// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/replay/engine.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "cli/io/rotation.h"
#include "cli/replay/digest.h"
#include "common/numeric.h"

namespace msa::replay {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* layer_name = "layers.0.attn";
// Where layers are interleaved, this is one of two, so that its strides are not those of a lone
// layer.
constexpr std::int64_t interleaved_layers = 2;

bool interleaved(KVLayout layout) {
  return layout == KVLayout::BLHNC || layout == KVLayout::BLNHC || layout == KVLayout::BHLNC;
}

/// Adds the time since the last call to one phase after the other.
class Stopwatch {
 public:
  explicit Stopwatch(PhaseTimes& times) : times_(times) {}
  void lap(Phase phase) {
    const Clock::time_point now = Clock::now();
    times_[phase] += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }
  /// The time since the last call belongs to nobody, or was taken by another clock.
  void skip() { last_ = Clock::now(); }

 private:
  PhaseTimes& times_;
  Clock::time_point last_ = Clock::now();
};

std::size_t bytes_of(std::int64_t elements, DType type) {
  return static_cast<std::size_t>(elements) * size_of(type);
}

}  // namespace

Engine::Engine(const EngineConfig& config, Place& place)
    : config_(config),
      place_(place),
      activations_(config.shape, config.row_type(), config.seed),
      builder_(config.decode_query_len),
      indexer_({.num_index_heads = config.shape.index_heads, .topk = topk, .rule = {}}),
      impl_({.num_heads = config.shape.q_heads,
             .num_kv_heads = config.shape.kv_heads,
             .kv_cache_dtype = config.kv_type}) {
  layer_.name = layer_name;
  if (is_fp8(config.kv_type)) {
    // Largest k about 11.3 (a normed row with one element), largest v about 5: both within ±448.
    layer_.k_scale = 0.03f;
    layer_.v_scale = 0.02f;
  }
  metadata_[layer_name];
  allocate();
  fill_caches_with_nan();
  cos_sin_ = {place_, cli::rotation_table(config.max_seq_len)};
  for (std::size_t i = 0; i < norms_.size(); ++i) {
    norms_[i] = {place_, activations_.norm_weight(i)};
  }
}

void Engine::allocate() {
  const EngineConfig& c = config_;
  const std::int64_t layers = interleaved(c.layout) ? interleaved_layers : 1;
  const KVCacheShape shape{.layers = layers, .pages = c.pages, .heads = c.shape.kv_heads};
  const auto memory = [&](std::int64_t elements, DType type) {
    return Buffer(place_, bytes_of(elements, type));
  };
  kv_memory_ = memory(shape.numel(), c.kv_type);
  kv_cache_ = kv_layer_view(kv_memory_.host(), c.kv_type, c.layout, shape, layers - 1);
  index_memory_ = memory(c.index_pages * page_size * head_dim, c.index_type);
  index_cache_ = index_memory_.host_view(c.index_type, {c.index_pages, page_size, head_dim});
  const std::int64_t q_elements = c.max_tokens * c.shape.q_heads * head_dim;
  rows_ = memory(c.max_tokens * c.shape.row_elements(), c.row_type());
  q_ = memory(q_elements, c.row_type());
  out_ = memory(q_elements, c.row_type());
  index_q_ = memory(c.max_tokens * c.shape.index_heads * head_dim, c.row_type());
  const std::int64_t selection_rows = Indexer::buffer_rows(c.max_tokens);
  selection_ = memory(selection_rows * c.shape.index_heads * topk, DType::i32);
  layer_.topk_indices = selection_.view(DType::i32, {selection_rows, c.shape.index_heads, topk});
  const std::vector<std::int64_t> tokens(static_cast<std::size_t>(c.max_tokens));
  positions_ = {place_, tokens};
  slots_ = {place_, tokens};
  index_slots_ = {place_, tokens};
  columns_ = (c.max_seq_len + page_size - 1) / page_size;
  const auto requests = static_cast<std::size_t>(c.max_batch);
  query_start_loc_.resize(requests + 1);
  seq_lens_ = {place_, std::vector<std::int32_t>(requests)};
  // Entries past a request's pages stay what they are: nobody may look at them.
  const std::vector<std::int32_t> table(requests * static_cast<std::size_t>(columns_), -1);
  block_table_ = {place_, table};
  index_table_ = {place_, table};
  cu_seqlens_q_ = memory(c.max_batch + 1, DType::i32);
  context_lens_ = memory(c.max_batch, DType::i32);
}

void Engine::fill_caches_with_nan() {
  // 0xff… is a NaN of every type.
  place_.set(index_memory_.data(), 0xff, index_memory_.bytes());
  if (!place_.is_host()) {
    place_.set(kv_memory_.data(), 0xff, kv_memory_.bytes());
    return;
  }
  // Only the view's own rows: other layers' memory stays untouched, and costs nothing.
  const std::size_t row = 2 * head_dim * size_of(config_.kv_type);
  for (std::int64_t page = 0; page < kv_cache_.shape[0]; ++page) {
    for (std::int64_t head = 0; head < kv_cache_.shape[1]; ++head) {
      for (std::int64_t token = 0; token < page_size; ++token) {
        const Tensor at = kv_cache_.narrow(0, page, 1).narrow(1, head, 1).narrow(2, token, 1);
        std::memset(at.data, 0xff, row);
      }
    }
  }
}

void Engine::load_arrays(const StepPlan& plan) {
  std::int64_t t = 0;
  for (std::size_t r = 0; r < plan.items.size(); ++r) {
    const StepItem& item = plan.items[r];
    query_start_loc_[r] = static_cast<std::int32_t>(t);
    seq_lens_.values()[r] = static_cast<std::int32_t>(item.seq_len());
    const auto pages = static_cast<std::size_t>((item.seq_len() + page_size - 1) / page_size);
    const auto row = static_cast<std::ptrdiff_t>(r * static_cast<std::size_t>(columns_));
    std::copy_n(item.pages.begin(), pages, block_table_.values().begin() + row);
    std::copy_n(item.index_pages.begin(), pages, index_table_.values().begin() + row);
    for (std::int64_t p = item.first_position; p < item.seq_len(); ++p, ++t) {
      const auto at = static_cast<std::size_t>(t);
      const auto page = static_cast<std::size_t>(p / page_size);
      positions_.values()[at] = p;
      slots_.values()[at] = std::int64_t{item.pages[page]} * page_size + p % page_size;
      index_slots_.values()[at] = std::int64_t{item.index_pages[page]} * page_size + p % page_size;
    }
  }
  query_start_loc_[plan.items.size()] = static_cast<std::int32_t>(t);
  const std::size_t requests = plan.items.size(),
                    cells = requests * static_cast<std::size_t>(columns_);
  seq_lens_.upload(requests);
  block_table_.upload(cells);
  index_table_.upload(cells);
  for (const Vector<std::int64_t>* numbers : {&positions_, &slots_, &index_slots_}) {
    numbers->upload(static_cast<std::size_t>(t));
  }
}

void Engine::draw_rows(const StepPlan& plan, std::span<const Content> contents) {
  auto* rows = rows_.host_as<std::uint16_t>();
  for (const StepItem& item : plan.items) {
    const std::int64_t kept = item.decode ? item.accepted : item.query_len;
    activations_.fill(contents[static_cast<std::size_t>(item.request)], item.first_position,
                      item.query_len, kept, rows);
    rows += item.query_len * config_.shape.row_elements();
  }
  rows_.upload(0, bytes_of(plan.tokens() * config_.shape.row_elements(), config_.row_type()));
}

void Engine::build_metadata(const StepPlan& plan) {
  const auto requests = static_cast<std::int64_t>(plan.items.size());
  StepInputs step;
  step.query_start_loc = std::span(query_start_loc_).first(plan.items.size() + 1);
  step.seq_lens_host = std::span(seq_lens_.values()).first(plan.items.size());
  step.seq_lens = seq_lens_.view(DType::i32, {requests});
  step.block_table = block_table_.view(DType::i32, {requests, columns_});
  step.slot_mapping = slots_.view(DType::i64, {plan.tokens()});
  step.num_actual_tokens = plan.tokens();
  metadata_.begin()->second = builder_.build(step);
  BatchMetadata& batch = metadata_.begin()->second.batch;
  if (place_.is_host() || batch.num_prefills == 0) return;
  // What the split computes lies in host memory.
  const auto move = [&](ConstTensor& computed, const Buffer& to) {
    place_.upload(to.data(), computed.data, bytes_of(computed.numel(), DType::i32));
    computed.data = to.data();
    computed.device = place_.device();
  };
  move(batch.cu_seqlens_q, cu_seqlens_q_);
  move(batch.context_lens, context_lens_);
}

StepTensors Engine::views(bool on_host) const {
  const EngineConfig& c = config_;
  const LayerShape& s = c.shape;
  const DType type = c.row_type();
  const auto view = [&](const Buffer& buffer, DType dtype,
                        std::initializer_list<std::int64_t> shape) {
    return on_host ? buffer.host_view(dtype, shape) : buffer.view(dtype, shape);
  };
  const auto numbers = [&](const auto& vector, DType dtype,
                           std::initializer_list<std::int64_t> shape) {
    return on_host ? ConstTensor::dense(vector.values().data(), dtype, shape)
                   : vector.view(dtype, shape);
  };
  StepTensors t;
  if (on_host && !place_.is_host()) {
    t.fetch = [this](const StepItem& item, std::int64_t token) { fetch(item, token); };
  }
  t.k_scale = layer_.k_scale;
  t.v_scale = layer_.v_scale;
  t.selection = view(selection_, DType::i32,
                     {layer_.topk_indices.shape[0], s.index_heads, std::int64_t{topk}});
  t.out = view(out_, type, {c.max_tokens, s.q_heads, head_dim});
  WriteCacheArgs& w = t.write;
  w.qkv = view(rows_, type, {c.max_tokens, s.row_elements()});
  w.positions = numbers(positions_, DType::i64, {c.max_tokens});
  w.cos_sin = numbers(cos_sin_, DType::f32, {c.max_seq_len, cli::rotary_elements});
  ConstTensor* const norms[] = {&w.q_norm, &w.k_norm, &w.index_q_norm, &w.index_k_norm};
  for (std::size_t i = 0; i < norms_.size(); ++i) {
    *norms[i] = numbers(norms_[i], type, {head_dim});
  }
  w.slot_mapping = numbers(slots_, DType::i64, {c.max_tokens});
  w.index_slot_mapping = numbers(index_slots_, DType::i64, {c.max_tokens});
  w.q_out = view(q_, type, {c.max_tokens, s.q_heads, head_dim});
  w.kv_cache = on_host ? kv_cache_ : kv_memory_.placed(kv_cache_);
  w.index_q_out = view(index_q_, type, {c.max_tokens, s.index_heads, head_dim});
  w.index_cache = on_host ? index_cache_ : index_memory_.placed(index_cache_);
  w.k_scale = layer_.k_scale;
  w.v_scale = layer_.v_scale;
  w.stream = place_.stream();
  return t;
}

void Engine::fetch(const StepItem& item, std::int64_t token) const {
  const DType type = config_.row_type();
  const auto row = [&](const Buffer& rows, std::int64_t heads) {
    const std::size_t bytes = bytes_of(heads * head_dim, type);
    rows.download(static_cast<std::size_t>(token) * bytes, bytes);
  };
  row(q_, config_.shape.q_heads);
  row(index_q_, config_.shape.index_heads);
  /// From the first element of a (page, head) tile to its last: with what a layout puts between.
  const auto tile = [](const Buffer& memory, const ConstTensor& tokens) {
    const auto* first = tokens.ptr<char>();
    const std::int64_t elements =
        (page_size - 1) * tokens.stride[tokens.rank - 2] + tokens.shape[tokens.rank - 1];
    memory.download(static_cast<std::size_t>(first - memory.host_as<char>()),
                    bytes_of(elements, tokens.dtype));
  };
  const std::int64_t pages = (item.seq_len() + page_size - 1) / page_size;
  for (std::int64_t i = 0; i < pages; ++i) {
    const auto at = static_cast<std::size_t>(i);
    tile(index_memory_, ConstTensor(index_cache_).narrow(0, item.index_pages[at], 1));
    for (std::int64_t head = 0; head < kv_cache_.shape[1]; ++head) {
      tile(kv_memory_, ConstTensor(kv_cache_).narrow(0, item.pages[at], 1).narrow(1, head, 1));
    }
  }
}

Workspace Engine::workspace(std::size_t bytes) {
  if (bytes > workspace_.bytes()) workspace_ = Buffer(place_, bytes);
  return {workspace_.data(), workspace_.bytes()};
}

ForwardContext Engine::context() {
  ForwardContext context;
  context.metadata = &metadata_;
  context.stream = place_.stream();
  return context;
}

PhaseTimes Engine::run(const StepPlan& plan, std::span<const Content> contents) {
  PhaseTimes times{};
  Stopwatch watch(times);
  draw_rows(plan, contents);
  watch.lap(Phase::activations);
  load_arrays(plan);
  build_metadata(plan);
  watch.lap(Phase::metadata);

  // The place's clock: a device works while this thread goes on.
  place_.mark(0);
  WriteCacheArgs write = views(false).write;
  write.num_tokens = plan.tokens();
  write_cache(write);
  place_.mark(1);

  const auto requests = static_cast<std::int64_t>(plan.items.size());
  const ConstTensor index_table = index_table_.view(DType::i32, {requests, columns_});
  ForwardContext forward = context();
  const ConstTensor index_q = write.index_q_out, index_cache = write.index_cache;
  forward.workspace =
      workspace(indexer_.workspace_size(layer_, index_q, index_cache, index_table, forward));
  indexer_.forward(layer_, index_q, index_cache, index_table, forward);
  place_.mark(2);

  const std::int64_t width = config_.shape.q_heads * head_dim;
  const DType type = config_.row_type();
  const ConstTensor query = q_.view(type, {config_.max_tokens, width});
  const Tensor output = out_.view(type, {config_.max_tokens, width});
  const Tensor kv_cache = write.kv_cache.packed;
  forward.workspace = workspace(impl_.workspace_size(layer_, query, kv_cache, output, forward));
  impl_.forward(layer_, query, kv_cache, output, forward);
  place_.mark(3);
  times[Phase::write_cache] = place_.seconds_between(0, 1);
  times[Phase::index_blocks] = place_.seconds_between(1, 2);
  times[Phase::attend] = place_.seconds_between(2, 3);
  watch.skip();

  add_to_digest(plan.tokens());
  watch.lap(Phase::digest);
  return times;
}

void Engine::prefill_caches(const StepPlan& plan, std::span<const Content> contents) {
  draw_rows(plan, contents);
  load_arrays(plan);
  WriteCacheArgs write = views(false).write;
  write.num_tokens = plan.tokens();
  write_cache(write);
}

void Engine::add_to_digest(std::int64_t tokens) {
  const std::int64_t out_elements = tokens * config_.shape.q_heads * head_dim;
  const std::int64_t ids = tokens * config_.shape.index_heads * topk;
  const std::size_t out_bytes = bytes_of(out_elements, config_.row_type());
  const std::size_t ids_bytes = bytes_of(ids, DType::i32);
  out_.download(0, out_bytes);
  selection_.download(0, ids_bytes);
  digest_ = xxh64(out_.host(), out_bytes, digest_);
  digest_ = xxh64(selection_.host(), ids_bytes, digest_);
}

}  // namespace msa::replay
