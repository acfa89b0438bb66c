// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "api/c_convert.h"

#include <limits>

#include "msa/device.h"
#include "msa/kv_cache.h"

namespace msa::c_api {
namespace {

/// Far above any real struct: a size beyond it is an uninitialized one, and must not be read.
constexpr std::size_t max_struct_size = std::size_t{1} << 16;

// The numbers of the two APIs are the same numbers.
static_assert(MSA_OK == 0 && MSA_ERROR_INVALID_ARGUMENT == int(ErrorCode::invalid_argument) &&
              MSA_ERROR_UNSUPPORTED == int(ErrorCode::unsupported) &&
              MSA_ERROR_WORKSPACE == int(ErrorCode::workspace) &&
              MSA_ERROR_DEVICE == int(ErrorCode::device) && MSA_ERROR_IO == int(ErrorCode::io) &&
              MSA_ERROR_INTERNAL == int(ErrorCode::internal));
static_assert(MSA_F32 == int(DType::f32) && MSA_BF16 == int(DType::bf16) &&
              MSA_F16 == int(DType::f16) && MSA_E4M3 == int(DType::e4m3) &&
              MSA_E5M2 == int(DType::e5m2) && MSA_I32 == int(DType::i32) &&
              MSA_I64 == int(DType::i64) && MSA_U8 == int(DType::u8));
static_assert(MSA_CPU == int(DeviceType::cpu) && MSA_CUDA == int(DeviceType::cuda) &&
              MSA_CUDA_HOST == int(DeviceType::cuda_host));
static_assert(MSA_LBHNC == int(KVLayout::LBHNC) && MSA_LBNHC == int(KVLayout::LBNHC) &&
              MSA_LHBNC == int(KVLayout::LHBNC) && MSA_BLHNC == int(KVLayout::BLHNC) &&
              MSA_BLNHC == int(KVLayout::BLNHC) && MSA_BHLNC == int(KVLayout::BHLNC));
static_assert(MSA_NUM_KV_LAYOUTS == all_kv_layouts.size());
static_assert(MSA_MAX_RANK == Tensor::max_rank);

}  // namespace

SelectRule from_c(const msa_select_rule& rule) {
  return {rule.init_blocks, rule.local_blocks, rule.reduce_heads != 0};
}

Workspace from_c(const msa_workspace& workspace) { return {workspace.data, workspace.bytes}; }

msa_tensor to_c(const ConstTensor& tensor) {
  msa_tensor c{};
  c.data = const_cast<void*>(tensor.data);
  c.dtype = static_cast<msa_dtype>(tensor.dtype);
  c.device_type = static_cast<msa_device_type>(tensor.device.type);
  c.device_index = tensor.device.index;
  c.rank = tensor.rank;
  std::copy_n(tensor.shape.begin(), tensor.rank, c.shape);
  std::copy_n(tensor.stride.begin(), tensor.rank, c.stride);
  return c;
}

msa_batch to_c(const BatchMetadata& batch) {
  msa_batch c{};
  c.seq_lens = to_c(batch.seq_lens);
  c.block_table = to_c(batch.block_table);
  c.cu_seqlens_q = to_c(batch.cu_seqlens_q);
  c.context_lens = to_c(batch.context_lens);
  c.num_decodes = batch.num_decodes;
  c.num_prefills = batch.num_prefills;
  c.decode_query_len = batch.decode_query_len;
  c.num_actual_tokens = batch.num_actual_tokens;
  c.max_query_len = batch.max_query_len;
  c.max_seq_len = batch.max_seq_len;
  return c;
}

msa_scale to_c(const Scale& scale) {
  msa_scale c{};
  c.tensor = to_c(scale.tensor);
  c.value = scale.value;
  return c;
}

msa_select_rule to_c(const SelectRule& rule) {
  return {rule.init_blocks, rule.local_blocks, rule.reduce_heads ? 1 : 0};
}

void Reader::refuse() const {
  check_.raise();
  throw Error(ErrorCode::internal, "a call was refused without a reason");
}

std::size_t Reader::struct_size(const void* given, const char* name) {
  if (given == nullptr) {
    fail(name, "is null");
    return 0;
  }
  std::size_t size = 0;
  std::memcpy(&size, given, sizeof size);
  if (size >= sizeof size && size <= max_struct_size) return size;
  fail(name, cat("has struct_size ", size,
                 "; allowed: sizeof the struct, as its _init function sets it"));
  return 0;
}

bool Reader::copy(void* known, std::size_t known_size, const void* given, const char* name) {
  const std::size_t size = struct_size(given, name);
  if (size == 0) return false;
  const char* bytes = static_cast<const char*>(given);
  if (std::any_of(bytes + std::min(size, known_size), bytes + size,
                  [](char byte) { return byte != 0; })) {
    fail(name, cat("has struct_size ", size, " and sets fields that this library, ", version(),
                   ", does not know; allowed: zero past byte ", known_size));
  }
  std::memcpy(known, given, std::min(size, known_size));
  return true;
}

bool Reader::count(const char* name, std::int64_t count) {
  constexpr std::int64_t largest = std::numeric_limits<std::int32_t>::max();
  const bool ok = count >= 0 && count <= largest;
  if (!ok) fail(name, cat("is ", count, "; allowed: 0 to ", largest));
  return ok;
}

Tensor Reader::tensor(const msa_tensor& given, const std::string& name) {
  Tensor t;
  if (given.rank < 0 || given.rank > MSA_MAX_RANK) {
    fail(name, cat("has rank ", given.rank, "; allowed: 0 to ", MSA_MAX_RANK));
    return t;
  }
  if (given.device_type < MSA_CPU || given.device_type > MSA_CUDA_HOST) {
    fail(name, cat("has device type ", given.device_type, "; allowed: MSA_CPU to MSA_CUDA_HOST"));
  }
  t.data = given.data;
  t.dtype = static_cast<DType>(given.dtype);
  t.device = {static_cast<DeviceType>(given.device_type), given.device_index};
  t.rank = given.rank;
  std::copy_n(given.shape, given.rank, t.shape.begin());
  std::copy_n(given.stride, given.rank, t.stride.begin());
  return t;
}

KVCache Reader::cache(const msa_kv_cache& given, const std::string& name) {
  KVCache cache;
  cache.packed = tensor(given.packed, name);
  cache.k = tensor(given.k, name + ".k");
  cache.v = tensor(given.v, name + ".v");
  return cache;
}

Scale Reader::scale(const msa_scale& given, const std::string& name) {
  Scale scale(given.value);
  scale.tensor = tensor(given.tensor, name);
  return scale;
}

BatchMetadata Reader::batch(const msa_batch* given) {
  const msa_batch c = read(given, "batch", msa_batch_init);
  BatchMetadata batch;
  batch.seq_lens = tensor(c.seq_lens, "seq_lens");
  batch.block_table = tensor(c.block_table, "block_table");
  batch.cu_seqlens_q = tensor(c.cu_seqlens_q, "cu_seqlens_q");
  batch.context_lens = tensor(c.context_lens, "context_lens");
  batch.num_decodes = c.num_decodes;
  batch.num_prefills = c.num_prefills;
  batch.decode_query_len = c.decode_query_len;
  batch.num_actual_tokens = c.num_actual_tokens;
  batch.max_query_len = c.max_query_len;
  batch.max_seq_len = c.max_seq_len;
  return batch;
}

WriteCacheArgs convert(Reader& reader, const msa_write_cache_args* given, const char* name) {
  const auto c = reader.read(given, name, msa_write_cache_args_init);
  WriteCacheArgs args;
  args.qkv = reader.tensor(c.qkv, "qkv");
  args.positions = reader.tensor(c.positions, "positions");
  args.cos_sin = reader.tensor(c.cos_sin, "cos_sin");
  args.q_norm = reader.tensor(c.q_norm, "q_norm");
  args.k_norm = reader.tensor(c.k_norm, "k_norm");
  args.index_q_norm = reader.tensor(c.index_q_norm, "index_q_norm");
  args.index_k_norm = reader.tensor(c.index_k_norm, "index_k_norm");
  args.norm_eps = c.norm_eps;
  args.slot_mapping = reader.tensor(c.slot_mapping, "slot_mapping");
  args.index_slot_mapping = reader.tensor(c.index_slot_mapping, "index_slot_mapping");
  args.q_out = reader.tensor(c.q_out, "q_out");
  args.kv_cache = reader.cache(c.kv_cache, "kv_cache");
  args.index_q_out = reader.tensor(c.index_q_out, "index_q_out");
  args.index_cache = reader.tensor(c.index_cache, "index_cache");
  args.k_scale = reader.scale(c.k_scale, "k_scale");
  args.v_scale = reader.scale(c.v_scale, "v_scale");
  args.num_tokens = c.num_tokens;
  args.stream.handle = c.stream;
  return args;
}

InsertCacheArgs convert(Reader& reader, const msa_insert_cache_args* given, const char* name) {
  const auto c = reader.read(given, name, msa_insert_cache_args_init);
  InsertCacheArgs args;
  args.k = reader.tensor(c.k, "k");
  args.v = reader.tensor(c.v, "v");
  args.slot_mapping = reader.tensor(c.slot_mapping, "slot_mapping");
  args.kv_cache = reader.cache(c.kv_cache, "kv_cache");
  args.index_k = reader.tensor(c.index_k, "index_k");
  args.index_slot_mapping = reader.tensor(c.index_slot_mapping, "index_slot_mapping");
  args.index_cache = reader.tensor(c.index_cache, "index_cache");
  args.k_scale = reader.scale(c.k_scale, "k_scale");
  args.v_scale = reader.scale(c.v_scale, "v_scale");
  args.num_tokens = c.num_tokens;
  args.stream.handle = c.stream;
  return args;
}

CopyPagesArgs convert(Reader& reader, const msa_copy_pages_args* given, const char* name) {
  const auto c = reader.read(given, name, msa_copy_pages_args_init);
  CopyPagesArgs args;
  args.src = reader.tensor(c.src, "src");
  args.dst = reader.tensor(c.dst, "dst");
  args.pairs = reader.tensor(c.pairs, "pairs");
  args.stream.handle = c.stream;
  return args;
}

IndexArgs convert(Reader& reader, const msa_index_blocks_args* given, const char* name) {
  const auto c = reader.read(given, name, msa_index_blocks_args_init);
  IndexArgs args;
  args.index_q = reader.tensor(c.index_q, "index_q");
  args.index_cache = reader.tensor(c.index_cache, "index_cache");
  if (c.struct_size > 0) args.batch = reader.batch(c.batch);
  args.selection = reader.tensor(c.selection, "selection");
  args.rule = from_c(c.rule);
  args.exact = c.exact != 0;
  args.workspace_cap = c.workspace_cap;
  args.workspace = from_c(c.workspace);
  args.stream.handle = c.stream;
  return args;
}

IndexScoresArgs convert(Reader& reader, const msa_index_scores_args* given, const char* name) {
  const auto c = reader.read(given, name, msa_index_scores_args_init);
  IndexScoresArgs args;
  args.index_q = reader.tensor(c.index_q, "index_q");
  args.index_cache = reader.tensor(c.index_cache, "index_cache");
  if (c.struct_size > 0) args.batch = reader.batch(c.batch);
  args.scores = reader.tensor(c.scores, "scores");
  args.exact = c.exact != 0;
  args.workspace_cap = c.workspace_cap;
  args.workspace = from_c(c.workspace);
  args.stream.handle = c.stream;
  return args;
}

SelectArgs convert(Reader& reader, const msa_select_blocks_args* given, const char* name) {
  const auto c = reader.read(given, name, msa_select_blocks_args_init);
  SelectArgs args;
  args.scores = reader.tensor(c.scores, "scores");
  args.valid_blocks = reader.tensor(c.valid_blocks, "valid_blocks");
  args.selection = reader.tensor(c.selection, "selection");
  args.num_tokens = c.num_tokens;
  args.rule = from_c(c.rule);
  args.workspace_cap = c.workspace_cap;
  args.workspace = from_c(c.workspace);
  args.stream.handle = c.stream;
  return args;
}

AttendArgs convert(Reader& reader, const msa_attend_args* given, const char* name) {
  const auto c = reader.read(given, name, msa_attend_args_init);
  AttendArgs args;
  args.q = reader.tensor(c.q, "q");
  args.kv_cache = reader.cache(c.kv_cache, "kv_cache");
  args.selection = reader.tensor(c.selection, "selection");
  if (c.struct_size > 0) args.batch = reader.batch(c.batch);
  args.out = reader.tensor(c.out, "out");
  args.lse = reader.tensor(c.lse, "lse");
  args.softmax_scale = c.softmax_scale;
  args.k_scale = reader.scale(c.k_scale, "k_scale");
  args.v_scale = reader.scale(c.v_scale, "v_scale");
  args.causal = c.causal != 0;
  args.invariant = c.invariant != 0;
  args.kv_shard = {c.shard_rank, c.shard_world};
  args.workspace_cap = c.workspace_cap;
  args.workspace = from_c(c.workspace);
  args.stream.handle = c.stream;
  return args;
}

MergeArgs convert(Reader& reader, const msa_merge_states_args* given, const char* name) {
  const auto c = reader.read(given, name, msa_merge_states_args_init);
  MergeArgs args;
  args.out_a = reader.tensor(c.out_a, "out_a");
  args.lse_a = reader.tensor(c.lse_a, "lse_a");
  args.out_b = reader.tensor(c.out_b, "out_b");
  args.lse_b = reader.tensor(c.lse_b, "lse_b");
  args.out = reader.tensor(c.out, "out");
  args.lse = reader.tensor(c.lse, "lse");
  args.stream.handle = c.stream;
  return args;
}

}  // namespace msa::c_api

