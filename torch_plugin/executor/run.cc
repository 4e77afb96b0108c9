#include "torch_plugin/executor/run.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/object_ptr.h>
#include <torch/csrc/utils/python_arg_parser.h>

#include "torch_plugin/executor/gil.h"
#include "torch_plugin/executor/tensor.h"

namespace tenon::torch_host {
namespace {

// The boxed list of AOTAutograd's, around Callee::Run.
class BoxedCall {
 public:
  explicit BoxedCall(Callee& callee) : callee_(callee) {}
  ~BoxedCall() {
    for (PyObject* object : objects_) Py_XDECREF(object);
    for (c10::TensorImpl* impl : held_) ReleaseTensor(nullptr, impl);
  }

  PyObject* operator()(PyObject* list) {
    if (!Take(list)) return nullptr;
    arguments_.resize(objects_.size());
    for (size_t i = 0; i < objects_.size(); ++i) Read(i);
    Results results;
    {
      NoGil no_gil;
      results = callee_.Run(std::span<Argument>(arguments_));
    }
    THPObjectPtr outputs(PyList_New(static_cast<Py_ssize_t>(results.size())));
    if (!outputs) return nullptr;
    for (size_t k = 0; k < results.size(); ++k) {
      PyObject* item = Wrap(&results[k]);
      if (item == nullptr) return nullptr;
      PyList_SET_ITEM(outputs.get(), static_cast<Py_ssize_t>(k), item);
    }
    return outputs.release();
  }

 private:
  // The list's references become ours, and the list empty: no caller's frame keeps an input alive
  // then.
  bool Take(PyObject* list) {
    const bool is_list = PyList_Check(list);
    if (!is_list && !PyTuple_Check(list)) {
      PyErr_Format(PyExc_TypeError, "%s: wanted a list of inputs, got %s", callee_.name.c_str(), Py_TYPE(list)->tp_name);
      return false;
    }
    const Py_ssize_t n = is_list ? PyList_GET_SIZE(list) : PyTuple_GET_SIZE(list);
    if (static_cast<size_t>(n) != callee_.inputs.size()) {
      PyErr_Format(PyExc_RuntimeError, "%s: wanted %zu inputs, got %zd", callee_.name.c_str(), callee_.inputs.size(), n);
      return false;
    }
    objects_.resize(n);
    for (Py_ssize_t i = 0; i < n; ++i) objects_[i] = Py_NewRef(is_list ? PyList_GET_ITEM(list, i) : PyTuple_GET_ITEM(list, i));
    return !is_list || PyList_SetSlice(list, 0, n, nullptr) == 0;
  }

  void Read(size_t i) {
    const Callee::Input& want = callee_.inputs[i];
    PyObject* object = objects_[i];
    if (want.symint) {
      arguments_[i] = Argument(THPUtils_unpackIndex(object));
      return;
    }
    if (!want.tensor && !want.other) return;
    TORCH_CHECK_TYPE(THPVariable_Check(object), callee_.name, ": input ", i, ": wanted a tensor, got ", Py_TYPE(object)->tp_name);
    const at::Tensor& tensor = THPVariable_Unpack(object);
    c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    // Nobody but this call has the tensor.
    if (want.movable && Py_REFCNT(object) == 1 && impl->has_storage() && impl->storage().nbytes() >= Callee::kMovableBytes) {
      arguments_[i] = Argument::Give(tensor, /*sole=*/true);
      Py_CLEAR(objects_[i]);
      return;
    }
    arguments_[i] = Argument::Borrow(impl);
    if (want.framework || want.other) {
      // While C++ has the only other reference, every count up and down of it would take the GIL: so one is held throughout.
      RetainTensor(nullptr, impl);
      held_.push_back(impl);
    }
  }

  PyObject* Wrap(Result* result) {
    switch (result->kind) {
      case Result::Kind::kTensor:
        return THPVariable_Wrap(std::move(result->tensor));
      case Result::Kind::kNumber:
        return PyLong_FromLongLong(result->number);
      case Result::Kind::kArgument:
        if (PyObject* object = objects_[result->number]) return Py_NewRef(object);
        return THPVariable_Wrap(arguments_[result->number].Share());
      default:
        return Py_NewRef(Py_None);
    }
  }

