// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/replay/engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "cli/replay/digest.h"
#include "common/numeric.h"

namespace msa::replay {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* layer_name = "layers.0.attn";
constexpr double rope_theta = 5e6;
constexpr std::int64_t rotary_pairs = 32;
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

 private:
  PhaseTimes& times_;
  Clock::time_point last_ = Clock::now();
};

std::size_t bytes_of(std::int64_t elements, DType type) {
  return static_cast<std::size_t>(elements) * size_of(type);
}

}  // namespace

Engine::Engine(const EngineConfig& config)
    : config_(config),
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
  build_rotary_table();
  for (std::size_t i = 0; i < norms_.size(); ++i) norms_[i] = activations_.norm_weight(i);
}

void Engine::allocate() {
  const EngineConfig& c = config_;
  const std::int64_t layers = interleaved(c.layout) ? interleaved_layers : 1;
  const KVCacheShape shape{.layers = layers, .pages = c.pages, .heads = c.shape.kv_heads};
  kv_memory_ = Buffer(bytes_of(shape.numel(), c.kv_type));
  kv_cache_ = kv_layer_view(kv_memory_.data(), c.kv_type, c.layout, shape, layers - 1);
  index_memory_ = Buffer(bytes_of(c.index_pages * page_size * head_dim, c.index_type));
  index_cache_ =
      Tensor::dense(index_memory_.data(), c.index_type, {c.index_pages, page_size, head_dim});
  const std::int64_t q_elements = c.max_tokens * c.shape.q_heads * head_dim;
  rows_ = Buffer(bytes_of(c.max_tokens * c.shape.row_elements(), c.row_type()));
  q_ = Buffer(bytes_of(q_elements, c.row_type()));
  out_ = Buffer(bytes_of(q_elements, c.row_type()));
  index_q_ = Buffer(bytes_of(c.max_tokens * c.shape.index_heads * head_dim, c.row_type()));
  const std::int64_t selection_rows = Indexer::buffer_rows(c.max_tokens);
  selection_ = Buffer(bytes_of(selection_rows * c.shape.index_heads * topk, DType::i32));
  layer_.topk_indices =
      Tensor::dense(selection_.data(), DType::i32, {selection_rows, c.shape.index_heads, topk});
  const auto tokens = static_cast<std::size_t>(c.max_tokens);
  positions_.resize(tokens);
  slots_.resize(tokens);
  index_slots_.resize(tokens);
  columns_ = (c.max_seq_len + page_size - 1) / page_size;
  const auto requests = static_cast<std::size_t>(c.max_batch);
  query_start_loc_.resize(requests + 1);
  seq_lens_.resize(requests);
  // Entries past a request's pages stay what they are: nobody may look at them.
  block_table_.assign(requests * static_cast<std::size_t>(columns_), -1);
  index_table_.assign(requests * static_cast<std::size_t>(columns_), -1);
}

void Engine::fill_caches_with_nan() {
  // 0xff… is a NaN of every type. Only the view's own rows: other layers' memory stays untouched.
  const std::size_t row = 2 * head_dim * size_of(config_.kv_type);
  for (std::int64_t page = 0; page < kv_cache_.shape[0]; ++page) {
    for (std::int64_t head = 0; head < kv_cache_.shape[1]; ++head) {
      for (std::int64_t token = 0; token < page_size; ++token) {
        const Tensor at = kv_cache_.narrow(0, page, 1).narrow(1, head, 1).narrow(2, token, 1);
        std::memset(at.data, 0xff, row);
      }
    }
  }
  std::memset(index_memory_.data(), 0xff, index_memory_.bytes());
}

void Engine::build_rotary_table() {
  cos_sin_.resize(static_cast<std::size_t>(config_.max_seq_len * 2 * rotary_pairs));
  for (std::int64_t i = 0; i < rotary_pairs; ++i) {
    const double frequency =
        std::pow(rope_theta, -static_cast<double>(i) / static_cast<double>(rotary_pairs));
    for (std::int64_t p = 0; p < config_.max_seq_len; ++p) {
      const double angle = static_cast<double>(p) * frequency;
      float* row = cos_sin_.data() + p * 2 * rotary_pairs;
      row[i] = static_cast<float>(std::cos(angle));
      row[rotary_pairs + i] = static_cast<float>(std::sin(angle));
    }
  }
}

void Engine::load_arrays(const StepPlan& plan) {
  std::int64_t t = 0;
  for (std::size_t r = 0; r < plan.items.size(); ++r) {
    const StepItem& item = plan.items[r];
    query_start_loc_[r] = static_cast<std::int32_t>(t);
    seq_lens_[r] = static_cast<std::int32_t>(item.seq_len());
    const auto pages = static_cast<std::size_t>((item.seq_len() + page_size - 1) / page_size);
    const std::size_t row = r * static_cast<std::size_t>(columns_);
    std::copy_n(item.pages.begin(), pages, block_table_.begin() + static_cast<std::ptrdiff_t>(row));
    std::copy_n(item.index_pages.begin(), pages,
                index_table_.begin() + static_cast<std::ptrdiff_t>(row));
    for (std::int64_t p = item.first_position; p < item.seq_len(); ++p, ++t) {
      const auto at = static_cast<std::size_t>(t);
      const auto page = static_cast<std::size_t>(p / page_size);
      positions_[at] = p;
      slots_[at] = std::int64_t{item.pages[page]} * page_size + p % page_size;
      index_slots_[at] = std::int64_t{item.index_pages[page]} * page_size + p % page_size;
    }
  }
  query_start_loc_[plan.items.size()] = static_cast<std::int32_t>(t);
}

