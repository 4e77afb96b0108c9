#include "torch_plugin/executor/training_call.h"

#include "torch_plugin/executor/node_version.h"

#if TENON_AUTOGRAD_NODE

#include <ATen/ops/_unsafe_view.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <structmember.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/object_ptr.h>
#include <torch/csrc/utils/python_numbers.h>

#include <memory>
#include <utility>

#include "torch_plugin/executor/autograd_node.h"
#include "torch_plugin/executor/gil.h"

namespace tenon::torch_host {
namespace {

struct TrainingCallObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* weakrefs;
  PyObject* stock;  // AOTAutograd's wrapper of the same graphs
  std::shared_ptr<TrainingPlan>* plan;
};

TrainingCallObject* Cast(PyObject* self) { return reinterpret_cast<TrainingCallObject*>(self); }

// ---- the call -------------------------------------------------------------------------------------

// While compiled autograd is on, AOTAutograd's wrapper is better: its backward is inlined. torch._dynamo.compiled_autograd's flag.
PyObject* compiled_autograd = nullptr;       // the module
PyObject* compiled_autograd_flag = nullptr;  // the name
bool CompiledAutograd() {
  THPObjectPtr on(PyObject_GetAttr(compiled_autograd, compiled_autograd_flag));
  if (!on) throw python_error();
  return on.get() != Py_False;
}

// The arguments as the plan has them. False: they are of other kinds, or have tangents, over which AOTAutograd raises.
bool Read(const TrainingPlan& plan, PyObject* const* args, Arguments* arguments) {
  arguments->resize(plan.inputs.size());
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    if (plan.inputs[i].number) {
      if (!PyLong_CheckExact(args[i])) return false;  // a jagged tensor's lengths
      (*arguments)[i] = Argument(THPUtils_unpackLong(args[i]));
      continue;
    }
    if (!THPVariable_Check(args[i])) return false;
    const at::Tensor& tensor = THPVariable_Unpack(args[i]);
    c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    if (!IsPlain(impl) || tensor._fw_grad(0).defined()) return false;
    (*arguments)[i] = Argument::Borrow(impl);
  }
  return true;
}

NodePtr<TrainingNode> NewNode(const std::shared_ptr<TrainingPlan>& plan, PyObject* const* args) {
  torch::autograd::edge_list edges(plan->inputs.size());
  for (size_t i = 0; i < edges.size(); ++i) {
    if (!plan->inputs[i].differentiable) continue;
    const at::Tensor& tensor = THPVariable_Unpack(args[i]);
    if (tensor.requires_grad()) edges[i] = torch::autograd::impl::gradient_edge(tensor);
  }
  auto node = MakeNode<TrainingNode>(plan);
  node->set_next_edges(std::move(edges));
  return node;
}

at::Tensor TakeTensor(Result* result, PyObject* const* args) {
  if (result->kind == Result::Kind::kArgument) return THPVariable_Unpack(args[result->number]);
  return std::move(result->tensor);  // undefined for None
}

int64_t TakeNumber(const Result& result, const Arguments& arguments) {
  const bool passed = result.kind == Result::Kind::kArgument && arguments[result.number].kind() == Argument::Kind::kNumber;
  TORCH_CHECK(passed || result.kind == Result::Kind::kNumber, "compiled forward: a saved size is no number");
  return passed ? arguments[result.number].number() : result.number;
}

// The output as its caller gets it.
PyObject* Make(const TrainingPlan::Output& out, Result* result, PyObject* const* args, const NodePtr<TrainingNode>& node) {
  if (out.argument >= 0) return Py_NewRef(args[out.argument]);
  if (result->kind == Result::Kind::kNumber) return PyLong_FromLongLong(result->number);
  if (result->kind == Result::Kind::kArgument && PyLong_Check(args[result->number])) return Py_NewRef(args[result->number]);
  TORCH_CHECK(result->kind != Result::Kind::kArgument, "compiled forward: an output is argument ", result->number);
  at::Tensor tensor = std::move(result->tensor);
  if (!tensor.defined()) return Py_NewRef(Py_None);
  if (tensor.is_view()) {  // its memory's owner is only saved: as AOTAutograd does it
    c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset);
    tensor = at::_unsafe_view(tensor, tensor.sizes());
  }
  if (out.differentiable) torch::autograd::set_history(tensor, node);
  return THPVariable_Wrap(std::move(tensor));
}

