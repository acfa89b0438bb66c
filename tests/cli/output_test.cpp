// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/output.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <iterator>
#include <thread>

#include "cli/filter.h"
#include "cli/io/output_file.h"
#include "msa/error.h"
#include "scratch.h"

namespace msa::cli {
namespace {

TEST(Output, DurationsAndSizesReadWell) {
  EXPECT_EQ(format_seconds(0.0123), "12.3 ms");
  EXPECT_EQ(format_seconds(12.34), "12.3 s");
  EXPECT_EQ(format_seconds(245), "4 min 05 s");
  EXPECT_EQ(format_seconds(3700), "1 h 01 min");
  EXPECT_EQ(format_bytes(17), "17 B");
  EXPECT_EQ(format_bytes(999.9e6), "1 GB");
  EXPECT_EQ(format_bytes(23.4e9), "23.4 GB");
}

TEST(Output, ProgressShowsShareRateAndRemainingTime) {
  EXPECT_EQ(progress_text("verify", "cases", 50, 200, 10),
            "verify  50/200 cases  25 %  5 cases/s  30.0 s left");
  EXPECT_EQ(progress_text("x", "steps", 7, 0, 2), "x  7 steps  3.5 steps/s");
  EXPECT_EQ(progress_text("x", "steps", 0, 4, 0), "x  0/4 steps  0 %  0 steps/s");
}

TEST(Output, CommandLinesCanBePastedIntoAShell) {
  const char* const argv[] = {"msa", "run", "a b.st", "--x=1", "it's", ""};
  EXPECT_EQ(Console(6, argv).command_line(), "msa run 'a b.st' --x=1 'it'\\''s' ''");
}

TEST(Output, AFileThatCannotBeWrittenIsNamed) {
  try {
    write_text("/no/such/folder/file", "text");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "cannot write '/no/such/folder/file': No such file or directory");
  }
}

class OutputFileTest : public testing::Test {
 protected:
  OutputFileTest() { std::filesystem::create_directories(folder_); }
  ~OutputFileTest() override { std::filesystem::remove_all(folder_); }
  std::ptrdiff_t files() const {
    return std::distance(std::filesystem::directory_iterator(folder_), {});
  }
  const std::string folder_ = scratch_folder() / "files";
  const std::string path_ = folder_ + "/file";
};

TEST_F(OutputFileTest, TheOldContentsStayUntilTheNewAreWhole) {
  write_text(path_, "old");
  {
    OutputFile file(path_);
    file.write("half");
    EXPECT_EQ(read_text(path_), "old");
  }
  EXPECT_EQ(read_text(path_), "old");
  EXPECT_EQ(files(), 1);
  OutputFile file(path_);
  file.write("new");
  file.write(" text");
  file.commit();
  EXPECT_EQ(read_text(path_), "new text");
  EXPECT_EQ(files(), 1);
}

TEST_F(OutputFileTest, LinksAndModesStay) {
  using std::filesystem::perms;
  write_text(path_, "old");
  std::filesystem::permissions(path_, perms::owner_read | perms::owner_write);
  std::filesystem::create_symlink("file", folder_ + "/link");
  write_text(folder_ + "/link", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder_ + "/link"));
  EXPECT_EQ(read_text(path_), "new");
  EXPECT_EQ(std::filesystem::status(path_).permissions(), perms::owner_read | perms::owner_write);
  std::filesystem::create_symlink("not_yet", folder_ + "/ahead");
  write_text(folder_ + "/ahead", "made");
  EXPECT_EQ(read_text(folder_ + "/not_yet"), "made");
}

TEST_F(OutputFileTest, APipeGetsTheBytes) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_TRUE(file_problems({}, {{"-o", path_}}).empty());  // and nobody is woken by the question
  std::thread writer([&] { write_text(path_, "through"); });
  EXPECT_EQ(read_text(path_), "through");
  writer.join();
  EXPECT_TRUE(std::filesystem::is_fifo(path_));
}

TEST_F(OutputFileTest, AskingLeavesNothingBehind) {
  write_text(path_, "old");
  EXPECT_TRUE(file_problems({}, {{"-a", path_}, {"-b", folder_ + "/new"}, {"-c", "-"}}).empty());
  EXPECT_EQ(read_text(path_), "old");
  EXPECT_EQ(files(), 1);
  EXPECT_EQ(
      file_problems({{"IN", path_}}, {{"-a", path_}, {"-b", "/no/such"}}),
      (std::vector<std::string>{"-a is '" + path_ + "', the file of IN; allowed: a file of its own",
                                "-b cannot write '/no/such': No such file or directory"}));
}

TEST(Filter, PlainTextIsSearchedPatternsMatchTheWholeName) {
  EXPECT_TRUE(matches_filter("attend_decode/report 20", ""));
  EXPECT_TRUE(matches_filter("attend_decode/report 20", "decode"));
  EXPECT_FALSE(matches_filter("attend_decode/report 20", "prefill"));
  EXPECT_TRUE(matches_filter("attend_decode/report 20", "attend*20"));
  EXPECT_TRUE(matches_filter("attend_decode/report 20", "*report ??"));
  EXPECT_TRUE(matches_filter("aXbXbc", "a*bc"));
  EXPECT_FALSE(matches_filter("attend_decode/report 20", "decode*"));
  EXPECT_FALSE(matches_filter("attend_decode/report 20", "*report ?"));
}

}  // namespace
}  // namespace msa::cli
