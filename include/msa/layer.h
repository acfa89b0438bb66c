// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "msa/attend.h"
#include "msa/export.h"
#include "msa/index.h"
#include "msa/kv_cache.h"
#include "msa/metadata.h"
#include "msa/tensor.h"
#include "msa/write_cache.h"

/// \file
/// The serving layer: what an engine's attention backend is made of. `SparseBackend` and
/// `SparseImpl` are the two classes of vLLM's backend for MiniMax-M3 (sparse_attention_flashinfer).

namespace msa {

/// Layouts that every user of a cache supports, in the first user's order of preference. An empty
/// optional means "any layout". Nothing in common → empty result.
MSA_API std::vector<KVLayout> negotiate_layouts(
    std::span<const std::optional<std::vector<KVLayout>>> users);

/// What the backend tells the engine before any cache exists.
class MSA_API SparseBackend {
 public:
  static const char* name();  ///< "MSA_SPARSE"

  /// Accepted layouts, best first, for a device of compute capability `arch` (90, 120, …; 0 = CPU).
  static std::vector<KVLayout> supported_kv_cache_layouts(int arch);

  /// Cache types by the names engines use ("auto", "bfloat16", "fp8", "fp8_e4m3", …).
  static bool supports_kv_cache_dtype(const std::string& dtype);

  /// Tokens of a page that the kernels can serve: {128}.
  static std::vector<int> supported_block_sizes();
  /// Refuses any other block size with an error that names both numbers.
  static void check_block_size(std::int64_t block_size);

  /// `[pages, Hkv, 128, 256]`. \throws Error for a negative number of pages, or no heads.
  static std::array<std::int64_t, 4> kv_cache_shape(std::int64_t pages, std::int64_t kv_heads);
};

/// One step as the engine's scheduler describes it. Host arrays are read at once and not kept.
struct StepInputs {
  std::span<const std::int32_t> query_start_loc;  // [R + 1], host, starts at 0
  std::span<const std::int32_t> seq_lens_host;    // [R], host copy of seq_lens
  ConstTensor seq_lens;                           // [R] i32
  ConstTensor block_table;                        // [R, W] i32
  ConstTensor slot_mapping;                       // [≥ T] i64; passed through, may be left out
  std::int64_t num_actual_tokens = 0;             // T, may exceed query_start_loc[R] (padding)
  std::int64_t max_seq_len = 0;                   // upper bound; 0 = taken from seq_lens_host
};

/// The split step. Owns the arrays that the split computes (cu_seqlens_q and context_lens, in host
/// memory; for device tensors put device copies into `batch`); keep it alive while calls use
/// `batch`.
struct MSA_API SparseMetadata {
  std::int64_t num_actual_tokens = 0;  ///< T
  std::int64_t num_decodes = 0;        ///< R_d
  std::int64_t num_prefills = 0;       ///< R_p
  std::int64_t num_decode_tokens = 0;  ///< nd = R_d · m
  ConstTensor slot_mapping;            // [≥ T] i64
  BatchMetadata batch;                 // of the whole step, decode part first

  /// An empty step.
  SparseMetadata() = default;
  /// Copies own arrays of their own.
  SparseMetadata(const SparseMetadata& other);
  /// \copydoc SparseMetadata(const SparseMetadata&)
  SparseMetadata& operator=(const SparseMetadata& other);
  /// Moves keep the arrays where they are.
  SparseMetadata(SparseMetadata&&) noexcept = default;
  /// \copydoc SparseMetadata(SparseMetadata&&)
  SparseMetadata& operator=(SparseMetadata&&) noexcept = default;
  ~SparseMetadata() = default;

 private:
  friend class MetadataBuilder;
  void point_at_storage();
  std::vector<std::int32_t> cu_seqlens_q_;  // [R_p + 1]
  std::vector<std::int32_t> context_lens_;  // [R_p]
};

/// Splits a step into its decode and its prefill part.
///
/// With the decode threshold τ (the draft window: 1 + drafts):
/// 1. τ ≤ 1 and no request longer than τ → all decode (m = 1, empty requests are padding rows);
/// 2. the first request longer than τ → all prefill;
/// 3. all lengths equal the first's or 0 → all decode, m = the first's length;
/// 4. else the first request with a different, non-zero length starts the prefill part.
/// Empty requests belong to the decode part only after its last non-empty one (when T counts their
/// m padding rows, else they are dropped from R_d); one in the middle makes the rest prefill, and
/// so does one before a prefill request. In a batch of nothing but empty requests m is T / R where
/// that is a possible m, else 1.
class MSA_API MetadataBuilder {
 public:
  /// τ: requests of at most so many query tokens may be decoded.
  explicit MetadataBuilder(std::int64_t decode_threshold = 1);

  /// \throws Error listing every input that is wrong (sizes, order, lengths).
  SparseMetadata build(const StepInputs& step) const;

