/* Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "msa/c_api.h"

/* What the C99 tests share: a check that counts, dense views, bf16. */

extern int failures;

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      ++failures;                                                             \
      fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                         \
  } while (0)

#define CHECK_OK(call)                                                                 \
  do {                                                                                 \
    const msa_status status_ = (call);                                                 \
    if (status_ != MSA_OK) {                                                           \
      ++failures;                                                                      \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, msa_last_error()); \
    }                                                                                  \
  } while (0)

/* The last error must contain the text. */
#define CHECK_ERROR_HAS(text)                                                                   \
  do {                                                                                          \
    if (strstr(msa_last_error(), (text)) == NULL) {                                             \
      ++failures;                                                                               \
      fprintf(stderr, "%s:%d: no '%s' in: %s\n", __FILE__, __LINE__, (text), msa_last_error()); \
    }                                                                                           \
  } while (0)

/* The last error must be the text and nothing else. */
#define CHECK_ERROR_IS(text)                                                                  \
  do {                                                                                        \
    if (strcmp(msa_last_error(), (text)) != 0) {                                              \
      ++failures;                                                                             \
      fprintf(stderr, "%s:%d: not '%s': %s\n", __FILE__, __LINE__, (text), msa_last_error()); \
    }                                                                                         \
  } while (0)

/* Dense view; dimensions end at the first negative one. */
msa_tensor dense(void* data, msa_dtype dtype, int64_t d0, int64_t d1, int64_t d2, int64_t d3);

uint16_t to_bf16(float value);
float to_float(uint16_t bf16);

void test_operators(void);
void test_errors(void);
void test_serving(void);
void test_device(void);
void test_layer(void);
