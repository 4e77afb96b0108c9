#include "torch_plugin/executor/graph_object.h"

#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/object_ptr.h>

#include <deque>

#include "torch_plugin/executor/dtype.h"
#include "torch_plugin/executor/python_args.h"

namespace tenon::torch_host {
namespace {

struct GraphObject {
  PyObject_HEAD TenonGraph* graph;
  // While the graph is made, else NULL.
  PyObject* plain;      // tuple of the tensor types that are dense memory and nothing else
  PyObject* argument;   // callable(object) -> what Graph reads as an argument
  PyObject* described;  // callable(value) -> what Graph reads as a meta
  int resolved;         // a tensor with a conjugate or negative bit stands for what is read through it
};

GraphObject* Cast(PyObject* self) { return reinterpret_cast<GraphObject*>(self); }

PyTypeObject* graph_type = nullptr;
PyTypeObject *value_type = nullptr, *symbolic_type = nullptr, *window_type = nullptr;

PyObject* Raise(char* error) {
  PyErr_SetString(PyExc_RuntimeError, error != nullptr ? error : "out of memory");
  tenon_string_free(error);
  return nullptr;
}
bool Tell(char* error) { return Raise(error) != nullptr; }

// What is known of values: TenonMetas and what they point at.
class Metas {
 public:
  explicit Metas(GraphObject* self) : self_(self) {}

  // A tensor, a number, None; else what the callable `described` makes of it. False: a Python error is set.
  bool Read(PyObject* value, TenonMeta* meta) {
    *meta = {};
    if (value == nullptr || value == Py_None) {
      meta->kind = TENON_META_NONE;
      return true;
    }
    if (PyLong_Check(value) && !PyBool_Check(value)) {
      meta->kind = TENON_META_SYMINT;
      meta->offset = PyLong_AsLongLong(value);
      return meta->offset != -1 || PyErr_Occurred() == nullptr;
    }
    if (THPVariable_Check(value) && ReadTensor(value, meta)) return true;
    if (self_->described == nullptr) {
      PyErr_Format(PyExc_TypeError, "wanted a dense CPU tensor, an int or None, got %s", Py_TYPE(value)->tp_name);
      return false;
    }
    PyObject* parts = PyObject_CallOneArg(self_->described, value);
    if (parts == nullptr) return false;
    kept_.emplace_back(parts);
    return ReadParts(parts, meta);
  }

 private:
  bool IsPlain(PyObject* value) const {
    if (self_->plain == nullptr) return THPVariable_CheckExact(value);
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(self_->plain); ++k) {
      if (PyTuple_GET_ITEM(self_->plain, k) == reinterpret_cast<PyObject*>(Py_TYPE(value))) return true;
    }
    return false;
  }

  // False: this tensor is more, or less, than dense CPU memory of numbers, or its sizes are symbolic.
  bool ReadTensor(PyObject* value, TenonMeta* meta) {
    const c10::TensorImpl& impl = *THPVariable_Unpack(value).unsafeGetTensorImpl();
    if (!IsPlain(value) || impl.layout() != c10::kStrided || impl.is_nested() || impl.has_symbolic_sizes_strides()) return false;
    if (self_->resolved == 0 && (impl.is_conj() || impl.is_neg())) return false;
    const int32_t dtype = FromTorch(c10::typeMetaToScalarType(impl.dtype()));
    // By its keys, which for a fake tensor are of the device that it stands for; asking for the device itself calls Python.
    if (dtype < 0 || !impl.key_set().has_backend(c10::BackendComponent::CPUBit)) return false;
    meta->kind = TENON_META_TENSOR;
    meta->dtype = dtype;
    meta->ndim = static_cast<int32_t>(impl.dim());
    meta->sizes = impl.sizes().data();
    meta->strides = impl.strides().data();
    meta->offset = impl.storage_offset();
    return true;
  }

