/* Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0 */
/* The engine's side: layouts, the backend's answers and the forward calls. */
#include <stddef.h>
#include <stdlib.h>

#include "check.h"

static void test_negotiation(void) {
  const msa_kv_layout wide[4] = {MSA_BHLNC, MSA_LBNHC, MSA_LBHNC, MSA_BHLNC};
  const msa_kv_layout narrow[2] = {MSA_LBHNC, MSA_BHLNC}, other[1] = {MSA_BLNHC};
  msa_kv_layout found[MSA_NUM_KV_LAYOUTS] = {-1, -1, -1, -1, -1, -1};
  msa_kv_layout_list users[3];
  int64_t count = -1, i;

  /* The first list's order; a user without one takes anything. */
  users[0].layouts = NULL;
  users[0].count = MSA_ANY_KV_LAYOUT;
  users[1].layouts = wide;
  users[1].count = 4;
  users[2].layouts = narrow;
  users[2].count = 2;
  CHECK_OK(msa_negotiate_layouts(users, 3, found, MSA_NUM_KV_LAYOUTS, &count));
  CHECK(count == 2 && found[0] == MSA_BHLNC && found[1] == MSA_LBHNC && found[2] == -1);
  /* As many as there is room for. */
  found[0] = found[1] = -1;
  CHECK_OK(msa_negotiate_layouts(users, 3, found, 1, &count));
  CHECK(count == 2 && found[0] == MSA_BHLNC && found[1] == -1);
  count = -1;
  CHECK_OK(msa_negotiate_layouts(users, 3, NULL, 0, &count));
  CHECK(count == 2);
  /* Nobody asks for anything. */
  CHECK_OK(msa_negotiate_layouts(NULL, 0, found, MSA_NUM_KV_LAYOUTS, &count));
  CHECK(count == MSA_NUM_KV_LAYOUTS);
  for (i = 0; i < count; ++i) CHECK(found[i] == (msa_kv_layout)i);
  /* Nothing in common, and a user that takes nothing. */
  users[0].layouts = other;
  users[0].count = 1;
  CHECK_OK(msa_negotiate_layouts(users, 3, found, MSA_NUM_KV_LAYOUTS, &count));
  CHECK(count == 0);
  users[0].layouts = NULL;
  users[0].count = 0;
  count = -1;
  CHECK_OK(msa_negotiate_layouts(users, 3, found, MSA_NUM_KV_LAYOUTS, &count));
  CHECK(count == 0);
}

