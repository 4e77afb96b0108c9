// What hlo-opt was asked for.
#pragma once

#include <string>
#include <vector>

#include "backends/driver/compile.h"
#include "hlo/text/text.h"

namespace tenon::opt {

struct Options {
  ParseOptions parse;
  PrintOptions print;
  CompileOptions compile;  // passes, disable_passes and stop_after hold for passes alone, too
  bool run_passes = false, plan = false, remarks = false, timing = false, cost = false;
  bool check_roundtrip = false, time = false, split_input = false, json = false, diff = false;
  uint32_t stages = 0;  // bits of StageKind
  bool assembly = false, sass = false;  // of the stage of the assembly: the text itself, and what ptxas makes of PTX
  std::string architecture;             // of the GPU, if one is asked for: "sm_90"
  int64_t cost_rows = 20;
  int64_t space = 0;    // memory of the parameters and results: a device's, if one is asked for
  std::string dump_to, html;
  std::vector<std::string> files;

  // 0: go on. Else the process is done and exits with done - 1: help was printed, or bad usage told on stderr.
  int done = 0;
};

Options ParseFlags(int argc, char** argv);

}  // namespace tenon::opt
