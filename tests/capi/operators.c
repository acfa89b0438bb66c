/* Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0 */
/* Each operator once through the C ABI, on inputs whose results are known by hand. */
#include <math.h>
#include <stdlib.h>

#include "check.h"

enum { PAGE = 128 * 256, INDEX_PAGE = 128 * 128 };

static int near(float value, double expected, double tolerance) {
  return fabs((double)value - expected) <= tolerance;
}

/* One decode request of `tokens` keys. */
static msa_batch decode_batch(int32_t* seq_len, int32_t* table, int64_t width) {
  msa_batch batch;
  msa_batch_init(&batch, sizeof batch);
  batch.seq_lens = dense(seq_len, MSA_I32, 1, -1, -1, -1);
  batch.block_table = dense(table, MSA_I32, 1, width, -1, -1);
  batch.num_decodes = 1;
  batch.num_actual_tokens = 1;
  batch.max_query_len = 1;
  batch.max_seq_len = *seq_len;
  return batch;
}

/* Keys of page 1 get three times the weight of those of page 2. */
static void test_attend(void) {
  static uint16_t cache[3 * PAGE], q[2 * 128], out[2 * 128];
  int32_t seq_len = 300, table[3] = {2, 0, 1}, blocks[3] = {2, -1, 0};
  float lse[2] = {-1, -1};
  msa_batch batch = decode_batch(&seq_len, table, 3);
  msa_attend_args args;
  int i;

  for (i = 0; i < 3 * 128; ++i) {
    const int page = i / 128;
    int d;
    cache[i * 256] = page == 1 ? 0x3f80 : 0;
    for (d = 128; d < 256; ++d) cache[i * 256 + d] = to_bf16((float)page);
  }
  q[0] = q[128] = 0x3f80;

  msa_attend_args_init(&args, sizeof args);
  args.q = dense(q, MSA_BF16, 1, 2, 128, -1);
  args.kv_cache.packed = dense(cache, MSA_BF16, 3, 1, 128, 256);
  args.selection = dense(blocks, MSA_I32, 1, 1, 3, -1);
  args.batch = &batch;
  args.out = dense(out, MSA_BF16, 1, 2, 128, -1);
  args.lse = dense(lse, MSA_F32, 1, 2, -1, -1);
  args.softmax_scale = logf(3.0f);
  args.v_scale.value = 0.5f;
  CHECK_OK(msa_attend_workspace_size(&args, &args.workspace.bytes));
  CHECK(args.workspace.bytes <= args.workspace_cap);
  args.workspace.data = malloc(args.workspace.bytes);
  CHECK_OK(msa_attend(&args));
  CHECK(strcmp(msa_last_error(), "") == 0);
  CHECK(strcmp(msa_last_backend(), "cpu") == 0);
  for (i = 0; i < 2 * 128; ++i) {
    CHECK(near(to_float(out[i]), 0.5 * (128 * 2 + 44 * 3 * 1) / (128 + 44 * 3), 4e-3));
  }
  CHECK(near(lse[0], log(128 + 44 * 3), 1e-4));
  CHECK(lse[0] == lse[1]);
  free(args.workspace.data);
}

/* Scores are single numbers: block b scores b's entry in head_scores. */
static void test_index(void) {
  static uint16_t cache[6 * INDEX_PAGE], q[2 * 128];
  const float head_scores[2][6] = {{1, 9, 2, 3, 4, 0}, {5, 1, 2, 8, 7, 0}};
  int32_t seq_len = 5 * 128 + 1, table[6] = {0, 1, 2, 3, 4, 5};
  int32_t selection[4] = {-7, -7, -7, -7}, again[4] = {-7, -7, -7, -7}, valid = 6;
  float scores[12];
  msa_batch batch = decode_batch(&seq_len, table, 6);
  msa_index_blocks_args index;
  msa_index_scores_args score;
  msa_select_blocks_args select;
  int b, h;

  for (h = 0; h < 2; ++h) {
    q[h * 128 + h] = 0x3f80;
    for (b = 0; b < 6; ++b) {
      int t;
      for (t = 0; t < 128; ++t) cache[(b * 128 + t) * 128 + h] = to_bf16(head_scores[h][b]);
    }
  }

  msa_index_blocks_args_init(&index, sizeof index);
  index.index_q = dense(q, MSA_BF16, 1, 2, 128, -1);
  index.index_cache = dense(cache, MSA_BF16, 6, 128, 128, -1);
  index.batch = &batch;
  index.selection = dense(selection, MSA_I32, 1, 2, 2, -1);
  CHECK_OK(msa_index_blocks_workspace_size(&index, &index.workspace.bytes));
  index.workspace.data = malloc(index.workspace.bytes);
  CHECK_OK(msa_index_blocks(&index));
  CHECK(selection[0] == 1 && selection[1] == 5 && selection[2] == 3 && selection[3] == 5);
  free(index.workspace.data);

  msa_index_scores_args_init(&score, sizeof score);
  score.index_q = index.index_q;
  score.index_cache = index.index_cache;
  score.batch = &batch;
  score.scores = dense(scores, MSA_F32, 2, 6, 1, -1);
  CHECK_OK(msa_index_scores_workspace_size(&score, &score.workspace.bytes));
  score.workspace.data = malloc(score.workspace.bytes);
  CHECK_OK(msa_index_scores(&score));
  for (h = 0; h < 2; ++h) {
    for (b = 0; b < 6; ++b) CHECK(scores[h * 6 + b] == head_scores[h][b]);
  }
  free(score.workspace.data);

  msa_select_blocks_args_init(&select, sizeof select);
  select.scores = score.scores;
  select.valid_blocks = dense(&valid, MSA_I32, 1, -1, -1, -1);
  select.selection = dense(again, MSA_I32, 1, 2, 2, -1);
  select.num_tokens = 1;
  CHECK_OK(msa_select_blocks_workspace_size(&select, &select.workspace.bytes));
  select.workspace.data = malloc(select.workspace.bytes);
  CHECK_OK(msa_select_blocks(&select));
  CHECK(memcmp(selection, again, sizeof again) == 0);
  free(select.workspace.data);
}