  // ("symint", number), ("other", why), ("tensor", dtype, sizes, strides, offset): a number is an int, or the text of an expression.
  bool ReadParts(PyObject* parts, TenonMeta* meta) {
    if (parts == Py_None) {
      meta->kind = TENON_META_NONE;
      return true;
    }
    const char* kind = PyTuple_Check(parts) && PyTuple_GET_SIZE(parts) >= 2 ? PyUnicode_AsUTF8(PyTuple_GET_ITEM(parts, 0)) : nullptr;
    const std::string_view name = kind == nullptr ? "" : kind;
    if (name == "other") {
      meta->kind = TENON_META_OTHER;
      meta->other = PyUnicode_AsUTF8(PyTuple_GET_ITEM(parts, 1));
      return meta->other != nullptr;
    }
    std::vector<const char*>& expressions = expressions_.emplace_back();
    if (name == "symint") {
      meta->kind = TENON_META_SYMINT;
      if (!ReadNumber(PyTuple_GET_ITEM(parts, 1), &meta->offset, &expressions)) return false;
    } else if (name == "tensor" && PyTuple_GET_SIZE(parts) == 5 && THPDtype_Check(PyTuple_GET_ITEM(parts, 1))) {
      meta->kind = TENON_META_TENSOR;
      meta->dtype = FromTorch(reinterpret_cast<THPDtype*>(PyTuple_GET_ITEM(parts, 1))->scalar_type);
      std::vector<int64_t>&sizes = numbers_.emplace_back(), &strides = numbers_.emplace_back();
      if (!ReadNumbers(PyTuple_GET_ITEM(parts, 2), &sizes, &expressions)) return false;
      if (!ReadNumbers(PyTuple_GET_ITEM(parts, 3), &strides, &expressions)) return false;
      if (!ReadNumber(PyTuple_GET_ITEM(parts, 4), &meta->offset, &expressions)) return false;
      if (sizes.size() != strides.size()) {
        PyErr_Format(PyExc_ValueError, "wanted %zu strides, got %zu", sizes.size(), strides.size());
        return false;
      }
      meta->ndim = static_cast<int32_t>(sizes.size());
      meta->sizes = sizes.data();
      meta->strides = strides.data();
    } else {
      if (PyErr_Occurred() != nullptr) return false;
      PyErr_SetString(PyExc_TypeError, "wanted None, (\"symint\", n), (\"other\", why) or (\"tensor\", ...)");
      return false;
    }
    meta->expressions = expressions.data();
    return true;
  }
  static bool ReadNumber(PyObject* object, int64_t* number, std::vector<const char*>* expressions) {
    *number = 0;
    const char* text = nullptr;
    if (PyUnicode_Check(object)) {
      text = PyUnicode_AsUTF8(object);
      if (text == nullptr) return false;
    } else {
      *number = PyLong_AsLongLong(object);
      if (*number == -1 && PyErr_Occurred() != nullptr) return false;
    }
    expressions->push_back(text);
    return true;
  }
  static bool ReadNumbers(PyObject* sequence, std::vector<int64_t>* numbers, std::vector<const char*>* expressions) {
    if (!PyTuple_Check(sequence) && !PyList_Check(sequence)) {
      PyErr_SetString(PyExc_TypeError, "wanted a list of sizes");
      return false;
    }
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(sequence); ++k) {
      if (!ReadNumber(PySequence_Fast_GET_ITEM(sequence, k), &numbers->emplace_back(), expressions)) return false;
    }
    return true;
  }

  GraphObject* self_;
  std::vector<THPObjectPtr> kept_;
  std::deque<std::vector<int64_t>> numbers_;
  std::deque<std::vector<const char*>> expressions_;
};

// The lists of windows, while a node is made.
using Lists = std::deque<std::vector<TenonArg>>;