static void test_negotiation_errors(void) {
  const msa_kv_layout wrong[3] = {MSA_LBHNC, 6, -1};
  msa_kv_layout found[1] = {-7};
  msa_kv_layout_list users[3];
  int64_t count = -7;

  users[0].layouts = wrong;
  users[0].count = 3;
  users[1].layouts = NULL;
  users[1].count = 2;
  users[2].layouts = NULL;
  users[2].count = -2;
  CHECK(msa_negotiate_layouts(users, 3, NULL, 1, NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("negotiate_layouts: argument 'users[0].layouts' holds 6; allowed: MSA_LBHNC to");
  CHECK_ERROR_HAS("argument 'users[0].layouts' holds -1");
  CHECK_ERROR_HAS("argument 'users[1].layouts' is null\n");
  CHECK_ERROR_HAS("argument 'users[2].count' is -2; allowed: 0 or more, or -1, any layout\n");
  CHECK_ERROR_HAS("argument 'layouts' is null");
  CHECK_ERROR_HAS("argument 'count' is null");
  CHECK(msa_negotiate_layouts(users, 3, found, 1, &count) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK(msa_negotiate_layouts(NULL, 2, found, -1, &count) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("argument 'users' is null\n");
  CHECK_ERROR_HAS("argument 'capacity' is -1; allowed: 0 to 2147483647");
  CHECK(msa_negotiate_layouts(users, -3, found, 1, &count) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("argument 'num_users' is -3; allowed: 0 to 2147483647");
  CHECK(found[0] == -7 && count == -7);
}

static void test_backend(void) {
  msa_kv_layout layouts[MSA_NUM_KV_LAYOUTS] = {-1, -1, -1, -1, -1, -1};
  int64_t sizes[1] = {-1}, shape[4] = {-1, -1, -1, -1}, count = -1;
  int32_t supported = -1;

  CHECK(strcmp(msa_sparse_backend_name(), "MSA_SPARSE") == 0);
  CHECK_OK(msa_sparse_backend_supported_kv_cache_layouts(90, layouts, MSA_NUM_KV_LAYOUTS, &count));
  CHECK(count == MSA_NUM_KV_LAYOUTS && layouts[0] == MSA_LBHNC && layouts[5] == MSA_BHLNC);
  layouts[1] = -1;
  CHECK_OK(msa_sparse_backend_supported_kv_cache_layouts(0, layouts, 1, &count));
  CHECK(count == MSA_NUM_KV_LAYOUTS && layouts[0] == MSA_LBHNC && layouts[1] == -1);
  CHECK_OK(msa_sparse_backend_supports_kv_cache_dtype("fp8_e4m3", &supported));
  CHECK(supported == 1);
  CHECK_OK(msa_sparse_backend_supports_kv_cache_dtype("float32", &supported));
  CHECK(supported == 0);
  supported = -1;
  CHECK_OK(msa_sparse_backend_supports_kv_cache_dtype("no type", &supported));
  CHECK(supported == 0);
  CHECK_OK(msa_sparse_backend_supported_block_sizes(sizes, 1, &count));
  CHECK(count == 1 && sizes[0] == 128);
  CHECK_OK(msa_sparse_backend_check_block_size(128));
  CHECK_OK(msa_sparse_backend_kv_cache_shape(0, 4, shape));
  CHECK(shape[0] == 0 && shape[1] == 4 && shape[2] == 128 && shape[3] == 256);
}

static void test_backend_errors(void) {
  msa_kv_layout layouts[1] = {-7};
  int64_t shape[4] = {-7, -7, -7, -7}, count = -7;
  int32_t supported = -7;

  CHECK(msa_sparse_backend_check_block_size(64) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("'block_size' is 64 tokens a page; allowed: 128");
  CHECK(msa_sparse_backend_supported_kv_cache_layouts(0, NULL, 6, NULL) ==
        MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("sparse_backend_supported_kv_cache_layouts: argument 'count' is null\n");
  CHECK_ERROR_HAS("argument 'layouts' is null");
  CHECK(msa_sparse_backend_supported_kv_cache_layouts(0, layouts, -1, &count) ==
        MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("argument 'capacity' is -1");
  CHECK(msa_sparse_backend_supports_kv_cache_dtype(NULL, NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("sparse_backend_supports_kv_cache_dtype: argument 'dtype' is null\n");
  CHECK_ERROR_HAS("argument 'supported' is null");
  CHECK(msa_sparse_backend_supports_kv_cache_dtype(NULL, &supported) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK(msa_sparse_backend_supported_block_sizes(NULL, 1, &count) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("sparse_backend_supported_block_sizes: argument 'sizes' is null");
  CHECK(msa_sparse_backend_kv_cache_shape(-1, 0, NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("sparse_backend_kv_cache_shape: argument 'pages' is -1; allowed: 0 or more\n");
  CHECK_ERROR_HAS("argument 'kv_heads' is 0; allowed: 1 or more\n");
  CHECK_ERROR_HAS("argument 'shape' is null");
  CHECK(msa_sparse_backend_kv_cache_shape(-1, 1, shape) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK(layouts[0] == -7 && count == -7 && supported == -7 && shape[0] == -7);
}

enum { PAGES = 9, TOKENS = 6, ROWS = 8, TOPK = 5, HEADS = 2, WIDTH = 7 };

/* A decode request of 812 keys, seven blocks, and a prefill request of five tokens. Values are the
 * page's number, index scores too, and all logits are equal: the decode row chooses the blocks of
 * pages 8, 6, 7 and 5 for their scores and the last, page 3, which is its own. */
typedef struct pass_case {
  uint16_t kv_cache[PAGES * 128 * 256], index_cache[PAGES * 128 * 128];
  uint16_t q[TOKENS * HEADS * 128], out[TOKENS * HEADS * 128], index_q[TOKENS * 128];
  int32_t starts[3], lens[2], table[2 * WIDTH], topk[ROWS * TOPK];
  msa_sparse_metadata* metadata;
  msa_indexer* indexer;
  msa_sparse_impl* impl;
  msa_layer_metadata step[2];
  msa_layer_context layer;
  msa_forward_context context;
  msa_indexer_forward_args index;
  msa_sparse_forward_args attend;
} pass_case;

/* Selection and output as no call writes them. */
static void poison(pass_case* c) {
  int i;
  for (i = 0; i < ROWS * TOPK; ++i) c->topk[i] = -7;
  memset(c->out, 0x7e, sizeof c->out);
}

/* Nonzero where no byte of selection and output was written. */
static int untouched(const pass_case* c) {
  const unsigned char* out = (const unsigned char*)c->out;
  size_t i;
  for (i = 0; i < ROWS * TOPK; ++i) {
    if (c->topk[i] != -7) return 0;
  }
  for (i = 0; i < sizeof c->out; ++i) {
    if (out[i] != 0x7e) return 0;
  }
  return 1;
}

static pass_case* begin_pass(void) {
  const int32_t starts[3] = {0, 1, TOKENS}, lens[2] = {812, 5};
  const int32_t table[2 * WIDTH] = {4, 2, 8, 6, 7, 5, 3, 1, -1, -1, -1, -1, -1, -1};
  pass_case* c = calloc(1, sizeof *c);
  msa_metadata_builder* builder = NULL;
  msa_step_inputs step;
  msa_indexer_config indexer;
  msa_sparse_impl_config impl;
  int i, d;

  memcpy(c->starts, starts, sizeof starts);
  memcpy(c->lens, lens, sizeof lens);
  memcpy(c->table, table, sizeof table);
  for (i = 0; i < PAGES * 128; ++i) {
    for (d = 128; d < 256; ++d) c->kv_cache[i * 256 + d] = to_bf16((float)(i / 128));
    c->index_cache[i * 128] = to_bf16((float)(i / 128));
  }
  for (i = 0; i < TOKENS; ++i) c->index_q[i * 128] = 0x3f80;
  poison(c);

  CHECK_OK(msa_metadata_builder_create(1, &builder));
  msa_step_inputs_init(&step, sizeof step);
  step.query_start_loc = c->starts;
  step.seq_lens_host = c->lens;
  step.num_requests = 2;
  step.seq_lens = dense(c->lens, MSA_I32, 2, -1, -1, -1);
  step.block_table = dense(c->table, MSA_I32, 2, WIDTH, -1, -1);
  step.num_actual_tokens = TOKENS;
  CHECK_OK(msa_metadata_builder_build(builder, &step, &c->metadata));
  msa_metadata_builder_destroy(builder);

  msa_indexer_config_init(&indexer, sizeof indexer);
  indexer.num_index_heads = 1;
  indexer.topk = TOPK;
  CHECK_OK(msa_indexer_create(&indexer, &c->indexer));
  msa_sparse_impl_config_init(&impl, sizeof impl);
  impl.num_heads = HEADS;
  impl.num_kv_heads = 1;
  CHECK_OK(msa_sparse_impl_create(&impl, &c->impl));

  c->step[0].layer = "layers.3";
  c->step[1].layer = "layers.4";
  c->step[0].metadata = c->step[1].metadata = c->metadata;
  msa_layer_context_init(&c->layer, sizeof c->layer);
  c->layer.name = "layers.4";
  c->layer.topk_indices = dense(c->topk, MSA_I32, ROWS, 1, TOPK, -1);
  msa_forward_context_init(&c->context, sizeof c->context);
  c->context.metadata = c->step;
  c->context.num_metadata = 2;
  msa_indexer_forward_args_init(&c->index, sizeof c->index);
  c->index.layer = &c->layer;
  c->index.index_q = dense(c->index_q, MSA_BF16, TOKENS, 128, -1, -1);
  c->index.index_cache = dense(c->index_cache, MSA_BF16, PAGES, 128, 128, -1);
  c->index.index_block_table = step.block_table;
  c->index.context = &c->context;
  msa_sparse_forward_args_init(&c->attend, sizeof c->attend);
  c->attend.layer = &c->layer;
  c->attend.query = dense(c->q, MSA_BF16, TOKENS, HEADS * 128, -1, -1);
  c->attend.kv_cache = dense(c->kv_cache, MSA_BF16, PAGES, 1, 128, 256);
  c->attend.output = dense(c->out, MSA_BF16, TOKENS, HEADS * 128, -1, -1);
  c->attend.context = &c->context;
  return c;
}

/* Runs both calls with a workspace of the size that they ask for. */
static void run_pass(pass_case* c) {
  size_t index = 0, attend = 0;
  CHECK_OK(msa_indexer_workspace_size(c->indexer, &c->index, &index));
  CHECK_OK(msa_sparse_impl_workspace_size(c->impl, &c->attend, &attend));
  c->context.workspace.bytes = index > attend ? index : attend;
  c->context.workspace.data = malloc(c->context.workspace.bytes);
  CHECK_OK(msa_indexer_forward(c->indexer, &c->index));
  CHECK_OK(msa_sparse_impl_forward(c->impl, &c->attend));
  free(c->context.workspace.data);
  memset(&c->context.workspace, 0, sizeof c->context.workspace);
}

static void end_pass(pass_case* c) {
  msa_sparse_impl_destroy(c->impl);
  msa_indexer_destroy(c->indexer);
  msa_sparse_metadata_destroy(c->metadata);
  free(c);
}

/* The decode row's value is `decode`, that of the prefill rows their page's, 1. */
static void check_values(const pass_case* c, double decode) {
  int i;
  for (i = 0; i < TOKENS * HEADS * 128; ++i) {
    const double error = (double)to_float(c->out[i]) - (i < HEADS * 128 ? decode : 1);
    CHECK(error < 2e-2 && error > -2e-2);
  }
}

static void test_forward(void) {
  const int32_t chosen[TOPK] = {2, 3, 4, 5, 6};
  pass_case* c = begin_pass();
  int64_t rows = -1;
  int i;

  CHECK_OK(msa_indexer_buffer_rows(TOKENS, &rows));
  CHECK(rows == ROWS);
  run_pass(c);
  CHECK(memcmp(c->topk, chosen, sizeof chosen) == 0);
  for (i = 1; i < TOKENS; ++i) CHECK(c->topk[i * TOPK] == 0 && c->topk[i * TOPK + 1] == -1);
  for (i = TOKENS * TOPK; i < ROWS * TOPK; ++i) CHECK(c->topk[i] == -7);
  check_values(c, (128 * (8 + 6 + 7 + 5) + 44 * 3) / 556.0);
  CHECK(strcmp(msa_last_backend(), "cpu") == 0);

  /* Rows of three dimensions are the same rows, and any layer of the step will do. */
  poison(c);
  c->layer.name = "layers.3";
  c->index.index_q = dense(c->index_q, MSA_BF16, TOKENS, 1, 128, -1);
  c->attend.query = dense(c->q, MSA_BF16, TOKENS, HEADS, 128, -1);
  c->attend.output = dense(c->out, MSA_BF16, TOKENS, HEADS, 128, -1);
  run_pass(c);
  check_values(c, (128 * (8 + 6 + 7 + 5) + 44 * 3) / 556.0);
  end_pass(c);
}

/* The batch may be replaced: here by arrays of the caller with a shorter decode request. */
static void test_set_batch(void) {
  pass_case* c = begin_pass();
  const int32_t chosen[TOPK] = {0, 2, 3, 4, 5};
  int32_t lens[2] = {700, 5}, starts[2] = {0, 5}, contexts[1] = {0};
  msa_batch batch;
  msa_batch_init(&batch, sizeof batch);
  CHECK_OK(msa_sparse_metadata_batch(c->metadata, &batch));
  batch.seq_lens.data = lens;
  batch.cu_seqlens_q.data = starts;
  batch.context_lens.data = contexts;
  CHECK_OK(msa_sparse_metadata_set_batch(c->metadata, &batch));
  memset(&batch, 0, sizeof batch);
  run_pass(c);
  CHECK(memcmp(c->topk, chosen, sizeof chosen) == 0);
  check_values(c, (128 * (4 + 8 + 6 + 7) + 60 * 5) / 572.0);
  msa_batch_init(&batch, sizeof batch);
  CHECK_OK(msa_sparse_metadata_batch(c->metadata, &batch));
  CHECK(batch.seq_lens.data == lens && batch.cu_seqlens_q.data == starts);
  CHECK(batch.context_lens.data == contexts);

  batch.seq_lens.rank = 8;
  CHECK(msa_sparse_metadata_set_batch(c->metadata, &batch) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("sparse_metadata_set_batch: argument 'seq_lens' has rank 8; allowed: 0 to 5");
  CHECK(msa_sparse_metadata_set_batch(NULL, NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("argument 'metadata' is null\n");
  CHECK_ERROR_HAS("argument 'batch' is null");
  end_pass(c);
}

static void test_profiling_run(void) {
  pass_case* c = begin_pass();
  size_t bytes = 99;
  c->context.metadata = NULL;
  c->context.num_metadata = 0;
  msa_layer_context_init(&c->layer, sizeof c->layer);
  CHECK_OK(msa_indexer_workspace_size(c->indexer, &c->index, &bytes));
  CHECK(bytes == 0);
  bytes = 99;
  CHECK_OK(msa_sparse_impl_workspace_size(c->impl, &c->attend, &bytes));
  CHECK(bytes == 0);
  CHECK_OK(msa_indexer_forward(c->indexer, &c->index));
  CHECK_OK(msa_sparse_impl_forward(c->impl, &c->attend));
  CHECK(untouched(c));
  end_pass(c);
}

/* Workspace and scales arrive: a short one is refused, and an fp8 cache's bytes get their type. */
static void test_context_reaches_the_operators(void) {
  pass_case* c = begin_pass();
  unsigned char* bytes = calloc(PAGES * 128, 256);
  msa_sparse_impl_config config;
  size_t needed = 0, smaller = 0;
  int i;

  for (i = 0; i < PAGES * 128 * 256; ++i) {
    if (i % 256 >= 128) bytes[i] = 0x38; /* 1 in e4m3 */
  }
  msa_sparse_impl_destroy(c->impl);
  msa_sparse_impl_config_init(&config, sizeof config);
  config.num_heads = HEADS;
  config.num_kv_heads = 1;
  config.kv_cache_dtype = MSA_E4M3;
  CHECK_OK(msa_sparse_impl_create(&config, &c->impl));
  c->attend.kv_cache = dense(bytes, MSA_U8, PAGES, 1, 128, 256);
  c->layer.v_scale.value = 3;
  run_pass(c);
  for (i = 0; i < TOKENS * HEADS * 128; ++i) CHECK(to_float(c->out[i]) == 3);

  poison(c);
  CHECK_OK(msa_sparse_impl_workspace_size(c->impl, &c->attend, &needed));
  CHECK(needed > 0);
  CHECK(msa_sparse_impl_forward(c->impl, &c->attend) == MSA_ERROR_WORKSPACE);
  CHECK_ERROR_HAS("argument 'workspace' has 0 bytes");
  c->context.workspace_cap = needed - 1; /* a smaller one then has to do */
  CHECK_OK(msa_sparse_impl_workspace_size(c->impl, &c->attend, &smaller));
  CHECK(smaller < needed);
  c->context.workspace.data = c->topk;
  c->context.workspace.bytes = sizeof c->topk;
  CHECK(msa_indexer_forward(c->indexer, &c->index) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("Indexer::forward: argument 'topk_indices'");
  CHECK_ERROR_HAS("workspace");
  CHECK(untouched(c));
  free(bytes);
  end_pass(c);
}

static void test_forward_errors(void) {
  static pass_case good;
  pass_case* c = begin_pass();
  size_t bytes = 99;
  good = *c;

  /* Everything wrong at once, by the names of this call. */
  c->attend.query.dtype = MSA_I32;
  c->attend.kv_cache.shape[1] = 3;
  c->layer.topk_indices.shape[0] = 2;
  CHECK(msa_sparse_impl_forward(c->impl, &c->attend) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("SparseImpl::forward: argument 'query' has dtype i32");
  CHECK_ERROR_HAS("SparseImpl::forward: argument 'kv_cache' has 3 heads");
  CHECK_ERROR_HAS("SparseImpl::forward: argument 'topk_indices'");
  c->index.index_q.dtype = MSA_F32;
  c->index.index_block_table.dtype = MSA_I64;
  CHECK(msa_indexer_forward(c->indexer, &c->index) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("Indexer::forward: argument 'index_q' has dtype f32");
  CHECK_ERROR_HAS("Indexer::forward: argument 'index_block_table' has dtype i64");
  CHECK_ERROR_HAS("Indexer::forward: argument 'topk_indices'");

  /* A layer without metadata in a step that has some, and in one that has none. */
  *c = good;
  c->layer.name = "layers.5";
  CHECK(msa_sparse_impl_forward(c->impl, &c->attend) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("argument 'layer' is named 'layers.5', which has no metadata in this step; ");
  CHECK_ERROR_HAS("allowed: 'layers.3', 'layers.4'");
  c->context.num_metadata = 0;
  CHECK(msa_indexer_forward(c->indexer, &c->index) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("Indexer::forward: argument 'layer' is named 'layers.5'");
  CHECK_ERROR_HAS("allowed: none, the step's metadata is empty");

  /* What C alone can get wrong. */
  c->context.num_metadata = 2;
  c->step[0].layer = NULL;
  c->step[1].metadata = NULL;
  c->layer.name = NULL;
  c->layer.k_scale.tensor.rank = 7;
  c->attend.output.device_type = 9;
  CHECK(msa_sparse_impl_forward(NULL, &c->attend) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("sparse_impl_forward: argument 'impl' is null\n");
  CHECK_ERROR_HAS("argument 'output' has device type 9");
  CHECK_ERROR_HAS("argument 'layer.name' is null\n");
  CHECK_ERROR_HAS("argument 'k_scale' has rank 7");
  CHECK_ERROR_HAS("argument 'metadata[0].layer' is null\n");
  CHECK_ERROR_HAS("argument 'metadata[1].metadata' is null");
  c->context.metadata = NULL;
  CHECK(msa_indexer_workspace_size(c->indexer, &c->index, NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("indexer_workspace_size: argument 'bytes' is null\n");
  CHECK_ERROR_HAS("argument 'metadata' is null");
  c->context.num_metadata = -1;
  CHECK(msa_indexer_workspace_size(c->indexer, &c->index, &bytes) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("argument 'num_metadata' is -1; allowed: 0 to 2147483647");
  c->layer.struct_size = 1;
  c->context.struct_size = 2;
  CHECK(msa_sparse_impl_workspace_size(c->impl, &c->attend, &bytes) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("sparse_impl_workspace_size: argument 'output' has device type 9");
  CHECK_ERROR_HAS("argument 'layer' has struct_size 1");
  CHECK_ERROR_HAS("argument 'context' has struct_size 2");
  c->attend.layer = NULL;
  c->attend.context = NULL;
  CHECK(msa_sparse_impl_workspace_size(c->impl, &c->attend, NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("argument 'bytes' is null\n");
  CHECK_ERROR_HAS("argument 'layer' is null\n");
  CHECK_ERROR_HAS("argument 'context' is null");
  CHECK(msa_indexer_forward(NULL, NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("indexer_forward: argument 'indexer' is null\n");
  CHECK_ERROR_HAS("argument 'args' is null");
  CHECK(msa_sparse_impl_forward(c->impl, NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("sparse_impl_forward: argument 'args' is null");

  CHECK(untouched(c) && bytes == 99);
  end_pass(c);
}

static void test_config_errors(void) {
  msa_indexer_config indexer;
  msa_sparse_impl_config impl;
  msa_indexer* no_indexer = NULL;
  msa_sparse_impl* no_impl = NULL;
  int64_t rows = -7;

  msa_indexer_config_init(&indexer, sizeof indexer);
  CHECK(indexer.num_index_heads == 4 && indexer.topk == 16 && indexer.exact == 0);
  CHECK(indexer.rule.init_blocks == 0 && indexer.rule.local_blocks == 1);
  CHECK(indexer.rule.reduce_heads == 0);
  indexer.num_index_heads = 17;
  indexer.topk = 0;
  indexer.rule.init_blocks = -1;
  CHECK(msa_indexer_create(&indexer, &no_indexer) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("'num_index_heads' is 17");
  CHECK_ERROR_HAS("'topk' is 0");
  CHECK_ERROR_HAS("'rule.init_blocks' is -1");
  indexer.struct_size = 0;
  CHECK(msa_indexer_create(&indexer, &no_indexer) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("indexer_create: argument 'config' has struct_size 0");
  CHECK(msa_indexer_create(NULL, NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("argument 'config' is null\n");
  CHECK_ERROR_HAS("argument 'indexer' is null");

  msa_sparse_impl_config_init(&impl, sizeof impl);
  CHECK(impl.num_heads == 64 && impl.num_kv_heads == 4 && impl.scale == 0.08838834764831845f);
  CHECK(impl.kv_cache_dtype == MSA_BF16 && impl.invariant == 0);
  impl.num_heads = 65;
  impl.kv_cache_dtype = 99;
  CHECK(msa_sparse_impl_create(&impl, &no_impl) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("'num_heads' is 65");
  CHECK_ERROR_HAS("'kv_cache_dtype' is invalid");
  CHECK(msa_sparse_impl_create(NULL, NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("sparse_impl_create: argument 'config' is null\n");
  CHECK_ERROR_HAS("argument 'impl' is null");
  CHECK(no_indexer == NULL && no_impl == NULL);

  CHECK(msa_indexer_buffer_rows(-1, NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("indexer_buffer_rows: argument 'max_tokens' is -1");
  CHECK_ERROR_HAS("argument 'rows' is null");
  CHECK(msa_indexer_buffer_rows(-1, &rows) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK(rows == -7);
  msa_indexer_destroy(NULL);
  msa_sparse_impl_destroy(NULL);
}

/* Layouts that programs in the field rely on, for 64-bit machines. */
static void test_frozen_layout(void) {
  if (sizeof(void*) != 8) return;
  CHECK(sizeof(msa_kv_layout_list) == 16 && sizeof(msa_layer_metadata) == 16);
  CHECK(offsetof(msa_layer_context, v_scale) == 232);
  CHECK(offsetof(msa_forward_context, stream) == 48);
  CHECK(offsetof(msa_indexer_config, exact) == 48);
  CHECK(offsetof(msa_indexer_forward_args, context) == 328);
  CHECK(offsetof(msa_sparse_impl_config, invariant) == 32);
  CHECK(offsetof(msa_sparse_forward_args, context) == 328);
}

void test_layer(void) {
  test_negotiation();
  test_negotiation_errors();
  test_backend();
  test_backend_errors();
  test_forward();
  test_set_batch();
  test_profiling_run();
  test_context_reaches_the_operators();
  test_forward_errors();
  test_config_errors();
  test_frozen_layout();
}
