// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/io/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "msa/error.h"

namespace msa::cli {
namespace {

namespace fs = std::filesystem;

constexpr int most_links = 40;  // as many as the system itself follows
constexpr mode_t new_file_mode = 0666;
constexpr mode_t permission_bits = 07777;

/// The name that a name stands for, links followed. The file need not exist.
std::string resolved(const std::string& path) {
  fs::path target = path;
  std::error_code error;
  for (int i = 0; i < most_links && fs::is_symlink(target, error); ++i) {
    const fs::path link = fs::read_symlink(target, error);
    if (error) break;
    target = link.is_absolute() ? link : target.parent_path() / link;
  }
  return target.string();
}

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/// What stands under a name.
struct Place {
  std::string target;
  bool exists = false;
  bool stdout_is_here = false;  ///< it must keep what was printed to it
  bool replaceable = true;      ///< by another file under its name
  struct stat status {};
};

/// False with errno where the name can stand for no file.
bool look_up(const std::string& path, Place& place) {
  place.target = resolved(path);
  place.exists = stat(path.c_str(), &place.status) == 0;
  if (!place.exists) return errno == ENOENT;
  if (S_ISDIR(place.status.st_mode)) {
    errno = EISDIR;
    return false;
  }
  struct stat other {};
  place.stdout_is_here = fstat(STDOUT_FILENO, &other) == 0 && same_file(other, place.status);
  // Links to open files (/dev/stdout, /dev/fd/3) need not lead to a name.
  const bool named = stat(place.target.c_str(), &other) == 0 && same_file(other, place.status);
  if (!named) place.target = path;
  place.replaceable = named && S_ISREG(place.status.st_mode) && !place.stdout_is_here;
  return access(path.c_str(), W_OK) == 0;
}

/// A new file in the folder of `target`; −1 with errno where there can be none.
int open_beside(const std::string& target, std::string& name) {
  for (int attempt = 0;; ++attempt) {
    name = (fs::path(target).parent_path() / fmt::format(".msa-{}-{}", getpid(), attempt)).string();
    const int file = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, new_file_mode);
    if (file >= 0 || errno != EEXIST) return file;
  }
}

/// Whether the file could be written, with errno where not.
bool writable(const Place& place) {
  if (!place.replaceable) return true;
  std::string name;
  const int file = open_beside(place.target, name);
  if (file < 0) return place.exists;  // a folder that takes no files: written in place
  close(file);
  unlink(name.c_str());
  return true;
}

/// Whether two names stand for one file. Devices may well be shared.
bool same_regular_file(const std::string& a, const std::string& b) {
  Place at_a, at_b;
  if (!look_up(a, at_a) || !look_up(b, at_b) || at_a.exists != at_b.exists) return false;
  if (at_a.exists) return S_ISREG(at_a.status.st_mode) && same_file(at_a.status, at_b.status);
  std::error_code error;
  return fs::weakly_canonical(at_a.target, error) == fs::weakly_canonical(at_b.target, error);
}

bool is_stdout(const std::string& path) { return path.empty() || path == "-"; }

}  // namespace

OutputFile::OutputFile(const std::string& path) : path_(path) {
  Place place;
  if (!look_up(path, place)) fail();
  target_ = place.target;
  if (place.stdout_is_here) {
    std::fflush(stdout);
    file_ = dup(STDOUT_FILENO);
  } else if (place.replaceable) {
    file_ = open_beside(target_, temporary_);
    if (file_ < 0) temporary_.clear();
    if (file_ >= 0 && place.exists) fchmod(file_, place.status.st_mode & permission_bits);
  }
  if (file_ < 0 && place.exists) file_ = open(target_.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
  if (file_ < 0) fail();
}

OutputFile::~OutputFile() {
  if (file_ >= 0) close(file_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void OutputFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) fail();
    if (written > 0) bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void OutputFile::commit() {
  const int closed = close(std::exchange(file_, -1));
  if (closed != 0) fail();
  if (temporary_.empty()) return;
  if (rename(temporary_.c_str(), target_.c_str()) != 0) fail();
  temporary_.clear();
}

void OutputFile::fail() const {
  throw Error(ErrorCode::io, fmt::format("cannot write '{}': {}", path_, std::strerror(errno)));
}

std::vector<std::string> file_problems(const std::vector<NamedFile>& inputs,
                                       const std::vector<NamedFile>& outputs) {
  std::vector<std::string> problems;
  for (auto output = outputs.begin(); output != outputs.end(); ++output) {
    if (is_stdout(output->path)) continue;
    Place place;
    if (!look_up(output->path, place) || !writable(place)) {
      problems.push_back(fmt::format("{} cannot write '{}': {}", output->option, output->path,
                                     std::strerror(errno)));
      continue;
    }
    std::vector<NamedFile> others = inputs;
    others.insert(others.end(), outputs.begin(), output);
    for (const NamedFile& other : others) {
      if (is_stdout(other.path) || !same_regular_file(output->path, other.path)) continue;
      problems.push_back(fmt::format("{} is '{}', the file of {}; allowed: a file of its own",
                                     output->option, output->path, other.option));
    }
  }
  return problems;
}

}  // namespace msa::cli
