// The modules of an input file.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tenon::opt {

struct Case {
  std::string file, name;  // name: "file", or "file:12" for the case whose first line is the 12th
  int64_t number = 0;      // in its file
  std::string text;  // with an empty line for every line of the file before it, so that messages tell the file's lines
};

// The whole file, or with `split` its parts between lines "// -----"; a part of nothing but blanks is none.
absl::StatusOr<std::vector<Case>> ReadCases(const std::string& path, bool split);

}  // namespace tenon::opt
