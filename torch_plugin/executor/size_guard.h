// _C.size_guard: Dynamo's guards on sizes, decided without Python's arithmetic.
#pragma once

#include <torch/csrc/python_headers.h>

namespace tenon::torch_host {

// 0, or -1: a Python error is set.
int AddSizeGuard(PyObject* module);

}  // namespace tenon::torch_host
