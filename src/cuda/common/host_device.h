// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Functions that are the same on host and device, also where the compiler knows no device.

#if defined(__CUDACC__)
#define MSA_HOST_DEVICE __host__ __device__
#else
#define MSA_HOST_DEVICE
#endif
