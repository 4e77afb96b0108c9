// A pass that breaks the rules of passes/pass.h, at the end of a pipeline: CompileOptions::inject_fault names it, and tests see from
// it that somebody looks.
//   broken-module  leaves two instructions of one name
//   silent-change  renames an instruction and says that it changed nothing
//   false-change   changes nothing and says that it did
#pragma once

#include <string_view>
#include <vector>

#include "passes/pipeline.h"

namespace tenon {

// Of a fault that is no such pass nothing comes. `table`, which `pipeline` points to then, must outlive it.
void AddFaultyPass(std::string_view fault, PipelineOptions* pipeline, std::vector<PassInfo>* table);

}  // namespace tenon
