// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The types that a matrix product takes.

namespace msa::cuda::ptx {

/// The type of A and B.
enum class Operand { bf16, f16 };

}  // namespace msa::cuda::ptx
