// torch_tenon._C.Graph: an FX graph on its way to libtenon (tenon_graph_*), call by call.
#pragma once

#include <torch/csrc/python_headers.h>

#include "runtime/tenon_c.h"

namespace tenon::torch_host {

// Adds Graph and Value to the module. -1: a Python error is set.
int AddGraphType(PyObject* module);

// NULL: another kind of object. Belongs to it.
const TenonGraph* GraphOf(PyObject* object);

}  // namespace tenon::torch_host