PyObject* Finish(const TrainingPlan::Output& out, Result* result, PyObject* const* args, const NodePtr<TrainingNode>& node) {
  THPObjectPtr object(Make(out, result, args, node));
  if (!object) throw python_error();
  if (out.dynamic != nullptr) {
    THPObjectPtr told(PyObject_CallOneArg(out.dynamic->ptr(getPyInterpreter()), object.get()));
    if (!told) throw python_error();
  }
  return object.release();
}

PyObject* Forward(const std::shared_ptr<TrainingPlan>& plan, PyObject* const* args, Arguments arguments) {
  const NodePtr<TrainingNode> node = NewNode(plan, args);
  for (size_t i = 0; i < plan->inputs.size(); ++i) {
    if (plan->inputs[i].written && !arguments[i].tensor()->is_inference()) arguments[i].tensor()->bump_version();
  }
  // While C++ has the only other reference, every count up and down of it would take the GIL: so one is held throughout.
  c10::SmallVector<at::Tensor, 8> held;
  for (const Argument& argument : arguments) {
    if (argument.tensor() != nullptr && c10::raw::intrusive_ptr::use_count(argument.tensor()) == 1) held.push_back(argument.Share());
  }
  plan->counts->forwards.fetch_add(1, std::memory_order_relaxed);
  Results results;
  {
    NoGil no_gil;
    results = plan->forward.Run(arguments);
  }
  const size_t visible = plan->outputs.size();
  const size_t numbers = visible + static_cast<size_t>(plan->saved);
  TORCH_CHECK(results.size() == numbers + static_cast<size_t>(plan->saved_numbers), "compiled forward: wanted ", visible, " + ",
              plan->saved + plan->saved_numbers, " outputs, got ", results.size());
  THPObjectPtr outputs(PyTuple_New(static_cast<Py_ssize_t>(visible)));
  if (!outputs) throw python_error();
  for (size_t k = 0; k < visible; ++k) {
    PyTuple_SET_ITEM(outputs.get(), static_cast<Py_ssize_t>(k), Finish(plan->outputs[k], &results[k], args, node));
  }
  c10::SmallVector<at::Tensor, 16> saved;
  for (size_t k = visible; k < numbers; ++k) saved.push_back(TakeTensor(&results[k], args));
  std::vector<int64_t> sizes;
  for (size_t k = numbers; k < results.size(); ++k) sizes.push_back(TakeNumber(results[k], arguments));
  node->Save(std::span<at::Tensor>(saved), std::move(sizes));
  return outputs.release();
}

PyObject* Call(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  HANDLE_TH_ERRORS
  const std::shared_ptr<TrainingPlan>& plan = *Cast(self)->plan;
  Arguments arguments;
  if (kwnames == nullptr && static_cast<size_t>(PyVectorcall_NARGS(nargsf)) == plan->inputs.size() && c10::GradMode::is_enabled() &&
      !CompiledAutograd() && Read(*plan, args, &arguments)) {
    return Forward(plan, args, std::move(arguments));
  }
  plan->counts->stock_calls.fetch_add(1, std::memory_order_relaxed);
  return PyObject_Vectorcall(Cast(self)->stock, args, nargsf, kwnames);
  END_HANDLE_TH_ERRORS
}

// ---- counts ---------------------------------------------------------------------------------------

constexpr const char* kCounts = "tenon training counts";

PyObject* ReadCounts(PyObject* capsule, PyObject* reset) {
  const int zero = PyObject_IsTrue(reset);
  if (zero < 0) return nullptr;
  auto& counts = **static_cast<std::shared_ptr<TrainingCounts>*>(PyCapsule_GetPointer(capsule, kCounts));
  const auto read = [zero](std::atomic<int64_t>& count) { return static_cast<long long>(zero != 0 ? count.exchange(0) : count.load()); };
  return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L}", "forwards", read(counts.forwards), "backwards", read(counts.backwards), "by_aten",
                       read(counts.by_aten), "stock_calls", read(counts.stock_calls), "accumulated", read(counts.accumulated));
}
PyMethodDef kReadCounts = {"counts", ReadCounts, METH_O, "counts(reset) -> how often the graph ran, and what ran it; outlives the graph."};

