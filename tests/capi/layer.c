/* Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0 */
/* The engine's side: layouts. */
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

void test_layer(void) {
  test_negotiation();
  test_negotiation_errors();
}
