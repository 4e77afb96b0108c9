#include "torch_plugin/executor/executable_object.h"

#include <structmember.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/object_ptr.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string_view>

#include "torch_plugin/executor/dtype.h"
#include "torch_plugin/executor/gil.h"
#include "torch_plugin/executor/graph_object.h"
#include "torch_plugin/executor/host.h"
#include "torch_plugin/executor/lost_operators.h"
#include "torch_plugin/executor/python_args.h"
#include "torch_plugin/executor/run.h"
#include "torch_plugin/executor/size_programs_object.h"
#include "torch_plugin/executor/tensor.h"
#include "torch_plugin/executor/tensor_function.h"

namespace tenon::torch_host {
namespace {

struct ExecutableObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* dict;
  PyObject* weakrefs;
  std::shared_ptr<CalleeCell>* cell;
};

ExecutableObject* Cast(PyObject* self) { return reinterpret_cast<ExecutableObject*>(self); }
std::shared_ptr<Callee> CalleeOf(PyObject* self) { return (*Cast(self)->cell)->load(std::memory_order_acquire); }

PyObject* Call(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  if (PyVectorcall_NARGS(nargsf) != 1 || kwnames != nullptr) {
    PyErr_SetString(PyExc_TypeError, "an Executable takes one argument, the list of inputs");
    return nullptr;
  }
  return RunExecutable(*CalleeOf(self), args[0]);
}

PyObject* TakeText(char* text) {
  PyObject* result = PyUnicode_FromString(text);
  tenon_string_free(text);
  return result;
}
PyObject* Info(PyObject* self, PyObject*) { return TakeText(tenon_executable_info(CalleeOf(self)->executable.get())); }
PyObject* Summary(PyObject* self, PyObject*) {
  const TenonSignature& s = *tenon_signature(CalleeOf(self)->executable.get());
  THPObjectPtr phases(PyDict_New());
  if (!phases) return nullptr;
  for (int64_t k = 0; k < s.num_phases; ++k) {
    THPObjectPtr ms(PyFloat_FromDouble(s.compile_ms[k].ms));
    if (!ms || PyDict_SetItemString(phases.get(), s.compile_ms[k].name, ms.get()) != 0) return nullptr;
  }
  return Py_BuildValue("(ssLLO)", s.native != 0 ? "native" : "eager_program", s.reason, static_cast<long long>(s.num_kernels),
                       static_cast<long long>(s.planned_bytes), phases.get());
}
PyObject* Text(PyObject* self, PyObject*) { return TakeText(tenon_executable_text(CalleeOf(self)->executable.get())); }
PyObject* Report(PyObject* self, PyObject*) { return TakeText(tenon_executable_report(CalleeOf(self)->executable.get())); }
PyObject* Stats(PyObject* self, PyObject* reset) {
  const int flag = PyObject_IsTrue(reset);
  if (flag < 0) return nullptr;
  return TakeText(tenon_executable_stats(CalleeOf(self)->executable.get(), flag));
}
PyObject* FrozenAccount(PyObject* self, PyObject*) {
  const std::shared_ptr<FrozenValues> frozen = CalleeOf(self)->frozen;
  if (frozen == nullptr) Py_RETURN_NONE;
  const FrozenValues::Account a = frozen->account();
  return Py_BuildValue("{s:L,s:L,s:L,s:L}", "values", a.values, "bytes", a.bytes, "sets", a.sets, "computed", a.computed);
}
PyObject* Refresh(PyObject* self, PyObject*) {
  if (const std::shared_ptr<FrozenValues> frozen = CalleeOf(self)->frozen) {
    NoGil no_gil;
    frozen->Forget();
  }
  Py_RETURN_NONE;
}
PyObject* OnceText(PyObject* self, PyObject*) {
  TenonExecutable* once = tenon_executable_once(CalleeOf(self)->executable.get());
  if (once == nullptr) Py_RETURN_NONE;
  return TakeText(tenon_executable_text(once));
}
// Puts a changed copy of the callee into its place. Whatever changes the object holds the GIL, so nothing is lost between.
template <typename Change>
void Replace(PyObject* self, const Change& change) {
  auto callee = std::make_shared<Callee>(*CalleeOf(self));
  change(*callee);
  (*Cast(self)->cell)->store(std::move(callee), std::memory_order_release);
}
PyObject* AllowEarlyRelease(PyObject* self, PyObject*) {
  Replace(self, [](Callee& callee) {
    for (Callee::Input& in : callee.inputs) in.movable = in.tensor && !in.returned;
  });
  Py_RETURN_NONE;
}

PyObject* Function(PyObject* self, PyObject*) {
  auto function = std::make_unique<TensorFunction>(
      [cell = *Cast(self)->cell](std::span<const at::Tensor> inputs) { return cell->load(std::memory_order_acquire)->Run(inputs); });
  PyObject* capsule = PyCapsule_New(function.get(), kTensorFunction, [](PyObject* dead) {
    delete static_cast<TensorFunction*>(PyCapsule_GetPointer(dead, kTensorFunction));
  });
  if (capsule != nullptr) function.release();
  return capsule;
}

bool ReadNumbers(PyObject* sequence, std::vector<int64_t>* out) {
  THPObjectPtr items(PySequence_Fast(sequence, "wanted a sequence of ints"));
  if (!items) return false;
  for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(items.get()); ++k) {
    out->push_back(PyLong_AsLongLong(PySequence_Fast_GET_ITEM(items.get(), k)));
  }
  return PyErr_Occurred() == nullptr;
}

