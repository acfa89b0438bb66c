// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "api/dispatch.h"

#include <cstdlib>
#include <string>

#include "msa/device.h"

namespace msa {
namespace {

thread_local const char* last_backend_name = "";
LogCallback log_callback = nullptr;
void* log_context = nullptr;

}  // namespace

const char* version() { return MSA_VERSION; }

std::vector<BackendInfo> backends() {
  std::vector<BackendInfo> infos;
  for (const Backend* backend : registered_backends()) {
    infos.push_back({backend->name(), backend->unavailable()});
  }
  return infos;
}

const char* last_backend() noexcept { return last_backend_name; }

void set_log_callback(LogCallback callback, void* context) noexcept {
  log_callback = callback;
  log_context = context;
}

void record_call(const char* op, const Backend& backend) {
  last_backend_name = backend.name();
  if (log_callback != nullptr) log_callback(log_context, op, backend.name());
}

void check_factor(Checker& check, HostReader& host, std::string_view argument, const Scale& scale) {
  if (!scale.tensor.given() || !host.reads(scale.tensor.device)) return;
  check.factor(argument, *host.read(scale.tensor, 1).ptr<float>());
}

void check_workspace(const char* op, const Workspace& workspace, std::size_t needed) {
  if (workspace.bytes >= needed && (needed == 0 || workspace.data != nullptr)) return;
  Checker check(op);
  check.fail("workspace", cat("has ", workspace.bytes, " bytes at ", workspace.data,
                              "; allowed: at least workspace_size(args) = ", needed));
  check.raise(ErrorCode::workspace);
}

std::vector<const Backend*> eligible_backends() {
  const auto all = registered_backends();
  const char* wanted = std::getenv("MSA_BACKEND");
  if (wanted == nullptr || *wanted == '\0') return {all.begin(), all.end()};
  std::string allowed;
  for (const Backend* backend : all) {
    if (std::string(wanted) == backend->name()) return {backend};
    allowed += (allowed.empty() ? "" : ", ") + std::string(backend->name());
  }
  throw Error(ErrorCode::invalid_argument, cat("environment variable MSA_BACKEND is '", wanted,
                                               "'; allowed in this build: ", allowed));
}

}  // namespace msa
