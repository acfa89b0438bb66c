// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/io/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <string_view>

#include "msa/error.h"

namespace msa::cli {
namespace {

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::size_t prefix = 10;  // magic, version, two bytes of the header's length

[[noreturn]] void fail(const std::string& name, const std::string& what) {
  throw Error(ErrorCode::io, fmt::format("{}: {}", name, what));
}

/// What follows `key` in the header, a Python dictionary of literals.
std::string_view entry(std::string_view header, std::string_view key) {
  const std::string name = fmt::format("'{}':", key);
  const std::size_t at = header.find(name);
  if (at == std::string_view::npos) return {};
  std::string_view rest = header.substr(at + name.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  return rest;
}

/// The numbers of "(8192, 4, 16)"; false where it is no such list.
bool parse_shape(std::string_view text, std::vector<std::int64_t>& shape) {
  if (!text.starts_with('(')) return false;
  text.remove_prefix(1);
  while (!text.starts_with(')')) {
    std::int64_t extent = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), extent);
    if (status != std::errc{} || extent < 0) return false;
    shape.push_back(extent);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    text.remove_prefix(std::min(text.find_first_not_of(", "), text.size()));
    if (text.empty()) return false;
  }
  return true;
}

/// Elements of an array of the shape; of more than could be counted, as many as can.
std::size_t count_of(const std::vector<std::int64_t>& shape) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  constexpr std::size_t most = SIZE_MAX;
  std::size_t count = 1;
  for (std::int64_t extent : shape) {
    const auto size = static_cast<std::size_t>(extent);
    count = count > most / size ? most : count * size;
  }
  return count;
}

}  // namespace

ByteArray read_npy(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(path, "cannot be read");
  return read_npy(file, path);
}

ByteArray read_npy(std::istream& in, const std::string& name) {
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (!bytes.starts_with(magic) || bytes.size() < prefix) fail(name, "is no .npy file");
  if (bytes[6] != 1) fail(name, fmt::format("is of version {}; allowed: 1", bytes[6] + 0));
  const std::size_t header_size = static_cast<unsigned char>(bytes[8]) +
                                  std::size_t{256} * static_cast<unsigned char>(bytes[9]);
  if (bytes.size() < prefix + header_size) fail(name, "ends inside its header");
  const std::string_view header(bytes.data() + prefix, header_size);

  ByteArray array;
  std::vector<std::string> failures;
  const auto expect = [&](bool holds, std::string_view what) {
    if (!holds) failures.push_back(fmt::format("{}: {}", name, what));
  };
  expect(entry(header, "descr").starts_with("'|u1'"), "its elements are not unsigned bytes (|u1)");
  expect(entry(header, "fortran_order").starts_with("False"), "its elements are not in C order");
  const bool has_shape = parse_shape(entry(header, "shape"), array.shape);
  expect(has_shape, "its header names no shape");
  const std::size_t count = count_of(array.shape);
  const std::size_t there = bytes.size() - prefix - header_size;
  expect(!has_shape || there == count,
         fmt::format("has {} bytes behind its header, its shape {}", there, count));
  if (!failures.empty()) throw Error(ErrorCode::io, std::move(failures));
  array.values.assign(bytes.begin() + static_cast<std::ptrdiff_t>(prefix + header_size),
                      bytes.end());
  return array;
}

}  // namespace msa::cli
