// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// What the tile code's callers, compiled for any machine, need to name.

namespace msa::cpu::amx {

/// Element types whose values bf16 holds.
enum class CacheType { bf16, e4m3, e5m2 };

/// Called around the functions that use tiles, on each thread.
void begin_tiles();
void end_tiles();

}  // namespace msa::cpu::amx
