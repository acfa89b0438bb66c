/* Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0 */
/* Status codes, texts, and the rule of struct_size. */
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>

#include "check.h"

/* A merge_states call that works: out_a = out, one row. */
typedef struct merge_case {
  float out_a[128];
  float out_b[128];
  float lse_a;
  float lse_b;
  msa_merge_states_args args;
} merge_case;

static void fill(merge_case* c) {
  memset(c, 0, sizeof *c);
  msa_merge_states_args_init(&c->args, sizeof c->args);
  c->args.out_a = c->args.out = dense(c->out_a, MSA_F32, 1, 1, 128, -1);
  c->args.lse_a = c->args.lse = dense(&c->lse_a, MSA_F32, 1, 1, -1, -1);
  c->args.out_b = dense(c->out_b, MSA_F32, 1, 1, 128, -1);
  c->args.lse_b = dense(&c->lse_b, MSA_F32, 1, 1, -1, -1);
}

static void test_wrong_arguments(void) {
  merge_case c, before;
  fill(&c);
  CHECK_OK(msa_merge_states(&c.args));

  /* All failures at once, each naming its argument and its value; outputs untouched. */
  fill(&c);
  c.out_a[0] = 42;
  c.args.out_b.dtype = MSA_I32;
  c.args.lse_b.shape[1] = 7;
  before = c;
  CHECK(msa_merge_states(&c.args) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("merge_states: argument 'out_b' has dtype i32");
  CHECK_ERROR_HAS("merge_states: argument 'lse_b'");
  CHECK_ERROR_HAS("[1, 7]");
  CHECK(memcmp(&c, &before, sizeof c) == 0);

  /* Numbers outside every enumeration and rank. */
  fill(&c);
  c.args.out_a.dtype = 99;
  CHECK(msa_merge_states(&c.args) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("argument 'out_a' has dtype invalid");
  fill(&c);
  c.args.out_a.dtype = -1;
  CHECK(msa_merge_states(&c.args) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("argument 'out_a' has dtype invalid");
  fill(&c);
  c.args.lse_b.device_type = 77;
  c.args.lse_a.device_type = -1;
  CHECK(msa_merge_states(&c.args) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("argument 'lse_a' has device type -1");
  CHECK_ERROR_HAS("argument 'lse_b' has device type 77");
  fill(&c);
  c.args.lse_b.device_type = MSA_CUDA;
  CHECK(msa_merge_states(&c.args) != MSA_OK);
  CHECK_ERROR_HAS("argument 'lse_b'");
  fill(&c);
  c.args.out_a.rank = 6;
  c.args.lse_b.rank = -1;
  CHECK(msa_merge_states(&c.args) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("merge_states: argument 'out_a' has rank 6; allowed: 0 to 5");
  CHECK_ERROR_HAS("merge_states: argument 'lse_b' has rank -1; allowed: 0 to 5");

  /* A success clears the text. */
  fill(&c);
  CHECK_OK(msa_merge_states(&c.args));
  CHECK(strcmp(msa_last_error(), "") == 0);
}

/* Small calls of all other operators that share their memory: two decode tokens, one head, topk 64.
 */
typedef struct step_case {
  uint16_t kv[128 * 256], keys[128 * 128], qkv[2 * 5 * 128], q[2 * 128], index_q[2 * 128];
  uint16_t norm[128], k[2 * 128], out[2 * 128];
  float cos_sin[64], lse[2], scores[2];
  int64_t positions[2], slots[2], pairs[2];
  int32_t lens[2], table[2], valid[2], ids[2 * 64];
} step_case;

typedef struct step_calls {
  msa_batch batch;
  msa_attend_args attend;
  msa_index_blocks_args index;
  msa_index_scores_args scores;
  msa_select_blocks_args select;
  msa_write_cache_args write;
  msa_insert_cache_args insert;
  msa_copy_pages_args copy;
  msa_layer_step_args step;
} step_calls;

static void fill_calls(step_calls* c, step_case* m) {
  memset(m, 0, sizeof *m);
  memset(m->out, 0xff, sizeof m->out);
  m->slots[1] = 1;
  m->lens[0] = m->lens[1] = 128;
  m->valid[0] = m->valid[1] = 1;
  msa_batch_init(&c->batch, sizeof c->batch);
  c->batch.seq_lens = dense(m->lens, MSA_I32, 2, -1, -1, -1);
  c->batch.block_table = dense(m->table, MSA_I32, 2, 1, -1, -1);
  c->batch.num_decodes = c->batch.num_actual_tokens = 2;
  c->batch.max_query_len = 1;
  c->batch.max_seq_len = 128;

  msa_write_cache_args_init(&c->write, sizeof c->write);
  c->write.qkv = dense(m->qkv, MSA_BF16, 2, 5 * 128, -1, -1);
  c->write.positions = dense(m->positions, MSA_I64, 2, -1, -1, -1);
  c->write.cos_sin = dense(m->cos_sin, MSA_F32, 1, 64, -1, -1);
  c->write.q_norm = c->write.k_norm = dense(m->norm, MSA_BF16, 128, -1, -1, -1);
  c->write.index_q_norm = c->write.index_k_norm = c->write.q_norm;
  c->write.slot_mapping = c->write.index_slot_mapping = dense(m->slots, MSA_I64, 2, -1, -1, -1);
  c->write.q_out = dense(m->q, MSA_BF16, 2, 1, 128, -1);
  c->write.kv_cache.packed = dense(m->kv, MSA_BF16, 1, 1, 128, 256);
  c->write.index_q_out = dense(m->index_q, MSA_BF16, 2, 1, 128, -1);
  c->write.index_cache = dense(m->keys, MSA_BF16, 1, 128, 128, -1);
  c->write.num_tokens = 2;

  msa_insert_cache_args_init(&c->insert, sizeof c->insert);
  c->insert.k = c->insert.v = dense(m->k, MSA_BF16, 2, 1, 128, -1);
  c->insert.slot_mapping = c->write.slot_mapping;
  c->insert.kv_cache = c->write.kv_cache;
  c->insert.num_tokens = 2;

  msa_copy_pages_args_init(&c->copy, sizeof c->copy);
  c->copy.src = dense(m->keys, MSA_BF16, 1, 128, 128, -1);
  c->copy.dst = dense(m->kv, MSA_BF16, 1, 128, 128, -1);
  c->copy.pairs = dense(m->pairs, MSA_I64, 1, 2, -1, -1);

  msa_index_blocks_args_init(&c->index, sizeof c->index);
  c->index.index_q = c->write.index_q_out;
  c->index.index_cache = c->write.index_cache;
  c->index.batch = &c->batch;
  c->index.selection = dense(m->ids, MSA_I32, 2, 1, 64, -1);

  msa_index_scores_args_init(&c->scores, sizeof c->scores);
  c->scores.index_q = c->write.index_q_out;
  c->scores.index_cache = c->write.index_cache;
  c->scores.batch = &c->batch;
  c->scores.scores = dense(m->scores, MSA_F32, 1, 1, 2, -1);

  msa_select_blocks_args_init(&c->select, sizeof c->select);
  c->select.scores = c->scores.scores;
  c->select.valid_blocks = dense(m->valid, MSA_I32, 2, -1, -1, -1);
  c->select.selection = c->index.selection;
  c->select.num_tokens = 2;

  msa_attend_args_init(&c->attend, sizeof c->attend);
  c->attend.q = c->write.q_out;
  c->attend.kv_cache = c->write.kv_cache;
  c->attend.selection = c->index.selection;
  c->attend.batch = &c->batch;
  c->attend.out = dense(m->out, MSA_BF16, 2, 1, 128, -1);
  c->attend.lse = dense(m->lse, MSA_F32, 2, 1, -1, -1);

  msa_layer_step_args_init(&c->step, sizeof c->step);
  c->step.write = &c->write;
  c->step.index = &c->index;
  c->step.attend = &c->attend;
}

/* Breaks one thing of a fresh set of calls: the call is refused, the text says what is wrong, and
   no byte of the memory changes. */
#define CHECK_REFUSED(change, call, status, text)        \
  do {                                                   \
    fill_calls(&c, &memory);                             \
    c.index.workspace = c.attend.workspace = workspace;  \
    change;                                              \
    before = memory;                                     \
    CHECK((call) == (status));                           \
    CHECK_ERROR_HAS(text);                               \
    CHECK(memcmp(&memory, &before, sizeof memory) == 0); \
  } while (0)
#define CHECK_INVALID(change, call, text) \
  CHECK_REFUSED(change, call, MSA_ERROR_INVALID_ARGUMENT, text)

static void test_wrong_arguments_of_every_operator(void) {
  static step_case memory, before;
  step_calls c;
  msa_workspace workspace = {NULL, 0};

  fill_calls(&c, &memory);
  CHECK_OK(msa_attend_workspace_size(&c.attend, &workspace.bytes));
  CHECK(workspace.bytes > 1);
  workspace.data = malloc(workspace.bytes);
  c.index.workspace = c.attend.workspace = workspace;
  CHECK_OK(msa_write_cache(&c.write));
  CHECK_OK(msa_insert_cache(&c.insert));
  CHECK_OK(msa_copy_pages(&c.copy));
  CHECK_OK(msa_index_scores(&c.scores));
  CHECK_OK(msa_select_blocks(&c.select));
  CHECK_OK(msa_index_blocks(&c.index));
  CHECK_OK(msa_attend(&c.attend));
  CHECK_OK(msa_layer_step(&c.step));

  CHECK_INVALID(c.attend.q.dtype = MSA_F32, msa_attend(&c.attend),
                "attend: argument 'q' has dtype f32");
  CHECK_INVALID(c.attend.kv_cache.packed.data = NULL, msa_attend(&c.attend),
                "attend: argument 'kv_cache' has a null pointer");
  CHECK_INVALID(c.attend.selection.shape[2] = 65, msa_attend(&c.attend),
                "attend: argument 'selection.topk' is 65");
  CHECK_INVALID(c.attend.out.stride[2] = 2, msa_attend(&c.attend),
                "attend: argument 'out' has last stride 2");
  CHECK_INVALID(c.attend.shard_world = 0, msa_attend(&c.attend),
                "attend: argument 'kv_shard.world' is 0");
  CHECK_INVALID(c.batch.decode_query_len = 17, msa_attend(&c.attend),
                "attend: argument 'decode_query_len' is 17");
  CHECK_INVALID(c.attend.k_scale.value = 0, msa_attend(&c.attend),
                "attend: argument 'k_scale' is 0");
  CHECK_INVALID(c.attend.v_scale.tensor = dense(NULL, MSA_F32, 1, -1, -1, -1),
                msa_attend(&c.attend), "attend: argument 'v_scale' has a null pointer");

  CHECK_INVALID(c.write.qkv.shape[1] = 4 * 128, msa_write_cache(&c.write),
                "write_cache: argument 'qkv' has 512 in dimension 1");
  CHECK_INVALID(c.write.slot_mapping.dtype = MSA_I32, msa_write_cache(&c.write),
                "write_cache: argument 'slot_mapping' has dtype i32");
  CHECK_INVALID(c.write.num_tokens = (int64_t)1 << 31, msa_write_cache(&c.write),
                "write_cache: argument 'num_tokens' is 2147483648");
  CHECK_INVALID(c.write.norm_eps = -1, msa_write_cache(&c.write),
                "write_cache: argument 'norm_eps' is -1");

  CHECK_INVALID(c.insert.v.shape[1] = 2, msa_insert_cache(&c.insert),
                "insert_cache: argument 'v' has 2 in dimension 1");
  CHECK_INVALID(c.insert.k.data = NULL, msa_insert_cache(&c.insert),
                "insert_cache: argument 'k' has a null pointer");
  CHECK_INVALID(c.insert.num_tokens = -1, msa_insert_cache(&c.insert),
                "insert_cache: argument 'num_tokens' is -1");

  CHECK_INVALID(c.copy.pairs.shape[1] = 3, msa_copy_pages(&c.copy),
                "copy_pages: argument 'pairs' has 3 in dimension 1");
  CHECK_INVALID(c.copy.dst.dtype = MSA_F16, msa_copy_pages(&c.copy),
                "copy_pages: argument 'dst' is f16");
  CHECK_INVALID(c.copy.src.data = NULL, msa_copy_pages(&c.copy),
                "copy_pages: argument 'src' has a null pointer");

  CHECK_INVALID(c.index.rule.init_blocks = -1, msa_index_blocks(&c.index),
                "index_blocks: argument 'rule.init_blocks' is -1");
  CHECK_INVALID(c.index.index_cache.stride[2] = 2, msa_index_blocks(&c.index),
                "index_blocks: argument 'index_cache' has last stride 2");
  CHECK_INVALID(c.batch.num_decodes = -1, msa_index_blocks(&c.index),
                "index_blocks: argument 'num_decodes' is -1");

  CHECK_INVALID(c.scores.scores.dtype = MSA_BF16, msa_index_scores(&c.scores),
                "index_scores: argument 'scores' has dtype bf16");
  CHECK_INVALID(c.scores.index_q.shape[2] = 64, msa_index_scores(&c.scores),
                "index_scores: argument 'index_q' has 64 in dimension 2");

  CHECK_INVALID(c.select.valid_blocks.shape[0] = 1, msa_select_blocks(&c.select),
                "select_blocks: argument 'valid_blocks' has 1 in dimension 0");
  CHECK_INVALID(c.select.selection.data = NULL, msa_select_blocks(&c.select),
                "select_blocks: argument 'selection' has a null pointer");

  CHECK_INVALID(c.write.k_norm.data = NULL, msa_layer_step(&c.step),
                "write_cache: argument 'k_norm' has a null pointer");
  CHECK_INVALID(c.index.selection.shape[2] = 65, msa_layer_step(&c.step),
                "index_blocks: argument 'selection.topk' is 65");
  CHECK_INVALID(c.attend.out.data = NULL, msa_layer_step(&c.step),
                "attend: argument 'out' has a null pointer");
  CHECK_INVALID(c.write.num_tokens = 1, msa_layer_step(&c.step),
                "layer_step: argument 'index.batch.num_actual_tokens' is 2");

  /* A workspace that is missing or a byte short. */
  CHECK_REFUSED(c.attend.workspace.data = NULL, msa_attend(&c.attend), MSA_ERROR_WORKSPACE,
                "attend: argument 'workspace' has ");
  CHECK_REFUSED(--c.attend.workspace.bytes, msa_attend(&c.attend), MSA_ERROR_WORKSPACE,
                "; allowed: at least workspace_size(args) = ");
  CHECK_REFUSED((c.index.workspace.bytes = 0, c.batch.max_seq_len = 4096),
                msa_index_blocks(&c.index), MSA_ERROR_WORKSPACE,
                "index_blocks: argument 'workspace' has 0 bytes at ");
  CHECK_REFUSED(--c.index.workspace.bytes, msa_layer_step(&c.step), MSA_ERROR_WORKSPACE,
                "attend: argument 'workspace' has ");
  free(workspace.data);
}

static void test_null_pointers(void) {
  msa_attend_args attend;
  msa_layer_step_args step;
  size_t bytes = 0;
  CHECK(msa_attend(NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_IS("attend: argument 'args' is null");
  CHECK(msa_write_cache(NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_IS("write_cache: argument 'args' is null");
  CHECK(msa_insert_cache(NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK(msa_copy_pages(NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK(msa_index_blocks(NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_IS("index_blocks: argument 'args' is null");
  CHECK(msa_index_scores(NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK(msa_select_blocks(NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK(msa_merge_states(NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK(msa_layer_step(NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_IS("layer_step: argument 'args' is null");

  msa_attend_args_init(&attend, sizeof attend);
  CHECK(msa_attend(&attend) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("attend: argument 'batch' is null");
  CHECK(msa_attend_workspace_size(&attend, NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("attend: argument 'bytes' is null");
  CHECK(msa_select_blocks_workspace_size(NULL, &bytes) == MSA_ERROR_INVALID_ARGUMENT);

  msa_layer_step_args_init(&step, sizeof step);
  CHECK(msa_layer_step(&step) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_IS(
      "layer_step: argument 'write' is null\n"
      "layer_step: argument 'index' is null\n"
      "layer_step: argument 'attend' is null");
  step.attend = &attend;
  CHECK(msa_layer_step(&step) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("layer_step: argument 'write' is null");
  CHECK_ERROR_HAS("layer_step: argument 'index' is null");

  msa_attend_args_init(NULL, sizeof attend);
  msa_batch_init(NULL, 0);
}

/* The struct of a newer header: more fields at the end. */
typedef struct newer_merge_args {
  msa_merge_states_args known;
  int64_t added[3];
} newer_merge_args;

static void test_struct_size(void) {
  merge_case c;
  newer_merge_args newer;
  msa_attend_args attend;
  unsigned char guarded[sizeof(msa_attend_args) + 8];

  fill(&c);
  c.args.struct_size = 0;
  CHECK(msa_merge_states(&c.args) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("merge_states: argument 'args' has struct_size 0");
  c.args.struct_size = (size_t)-1;
  CHECK(msa_merge_states(&c.args) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("has struct_size 18446744073709551615");

  /* Newer caller: fine while it leaves the new fields zero. */
  msa_merge_states_args_init(&newer.known, sizeof newer);
  CHECK(newer.known.struct_size == sizeof newer && newer.added[2] == 0);
  fill(&c);
  newer.known = c.args;
  newer.known.struct_size = sizeof newer;
  CHECK_OK(msa_merge_states(&newer.known));
  newer.added[2] = 1;
  CHECK(msa_merge_states(&newer.known) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("sets fields that this library");

  /* Older caller: a header that ended before `stream`. The bytes behind are not read. */
  fill(&c);
  c.args.struct_size = offsetof(msa_merge_states_args, stream);
  memset(&c.args.stream, 0xff, sizeof c.args.stream);
  CHECK_OK(msa_merge_states(&c.args));
  /* One that ended before `lse`: it takes its default, not given, which merge_states refuses. */
  c.args.struct_size = offsetof(msa_merge_states_args, lse);
  CHECK(msa_merge_states(&c.args) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("argument 'lse'");

  /* init of an older caller writes no byte past its struct. */
  memset(guarded, 0xee, sizeof guarded);
  msa_attend_args_init((msa_attend_args*)(void*)guarded, offsetof(msa_attend_args, workspace));
  CHECK(guarded[offsetof(msa_attend_args, workspace)] == 0xee);
  CHECK(guarded[offsetof(msa_attend_args, workspace) - 1] == 0);

  msa_attend_args_init(&attend, sizeof attend);
  CHECK(attend.struct_size == sizeof attend);
  CHECK(attend.softmax_scale == 0.08838834764831845f);
  CHECK(attend.k_scale.value == 1 && attend.v_scale.value == 1);
  CHECK(attend.causal == 1 && attend.invariant == 0);
  CHECK(attend.shard_rank == 0 && attend.shard_world == 1);
  CHECK(attend.workspace_cap == (size_t)256 << 20);
}

/* Layouts that programs in the field rely on, for 64-bit machines. */
static void test_frozen_layout(void) {
  if (sizeof(void*) != 8) return;
  CHECK(sizeof(msa_tensor) == 104 && offsetof(msa_tensor, stride) == 64);
  CHECK(sizeof(msa_scale) == 112 && sizeof(msa_kv_cache) == 312);
  CHECK(sizeof(msa_workspace) == 16 && sizeof(msa_select_rule) == 24);
  CHECK(offsetof(msa_batch, max_seq_len) == 464);
  CHECK(offsetof(msa_write_cache_args, stream) == 1808);
  CHECK(offsetof(msa_insert_cache_args, stream) == 1176);
  CHECK(offsetof(msa_copy_pages_args, stream) == 320);
  CHECK(offsetof(msa_index_blocks_args, stream) == 384);
  CHECK(offsetof(msa_index_scores_args, stream) == 360);
  CHECK(offsetof(msa_select_blocks_args, stream) == 376);
  CHECK(offsetof(msa_attend_args, stream) == 1016);
  CHECK(offsetof(msa_merge_states_args, stream) == 632);
  CHECK(sizeof(msa_layer_step_args) == 32);
}

static void test_names(void) {
  msa_dtype dtype = -1;
  msa_kv_layout layout = -1;
  CHECK(strcmp(msa_version(), MSA_TEST_VERSION) == 0);
  CHECK_OK(msa_parse_dtype("fp8_e5m2", &dtype));
  CHECK(dtype == MSA_E5M2);
  CHECK(msa_parse_dtype("f64", &dtype) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("parse_dtype: argument 'text' is 'f64'");
  CHECK(dtype == MSA_E5M2);
  CHECK(msa_parse_dtype(NULL, NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("argument 'text' is null\n");
  CHECK_ERROR_HAS("argument 'dtype' is null");
  CHECK_OK(msa_parse_kv_layout("NHD", &layout));
  CHECK(layout == MSA_LBNHC);
  CHECK(msa_parse_kv_layout("", &layout) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("LBNHC (NHD)");
  CHECK(strcmp(msa_dtype_name(MSA_BF16), "bf16") == 0);
  CHECK(strcmp(msa_dtype_name(99), "invalid") == 0);
  CHECK(strcmp(msa_kv_layout_name(MSA_BHLNC), "BHLNC") == 0);
  CHECK(strcmp(msa_kv_layout_name(-5), "invalid") == 0);
  CHECK(strcmp(msa_status_name(MSA_OK), "ok") == 0);
  CHECK(strcmp(msa_status_name(MSA_ERROR_WORKSPACE), "workspace") == 0);
  CHECK(strcmp(msa_status_name(1234), "unknown") == 0);
}

static void test_views(void) {
  static unsigned char base[16];
  const msa_kv_cache_shape shape = {3, 10, 4}, none = {0, -1, 0};
  const msa_kv_cache_shape huge = {(int64_t)1 << 40, (int64_t)1 << 40, 4};
  const int64_t wide[2] = {(int64_t)1 << 40, (int64_t)1 << 40};
  msa_tensor view;
  CHECK_OK(msa_kv_layer_view(base, MSA_E4M3, MSA_BLNHC, &shape, 2, &view));
  CHECK((unsigned char*)view.data - base == 2 * 4 * 32768);
  CHECK(view.dtype == MSA_E4M3 && view.rank == 4 && view.device_type == MSA_CPU);
  CHECK(view.shape[0] == 10 && view.shape[1] == 4 && view.shape[2] == 128 && view.shape[3] == 256);
  CHECK(view.stride[0] == 3 * 4 * 32768 && view.stride[1] == 256 && view.stride[2] == 4 * 256);
  CHECK(view.stride[3] == 1);

  CHECK(msa_kv_layer_view(base, 50, 6, &none, 0, &view) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("kv_layer_view: argument 'dtype' is 50");
  CHECK_ERROR_HAS("kv_layer_view: argument 'layout' is 6");
  CHECK_ERROR_HAS("kv_layer_view: argument 'layers' is 0");
  CHECK_ERROR_HAS("kv_layer_view: argument 'pages' is -1");
  CHECK_ERROR_HAS("kv_layer_view: argument 'heads' is 0");
  CHECK_ERROR_HAS("kv_layer_view: argument 'layer' is 0");
  CHECK(msa_kv_layer_view(base, MSA_BF16, 0, &huge, 0, &view) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("kv_layer_view: argument 'shape'");
  CHECK(msa_kv_layer_view(base, MSA_BF16, 0, NULL, 0, NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("kv_layer_view: argument 'view' is null");

  CHECK(msa_tensor_dense(base, MSA_U8, 6, wide, &view) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("tensor_dense: argument 'rank' is 6; allowed: 0 to 5");
  CHECK(msa_tensor_dense(base, 99, 6, wide, NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("tensor_dense: argument 'dtype' is 99; allowed: MSA_F32 to MSA_U8");
  CHECK_ERROR_HAS("tensor_dense: argument 'rank' is 6");
  CHECK_ERROR_HAS("tensor_dense: argument 'view' is null");
  CHECK(msa_tensor_dense(base, -1, 1, wide, &view) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("tensor_dense: argument 'dtype' is -1");
  CHECK(msa_tensor_dense(base, MSA_U8, 2, wide, &view) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("tensor_dense: argument 'shape'");
}

static void* fail_elsewhere(void* text) {
  (void)msa_attend(NULL);
  strcpy(text, msa_last_error());
  return NULL;
}

/* The text belongs to the thread. */
static void test_error_per_thread(void) {
  char text[256] = "";
  char own[256];
  pthread_t thread;
  (void)msa_merge_states(NULL);
  strcpy(own, msa_last_error());
  CHECK(pthread_create(&thread, NULL, fail_elsewhere, text) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(strstr(text, "attend:") == text);
  CHECK(strcmp(own, msa_last_error()) == 0);
  CHECK(strstr(own, "merge_states:") == own);
}

void test_errors(void) {
  test_wrong_arguments();
  test_wrong_arguments_of_every_operator();
  test_null_pointers();
  test_struct_size();
  test_frozen_layout();
  test_names();
  test_views();
  test_error_per_thread();
}