bool ReadNumberList(PyObject* sequence, Lists* lists, TenonArg* arg) {
  std::vector<TenonArg>& list = lists->emplace_back();
  if (!PyList_Check(sequence) && !PyTuple_Check(sequence)) {
    PyErr_SetString(PyExc_TypeError, "wanted a list of numbers in a window");
    return false;
  }
  for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(sequence); ++k) {
    TenonArg& number = list.emplace_back();
    number.kind = kArgInt;
    number.i = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(sequence, k));
    if (number.i == -1 && PyErr_Occurred() != nullptr) return false;
  }
  arg->kind = kArgList;
  arg->list = list.data();
  arg->list_size = static_cast<int64_t>(list.size());
  return true;
}

// (name, sizes or None, strides, offset)
bool ReadWindow(const GraphObject* self, PyObject* object, Lists* lists, TenonArg* arg) {
  if (lists == nullptr || PyTuple_GET_SIZE(object) != 4) {
    PyErr_SetString(PyExc_TypeError, "wanted Window((value, sizes or None, strides, offset)) as an argument of a node");
    return false;
  }
  const char* name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(object, 0));
  if (name == nullptr) return false;
  char* error = nullptr;
  *arg = {};
  arg->kind = kArgTensor;
  arg->i = tenon_graph_value(self->graph, name, &error);
  if (arg->i < 0) return Tell(error);
  const bool view = PyTuple_GET_ITEM(object, 1) != Py_None;
  std::vector<TenonArg>& list = lists->emplace_back(view ? 3 : 1);
  if (view && !ReadNumberList(PyTuple_GET_ITEM(object, 1), lists, &list[0])) return false;
  if (!ReadNumberList(PyTuple_GET_ITEM(object, 2), lists, &list[view ? 1 : 0])) return false;
  if (view) {
    list[2].kind = kArgInt;
    list[2].i = PyLong_AsLongLong(PyTuple_GET_ITEM(object, 3));
    if (list[2].i == -1 && PyErr_Occurred() != nullptr) return false;
  }
  arg->list = list.data();
  arg->list_size = static_cast<int64_t>(list.size());
  return true;
}

// 1: the object is a Value, with its number in `arg`, a Window of one, or Symbolic.
int ReadValue(const GraphObject* self, PyObject* object, TenonArg* arg, Lists* lists = nullptr) {
  if (Py_TYPE(object) == window_type) return ReadWindow(self, object, lists, arg) ? 1 : -1;
  if (Py_TYPE(object) != value_type && Py_TYPE(object) != symbolic_type) return 0;
  const char* name = PyUnicode_AsUTF8(object);
  if (name == nullptr) return -1;
  char* error = nullptr;
  *arg = {};
  if (Py_TYPE(object) == symbolic_type) {
    arg->kind = kArgSymInt;
    arg->s = name;
    return 1;
  }
  arg->kind = kArgTensor;
  arg->i = tenon_graph_value(self->graph, name, &error);
  return arg->i >= 0 || Tell(error) ? 1 : -1;
}

PyObject* New(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"name", "plain", "argument", "described", "resolved", nullptr};
  const char* name;
  PyObject *plain = nullptr, *argument = nullptr, *described = nullptr;
  int resolved = 1;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s|O!OOp", const_cast<char**>(keywords), &name, &PyTuple_Type, &plain, &argument,
                                   &described, &resolved)) {
    return nullptr;
  }
  char* error = nullptr;
  TenonGraph* graph = tenon_graph_new(name, &error);
  if (graph == nullptr) return Raise(error);
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) {
    tenon_graph_release(graph);
    return nullptr;
  }
  Cast(self)->graph = graph;
  Cast(self)->plain = Py_XNewRef(plain);
  Cast(self)->argument = Py_XNewRef(argument);
  Cast(self)->described = Py_XNewRef(described);
  Cast(self)->resolved = resolved;
  return self;
}

PyObject* Parse(PyObject*, PyObject* text) {
  Py_ssize_t size;
  const char* bytes = PyUnicode_AsUTF8AndSize(text, &size);
  if (bytes == nullptr) return nullptr;
  char* error = nullptr;
  TenonGraph* graph = tenon_graph_parse(bytes, static_cast<size_t>(size), &error);
  if (graph == nullptr) return Raise(error);
  PyObject* self = graph_type->tp_alloc(graph_type, 0);
  if (self == nullptr) {
    tenon_graph_release(graph);
    return nullptr;
  }
  Cast(self)->graph = graph;
  return self;
}

