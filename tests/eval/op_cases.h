// Reads the cases of tests/ops (the format is in tests/ops/README.md).
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "hlo/module.h"
#include "hlo/tolerance.h"

namespace tenon {

struct OpCase {
  std::string name;
  std::vector<Literal> args, expected;
  std::string error;  // not empty: evaluation must fail with it
};

struct OpFile {
  std::filesystem::path path;
  std::unique_ptr<Module> module;
  ToleranceRule tolerance;
  std::vector<OpCase> cases;
};

std::vector<std::filesystem::path> OpFilePaths();
absl::StatusOr<OpFile> ReadOpFile(const std::filesystem::path& path);

// The leaves of a result in tuple order.
std::vector<Literal> Leaves(const Literal& literal);

}  // namespace tenon