// A number, or (k,): output k, which is one. `outputs` says which.
bool ReadRecipeNumber(PyObject* item, int64_t* number, std::vector<bool>* outputs) {
  const bool output = PyTuple_Check(item) && PyTuple_GET_SIZE(item) == 1;
  outputs->push_back(output);
  *number = PyLong_AsLongLong(output ? PyTuple_GET_ITEM(item, 0) : item);
  return PyErr_Occurred() == nullptr;
}

bool ReadRecipeNumbers(PyObject* sequence, std::vector<int64_t>* out, std::vector<bool>* outputs) {
  THPObjectPtr items(PySequence_Fast(sequence, "wanted a sequence of ints"));
  if (!items) return false;
  out->resize(PySequence_Fast_GET_SIZE(items.get()));
  for (size_t k = 0; k < out->size(); ++k) {
    if (!ReadRecipeNumber(PySequence_Fast_GET_ITEM(items.get(), static_cast<Py_ssize_t>(k)), &(*out)[k], outputs)) return false;
  }
  return true;
}

// (dtype, conjugate bit, negative bit).
bool ReadReading(PyObject* item, std::optional<Callee::Reading>* reading) {
  PyObject* dtype;
  int conj, neg;
  if (!PyArg_ParseTuple(item, "O!pp", &THPDtypeType, &dtype, &conj, &neg)) return false;
  *reading = {reinterpret_cast<THPDtype*>(dtype)->scalar_type, conj != 0, neg != 0};
  return true;
}

