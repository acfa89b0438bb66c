// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/replay/replay.h"

/// \file
/// A replay as a picture.

namespace msa::replay {

/// An SVG document: tokens a second, time of each step, pages and running requests over the time of
/// the run, and where the time went.
std::string plot_svg(const std::string& trace, const ReplayReport& report);

}  // namespace msa::replay
