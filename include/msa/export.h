// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

/// MSA_API marks what the shared library exports; everything else stays hidden, so that the library
/// cannot clash with a host program's symbols.
#if defined(_WIN32)
#define MSA_API
#else
#define MSA_API __attribute__((visibility("default")))
#endif
