// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Whether this file is compiled under a sanitizer: GCC says so by macros, clang by features.

#if defined(__has_feature)
#define MSA_HAS_FEATURE(feature) __has_feature(feature)
#else
#define MSA_HAS_FEATURE(feature) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || MSA_HAS_FEATURE(address_sanitizer)
#define MSA_ADDRESS_SANITIZER 1
#else
#define MSA_ADDRESS_SANITIZER 0
#endif

#if defined(__SANITIZE_THREAD__) || MSA_HAS_FEATURE(thread_sanitizer)
#define MSA_THREAD_SANITIZER 1
#else
#define MSA_THREAD_SANITIZER 0
#endif
