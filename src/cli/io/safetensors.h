// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "msa/tensor.h"

/// \file
/// Safetensors files: named dense little-endian tensors behind a JSON header.
///
///     u64 n | n bytes of JSON | tensor data
///     {"__metadata__": {"key": "value"}, "name": {"dtype", "shape", "data_offsets": [begin, end]}}
///
/// Every fault of a file is an `Error` (io) that names the file, the tensor and what was expected.

namespace msa::cli {

/// A tensor inside a file's memory.
struct StoredTensor {
  std::string name;
  std::string dtype_name;            ///< as in the file: "BF16"
  std::optional<DType> dtype;        ///< nothing for a type that no operator takes ("F64")
  std::vector<std::int64_t> shape;   ///
  std::span<const std::byte> bytes;  ///< aligned to the element size

  std::int64_t numel() const;
};

/// An opened file; the tensors' memory lives as long as it does.
class SafetensorsFile {
 public:
  /// Maps the file into memory.
  static SafetensorsFile open(const std::string& path);
  /// Reads a file's image; `label` stands for the file in messages.
  static SafetensorsFile parse(std::span<const std::byte> image, const std::string& label);

  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;
  ~SafetensorsFile();

  const std::string& label() const { return label_; }
  /// In the order of their data.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  /// Null where there is none of this name.
  const StoredTensor* find(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  class Mapping;
  SafetensorsFile() = default;

  std::string label_;
  std::unique_ptr<Mapping> mapping_;
  std::vector<std::vector<std::uint64_t>> realigned_;  // copies of tensors at odd addresses
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// A tensor to be written, dense. The shape has as many entries as `view.rank` says.
struct TensorToStore {
  std::string name;
  ConstTensor view;
};

/// Writes a file; the data starts at a multiple of 64 bytes.
/// \throws Error (io) naming the file, or the tensor that is not dense.
void write_safetensors(const std::string& path, std::span<const TensorToStore> tensors,
                       const std::map<std::string, std::string>& metadata);

/// The format's name of a type: "BF16"; and back (nothing for other names).
const char* safetensors_name(DType type);
std::optional<DType> safetensors_dtype(std::string_view name);

/// "[2, 64, 128]".
std::string shape_text(std::span<const std::int64_t> shape);

}  // namespace msa::cli
