// "python.<id>": a step that calls a Python callable with the GIL held.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <charconv>
#include <cstring>
#include <span>
#include <unordered_map>
#include <vector>

#include "torch_plugin/executor/gil.h"
#include "torch_plugin/executor/op_impl.h"
#include "torch_plugin/executor/run.h"
#include "torch_plugin/executor/tensor.h"

namespace tenon::torch_host {
namespace {

// Guarded by the GIL.
std::unordered_map<int64_t, PyObject*>& Callables() {
  static auto* callables = new std::unordered_map<int64_t, PyObject*>;
  return *callables;
}
int64_t next_id = 0;

struct Ref {
  explicit Ref(PyObject* o) : object(o) {}
  ~Ref() { Py_XDECREF(object); }
  Ref(const Ref&) = delete;
  PyObject* object;
};

class PythonOp final : public Op {
 public:
  // An argument behind the tensors: a number, or which of the call's.
  struct Number {
    bool of_call = false;
    int64_t i = 0;
  };
  PythonOp(PyObject* callable, std::vector<Number> numbers) : callable_(callable), numbers_(std::move(numbers)) {}  // takes the reference
  ~PythonOp() override {
    if (!InterpreterIsAlive()) return;
    Gil gil;
    Py_DECREF(callable_);
  }

  void Call(TenonOpCall* call) override {
    // Python may keep what it is given, so wrappers of planned memory go as copies.
    std::vector<at::Tensor> operands;
    for (int32_t k = 0; k < num_operands; ++k) {
      at::Tensor operand = Operand(*call, k);
      operands.push_back(operand.defined() && call->operands[k].tensor == nullptr ? operand.clone()
                                                                                  : operand);
    }
    Gil gil;
    Ref args(PyTuple_New(num_operands + static_cast<Py_ssize_t>(numbers_.size())));
    if (args.object == nullptr) ThrowPythonError();
    for (int32_t k = 0; k < num_operands; ++k) {
      PyTuple_SET_ITEM(
          args.object, k,
          operands[k].defined() ? THPVariable_Wrap(std::move(operands[k])) : Py_NewRef(Py_None));
    }
    for (size_t k = 0; k < numbers_.size(); ++k) {
      PyObject* number = PyLong_FromLongLong(numbers_[k].of_call ? call->numbers[numbers_[k].i] : numbers_[k].i);
      if (number == nullptr) ThrowPythonError();
      PyTuple_SET_ITEM(args.object, num_operands + static_cast<Py_ssize_t>(k), number);
    }
    Ref result(PyObject_Call(callable_, args.object, nullptr));
    if (result.object == nullptr) ThrowPythonError();
    try {
      TakeResults(call, result.object);
    } catch (...) {
      ReleaseResults(call);
      throw;
    }
  }

 private:
  void TakeResults(TenonOpCall* call, PyObject* result) {
    if (!PyList_Check(result) && !PyTuple_Check(result)) {
      Give(call, 0, ToTensor(result));
      return;
    }
    Ref items(PySequence_Fast(result, "a list or tuple"));
    for (size_t k = 0; k < expected.size(); ++k) {
      const bool there = static_cast<Py_ssize_t>(k) < PySequence_Fast_GET_SIZE(items.object);
      Give(call, k, there ? ToTensor(PySequence_Fast_GET_ITEM(items.object, k)) : at::Tensor());
    }
  }
  static at::Tensor ToTensor(PyObject* object) {
    return THPVariable_Check(object) ? THPVariable_Unpack(object) : at::Tensor();
  }

  PyObject* callable_;
  const std::vector<Number> numbers_;
};

}  // namespace

int64_t RegisterCallable(PyObject* callable) {
  Callables()[next_id] = Py_NewRef(callable);
  return next_id++;
}

void UnregisterCallable(int64_t id) {
  const auto found = Callables().find(id);
  if (found == Callables().end()) return;
  PyObject* callable = found->second;
  Callables().erase(found);
  Py_DECREF(callable);
}

std::unique_ptr<Op> PreparePythonOp(const TenonOpSpec& spec) {
  int64_t id = -1;
  const char* number = spec.overload + std::strlen("python.");
  std::from_chars(number, number + std::strlen(number), id);
  TORCH_CHECK(spec.rule != 0, "a Python callable has no out=");
  Gil gil;
  const auto found = Callables().find(id);
  TORCH_CHECK(found != Callables().end(), "no such Python callable");
  constexpr int32_t kInt = 2, kSymInt = 12;  // the numbers of FrameworkArg::Kind
  std::vector<PythonOp::Number> numbers;
  for (const TenonArg& arg : std::span(spec.args, static_cast<size_t>(spec.num_args))) {
    if (arg.kind == kInt || arg.kind == kSymInt) numbers.push_back({arg.kind == kSymInt, arg.i});
  }
  return std::make_unique<PythonOp>(Py_NewRef(found->second), std::move(numbers));
}

}  // namespace tenon::torch_host
