// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>
#include <type_traits>

#include "api/backend.h"
#include "api/check.h"
#include "api/host_reader.h"
#include "msa/layer.h"

/// \file
/// The way of every call: validate once, pick a backend, check the workspace, run, remember.

namespace msa {

/// Backends that calls may use, in order: all of the build, or the one that MSA_BACKEND names (an
/// unknown name is an Error).
std::vector<const Backend*> eligible_backends();

/// Remembers for last_backend() and tells the log callback.
void record_call(const char* op, const Backend& backend);

/// The first backend that can serve the call; Error(unsupported) with every backend's reasons when
/// there is none.
template <class Args>
const Backend& choose_backend(const char* op, const Args& args) {
  const std::vector<const Backend*> backends = eligible_backends();
  const auto reasons_of = [&](const Backend& backend) {
    // Looked at first: a call on host memory must not start a device's driver.
    Reasons reasons = backend.supports(args);
    return reasons.empty() ? backend.unavailable() : reasons;
  };
  for (const Backend* backend : backends) {
    if (reasons_of(*backend).empty()) return *backend;
  }
  // Texts are made once it is known that somebody reads them.
  std::vector<std::string> failures;
  for (const Backend* backend : backends) {
    for (const std::string& reason : reasons_of(*backend)) {
      failures.push_back(
          cat(op, ": backend ", backend->name(), " cannot serve the call: ", reason));
    }
  }
  throw Error(ErrorCode::unsupported, std::move(failures));
}

/// Throws where a workspace is smaller than a call needs.
void check_workspace(const char* op, const Workspace& workspace, std::size_t needed);

/// The backend that will serve validated arguments, with a workspace that is large enough for it.
template <class Args>
const Backend& ready_backend(const char* op, const Args& args) {
  const Backend& backend = choose_backend(op, args);
  if constexpr (requires { args.workspace; }) {
    check_workspace(op, args.workspace, backend.workspace_size(args));
  }
  return backend;
}

/// Runs validated arguments.
template <class Args>
void dispatch(const char* op, const Args& args) {
  const Backend& backend = ready_backend(op, args);
  backend.run(args);
  record_call(op, backend);
}

/// What adds an operator's failures to a Checker. Passed as a pointer, since a template here would
/// not see overloads in the operators' anonymous namespaces; not deduced, since those are
/// overloaded.
template <class Args>
using Validator = std::type_identity_t<void (*)(Checker&, const Args&)>;

/// MSA_CHECK=1: what adds the failures of what an operator's arguments point to, read through a
/// HostReader.
template <class Args>
using MemoryCheck = std::type_identity_t<void (*)(Checker&, const Args&, HostReader&)>;

/// MSA_CHECK=1: a factor that lies in memory is what one given as a number must be.
void check_factor(Checker& check, HostReader& host, std::string_view argument, const Scale& scale);

/// Reads what the arguments of `op` point to.
template <class Args>
HostReader host_reader(const char* op, const Args& args) {
  return {op, args.stream, [op, &args]() -> const Backend& { return choose_backend(op, args); }};
}

/// Throws what is wrong with a call, along with what `check` has already. `check_memory` (none:
/// null) runs under MSA_CHECK=1 on arguments that have passed `validate`.
template <class Args>
void check_arguments(Checker& check, const char* op, const Args& args, Validator<Args> validate,
                     MemoryCheck<Args> check_memory) {
  validate(check, args);
  check.raise();
  // The switch first: a wrong value of it is an error of every call.
  if (!metadata_checks_enabled() || check_memory == nullptr) return;
  HostReader host = host_reader(op, args);
  check_memory(check, args, host);
  check.raise();
}

/// One call of an operator.
template <class Args>
void call(const char* op, const Args& args, Validator<Args> validate,
          MemoryCheck<Args> check_memory = nullptr) {
  Checker check(op);
  check_arguments(check, op, args, validate, check_memory);
  dispatch(op, args);
}

/// Where a caller that was given no workspace finds one.
class WorkspaceSource {
 public:
  virtual Workspace find(std::size_t bytes) = 0;

 protected:
  ~WorkspaceSource() = default;
};

/// One call of an operator in a workspace that is found once its size is known: a size query by
/// itself would validate the arguments a second time.
template <class Args>
void call(const char* op, Args args, WorkspaceSource& source, Validator<Args> validate,
          MemoryCheck<Args> check_memory) {
  args.workspace = {};
  Checker check(op);
  check_arguments(check, op, args, validate, check_memory);
  const Backend& backend = choose_backend(op, args);
  const std::size_t needed = backend.workspace_size(args);
  args.workspace = source.find(needed);
  check_workspace(op, args.workspace, needed);
  backend.run(args);
  record_call(op, backend);
}

/// Bytes of workspace that the call of these arguments needs; `check` is of Scope::shapes.
template <class Args>
std::size_t query(Checker& check, const char* op, const Args& args, Validator<Args> validate) {
  validate(check, args);
  check.raise();
  return choose_backend(op, args).workspace_size(args);
}
template <class Args>
std::size_t query(const char* op, const Args& args, Validator<Args> validate) {
  Checker check(op, Scope::shapes);
  return query(check, op, args, validate);
}

/// Throws what call() would throw before it runs.
template <class Args>
void check_call(const char* op, const Args& args, Validator<Args> validate,
                MemoryCheck<Args> check_memory = nullptr) {
  Checker check(op);
  check_arguments(check, op, args, validate, check_memory);
  ready_backend(op, args);
}

/// The same of one operator: for a call of several, which must not write anything before all of
/// them are known to pass. Memory that an earlier one writes is not read: attend's selection, which
/// may come to name any visible block.
void check_call(const WriteCacheArgs& args);
void check_call(const IndexArgs& args);
void check_call(const AttendArgs& args);

/// The operators at the end of another call, whose own failures, names and scope are in `check`.
void index_blocks(Checker& check, const IndexArgs& args);
void attend(Checker& check, const AttendArgs& args);
std::size_t workspace_size(Checker& check, const IndexArgs& args);
std::size_t workspace_size(Checker& check, const AttendArgs& args);

/// The operators in a workspace of `source`.
void attend(const AttendArgs& args, WorkspaceSource& source);
void index_blocks(const IndexArgs& args, WorkspaceSource& source);
void index_scores(const IndexScoresArgs& args, WorkspaceSource& source);
void select_blocks(const SelectArgs& args, WorkspaceSource& source);
void layer_step(const LayerStepArgs& args, WorkspaceSource& source);

}  // namespace msa
