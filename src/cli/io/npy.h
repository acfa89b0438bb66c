// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

/// \file
/// Reads what NumPy saved: as much of the format as data/ needs.

namespace msa::cli {

/// An array of bytes in C order.
struct ByteArray {
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> values;
};

/// Reads an .npy file, version 1, of unsigned bytes in C order.
/// \throws Error (io) naming the file and everything in it that is not so.
ByteArray read_npy(const std::string& path);
/// The same of a stream; `name` is what errors call it.
ByteArray read_npy(std::istream& in, const std::string& name);

}  // namespace msa::cli
