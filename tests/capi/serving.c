/* Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0 */
/* Metadata builder and page allocator: handles, results known by hand, errors. */
#include <stddef.h>
#include <stdlib.h>

#include "check.h"

/* Two decode requests and a prefill request of five tokens, two of them in the cache already. */
typedef struct step_case {
  int32_t starts[4];
  int32_t lens[3];
  int32_t table[3 * 2];
  int64_t slots[7];
  msa_step_inputs step;
} step_case;

static void fill_step(step_case* c) {
  const int32_t starts[4] = {0, 1, 2, 7}, lens[3] = {10, 200, 7}, table[6] = {1, 0, 2, 3, 4, 0};
  memset(c, 0, sizeof *c);
  memcpy(c->starts, starts, sizeof starts);
  memcpy(c->lens, lens, sizeof lens);
  memcpy(c->table, table, sizeof table);
  msa_step_inputs_init(&c->step, sizeof c->step);
  c->step.query_start_loc = c->starts;
  c->step.seq_lens_host = c->lens;
  c->step.num_requests = 3;
  c->step.seq_lens = dense(c->lens, MSA_I32, 3, -1, -1, -1);
  c->step.block_table = dense(c->table, MSA_I32, 3, 2, -1, -1);
  c->step.slot_mapping = dense(c->slots, MSA_I64, 7, -1, -1, -1);
  c->step.num_actual_tokens = 7;
}

static void test_builder(void) {
  step_case c;
  msa_metadata_builder* builder = NULL;
  msa_sparse_metadata *metadata = NULL, *empty = NULL;
  msa_batch batch;
  msa_tensor slots;

  CHECK_OK(msa_metadata_builder_create(1, &builder));
  fill_step(&c);
  CHECK_OK(msa_metadata_builder_build(builder, &c.step, &metadata));
  msa_batch_init(&batch, sizeof batch);
  CHECK_OK(msa_sparse_metadata_batch(metadata, &batch));
  CHECK(batch.struct_size == sizeof batch);
  CHECK(batch.num_decodes == 2 && batch.num_prefills == 1 && batch.decode_query_len == 1);
  CHECK(batch.num_actual_tokens == 7 && batch.max_query_len == 5 && batch.max_seq_len == 200);
  CHECK(batch.seq_lens.data == c.lens && batch.seq_lens.shape[0] == 3);
  CHECK(batch.block_table.data == c.table && batch.block_table.shape[1] == 2);
  CHECK(batch.cu_seqlens_q.shape[0] == 2 && batch.context_lens.shape[0] == 1);
  CHECK(((const int32_t*)batch.cu_seqlens_q.data)[0] == 0);
  CHECK(((const int32_t*)batch.cu_seqlens_q.data)[1] == 5);
  CHECK(((const int32_t*)batch.context_lens.data)[0] == 2);
  CHECK_OK(msa_sparse_metadata_slot_mapping(metadata, &slots));
  CHECK(slots.data == c.slots && slots.dtype == MSA_I64 && slots.shape[0] == 7);

  /* A step without requests; the builder may go before what it built. */
  msa_step_inputs_init(&c.step, sizeof c.step);
  c.step.query_start_loc = c.starts;
  CHECK_OK(msa_metadata_builder_build(builder, &c.step, &empty));
  msa_metadata_builder_destroy(builder);
  CHECK_OK(msa_sparse_metadata_batch(empty, &batch));
  CHECK(batch.num_decodes == 0 && batch.num_prefills == 0 && batch.seq_lens.rank == 0);
  CHECK_OK(msa_sparse_metadata_slot_mapping(empty, &slots));
  CHECK(slots.rank == 0 && slots.data == NULL);
  msa_sparse_metadata_destroy(empty);
  msa_sparse_metadata_destroy(metadata);
}

