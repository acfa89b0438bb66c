/* Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

int failures = 0;

msa_tensor dense(void* data, msa_dtype dtype, int64_t d0, int64_t d1, int64_t d2, int64_t d3) {
  const int64_t shape[4] = {d0, d1, d2, d3};
  int32_t rank = 0;
  msa_tensor view;
  memset(&view, 0, sizeof view);
  while (rank < 4 && shape[rank] >= 0) ++rank;
  CHECK_OK(msa_tensor_dense(data, dtype, rank, shape, &view));
  return view;
}

uint16_t to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

float to_float(uint16_t bf16) {
  const uint32_t bits = (uint32_t)bf16 << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

int main(void) {
  test_device(); /* first: it needs a process that has served no call */
  test_operators();
  test_errors();
  test_serving();
  test_layer();
  if (failures == 0) printf("all checks passed\n");
  return failures == 0 ? 0 : 1;
}
