// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/place.h"
#include "cli/run_inputs.h"
#include "cli/system_info.h"
#include "msa/device.h"
#include "msa/error.h"

namespace msa::cli {
namespace {

std::string tensor_help() {
  std::string text = "Tensors of IN (T tokens, R requests, R_p of them prefill):\n";
  for (const RunTensor& tensor : run_tensors()) {
    text += fmt::format("  {:<18}{:<24}{}\n", tensor.name, tensor.shape, tensor.dtypes);
    if (*tensor.help != '\0') text += fmt::format("  {:<18}{}\n", "", tensor.help);
  }
  return text +
         "Without cu_seqlens_q all requests are decode requests of T / R tokens each; a single\n"
         "request of more than 16 tokens is a prefill. Settings may also stand in the file's\n"
         "metadata under their names with underscores (softmax_scale); options win.\n"
         "OUT holds out [T, Hq, 128] of q's type, lse [T, Hq] F32 and, where index_blocks chose\n"
         "it, selection [T, Hs, topk] I32.";
}

std::string shape_of(const ConstTensor& tensor) {
  return fmt::format(
      "{} {}", name(tensor.dtype),
      shape_text(std::span(tensor.shape.data(), static_cast<std::size_t>(tensor.rank))));
}

class Run final : public Command {
 public:
  const char* name() const override { return "run"; }
  const char* summary() const override {
    return "Run one attend on the tensors of a safetensors file";
  }

  void add_options(CLI::App& app) override {
    app.add_option("input", input_, "Safetensors file with q, the cache and the batch")
        ->type_name("IN")
        ->required();
    app.add_option("-o,--output", output_, "Safetensors file for out and lse")
        ->type_name("OUT")
        ->required();
    add_device_option(app, device_);
    for (const RunSetting& setting : run_settings()) {
      std::string option = setting.key;
      std::replace(option.begin(), option.end(), '_', '-');
      const std::string key = setting.key;
      app.add_option_function<std::string>(
             "--" + option, [this, key](const std::string& value) { settings_[key] = value; },
             setting.help)
          ->type_name(setting.value)
          ->group("Settings");
    }
    app.footer(tensor_help());
  }

  std::vector<NamedFile> inputs() const override { return {{"IN", input_}}; }
  std::vector<NamedFile> outputs() const override { return {{"--output", output_}}; }

  int run(Console& console) override {
    if (Console::is_stdout(output_)) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("run: --output is '{}'; allowed: the name of a file", output_));
    }
    const SafetensorsFile file = SafetensorsFile::open(input_);
    RunProblem problem(file, settings_);
    const std::unique_ptr<Place> place = choose_place("run", device_);
    const double seconds = problem.run(*place);
    write_safetensors(output_, problem.outputs(),
                      {{"producer", fmt::format("msa {}", version())},
                       {"device", device_name(*place)},
                       {"backend", last_backend()}});
    print(console, problem, *place, seconds);
    report(console, problem, *place, seconds);
    return exit_ok;
  }

 private:
  void print(const Console& console, const RunProblem& problem, const Place& place,
             double seconds) const {
    const AttendArgs& args = problem.attend_args();
    const BatchMetadata& batch = args.batch;
    const auto row = [&](const char* key, const std::string& value) {
      console.print("{:<11}{}\n", key, value);
    };
    row("q", shape_of(args.q));
    row("cache", shape_of(args.kv_cache.shape_view()));
    row("batch",
        fmt::format("{} decode requests of {}, {} prefill requests, {} tokens", batch.num_decodes,
                    batch.decode_query_len, batch.num_prefills, batch.num_actual_tokens));
    row("selection", shape_of(args.selection) +
                         (problem.index_args() ? ", chosen by index_blocks" : ", from the file"));
    for (const std::string& tensor : problem.ignored()) row("ignored", tensor);
    for (const std::string& key : problem.ignored_settings()) row("ignored", "setting " + key);
    row("device", place.description());
    row("backend", last_backend());
    row("time", format_seconds(seconds));
    row("written", output_);
  }

  void report(const Console& console, const RunProblem& problem, const Place& place,
              double seconds) const {
    if (!console.wants_json()) return;
    Json outputs = Json::object();
    for (const TensorToStore& tensor : problem.outputs()) {
      outputs[tensor.name] = shape_of(tensor.view);
    }
    console.report({{"environment", environment_json(console)},
                    {"input", input_},
                    {"output", output_},
                    {"outputs", outputs},
                    {"ignored", problem.ignored()},
                    {"ignored_settings", problem.ignored_settings()},
                    {"device", device_name(place)},
                    {"backend", last_backend()},
                    {"seconds", seconds}});
  }

  std::string input_;
  std::string output_;
  std::string device_ = "auto";
  std::map<std::string, std::string> settings_;
};

}  // namespace

std::unique_ptr<Command> make_run() { return std::make_unique<Run>(); }

}  // namespace msa::cli
