// SizePrograms as Python fills them: _C.Executable.set_sizes and add_program.
#pragma once

#include <torch/csrc/python_headers.h>

#include <memory>

#include "torch_plugin/executor/size_programs.h"

namespace tenon::torch_host {

// args: (readers, hot_ns, worth, most_bytes, make, judged), of a graph with so many inputs. NULL: a Python error is set.
std::shared_ptr<SizePrograms> MakeSizePrograms(size_t inputs, PyObject* args);

// args: (sizes, executable). False: a Python error is set.
bool AddNeededProgram(SizePrograms& programs, PyObject* args);

}  // namespace tenon::torch_host
