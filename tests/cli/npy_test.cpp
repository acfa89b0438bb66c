// Copyright 2026 the msa.cpp authors. SPDX-License-Identifier: Apache-2.0
#include "cli/io/npy.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "error_of.h"
#include "msa/error.h"
#include "scratch.h"

namespace msa::cli {
namespace {

class Npy : public testing::Test {
 protected:
  ByteArray read(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    return read_npy(path_);
  }
  std::string failure(const std::string& bytes) {
    return error_of([&] { read(bytes); }, ErrorCode::io);
  }
  static std::string file(std::string header, const std::string& values) {
    header.resize(118, ' ');
    return std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + values;
  }

  const std::string path_ = scratch_folder() / "array.npy";
};

TEST_F(Npy, ReadsBytes) {
  const ByteArray array =
      read(file("{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }", "abcdef"));
  EXPECT_EQ(array.shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(std::string(array.values.begin(), array.values.end()), "abcdef");
  EXPECT_EQ(read(file("{'descr': '|u1', 'fortran_order': False, 'shape': (4,), }", "abcd")).shape,
            std::vector<std::int64_t>{4});
}

TEST_F(Npy, NamesEverythingThatItCannotRead) {
  const std::string text =
      failure(file("{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3), }", "abcde"));
  for (const char* part : {path_.c_str(), "not unsigned bytes", "not in C order",
                           "has 5 bytes behind its header, its shape 6"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  EXPECT_NE(failure(file("{'descr': '|u1', 'fortran_order': False, 'shape': (2, x)}", ""))
                .find("names no shape"),
            std::string::npos);
  const std::string huge = "(4294967296, 4294967296, 1)";  // 2^64 elements
  EXPECT_NE(failure(file("{'descr': '|u1', 'fortran_order': False, 'shape': " + huge + ", }", ""))
                .find("has 0 bytes behind its header"),
            std::string::npos);
  EXPECT_NE(failure("\x93NUMPY").find("no .npy file"), std::string::npos);
  EXPECT_NE(failure(std::string("\x93NUMPY\x01\x00\x76\x00", 10)).find("ends inside its header"),
            std::string::npos);
  EXPECT_NE(failure(std::string("\x93NUMPY\x02\x00\x76\x00", 10)).find("version 2"),
            std::string::npos);
  EXPECT_THROW(read_npy(path_ + ".none"), Error);
}

}  // namespace
}  // namespace msa::cli
