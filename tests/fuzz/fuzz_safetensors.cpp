// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "cli/io/safetensors.h"
#include "msa/error.h"

/// Any bytes are either a file whose tensors lie inside it, aligned and as large as their shapes
/// say, or a refusal that names the file.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using msa::cli::SafetensorsFile;
  try {
    const SafetensorsFile file =
        SafetensorsFile::parse(std::as_bytes(std::span(data, size)), "fuzz");
    unsigned sum = 0;
    for (const msa::cli::StoredTensor& tensor : file.tensors()) {
      for (const std::byte b : tensor.bytes) sum += std::to_integer<unsigned>(b);
      if (!tensor.dtype) continue;
      const std::size_t element = size_of(*tensor.dtype);
      if (static_cast<std::size_t>(tensor.numel()) * element != tensor.bytes.size()) std::abort();
      const auto address = reinterpret_cast<std::uintptr_t>(tensor.bytes.data());
      if (!tensor.bytes.empty() && address % element != 0) std::abort();
    }
    if (sum > 255 * size) std::abort();
  } catch (const msa::Error& error) {
    if (error.failures().empty() || error.failures().front().rfind("fuzz: ", 0) != 0) std::abort();
  }
  return 0;
}