  /// τ.
  std::int64_t decode_threshold() const { return decode_threshold_; }

 private:
  std::int64_t decode_threshold_;
};

/// One sparse layer as forward sees it.
struct LayerContext {
  std::string name;     ///< key of the metadata
  Tensor topk_indices;  // [round_up(max_tokens, 4), Hs, topk] i32, shared by a model's layers
  Scale k_scale;        ///< used where the cache is fp8
  Scale v_scale;        ///< used where the cache is fp8
};

/// What the engine knows during one forward pass. `metadata` null = profiling run.
struct ForwardContext {
  const std::map<std::string, SparseMetadata>* metadata = nullptr;  ///< by layer name
  Workspace workspace;                                ///< for all operators of the pass
  std::size_t workspace_cap = default_workspace_cap;  ///< of each operator, bytes
  Stream stream;                                      ///< where the calls run
};

/// The attention of one layer: the class that vLLM calls a backend's impl.
class MSA_API SparseImpl {
 public:
  /// What is fixed for a layer.
  struct Config {
    std::int64_t num_heads = 64;         ///< Hq
    std::int64_t num_kv_heads = 4;       ///< Hkv
    float scale = 0.08838834764831845f;  ///< softmax scale
    DType kv_cache_dtype = DType::bf16;  ///< gives a u8 cache its fp8 type
    bool invariant = false;              ///< AttendArgs::invariant
  };
  /// \throws Error naming every wrong field.
  explicit SparseImpl(const Config& config);

  /// query and output `[≥ T, Hq·128]` bf16|f16, kv_cache `[pages, Hkv, 128, 256]`. Decode part on
  /// rows [0, nd), prefill part on [nd, T), in place in `output`; scales folded in where the cache
  /// is fp8. Without metadata (profiling run) output is returned untouched. \throws Error listing
  /// every argument that is wrong, or naming a layer that the step's metadata does not hold; output
  /// is untouched then.
  Tensor forward(const LayerContext& layer, const ConstTensor& query, const Tensor& kv_cache,
                 const Tensor& output, const ForwardContext& context) const;

  /// Workspace of `forward` for these arguments.
  std::size_t workspace_size(const LayerContext& layer, const ConstTensor& query,
                             const Tensor& kv_cache, const Tensor& output,
                             const ForwardContext& context) const;

  /// As given.
  const Config& config() const { return config_; }

 private:
  Config config_;
};

/// The indexer of one layer: fills the selection buffer that `SparseImpl::forward` reads.
class MSA_API Indexer {
 public:
  /// What is fixed for a layer.
  struct Config {
    std::int64_t num_index_heads = 4;  ///< Hi
    std::int64_t topk = 16;            ///< blocks a row selects
    SelectRule rule;                   ///< how
    bool exact = false;                ///< IndexArgs::exact
  };
  /// \throws Error naming every wrong field.
  explicit Indexer(const Config& config);

  /// Rows of the selection buffer for `max_tokens` tokens: rounded up to 4.
  static std::int64_t buffer_rows(std::int64_t max_tokens) { return (max_tokens + 3) / 4 * 4; }

  /// index_q `[≥ T, Hi·128]` or `[≥ T, Hi, 128]`, index_cache `[pages, 128, 128]`,
  /// index_block_table
  /// `[R, W]`; writes rows < T of layer.topk_indices. Without metadata nothing is touched.
  /// \throws Error as SparseImpl::forward does.
  void forward(const LayerContext& layer, const ConstTensor& index_q,
               const ConstTensor& index_cache, const ConstTensor& index_block_table,
               const ForwardContext& context) const;
  /// Workspace of `forward` for these arguments.
  std::size_t workspace_size(const LayerContext& layer, const ConstTensor& index_q,
                             const ConstTensor& index_cache, const ConstTensor& index_block_table,
                             const ForwardContext& context) const;

  /// As given.
  const Config& config() const { return config_; }

 private:
  Config config_;
};

/// Arguments of layer_step: one attention layer of one step, from qkv rows to attention output.
/// What a call takes from an earlier one may be left out of it.
struct LayerStepArgs {
  WriteCacheArgs write;  // q_out and index_q_out are the buffers that index and attend read
  IndexArgs index;       // index_q, index_cache and stream are taken from `write`
  AttendArgs attend;     // q, kv_cache, scales and stream are taken from `write`, selection and
                         // workspace from `index`
};

/// write_cache → index_blocks → attend, with the bits of the three calls. What one of the three
/// writes overlaps nothing else of the step.
///
/// \throws Error listing every argument of the three that is wrong, and with MSA_CHECK=1 what is
/// wrong with the memory that they point to; nothing is written then.
MSA_API void layer_step(const LayerStepArgs& args);
/// Bytes of `index.workspace` that layer_step needs: index_blocks and attend use it in turn.
MSA_API std::size_t workspace_size(const LayerStepArgs& args);

}  // namespace msa
