// torch_tenon._C.Graph: an FX graph on its way to libtenon (tenon_graph_*), call by call.
#pragma once

#include <torch/csrc/python_headers.h>

#include "runtime/tenon_c.h"

namespace tenon::torch_host {

// Adds Graph, Value and Symbolic to the module, which may be imported before torch is. -1: a Python error is set.
int AddGraphType(PyObject* module);

// has_dtype(dtype): tenon has torch's dtype.
PyObject* HasDtype(PyObject* module, PyObject* dtype);

// NULL: another kind of object. Belongs to it.
const TenonGraph* GraphOf(PyObject* object);

}  // namespace tenon::torch_host