static void test_builder_errors(void) {
  step_case c;
  msa_metadata_builder* builder = NULL;
  msa_sparse_metadata* metadata = NULL;
  msa_batch batch;
  unsigned char older[sizeof(msa_batch)];

  CHECK(msa_metadata_builder_create(-1, &builder) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("'decode_threshold' is -1");
  CHECK(builder == NULL);
  CHECK(msa_metadata_builder_create(1, NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("metadata_builder_create: argument 'builder' is null");
  CHECK(msa_metadata_builder_build(NULL, NULL, NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("metadata_builder_build: argument 'builder' is null\n");
  CHECK_ERROR_HAS("argument 'step' is null\n");
  CHECK_ERROR_HAS("argument 'metadata' is null");

  CHECK_OK(msa_metadata_builder_create(1, &builder));
  fill_step(&c);
  c.starts[1] = 3;
  c.lens[2] = -7;
  c.step.block_table.dtype = MSA_I64;
  CHECK(msa_metadata_builder_build(builder, &c.step, &metadata) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("'query_start_loc' falls from 3 to 2 at request 1");
  CHECK_ERROR_HAS("'seq_lens_host' holds -7 for request 2");
  CHECK_ERROR_HAS("'block_table' has dtype i64");
  CHECK(metadata == NULL);

  fill_step(&c);
  c.step.query_start_loc = c.step.seq_lens_host = NULL;
  c.step.seq_lens.rank = 9;
  CHECK(msa_metadata_builder_build(builder, &c.step, &metadata) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("argument 'query_start_loc' is null");
  CHECK_ERROR_HAS("argument 'seq_lens_host' is null");
  CHECK_ERROR_HAS("argument 'seq_lens' has rank 9; allowed: 0 to 5");
  c.step.num_requests = INT64_MAX;
  CHECK(msa_metadata_builder_build(builder, &c.step, &metadata) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("'num_requests' is 9223372036854775807; allowed: 0 to 2147483647");
  c.step.struct_size = 3;
  CHECK(msa_metadata_builder_build(builder, &c.step, &metadata) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("argument 'step' has struct_size 3");

  /* A struct that is written keeps to its size. */
  fill_step(&c);
  CHECK_OK(msa_metadata_builder_build(builder, &c.step, &metadata));
  memset(&batch, 0, sizeof batch);
  CHECK(msa_sparse_metadata_batch(metadata, &batch) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("argument 'batch' has struct_size 0");
  memset(older, 0xee, sizeof older);
  msa_batch_init((msa_batch*)(void*)older, offsetof(msa_batch, max_query_len));
  CHECK_OK(msa_sparse_metadata_batch(metadata, (msa_batch*)(void*)older));
  CHECK(older[offsetof(msa_batch, max_query_len)] == 0xee);
  CHECK(older[offsetof(msa_batch, num_actual_tokens)] == 7);
  CHECK(msa_sparse_metadata_batch(NULL, NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("argument 'metadata' is null\n");
  CHECK(msa_sparse_metadata_slot_mapping(metadata, NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("argument 'slot_mapping' is null");
  msa_sparse_metadata_destroy(metadata);
  msa_metadata_builder_destroy(builder);
  msa_sparse_metadata_destroy(NULL);
  msa_metadata_builder_destroy(NULL);
}

static msa_page_allocator* allocator_of(int64_t pages) {
  msa_page_allocator_config config;
  msa_page_allocator* allocator = NULL;
  msa_page_allocator_config_init(&config, sizeof config);
  CHECK(config.reserve_null_page == 1 && config.pages_per_hash == 4);
  config.pages = pages;
  CHECK_OK(msa_page_allocator_create(&config, &allocator));
  return allocator;
}

static msa_page_request request_of(const uint64_t* hashes, int64_t count, int64_t tokens) {
  msa_page_request request;
  msa_page_request_init(&request, sizeof request);
  request.hashes = hashes;
  request.num_hashes = count;
  request.prompt_tokens = request.reserve_tokens = tokens;
  return request;
}

/* Two requests of one 512-token prefix in a cache of ten pages. */
static void test_pages(void) {
  const uint64_t hash = 77;
  msa_page_allocator* allocator = allocator_of(11);
  msa_page_request request = request_of(&hash, 1, 600);
  msa_page_sequence *first = NULL, *second = NULL, *third = NULL;
  const int32_t *pages = NULL, *shared = NULL;
  int64_t count = 0, value = -1;
  int32_t flag = -1;
  msa_page_stats stats;
  int i;

  CHECK_OK(msa_page_allocator_begin(allocator, &request, &first));
  CHECK_OK(msa_page_sequence_pages(first, &pages, &count));
  CHECK(count == 5);
  for (i = 0; i < 5; ++i) CHECK(pages[i] == i + 1);
  CHECK_OK(msa_page_allocator_published(allocator, hash, &flag));
  CHECK(flag == 0);
  CHECK_OK(msa_page_sequence_publish(first, 512));
  CHECK_OK(msa_page_allocator_published(allocator, hash, &flag));
  CHECK(flag == 1);

  CHECK_OK(msa_page_allocator_begin(allocator, &request, &second));
  CHECK_OK(msa_page_sequence_cached_tokens(second, &value));
  CHECK(value == 512);
  CHECK_OK(msa_page_sequence_pages(second, &shared, &count));
  CHECK(count == 5 && memcmp(shared, pages, 4 * sizeof *pages) == 0 && shared[4] == 6);
  CHECK_OK(msa_page_allocator_references(allocator, pages[0], &value));
  CHECK(value == 2);
  CHECK_OK(msa_page_allocator_available(allocator, &value));
  CHECK(value == 4);

  /* All or nothing, and no error. */
  CHECK_OK(msa_page_sequence_grow(second, 5 * 128 + 1, &flag));
  CHECK(flag == 1);
  CHECK_OK(msa_page_sequence_grow(second, 20 * 128, &flag));
  CHECK(flag == 0);
  request = request_of(NULL, 0, 600);
  third = second;
  CHECK_OK(msa_page_allocator_begin(allocator, &request, &third));
  CHECK(third == NULL);

  msa_page_stats_init(&stats, sizeof stats);
  CHECK_OK(msa_page_allocator_stats(allocator, &stats));
  CHECK(stats.pages_in_use == 7 && stats.pages_free == 3 && stats.pages_cached == 0);
  CHECK(stats.peak_in_use == 7 && stats.hits == 1 && stats.misses == 1 && stats.failures == 2);
  CHECK(stats.prompt_tokens == 1200 && stats.cached_tokens == 512);
  CHECK(stats.evictions == 0 && stats.duplicates == 0);

  msa_page_sequence_destroy(first);
  msa_page_sequence_destroy(second);
  CHECK_OK(msa_page_allocator_stats(allocator, &stats));
  CHECK(stats.pages_in_use == 0 && stats.pages_free == 6 && stats.pages_cached == 4);
  CHECK_OK(msa_page_allocator_drop_cached(allocator));
  CHECK_OK(msa_page_allocator_reset_stats(allocator));
  CHECK_OK(msa_page_allocator_stats(allocator, &stats));
  CHECK(stats.pages_free == 10 && stats.peak_in_use == 0 && stats.hits == 0);

  /* A host program may drop its handles in any order. */
  CHECK_OK(msa_page_allocator_begin(allocator, &request, &first));
  msa_page_allocator_destroy(allocator);
  CHECK_OK(msa_page_sequence_grow(first, 10 * 128, &flag));
  CHECK(flag == 1);
  msa_page_sequence_destroy(first);
}

static void test_page_errors(void) {
  msa_page_allocator_config config;
  msa_page_allocator* allocator = NULL;
  msa_page_request request = request_of(NULL, 2, 0);
  msa_page_sequence* sequence = NULL;
  msa_page_stats stats;
  int64_t value = -1;
  int32_t flag = -1;

  msa_page_allocator_config_init(&config, sizeof config);
  config.pages = -1;
  config.pages_per_hash = 0;
  CHECK(msa_page_allocator_create(&config, &allocator) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("field 'pages' is -1; allowed: 0 to 2147483647\n");
  CHECK_ERROR_HAS("field 'pages_per_hash' is 0; allowed: 1 or more");
  CHECK(allocator == NULL);
  CHECK(msa_page_allocator_create(NULL, NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("page_allocator_create: argument 'config' is null\n");
  CHECK_ERROR_HAS("argument 'allocator' is null");

  allocator = allocator_of(5);
  CHECK(msa_page_allocator_begin(allocator, &request, &sequence) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("page_allocator_begin: argument 'hashes' is null");
  request.num_hashes = -2;
  CHECK(msa_page_allocator_begin(allocator, &request, &sequence) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("argument 'num_hashes' is -2; allowed: 0 to 2147483647");
  request.num_hashes = 0;
  CHECK(msa_page_allocator_begin(allocator, &request, &sequence) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("'prompt_tokens' is 0; allowed: 1 or more");
  CHECK(msa_page_allocator_begin(NULL, NULL, NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("argument 'allocator' is null\n");
  CHECK_ERROR_HAS("argument 'request' is null\n");
  CHECK_ERROR_HAS("argument 'sequence' is null");
  CHECK(sequence == NULL);

  memset(&stats, 0, sizeof stats);
  CHECK(msa_page_allocator_stats(allocator, &stats) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("argument 'stats' has struct_size 0");
  CHECK(msa_page_allocator_stats(NULL, &stats) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK(msa_page_allocator_available(NULL, &value) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK(msa_page_allocator_references(allocator, 1, NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK(msa_page_allocator_published(NULL, 1, &flag) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK(msa_page_allocator_drop_cached(NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK(msa_page_allocator_reset_stats(NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK(msa_page_sequence_grow(NULL, 1, &flag) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK(msa_page_sequence_publish(NULL, 1) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK(msa_page_sequence_pages(NULL, NULL, &value) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("page_sequence_pages: argument 'sequence' is null\n");
  CHECK_ERROR_HAS("argument 'pages' is null");
  CHECK(msa_page_sequence_cached_tokens(NULL, &value) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK(value == -1 && flag == -1);
  msa_page_allocator_destroy(allocator);
  msa_page_allocator_destroy(NULL);
  msa_page_sequence_destroy(NULL);
}

/* Pages, table, split and attend together: values are 1, 2, 3 … by page, all logits equal. */
static void test_step_of_two_requests(void) {
  enum { PAGE = 128 * 256, PAGES = 6, TOKENS = 6 };
  static uint16_t cache[PAGES * PAGE], q[TOKENS * 128], out[TOKENS * 128];
  const double expected[TOKENS] = {(128 * 1 + 12 * 2) / 140.0, 3, 3, 3, 3, 3};
  int32_t starts[3] = {0, 1, TOKENS}, lens[2] = {140, 5}, table[2 * 2], blocks[TOKENS * 2];
  msa_page_allocator* allocator = allocator_of(PAGES);
  msa_page_sequence* sequences[2];
  msa_metadata_builder* builder = NULL;
  msa_sparse_metadata* metadata = NULL;
  msa_step_inputs step;
  msa_batch batch;
  msa_attend_args args;
  int i, d;

  memset(table, 0xff, sizeof table);
  for (i = 0; i < 2; ++i) {
    const msa_page_request request = request_of(NULL, 0, lens[i]);
    const int32_t* pages = NULL;
    int64_t count = 0;
    CHECK_OK(msa_page_allocator_begin(allocator, &request, &sequences[i]));
    CHECK_OK(msa_page_sequence_pages(sequences[i], &pages, &count));
    memcpy(table + 2 * i, pages, (size_t)count * sizeof *pages);
  }
  for (i = 0; i < PAGES * 128; ++i) {
    for (d = 128; d < 256; ++d) cache[i * 256 + d] = to_bf16((float)(i / 128));
  }
  for (i = 0; i < TOKENS * 2; ++i) blocks[i] = i % 2;

  CHECK_OK(msa_metadata_builder_create(1, &builder));
  msa_step_inputs_init(&step, sizeof step);
  step.query_start_loc = starts;
  step.seq_lens_host = lens;
  step.num_requests = 2;
  step.seq_lens = dense(lens, MSA_I32, 2, -1, -1, -1);
  step.block_table = dense(table, MSA_I32, 2, 2, -1, -1);
  step.num_actual_tokens = TOKENS;
  CHECK_OK(msa_metadata_builder_build(builder, &step, &metadata));
  msa_batch_init(&batch, sizeof batch);
  CHECK_OK(msa_sparse_metadata_batch(metadata, &batch));

  msa_attend_args_init(&args, sizeof args);
  args.q = dense(q, MSA_BF16, TOKENS, 1, 128, -1);
  args.kv_cache.packed = dense(cache, MSA_BF16, PAGES, 1, 128, 256);
  args.selection = dense(blocks, MSA_I32, TOKENS, 1, 2, -1);
  args.batch = &batch;
  args.out = dense(out, MSA_BF16, TOKENS, 1, 128, -1);
  CHECK_OK(msa_attend_workspace_size(&args, &args.workspace.bytes));
  args.workspace.data = malloc(args.workspace.bytes);
  CHECK_OK(msa_attend(&args));
  for (i = 0; i < TOKENS * 128; ++i) {
    const double error = (double)to_float(out[i]) - expected[i / 128];
    CHECK(error < 1e-2 && error > -1e-2);
  }
  free(args.workspace.data);
  msa_sparse_metadata_destroy(metadata);
  msa_metadata_builder_destroy(builder);
  msa_page_allocator_destroy(allocator);
  for (i = 0; i < 2; ++i) msa_page_sequence_destroy(sequences[i]);
}

/* Layouts that programs in the field rely on, for 64-bit machines. */
static void test_frozen_layout(void) {
  if (sizeof(void*) != 8) return;
  CHECK(offsetof(msa_step_inputs, num_requests) == 24);
  CHECK(offsetof(msa_step_inputs, max_seq_len) == 352);
  CHECK(offsetof(msa_page_allocator_config, pages_per_hash) == 20);
  CHECK(offsetof(msa_page_request, reserve_tokens) == 32);
  CHECK(offsetof(msa_page_stats, failures) == 88);
}

void test_serving(void) {
  test_builder();
  test_builder_errors();
  test_pages();
  test_page_errors();
  test_step_of_two_requests();
  test_frozen_layout();
}