PyObject* Counts(PyObject* self, PyObject*) {
  auto counts = std::make_unique<std::shared_ptr<TrainingCounts>>((*Cast(self)->plan)->counts);
  THPObjectPtr capsule(PyCapsule_New(counts.get(), kCounts, [](PyObject* dead) {
    delete static_cast<std::shared_ptr<TrainingCounts>*>(PyCapsule_GetPointer(dead, kCounts));
  }));
  if (!capsule) return nullptr;
  counts.release();
  return PyCFunction_New(&kReadCounts, capsule.get());
}

// ---- making one -----------------------------------------------------------------------------------

std::shared_ptr<c10::SafePyObject> Hold(PyObject* object) {
  return std::make_shared<c10::SafePyObject>(Py_NewRef(object), getPyInterpreter());
}

template <typename F>
bool ForEach(PyObject* sequence, const char* wanted, const F& read) {
  THPObjectPtr items(PySequence_Fast(sequence, wanted));
  if (!items) return false;
  for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(items.get()); ++k) {
    if (!read(PySequence_Fast_GET_ITEM(items.get(), k))) return false;
  }
  return true;
}
bool ReadNumbers(PyObject* sequence, std::vector<int64_t>* numbers) {
  return ForEach(sequence, "wanted a sequence of ints", [numbers](PyObject* item) {
    numbers->push_back(PyLong_AsLongLong(item));
    return PyErr_Occurred() == nullptr;
  });
}
bool ReadInput(TrainingPlan* plan, PyObject* item) {
  int number, differentiable, written, accumulates;
  if (!PyArg_ParseTuple(item, "pppp", &number, &differentiable, &written, &accumulates)) return false;
  plan->inputs.push_back({number != 0, differentiable != 0, written != 0, accumulates != 0});
  return true;
}
bool ReadOutput(TrainingPlan* plan, PyObject* item) {
  long long argument;
  int differentiable;
  PyObject* dynamic;
  if (!PyArg_ParseTuple(item, "LpO", &argument, &differentiable, &dynamic)) return false;
  if (argument >= static_cast<long long>(plan->inputs.size())) {
    PyErr_Format(PyExc_ValueError, "an output is argument %lld of %zu", argument, plan->inputs.size());
    return false;
  }
  plan->outputs.push_back({argument, differentiable != 0, dynamic == Py_None ? nullptr : Hold(dynamic)});
  return true;
}
bool ReadTangent(TrainingPlan* plan, PyObject* item) {
  PyObject *dtype, *sizes, *strides, *order;
  if (!PyArg_ParseTuple(item, "O!OOO", &THPDtypeType, &dtype, &sizes, &strides, &order)) return false;
  TrainingPlan::Tangent tangent;
  tangent.dtype = reinterpret_cast<THPDtype*>(dtype)->scalar_type;
  tangent.dynamic = order != Py_None;
  if (tangent.dynamic && !ReadNumbers(order, &tangent.order)) return false;
  if (!tangent.dynamic && !(ReadNumbers(sizes, &tangent.sizes) && ReadNumbers(strides, &tangent.strides))) return false;
  plan->tangents.push_back(std::move(tangent));
  return true;
}

bool FindCompiledAutograd() {
  if (compiled_autograd != nullptr) return true;
  compiled_autograd_flag = PyUnicode_InternFromString("compiled_autograd_enabled");
  compiled_autograd = PyImport_ImportModule("torch._dynamo.compiled_autograd");
  return compiled_autograd != nullptr && compiled_autograd_flag != nullptr;
}

PyTypeObject* type = nullptr;