static void test_merge(void) {
  float out_a[128], out_b[128], lse_a = 0.0f, lse_b = logf(3.0f);
  msa_merge_states_args args;
  int i;
  for (i = 0; i < 128; ++i) {
    out_a[i] = 1;
    out_b[i] = 3;
  }
  msa_merge_states_args_init(&args, sizeof args);
  args.out_a = args.out = dense(out_a, MSA_F32, 1, 1, 128, -1);
  args.lse_a = args.lse = dense(&lse_a, MSA_F32, 1, 1, -1, -1);
  args.out_b = dense(out_b, MSA_F32, 1, 1, 128, -1);
  args.lse_b = dense(&lse_b, MSA_F32, 1, 1, -1, -1);
  CHECK_OK(msa_merge_states(&args));
  for (i = 0; i < 128; ++i) CHECK(near(out_a[i], 2.5, 1e-5));
  CHECK(near(lse_a, log(4.0), 1e-5));
}

static void test_insert_and_copy(void) {
  static uint16_t cache[2 * PAGE], k[128], v[128];
  int64_t slot = 5, pair[2] = {0, 1};
  msa_insert_cache_args insert;
  msa_copy_pages_args copy;
  int i;
  for (i = 0; i < 128; ++i) {
    k[i] = to_bf16((float)i);
    v[i] = to_bf16((float)-i);
  }
  msa_insert_cache_args_init(&insert, sizeof insert);
  insert.k = dense(k, MSA_BF16, 1, 1, 128, -1);
  insert.v = dense(v, MSA_BF16, 1, 1, 128, -1);
  insert.slot_mapping = dense(&slot, MSA_I64, 1, -1, -1, -1);
  insert.kv_cache.packed = dense(cache, MSA_BF16, 2, 1, 128, 256);
  insert.num_tokens = 1;
  CHECK_OK(msa_insert_cache(&insert));
  CHECK(memcmp(cache + 5 * 256, k, sizeof k) == 0);
  CHECK(memcmp(cache + 5 * 256 + 128, v, sizeof v) == 0);

  msa_copy_pages_args_init(&copy, sizeof copy);
  copy.src = copy.dst = insert.kv_cache.packed;
  copy.pairs = dense(pair, MSA_I64, 1, 2, -1, -1);
  CHECK_OK(msa_copy_pages(&copy));
  CHECK(memcmp(cache, cache + PAGE, PAGE * sizeof *cache) == 0);
}