  Callee& callee_;
  c10::SmallVector<PyObject*, 32> objects_;  // NULL: given away
  c10::SmallVector<c10::TensorImpl*, 32> held_;
  Arguments arguments_;
};

Result Read(PyObject* object) {
  Result result;
  if (THPVariable_Check(object)) {
    result.kind = Result::Kind::kTensor;
    result.tensor = THPVariable_Unpack(object);
  } else if (PyLong_Check(object)) {
    result.kind = Result::Kind::kNumber;
    result.number = THPUtils_unpackLong(object);
  } else {
    TORCH_CHECK_TYPE(object == Py_None, "output of a graph: wanted a tensor, an int or None, got ", Py_TYPE(object)->tp_name);
  }
  return result;
}

PyObject* ToObject(const Argument& argument, at::Tensor tensor) {
  PyObject* object = argument.kind() == Argument::Kind::kTensor   ? THPVariable_Wrap(std::move(tensor))
                     : argument.kind() == Argument::Kind::kNumber ? PyLong_FromLongLong(argument.number())
                                                                  : Py_NewRef(Py_None);
  if (object == nullptr) ThrowPythonError();
  return object;
}

Results ReadAll(PyObject* outputs) {
  THPObjectPtr owned(outputs);
  if (!owned) ThrowPythonError();
  THPObjectPtr items(PySequence_Fast(outputs, "wanted a list of outputs"));
  if (!items) ThrowPythonError();
  Results results;
  for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(items.get()); ++k) results.push_back(Read(PySequence_Fast_GET_ITEM(items.get(), k)));
  return results;
}

}  // namespace

PyObject* RunExecutable(Callee& callee, PyObject* list) {
  HANDLE_TH_ERRORS
  try {
    return BoxedCall(callee)(list);
  } catch (const CheckFailed& failed) {
    ThrowAsPython(failed);
  }
  END_HANDLE_TH_ERRORS
}

Results CallBoxed(PyObject* callable, std::span<Argument> arguments) {
  Gil gil;
  THPObjectPtr list(PyList_New(static_cast<Py_ssize_t>(arguments.size())));
  if (!list) ThrowPythonError();
  for (size_t i = 0; i < arguments.size(); ++i) {
    at::Tensor tensor = arguments[i].tensor() != nullptr ? arguments[i].Take() : at::Tensor();
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), ToObject(arguments[i], std::move(tensor)));
  }
  return ReadAll(PyObject_CallOneArg(callable, list.get()));
}

namespace {

PyObject* ListOf(std::span<const Argument> arguments) {
  THPObjectPtr list(PyList_New(static_cast<Py_ssize_t>(arguments.size())));
  if (!list) ThrowPythonError();
  for (size_t i = 0; i < arguments.size(); ++i) {
    at::Tensor tensor = arguments[i].tensor() != nullptr ? arguments[i].Share() : at::Tensor();
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), ToObject(arguments[i], std::move(tensor)));
  }
  return list.release();
}

}  // namespace

Results CallRerun(PyObject* callable, std::span<const Argument> arguments, const char* reason, bool lasting) {
  Gil gil;
  THPObjectPtr list(ListOf(arguments));
  return ReadAll(PyObject_CallFunction(callable, "OzO", list.get(), reason, lasting ? Py_True : Py_False));
}

Results CallRefused(PyObject* callable, std::span<const Argument> arguments, const char* why) {
  Gil gil;
  THPObjectPtr list(ListOf(arguments));
  return ReadAll(PyObject_CallFunction(callable, "Oz", list.get(), why));
}

void ThrowPythonError() {
  python_error error;
  error.persist();
  throw error;
}

void ThrowAsPython(const CheckFailed& failed) {
  const std::string& name = failed.exception_name();
  Gil gil;
  PyErr_SetString(name == "IndexError"          ? PyExc_IndexError
                  : name == "ValueError"        ? PyExc_ValueError
                  : name == "ZeroDivisionError" ? PyExc_ZeroDivisionError
                  : name == "AssertionError"    ? PyExc_AssertionError
                                                : PyExc_RuntimeError,
                  failed.what_without_backtrace());
  ThrowPythonError();
}

}  // namespace tenon::torch_host
