// One call of an executable from Python.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/python_headers.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "runtime/tenon_c.h"
#include "torch_plugin/executor/frozen.h"

namespace tenon::torch_host {

// What a call needs to know of an executable, read once from libtenon.
struct Callee {
  struct Input {
    bool tensor = true;  // else SymInt, None or something the program passes on
    bool symint = false;
    bool other = false;  // any tensor whatsoever
    bool mutated = false;
    bool framework = false;  // an operand of framework steps, so C++ will count references
    bool returned = false;   // is an output too
    bool movable = false;    // its memory may be freed before the run ends
  };
  struct Output {
    int32_t kind = 0;
    int64_t index = 0;
    c10::ScalarType dtype = c10::ScalarType::Float;
    bool sized = true;
    std::vector<int64_t> sizes, strides;
  };
  // How an output of the graph comes from the program's: output `index` itself, or a view of that
  // output or input.
  struct Recipe {
    bool view = false, of_input = false;
    int64_t index = 0;
    std::vector<int64_t> sizes, strides;
    int64_t offset = 0;  // elements beyond the base's own storage offset
  };
  TenonExecutable* executable = nullptr;
  bool native = false;
  std::string name;
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  std::vector<Recipe> recipes;    // empty: the program's outputs as they are
  PyObject* constants = nullptr;  // tuple
  std::unique_ptr<FrozenValues> frozen;  // null: none

  // What runs the graph by ATen alone: called with (list of inputs, reason or None), returns the graph's outputs. NULL: none.
  // It has the last word when a compiled check fails (so the error is eager's), and every word from the run in which an
  // operator's results turned out not to be what its fake kernel had said.
  PyObject* rerun = nullptr;
  bool random = false;    // draws numbers of ATen's generator
  bool backward = false;  // its inputs are what a forward saved, maybe not as the fake kernels had it
  std::atomic<bool> proven = false;    // a run went through, so operators return what was compiled for
  std::atomic<bool> given_up = false;  // `rerun` takes every call
};

// `list` (a list or tuple of the inputs; a list is emptied) -> new list of outputs, or nullptr with
// a Python error set.
PyObject* RunExecutable(Callee& callee, PyObject* list);

}  // namespace tenon::torch_host
