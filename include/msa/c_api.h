// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "msa/export.h"

/// \file
/// The C ABI: every operator and the serving layer of the C++ API, for C, ctypes, cffi and the
/// like.
///
/// Rules that hold for the whole file:
/// - Functions that can fail return a `msa_status`; `msa_last_error()` then holds the full text,
///   one failed condition a line. No C++ exception leaves the library.
/// - A struct that starts with `struct_size` may grow at its end in later versions. Fill it with
///   its `…_init(&s, sizeof s)` first, then set what you need. A smaller size (a program built
///   against an older header) leaves the missing fields at their defaults; a larger one (a newer
///   header) is accepted as long as the bytes that this library does not know are zero. A struct
///   that a function writes keeps its size: missing fields are left out, unknown ones become zero.
/// - Structs without `struct_size` never change, and no field ever takes the place of padding.
/// - Tensors are views: the library keeps no pointer after a call, but in a msa_sparse_metadata,
///   which hands its step's views back. Tensors that an operator only reads are never written,
///   although `msa_tensor.data` is not const.
/// - Shapes, types and meaning of the fields are those of the C++ header that the struct names. A
///   tensor of rank 0 without data counts as not given.
/// - A handle is what a `…_create`, `…_build` or `…_begin` function writes. The caller owns it
///   until it is given to its `…_destroy` function, which does nothing for null. Handles may be
///   destroyed in any order. Two threads must not use one at the same time, unless both only read.