bool ReadRecipe(const Callee& callee, PyObject* item, Callee::Recipe* recipe) {
  if (PyLong_Check(item)) {
    recipe->index = PyLong_AsLongLong(item);
  } else {
    int of_input;
    long long index;
    PyObject *sizes, *strides, *offset, *reading;
    if (!PyArg_ParseTuple(item, "pLOOOO", &of_input, &index, &sizes, &strides, &offset, &reading)) return false;
    *recipe = {.view = true, .of_input = of_input != 0, .index = index};
    if (reading != Py_None && !ReadReading(reading, &recipe->reading)) return false;
    std::vector<bool> outputs;
    if (!ReadRecipeNumbers(sizes, &recipe->sizes, &outputs) || !ReadRecipeNumbers(strides, &recipe->strides, &outputs) ||
        !ReadRecipeNumber(offset, &recipe->offset, &outputs)) {
      return false;
    }
    for (size_t k = 0; k < outputs.size(); ++k) {
      const size_t rank = recipe->sizes.size();
      const int64_t number = k < rank ? recipe->sizes[k] : k < 2 * rank ? recipe->strides[k - rank] : recipe->offset;
      const bool known = number >= 0 && number < static_cast<int64_t>(callee.outputs.size());
      if (!outputs[k] || (known && callee.outputs[number].kind == 5)) continue;
      PyErr_SetString(PyExc_ValueError, "a recipe's number is no output that is one");
      return false;
    }
    if (std::find(outputs.begin(), outputs.end(), true) != outputs.end()) recipe->outputs = std::move(outputs);
  }
  const size_t count = recipe->of_input ? callee.inputs.size() : callee.outputs.size();
  if (recipe->index >= 0 && static_cast<size_t>(recipe->index) < count && recipe->sizes.size() == recipe->strides.size()) return true;
  PyErr_SetString(PyExc_ValueError, "a recipe refers to nothing");
  return false;
}

PyObject* SetRecipes(PyObject* self, PyObject* sequence) {
  const std::shared_ptr<Callee> callee = CalleeOf(self);
  THPObjectPtr items(PySequence_Fast(sequence, "wanted a list of recipes"));
  if (!items) return nullptr;
  std::vector<Callee::Recipe> recipes(PySequence_Fast_GET_SIZE(items.get()));
  for (size_t k = 0; k < recipes.size(); ++k) {
    if (!ReadRecipe(*callee, PySequence_Fast_GET_ITEM(items.get(), static_cast<Py_ssize_t>(k)), &recipes[k])) return nullptr;
  }
  Replace(self, [&](Callee& changed) {
    for (const Callee::Recipe& recipe : recipes) {
      if (recipe.of_input) changed.inputs[recipe.index].returned = true;
    }
    changed.recipes = std::move(recipes);
  });
  Py_RETURN_NONE;
}

PyObject* SetRefused(PyObject* self, PyObject* callable) {
  auto held = std::make_shared<c10::SafePyObject>(Py_NewRef(callable), getPyInterpreter());
  Replace(self, [&](Callee& callee) {
    callee.refused = [held](std::span<const Argument> arguments, const char* why) {
      return CallRefused(held->ptr(getPyInterpreter()), arguments, why);
    };
  });
  Py_RETURN_NONE;
}

PyObject* SetSizes(PyObject* self, PyObject* args) {
  std::shared_ptr<SizePrograms> sizes = MakeSizePrograms(CalleeOf(self)->inputs.size(), args);
  if (sizes == nullptr) return nullptr;
  Replace(self, [&](Callee& callee) { callee.sizes = std::move(sizes); });
  Py_RETURN_NONE;
}
PyObject* AddProgram(PyObject* self, PyObject* args) {
  const std::shared_ptr<SizePrograms> sizes = CalleeOf(self)->sizes;
  if (sizes == nullptr) return PyErr_Format(PyExc_ValueError, "add_program: set_sizes() first");
  return AddNeededProgram(*sizes, args) ? Py_NewRef(Py_None) : nullptr;
}

PyObject* SetRerun(PyObject* self, PyObject* args) {
  PyObject* callable;
  int random, backward;
  if (!PyArg_ParseTuple(args, "Opp", &callable, &random, &backward)) return nullptr;
  auto held = std::make_shared<c10::SafePyObject>(Py_NewRef(callable), getPyInterpreter());
  Replace(self, [&](Callee& callee) {
    callee.rerun = [held](std::span<const Argument> arguments, const char* reason, bool lasting) {
      return CallRerun(held->ptr(getPyInterpreter()), arguments, reason, lasting);
    };
    callee.random = random != 0;
    callee.backward = backward != 0;
  });
  Py_RETURN_NONE;
}

int Traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Cast(self)->dict);
  Py_VISIT(Py_TYPE(self));
  return 0;
}
int Clear(PyObject* self) {
  Py_CLEAR(Cast(self)->dict);
  return 0;
}
// The record that Python attached gets the last counters.
void Finalize(PyObject* self) {
  PyObject* record = Cast(self)->dict == nullptr ? nullptr : PyDict_GetItemString(Cast(self)->dict, "record");
  if (record == nullptr || !InterpreterIsAlive()) return;
  PyObject* type;
  PyObject* value;
  PyObject* trace;
  PyErr_Fetch(&type, &value, &trace);
  THPObjectPtr stats(Stats(self, Py_False));
  THPObjectPtr done(stats ? PyObject_CallMethod(record, "retire", "O", stats.get()) : nullptr);
  if (!done) PyErr_WriteUnraisable(self);
  PyErr_Restore(type, value, trace);
}
void Dealloc(PyObject* self) {
  if (PyObject_CallFinalizerFromDealloc(self) < 0) return;
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (Cast(self)->weakrefs != nullptr) PyObject_ClearWeakRefs(self);
  Clear(self);
  delete Cast(self)->cell;
  type->tp_free(self);
  Py_DECREF(type);
}

PyMethodDef kMethods[] = {
    {"set_recipes", SetRecipes, METH_O,
     "How the graph's outputs come from the program's: k, or (of_input, k, sizes, strides, offset) "
     "for a view, whose numbers may be (j,): what output j, a number, is in that call."},
    {"set_refused", SetRefused, METH_O,
     "set_refused(callable(inputs, why) -> outputs): what takes the calls whose inputs the executable's guards refuse."},
    {"set_sizes", SetSizes, METH_VARARGS,
     "set_sizes(readers, hot_ns, worth, most_bytes, make, judged): lets sizes that are hot have programs of their own. readers: (kind, "
     "input, axis) of each number that the sizes follow from, kind \"number\", \"size\", \"stride\" or \"offset\"; make(sizes) -> "
     "(Executable, bytes) or None, sizes: a number, or None for any, for each reader; judged(sizes, verdict, ratio)."},
    {"add_program", AddProgram, METH_VARARGS, "add_program(sizes, executable): takes the calls of sizes that this one does not."},
    {"set_rerun", SetRerun, METH_VARARGS,
     "set_rerun(callable(inputs, reason or None, lasting) -> outputs, random, backward): what runs the graph by ATen alone, from now on if "
     "that lasts."},
    {"info", Info, METH_NOARGS, "JSON: tier, reason, inputs, outputs, kernels, steps, memory, compile_ms, remarks."},
    {"summary", Summary, METH_NOARGS, "(tier, reason, number of kernels, planned bytes, {phase: ms} of the compile)."},
    {"report", Report, METH_NOARGS, "JSON: this graph's part of a report."},
    {"text", Text, METH_NOARGS, "The program as text."},
    {"stats", Stats, METH_O, "stats(reset) -> JSON: counts and times of the runs so far."},
    {"frozen", FrozenAccount, METH_NOARGS,
     "What is computed once: {values (in a set), bytes (of all sets), sets (one for each module that shares the graph), computed (times)}; "
     "None: nothing."},
    {"refresh", Refresh, METH_NOARGS, "What is computed once is computed again at the next run."},
    {"once_text", OnceText, METH_NOARGS, "The program that is run once, as text; None: there is none."},
    {"function", Function, METH_NOARGS, "A capsule for C++ programs: torch_plugin/executor/tensor_function.h."},
    {"allow_early_release", AllowEarlyRelease, METH_NOARGS, "Inputs that only the given list holds may be freed at their last use."},
    {nullptr, nullptr, 0, nullptr}};