void Engine::draw_rows(const StepPlan& plan, std::span<const Content> contents) {
  auto* rows = rows_.as<std::uint16_t>();
  for (const StepItem& item : plan.items) {
    const std::int64_t kept = item.decode ? item.accepted : item.query_len;
    activations_.fill(contents[static_cast<std::size_t>(item.request)], item.first_position,
                      item.query_len, kept, rows);
    rows += item.query_len * config_.shape.row_elements();
  }
}

void Engine::build_metadata(const StepPlan& plan) {
  const auto requests = static_cast<std::int64_t>(plan.items.size());
  StepInputs step;
  step.query_start_loc = std::span(query_start_loc_).first(plan.items.size() + 1);
  step.seq_lens_host = std::span(seq_lens_).first(plan.items.size());
  step.seq_lens = ConstTensor::dense(seq_lens_.data(), DType::i32, {requests});
  step.block_table = ConstTensor::dense(block_table_.data(), DType::i32, {requests, columns_});
  step.slot_mapping = ConstTensor::dense(slots_.data(), DType::i64, {plan.tokens()});
  step.num_actual_tokens = plan.tokens();
  metadata_.begin()->second = builder_.build(step);
}

StepTensors Engine::tensors() {
  const EngineConfig& c = config_;
  const LayerShape& s = c.shape;
  const DType type = c.row_type();
  StepTensors t;
  t.k_scale = layer_.k_scale;
  t.v_scale = layer_.v_scale;
  t.selection = layer_.topk_indices;
  t.out = Tensor::dense(out_.data(), type, {c.max_tokens, s.q_heads, head_dim});
  WriteCacheArgs& w = t.write;
  w.qkv = ConstTensor::dense(rows_.data(), type, {c.max_tokens, s.row_elements()});
  w.positions = ConstTensor::dense(positions_.data(), DType::i64, {c.max_tokens});
  w.cos_sin = ConstTensor::dense(cos_sin_.data(), DType::f32, {c.max_seq_len, 2 * rotary_pairs});
  ConstTensor* const norms[] = {&w.q_norm, &w.k_norm, &w.index_q_norm, &w.index_k_norm};
  for (std::size_t i = 0; i < norms_.size(); ++i) {
    *norms[i] = ConstTensor::dense(norms_[i].data(), type, {head_dim});
  }
  w.slot_mapping = ConstTensor::dense(slots_.data(), DType::i64, {c.max_tokens});
  w.index_slot_mapping = ConstTensor::dense(index_slots_.data(), DType::i64, {c.max_tokens});
  w.q_out = Tensor::dense(q_.data(), type, {c.max_tokens, s.q_heads, head_dim});
  w.kv_cache = kv_cache_;
  w.index_q_out = Tensor::dense(index_q_.data(), type, {c.max_tokens, s.index_heads, head_dim});
  w.index_cache = index_cache_;
  w.k_scale = layer_.k_scale;
  w.v_scale = layer_.v_scale;
  return t;
}

Workspace Engine::workspace(std::size_t bytes) {
  if (bytes > workspace_.bytes()) workspace_ = Buffer(bytes);
  return {workspace_.data(), workspace_.bytes()};
}

ForwardContext Engine::context() {
  ForwardContext context;
  context.metadata = &metadata_;
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

  StepTensors t = tensors();
  t.write.num_tokens = plan.tokens();
  write_cache(t.write);
  watch.lap(Phase::write_cache);

  const auto requests = static_cast<std::int64_t>(plan.items.size());
  const ConstTensor index_table =
      ConstTensor::dense(index_table_.data(), DType::i32, {requests, columns_});
  ForwardContext forward = context();
  const ConstTensor index_q = t.write.index_q_out;
  forward.workspace =
      workspace(indexer_.workspace_size(layer_, index_q, index_cache_, index_table, forward));
  indexer_.forward(layer_, index_q, index_cache_, index_table, forward);
  watch.lap(Phase::index_blocks);

  const std::int64_t width = config_.shape.q_heads * head_dim;
  const DType type = config_.row_type();
  const ConstTensor query = ConstTensor::dense(q_.data(), type, {config_.max_tokens, width});
  const Tensor output = Tensor::dense(out_.data(), type, {config_.max_tokens, width});
  forward.workspace = workspace(impl_.workspace_size(layer_, query, kv_cache_, output, forward));
  impl_.forward(layer_, query, kv_cache_, output, forward);
  watch.lap(Phase::attend);

  add_to_digest(plan.tokens());
  watch.lap(Phase::digest);
  return times;
}

void Engine::prefill_caches(const StepPlan& plan, std::span<const Content> contents) {
  draw_rows(plan, contents);
  load_arrays(plan);
  WriteCacheArgs write = tensors().write;
  write.num_tokens = plan.tokens();
  write_cache(write);
}

void Engine::add_to_digest(std::int64_t tokens) {
  const std::int64_t out_elements = tokens * config_.shape.q_heads * head_dim;
  const std::int64_t ids = tokens * config_.shape.index_heads * topk;
  digest_ = xxh64(out_.data(), bytes_of(out_elements, config_.row_type()), digest_);
  digest_ = xxh64(selection_.data(), bytes_of(ids, DType::i32), digest_);
}

}  // namespace msa::replay
