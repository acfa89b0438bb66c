// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/place.h"
#include "cli/replay/activations.h"
#include "cli/replay/content.h"
#include "cli/replay/scheduler.h"
#include "msa/layer.h"

/// \file
/// Attention layers with their caches: compute the steps that the scheduler plans.

namespace msa::replay {

struct EngineConfig {
  LayerShape shape;
  std::int64_t layers = 1;         ///< alike, each with caches of its own, 1 to most_layers
  DType kv_type = DType::bf16;     ///< of the main cache: bf16, f16, e4m3 or e5m2
  DType index_type = DType::bf16;  ///< of the index cache: bf16 or e4m3
  KVLayout layout = KVLayout::LBHNC;
  std::int64_t pages = 0;  ///< of the main cache
  std::int64_t index_pages = 0;
  std::int64_t max_tokens = 0;   ///< query tokens of a step
  std::int64_t max_batch = 0;    ///< requests of a step
  std::int64_t max_seq_len = 0;  ///< keys of a request
  std::int64_t decode_query_len = 1;
  bool graphs = false;  ///< steps of decode rows alone are captured once a bucket and replayed
  std::uint64_t seed = 1;

  /// Rows, q and outputs: f16 where the cache is f16, else bf16.
  DType row_type() const { return kv_type == DType::f16 ? DType::f16 : DType::bf16; }
};

/// What a step spends its time on, in the order in which it happens. The engine fills in its own,
/// the loop around it the first and the last.
enum class Phase : std::uint8_t {
  schedule,
  activations,
  metadata,
  write_cache,
  index_blocks,
  attend,
  digest,
  verify,
};
inline constexpr std::array<const char*, 8> phase_names = {
    "schedule",     "activations", "metadata", "write_cache",
    "index_blocks", "attend",      "digest",   "verify"};
/// True for what an engine would have to do as well; the rest is the harness of this command.
constexpr bool serves(Phase phase) {
  return phase != Phase::activations && phase != Phase::digest && phase != Phase::verify;
}
/// Seconds by phase.
struct PhaseTimes {
  std::array<double, phase_names.size()> seconds{};

  double& operator[](Phase phase) { return seconds[static_cast<std::size_t>(phase)]; }
  double operator[](Phase phase) const { return seconds[static_cast<std::size_t>(phase)]; }
  /// Time of what serves, or of all.
  double total(bool harness_too) const {
    double sum = 0;
    for (std::size_t i = 0; i < seconds.size(); ++i) {
      if (harness_too || serves(static_cast<Phase>(i))) sum += seconds[i];
    }
    return sum;
  }
};

/// Bytes that a step must read in all layers: visible index keys of each request once, and each
/// (page, KV head) tile once that a row of a request chose.
struct StepBytes {
  double index = 0;
  double attend = 0;
};

/// Views of everything a layer read and wrote in a step, in host memory, for the verifier. Valid
/// until the next step.
struct StepTensors {
  /// Brings row `token`'s q and index_q, its request's index keys and the pages that it chose to
  /// the host; what a step wrote beside them is there. Empty where the host holds everything.
  std::function<void(const StepItem& item, std::int64_t token)> fetch;
  WriteCacheArgs write;  // inputs and outputs of write_cache
  Tensor selection;      // [max_tokens, Hi, topk] i32
  Tensor out;            // [max_tokens, Hq, 128]
  Tensor lse;            // [max_tokens, Hq] f32, where the step wrote it
  SelectRule rule;
  Scale k_scale, v_scale;
};

/// Owns the layers' caches and buffers, in one place. Caches start as NaN everywhere and are never
/// cleared. Every layer gets the same rows; its norms, and so its keys and choices, are its own.
/// Layer `step mod layers` of a step is the one that is looked at: its outputs enter the digest,
/// and the verifier sees its tensors.
class Engine {
 public:
  static constexpr std::int64_t topk = 16;
  static constexpr std::int64_t most_layers = 16;
  /// Requests of the largest bucket; a larger batch is called, not replayed.
  static constexpr std::int64_t most_captured = 512;

  explicit Engine(const EngineConfig& config, Place& place = cli::host_place());

  /// Computes a step: draws the rows, splits the batch; in each layer writes the caches, selects
  /// and attends; then adds the outputs of a layer and the ids of all to the digest. Returns where
  /// the time went.
  PhaseTimes run(const StepPlan& plan, std::span<const Content> contents);
  /// Only draws the rows and writes the caches: a cheap way to a long context.
  void prefill_caches(const StepPlan& plan, std::span<const Content> contents);

