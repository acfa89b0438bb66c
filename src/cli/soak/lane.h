// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/place.h"
#include "cli/replay/verifier.h"
#include "cli/soak/traffic.h"
#include "msa/layer.h"

/// \file
/// One stream of the soak: a layer with caches of its own, serving random traffic.

namespace msa::soak {

using replay::LayerShape;

/// What a lane serves until it starts anew, drawn by a seed.
struct Episode {
  LayerShape shape;
  DType kv_type = DType::bf16;
  DType index_type = DType::bf16;
  KVLayout layout = KVLayout::LBHNC;
  std::int64_t topk = 16;
  bool device_scales = false;
  bool invariant = false;
  TrafficConfig traffic;
  std::int64_t steps = 1;

  DType row_type() const { return kv_type == DType::f16 ? DType::f16 : DType::bf16; }
};
Episode draw_episode(SplitMix64& random);
/// "8/1 heads, bf16 LBHNC, index bf16, topk 16, m 1, at most 400 keys, 60 pages".
std::string text_of(const Episode& episode);

struct LaneConfig {
  std::uint64_t seed = 1;
  std::int64_t rows_per_step = 64;  ///< most rows that a step is checked by
  std::int64_t fault_step = -1;  ///< a row of this step is spoiled before it is checked; −1: none
};

struct LaneStats {
  std::int64_t rows = 0;  ///< checked
  std::int64_t steps = 0;
  std::int64_t tokens = 0;
  std::int64_t episodes = 0;        ///< caches allocated anew, with other shapes and types
  std::int64_t moves = 0;           ///< caches allocated anew, contents copied over
  std::int64_t captured_steps = 0;  ///< run as a recording: on a device, a graph
  std::int64_t pages_poisoned = 0;
  std::int64_t pages_checked = 0;  ///< free pages that still had to be what they were made
  TrafficStats traffic;
  double worst_share = 0;  ///< largest error, as a share of what is allowed

  LaneStats& operator+=(const LaneStats& other);
};

/// Serves steps, each in two halves, so that a thread can have a step of one lane on the device
/// while it checks one of another. All that is drawn depends on the seed alone.
///
/// A step: freed pages are filled with a pattern, NaNs of the cache's type or huge numbers; so are
/// the outputs, the workspace and the tables' unused entries. The operators run one by one, as
/// layer_step, or recorded. Then rows of it are checked by the replay's verifier against the f64
/// reference, and what nobody owns must be untouched: free pages, the other layer of an interleaved
/// cache, rows past the batch.
class Lane {
 public:
  Lane(std::unique_ptr<Place> place, const LaneConfig& config);

  /// Plans a step and puts it on the stream.
  void launch();
  /// Waits for it and checks it. \return words on what is wrong, or "".
  std::string finish();
  /// Words on the step that was launched last: which, and what it served.
  std::string step_text() const;

  LaneStats stats() const;

 private:
  using Buffer = cli::PlacedBuffer;
  template <class T>
  using Vector = cli::PlacedVector<T>;

  /// A cache: the memory of all its layers, the view of the one that is served, and by page the
  /// byte that it is full of while it is free.
  struct Cache {
    Buffer memory;
    Tensor view;   // the host's side
    Tensor other;  // layer 0, where the served one is layer 1
    std::vector<std::uint8_t> patterns;
    Buffer poison;  // pages [patterns, …] to copy from
    Tensor poison_view;
    Buffer pairs;  // [pages, 2] i64

    Tensor placed() const { return memory.placed(view); }
  };

  void start_episode();
  void allocate_caches(std::int64_t pages, std::int64_t index_pages);
  void move_caches();
  Cache make_cache(Tensor (*view_of)(void*, const Episode&, std::int64_t, std::int64_t), DType type,
                   std::int64_t pages, std::int64_t elements);
  void copy(const ConstTensor& from, const Tensor& to, const std::vector<std::int64_t>& pairs,
            const Buffer& device_pairs);
  void poison_freed(PagePool& pool, Cache& cache);
  void poison_outputs();
  void draw_rows();
  void load_arrays();
  void build_metadata();
  void call();
  LayerStepArgs arguments();
  replay::StepTensors host_tensors() const;
  void spoil(std::int64_t token);
  void download();
  std::vector<std::int64_t> sample();
  std::string check_rows();
  std::string check_padding() const;
  std::string check_untouched(PagePool& pool, const Cache& cache, const char* name);
  void end_traffic();

  std::unique_ptr<Place> place_;
  LaneConfig config_;
  SplitMix64 random_;
  Episode episode_;
  std::optional<Traffic> traffic_;
  replay::Verifier verifier_;
  const StepPlan* plan_ = nullptr;
  LaneStats stats_;
  std::int64_t left_ = 0;     // steps of the episode
  std::int64_t padding_ = 0;  // rows of the step that no request covers
  bool with_lse_ = false;
  const char* way_ = "";  // how the step was called

  std::vector<std::uint16_t> noise_;  // of the row type; every row is some part of it
  Cache main_, index_;
  Buffer rows_, q_, index_q_, selection_, out_, lse_, workspace_;
  Vector<float> cos_sin_, scales_;
  std::array<Vector<std::uint16_t>, 4> norms_;
  Vector<std::int64_t> positions_, slots_, index_slots_;
  std::vector<std::int32_t> query_start_loc_;
  Vector<std::int32_t> seq_lens_, block_table_, index_table_;
  Buffer cu_seqlens_q_, context_lens_;
  std::int64_t columns_ = 0, max_tokens_ = 0;
  std::optional<MetadataBuilder> builder_;
  SparseMetadata metadata_;
  std::vector<std::unique_ptr<Recording>> recordings_;  // of the step
};

}  // namespace msa::soak
