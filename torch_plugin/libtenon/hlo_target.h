// Where torch_tenon.hlo runs a module, other than on the CPU: the option "target" of tenon_hlo_compile.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "backends/driver/compile.h"
#include "hlo/module.h"
#include "runtime/tenon_c.h"

namespace tenon {

// Makes the module, the options and the host those of a run there. InvalidArgument: this library has no such target. libtenon has none;
// test builds' libtenon_lab, which has hlo_target.cc of tests/lab_library instead, has the emulated ones.
absl::Status UseTarget(const std::string& target, Module& module, CompileOptions* options, const TenonHost** host);

}  // namespace tenon
