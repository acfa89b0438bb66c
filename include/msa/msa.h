// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// All of the public C++ API.

#include "msa/attend.h"
#include "msa/copy_pages.h"
#include "msa/device.h"
#include "msa/error.h"
#include "msa/index.h"
#include "msa/kv_cache.h"
#include "msa/layer.h"
#include "msa/merge.h"
#include "msa/metadata.h"
#include "msa/page_allocator.h"
#include "msa/tensor.h"
#include "msa/types.h"
#include "msa/write_cache.h"
