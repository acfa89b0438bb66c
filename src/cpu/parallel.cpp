// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/parallel.h"
namespace msa::cpu { int num_threads() { return 1; }
void parallel_for(std::int64_t tasks, void (*body)(void*, std::int64_t), void* context) { for (std::int64_t i = 0; i < tasks; ++i) body(context, i); } }