PyObject* MakeTrainingCall(PyObject*, PyObject* args, PyObject* kwargs) {
  HANDLE_TH_ERRORS
  static const char* kNames[] = {"stock", "forward", "make_backward", "aten_backward", "inputs", "outputs", "tangents", "saved",
                                 "saved_numbers", "saved_unchecked", "nondeterministic", nullptr};
  PyObject *stock, *forward, *make_backward, *aten_backward, *inputs, *outputs, *tangents;
  long long saved, saved_numbers, saved_unchecked;
  int nondeterministic;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$OOOOOOOLLLp", const_cast<char**>(kNames), &stock, &forward, &make_backward,
                                   &aten_backward, &inputs, &outputs, &tangents, &saved, &saved_numbers, &saved_unchecked,
                                   &nondeterministic)) {
    return nullptr;
  }
  auto plan = std::make_shared<TrainingPlan>();
  plan->saved = saved;
  plan->saved_numbers = saved_numbers;
  plan->saved_unchecked = saved_unchecked;
  plan->nondeterministic = nondeterministic != 0;
  if (!ForEach(inputs, "wanted a sequence of inputs", [&](PyObject* item) { return ReadInput(plan.get(), item); }) ||
      !ForEach(outputs, "wanted a sequence of outputs", [&](PyObject* item) { return ReadOutput(plan.get(), item); }) ||
      !ForEach(tangents, "wanted a sequence of tangents", [&](PyObject* item) { return ReadTangent(plan.get(), item); }) ||
      !FindCompiledAutograd()) {
    return nullptr;
  }
  plan->forward = Program(forward);
  plan->make_backward = Hold(make_backward);
  plan->aten_backward = Hold(aten_backward);
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  Cast(self)->vectorcall = Call;
  Cast(self)->stock = Py_NewRef(stock);
  Cast(self)->plan = new std::shared_ptr<TrainingPlan>(std::move(plan));
  return self;
  END_HANDLE_TH_ERRORS
}

int Traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Cast(self)->stock);
  Py_VISIT(Py_TYPE(self));
  return 0;
}
int Clear(PyObject* self) {
  Py_CLEAR(Cast(self)->stock);
  return 0;
}
void Dealloc(PyObject* self) {
  PyTypeObject* own = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (Cast(self)->weakrefs != nullptr) PyObject_ClearWeakRefs(self);
  Clear(self);
  delete Cast(self)->plan;
  own->tp_free(self);
  Py_DECREF(own);
}

PyMethodDef kMethods[] = {{"counts", Counts, METH_NOARGS, "A function counts(reset) -> {what ran: how often}, which outlives this object."},
                          {nullptr, nullptr, 0, nullptr}};
PyMemberDef kMembers[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(TrainingCallObject, vectorcall), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(TrainingCallObject, weakrefs), READONLY, nullptr},
    {"stock", T_OBJECT, offsetof(TrainingCallObject, stock), READONLY, "AOTAutograd's wrapper of the same graphs."},
    {nullptr, 0, 0, 0, nullptr}};
PyType_Slot kSlots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(Dealloc)},
                        {Py_tp_traverse, reinterpret_cast<void*>(Traverse)},
                        {Py_tp_clear, reinterpret_cast<void*>(Clear)},
                        {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                        {Py_tp_methods, kMethods},
                        {Py_tp_members, kMembers},
                        {Py_tp_doc, const_cast<char*>("A training graph: tensors in, outputs with their history out.")},
                        {0, nullptr}};
PyType_Spec kSpec = {"torch_tenon._C.TrainingCall", sizeof(TrainingCallObject), 0,
                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION, kSlots};
PyMethodDef kMake = {"training_call", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(MakeTrainingCall)),
                     METH_VARARGS | METH_KEYWORDS,
                     "training_call(*, stock, forward, make_backward, aten_backward, inputs, outputs, tangents, saved, saved_numbers, "
                     "saved_unchecked, nondeterministic) -> TrainingCall; torch_tenon.training says what they are."};

}  // namespace

int AddTrainingCall(PyObject* module) {
  type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&kSpec));
  if (type == nullptr || PyModule_AddObjectRef(module, "TrainingCall", reinterpret_cast<PyObject*>(type)) != 0) return -1;
  THPObjectPtr make(PyCFunction_New(&kMake, nullptr));
  if (!make || PyModule_AddObjectRef(module, "training_call", make.get()) != 0) return -1;
  return PyModule_AddObjectRef(module, "AUTOGRAD_NODE", Py_True);
}

}  // namespace tenon::torch_host

#else

namespace tenon::torch_host {
int AddTrainingCall(PyObject* module) { return PyModule_AddObjectRef(module, "AUTOGRAD_NODE", Py_False); }
}  // namespace tenon::torch_host

#endif  // TENON_AUTOGRAD_NODE
