/* Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0 */
/* The C ABI: the same call as attend_minimal.cpp, and what an error looks like. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "msa/c_api.h"

enum { PAGES = 3, HEADS = 4, PAGE_ELEMENTS = 128 * 256 };

static msa_tensor dense(void* data, msa_dtype dtype, int32_t rank, const int64_t* shape) {
  msa_tensor view;
  if (msa_tensor_dense(data, dtype, rank, shape, &view) != MSA_OK) {
    fprintf(stderr, "%s\n", msa_last_error());
    exit(1);
  }
  return view;
}

int main(void) {
  static uint16_t cache[PAGES * PAGE_ELEMENTS], q[HEADS * 128], out[HEADS * 128];
  static const uint16_t value_of_page[PAGES] = {0x0000, 0x3f80, 0x4000}; /* bf16 0, 1, 2 */
  int32_t lens[] = {300}, table[] = {2, 0, 1}, blocks[] = {0, 2};
  const int64_t q_shape[] = {1, HEADS, 128}, cache_shape[] = {PAGES, 1, 128, 256};
  const int64_t one[] = {1}, table_shape[] = {1, 3}, selection_shape[] = {1, 1, 2};
  msa_batch batch;
  msa_attend_args args;
  msa_status status;
  int i;

  for (i = 0; i < PAGES * PAGE_ELEMENTS; ++i) {
    if (i % 256 >= 128) cache[i] = value_of_page[i / PAGE_ELEMENTS];
  }

  msa_batch_init(&batch, sizeof batch);
  batch.seq_lens = dense(lens, MSA_I32, 1, one);
  batch.block_table = dense(table, MSA_I32, 2, table_shape);
  batch.num_decodes = 1;
  batch.num_actual_tokens = 1;
  batch.max_query_len = 1;
  batch.max_seq_len = 300;

  msa_attend_args_init(&args, sizeof args);
  args.q = dense(q, MSA_BF16, 3, q_shape);
  args.kv_cache.packed = dense(cache, MSA_F32, 4, cache_shape); /* a mistake, to see the error */
  args.selection = dense(blocks, MSA_I32, 3, selection_shape);
  args.batch = &batch;
  args.out = dense(out, MSA_BF16, 3, q_shape);

  status = msa_attend(&args);
  printf("status %s:\n%s\n", msa_status_name(status), msa_last_error());
  if (status != MSA_ERROR_INVALID_ARGUMENT) return 1;

  args.kv_cache.packed.dtype = MSA_BF16;
  status = msa_attend_workspace_size(&args, &args.workspace.bytes);
  if (status == MSA_OK) {
    args.workspace.data = malloc(args.workspace.bytes);
    status = msa_attend(&args);
    free(args.workspace.data);
  }
  if (status != MSA_OK) {
    fprintf(stderr, "%s\n", msa_last_error());
    return 1;
  }
  printf("out = 0x%04x on backend %s, msa %s; expected 0x3fdf\n", (unsigned)out[0],
         msa_last_backend(), msa_version());
  return out[0] == 0x3fdf ? 0 : 1;
}
