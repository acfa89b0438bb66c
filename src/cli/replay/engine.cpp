// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/replay/engine.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <iterator>
#include <set>
#include <utility>

#include "cli/io/rotation.h"
#include "cli/replay/digest.h"
#include "common/numeric.h"
#include "cpu/parallel.h"

namespace msa::replay {
namespace {

using Clock = std::chrono::steady_clock;

// What the batch is does not depend on the layer: one entry of the metadata serves them all.
constexpr const char* metadata_name = "attn";
// Where layers are interleaved, a lone one is one of two, so that its strides are not its own.
constexpr std::int64_t interleaved_layers = 2;
constexpr std::int64_t drawn_at_once = 64;  // tokens of a task

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
  metadata_[metadata_name];
  allocate();
  make_layers();
  fill_caches_with_nan();
  cos_sin_ = {place_, cli::rotation_table(config.max_seq_len)};
}

Engine::Buffer Engine::elements_of(std::int64_t count, DType type) const {
  return {place_, bytes_of(count, type)};
}

void Engine::allocate() {
  const EngineConfig& c = config_;
  rows_ = elements_of(c.max_tokens * c.shape.row_elements(), c.row_type());
  rows_.pin();
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
  cu_seqlens_q_ = elements_of(c.max_batch + 1, DType::i32);
  context_lens_ = elements_of(c.max_batch, DType::i32);
}

void Engine::make_layers() {
  const EngineConfig& c = config_;
  const std::int64_t least = interleaved(c.layout) ? interleaved_layers : 1;
  const KVCacheShape shape{
      .layers = std::max(c.layers, least), .pages = c.pages, .heads = c.shape.kv_heads};
  const std::int64_t index_elements = c.index_pages * page_size * head_dim;
  kv_memory_ = elements_of(shape.numel(), c.kv_type);
  index_memory_ = elements_of(c.layers * index_elements, c.index_type);
  const std::int64_t q_elements = c.max_tokens * c.shape.q_heads * head_dim;
  const std::int64_t selection_rows = Indexer::buffer_rows(c.max_tokens);
  layers_.resize(static_cast<std::size_t>(c.layers));
  for (std::int64_t l = 0; l < c.layers; ++l) {
    Layer& layer = layers_[static_cast<std::size_t>(l)];
    // The last ones of the memory: a lone one of interleaved layers has a storage offset.
    layer.kv_cache =
        kv_layer_view(kv_memory_.host(), c.kv_type, c.layout, shape, shape.layers - c.layers + l);
    layer.index_cache =
        Tensor::dense(index_memory_.host_as<char>() + bytes_of(l * index_elements, c.index_type),
                      c.index_type, {c.index_pages, page_size, head_dim});
    layer.q = elements_of(q_elements, c.row_type());
    layer.out = elements_of(q_elements, c.row_type());
    layer.out.pin();
    layer.index_q = elements_of(c.max_tokens * c.shape.index_heads * head_dim, c.row_type());
    layer.selection = elements_of(selection_rows * c.shape.index_heads * topk, DType::i32);
    layer.context.name = metadata_name;
    layer.context.topk_indices =
        layer.selection.view(DType::i32, {selection_rows, c.shape.index_heads, topk});
    if (is_fp8(c.kv_type)) {
      // Largest k about 11.3 (a normed row with one element), largest v about 5: both within ±448.
      layer.context.k_scale = 0.03f;
      layer.context.v_scale = 0.02f;
    }
    for (std::size_t i = 0; i < layer.norms.size(); ++i) {
      const auto which = static_cast<std::uint64_t>(l) * layer.norms.size() + i;
      layer.norms[i] = {place_, activations_.norm_weight(which)};
    }
  }
}

const Engine::Layer& Engine::seen() const {
  return layers_[(steps_ > 0 ? steps_ - 1 : 0) % layers_.size()];
}

void Engine::fill_caches_with_nan() {
  // 0xff… is a NaN of every type.
  place_.set(index_memory_.data(), 0xff, index_memory_.bytes());
  if (!place_.is_host()) {
    place_.set(kv_memory_.data(), 0xff, kv_memory_.bytes());
    return;
  }
  // Only the views' own rows: other layers' memory stays untouched, and costs nothing.
  const std::size_t row = 2 * head_dim * size_of(config_.kv_type);
  for (const Layer& layer : layers_) {
    const Tensor& cache = layer.kv_cache;
    for (std::int64_t page = 0; page < cache.shape[0]; ++page) {
      for (std::int64_t head = 0; head < cache.shape[1]; ++head) {
        for (std::int64_t token = 0; token < page_size; ++token) {
          const Tensor at = cache.narrow(0, page, 1).narrow(1, head, 1).narrow(2, token, 1);
          std::memset(at.data, 0xff, row);
        }
      }
    }
  }
}

bool Engine::replays(const StepPlan& plan) const {
  return config_.graphs && plan.prefill_tokens == 0 &&
         static_cast<std::int64_t>(plan.items.size()) <= most_captured;
}

/// Requests that the operators are given for a step: as many as it has, or a bucket's.
std::int64_t Engine::bucket_of(const StepPlan& plan) const {
  const auto requests = static_cast<std::int64_t>(plan.items.size());
  if (!replays(plan)) return requests;
  const auto rounded = std::bit_ceil(static_cast<std::uint64_t>(requests));
  return std::min(static_cast<std::int64_t>(rounded), config_.max_batch);
}

void Engine::load_arrays(const StepPlan& plan, std::int64_t requests) {
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
  // Padding: requests without keys, and m rows each that are written nowhere.
  for (std::size_t r = plan.items.size(); r <= static_cast<std::size_t>(requests); ++r) {
    query_start_loc_[r] = static_cast<std::int32_t>(t);
    if (r < static_cast<std::size_t>(requests)) seq_lens_.values()[r] = 0;
  }
  const auto padding = requests - static_cast<std::int64_t>(plan.items.size());
  for (std::int64_t i = 0; i < padding * config_.decode_query_len; ++i, ++t) {
    const auto at = static_cast<std::size_t>(t);
    positions_.values()[at] = 0;
    slots_.values()[at] = index_slots_.values()[at] = -1;
  }
  const auto cells = static_cast<std::size_t>(requests * columns_);
  seq_lens_.upload(static_cast<std::size_t>(requests));
  block_table_.upload(cells);
  index_table_.upload(cells);
  for (const Vector<std::int64_t>* numbers : {&positions_, &slots_, &index_slots_}) {
    numbers->upload(static_cast<std::size_t>(t));
  }
}

void Engine::draw_rows(const StepPlan& plan, std::span<const Content> contents) {
  struct Piece {
    const StepItem* item;
    std::int64_t first;  // token of the item
    std::uint16_t* rows;
  };
  std::vector<Piece> pieces;
  auto* rows = rows_.host_as<std::uint16_t>();
  for (const StepItem& item : plan.items) {
    for (std::int64_t first = 0; first < item.query_len; first += drawn_at_once) {
      pieces.push_back({&item, first, rows + first * config_.shape.row_elements()});
    }
    rows += item.query_len * config_.shape.row_elements();
  }
  cpu::parallel_for(static_cast<std::int64_t>(pieces.size()), [&](std::int64_t i) {
    const auto& [item, first, to] = pieces[static_cast<std::size_t>(i)];
    const std::int64_t kept = item->decode ? item->accepted : item->query_len;
    activations_.fill(contents[static_cast<std::size_t>(item->request)],
                      item->first_position + first,
                      std::min(drawn_at_once, item->query_len - first), kept - first, to);
  });
  rows_.upload(0, bytes_of(plan.tokens() * config_.shape.row_elements(), config_.row_type()));
}

void Engine::build_metadata(const StepPlan& plan, std::int64_t requests) {
  const auto items = static_cast<std::int64_t>(plan.items.size());
  StepInputs step;
  step.query_start_loc = std::span(query_start_loc_).first(static_cast<std::size_t>(requests) + 1);
  step.seq_lens_host = std::span(seq_lens_.values()).first(static_cast<std::size_t>(requests));
  step.seq_lens = seq_lens_.view(DType::i32, {requests});
  step.block_table = block_table_.view(DType::i32, {requests, columns_});
  step.num_actual_tokens = plan.tokens() + (requests - items) * config_.decode_query_len;
  step.slot_mapping = slots_.view(DType::i64, {step.num_actual_tokens});
  // A captured call fixes its bounds.
  if (replays(plan)) step.max_seq_len = config_.max_seq_len;
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

StepTensors Engine::views(const Layer& layer, bool on_host) const {
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
  t.k_scale = layer.context.k_scale;
  t.v_scale = layer.context.v_scale;
  t.selection = view(layer.selection, DType::i32,
                     {layer.context.topk_indices.shape[0], s.index_heads, std::int64_t{topk}});
  t.out = view(layer.out, type, {c.max_tokens, s.q_heads, head_dim});
  WriteCacheArgs& w = t.write;
  w.qkv = view(rows_, type, {c.max_tokens, s.row_elements()});
  w.positions = numbers(positions_, DType::i64, {c.max_tokens});
  w.cos_sin = numbers(cos_sin_, DType::f32, {c.max_seq_len, cli::rotary_elements});
  ConstTensor* const norms[] = {&w.q_norm, &w.k_norm, &w.index_q_norm, &w.index_k_norm};
  for (std::size_t i = 0; i < layer.norms.size(); ++i) {
    *norms[i] = numbers(layer.norms[i], type, {head_dim});
  }
  w.slot_mapping = numbers(slots_, DType::i64, {c.max_tokens});
  w.index_slot_mapping = numbers(index_slots_, DType::i64, {c.max_tokens});
  w.q_out = view(layer.q, type, {c.max_tokens, s.q_heads, head_dim});
  w.kv_cache = on_host ? layer.kv_cache : kv_memory_.placed(layer.kv_cache);
  w.index_q_out = view(layer.index_q, type, {c.max_tokens, s.index_heads, head_dim});
  w.index_cache = on_host ? layer.index_cache : index_memory_.placed(layer.index_cache);
  w.k_scale = layer.context.k_scale;
  w.v_scale = layer.context.v_scale;
  w.stream = place_.stream();
  return t;
}

void Engine::fetch(const StepItem& item, std::int64_t token) const {
  const Layer& layer = seen();
  const LayerShape& s = config_.shape;
  const auto row = [&](const Buffer& rows, std::int64_t heads) {
    const std::size_t bytes = bytes_of(heads * head_dim, config_.row_type());
    rows.download(static_cast<std::size_t>(token) * bytes, bytes);
  };
  row(layer.q, s.q_heads);
  row(layer.index_q, s.index_heads);
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
    tile(
        index_memory_,
        ConstTensor(layer.index_cache).narrow(0, item.index_pages[static_cast<std::size_t>(i)], 1));
  }
  // Its own page, which it wrote, and what its lists name.
  std::set<std::int64_t> blocks;
  const auto* ids = layer.selection.host_as<std::int32_t>() + token * s.index_heads * topk;
  for (std::int64_t i = 0; i < s.index_heads * topk; ++i) {
    if (ids[i] >= 0 && ids[i] < pages) blocks.insert(ids[i]);
  }
  for (std::int64_t i = item.first_position / page_size; i < pages; ++i) blocks.insert(i);
  for (const std::int64_t block : blocks) {
    const Tensor page = layer.kv_cache.narrow(0, item.pages[static_cast<std::size_t>(block)], 1);
    for (std::int64_t head = 0; head < s.kv_heads; ++head) {
      tile(kv_memory_, ConstTensor(page).narrow(1, head, 1));
    }
  }
}

ForwardContext Engine::context() const {
  ForwardContext context;
  context.metadata = &metadata_;
  context.stream = place_.stream();
  return context;
}

WriteCacheArgs Engine::write_arguments(const Layer& layer, std::int64_t tokens) const {
  WriteCacheArgs write = views(layer, false).write;
  write.num_tokens = tokens;
  return write;
}

/// Of any layer: they are alike.
std::size_t Engine::workspace_bytes() const {
  const Layer& layer = layers_.front();
  const StepTensors t = views(layer, false);
  const std::int64_t width = config_.shape.q_heads * head_dim;
  const DType type = config_.row_type();
  const std::int64_t requests = metadata().batch.num_requests();
  return std::max(
      indexer_.workspace_size(layer.context, t.write.index_q_out, t.write.index_cache,
                              index_table_.view(DType::i32, {requests, columns_}), context()),
      impl_.workspace_size(layer.context, layer.q.view(type, {config_.max_tokens, width}),
                           t.write.kv_cache.packed,
                           layer.out.view(type, {config_.max_tokens, width}), context()));
}

/// The operators of a step, on the place's clock: a device works while this thread goes on. Before
/// each operator a mark, and one behind the last.
void Engine::call(std::int64_t tokens, Workspace workspace) {
  ForwardContext forward = context();
  forward.workspace = workspace;
  const std::int64_t requests = metadata().batch.num_requests();
  const std::int64_t width = config_.shape.q_heads * head_dim;
  const DType type = config_.row_type();
  std::size_t mark = 0;
  for (const Layer& layer : layers_) {
    const WriteCacheArgs write = write_arguments(layer, tokens);
    place_.mark(mark++);
    write_cache(write);
    place_.mark(mark++);
    indexer_.forward(layer.context, write.index_q_out, write.index_cache,
                     index_table_.view(DType::i32, {requests, columns_}), forward);
    place_.mark(mark++);
    impl_.forward(layer.context, layer.q.view(type, {config_.max_tokens, width}),
                  write.kv_cache.packed, layer.out.view(type, {config_.max_tokens, width}),
                  forward);
  }
  place_.mark(mark);
}

void Engine::run_bucket(std::int64_t requests) {
  Bucket& bucket = buckets_[requests];
  if (bucket.calls == nullptr) {
    const std::int64_t tokens = requests * config_.decode_query_len;
    const std::size_t bytes = workspace_bytes();
    if (bytes > 0) bucket.workspace = Buffer(place_, bytes);
    const Workspace workspace{bucket.workspace.data(), bucket.workspace.bytes()};
    bucket.calls = place_.record([this, tokens, workspace] { call(tokens, workspace); });
  }
  bucket.calls->run();
}

std::vector<std::int64_t> Engine::captured() const {
  std::vector<std::int64_t> sizes;
  for (const auto& [requests, bucket] : buckets_) sizes.push_back(requests);
  return sizes;
}

PhaseTimes Engine::run(const StepPlan& plan, std::span<const Content> contents) {
  PhaseTimes times{};
  Stopwatch watch(times);
  draw_rows(plan, contents);
  watch.lap(Phase::activations);
  const std::int64_t requests = bucket_of(plan);
  load_arrays(plan, requests);
  build_metadata(plan, requests);
  watch.lap(Phase::metadata);

  if (replays(plan)) {
    run_bucket(requests);
  } else {
    const std::size_t bytes = workspace_bytes();
    if (bytes > workspace_.bytes()) workspace_ = Buffer(place_, bytes);
    call(plan.tokens(), {workspace_.data(), workspace_.bytes()});
  }
  constexpr std::array operators = {Phase::write_cache, Phase::index_blocks, Phase::attend};
  static_assert(most_layers * operators.size() < Place::max_marks);
  for (std::size_t i = 0; i < layers_.size() * operators.size(); ++i) {
    times[operators[i % operators.size()]] += place_.seconds_between(i, i + 1);
  }
  watch.skip();

  add_to_digest(plan.tokens());
  watch.lap(Phase::digest);
  return times;
}

StepBytes Engine::bytes(const StepPlan& plan) const {
  const std::int64_t lists = config_.shape.index_heads;
  StepBytes bytes;
  std::vector<std::int32_t> chosen;
  for (const Layer& layer : layers_) {
    const auto* ids = layer.selection.host_as<std::int32_t>();
    for (const StepItem& item : plan.items) {
      bytes.index += static_cast<double>(bytes_of(item.seq_len() * head_dim, config_.index_type));
      for (std::int64_t list = 0; list < lists; ++list) {
        chosen.clear();
        for (std::int64_t row = 0; row < item.query_len; ++row) {
          const std::int32_t* of_row = ids + (row * lists + list) * topk;
          std::copy_if(of_row, of_row + topk, std::back_inserter(chosen),
                       [](std::int32_t id) { return id >= 0; });
        }
        std::sort(chosen.begin(), chosen.end());
        const auto tiles = std::unique(chosen.begin(), chosen.end()) - chosen.begin();
        bytes.attend +=
            static_cast<double>(bytes_of(tiles * page_size * 2 * head_dim, config_.kv_type));
      }
      ids += item.query_len * lists * topk;
    }
  }
  return bytes;
}

void Engine::prefill_caches(const StepPlan& plan, std::span<const Content> contents) {
  draw_rows(plan, contents);
  load_arrays(plan, static_cast<std::int64_t>(plan.items.size()));
  for (const Layer& layer : layers_) write_cache(write_arguments(layer, plan.tokens()));
}

void Engine::add_to_digest(std::int64_t tokens) {
  ++steps_;
  const Buffer& out = seen().out;
  const std::size_t out_bytes =
      bytes_of(tokens * config_.shape.q_heads * head_dim, config_.row_type());
  out.download(0, out_bytes);
  digest_ = xxh64(out.host(), out_bytes, digest_);
  const std::size_t ids_bytes = bytes_of(tokens * config_.shape.index_heads * topk, DType::i32);
  for (const Layer& layer : layers_) {
    layer.selection.download(0, ids_bytes);
    digest_ = xxh64(layer.selection.host(), ids_bytes, digest_);
  }
}

}  // namespace msa::replay