  /// Of the step that was computed last.
  StepBytes bytes(const StepPlan& plan) const;
  /// Batch sizes that were captured so far, ascending.
  std::vector<std::int64_t> captured() const;
  /// A device's rate on the caches, which are lost.
  double measure_memory() {
    return cli::memory_rate(place_, kv_memory_.data(), kv_memory_.bytes());
  }

  /// XXH64, chained over the outputs and ids of all steps so far.
  std::uint64_t digest() const { return digest_; }
  /// Starts the digest anew, as after a calibration.
  void reset_digest() { digest_ = steps_ = 0; }

  StepTensors tensors() const { return views(seen(), true); }
  /// The last step's batch as the metadata builder split it.
  const SparseMetadata& metadata() const { return metadata_.begin()->second; }
  const EngineConfig& config() const { return config_; }
  const Place& place() const { return place_; }
  /// Bytes of both caches, what the layout interleaves with them included.
  std::size_t cache_bytes() const { return kv_memory_.bytes() + index_memory_.bytes(); }

 private:
  using Buffer = cli::PlacedBuffer;
  template <class T>
  using Vector = cli::PlacedVector<T>;

  struct Layer {
    LayerContext context;
    Tensor kv_cache;                             // [pages, Hkv, 128, 256], the host's side
    Tensor index_cache;                          // [index pages, 128, 128], the host's side
    Buffer q;                                    // [max_tokens, Hq, 128]
    Buffer index_q;                              // [max_tokens, Hi, 128]
    Buffer selection;                            // [round_up(max_tokens, 4), Hi, 16] i32
    Buffer out;                                  // [max_tokens, Hq, 128]
    std::array<Vector<std::uint16_t>, 4> norms;  // q, k, index_q, index_k
  };
  /// Steps of as many requests, padded where a step has fewer: captured once, with memory of its
  /// own that no other call makes room in.
  struct Bucket {
    Buffer workspace;
    std::unique_ptr<Recording> calls;
  };

  /// Uninitialized memory where the engine computes.
  Buffer elements_of(std::int64_t count, DType type) const;
  void allocate();
  void make_layers();
  void fill_caches_with_nan();
  /// The layer of the last step that is looked at.
  const Layer& seen() const;
  StepTensors views(const Layer& layer, bool on_host) const;
  void fetch(const StepItem& item, std::int64_t token) const;
  bool replays(const StepPlan& plan) const;
  std::int64_t bucket_of(const StepPlan& plan) const;
  void load_arrays(const StepPlan& plan, std::int64_t requests);
  void draw_rows(const StepPlan& plan, std::span<const Content> contents);
  void build_metadata(const StepPlan& plan, std::int64_t requests);
  void run_bucket(std::int64_t requests);
  std::size_t workspace_bytes() const;
  void call(std::int64_t tokens, Workspace workspace);
  void add_to_digest(std::int64_t tokens);
  WriteCacheArgs write_arguments(const Layer& layer, std::int64_t tokens) const;
  ForwardContext context() const;

  EngineConfig config_;
  Place& place_;
  Activations activations_;
  MetadataBuilder builder_;
  Indexer indexer_;
  SparseImpl impl_;
  std::map<std::string, SparseMetadata> metadata_;  // one for all layers
  std::uint64_t digest_ = 0;
  std::uint64_t steps_ = 0;  // in the digest

  Buffer kv_memory_, index_memory_;  // of all layers
  std::vector<Layer> layers_;
  Buffer rows_;  // [max_tokens, row_elements]
  Buffer workspace_;
  std::map<std::int64_t, Bucket> buckets_;                // by requests
  Vector<float> cos_sin_;                                 // [max_seq_len, 64]
  Vector<std::int64_t> positions_, slots_, index_slots_;  // [max_tokens]
  std::vector<std::int32_t> query_start_loc_;             // [max_batch + 1]
  Vector<std::int32_t> seq_lens_;                         // [max_batch]
  Vector<std::int32_t> block_table_, index_table_;        // [max_batch, columns_]
  Buffer cu_seqlens_q_, context_lens_;                    // [max_batch + 1], [max_batch] i32
  std::int64_t columns_ = 0;
};

}  // namespace msa::replay
