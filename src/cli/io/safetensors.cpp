// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/io/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/io/json_object.h"
#include "cli/io/output_file.h"
#include "msa/error.h"

namespace msa::cli {
namespace {

using nlohmann::json;

constexpr std::uint64_t length_bytes = 8;
constexpr std::uint64_t largest_header = 100'000'000;  // the format's own bound
constexpr std::size_t data_alignment = 64;

struct TypeName {
  const char* name;
  std::int64_t bytes;
  std::optional<DType> dtype;
};
/// The format's types; those without a DType can be stored in a file, but no operator takes them.
constexpr std::array<TypeName, 15> type_names = {{{"F32", 4, DType::f32},
                                                  {"BF16", 2, DType::bf16},
                                                  {"F16", 2, DType::f16},
                                                  {"F8_E4M3", 1, DType::e4m3},
                                                  {"F8_E5M2", 1, DType::e5m2},
                                                  {"I32", 4, DType::i32},
                                                  {"I64", 8, DType::i64},
                                                  {"U8", 1, DType::u8},
                                                  {"BOOL", 1, std::nullopt},
                                                  {"I8", 1, std::nullopt},
                                                  {"I16", 2, std::nullopt},
                                                  {"U16", 2, std::nullopt},
                                                  {"U32", 4, std::nullopt},
                                                  {"U64", 8, std::nullopt},
                                                  {"F64", 8, std::nullopt}}};

const TypeName* type_of(std::string_view name) {
  for (const TypeName& type : type_names) {
    if (name == type.name) return &type;
  }
  return nullptr;
}

[[noreturn]] void fail(const std::string& label, const std::string& what) {
  throw Error(ErrorCode::io, fmt::format("{}: {}", label, what));
}

[[noreturn]] void fail(const std::string& label, const std::string& tensor,
                       const std::string& what) {
  fail(label, fmt::format("tensor '{}' {}", tensor, what));
}

json parse_header(std::string_view text, const std::string& label) {
  JsonObject header = read_json_object(text);
  if (!header.fault.empty()) fail(label, "the header " + header.fault);
  return std::move(header.value);
}

std::map<std::string, std::string> read_metadata(const json& value, const std::string& label) {
  std::map<std::string, std::string> metadata;
  if (!value.is_object()) fail(label, "__metadata__ is not a JSON object");
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) fail(label, fmt::format("metadata '{}' is not a string", key));
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

/// A whole number from 0 to 2^63 − 1.
bool is_count(const json& value) {
  return value.is_number_unsigned() &&
         value.get<std::uint64_t>() <= std::uint64_t{std::numeric_limits<std::int64_t>::max()};
}

std::vector<std::int64_t> read_counts(const json& entry, const char* key, const std::string& label,
                                      const std::string& tensor) {
  const auto found = entry.find(key);
  if (found == entry.end() || !found->is_array() ||
      !std::all_of(found->begin(), found->end(), is_count)) {
    fail(label, tensor, fmt::format("has no '{}' made of whole numbers ≥ 0", key));
  }
  return found->get<std::vector<std::int64_t>>();
}

/// Bytes of the shape; nothing where its non-zero dimensions' product leaves 63 bits.
std::optional<std::int64_t> shape_bytes(std::span<const std::int64_t> shape, std::int64_t element) {
  std::int64_t bytes = element;
  bool empty = false;
  for (std::int64_t dim : shape) {
    empty = empty || dim == 0;
    if (dim != 0 && __builtin_mul_overflow(bytes, dim, &bytes)) return std::nullopt;
  }
  return empty ? 0 : bytes;
}

StoredTensor read_entry(const std::string& name, const json& entry, std::span<const std::byte> data,
                        const std::string& label) {
  if (!entry.is_object()) fail(label, name, "is not a JSON object");
  for (const auto& [key, value] : entry.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      fail(label, name, fmt::format("has an unknown key '{}'", key));
    }
  }
  StoredTensor tensor;
  tensor.name = name;
  const auto dtype = entry.find("dtype");
  if (dtype == entry.end() || !dtype->is_string()) fail(label, name, "has no 'dtype' text");
  tensor.dtype_name = dtype->get<std::string>();
  const TypeName* type = type_of(tensor.dtype_name);
  if (type == nullptr) {
    fail(label, name, fmt::format("has the unknown dtype '{}'", tensor.dtype_name));
  }
  tensor.dtype = type->dtype;
  tensor.shape = read_counts(entry, "shape", label, name);
  const std::vector<std::int64_t> offsets = read_counts(entry, "data_offsets", label, name);
  const auto size = static_cast<std::int64_t>(data.size());
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > size) {
    fail(label, name,
         fmt::format("has data_offsets {}; expected [begin, end] with begin ≤ end ≤ {}",
                     shape_text(offsets), size));
  }
  const std::optional<std::int64_t> bytes = shape_bytes(tensor.shape, type->bytes);
  if (bytes != offsets[1] - offsets[0]) {
    fail(label, name,
         fmt::format("of shape {} and dtype {} has {} bytes of data; expected {}",
                     shape_text(tensor.shape), tensor.dtype_name, offsets[1] - offsets[0],
                     bytes ? std::to_string(*bytes) : "more than any file can hold"));
  }
  tensor.bytes = data.subspan(static_cast<std::size_t>(offsets[0]),
                              static_cast<std::size_t>(offsets[1] - offsets[0]));
  return tensor;
}

