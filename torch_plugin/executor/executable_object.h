// torch_tenon._C.Executable: a compiled graph as a Python callable, list of inputs in, list of
// outputs out.
#pragma once

#include <torch/csrc/python_headers.h>

#include "torch_plugin/executor/callee.h"

namespace tenon::torch_host {

// Adds the type to the module. -1: a Python error is set.
int AddExecutableType(PyObject* module);

// Where an Executable has its callee. NULL: another kind of object.
const std::shared_ptr<CalleeCell>* CellOf(PyObject* object);

// compile(graph: Graph, options: dict, constants: sequence of tensors) -> Executable. Releases the GIL
// while it compiles.
PyObject* CompileGraph(PyObject* module, PyObject* args);

}  // namespace tenon::torch_host
