// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cpu/operators.h"
namespace msa::cpu { void index_blocks(const IndexArgs&) {} void index_scores(const IndexScoresArgs&) {} void select_blocks(const SelectArgs&) {}
std::size_t workspace_size(const IndexArgs&) { return 0; } std::size_t workspace_size(const IndexScoresArgs&) { return 0; } std::size_t workspace_size(const SelectArgs&) { return 0; } }