/// The tensors lie one behind the other and fill the data: nothing overlaps, nothing hides.
void check_coverage(const std::vector<StoredTensor>& tensors, std::span<const std::byte> data,
                    const std::string& label) {
  std::size_t end = 0;
  for (const StoredTensor& tensor : tensors) {
    const auto begin = static_cast<std::size_t>(tensor.bytes.data() - data.data());
    if (begin != end) {
      fail(label, tensor.name,
           fmt::format("starts at byte {} of the data; expected {}, where the tensor before it "
                       "ends ({})",
                       begin, end, begin < end ? "they overlap" : "there is a gap"));
    }
    end = begin + tensor.bytes.size();
  }
  if (end != data.size()) {
    fail(label, fmt::format("has {} bytes of data; its tensors end at {}", data.size(), end));
  }
}

}  // namespace

/// A file in memory, read-only.
class SafetensorsFile::Mapping {
 public:
  explicit Mapping(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) fail(path, std::strerror(errno));
    struct stat status {};
    const bool readable = fstat(file, &status) == 0 && S_ISREG(status.st_mode);
    size_ = readable ? static_cast<std::size_t>(status.st_size) : 0;
    if (size_ > 0) data_ = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
    const int error = errno;
    ::close(file);
    if (!readable) fail(path, "is not a regular file");
    if (size_ > 0 && data_ == MAP_FAILED) fail(path, std::strerror(error));
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (size_ > 0) munmap(data_, size_);
  }

  std::span<const std::byte> image() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;
SafetensorsFile::~SafetensorsFile() = default;

std::int64_t StoredTensor::numel() const {
  std::int64_t n = 1;
  for (std::int64_t dim : shape) n *= dim;
  return n;
}

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  auto mapping = std::make_unique<Mapping>(path);
  SafetensorsFile file = parse(mapping->image(), path);
  file.mapping_ = std::move(mapping);
  return file;
}

SafetensorsFile SafetensorsFile::parse(std::span<const std::byte> image, const std::string& label) {
  if (image.size() < length_bytes) {
    fail(label, fmt::format("has {} bytes; a safetensors file starts with an 8-byte length",
                            image.size()));
  }
  std::uint64_t length = 0;
  std::memcpy(&length, image.data(), length_bytes);
  if (length > largest_header || length > image.size() - length_bytes) {
    fail(label, fmt::format("gives its header {} bytes; allowed: {} (not a safetensors file?)",
                            length, std::min(largest_header, image.size() - length_bytes)));
  }
  const std::string_view text(reinterpret_cast<const char*>(image.data()) + length_bytes,
                              static_cast<std::size_t>(length));
  const std::span<const std::byte> data =
      image.subspan(static_cast<std::size_t>(length_bytes + length));

  SafetensorsFile file;
  file.label_ = label;
  const json header = parse_header(text, label);
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      file.metadata_ = read_metadata(entry, label);
    } else {
      file.tensors_.push_back(read_entry(name, entry, data, label));
    }
  }
  std::stable_sort(file.tensors_.begin(), file.tensors_.end(),
                   [](const StoredTensor& a, const StoredTensor& b) {
                     return std::pair(a.bytes.data(), a.bytes.size()) <
                            std::pair(b.bytes.data(), b.bytes.size());
                   });
  check_coverage(file.tensors_, data, label);

  for (StoredTensor& tensor : file.tensors_) {
    const auto element = static_cast<std::uintptr_t>(type_of(tensor.dtype_name)->bytes);
    const auto address = reinterpret_cast<std::uintptr_t>(tensor.bytes.data());
    if (address % element == 0) continue;
    // An empty tensor has an address too: one that a call would take.
    std::vector<std::uint64_t>& copy = file.realigned_.emplace_back(tensor.bytes.size() / 8 + 1);
    std::memcpy(copy.data(), tensor.bytes.data(), tensor.bytes.size());
    tensor.bytes = {reinterpret_cast<const std::byte*>(copy.data()), tensor.bytes.size()};
  }
  return file;
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  for (const StoredTensor& tensor : tensors_) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

void write_safetensors(const std::string& path, std::span<const TensorToStore> tensors,
                       const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::int64_t offset = 0;
  for (const TensorToStore& tensor : tensors) {
    const ConstTensor& view = tensor.view;
    std::int64_t step = 1;
    for (int i = view.rank - 1; i >= 0; step *= view.shape[i], --i) {
      if (view.shape[i] != 1 && view.stride[i] != step) fail(path, tensor.name, "is not dense");
    }
    const std::int64_t bytes = view.numel() * static_cast<std::int64_t>(size_of(view.dtype));
    header[tensor.name] = {
        {"dtype", safetensors_name(view.dtype)},
        {"shape", std::vector<std::int64_t>(view.shape.begin(), view.shape.begin() + view.rank)},
        {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.append((data_alignment - (length_bytes + text.size()) % data_alignment) % data_alignment,
              ' ');

  OutputFile file(path);
  const std::uint64_t length = text.size();
  file.write({reinterpret_cast<const char*>(&length), length_bytes});
  file.write(text);
  for (const TensorToStore& tensor : tensors) {
    file.write({static_cast<const char*>(tensor.view.data),
                static_cast<std::size_t>(tensor.view.numel()) * size_of(tensor.view.dtype)});
  }
  file.commit();
}

const char* safetensors_name(DType type) {
  for (const TypeName& entry : type_names) {
    if (entry.dtype == type) return entry.name;
  }
  return "invalid";
}

std::optional<DType> safetensors_dtype(std::string_view name) {
  const TypeName* type = type_of(name);
  return type == nullptr ? std::nullopt : type->dtype;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace msa::cli
