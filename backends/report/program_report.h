// The Program's part of a report: steps, values with their lives, kernels, memory.
#pragma once

#include "backends/report/module_report.h"
#include "runtime/program/program.h"

namespace tenon {

// {"tier","reason","inputs","outputs","kernels","regions":[{"name","steps":[{"kind","name","source","reads":[value],
// "writes":[value],"bytes","flops","estimated_ns",...}]}],"order":[[region,
// step]],"values":[{"kind","name","offset","bytes", "first","last"}],"memory","compile_ms","remarks"}.
//
// `order` is the sequence of steps as a reader walks them: a loop, then its condition's and body's steps, then what
// follows; the commit region last. `first` and `last` are positions in it: a value lives from the step that first
// touches it to the one that last does, and throughout a loop that it enters, leaves or is carried around in.
Json ProgramJson(const Program& program);

}  // namespace tenon
