// The cheapest thing that can stand behind AOTAutograd: drops its boxed inputs and allocates the
// outputs, as zeros: what lies in memory may be subnormal, and gradients of that are added up many times slower. What a
// compiled call costs above this is the compiler's own doing.
#include <ATen/EmptyTensor.h>
#include <Python.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstring>
#include <memory>
#include <vector>

namespace {

struct Output {
  std::vector<int64_t> sizes, strides;
  at::ScalarType dtype;
};
using Plan = std::vector<Output>;
constexpr char kName[] = "alloc_only.plan";

std::vector<int64_t> Ints(PyObject* sequence) {
  std::vector<int64_t> values;
  for (Py_ssize_t i = 0; i < PySequence_Size(sequence); ++i) {
    PyObject* item = PySequence_GetItem(sequence, i);
    values.push_back(PyLong_AsLongLong(item));
    Py_DECREF(item);
  }
  return values;
}

PyObject* Run(PyObject* self, PyObject* inputs) {
  HANDLE_TH_ERRORS
  const auto& plan = *static_cast<Plan*>(PyCapsule_GetPointer(self, kName));
  if (PyList_SetSlice(inputs, 0, PyList_GET_SIZE(inputs), nullptr) < 0) return nullptr;
  PyObject* outputs = PyList_New(static_cast<Py_ssize_t>(plan.size()));
  for (size_t i = 0; i < plan.size(); ++i) {
    const Output& o = plan[i];
    at::Tensor t(at::detail::empty_strided_cpu(o.sizes, o.strides, o.dtype));
    if (t.storage().nbytes() > 0) std::memset(t.storage().mutable_data(), 0, t.storage().nbytes());
    PyList_SET_ITEM(outputs, static_cast<Py_ssize_t>(i), THPVariable_Wrap(std::move(t)));
  }
  return outputs;
  END_HANDLE_TH_ERRORS
}

PyMethodDef kRun = {"run", Run, METH_O, "list of inputs -> list of fresh outputs"};

// make([(sizes, strides, dtype), ...]) -> callable
PyObject* Make(PyObject*, PyObject* specs) {
  HANDLE_TH_ERRORS
  auto plan = std::make_unique<Plan>();
  for (Py_ssize_t i = 0; i < PyList_Size(specs); ++i) {
    PyObject* spec = PyList_GetItem(specs, i);
    auto* dtype = reinterpret_cast<THPDtype*>(PyTuple_GetItem(spec, 2));
    plan->push_back(
        {Ints(PyTuple_GetItem(spec, 0)), Ints(PyTuple_GetItem(spec, 1)), dtype->scalar_type});
  }
  PyObject* capsule = PyCapsule_New(plan.release(), kName, [](PyObject* self) {
    delete static_cast<Plan*>(PyCapsule_GetPointer(self, kName));
  });
  PyObject* run = PyCFunction_New(&kRun, capsule);
  Py_DECREF(capsule);
  return run;
  END_HANDLE_TH_ERRORS
}

PyMethodDef kMethods[] = {{"make", Make, METH_O, ""}, {nullptr, nullptr, 0, nullptr}};
PyModuleDef kModule = {PyModuleDef_HEAD_INIT, "alloc_only", nullptr, -1, kMethods};

}  // namespace

PyMODINIT_FUNC PyInit_alloc_only() { return PyModule_Create(&kModule); }
