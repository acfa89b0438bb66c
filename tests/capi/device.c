/* Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0 */
/* Backends with their reasons, instruction sets, threads. */
#include <stddef.h>
#include <stdlib.h>

#include "check.h"

static void test_backends(void) {
  msa_backend_info info, untouched;
  int64_t count = -1, i, r;
  int cpu = 0;

  CHECK_OK(msa_backend_count(&count));
  CHECK(count >= 1);
  for (i = 0; i < count; ++i) {
    msa_backend_info_init(&info, sizeof info);
    CHECK(info.struct_size == sizeof info && info.name == NULL && info.num_reasons == 0);
    CHECK_OK(msa_get_backend_info(i, &info));
    CHECK(info.struct_size == sizeof info && strlen(info.name) > 0);
    for (r = 0; r < info.num_reasons; ++r) CHECK(strlen(info.reasons[r]) > 0);
    if (strcmp(info.name, "cpu") == 0) {
      ++cpu;
      CHECK(info.num_reasons == 0);
    }
  }
  CHECK(cpu == 1);

  untouched = info;
  CHECK(msa_get_backend_info(count, &info) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("get_backend_info: argument 'index' is ");
  CHECK_ERROR_HAS("; allowed: 0 to ");
  CHECK(msa_get_backend_info(-1, &info) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("argument 'index' is -1");
  CHECK(memcmp(&info, &untouched, sizeof info) == 0);
  CHECK(msa_get_backend_info(-1, NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("argument 'info' is null\n");
  CHECK_ERROR_HAS("argument 'index' is -1");
  info.struct_size = 7;
  CHECK(msa_get_backend_info(0, &info) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("argument 'info' has struct_size 7");
  CHECK(msa_backend_count(NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("backend_count: argument 'count' is null");
}

/* A process reads both variables once, at its first call that gets them right: so the wrong values
 * come first, and this before all other tests. */
static void test_wrong_settings(const char* name, const char* wrong, msa_status expected) {
  const char* value = getenv(name);
  char* own = value != NULL ? malloc(strlen(value) + 1) : NULL;
  msa_cpu_info info, untouched;
  if (own != NULL) strcpy(own, value);
  msa_cpu_info_init(&info, sizeof info);
  untouched = info;
  CHECK(setenv(name, wrong, 1) == 0);
  CHECK(msa_get_cpu_info(&info) == expected);
  CHECK_ERROR_HAS(name);
  CHECK_ERROR_HAS(wrong);
  CHECK(memcmp(&info, &untouched, sizeof info) == 0);
  CHECK((own != NULL ? setenv(name, own, 1) : unsetenv(name)) == 0);
  free(own);
}

static void test_cpu(void) {
  msa_cpu_info info, again;
  const char* forced = getenv("MSA_CPU_ISA");
  int64_t i;
  int found = 0;

  /* An own number of threads, where the environment names none. */
  CHECK(setenv("MSA_THREADS", "3", 0) == 0);
  msa_cpu_info_init(&info, sizeof info);
  CHECK(info.struct_size == sizeof info && info.isa == NULL && info.threads == 0);
  CHECK_OK(msa_get_cpu_info(&info));
  CHECK(info.struct_size == sizeof info && info.threads == atoi(getenv("MSA_THREADS")));
  CHECK(info.num_available >= 1);
  for (i = 0; i < info.num_available; ++i) found += strcmp(info.isa, info.available[i]) == 0;
  CHECK(found == 1);
  if (forced == NULL || *forced == '\0') forced = info.available[info.num_available - 1];
  CHECK(strcmp(info.isa, forced) == 0);

  CHECK(msa_get_cpu_info(NULL) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("get_cpu_info: argument 'info' is null");
  again = info;
  again.struct_size = 0;
  CHECK(msa_get_cpu_info(&again) == MSA_ERROR_INVALID_ARGUMENT);
  CHECK_ERROR_HAS("argument 'info' has struct_size 0");
  CHECK(strcmp(info.isa, forced) == 0); /* a refused call leaves the strings alone */
}

/* Layouts that programs in the field rely on, for 64-bit machines. */
static void test_frozen_layout(void) {
  if (sizeof(void*) != 8) return;
  CHECK(offsetof(msa_backend_info, num_reasons) == 24);
  CHECK(offsetof(msa_cpu_info, threads) == 32);
}

void test_device(void) {
  test_wrong_settings("MSA_CPU_ISA", "avx9000", MSA_ERROR_INVALID_ARGUMENT);
  test_wrong_settings("MSA_THREADS", "none", MSA_ERROR_INVALID_ARGUMENT);
  test_cpu();
  test_backends();
  test_frozen_layout();
}
