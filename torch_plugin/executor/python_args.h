// Python objects as the C seam's arguments.
#pragma once

#include <torch/csrc/python_headers.h>

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "runtime/tenon_c.h"

namespace tenon::torch_host {

// Numbers, None, bools, strings, lists and tuples, torch's dtypes, layouts, devices and memory formats. Of what else there is, a hook
// makes something of these, if there is one. Owns what it reads: the TenonArgs point into it and into the objects, which it keeps.
class PythonArgs {
 public:
  // What stands for `object`, a new reference, or NULL with a Python error.
  using Hook = std::function<PyObject*(PyObject* object)>;
  // 1: `object` names a value, and `arg` is set; 0: it doesn't; -1: a Python error is set.
  using ValueOf = std::function<int(PyObject* object, TenonArg* arg)>;
  PythonArgs(Hook hook, ValueOf value_of) : hook_(std::move(hook)), value_of_(std::move(value_of)) {}
  PythonArgs() = default;
  ~PythonArgs();
  PythonArgs(const PythonArgs&) = delete;

  // False: a Python error is set.
  bool Read(PyObject* object, TenonArg* arg);
  // The elements of a list or tuple.
  bool ReadList(PyObject* sequence, const TenonArg** args, int64_t* count);

 private:
  bool ReadPlain(PyObject* object, TenonArg* arg, bool* known);

  Hook hook_;
  ValueOf value_of_;
  int depth_ = 0;
  std::vector<PyObject*> kept_;
  std::deque<std::string> strings_;
  std::deque<std::vector<TenonArg>> lists_;
};

// The FrameworkArg::Kinds, by number.
enum ArgKind : int32_t {
  kArgNone,
  kArgTensor,
  kArgInt,
  kArgFloat,
  kArgBool,
  kArgComplex,
  kArgString,
  kArgList,
  kArgDtype,
  kArgLayout,
  kArgDevice,
  kArgMemoryFormat,
  kArgSymInt
};

}  // namespace tenon::torch_host
