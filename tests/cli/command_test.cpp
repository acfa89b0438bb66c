// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "program.h"
#include "scratch.h"

namespace msa::cli {
namespace {

using nlohmann::json;

const std::string tiny_bench = " --shard 4/1 --context 300 --batch 1 --min-time 0 --pool-gb 0.02 ";

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// The lowest instruction set of this build and machine; sanitized builds hold no baseline.
std::string lowest_isa() {
  return json::parse(run_msa("info --json").out).at("cpu").at("isas_available").front();
}

TEST(Command, HelpAtEachLevelGoesToStdout) {
  for (const char* command : {"", "info ", "run ", "verify ", "bench ", "replay ", "soak "}) {
    const ProgramResult result = run_msa(std::string(command) + "--help");
    EXPECT_EQ(result.code, 0) << command;
    EXPECT_TRUE(has(result.out, "Usage: msa")) << command;
    EXPECT_EQ(result.err, "") << command;
  }
  EXPECT_FALSE(has(run_msa("--help").out, "completions"));  // for packagers, not for users
}

TEST(Command, VersionIsTheLibrarys) {
  const ProgramResult result = run_msa("--version");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out.rfind("msa ", 0), 0U);
}

TEST(Command, WrongUsageIsCodeTwoOnStderr) {
  for (const char* arguments :
       {"", "nothing", "info --nothing", "bench nothing", "bench --min-time -1", "run",
        "run /no/such/file -o /tmp/x", "bench --workloads /no/such/file",
        "verify --filter no-such-case", "bench --baseline nothing", "bench --csv --json",
        "completions tcsh"}) {
    const ProgramResult result = run_msa(arguments);
    EXPECT_EQ(result.code, 2) << arguments;
    EXPECT_EQ(result.out, "") << arguments;
    EXPECT_NE(result.err, "") << arguments;
  }
  EXPECT_TRUE(has(run_msa("nothing").err, "nothing"));
}

TEST(Command, WrongUsageIsAnErrorLikeAnyOther) {
  for (const char* arguments : {"nothing", "info --nothing", "bench nothing", "run", "replay",
                                "bench --min-time -1", "completions tcsh"}) {
    const ProgramResult result = run_msa(arguments);
    EXPECT_EQ(result.err.rfind("msa: error: ", 0), 0U) << arguments << '\n' << result.err;
  }
}

// The parser clamps what does not fit, wraps what is negative and lets NaN through any range.
TEST(Command, NumbersThatDoNotFitAreRefusedWithWhatIsAllowed) {
  struct Case {
    const char* command;
    std::vector<const char*> options;
    std::string allowed;
    std::vector<const char*> wrong;
  };
  const std::string any = "18446744073709551615", count = "9223372036854775807";
  const Case cases[] = {
      {"replay no.jsonl", {"--seed"}, "0 to " + any, {"18446744073709551616", "-1", "1.5", "x"}},
      {"replay no.jsonl",
       {"--requests", "--verify-rows", "--chunk", "--max-batch", "--pages"},
       "1 to " + count,
       {"9223372036854775808", "0", "-1", "2x", "1e3"}},
      {"replay no.jsonl", {"--draft"}, "0 to 15", {"16", "-1", "18446744073709551616"}},
      {"replay no.jsonl", {"--threads"}, "1 to 4096", {"4097", "0", "-1"}},
      {"replay no.jsonl", {"--budget-seconds"}, "0.001 to ", {"nan", "inf", "0", "-1", "soon"}},
      {"bench decode", {"--seed"}, "0 to " + any, {"18446744073709551616", "-1", "1,-1"}},
      {"bench decode",
       {"--batch", "--m", "--tokens", "--context"},
       "0 to " + count,
       {"9223372036854775808", "-1", "3,9223372036854775808"}},
      {"bench decode", {"--min-time"}, "0 to 3600", {"nan", "inf", "-1", "3601"}},
      {"bench decode", {"--pool-gb"}, "0.001 to 4096", {"nan", "0", "-1"}},
      {"bench decode", {"--keep"}, "0 to 1", {"nan", "-0.1", "1.1"}}};
  for (const Case& c : cases) {
    for (const char* option : c.options) {
      for (const std::string wrong : c.wrong) {
        const std::string words = std::string(c.command) + ' ' + option + '=' + wrong;
        const ProgramResult result = run_msa(words);
        EXPECT_EQ(result.code, 2) << words;
        const std::string value = wrong.substr(wrong.find(',') + 1);
        EXPECT_TRUE(has(result.err, std::string(option) + ": is '" + value + "'; allowed: "))
            << words << '\n'
            << result.err;
        EXPECT_TRUE(has(result.err, "numbers from " + c.allowed)) << words << '\n' << result.err;
      }
    }
  }
}

TEST(Command, MisspeltNamesAreCodeTwoWhateverTheMachine) {
  struct Case {
    const char* arguments;
    const char* environment;
    std::string text;
  };
  const Case cases[] = {
      {"verify --filter 'merge_*'", "MSA_CPU_ISA=mmx",
       "MSA_CPU_ISA is 'mmx'; allowed on this machine: " + lowest_isa()},
      {"verify --filter 'merge_*'", "MSA_THREADS=many", "MSA_THREADS is 'many'; allowed: "},
      {"verify --filter 'merge_*'", "MSA_BACKEND=zzz",
       "MSA_BACKEND is 'zzz'; allowed in this build: "},
      {"verify --filter 'merge_*'", "MSA_CHECK=7", "MSA_CHECK is '7'; allowed: 0, 1"},
      {"bench --backend zzz", "", "there is no backend 'zzz'; allowed in this build: "}};
  for (const Case& c : cases) {
    const ProgramResult result = run_msa(c.arguments, c.environment);
    EXPECT_EQ(result.code, 2) << c.arguments << ' ' << c.environment << '\n' << result.err;
    EXPECT_TRUE(has(result.err, c.text)) << c.text << '\n' << result.err;
  }
}

/// Names of the backends of this build that are on, or off, on this machine.
std::vector<std::string> backends_that_are(bool on) {
  std::vector<std::string> names;
  const json info = json::parse(run_msa("info --json").out);
  for (const json& backend : info.at("backends")) {
    if (backend.at("available") == on) names.push_back(backend.at("name"));
  }
  return names;
}

TEST(Command, VerifyKeepsToTheBackendThatMsaBackendNames) {
  for (const std::string& name : backends_that_are(true)) {
    const json report =
        json::parse(run_msa("verify --filter 'merge_*' --json", "MSA_BACKEND=" + name).out);
    EXPECT_GT(report.at("cases"), 0) << name;
    for (const json& group : report.at("groups")) {
      EXPECT_TRUE(has(group.at("target"), name)) << group.at("target");
    }
  }
  for (const std::string& name : backends_that_are(false)) {
    const ProgramResult result = run_msa("verify --filter 'merge_*'", "MSA_BACKEND=" + name);
    EXPECT_EQ(result.code, 3) << name << '\n' << result.err;
    EXPECT_TRUE(has(result.err, "backend " + name + " is off: ")) << result.err;
    EXPECT_TRUE(has(result.err, "backend cpu is off: MSA_BACKEND is '" + name + "'")) << result.err;
  }
}

TEST(Command, InfoShowsWhatMsaBackendShutsOut) {
  const ProgramResult alone = run_msa("info --json", "MSA_BACKEND=cpu");
  const json report = json::parse(alone.out);
  for (const json& backend : report.at("backends")) {
    const bool cpu = backend.at("name") == "cpu";
    EXPECT_EQ(backend.at("available"), cpu);
    EXPECT_EQ(backend.at("reasons").empty(), cpu);
    if (!cpu) {
      EXPECT_EQ(backend.at("reasons").front(), "MSA_BACKEND is 'cpu'");
    }
  }
  EXPECT_TRUE(report.at("switch_problems").empty());
  for (const std::string& name : backends_that_are(false)) {
    const ProgramResult table = run_msa("info", "MSA_BACKEND=" + name);
    EXPECT_EQ(table.code, 0);
    EXPECT_TRUE(has(table.out, "cpu         off: MSA_BACKEND is '" + name + "'")) << table.out;
    EXPECT_TRUE(has(table.out, "MSA_BACKEND: every call fails, since MSA_BACKEND is '" + name +
                                   "', which is off: "))
        << table.out;
  }
}

TEST(Command, AFullStdoutIsAnError) {
  const std::string err = scratch_folder() / "full";
  const int status = std::system((MSA_COMMAND " info >/dev/full 2>" + err).c_str());
  EXPECT_EQ(WEXITSTATUS(status), 2);
  EXPECT_TRUE(has(read_text(err), "cannot write to stdout"));
}

TEST(Command, InfoTellsTheMachineAndTheBuild) {
  const ProgramResult table = run_msa("info");
  EXPECT_EQ(table.code, 0);
  for (const char* word : {"version", "isa", "threads", "cuda", "backends", "MSA_CPU_ISA"}) {
    EXPECT_TRUE(has(table.out, word)) << word;
  }
  const std::string lowest = lowest_isa();
  const ProgramResult result = run_msa("info --json", "MSA_THREADS=3 MSA_CPU_ISA=" + lowest);
  EXPECT_EQ(result.code, 0);
  const json info = json::parse(result.out);
  EXPECT_EQ(info.at("cpu").at("threads"), 3);
  EXPECT_EQ(info.at("cpu").at("isa"), lowest);
  EXPECT_EQ(info.at("switches").at("MSA_THREADS"), "3");
  const json& last = info.at("backends").back();  // GPU backends, where built, come first
  EXPECT_EQ(last.at("name"), "cpu");
  EXPECT_TRUE(last.at("available"));
  EXPECT_FALSE(info.at("build").at("compiler").get<std::string>().empty());
  const json hidden = json::parse(run_msa("info --json", "CUDA_VISIBLE_DEVICES=").out).at("cuda");
  if (hidden.is_null()) return;  // a build without CUDA
  EXPECT_FALSE(hidden.at("compiled").get<std::string>().empty());
  EXPECT_TRUE(hidden.at("devices").empty());
}

TEST(Command, InfoSaysWhichSwitchIsWrong) {
  const std::string wrong = "MSA_CPU_ISA=mmx MSA_BACKEND=foo MSA_THREADS=none MSA_CHECK=7";
  const ProgramResult table = run_msa("info", wrong);
  EXPECT_EQ(table.code, 0);
  EXPECT_EQ(table.err, "");
  for (const std::string& reason :
       {"MSA_CPU_ISA is 'mmx'; allowed on this machine: " + lowest_isa(),
        std::string("MSA_BACKEND is 'foo'; allowed in this build: "),
        std::string("MSA_THREADS is 'none'; allowed: whole numbers from 1 to 4096"),
        std::string("MSA_CHECK is '7'; allowed: 0, 1")}) {
    EXPECT_TRUE(has(table.out, reason)) << reason << '\n' << table.out;
  }
  const ProgramResult result = run_msa("info --json", wrong);
  EXPECT_EQ(result.code, 0);
  const json info = json::parse(result.out);
  EXPECT_TRUE(info.at("cpu").at("isa").is_null());
  EXPECT_TRUE(info.at("cpu").at("threads").is_null());
  EXPECT_EQ(info.at("switch_problems").size(), 4U);
  EXPECT_TRUE(json::parse(run_msa("info --json").out).at("switch_problems").empty());
}

TEST(Command, QuietPrintsReportsAlone) {
  EXPECT_EQ(run_msa("info --quiet").out, "");
  const std::string path = scratch_folder() / "info.json";
  const ProgramResult both = run_msa("info --json " + path);
  EXPECT_TRUE(has(both.out, "version"));
  EXPECT_TRUE(json::parse(read_text(path)).contains("version"));
}

TEST(Command, VerifyPrintsALineAGroup) {
  const std::string path = scratch_folder() / "verify.json";
  const ProgramResult result = run_msa("verify --filter 'merge_*' --json " + path);
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_TRUE(has(result.out, "PASS"));
  EXPECT_FALSE(has(result.out, "\x1b"));  // stdout is no terminal
  const json report = json::parse(read_text(path));
  EXPECT_TRUE(report.at("passed"));
  EXPECT_GT(report.at("cases"), 0);
  for (const json& group : report.at("groups")) EXPECT_EQ(group.at("op"), "merge_states");
}

TEST(Command, BenchReportsEveryOperator) {
  const std::string path = scratch_folder() / "bench.json";
  const ProgramResult first = run_msa("bench all --tokens 3 --m 1" + tiny_bench + "--json " + path);
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_TRUE(has(first.out, "decode 4/1 bf16 LBHNC m 1 batch 1 context 300")) << first.out;
  const json report = json::parse(read_text(path));
  EXPECT_TRUE(has(report.at("environment").at("command"), "bench all"));
  EXPECT_GT(report.at("limits").at("gflops"), 0);
  EXPECT_GT(report.at("limits").at("gbps"), 0);
  std::set<std::string> ops;
  for (const json& entry : report.at("cases")) {
    ops.insert(entry.at("workload").at("op").get<std::string>());
    for (const char* key : {"median_s", "p10_s", "p90_s", "gflops", "gbps", "percent_of_limit"}) {
      // Of contexts as short as these the indexer chooses all blocks without a product.
      const bool none = entry.at("workload").at("op") == "index" && std::string(key) == "gflops";
      EXPECT_EQ(entry.at(key) > 0, !none) << key;
    }
    EXPECT_TRUE(has(entry.at("command"), "msa bench "));
  }
  EXPECT_EQ(ops, (std::set<std::string>{"decode", "index", "layer", "prefill", "write"}));

  // The report is the baseline of the next run.
  const ProgramResult second =
      run_msa("bench decode --m 1" + tiny_bench + "--csv --baseline " + path);
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(second.out.rfind("op,hq,hkv,", 0), 0U);
  const std::string row = second.out.substr(second.out.find('\n') + 1);
  EXPECT_EQ(row.rfind("decode,4,1,bf16,LBHNC,1,0,1,300,", 0), 0U);
  EXPECT_NE(row.substr(row.rfind(',', row.find('\n')) + 1), "\n");  // a speed-up is there
}

TEST(Command, BenchComparesInstructionSetsInOneRun) {
  const ProgramResult result =
      run_msa("bench decode --m 1 --json --baseline " + lowest_isa() + tiny_bench);
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_GT(json::parse(result.out).at("cases").at(0).at("speedup"), 0);
}

/// Runs the program in a folder of its own; stdout goes to the file "out" there.
int run_in(const std::string& folder, const std::string& arguments) {
  std::filesystem::create_directories(folder);
  const std::string command = "cd '" + folder + "' && " MSA_COMMAND " " + arguments + " >out";
  return WEXITSTATUS(std::system(command.c_str()));
}

std::set<std::string> ops_of(const std::string& path) {
  std::set<std::string> ops;
  const json report = json::parse(read_text(path));
  for (const json& entry : report.at("cases")) {
    ops.insert(entry.at("workload").at("op").get<std::string>());
  }
  return ops;
}

// An option whose FILE may be left out must not take the command's own argument for it.
TEST(OptionalFile, TheOperatorBehindItIsTheOperator) {
  const std::string folder = scratch_folder() / "operator";
  for (const char* words : {"--json decode", "--csv decode", "--json=- decode", "decode --json",
                            "--csv=table --json decode"}) {
    SCOPED_TRACE(words);
    ASSERT_EQ(run_in(folder, "bench --m 1 " + std::string(words) + tiny_bench), 0);
    const std::string out = read_text(folder + "/out");
    EXPECT_TRUE(has(out, "decode"));
    EXPECT_FALSE(has(out, "prefill")) << "every operator was measured";
    EXPECT_FALSE(std::filesystem::exists(folder + "/decode")) << "taken for a file";
  }
}

TEST(OptionalFile, AnyOtherWordBehindItIsTheFile) {
  const std::string folder = scratch_folder() / "file";
  const std::string quick = tiny_bench + "--quiet ";
  ASSERT_EQ(run_in(folder, "bench --m 1" + quick + "--csv table --json report decode"), 0);
  EXPECT_EQ(ops_of(folder + "/report"), std::set<std::string>{"decode"});
  EXPECT_EQ(read_text(folder + "/table").rfind("op,hq,hkv,", 0), 0U);

  // With "=", or where the operator is there already, even an operator's name.
  for (const char* words : {"--json=decode write", "write --json decode"}) {
    SCOPED_TRACE(words);
    std::filesystem::remove(folder + "/decode");
    ASSERT_EQ(run_in(folder, "bench --tokens 3" + quick + words), 0);
    EXPECT_EQ(ops_of(folder + "/decode"), std::set<std::string>{"write"});
  }
}

TEST(OptionalFile, ARequiredInputIsNotOverwrittenByTheReport) {
  const std::string trace = scratch_folder() / "trace.csv";
  std::ofstream(trace) << "arrival_ms,input_length,output_length\n0,300,2\n";
  const std::string text = read_text(trace);
  const ProgramResult result = run_msa("replay --json " + trace + " --all");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(json::parse(result.out).contains("environment"));
  EXPECT_EQ(read_text(trace), text);
  const std::string report = scratch_folder() / "replay.json";
  EXPECT_EQ(run_msa("replay --json " + report + " --all " + trace).code, 0);
  EXPECT_TRUE(json::parse(read_text(report)).contains("environment"));

  const std::string tensors = scratch_folder() / "in.safetensors";
  std::ofstream(tensors) << "no tensors";
  const ProgramResult run =
      run_msa("run --json " + tensors + " -o " + std::string(scratch_folder() / "out.safetensors"));
  EXPECT_EQ(run.code, 2);
  EXPECT_TRUE(has(run.err, tensors)) << run.err;  // it was read as the input
  EXPECT_EQ(read_text(tensors), "no tensors");
}

class OutputFiles : public testing::Test {
 protected:
  OutputFiles() {
    std::filesystem::create_directories(folder_);
    std::ofstream(trace_) << "arrival_ms,input_length,output_length\n0,300,2\n";
    std::ofstream(workloads_) << R"({"op":"write","hq":4,"hkv":1,"tokens":2})";
  }
  const std::string folder_ = scratch_folder() / "outputs";
  const std::string trace_ = folder_ + "/trace.csv", workloads_ = folder_ + "/w.jsonl";
};

TEST_F(OutputFiles, APathThatCannotBeWrittenEndsTheCommandBeforeItsWork) {
  const std::string served = folder_ + "/served.json";
  const struct {
    std::string words;
    const char* option;
  } cases[] = {{"info --json", "--json"},
               {"verify --filter 'merge_*' --json", "--json"},
               {"run no.safetensors -o", "--output"},
               {"run no.safetensors -o /dev/null --json", "--json"},
               {"bench write --min-time 3600 --json", "--json"},
               {"bench write --min-time 3600 --csv", "--csv"},
               {"replay " + trace_ + " --all --json", "--json"},
               {"replay " + trace_ + " --all --json " + served + " --plot", "--plot"}};
  for (const auto& c : cases) {
    for (const std::string path : {"/nonexist/x", "/", "/dev/null/x"}) {
      const ProgramResult result = run_msa(c.words + ' ' + path);
      EXPECT_EQ(result.code, 2) << c.words;
      EXPECT_EQ(result.out, "") << c.words << ": it worked first";
      EXPECT_TRUE(has(result.err, std::string(c.option) + " cannot write '" + path + "': "))
          << result.err;
    }
  }
  EXPECT_FALSE(std::filesystem::exists(served));
}

TEST_F(OutputFiles, AnInputOrAnotherOutputIsNotOverwritten) {
  std::filesystem::create_symlink("trace.csv", folder_ + "/link");
  std::filesystem::create_hard_link(workloads_, folder_ + "/hard");
  const std::string out = folder_ + "/out";
  for (const std::string& words :
       {"run " + trace_ + " -o " + trace_, "run " + trace_ + " -o " + folder_ + "/link",
        "run " + trace_ + " -o " + folder_ + "/../outputs/trace.csv",
        "run " + trace_ + " -o " + out + " --json=" + trace_,
        "run " + trace_ + " -o " + out + " --json=" + out,
        "replay " + trace_ + " --all --plot " + trace_,
        "replay " + trace_ + " --all --json=" + folder_ + "/link",
        "replay " + trace_ + " --all --json=" + out + " --plot " + folder_ + "/./out",
        "bench --workloads " + workloads_ + " --json=" + folder_ + "/hard",
        "bench --baseline " + workloads_ + " --csv=" + workloads_,
        "bench --csv=" + out + " --json=" + out}) {
    const ProgramResult result = run_msa(words);
    EXPECT_EQ(result.code, 2) << words;
    EXPECT_EQ(result.out, "") << words;
    EXPECT_TRUE(has(result.err, "; allowed: a file of its own")) << words << '\n' << result.err;
    EXPECT_FALSE(std::filesystem::exists(out)) << words;
  }
  EXPECT_TRUE(has(read_text(trace_), "0,300,2"));
  EXPECT_TRUE(has(read_text(workloads_), "write"));
}

TEST_F(OutputFiles, DevicesAndPipesMayBeSharedAndStayWhatTheyAre) {
  EXPECT_EQ(run_msa("replay " + trace_ + " --all --plot /dev/null --json /dev/null").code, 0);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_TRUE(json::parse(run_msa("info --quiet --json /dev/stdout").out).contains("version"));
  EXPECT_TRUE(json::parse(run_msa("info --json /dev/stderr").err).contains("version"));
  const ProgramResult both = run_msa("info --json /dev/stdout");  // a file here: none is lost
  EXPECT_EQ(both.out.rfind("version", 0), 0U);
  EXPECT_TRUE(has(both.out, "\"version\""));
}

TEST(OptionalFile, HelpSaysWhenAFileNeedsTheEqualsSign) {
  EXPECT_TRUE(has(run_msa("bench --help").out, "(--json=FILE where FILE could be taken for OP)"));
  EXPECT_TRUE(has(run_msa("bench --help").out, "(--csv=FILE where FILE could be taken for OP)"));
  EXPECT_TRUE(has(run_msa("replay --help").out, "could be taken for TRACE)"));
  EXPECT_TRUE(has(run_msa("run --help").out, "could be taken for IN)"));
  EXPECT_FALSE(has(run_msa("verify --help").out, "could be taken"));
}

TEST(Command, BenchReadsWorkloadFiles) {
  const std::string path = scratch_folder() / "w.jsonl";
  std::ofstream(path) << R"({"op":"prefill","hq":4,"hkv":2,"kv":"e4m3","layout":"BHLNC",)"
                         R"("tokens":5,"batch":2,"context":130})"
                         "\n"
                         R"({"op":"write","hq":4,"hkv":1,"tokens":2})";
  const ProgramResult result =
      run_msa("bench --min-time 0 --pool-gb 0.02 --json --workloads " + path);
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(json::parse(result.out).at("cases").size(), 2U);
  EXPECT_EQ(run_msa("bench --m 1 --workloads " + path).code, 2);
  EXPECT_EQ(run_msa("bench decode --workloads " + path).code, 2);

  std::ofstream(path, std::ios::app) << "\n{\"op\":\"write\",\"tokens\":\"two\"}";
  const ProgramResult wrong = run_msa("bench --workloads " + path);
  EXPECT_EQ(wrong.code, 2);
  EXPECT_TRUE(has(wrong.err, "w.jsonl:3: 'tokens' is \"two\"; allowed: a whole number"));
}

TEST(Command, CompletionsNameEveryCommandAndOption) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const ProgramResult result = run_msa(std::string("completions ") + shell);
    EXPECT_EQ(result.code, 0);
    for (const char* word : {"info", "run", "verify", "bench", "replay", "all-isas", "pool-gb"}) {
      EXPECT_TRUE(has(result.out, word)) << shell << ' ' << word;
    }
  }
}

TEST(Command, BashCompletesCommandsOptionsAndValues) {
  const std::string script = scratch_folder() / "msa.bash";
  std::ofstream(script) << run_msa("completions bash").out;
  const auto complete = [&](const std::string& words) {
    const std::string out = scratch_folder() / "words";
    const std::string command = "bash -c 'source " + script + "; COMP_WORDS=(" + words +
                                "); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _msa; "
                                "echo ${COMPREPLY[*]}' >" +
                                out;
    EXPECT_EQ(std::system(command.c_str()), 0);
    return read_text(out);
  };
  EXPECT_EQ(complete("msa ver"), "verify\n");
  EXPECT_EQ(complete("msa verify --all"), "--all-isas\n");
  EXPECT_EQ(complete("msa bench pre"), "prefill\n");
}

TEST(Command, TheManualDescribesEveryCommand) {
  const ProgramResult result = run_msa("manual");
  EXPECT_EQ(result.code, 0);
  for (const char* word : {".TH MSA 1", ".SH SYNOPSIS", "EXIT STATUS", ".SS msa bench",
                           "\\-\\-workloads", "MSA_THREADS"}) {
    EXPECT_TRUE(has(result.out, word)) << word;
  }
}

}  // namespace
}  // namespace msa::cli