using msa::c_api::fill;
using msa::c_api::to_c;

extern "C" {

void msa_batch_init(msa_batch* batch, size_t struct_size) {
  msa_batch c{};
  c.decode_query_len = msa::BatchMetadata{}.decode_query_len;
  fill(batch, struct_size, c);
}

void msa_write_cache_args_init(msa_write_cache_args* args, size_t struct_size) {
  const msa::WriteCacheArgs defaults;
  msa_write_cache_args c{};
  c.norm_eps = defaults.norm_eps;
  c.k_scale = to_c(defaults.k_scale);
  c.v_scale = to_c(defaults.v_scale);
  fill(args, struct_size, c);
}

void msa_insert_cache_args_init(msa_insert_cache_args* args, size_t struct_size) {
  const msa::InsertCacheArgs defaults;
  msa_insert_cache_args c{};
  c.k_scale = to_c(defaults.k_scale);
  c.v_scale = to_c(defaults.v_scale);
  fill(args, struct_size, c);
}

void msa_copy_pages_args_init(msa_copy_pages_args* args, size_t struct_size) {
  fill(args, struct_size, msa_copy_pages_args{});
}

void msa_index_blocks_args_init(msa_index_blocks_args* args, size_t struct_size) {
  const msa::IndexArgs defaults;
  msa_index_blocks_args c{};
  c.rule = to_c(defaults.rule);
  c.exact = defaults.exact ? 1 : 0;
  c.workspace_cap = defaults.workspace_cap;
  fill(args, struct_size, c);
}

void msa_index_scores_args_init(msa_index_scores_args* args, size_t struct_size) {
  const msa::IndexScoresArgs defaults;
  msa_index_scores_args c{};
  c.exact = defaults.exact ? 1 : 0;
  c.workspace_cap = defaults.workspace_cap;
  fill(args, struct_size, c);
}

void msa_select_blocks_args_init(msa_select_blocks_args* args, size_t struct_size) {
  const msa::SelectArgs defaults;
  msa_select_blocks_args c{};
  c.rule = to_c(defaults.rule);
  c.workspace_cap = defaults.workspace_cap;
  fill(args, struct_size, c);
}

void msa_attend_args_init(msa_attend_args* args, size_t struct_size) {
  const msa::AttendArgs defaults;
  msa_attend_args c{};
  c.k_scale = to_c(defaults.k_scale);
  c.v_scale = to_c(defaults.v_scale);
  c.softmax_scale = defaults.softmax_scale;
  c.causal = defaults.causal ? 1 : 0;
  c.invariant = defaults.invariant ? 1 : 0;
  c.shard_rank = defaults.kv_shard.rank;
  c.shard_world = defaults.kv_shard.world;
  c.workspace_cap = defaults.workspace_cap;
  fill(args, struct_size, c);
}

void msa_merge_states_args_init(msa_merge_states_args* args, size_t struct_size) {
  fill(args, struct_size, msa_merge_states_args{});
}

}  // extern "C"
