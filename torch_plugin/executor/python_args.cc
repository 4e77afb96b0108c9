#include "torch_plugin/executor/python_args.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>

#include <cstring>
#include <string_view>
#include <utility>

#include "torch_plugin/executor/dtype.h"

namespace tenon::torch_host {
namespace {

constexpr int kMaxDepth = 64;  // of lists in lists, as libtenon has it

// "torch.strided" -> "strided", "torch.contiguous_format" -> "contiguous".
std::string ShortName(std::string_view name) {
  constexpr std::string_view kPrefix = "torch.", kSuffix = "_format";
  if (name.substr(0, kPrefix.size()) == kPrefix) name.remove_prefix(kPrefix.size());
  if (name.size() > kSuffix.size() && name.substr(name.size() - kSuffix.size()) == kSuffix) name.remove_suffix(kSuffix.size());
  return std::string(name);
}

}  // namespace

PythonArgs::~PythonArgs() {
  for (PyObject* object : kept_) Py_DECREF(object);
}

bool PythonArgs::ReadPlain(PyObject* object, TenonArg* arg, bool* known) {
  *known = true;
  *arg = {};
  if (object == Py_None) return true;
  if (PyBool_Check(object)) {
    arg->kind = kArgBool;
    arg->i = object == Py_True;
  } else if (PyLong_Check(object)) {
    int overflow = 0;
    arg->kind = kArgInt;
    arg->i = PyLong_AsLongLongAndOverflow(object, &overflow);
    *known = overflow == 0;
    return overflow != 0 || arg->i != -1 || PyErr_Occurred() == nullptr;
  } else if (PyFloat_Check(object)) {
    arg->kind = kArgFloat;
    arg->f = PyFloat_AS_DOUBLE(object);
  } else if (PyComplex_Check(object)) {
    arg->kind = kArgComplex;
    arg->f = PyComplex_RealAsDouble(object);
    arg->im = PyComplex_ImagAsDouble(object);
  } else if (PyUnicode_Check(object)) {
    Py_ssize_t size = 0;
    arg->kind = kArgString;
    arg->s = PyUnicode_AsUTF8AndSize(object, &size);
    *known = arg->s == nullptr || std::strlen(arg->s) == static_cast<size_t>(size);  // none with a 0 in it
    return arg->s != nullptr;
  } else if (PyList_Check(object) || PyTuple_Check(object)) {
    arg->kind = kArgList;
    return ReadList(object, &arg->list, &arg->list_size);
  } else if (THPDtype_Check(object)) {
    arg->kind = kArgDtype;
    arg->dtype = FromTorch(reinterpret_cast<THPDtype*>(object)->scalar_type);
    *known = arg->dtype >= 0;
  } else if (THPLayout_Check(object)) {
    arg->kind = kArgLayout;
    arg->s = strings_.emplace_back(ShortName(reinterpret_cast<THPLayout*>(object)->name)).c_str();
  } else if (THPMemoryFormat_Check(object)) {
    arg->kind = kArgMemoryFormat;
    arg->s = strings_.emplace_back(ShortName(reinterpret_cast<THPMemoryFormat*>(object)->name)).c_str();
  } else if (THPDevice_Check(object)) {
    arg->kind = kArgDevice;
    arg->s = strings_.emplace_back(reinterpret_cast<THPDevice*>(object)->device.str()).c_str();
  } else {
    *known = false;
  }
  return true;
}

bool PythonArgs::Read(PyObject* object, TenonArg* arg) {
  bool known = false;
  for (int tries = 0; tries < 2; ++tries) {
    if (value_of_ != nullptr) {
      const int is_value = value_of_(object, arg);
      if (is_value != 0) return is_value > 0;
    }
    if (!ReadPlain(object, arg, &known)) return false;
    if (known) return true;
    if (hook_ == nullptr || tries == 1) break;
    object = hook_(object);
    if (object == nullptr) return false;
    kept_.push_back(object);
  }
  PyErr_Format(PyExc_TypeError, "wanted an argument of an operator, got %s", Py_TYPE(object)->tp_name);
  return false;
}

bool PythonArgs::ReadList(PyObject* sequence, const TenonArg** args, int64_t* count) {
  if (depth_ >= kMaxDepth) {
    PyErr_SetString(PyExc_ValueError, "lists nested too deeply");
    return false;
  }
  ++depth_;
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(sequence);
  std::vector<TenonArg>& list = lists_.emplace_back(static_cast<size_t>(size));
  bool read = true;
  for (Py_ssize_t k = 0; k < size && read; ++k) read = Read(PySequence_Fast_GET_ITEM(sequence, k), &list[k]);
  --depth_;
  *args = list.data();
  *count = size;
  return read;
}

}  // namespace tenon::torch_host
