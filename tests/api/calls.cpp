// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "calls.h"

namespace msa::testing {
namespace {

/// One decode request of 130 keys with one token, one prefill request of 3 tokens at context 126.
BatchMetadata small_batch(Memory& memory) {
  BatchMetadata b;
  b.seq_lens = memory.i32({130, 129}, {2});
  b.block_table = memory.i32({2, 1, 0, 3}, {2, 2});
  b.cu_seqlens_q = memory.i32({0, 3}, {2});
  b.context_lens = memory.i32({126}, {1});
  b.num_decodes = 1;
  b.num_prefills = 1;
  b.decode_query_len = 1;
  b.num_actual_tokens = 4;
  b.max_query_len = 3;
  b.max_seq_len = 130;
  return b;
}

void name_batch(std::vector<Argument>& arguments, BatchMetadata& b) {
  arguments.push_back({"seq_lens", &b.seq_lens});
  arguments.push_back({"block_table", &b.block_table, true, true, {1}});
  arguments.push_back({"cu_seqlens_q", &b.cu_seqlens_q});
  arguments.push_back({"context_lens", &b.context_lens});
}

/// Tokens in slots 0, 130, none and 260 of the main cache, one slot further in the index cache.
WriteCacheArgs write_args(Memory& memory, std::int64_t tokens) {
  const std::vector<std::int64_t> positions = {0, 1, 2, 3}, slots = {0, 130, -1, 260},
                                  index_slots = {1, 131, -1, 261};
  const auto first = [&](const std::vector<std::int64_t>& all) {
    return memory.i64({all.begin(), all.begin() + tokens}, {tokens});
  };
  WriteCacheArgs args;
  args.num_tokens = tokens;
  args.qkv = memory.dense(DType::bf16, {tokens, (4 + 2 * 2 + 3) * 128});
  args.positions = first(positions);
  args.cos_sin = memory.dense(DType::f32, {8, 64});
  args.q_norm = memory.dense(DType::bf16, {128});
  args.k_norm = memory.dense(DType::bf16, {128});
  args.index_q_norm = memory.dense(DType::bf16, {128});
  args.index_k_norm = memory.dense(DType::bf16, {128});
  args.slot_mapping = first(slots);
  args.index_slot_mapping = first(index_slots);
  args.q_out = memory.dense(DType::bf16, {tokens, 4, 128});
  args.kv_cache = KVCache(memory.dense(DType::bf16, {4, 2, 128, 256}));
  args.index_q_out = memory.dense(DType::bf16, {tokens, 2, 128});
  args.index_cache = memory.dense(DType::bf16, {4, 128, 128});
  return args;
}

template <class Args>
Workspace give_workspace(Memory& memory, const Args& args) {
  const std::size_t bytes = workspace_size(args);
  return {memory.dense(DType::u8, {static_cast<std::int64_t>(bytes) + 1}).data, bytes};
}

/// K and V as two tensors in the place of one packed cache.
KVCache split_cache(Memory& memory, DType type) {
  return KVCache(memory.dense(type, {4, 2, 128, 128}), memory.dense(type, {4, 2, 128, 128}));
}

template <class Pointer>
void name_parts(std::vector<Argument>& arguments, BasicKVCache<Pointer>& cache) {
  arguments.push_back({"k_cache", &cache.k, true, true, {}, {{0, "v_cache"}, {1, "v_cache"}}});
  arguments.push_back({"v_cache", &cache.v});
}

Call attend_call(bool packed) {
  auto call = std::make_shared<AttendCall>();
  AttendArgs& a = call->args;
  if (!packed) {
    a.kv_cache = split_cache(*call->memory, DType::bf16);
  }
  Call c{"attend", {}, [call] { attend(call->args); }, call->memory};
  c.arguments = {{"q", &a.q},
                 {"selection", &a.selection, false, true, {1, 2}},
                 {"out", &a.out},
                 {"lse", &a.lse, false, false}};
  if (packed) {
    c.arguments.push_back({"kv_cache", &a.kv_cache.packed, true, true, {0}, {{1, "selection"}}});
  } else {
    name_parts(c.arguments, a.kv_cache);
  }
  name_batch(c.arguments, a.batch);
  c.scales = {{"k_scale", &a.k_scale}, {"v_scale", &a.v_scale}};
  return c;
}

Call index_blocks_call() {
  auto call = std::make_shared<IndexCall>();
  IndexArgs& a = call->args;
  Call c{"index_blocks", {}, [call] { index_blocks(call->args); }, call->memory};
  c.arguments = {{"index_q", &a.index_q, true, true, {}, {{1, "selection"}}},
                 {"index_cache", &a.index_cache, true, true, {0}},
                 {"selection", &a.selection, false, true, {2}}};
  name_batch(c.arguments, a.batch);
  return c;
}

Call index_scores_call() {
  auto state = std::make_shared<ScoresCall>();
  IndexScoresArgs& a = state->args;
  Call c{"index_scores", {}, [state] { index_scores(state->args); }, state->memory};
  c.arguments = {{"index_q", &a.index_q, true, true, {}, {{1, "scores"}}},
                 {"index_cache", &a.index_cache, true, true, {0}},
                 {"scores", &a.scores, false, true, {1}}};
  name_batch(c.arguments, a.batch);
  return c;
}

Call select_blocks_call() {
  auto state = std::make_shared<SelectCall>();
  SelectArgs& a = state->args;
  Call c{"select_blocks", {}, [state] { select_blocks(state->args); }, state->memory};
  c.arguments = {{"scores", &a.scores, false, true, {1}, {{0, "selection"}}},
                 {"valid_blocks", &a.valid_blocks},
                 {"selection", &a.selection, false, true, {2}}};
  return c;
}

Call merge_states_call() {
  auto state = std::make_shared<MergeCall>();
  MergeArgs& a = state->args;
  Call c{"merge_states", {}, [state] { merge_states(state->args); }, state->memory};
  c.arguments = {{"out_a", &a.out_a, true, true, {}, {{0, "out_b"}, {1, "out_b"}}},
                 {"lse_a", &a.lse_a, false},
                 {"out_b", &a.out_b},
                 {"lse_b", &a.lse_b, false},
                 {"out", &a.out},
                 {"lse", &a.lse, false}};
  return c;
}

/// All but the main cache.
std::vector<Argument> write_arguments(WriteCacheArgs& a) {
  return {{"qkv", &a.qkv},
          {"positions", &a.positions},
          {"cos_sin", &a.cos_sin, true, true, {0}},
          {"q_norm", &a.q_norm},
          {"k_norm", &a.k_norm},
          {"index_q_norm", &a.index_q_norm},
          {"index_k_norm", &a.index_k_norm},
          {"slot_mapping", &a.slot_mapping},
          {"index_slot_mapping", &a.index_slot_mapping},
          {"q_out", &a.q_out, true, true, {}, {{1, "qkv"}}},
          {"index_q_out", &a.index_q_out, true, true, {}, {{1, "qkv"}}},
          {"index_cache", &a.index_cache, true, true, {0}}};
}

Call write_cache_call(bool packed) {
  auto call = std::make_shared<WriteCall>();
  WriteCacheArgs& a = call->args;
  if (!packed) a.kv_cache = split_cache(*call->memory, DType::bf16);
  Call c{"write_cache", write_arguments(a), [call] { write_cache(call->args); }, call->memory};
  if (packed) {
    c.arguments.push_back({"kv_cache", &a.kv_cache.packed, true, true, {0}, {{1, "qkv"}}});
  } else {
    name_parts(c.arguments, a.kv_cache);
  }
  c.scales = {{"k_scale", &a.k_scale}, {"v_scale", &a.v_scale}};
  return c;
}

Call insert_cache_call(bool packed) {
  auto state = std::make_shared<InsertCall>();
  InsertCacheArgs& a = state->args;
  if (!packed) a.kv_cache = split_cache(*state->memory, DType::e4m3);
  Call c{"insert_cache", {}, [state] { insert_cache(state->args); }, state->memory};
  c.arguments = {{"k", &a.k},
                 {"v", &a.v},
                 {"slot_mapping", &a.slot_mapping},
                 {"index_k", &a.index_k},
                 {"index_slot_mapping", &a.index_slot_mapping},
                 {"index_cache", &a.index_cache, true, true, {0}}};
  if (packed) {
    c.arguments.push_back({"kv_cache", &a.kv_cache.packed, true, true, {0}, {{1, "k"}}});
  } else {
    name_parts(c.arguments, a.kv_cache);
  }
  c.scales = {{"k_scale", &a.k_scale}, {"v_scale", &a.v_scale}};
  return c;
}

Call copy_pages_call() {
  auto state = std::make_shared<CopyCall>();
  CopyPagesArgs& a = state->args;
  Call c{"copy_pages", {}, [state] { copy_pages(state->args); }, state->memory};
  c.arguments = {{"src", &a.src, true, true, {0}, {{1, "dst"}}},
                 {"dst", &a.dst, true, true, {0}},
                 {"pairs", &a.pairs, false, true, {0}}};
  return c;
}

Call layer_step_call() {
  auto state = std::make_shared<LayerStepCall>();
  LayerStepArgs& a = state->args;
  Call c{"layer_step", write_arguments(a.write), [state] { layer_step(state->args); },
         state->memory};
  c.arguments.push_back({"kv_cache", &a.write.kv_cache.packed, true, true, {0}, {{1, "qkv"}}});
  c.arguments.push_back({"selection", &a.index.selection, false, true, {2}});
  c.arguments.push_back({"out", &a.attend.out});
  c.arguments.push_back({"lse", &a.attend.lse, false, false});
  name_batch(c.arguments, a.index.batch);
  name_batch(c.arguments, a.attend.batch);
  c.scales = {{"k_scale", &a.write.k_scale}, {"v_scale", &a.write.v_scale}};
  c.parts = layer_step_parts;
  return c;
}

}  // namespace

const std::vector<std::string> layer_step_parts = {"write_cache", "index_blocks", "attend"};

AttendCall::AttendCall() {
  args.batch = small_batch(*memory);
  args.q = memory->dense(DType::bf16, {4, 4, 128});
  args.kv_cache = memory->dense(DType::bf16, {4, 2, 128, 256});
  args.selection = memory->i32({0, 1, 0, 1, 0, -1, 0, -1, 0, -1, 0, -1, 0, 1, 0, 1}, {4, 2, 2});
  args.out = memory->dense(DType::bf16, {4, 4, 128});
  args.lse = memory->dense(DType::f32, {4, 4});
  args.workspace = give_workspace(*memory, args);
}

IndexCall::IndexCall() {
  args.batch = small_batch(*memory);
  args.index_q = memory->dense(DType::bf16, {4, 2, 128});
  args.index_cache = memory->dense(DType::bf16, {4, 128, 128});
  args.selection = memory->dense(DType::i32, {4, 2, 2});
  args.workspace = give_workspace(*memory, args);
}

WriteCall::WriteCall() { args = write_args(*memory, 3); }

LayerStepCall::LayerStepCall() {
  args.write = write_args(*memory, 4);
  args.index.batch = small_batch(*memory);
  args.index.selection = memory->dense(DType::i32, {4, 2, 2});
  args.attend.batch = small_batch(*memory);
  args.attend.out = memory->dense(DType::bf16, {4, 4, 128});
  args.attend.lse = memory->dense(DType::f32, {4, 4});
  args.index.workspace = give_workspace(*memory, args);
}

ScoresCall::ScoresCall() {
  args.batch = small_batch(*memory);
  args.index_q = memory->dense(DType::bf16, {4, 2, 128});
  args.index_cache = memory->dense(DType::bf16, {4, 128, 128});
  args.scores = memory->dense(DType::f32, {2, 2, 4});
  args.workspace = give_workspace(*memory, args);
}

SelectCall::SelectCall() {
  args.scores = memory->dense(DType::f32, {2, 5, 4});
  args.valid_blocks = memory->i32({1, 5, 0, 3}, {4});
  args.selection = memory->dense(DType::i32, {4, 2, 2});
  args.num_tokens = 4;
  args.workspace = give_workspace(*memory, args);
}

MergeCall::MergeCall() {
  Memory& m = *memory;
  args.out_a = m.dense(DType::bf16, {3, 2, 128});
  args.lse_a = m.dense(DType::f32, {3, 2});
  args.out_b = m.dense(DType::bf16, {3, 2, 128});
  args.lse_b = m.dense(DType::f32, {3, 2});
  args.out = m.dense(DType::bf16, {3, 2, 128});
  args.lse = m.dense(DType::f32, {3, 2});
}

InsertCall::InsertCall() {
  Memory& m = *memory;
  args.num_tokens = 3;
  args.k = m.dense(DType::bf16, {3, 2, 128});
  args.v = m.dense(DType::bf16, {3, 2, 128});
  args.slot_mapping = m.i64({5, -1, 200}, {3});
  args.kv_cache = KVCache(m.dense(DType::e4m3, {4, 2, 128, 256}));
  args.index_k = m.dense(DType::bf16, {3, 128});
  args.index_slot_mapping = m.i64({5, -1, 200}, {3});
  args.index_cache = m.dense(DType::bf16, {4, 128, 128});
}

CopyCall::CopyCall() {
  args.src = memory->dense(DType::bf16, {3, 2, 128, 256});
  args.dst = memory->dense(DType::bf16, {5, 2, 128, 256});
  args.pairs = memory->i64({0, 4, 2, 1}, {2, 2});
}

std::vector<std::function<Call()>> call_makers() {
  return {[] { return attend_call(true); },       [] { return attend_call(false); },
          [] { return index_blocks_call(); },     [] { return index_scores_call(); },
          [] { return select_blocks_call(); },    [] { return merge_states_call(); },
          [] { return write_cache_call(true); },  [] { return write_cache_call(false); },
          [] { return insert_cache_call(true); }, [] { return insert_cache_call(false); },
          [] { return copy_pages_call(); },       [] { return layer_step_call(); }};
}

}  // namespace msa::testing
