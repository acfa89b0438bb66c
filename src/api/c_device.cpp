// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "api/c_call.h"
#include "msa/c_api.h"
#include "msa/device.h"

/// \file
/// What serves the calls, in the C ABI: backends and their reasons, instruction sets, threads.

namespace {

/// Strings that a thread was shown, and the pointers to them that C reads.
class Shown {
 public:
  void show(std::string name, std::vector<std::string> list) {
    std::vector<const char*> pointers;
    pointers.reserve(list.size());
    for (const std::string& text : list) pointers.push_back(text.c_str());
    name_ = std::move(name);
    list_ = std::move(list);  // the strings stay where they are
    pointers_ = std::move(pointers);
  }

  const char* name() const { return name_.c_str(); }
  const char* const* list() const { return pointers_.data(); }
  std::int64_t size() const { return static_cast<std::int64_t>(pointers_.size()); }

 private:
  std::string name_;
  std::vector<std::string> list_;
  std::vector<const char*> pointers_;
};

}  // namespace

using msa::cat;
using msa::c_api::fill;
using msa::c_api::guarded;
using msa::c_api::Reader;
using msa::c_api::require_pointers;

extern "C" {

void msa_backend_info_init(msa_backend_info* info, size_t struct_size) {
  fill(info, struct_size, msa_backend_info{});
}

void msa_cpu_info_init(msa_cpu_info* info, size_t struct_size) {
  fill(info, struct_size, msa_cpu_info{});
}

msa_status msa_backend_count(int64_t* count) {
  return guarded([&] {
    Reader reader("backend_count");
    require_pointers(reader, {{"count", count}});
    *count = static_cast<std::int64_t>(msa::backends().size());
  });
}

msa_status msa_get_backend_info(int64_t index, msa_backend_info* info) {
  return guarded([&] {
    thread_local Shown shown;
    Reader reader("get_backend_info");
    reader.struct_size(info, "info");
    std::vector<msa::BackendInfo> all = msa::backends();
    const auto count = static_cast<std::int64_t>(all.size());
    if (index < 0 || index >= count) {
      reader.fail("index", cat("is ", index, "; allowed: 0 to ", count - 1));
    }
    reader.done();
    msa::BackendInfo& backend = all[static_cast<std::size_t>(index)];
    shown.show(std::move(backend.name), std::move(backend.reasons));
    msa_backend_info c{};
    c.name = shown.name();
    c.reasons = shown.list();
    c.num_reasons = shown.size();
    reader.write(info, "info", c);
  });
}

msa_status msa_get_cpu_info(msa_cpu_info* info) {
  return guarded([&] {
    thread_local Shown shown;
    Reader reader("get_cpu_info");
    reader.struct_size(info, "info");
    reader.done();
    msa::CpuInfo cpu = msa::cpu_info();
    shown.show(std::move(cpu.isa), std::move(cpu.available));
    msa_cpu_info c{};
    c.isa = shown.name();
    c.available = shown.list();
    c.num_available = shown.size();
    c.threads = cpu.threads;
    reader.write(info, "info", c);
  });
}

}  // extern "C"
