// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "msa/msa.h"

namespace {

namespace fs = std::filesystem;

const fs::path root = MSA_SOURCE_DIR;

std::string read(const fs::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<fs::path> pages() {
  std::vector<fs::path> found = {root / "README.md"};
  for (const auto& entry : fs::recursive_directory_iterator(root / "docs")) {
    if (entry.path().extension() == ".md") found.push_back(entry.path());
  }
  return found;
}

// The example of docs/layouts.md.
constexpr msa::KVCacheShape shape = {.layers = 2, .pages = 3, .heads = 2};

TEST(LayoutsPage, StridesAreThoseOfTheLibrary) {
  const std::regex row(R"(\| (\w+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|)");
  std::set<msa::KVLayout> seen;
  for (const std::string& line : lines_of(read(root / "docs/layouts.md"))) {
    std::smatch m;
    if (!std::regex_match(line, m, row)) continue;
    const auto layout = msa::parse_kv_layout(m[1].str());
    ASSERT_TRUE(layout) << line;
    const msa::KVStrides written = {std::stoll(m[2]), std::stoll(m[3]), std::stoll(m[4]),
                                    std::stoll(m[5])};
    EXPECT_EQ(written, msa::kv_strides(*layout, shape)) << line;
    seen.insert(*layout);
  }
  EXPECT_EQ(seen.size(), msa::all_kv_layouts.size());
}

TEST(LayoutsPage, ByteOffsetsAreThoseOfTheLibrary) {
  const std::regex heading(R"(## (\w+)( \(.*\))?)");
  const std::regex entry(R"( *(\d+)  layer (\d+)  page (\d+)  head (\d+)  token +(\d+)  ([KV]))");
  std::vector<char> base(1);
  std::optional<msa::KVLayout> layout;
  std::set<msa::KVLayout> seen;
  std::int64_t previous = -1;
  int checked = 0;
  for (const std::string& line : lines_of(read(root / "docs/layouts.md"))) {
    std::smatch m;
    if (std::regex_match(line, m, heading)) {
      layout = msa::parse_kv_layout(m[1].str());
      previous = -1;
    } else if (std::regex_match(line, m, entry)) {
      ASSERT_TRUE(layout) << line;
      const msa::Tensor view =
          msa::kv_layer_view(base.data(), msa::DType::bf16, *layout, shape, std::stoll(m[2]));
      const std::int64_t element = std::stoll(m[3]) * view.stride[0] +
                                   std::stoll(m[4]) * view.stride[1] +
                                   std::stoll(m[5]) * view.stride[2] + (m[6] == "V" ? 128 : 0);
      const std::int64_t offset = static_cast<const char*>(view.data) - base.data() + element * 2;
      EXPECT_EQ(std::stoll(m[1]), offset) << line;
      EXPECT_GT(offset, previous) << "not in memory order: " << line;
      previous = offset;
      seen.insert(*layout);
      ++checked;
    }
  }
  EXPECT_EQ(seen.size(), msa::all_kv_layouts.size());
  EXPECT_EQ(checked, 7 * 6);
}

TEST(Readme, ItsCppExampleIsTheTestedProgram) {
  const std::string program = read(root / "examples/attend_minimal.cpp");
  const std::string body = program.substr(program.find('\n') + 1);  // without the licence line
  const std::string readme = read(root / "README.md");
  EXPECT_NE(readme.find("```cpp\n" + body + "```"), std::string::npos)
      << "README.md must show examples/attend_minimal.cpp as it is, but for its first line";
}

TEST(Readme, ItsCppExampleIsShort) {
  const std::string program = read(root / "examples/attend_minimal.cpp");
  const std::size_t start = program.find("int main() {\n");
  ASSERT_NE(start, std::string::npos);
  EXPECT_LE(lines_of(program.substr(start)).size() - 2, 20U) << "lines in main";
}

TEST(Pages, LocalLinksLeadSomewhere) {
  const std::regex link(R"(\]\(([^)#\s]+)(#[^)]*)?\))");
  for (const fs::path& page : pages()) {
    const std::string text = read(page);
    for (std::sregex_iterator it(text.begin(), text.end(), link), end; it != end; ++it) {
      const std::string target = (*it)[1];
      if (target.find("://") != std::string::npos) continue;
      EXPECT_TRUE(fs::exists(page.parent_path() / target)) << page << " links to " << target;
    }
  }
}

// "report 20: …" means nothing to a reader who cannot look it up, a row nothing without its test.
TEST(FieldReportsPage, HasTheNumbersThatTestsNameAndNoOther) {
  const std::string page = read(root / "docs/field-reports.md");
  const std::regex named(R"re([Rr]eports? \d+((, | and )\d+)*)re");
  const std::regex first_of_name(R"re("\d+(, \d+)*: )re");  // names in attend_reports.cpp
  const std::regex number(R"re(\d+)re");
  std::set<int> numbers;
  const auto collect = [&](const std::string& text, const std::regex& use) {
    for (std::sregex_iterator it(text.begin(), text.end(), use), end; it != end; ++it) {
      const std::string found = it->str();
      for (std::sregex_iterator n(found.begin(), found.end(), number); n != end; ++n) {
        numbers.insert(std::stoi(n->str()));
      }
    }
  };
  for (const char* folder : {"src", "tests"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension();
      if (extension != ".cpp" && extension != ".h") continue;
      const std::string text = read(entry.path());
      collect(text, named);
      if (entry.path().filename() == "attend_reports.cpp") collect(text, first_of_name);
    }
  }
  EXPECT_GE(numbers.size(), 55U);
  const std::regex row(R"re(\| (\d+) \| .*)re");
  std::set<int> rows;
  for (const std::string& line : lines_of(page)) {
    std::smatch m;
    if (std::regex_match(line, m, row)) rows.insert(std::stoi(m[1]));
  }
  for (const int n : numbers) EXPECT_TRUE(rows.contains(n)) << "no row for report " << n;
  for (const int n : rows) EXPECT_TRUE(numbers.contains(n)) << "no test names report " << n;
}

TEST(GuidePage, NamesEveryEnvironmentVariableThatTheLibraryReads) {
  const std::string guide = read(root / "docs/guide.md");
  const std::regex use(R"re(getenv\("(MSA_\w+)"\))re");
  int found = 0;
  for (const char* folder : {"src/api", "src/common", "src/cpu", "src/serving"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (!entry.is_regular_file()) continue;
      const std::string text = read(entry.path());
      for (std::sregex_iterator it(text.begin(), text.end(), use), end; it != end; ++it, ++found) {
        const std::string name = std::string("`").append((*it)[1]).append("`");
        EXPECT_NE(guide.find(name), std::string::npos) << name;
      }
    }
  }
  EXPECT_GE(found, 4);
}

}  // namespace