PyMemberDef kMembers[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(ExecutableObject, vectorcall), READONLY, nullptr},
                          {"__dictoffset__", T_PYSSIZET, offsetof(ExecutableObject, dict), READONLY, nullptr},
                          {"__weaklistoffset__", T_PYSSIZET, offsetof(ExecutableObject, weakrefs), READONLY, nullptr},
                          {nullptr, 0, 0, 0, nullptr}};
PyGetSetDef kGetSet[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
                         {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot kSlots[] = {{Py_tp_finalize, reinterpret_cast<void*>(Finalize)},
                        {Py_tp_dealloc, reinterpret_cast<void*>(Dealloc)},
                        {Py_tp_traverse, reinterpret_cast<void*>(Traverse)},
                        {Py_tp_clear, reinterpret_cast<void*>(Clear)},
                        {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                        {Py_tp_methods, kMethods},
                        {Py_tp_members, kMembers},
                        {Py_tp_getset, kGetSet},
                        {Py_tp_doc, const_cast<char*>("A compiled graph: list of inputs in, list of outputs out.")},
                        {0, nullptr}};
PyType_Spec kSpec = {"torch_tenon._C.Executable", sizeof(ExecutableObject), 0,
                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION, kSlots};
PyTypeObject* type = nullptr;

void ReleaseExecutable(TenonExecutable* executable) {
  if (!InterpreterIsAlive() || PyGILState_Check() == 0) return tenon_executable_release(executable);
  NoGil no_gil;  // frees code, arenas, wrappers; other threads may be at that too, waiting for the GIL
  tenon_executable_release(executable);
}

void ReadInputs(Callee* callee, const TenonSignature& signature) {
  for (int64_t k = 0; k < signature.num_inputs; ++k) {
    const TenonInput& row = signature.inputs[k];
    Callee::Input in;
    in.tensor = row.kind == 0;  // tenon::InputSpec::Kind
    in.symint = row.kind == 1;
    in.other = row.kind == 3;
    in.mutated = (row.flags & TENON_INPUT_MUTATED) != 0;
    in.framework = (row.flags & TENON_INPUT_FRAMEWORK) != 0;
    callee->inputs.push_back(in);
  }
}

void ReadOutputs(Callee* callee, const TenonSignature& signature) {
  for (int64_t k = 0; k < signature.num_outputs; ++k) {
    const TenonOutput& row = signature.outputs[k];
    Callee::Output out;
    out.kind = row.kind;
    out.index = row.index;
    if (out.kind == 0) {
      const auto dtype = ToTorch(row.dtype);
      TORCH_CHECK(dtype.has_value(), "output ", k, " has no torch dtype");
      out.dtype = *dtype;
    }
    out.sized = row.sizes != nullptr;
    out.sizes.resize(row.ndim);
    out.strides.resize(row.ndim);
    if (out.sized) {
      out.sizes.assign(row.sizes, row.sizes + row.ndim);
      out.strides.assign(row.strides, row.strides + row.ndim);
    }
    if (out.kind == 2) callee->inputs[out.index].returned = true;
    callee->outputs.push_back(std::move(out));
  }
}

// `frozen`: the option, NULL without it.
PyObject* NewObject(TenonExecutable* executable, PyObject* constants, PyObject* frozen) {
  auto callee = std::make_shared<Callee>();
  callee->executable = std::shared_ptr<TenonExecutable>(executable, ReleaseExecutable);
  const TenonSignature& signature = *tenon_signature(executable);
  callee->name = std::string("tenon graph ") + signature.name;
  callee->native = signature.native != 0;
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(constants); ++k) {
    callee->constants.push_back(THPVariable_Unpack(PyTuple_GET_ITEM(constants, k)));
  }
  ReadInputs(callee.get(), signature);
  ReadOutputs(callee.get(), signature);
  if (TenonExecutable* once = tenon_executable_once(executable)) {
    std::vector<int64_t> inputs;
    if (frozen == nullptr || !ReadNumbers(frozen, &inputs)) return nullptr;
    callee->frozen = std::make_shared<FrozenValues>(once, signature.frozen, std::vector<size_t>(inputs.begin(), inputs.end()));
  }
  THPObjectPtr self(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  Cast(self)->vectorcall = Call;
  // From here on the object frees what it has.
  Cast(self)->cell = new std::shared_ptr<CalleeCell>(std::make_shared<CalleeCell>(std::move(callee)));
  // AOTAutograd: takes its inputs as one list. In the dict, since functools.wraps copies that.
  Cast(self)->dict = Py_BuildValue("{s:O}", "_boxed_call", Py_True);
  return Cast(self)->dict == nullptr ? nullptr : self.release();
}

// The options of a dict, names of str.
bool ReadOptions(PyObject* dict, PythonArgs* args, std::vector<TenonOption>* options) {
  PyObject *name, *value;
  for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &name, &value) != 0;) {
    TenonOption& option = options->emplace_back();
    option.name = PyUnicode_AsUTF8(name);
    if (option.name == nullptr || !args->Read(value, &option.value)) return false;
  }
  return true;
}

PyObject* Compile(PyObject* args) {
  PyObject *graph_object, *given, *sequence;
  if (!PyArg_ParseTuple(args, "OO!O", &graph_object, &PyDict_Type, &given, &sequence)) return nullptr;
  const TenonGraph* graph = GraphOf(graph_object);
  if (graph == nullptr) return PyErr_Format(PyExc_TypeError, "wanted a Graph, got %s", Py_TYPE(graph_object)->tp_name);
  const THPObjectPtr held(Py_NewRef(graph_object));  // while the GIL is released
  PythonArgs values;
  std::vector<TenonOption> options;
  if (!ReadOptions(given, &values, &options)) return nullptr;
  options.push_back({"lost_operators", {.kind = kArgInt, .i = LostOperators()}});
  THPObjectPtr constants(PySequence_Tuple(sequence));
  if (!constants) return nullptr;
  std::vector<TenonTensor> described;
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(constants.get()); ++k) {
    PyObject* item = PyTuple_GET_ITEM(constants.get(), k);
    TORCH_CHECK_TYPE(THPVariable_Check(item), "constant ", k, ": wanted a tensor, got ", Py_TYPE(item)->tp_name);
    described.push_back(Describe(THPVariable_Unpack(item).unsafeGetTensorImpl()));
  }
  char* error = nullptr;
  TenonExecutable* executable;
  {
    NoGil no_gil;
    executable = tenon_compile(graph, options.data(), static_cast<int64_t>(options.size()), described.data(),
                               static_cast<int64_t>(described.size()), Host(), &error);
  }
  const std::exception_ptr interrupt = TakeException();
  if (interrupt != nullptr || PyErr_CheckSignals() != 0) {  // Ctrl-C while the GIL was released
    ReleaseExecutable(executable);
    tenon_string_free(error);
    if (interrupt != nullptr) std::rethrow_exception(interrupt);
    return nullptr;
  }
  if (executable == nullptr) {
    PyErr_SetString(PyExc_RuntimeError, error != nullptr ? error : "tenon: the compile failed");
    tenon_string_free(error);
    return nullptr;
  }
  return NewObject(executable, constants.get(), PyDict_GetItemString(given, "frozen"));
}

}  // namespace

int AddExecutableType(PyObject* module) {
  type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&kSpec));
  return type == nullptr ? -1 : PyModule_AddObjectRef(module, "Executable", reinterpret_cast<PyObject*>(type));
}

const std::shared_ptr<CalleeCell>* CellOf(PyObject* object) { return Py_TYPE(object) == type ? Cast(object)->cell : nullptr; }

PyObject* CompileGraph(PyObject*, PyObject* args) {
  HANDLE_TH_ERRORS
  return Compile(args);
  END_HANDLE_TH_ERRORS
}

}  // namespace tenon::torch_host