#ifdef __cplusplus
extern "C" {
#endif

/// Result of a call: 0 or one of the MSA_ERROR_ values.
typedef int32_t msa_status;
enum {
  MSA_OK = 0,                     /**< done */
  MSA_ERROR_INVALID_ARGUMENT = 1, /**< an argument is wrong whatever the machine */
  MSA_ERROR_UNSUPPORTED = 2,      /**< no backend on this machine serves the call */
  MSA_ERROR_WORKSPACE = 3,        /**< the workspace is too small, or its cap cannot be met */
  MSA_ERROR_DEVICE = 4,           /**< a device or launch error */
  MSA_ERROR_IO = 5,               /**< a file that cannot be read or written */
  MSA_ERROR_INTERNAL = 6          /**< a fault of the library, or no memory left */
};

/// Element type of a tensor: msa::DType.
typedef int32_t msa_dtype;
enum {
  MSA_F32 = 0,  /**< f32 */
  MSA_BF16 = 1, /**< bf16 */
  MSA_F16 = 2,  /**< f16 */
  MSA_E4M3 = 3, /**< OCP fp8 E4M3, finite */
  MSA_E5M2 = 4, /**< OCP fp8 E5M2 */
  MSA_I32 = 5,  /**< i32 */
  MSA_I64 = 6,  /**< i64 */
  MSA_U8 = 7    /**< raw bytes */
};

/// Where a tensor's memory lives: msa::DeviceType.
typedef int32_t msa_device_type;
enum {
  MSA_CPU = 0,      /**< host memory */
  MSA_CUDA = 1,     /**< memory of a CUDA device */
  MSA_CUDA_HOST = 2 /**< pinned host memory */
};

/// Named physical order of a KV cache: msa::KVLayout.
typedef int32_t msa_kv_layout;
enum { MSA_LBHNC = 0, MSA_LBNHC = 1, MSA_LHBNC = 2, MSA_BLHNC = 3, MSA_BLNHC = 4, MSA_BHLNC = 5 };

/// Largest rank of a tensor.
#define MSA_MAX_RANK 5

/// A strided view: msa::Tensor. Strides count elements.
typedef struct msa_tensor {
  void* data;                   /**< first element or byte */
  msa_dtype dtype;              /**< type of the elements */
  msa_device_type device_type;  /**< where `data` lives */
  int32_t device_index;         /**< CUDA ordinal, else 0 */
  int32_t rank;                 /**< 0 to MSA_MAX_RANK */
  int64_t shape[MSA_MAX_RANK];  /**< extents */
  int64_t stride[MSA_MAX_RANK]; /**< in elements */
} msa_tensor;

/// A factor, given as a host number or as one f32 on the tensors' device: msa::Scale.
typedef struct msa_scale {
  msa_tensor tensor; /**< [1] f32, optional; where it is given, `value` is ignored */
  float value;       /**< the factor */
} msa_scale;

/// One layer of a KV cache, packed or as two views: msa::KVCache.
typedef struct msa_kv_cache {
  msa_tensor packed; /**< [pages, Hkv, 128, 256] */
  msa_tensor k;      /**< [pages, Hkv, 128, 128], only where `packed` is not given */
  msa_tensor v;      /**< [pages, Hkv, 128, 128] */
} msa_kv_cache;

/// Caller-owned scratch memory: msa::Workspace.
typedef struct msa_workspace {
  void* data;   /**< first element or byte */
  size_t bytes; /**< size */
} msa_workspace;

/// The rule of choice of the indexer: msa::SelectRule. Defaults: 0, 1, 0.
typedef struct msa_select_rule {
  int64_t init_blocks;  /**< first blocks always chosen */
  int64_t local_blocks; /**< last blocks always chosen */
  int32_t reduce_heads; /**< 0 or 1 */
} msa_select_rule;

/// The batch of one step: msa::BatchMetadata (msa/metadata.h).
typedef struct msa_batch {
  size_t struct_size;        /**< set by the init function */
  msa_tensor seq_lens;       /**< [R] i32 */
  msa_tensor block_table;    /**< [R, W] i32 */
  msa_tensor cu_seqlens_q;   /**< [R_p + 1] i32 */
  msa_tensor context_lens;   /**< [R_p] i32 */
  int64_t num_decodes;       /**< R_d */
  int64_t num_prefills;      /**< R_p */
  int64_t decode_query_len;  /**< m, 1 to 16; default 1 */
  int64_t num_actual_tokens; /**< T */
  int64_t max_query_len;     /**< upper bound */
  int64_t max_seq_len;       /**< upper bound */
} msa_batch;

/// Arguments of msa_write_cache: msa::WriteCacheArgs (msa/write_cache.h).
typedef struct msa_write_cache_args {
  size_t struct_size;            /**< set by the init function */
  msa_tensor qkv;                /**< [>= T, (Hq + 2 Hkv + (Hi > 0 ? Hi + 1 : 0)) * 128] bf16|f16 */
  msa_tensor positions;          /**< [>= T] i64 */
  msa_tensor cos_sin;            /**< [max_pos, 64] bf16|f16|f32 */
  msa_tensor q_norm;             /**< [128] bf16|f16|f32 */
  msa_tensor k_norm;             /**< [128] */
  msa_tensor index_q_norm;       /**< [128], index part only */
  msa_tensor index_k_norm;       /**< [128], index part only */
  float norm_eps;                /**< default 1e-6 */
  msa_tensor slot_mapping;       /**< [>= T] i64 */
  msa_tensor index_slot_mapping; /**< [>= T] i64, index part only */
  msa_tensor q_out;              /**< [>= T, Hq, 128] */
  msa_kv_cache kv_cache;         /**< [pages, Hkv, 128, 256] */
  msa_tensor index_q_out;        /**< [>= T, Hi, 128], index part only */
  msa_tensor index_cache;        /**< [pages, 128, 128] bf16|e4m3 */
  msa_scale k_scale;             /**< default 1 */
  msa_scale v_scale;             /**< default 1 */
  int64_t num_tokens;            /**< T */
  void* stream;                  /**< cudaStream_t for CUDA tensors, else ignored */
} msa_write_cache_args;

/// Arguments of msa_insert_cache: msa::InsertCacheArgs (msa/write_cache.h).
typedef struct msa_insert_cache_args {
  size_t struct_size;            /**< set by the init function */
  msa_tensor k;                  /**< [>= T, Hkv, 128] bf16|f16 */
  msa_tensor v;                  /**< [>= T, Hkv, 128] of k's type */
  msa_tensor slot_mapping;       /**< [>= T] i64 */
  msa_kv_cache kv_cache;         /**< [pages, Hkv, 128, 256] */
  msa_tensor index_k;            /**< [>= T, 128] bf16|f16 */
  msa_tensor index_slot_mapping; /**< [>= T] i64, index part only */
  msa_tensor index_cache;        /**< [pages, 128, 128] bf16|e4m3 */
  msa_scale k_scale;             /**< default 1 */
  msa_scale v_scale;             /**< default 1 */
  int64_t num_tokens;            /**< T */
  void* stream;                  /**< cudaStream_t for CUDA tensors, else ignored */
} msa_insert_cache_args;

/// Arguments of msa_copy_pages: msa::CopyPagesArgs (msa/copy_pages.h).
typedef struct msa_copy_pages_args {
  size_t struct_size; /**< set by the init function */
  msa_tensor src;     /**< [pages, ...], last stride 1 */
  msa_tensor dst;     /**< [pages, ...] of src's type and page shape */
  msa_tensor pairs;   /**< [N, 2] i64: source, destination */
  void* stream;       /**< cudaStream_t for CUDA tensors, else ignored */
} msa_copy_pages_args;

/// Arguments of msa_index_blocks: msa::IndexArgs (msa/index.h).
typedef struct msa_index_blocks_args {
  size_t struct_size;      /**< set by the init function */
  msa_tensor index_q;      /**< [>= T, Hi, 128] bf16|f16|e4m3 */
  msa_tensor index_cache;  /**< [pages, 128, 128] bf16|e4m3 */
  const msa_batch* batch;  /**< its block_table is the index cache's */
  msa_tensor selection;    /**< [>= T, Hs, topk] i32 */
  msa_select_rule rule;    /**< how blocks are chosen */
  int32_t exact;           /**< 0 or 1, default 0 */
  size_t workspace_cap;    /**< default 256 MiB */
  msa_workspace workspace; /**< >= workspace_size bytes */
  void* stream;            /**< cudaStream_t for CUDA tensors, else ignored */
} msa_index_blocks_args;

/// Arguments of msa_index_scores: msa::IndexScoresArgs (msa/index.h).
typedef struct msa_index_scores_args {
  size_t struct_size;      /**< set by the init function */
  msa_tensor index_q;      /**< [>= T, Hi, 128] bf16|f16|e4m3 */
  msa_tensor index_cache;  /**< [pages, 128, 128] bf16|e4m3 */
  const msa_batch* batch;  /**< of the step */
  msa_tensor scores;       /**< [Hi, blocks, >= T] f32 */
  int32_t exact;           /**< 0 or 1, default 0 */
  size_t workspace_cap;    /**< default 256 MiB */
  msa_workspace workspace; /**< >= workspace_size bytes */
  void* stream;            /**< cudaStream_t for CUDA tensors, else ignored */
} msa_index_scores_args;

/// Arguments of msa_select_blocks: msa::SelectArgs (msa/index.h).
typedef struct msa_select_blocks_args {
  size_t struct_size;      /**< set by the init function */
  msa_tensor scores;       /**< [Hi, blocks, >= T] f32 */
  msa_tensor valid_blocks; /**< [>= T] i32 */
  msa_tensor selection;    /**< [>= T, Hs, topk] i32 */
  int64_t num_tokens;      /**< T */
  msa_select_rule rule;    /**< how blocks are chosen */
  size_t workspace_cap;    /**< default 256 MiB */
  msa_workspace workspace; /**< >= workspace_size bytes */
  void* stream;            /**< cudaStream_t for CUDA tensors, else ignored */
} msa_select_blocks_args;

/// Arguments of msa_attend: msa::AttendArgs (msa/attend.h).
typedef struct msa_attend_args {
  size_t struct_size;      /**< set by the init function */
  msa_tensor q;            /**< [>= T, Hq, 128] bf16|f16 */
  msa_kv_cache kv_cache;   /**< [pages, Hkv, 128, 256] */
  msa_tensor selection;    /**< [>= T, Hs, topk] i32 */
  const msa_batch* batch;  /**< of the step */
  msa_tensor out;          /**< [>= T, Hq, 128] bf16|f16 */
  msa_tensor lse;          /**< optional */
  msa_scale k_scale;       /**< default 1 */
  msa_scale v_scale;       /**< default 1 */
  float softmax_scale;     /**< default 128^-0.5 */
  int32_t causal;          /**< 0 or 1, default 1 */
  int32_t invariant;       /**< 0 or 1, default 0 */
  int32_t shard_rank;      /**< msa::KVShard, default 0 */
  int32_t shard_world;     /**< default 1 */
  size_t workspace_cap;    /**< default 256 MiB */
  msa_workspace workspace; /**< >= workspace_size bytes */
  void* stream;            /**< cudaStream_t for CUDA tensors, else ignored */
} msa_attend_args;

/// Arguments of msa_merge_states: msa::MergeArgs (msa/merge.h).
typedef struct msa_merge_states_args {
  size_t struct_size; /**< set by the init function */
  msa_tensor out_a;   /**< [T, H, 128] bf16|f16|f32 */
  msa_tensor lse_a;   /**< [T, H] f32 */
  msa_tensor out_b;   /**< [T, H, 128] of out_a's type */
  msa_tensor lse_b;   /**< [T, H] f32 */
  msa_tensor out;     /**< [T, H, 128]; may be out_a */
  msa_tensor lse;     /**< [T, H] f32; may be lse_a */
  void* stream;       /**< cudaStream_t for CUDA tensors, else ignored */
} msa_merge_states_args;

/// Arguments of msa_layer_step: msa::LayerStepArgs (msa/layer.h). The three are read like the
/// operators' own arguments; what layer_step takes from an earlier one may be left out of the later
/// ones.
typedef struct msa_layer_step_args {
  size_t struct_size;                 /**< set by the init function */
  const msa_write_cache_args* write;  /**< of write_cache */
  const msa_index_blocks_args* index; /**< of index_blocks */
  const msa_attend_args* attend;      /**< of attend */
} msa_layer_step_args;

/// \name Defaults
/// Fill a struct with its defaults; `struct_size` is `sizeof` the struct in the caller's header.
/// Nothing happens where `args` is null or `struct_size` too small to hold itself.
/// @{

/// Defaults of msa_batch.
MSA_API void msa_batch_init(msa_batch* batch, size_t struct_size);
/// Defaults of msa_write_cache_args.
MSA_API void msa_write_cache_args_init(msa_write_cache_args* args, size_t struct_size);
/// Defaults of msa_insert_cache_args.
MSA_API void msa_insert_cache_args_init(msa_insert_cache_args* args, size_t struct_size);
/// Defaults of msa_copy_pages_args.
MSA_API void msa_copy_pages_args_init(msa_copy_pages_args* args, size_t struct_size);
/// Defaults of msa_index_blocks_args.
MSA_API void msa_index_blocks_args_init(msa_index_blocks_args* args, size_t struct_size);
/// Defaults of msa_index_scores_args.
MSA_API void msa_index_scores_args_init(msa_index_scores_args* args, size_t struct_size);
/// Defaults of msa_select_blocks_args.
MSA_API void msa_select_blocks_args_init(msa_select_blocks_args* args, size_t struct_size);
/// Defaults of msa_attend_args.
MSA_API void msa_attend_args_init(msa_attend_args* args, size_t struct_size);
/// Defaults of msa_merge_states_args.
MSA_API void msa_merge_states_args_init(msa_merge_states_args* args, size_t struct_size);
/// Defaults of msa_layer_step_args.
MSA_API void msa_layer_step_args_init(msa_layer_step_args* args, size_t struct_size);
/// @}

/// \name Operators
/// See the C++ function of the same name. Outputs are untouched where the result is not MSA_OK.
/// @{

/// msa::write_cache (msa/write_cache.h).
MSA_API msa_status msa_write_cache(const msa_write_cache_args* args);
/// msa::insert_cache (msa/write_cache.h).
MSA_API msa_status msa_insert_cache(const msa_insert_cache_args* args);
/// msa::copy_pages (msa/copy_pages.h).
MSA_API msa_status msa_copy_pages(const msa_copy_pages_args* args);
/// msa::index_blocks (msa/index.h).
MSA_API msa_status msa_index_blocks(const msa_index_blocks_args* args);
/// msa::index_scores (msa/index.h).
MSA_API msa_status msa_index_scores(const msa_index_scores_args* args);
/// msa::select_blocks (msa/index.h).
MSA_API msa_status msa_select_blocks(const msa_select_blocks_args* args);
/// msa::attend (msa/attend.h).
MSA_API msa_status msa_attend(const msa_attend_args* args);
/// msa::merge_states (msa/merge.h).
MSA_API msa_status msa_merge_states(const msa_merge_states_args* args);
/// msa::layer_step (msa/layer.h).
MSA_API msa_status msa_layer_step(const msa_layer_step_args* args);
/// @}

/// \name Workspace sizes
/// Write to `*bytes` the workspace that the call of the same arguments needs.
/// @{

/// For msa_index_blocks.
MSA_API msa_status msa_index_blocks_workspace_size(const msa_index_blocks_args* args,
                                                   size_t* bytes);
/// For msa_index_scores.
MSA_API msa_status msa_index_scores_workspace_size(const msa_index_scores_args* args,
                                                   size_t* bytes);
/// For msa_select_blocks.
MSA_API msa_status msa_select_blocks_workspace_size(const msa_select_blocks_args* args,
                                                    size_t* bytes);
/// For msa_attend.
MSA_API msa_status msa_attend_workspace_size(const msa_attend_args* args, size_t* bytes);
/// For msa_layer_step.
MSA_API msa_status msa_layer_step_workspace_size(const msa_layer_step_args* args, size_t* bytes);
/// @}

/// \name Layouts
/// Which physical order of the cache all its users can work with (msa/layer.h).
/// @{

/// Number of named layouts: a list without repetitions is no longer.
#define MSA_NUM_KV_LAYOUTS 6
/// `count` of a user that takes any layout.
#define MSA_ANY_KV_LAYOUT (-1)

/// Layouts that one user of a cache supports.
typedef struct msa_kv_layout_list {
  const msa_kv_layout* layouts; /**< [count], best first; not read where `count` <= 0 */
  int64_t count;                /**< 0 = none, MSA_ANY_KV_LAYOUT = any */
} msa_kv_layout_list;

/// Writes the layouts that all `num_users` users support, in the order of the first user that has a
/// list, to `layouts`, as many as fit its `capacity`, and their number to `*count`, which may be
/// larger (msa::negotiate_layouts). Nothing in common is no error: `*count` is 0 then.
/// MSA_NUM_KV_LAYOUTS elements hold every result, 1 holds the best; `layouts` may be null where
/// `capacity` is 0.
MSA_API msa_status msa_negotiate_layouts(const msa_kv_layout_list* users, int64_t num_users,
                                         msa_kv_layout* layouts, int64_t capacity, int64_t* count);
/// @}

/// \name Backend
/// What the backend tells an engine before any cache exists: msa::SparseBackend (msa/layer.h).
/// @{

/// "MSA_SPARSE".
MSA_API const char* msa_sparse_backend_name(void);
/// Writes the accepted layouts, best first, for a device of compute capability `arch` (90, 120,
/// ...; 0 = CPU) to `layouts` and `*count`, by the rule of msa_negotiate_layouts.
MSA_API msa_status msa_sparse_backend_supported_kv_cache_layouts(int32_t arch,
                                                                 msa_kv_layout* layouts,
                                                                 int64_t capacity, int64_t* count);
/// Writes to `*supported` 1 where a cache may be of the type that engines call `dtype` ("auto",
/// "bfloat16", "fp8", "fp8_e4m3", ...), else 0, for unknown names too.
MSA_API msa_status msa_sparse_backend_supports_kv_cache_dtype(const char* dtype,
                                                              int32_t* supported);
/// Writes the tokens of a page that the kernels can serve, {128}, to `sizes`, as many as fit its
/// `capacity`, and their number to `*count`.
MSA_API msa_status msa_sparse_backend_supported_block_sizes(int64_t* sizes, int64_t capacity,
                                                            int64_t* count);
/// Fails for any other block size; the text names both numbers.
MSA_API msa_status msa_sparse_backend_check_block_size(int64_t block_size);
/// Writes `[pages, kv_heads, 128, 256]` to `shape`, of four elements: the logical shape of one
/// layer's cache of `pages` >= 0 pages and `kv_heads` >= 1 heads.
MSA_API msa_status msa_sparse_backend_kv_cache_shape(int64_t pages, int64_t kv_heads,
                                                     int64_t* shape);
/// @}

/// \name Metadata builder
/// Splits steps into their decode and their prefill part: msa::MetadataBuilder (msa/layer.h).
/// @{

/// A builder: msa::MetadataBuilder.
typedef struct msa_metadata_builder msa_metadata_builder;
/// A split step: msa::SparseMetadata.
typedef struct msa_sparse_metadata msa_sparse_metadata;

/// One step as the engine's scheduler describes it: msa::StepInputs. The host arrays are read at
/// once and not kept.
typedef struct msa_step_inputs {
  size_t struct_size;             /**< set by the init function */
  const int32_t* query_start_loc; /**< [R + 1], host memory, starts at 0 */
  const int32_t* seq_lens_host;   /**< [R], host copy of seq_lens; may be null where R = 0 */
  int64_t num_requests;           /**< R */
  msa_tensor seq_lens;            /**< [R] i32 */
  msa_tensor block_table;         /**< [R, W] i32 */
  msa_tensor slot_mapping;        /**< [>= T] i64, optional: passed through */
  int64_t num_actual_tokens;      /**< T, may exceed query_start_loc[R] (padding) */
  int64_t max_seq_len;            /**< upper bound; default 0 = taken from seq_lens_host */
} msa_step_inputs;

/// Defaults of msa_step_inputs.
MSA_API void msa_step_inputs_init(msa_step_inputs* step, size_t struct_size);
/// Writes to `*builder` a builder that decodes requests of at most `decode_threshold` query tokens:
/// 1, or 1 + drafts.
MSA_API msa_status msa_metadata_builder_create(int64_t decode_threshold,
                                               msa_metadata_builder** builder);
/// Gives a builder back.
MSA_API void msa_metadata_builder_destroy(msa_metadata_builder* builder);
/// Writes the split step to `*metadata` (msa::MetadataBuilder::build).
MSA_API msa_status msa_metadata_builder_build(const msa_metadata_builder* builder,
                                              const msa_step_inputs* step,
                                              msa_sparse_metadata** metadata);
/// Writes to `*batch`, whose struct_size is set, what the operators take. seq_lens and block_table
/// are the step's own, without dropped requests; cu_seqlens_q and context_lens lie in host memory
/// and live as long as `metadata`: for tensors on a device put device copies in their place.
MSA_API msa_status msa_sparse_metadata_batch(const msa_sparse_metadata* metadata, msa_batch* batch);
/// Replaces what the forward calls take from `metadata`: for tensors on a device, the batch with
/// device copies of cu_seqlens_q and context_lens. Its arrays stay the caller's and must live until
/// the last call that is given `metadata`, which reads and checks them.
MSA_API msa_status msa_sparse_metadata_set_batch(msa_sparse_metadata* metadata,
                                                 const msa_batch* batch);
/// Writes to `*slot_mapping` the step's own.
MSA_API msa_status msa_sparse_metadata_slot_mapping(const msa_sparse_metadata* metadata,
                                                    msa_tensor* slot_mapping);
/// Gives a split step back.
MSA_API void msa_sparse_metadata_destroy(msa_sparse_metadata* metadata);
/// @}

/// \name Forward calls
/// What an engine calls for each layer of a step: msa::Indexer fills the selection buffer that
/// msa::SparseImpl reads (msa/layer.h). Their handles hold a layer's configuration and nothing of a
/// call, so that several threads may use one at the same time.
/// @{

/// One sparse layer as forward sees it: msa::LayerContext.
typedef struct msa_layer_context {
  size_t struct_size;      /**< set by the init function */
  const char* name;        /**< key of the metadata, zero-terminated; default "" */
  msa_tensor topk_indices; /**< [round_up(max_tokens, 4), Hs, topk] i32, shared by the layers */
  msa_scale k_scale;       /**< used where the cache is fp8; default 1 */
  msa_scale v_scale;       /**< used where the cache is fp8; default 1 */
} msa_layer_context;

/// The split step of one layer: an entry of msa::ForwardContext's map.
typedef struct msa_layer_metadata {
  const char* layer;                   /**< the layer's name, zero-terminated */
  const msa_sparse_metadata* metadata; /**< may be that of other layers too */
} msa_layer_metadata;

/// What the engine knows during one forward pass: msa::ForwardContext.
typedef struct msa_forward_context {
  size_t struct_size;                 /**< set by the init function */
  const msa_layer_metadata* metadata; /**< [num_metadata], null = profiling run; of two entries of
                                           one name the first counts */
  int64_t num_metadata;               /**< layers of the step */
  size_t workspace_cap;               /**< of each operator, bytes; default 256 MiB */
  msa_workspace workspace;            /**< >= workspace_size bytes */
  void* stream;                       /**< cudaStream_t for CUDA tensors, else ignored */
} msa_forward_context;

/// Defaults of msa_layer_context.
MSA_API void msa_layer_context_init(msa_layer_context* layer, size_t struct_size);
/// Defaults of msa_forward_context: a profiling run.
MSA_API void msa_forward_context_init(msa_forward_context* context, size_t struct_size);

/// The indexer of one layer: msa::Indexer.
typedef struct msa_indexer msa_indexer;

/// What is fixed for an indexer: msa::Indexer::Config.
typedef struct msa_indexer_config {
  size_t struct_size;      /**< set by the init function */
  int64_t num_index_heads; /**< Hi, 1 to 16, default 4 */
  int64_t topk;            /**< blocks a row selects, 1 to 64, default 16 */
  msa_select_rule rule;    /**< how */
  int32_t exact;           /**< 0 or 1, default 0 */
} msa_indexer_config;

/// Arguments of msa_indexer_forward: those of msa::Indexer::forward.
typedef struct msa_indexer_forward_args {
  size_t struct_size;                 /**< set by the init function */
  const msa_layer_context* layer;     /**< its topk_indices is written, rows < T */
  msa_tensor index_q;                 /**< [>= T, Hi * 128] or [>= T, Hi, 128] bf16|f16|e4m3 */
  msa_tensor index_cache;             /**< [pages, 128, 128] bf16|e4m3 */
  msa_tensor index_block_table;       /**< [R, W] i32 */
  const msa_forward_context* context; /**< of the pass */
} msa_indexer_forward_args;

/// Defaults of msa_indexer_config.
MSA_API void msa_indexer_config_init(msa_indexer_config* config, size_t struct_size);
/// Defaults of msa_indexer_forward_args.
MSA_API void msa_indexer_forward_args_init(msa_indexer_forward_args* args, size_t struct_size);
/// Writes a new indexer to `*indexer`. Fails with every field of `config` that is wrong.
MSA_API msa_status msa_indexer_create(const msa_indexer_config* config, msa_indexer** indexer);
/// Gives an indexer back.
MSA_API void msa_indexer_destroy(msa_indexer* indexer);
/// Writes to `*rows` the rows of a selection buffer for `max_tokens` tokens: rounded up to 4.
MSA_API msa_status msa_indexer_buffer_rows(int64_t max_tokens, int64_t* rows);
/// Selects the blocks of one layer of a step (msa::Indexer::forward). In a profiling run nothing is
/// touched. Fails with every argument that is wrong, or where the step has metadata but none for
/// this layer; the selection is untouched then.
MSA_API msa_status msa_indexer_forward(const msa_indexer* indexer,
                                       const msa_indexer_forward_args* args);
/// Writes to `*bytes` the workspace that msa_indexer_forward needs for these arguments.
MSA_API msa_status msa_indexer_workspace_size(const msa_indexer* indexer,
                                              const msa_indexer_forward_args* args, size_t* bytes);

/// The attention of one layer: msa::SparseImpl.
typedef struct msa_sparse_impl msa_sparse_impl;

/// What is fixed for a layer: msa::SparseImpl::Config.
typedef struct msa_sparse_impl_config {
  size_t struct_size;       /**< set by the init function */
  int64_t num_heads;        /**< Hq, default 64 */
  int64_t num_kv_heads;     /**< Hkv, default 4; Hq / Hkv is a whole number, 1 to 16 */
  float scale;              /**< softmax scale, default 128^-0.5 */
  msa_dtype kv_cache_dtype; /**< default MSA_BF16; gives an MSA_U8 cache its fp8 type */
  int32_t invariant;        /**< 0 or 1, default 0 */
} msa_sparse_impl_config;

/// Arguments of msa_sparse_impl_forward: those of msa::SparseImpl::forward.
typedef struct msa_sparse_forward_args {
  size_t struct_size;                 /**< set by the init function */
  const msa_layer_context* layer;     /**< its topk_indices is read, rows < T */
  msa_tensor query;                   /**< [>= T, Hq * 128] or [>= T, Hq, 128] bf16|f16 */
  msa_tensor kv_cache;                /**< [pages, Hkv, 128, 256] */
  msa_tensor output;                  /**< [>= T, Hq * 128] or [>= T, Hq, 128] bf16|f16 */
  const msa_forward_context* context; /**< of the pass */
} msa_sparse_forward_args;

/// Defaults of msa_sparse_impl_config.
MSA_API void msa_sparse_impl_config_init(msa_sparse_impl_config* config, size_t struct_size);
/// Defaults of msa_sparse_forward_args.
MSA_API void msa_sparse_forward_args_init(msa_sparse_forward_args* args, size_t struct_size);
/// Writes a new layer's attention to `*impl`. Fails with every field of `config` that is wrong.
MSA_API msa_status msa_sparse_impl_create(const msa_sparse_impl_config* config,
                                          msa_sparse_impl** impl);
/// Gives a layer's attention back.
MSA_API void msa_sparse_impl_destroy(msa_sparse_impl* impl);
/// Computes the attention of one layer of a step, in place in `output` (msa::SparseImpl::forward):
/// decode part on rows [0, nd), prefill part on [nd, T). In a profiling run nothing is touched.
/// Fails with every argument that is wrong, or where the step has metadata but none for this layer;
/// `output` is untouched then.
MSA_API msa_status msa_sparse_impl_forward(const msa_sparse_impl* impl,
                                           const msa_sparse_forward_args* args);
/// Writes to `*bytes` the workspace that msa_sparse_impl_forward needs for these arguments.
MSA_API msa_status msa_sparse_impl_workspace_size(const msa_sparse_impl* impl,
                                                  const msa_sparse_forward_args* args,
                                                  size_t* bytes);
/// @}

/// \name Page allocator
/// Which pages of the cache a sequence owns, with prefixes shared by hash: msa::PageAllocator
/// (msa/page_allocator.h). An allocator and its sequences are one thing to the rule of threads.
/// @{

/// An allocator: msa::PageAllocator.
typedef struct msa_page_allocator msa_page_allocator;
/// The pages of one sequence: msa::PageAllocator::Sequence.
typedef struct msa_page_sequence msa_page_sequence;

/// Sizes: msa::PageAllocator::Config.
typedef struct msa_page_allocator_config {
  size_t struct_size;        /**< set by the init function */
  int64_t pages;             /**< ids 0 to pages - 1 */
  int32_t reserve_null_page; /**< 0 or 1, default 1: page 0 is never handed out */
  int32_t pages_per_hash;    /**< pages of a group, default 4 */
} msa_page_allocator_config;

/// What a new sequence asks for: msa::PageAllocator::Request.
typedef struct msa_page_request {
  size_t struct_size;     /**< set by the init function */
  const uint64_t* hashes; /**< [num_hashes], one a group of the prompt, in order */
  int64_t num_hashes;     /**< default 0 */
  int64_t prompt_tokens;  /**< tokens of the prompt, >= 1 */
  int64_t reserve_tokens; /**< pages are allocated for so many tokens */
} msa_page_request;

/// Counters: msa::PageAllocator::Stats.
typedef struct msa_page_stats {
  size_t struct_size;    /**< set by the init function */
  int64_t pages_in_use;  /**< private and shared */
  int64_t pages_cached;  /**< evictable */
  int64_t pages_free;    /**< without content anybody could ask for */
  int64_t peak_in_use;   /**< largest pages_in_use */
  int64_t hits;          /**< groups found by msa_page_allocator_begin */
  int64_t misses;        /**< groups asked for and not found */
  int64_t prompt_tokens; /**< tokens of all prompts begun */
  int64_t cached_tokens; /**< those of them that were found */
  int64_t evictions;     /**< cached groups that were given up */
  int64_t duplicates;    /**< groups not published because their hash already was */
  int64_t failures;      /**< calls that found too few pages */
} msa_page_stats;

/// Defaults of msa_page_allocator_config.
MSA_API void msa_page_allocator_config_init(msa_page_allocator_config* config, size_t struct_size);
/// Defaults of msa_page_request.
MSA_API void msa_page_request_init(msa_page_request* request, size_t struct_size);
/// Zero counters.
MSA_API void msa_page_stats_init(msa_page_stats* stats, size_t struct_size);

/// Writes a new allocator to `*allocator`.
MSA_API msa_status msa_page_allocator_create(const msa_page_allocator_config* config,
                                             msa_page_allocator** allocator);
/// Gives an allocator back; sequences that it began stay as they are.
MSA_API void msa_page_allocator_destroy(msa_page_allocator* allocator);
/// Starts a sequence (msa::PageAllocator::begin). Too few pages are no error: `*sequence` is null
/// then.
MSA_API msa_status msa_page_allocator_begin(msa_page_allocator* allocator,
                                            const msa_page_request* request,
                                            msa_page_sequence** sequence);
/// Forgets all cached groups.
MSA_API msa_status msa_page_allocator_drop_cached(msa_page_allocator* allocator);
/// Writes to `*pages` how many pages could be handed out now.
MSA_API msa_status msa_page_allocator_available(const msa_page_allocator* allocator,
                                                int64_t* pages);
/// Writes to `*sequences` how many sequences hold `page`.
MSA_API msa_status msa_page_allocator_references(const msa_page_allocator* allocator, int32_t page,
                                                 int64_t* sequences);
/// Writes to `*published` 1 where a group of this hash is published, else 0.
MSA_API msa_status msa_page_allocator_published(const msa_page_allocator* allocator, uint64_t hash,
                                                int32_t* published);
/// Writes the counters to `*stats`, whose struct_size is set.
MSA_API msa_status msa_page_allocator_stats(const msa_page_allocator* allocator,
                                            msa_page_stats* stats);
/// Zeroes the counters; the peak starts at what is in use.
MSA_API msa_status msa_page_allocator_reset_stats(msa_page_allocator* allocator);

/// Adds pages until the sequence can hold `tokens` tokens (msa::PageAllocator::grow). All or
/// nothing: `*grown` is 0 where there are too few.
MSA_API msa_status msa_page_sequence_grow(msa_page_sequence* sequence, int64_t tokens,
                                          int32_t* grown);
/// Makes the groups within the first `computed_tokens` tokens available to other sequences
/// (msa::PageAllocator::publish).
MSA_API msa_status msa_page_sequence_publish(msa_page_sequence* sequence, int64_t computed_tokens);
/// Writes to `*pages` the sequence's row of the block table, `*count` pages; valid until the
/// sequence grows or is destroyed.
MSA_API msa_status msa_page_sequence_pages(const msa_page_sequence* sequence, const int32_t** pages,
                                           int64_t* count);
/// Writes to `*tokens` how many leading tokens were found when the sequence began.
MSA_API msa_status msa_page_sequence_cached_tokens(const msa_page_sequence* sequence,
                                                   int64_t* tokens);
/// Gives all pages of a sequence back; published groups stay cached.
MSA_API void msa_page_sequence_destroy(msa_page_sequence* sequence);
/// @}

/// \name What serves the calls
/// The strings and arrays of the two structs belong to the library and stay valid until the calling
/// thread's next call of the function that wrote them.
/// @{

/// One backend: msa::BackendInfo (msa/device.h).
typedef struct msa_backend_info {
  size_t struct_size;         /**< set by the init function */
  const char* name;           /**< "cpu", ... */
  const char* const* reasons; /**< [num_reasons], why it is off on this machine */
  int64_t num_reasons;        /**< 0 = on */
} msa_backend_info;

/// CPU instruction sets and threads: msa::CpuInfo (msa/device.h).
typedef struct msa_cpu_info {
  size_t struct_size;           /**< set by the init function */
  const char* isa;              /**< the set in use, "avx2" ... */
  const char* const* available; /**< [num_available], what this machine can execute, lowest first */
  int64_t num_available;        /**< 1 or more */
  int64_t threads;              /**< workers of the pool, the caller included */
} msa_cpu_info;

/// An empty msa_backend_info.
MSA_API void msa_backend_info_init(msa_backend_info* info, size_t struct_size);
/// An empty msa_cpu_info.
MSA_API void msa_cpu_info_init(msa_cpu_info* info, size_t struct_size);
/// Writes to `*count` how many backends this build holds (msa::backends).
MSA_API msa_status msa_backend_count(int64_t* count);
/// Writes backend `index`, 0 to count - 1 in the order in which calls try them, to `*info`, whose
/// struct_size is set (msa::backends).
MSA_API msa_status msa_get_backend_info(int64_t index, msa_backend_info* info);
/// Writes to `*info`, whose struct_size is set, what the CPU backend runs on (msa::cpu_info).
/// Starts no thread. Fails as every CPU call does where MSA_CPU_ISA or MSA_THREADS is wrong;
/// `*info` is untouched then.
MSA_API msa_status msa_get_cpu_info(msa_cpu_info* info);
/// @}

/// Text of this thread's last call that returned a msa_status: all failed conditions, one a line;
/// "" after MSA_OK. Valid until the thread's next such call.
MSA_API const char* msa_last_error(void);
/// Name of the backend that served this thread's last operator; "" before the first.
MSA_API const char* msa_last_backend(void);
/// Version of the library, "1.2.3".
MSA_API const char* msa_version(void);

/// "ok", "invalid_argument", …; "unknown" for other values.
MSA_API const char* msa_status_name(msa_status status);
/// "bf16", …; "invalid" for other values.
MSA_API const char* msa_dtype_name(msa_dtype dtype);
/// "LBHNC", …; "invalid" for other values.
MSA_API const char* msa_kv_layout_name(msa_kv_layout layout);
/// Reads a type's name, engines' aliases included (msa::parse_dtype).
MSA_API msa_status msa_parse_dtype(const char* text, msa_dtype* dtype);
/// Reads a layout's name, "HND" and "NHD" included (msa::parse_kv_layout).
MSA_API msa_status msa_parse_kv_layout(const char* text, msa_kv_layout* layout);

/// Writes to `*view` a dense row-major CPU tensor of `rank` dimensions.
MSA_API msa_status msa_tensor_dense(void* data, msa_dtype dtype, int32_t rank, const int64_t* shape,
                                    msa_tensor* view);

/// A cache that holds all layers of a model in a named order.
typedef struct msa_kv_cache_shape {
  int64_t layers; /**< L */
  int64_t pages;  /**< pages of each layer */
  int64_t heads;  /**< Hkv */
} msa_kv_cache_shape;

/// Writes to `*view` layer `layer`'s packed CPU view `[pages, heads, 128, 256]` of a cache that
/// starts at `base` (msa::kv_layer_view). For device memory set the view's device afterwards.
MSA_API msa_status msa_kv_layer_view(void* base, msa_dtype dtype, msa_kv_layout layout,
                                     const msa_kv_cache_shape* shape, int64_t layer,
                                     msa_tensor* view);

/// Called after each operator call on the calling thread (msa::set_log_callback).
typedef void (*msa_log_callback)(void* context, const char* op, const char* backend);
/// Sets the process's log callback; null switches it off. Must not be changed while calls run.
MSA_API void msa_set_log_callback(msa_log_callback callback, void* context);

/// Runs body(body_context, i) for every i in [0, tasks) and returns when all are done.
typedef void (*msa_parallel_for)(void* context, int64_t tasks,
                                 void (*body)(void* body_context, int64_t task),
                                 void* body_context);
/// Lets the host program's threads run the CPU backend (msa::set_parallel_for); null restores the
/// built-in pool. Must not be changed while calls run.
MSA_API void msa_set_parallel_for(msa_parallel_for function, void* context);

#ifdef __cplusplus
}
#endif
