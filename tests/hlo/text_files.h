// What the text tests share: files under tests/, and goldens that UPDATE_GOLDEN=1 rewrites.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace tenon {

inline std::string ReadTestFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// The .hlo files of tests/<folder>, sorted.
inline std::vector<std::filesystem::path> TestFiles(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(TENON_SOURCE_DIR) + "/tests/" + folder)) {
    if (entry.path().extension() == ".hlo") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

inline void ExpectGolden(const std::filesystem::path& golden, const std::string& got) {
  if (std::getenv("UPDATE_GOLDEN") != nullptr) {
    std::ofstream(golden, std::ios::binary) << got;
    return;
  }
  EXPECT_EQ(got, ReadTestFile(golden)) << golden << " (UPDATE_GOLDEN=1 rewrites it)";
}

}  // namespace tenon
