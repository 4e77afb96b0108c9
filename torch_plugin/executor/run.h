// Callees as Python calls them: list of inputs in, list of outputs out.
#pragma once

#include <torch/csrc/python_headers.h>

#include "torch_plugin/executor/callee.h"

namespace tenon::torch_host {

// `list` (a list or tuple of the inputs; a list is emptied) -> new list of outputs, or nullptr with
// a Python error set. With the GIL, which is released while the graph runs.
PyObject* RunExecutable(Callee& callee, PyObject* list);

// The other way round: calls callable(list of the arguments), or callable(list, reason or None), and reads its list or tuple of tensors,
// ints and None. Arguments that were given are the list's alone. Takes the GIL. Throws python_error.
Results CallBoxed(PyObject* callable, std::span<Argument> arguments);
Results CallRerun(PyObject* callable, std::span<const Argument> arguments, const char* reason, bool lasting);
Results CallRefused(PyObject* callable, std::span<const Argument> arguments, const char* why);

// The Python error that is set, as a python_error. With the GIL.
[[noreturn]] void ThrowPythonError();

// A failed check as the Python exception that it names. Takes the GIL.
[[noreturn]] void ThrowAsPython(const CheckFailed& failed);

}  // namespace tenon::torch_host
