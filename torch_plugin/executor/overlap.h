// Do inputs that a graph writes share memory with others?
#pragma once

#include <Python.h>

namespace tenon::torch_host {

// Adds overlap_check(written: sequence of positions) to the module.
int AddOverlapCheck(PyObject* module);

}  // namespace tenon::torch_host