/* A first token: it sees itself alone, so out is v; at position 0 the rotation is none. */
static void test_layer_step(void) {
  static uint16_t kv[PAGE], keys[INDEX_PAGE], qkv[5 * 128], q[128], index_q[128], out[128];
  static uint16_t norm[128];
  static float cos_sin[64];
  int64_t position = 0, slot = 0;
  int32_t seq_len = 1, table[1] = {0}, selection[2] = {-7, -7};
  msa_batch batch = decode_batch(&seq_len, table, 1);
  msa_write_cache_args write;
  msa_index_blocks_args index;
  msa_attend_args attend;
  msa_layer_step_args step;
  int i;

  for (i = 0; i < 5 * 128; ++i) qkv[i] = to_bf16(i % 2 == 0 ? 2.0f : -2.0f);
  for (i = 0; i < 32; ++i) cos_sin[i] = 1;
  msa_write_cache_args_init(&write, sizeof write);
  write.qkv = dense(qkv, MSA_BF16, 1, 5 * 128, -1, -1);
  write.positions = dense(&position, MSA_I64, 1, -1, -1, -1);
  write.cos_sin = dense(cos_sin, MSA_F32, 1, 64, -1, -1);
  write.q_norm = write.k_norm = dense(norm, MSA_BF16, 128, -1, -1, -1);
  write.index_q_norm = write.index_k_norm = write.q_norm;
  write.slot_mapping = write.index_slot_mapping = dense(&slot, MSA_I64, 1, -1, -1, -1);
  write.q_out = dense(q, MSA_BF16, 1, 1, 128, -1);
  write.kv_cache.packed = dense(kv, MSA_BF16, 1, 1, 128, 256);
  write.index_q_out = dense(index_q, MSA_BF16, 1, 1, 128, -1);
  write.index_cache = dense(keys, MSA_BF16, 1, 128, 128, -1);
  write.num_tokens = 1;
  msa_index_blocks_args_init(&index, sizeof index);
  index.batch = &batch;
  index.selection = dense(selection, MSA_I32, 1, 1, 2, -1);
  msa_attend_args_init(&attend, sizeof attend);
  attend.batch = &batch;
  attend.out = dense(out, MSA_BF16, 1, 1, 128, -1);
  msa_layer_step_args_init(&step, sizeof step);
  step.write = &write;
  step.index = &index;
  step.attend = &attend;
  CHECK_OK(msa_layer_step_workspace_size(&step, &index.workspace.bytes));
  index.workspace.data = malloc(index.workspace.bytes);
  attend.workspace = index.workspace;
  CHECK_OK(msa_layer_step(&step));
  free(index.workspace.data);

  CHECK(selection[0] == 0 && selection[1] == -1);
  CHECK(memcmp(out, qkv + 2 * 128, sizeof out) == 0);
  for (i = 0; i < 128; ++i) CHECK(to_float(q[i]) == (i % 2 == 0 ? 1.0f : -1.0f));
  CHECK(memcmp(q, kv, sizeof q) == 0);
  CHECK(memcmp(keys, index_q, sizeof index_q) == 0);

  /* write_cache alone, without the index part. */
  memset(kv, 0, sizeof kv);
  write.qkv = dense(qkv, MSA_BF16, 1, 3 * 128, -1, -1);
  memset(&write.index_q_norm, 0, sizeof write.index_q_norm);
  memset(&write.index_k_norm, 0, sizeof write.index_k_norm);
  memset(&write.index_slot_mapping, 0, sizeof write.index_slot_mapping);
  memset(&write.index_q_out, 0, sizeof write.index_q_out);
  memset(&write.index_cache, 0, sizeof write.index_cache);
  CHECK_OK(msa_write_cache(&write));
  CHECK(memcmp(q, kv, sizeof q) == 0);
}

typedef struct hooks {
  int64_t tasks;
  int calls;
  char text[64];
} hooks;

static void run_tasks(void* context, int64_t tasks, void (*body)(void*, int64_t),
                      void* body_context) {
  int64_t i;
  ((hooks*)context)->tasks += tasks;
  for (i = tasks; i-- > 0;) body(body_context, i);
}

static void log_call(void* context, const char* op, const char* backend) {
  hooks* seen = context;
  ++seen->calls;
  snprintf(seen->text, sizeof seen->text, "%s on %s", op, backend);
}

/* Enough rows for several tasks; the other side is empty, so nothing may change. */
static void merge_many_rows(void) {
  enum { ROWS = 4096 };
  float* out = calloc((size_t)ROWS * 128, sizeof *out);
  float* lse = calloc(ROWS, sizeof *lse);
  msa_merge_states_args args;
  int i;
  msa_merge_states_args_init(&args, sizeof args);
  for (i = 0; i < ROWS * 128; ++i) out[i] = (float)i;
  args.out_a = args.out_b = args.out = dense(out, MSA_F32, ROWS, 1, 128, -1);
  args.lse_a = args.lse_b = args.lse = dense(lse, MSA_F32, ROWS, 1, -1, -1);
  args.out_b.data = calloc((size_t)ROWS * 128, sizeof *out);
  args.lse_b.data = malloc(ROWS * sizeof *lse);
  for (i = 0; i < ROWS; ++i) ((float*)args.lse_b.data)[i] = -INFINITY;
  CHECK_OK(msa_merge_states(&args));
  for (i = 0; i < ROWS * 128; ++i) CHECK(out[i] == (float)i);
  free(args.out_b.data);
  free(args.lse_b.data);
  free(out);
  free(lse);
}

static void test_hooks(void) {
  hooks seen = {0, 0, ""};
  msa_set_parallel_for(run_tasks, &seen);
  msa_set_log_callback(log_call, &seen);
  merge_many_rows();
  msa_set_parallel_for(NULL, NULL);
  msa_set_log_callback(NULL, NULL);
  CHECK(seen.tasks > 1);
  CHECK(seen.calls == 1);
  CHECK(strcmp(seen.text, "merge_states on cpu") == 0);
  merge_many_rows();
  CHECK(seen.calls == 1);
}

void test_operators(void) {
  test_attend();
  test_index();
  test_merge();
  test_insert_and_copy();
  test_layer_step();
  test_hooks();
}
