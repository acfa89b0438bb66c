// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "msa/attend.h"
#include "msa/copy_pages.h"
#include "msa/index.h"
#include "msa/merge.h"
#include "msa/write_cache.h"

/// \file
/// The CPU backend's operators, one source file each. Arguments have passed src/api's validators.

namespace msa::cpu {

void attend(const AttendArgs& args);             // attend.cpp
void index_blocks(const IndexArgs& args);        // index.cpp
void index_scores(const IndexScoresArgs& args);  // index.cpp
void select_blocks(const SelectArgs& args);      // index.cpp
void merge_states(const MergeArgs& args);        // merge.cpp
void write_cache(const WriteCacheArgs& args);    // write_cache.cpp
void insert_cache(const InsertCacheArgs& args);  // write_cache.cpp
void copy_pages(const CopyPagesArgs& args);      // copy_pages.cpp

std::size_t workspace_size(const AttendArgs& args);
std::size_t workspace_size(const IndexArgs& args);
std::size_t workspace_size(const IndexScoresArgs& args);
std::size_t workspace_size(const SelectArgs& args);

}  // namespace msa::cpu
