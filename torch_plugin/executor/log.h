// Lines of libtenon into Python's logging (TORCH_LOGS="tenon").
#pragma once

#include <torch/csrc/python_headers.h>

namespace tenon::torch_host {

// TenonHost::log. Takes the GIL if it must; silent until SetLogger and while the interpreter shuts
// down.
void Log(void* context, int level, const char* text);

// callable(level: int, text: str) or None. With the GIL.
void SetLogger(PyObject* callable);

}  // namespace tenon::torch_host
