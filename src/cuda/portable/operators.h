// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "msa/attend.h"
#include "msa/copy_pages.h"
#include "msa/index.h"
#include "msa/merge.h"
#include "msa/write_cache.h"

/// \file
/// The portable CUDA backend's operators, one source file or folder each, for any device from
/// compute capability 8.0 on. Arguments have passed src/api's validators; the tensors' device is
/// the current one. Calls only launch: they neither wait nor allocate nor read device memory.

namespace msa::cuda::portable {

void attend(const AttendArgs& args);             // attend.cpp
void index_blocks(const IndexArgs& args);        // index/index.cu
void index_scores(const IndexScoresArgs& args);  // index/index.cu
void select_blocks(const SelectArgs& args);      // index/index.cu
void merge_states(const MergeArgs& args);        // merge.cu
void write_cache(const WriteCacheArgs& args);    // write_cache/write_cache.cu
void insert_cache(const InsertCacheArgs& args);  // write_cache/write_cache.cu
void copy_pages(const CopyPagesArgs& args);      // copy_pages.cu

std::size_t workspace_size(const AttendArgs& args);  // attend.cpp
std::size_t workspace_size(const IndexArgs& args);   // index/index.cu

}  // namespace msa::cuda::portable
