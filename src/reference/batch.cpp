// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "reference/reference.h"
