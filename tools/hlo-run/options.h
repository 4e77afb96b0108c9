// What hlo-run was asked for.
#pragma once

#include <string>
#include <vector>

#include "backends/driver/compile.h"
#include "hlo/text/text.h"

namespace tenon::run {

struct Options {
  std::string file, target, backend, inputs, expect, save, html, trace;  // backend: "" both, or cpu where only time is asked for
  std::vector<std::string> input_files;
  uint64_t seed = 0;
  double atol = -1, rtol = -1;
  int64_t ulp = -1;
  int repeat = 0;  // 0: by time
  int threads = 0;
  int rows = 20;
  bool print = false, bench = false, profile = false, json = false;
  ParseOptions parse;
  CompileOptions compile;
  bool measures() const { return bench || profile || repeat > 0 || !html.empty(); }
};

// 0: go on. Else done, with exit code n - 1: help was printed, or bad usage told on stderr.
int ParseFlags(int argc, char** argv, Options* options);

}  // namespace tenon::run