PyObject* Text(PyObject* self, PyObject*) {
  char* error = nullptr;
  char* text = tenon_graph_print(Cast(self)->graph, &error);
  if (text == nullptr) return Raise(error);
  PyObject* result = PyUnicode_FromString(text);
  tenon_string_free(text);
  return result;
}

PyObject* Symbol(PyObject* self, PyObject* args) {
  const char* name;
  long long lower, upper, typical = 0;
  if (!PyArg_ParseTuple(args, "sLL|L", &name, &lower, &upper, &typical)) return nullptr;
  char* error = nullptr;
  if (tenon_graph_symbol(Cast(self)->graph, name, lower, upper, typical, &error) != 0) return Raise(error);
  Py_RETURN_NONE;
}

using AddValue = int64_t (*)(TenonGraph*, const char*, const TenonMeta*, char**);

template <AddValue add>
PyObject* Declare(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  if (count != 2) return PyErr_Format(PyExc_TypeError, "wanted a name and a value, got %zd arguments", count);
  const char* name = PyUnicode_AsUTF8(args[0]);
  TenonMeta meta;
  Metas metas(Cast(self));
  if (name == nullptr || !metas.Read(args[1], &meta)) return nullptr;
  char* error = nullptr;
  if (add(Cast(self)->graph, name, &meta, &error) < 0) return Raise(error);
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyObject* AddLiteral(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  if (count != 2 || !THPVariable_Check(args[1])) return PyErr_Format(PyExc_TypeError, "wanted a name and a tensor");
  const char* name = PyUnicode_AsUTF8(args[0]);
  TenonMeta meta;
  Metas metas(Cast(self));
  if (name == nullptr || !metas.Read(args[1], &meta)) return nullptr;
  const at::Tensor& value = THPVariable_Unpack(args[1]);
  TORCH_CHECK_TYPE(value.is_cpu() && value.is_contiguous() && !value.is_conj() && !value.is_neg(),
                   "wanted a literal's elements dense and row-major in the host's memory");
  meta.offset = 0;
  char* error = nullptr;
  if (tenon_graph_literal(Cast(self)->graph, name, &meta, value.const_data_ptr(), value.nbytes(), &error) < 0) return Raise(error);
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

// node(op, args, names, metas, mutates_first, module_path, source, writes=())
PyObject* AddNode(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  constexpr Py_ssize_t kOp = 0, kArgs = 1, kNames = 2, kMetas = 3, kMutates = 4, kModule = 5, kSource = 6, kWrites = 7, kCount = 8;
  if (count != kCount && count != kWrites) return PyErr_Format(PyExc_TypeError, "wanted 7 or 8 arguments, got %zd", count);
  for (const Py_ssize_t k : {kArgs, kNames, kMetas, kWrites}) {
    const bool list = k >= count || PyList_Check(args[k]) || PyTuple_Check(args[k]);
    if (!list) return PyErr_Format(PyExc_TypeError, "argument %zd: wanted a list", k);
  }
  GraphObject* graph = Cast(self);
  TenonNode node = {};
  node.op = PyUnicode_AsUTF8(args[kOp]);
  node.module_path = PyUnicode_AsUTF8(args[kModule]);
  node.source = PyUnicode_AsUTF8(args[kSource]);
  if (node.op == nullptr || node.module_path == nullptr || node.source == nullptr) return nullptr;
  node.mutates_first = PyObject_IsTrue(args[kMutates]);
  Lists lists;
  PythonArgs read(
      [graph](PyObject* object) {
        if (graph->argument != nullptr) return PyObject_CallOneArg(graph->argument, object);
        return PyErr_Format(PyExc_TypeError, "wanted an argument of an operator, got %s", Py_TYPE(object)->tp_name);
      },
      [graph, &lists](PyObject* object, TenonArg* arg) { return ReadValue(graph, object, arg, &lists); });
  if (!read.ReadList(args[kArgs], &node.args, &node.num_args)) return nullptr;
  std::vector<int64_t> writes;
  for (Py_ssize_t k = 0; k < (count == kCount ? PySequence_Fast_GET_SIZE(args[kWrites]) : 0); ++k) {
    const char* name = PyUnicode_AsUTF8(PySequence_Fast_GET_ITEM(args[kWrites], k));
    if (name == nullptr) return nullptr;
    char* unknown = nullptr;
    writes.push_back(tenon_graph_value(graph->graph, name, &unknown));
    if (writes.back() < 0) return Raise(unknown);
  }
  node.writes = writes.data();
  node.num_writes = static_cast<int64_t>(writes.size());
  node.num_results = PySequence_Fast_GET_SIZE(args[kNames]);
  std::vector<const char*> names;
  for (int64_t k = 0; k < node.num_results; ++k) {
    names.push_back(PyUnicode_AsUTF8(PySequence_Fast_GET_ITEM(args[kNames], k)));
    if (names.back() == nullptr) return nullptr;
  }
  std::vector<TenonMeta> described(static_cast<size_t>(PySequence_Fast_GET_SIZE(args[kMetas])));
  Metas metas(graph);
  for (size_t k = 0; k < described.size(); ++k) {
    if (!metas.Read(PySequence_Fast_GET_ITEM(args[kMetas], static_cast<Py_ssize_t>(k)), &described[k])) return nullptr;
  }
  if (node.mutates_first == 0 && described.size() != names.size()) {
    return PyErr_Format(PyExc_ValueError, "%s: %zu names for %zu results", node.op, names.size(), described.size());
  }
  node.names = names.data();
  node.metas = described.data();
  char* error = nullptr;
  if (tenon_graph_node(graph->graph, &node, &error) < 0) return Raise(error);
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

int ClearCallables(PyObject* self) {
  Py_CLEAR(Cast(self)->plain);
  Py_CLEAR(Cast(self)->argument);
  Py_CLEAR(Cast(self)->described);
  return 0;
}

PyObject* Returns(PyObject* self, PyObject* outputs) {
  HANDLE_TH_ERRORS
  if (!PyList_Check(outputs) && !PyTuple_Check(outputs)) return PyErr_Format(PyExc_TypeError, "wanted a list of outputs");
  const GraphObject* graph = Cast(self);
  PythonArgs read(nullptr, [graph](PyObject* object, TenonArg* arg) { return ReadValue(graph, object, arg); });
  const TenonArg* args;
  int64_t count;
  if (!read.ReadList(outputs, &args, &count)) return nullptr;
  char* error = nullptr;
  if (tenon_graph_return(Cast(self)->graph, args, count, &error) != 0) return Raise(error);
  ClearCallables(self);
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

int Traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Cast(self)->plain);
  Py_VISIT(Cast(self)->argument);
  Py_VISIT(Cast(self)->described);
  Py_VISIT(Py_TYPE(self));
  return 0;
}
void Dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  ClearCallables(self);
  tenon_graph_release(Cast(self)->graph);
  type->tp_free(self);
  Py_DECREF(type);
}

template <typename F>
PyCFunction Fast(F function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef kMethods[] = {
    {"parse", Parse, METH_O | METH_STATIC, "parse(text) -> Graph: torch_plugin/aten/graph.h has the form."},
    {"text", Text, METH_NOARGS, "The graph as text, for dumps, tests and bug reports."},
    {"symbol", Symbol, METH_VARARGS, 
     "symbol(name, lower, upper, typical=0), before the first value that has it; typical: a value to plan for, 0 if none is known."},
    {"input", Fast(Declare<tenon_graph_input>), METH_FASTCALL,
     "input(name, value): a tensor, an int, None, or what `described` can tell of."},
    {"constant", Fast(Declare<tenon_graph_constant>), METH_FASTCALL, "constant(name, tensor): the next that the compile is given."},
    {"literal", Fast(AddLiteral), METH_FASTCALL, "literal(name, tensor): a constant whose elements are copied."},
    {"node", Fast(AddNode), METH_FASTCALL, "node(op, args, names, metas, mutates_first, module_path, source, writes=())"},
    {"returns", Returns, METH_O, "returns(outputs): Values, None, ints, Symbolic. The graph is complete."},
    {nullptr, nullptr, 0, nullptr}};
constexpr const char* kDoc =
    "Graph(name, plain=(), argument=None, described=None, resolved=True): an aten::Graph, made call by call. plain: the tensor types that "
    "are dense memory. argument, described: callables that make something simpler of what is no argument, or no tensor, by itself.";
PyType_Slot kSlots[] = {{Py_tp_new, reinterpret_cast<void*>(New)},
                        {Py_tp_dealloc, reinterpret_cast<void*>(Dealloc)},
                        {Py_tp_traverse, reinterpret_cast<void*>(Traverse)},
                        {Py_tp_clear, reinterpret_cast<void*>(ClearCallables)},
                        {Py_tp_methods, kMethods},
                        {Py_tp_doc, const_cast<char*>(kDoc)},
                        {0, nullptr}};
PyType_Spec kSpec = {"torch_tenon._C.Graph", sizeof(GraphObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, kSlots};

PyType_Slot kValueSlots[] = {{Py_tp_doc, const_cast<char*>("The name of a graph's value, where a string is an argument as well.")},
                             {0, nullptr}};
PyType_Spec kValueSpec = {"torch_tenon._C.Value", 0, 0, Py_TPFLAGS_DEFAULT, kValueSlots};
PyType_Slot kSymbolicSlots[] = {{Py_tp_doc, const_cast<char*>("The text of a size, an expression over a graph's symbols.")}, {0, nullptr}};
PyType_Spec kSymbolicSpec = {"torch_tenon._C.Symbolic", 0, 0, Py_TPFLAGS_DEFAULT, kSymbolicSlots};

PyType_Slot kWindowSlots[] = {
    {Py_tp_doc, const_cast<char*>("(value's name, sizes or None, strides, offset): the value in these strides, or a view of it.")},
    {0, nullptr}};
PyType_Spec kWindowSpec = {"torch_tenon._C.Window", 0, 0, Py_TPFLAGS_DEFAULT, kWindowSlots};

// A subclass of `base`.
PyTypeObject* AddSubtype(PyObject* module, const char* name, PyType_Spec* spec, PyTypeObject* base) {
  THPObjectPtr bases(PyTuple_Pack(1, reinterpret_cast<PyObject*>(base)));
  PyObject* type = bases ? PyType_FromSpecWithBases(spec, bases.get()) : nullptr;
  return type != nullptr && PyModule_AddObjectRef(module, name, type) == 0 ? reinterpret_cast<PyTypeObject*>(type) : nullptr;
}

}  // namespace

int AddGraphType(PyObject* module) {
  graph_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&kSpec));
  value_type = AddSubtype(module, "Value", &kValueSpec, &PyUnicode_Type);
  symbolic_type = AddSubtype(module, "Symbolic", &kSymbolicSpec, &PyUnicode_Type);
  window_type = AddSubtype(module, "Window", &kWindowSpec, &PyTuple_Type);
  if (graph_type == nullptr || value_type == nullptr || symbolic_type == nullptr || window_type == nullptr) return -1;
  return PyModule_AddObjectRef(module, "Graph", reinterpret_cast<PyObject*>(graph_type));
}

PyObject* HasDtype(PyObject*, PyObject* dtype) {
  return PyBool_FromLong(THPDtype_Check(dtype) && FromTorch(reinterpret_cast<THPDtype*>(dtype)->scalar_type) >= 0);
}

const TenonGraph* GraphOf(PyObject* object) { return Py_TYPE(object) == graph_type ? Cast(object)->graph : nullptr; }

}  // namespace tenon::torch_host
