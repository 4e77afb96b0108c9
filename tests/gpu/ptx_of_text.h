// The PTX of a module's kernels.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "backends/driver/compile.h"
#include "backends/gpu/gpu.h"
#include "hlo/text/text.h"
#include "passes/spaces/spaces.h"
#include "runtime/program/binding.h"
#include "tools/lab/gpu/ptxas.h"

namespace tenon::gpu {

// Of the first module of sm_90's kernels, given what stands between the braces of the entry; what went wrong fails the test and is "".
inline std::string PtxOfBody(const std::string& body) {
  const auto module = ParseModule(absl::StrCat("HloModule m\nENTRY e {\n", body, "\n}\n"));
  EXPECT_TRUE(module.ok()) << module.status() << body;
  if (!module.ok()) return "";
  MoveSignature(**module, kSpace);
  const CompileOptions options{.targets = {MakeGpu({.model = *FindGpuModel("sm_90")})}};
  const absl::StatusOr<Program> program = CompileToProgram((*module)->Clone(), BindingOf(**module), options);
  EXPECT_TRUE(program.ok()) << program.status() << body;
  if (!program.ok()) return "";
  const absl::StatusOr<PtxModules> ptx = PtxOf(*program);
  EXPECT_TRUE(ptx.ok() && !ptx->modules.empty()) << ptx.status();
  return ptx.ok() && !ptx->modules.empty() ? ptx->modules[0] : "";
}

}  // namespace tenon::gpu
