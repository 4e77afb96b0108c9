// torch_tenon._C.
#include <ATen/Parallel.h>
#include <torch/csrc/python_headers.h>
#include <torch/version.h>

#include <string_view>

#include "torch_plugin/executor/executable_object.h"
#include "torch_plugin/executor/gil.h"
#include "torch_plugin/executor/graph_object.h"
#include "torch_plugin/executor/host.h"
#include "torch_plugin/executor/log.h"
#include "torch_plugin/executor/op.h"
#include "torch_plugin/executor/overlap.h"
#include "torch_plugin/executor/partition_object.h"
#include "torch_plugin/executor/size_guard.h"
#include "torch_plugin/executor/training_call.h"

namespace tenon::torch_host {
namespace {

PyObject* TakeText(char* text) {
  PyObject* result = PyUnicode_FromString(text);
  tenon_string_free(text);
  return result;
}

PyObject* Register(PyObject*, PyObject* callable) {
  return PyLong_FromLongLong(RegisterCallable(callable));
}
PyObject* Unregister(PyObject*, PyObject* id) {
  const long long number = PyLong_AsLongLong(id);
  if (number == -1 && PyErr_Occurred() != nullptr) return nullptr;
  UnregisterCallable(number);
  Py_RETURN_NONE;
}
PyObject* Logger(PyObject*, PyObject* callable) {
  SetLogger(callable);
  Py_RETURN_NONE;
}
PyObject* Profiling(PyObject*, PyObject* on) {
  const int flag = PyObject_IsTrue(on);
  if (flag < 0) return nullptr;
  tenon_set_profiling(flag);
  Py_RETURN_NONE;
}
PyObject* ReportHtml(PyObject*, PyObject* document) {
  Py_ssize_t size;
  const char* text = PyUnicode_AsUTF8AndSize(document, &size);
  if (text == nullptr) return nullptr;
  char* error = nullptr;
  char* html = tenon_report_html(text, static_cast<size_t>(size), &error);
  if (html != nullptr) return TakeText(html);
  PyErr_SetString(PyExc_ValueError, error);
  tenon_string_free(error);
  return nullptr;
}
constexpr const char* kProfile = "tenon profile";

PyObject* RaiseRuntimeError(char* error) {
  PyErr_SetString(PyExc_RuntimeError, error != nullptr ? error : "out of memory");
  tenon_string_free(error);
  return nullptr;
}
PyObject* ProfileStart(PyObject*, PyObject* max_events) {
  const long long room = PyLong_AsLongLong(max_events);
  if (room == -1 && PyErr_Occurred() != nullptr) return nullptr;
  char* error = nullptr;
  if (tenon_profile_start(room, &error) != 0) return RaiseRuntimeError(error);
  Py_RETURN_NONE;
}
PyObject* ProfileStop(PyObject*, PyObject*) {
  char* error = nullptr;
  TenonProfile* profile = tenon_profile_stop(&error);
  if (profile == nullptr) return RaiseRuntimeError(error);
  PyObject* capsule = PyCapsule_New(profile, kProfile, [](PyObject* self) {
    tenon_profile_release(static_cast<TenonProfile*>(PyCapsule_GetPointer(self, kProfile)));
  });
  if (capsule == nullptr) tenon_profile_release(profile);
  return capsule;
}
// "json", "table", "trace" of a profile.
PyObject* ProfileText(PyObject*, PyObject* args) {
  PyObject* capsule;
  const char* what;
  long long rows = 0;
  if (!PyArg_ParseTuple(args, "Os|L", &capsule, &what, &rows)) return nullptr;
  const auto* profile = static_cast<const TenonProfile*>(PyCapsule_GetPointer(capsule, kProfile));
  if (profile == nullptr) return nullptr;
  const std::string_view wanted = what;
  char* error = nullptr;
  char* text;
  {
    NoGil no_gil;
    text = wanted == "json"    ? tenon_profile_json(profile, Host(), &error)
           : wanted == "table" ? tenon_profile_table(profile, Host(), rows, &error)
                               : tenon_profile_trace(profile, &error);
  }
  return text != nullptr ? TakeText(text) : RaiseRuntimeError(error);
}
PyObject* CacheStats(PyObject*, PyObject*) { return TakeText(tenon_cache_stats()); }
PyObject* CacheClear(PyObject*, PyObject*) {
  {
    NoGil no_gil;  // executables go, and other threads may be at that too, waiting for the GIL
    tenon_cache_clear();
  }
  Py_RETURN_NONE;
}
PyObject* TextCounts(PyObject*, PyObject*) {
  const TenonTextCounts c = tenon_text_counts();
  return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L}", "graphs_printed", static_cast<long long>(c.graphs_printed), "graphs_parsed",
                       static_cast<long long>(c.graphs_parsed), "modules_printed", static_cast<long long>(c.modules_printed),
                       "modules_parsed", static_cast<long long>(c.modules_parsed), "json_parsed", static_cast<long long>(c.json_parsed));
}
PyObject* BuildId(PyObject*, PyObject*) { return PyUnicode_FromString(tenon_build_id()); }

PyMethodDef kMethods[] = {
    {"compile", CompileGraph, METH_VARARGS,
     "compile(graph: Graph, options: dict, constants) -> Executable"},
    {"register_callable", Register, METH_O,
     "register_callable(callable) -> id, for \"python.<id>\" nodes"},
    {"unregister_callable", Unregister, METH_O,
     "Forgets an id; executables that use it keep their callable."},
    {"set_logger", Logger, METH_O, "set_logger(callable(level, text) or None)"},
    {"set_profiling", Profiling, METH_O, "Times kernels and copies too."},
    {"profile_start", ProfileStart, METH_O, "profile_start(max_events): records runs of all threads."},
    {"profile_stop", ProfileStop, METH_NOARGS, "What was recorded, for profile_text."},
    {"profile_text", ProfileText, METH_VARARGS, "profile_text(profile, \"json\" or \"table\" or \"trace\", rows of the table = 0: all)."},
    {"report_html", ReportHtml, METH_O, "report_html(document) -> the page that shows a report (JSON)."},
    {"cache_stats", CacheStats, METH_NOARGS, "JSON: the in-memory cache."},
    {"cache_clear", CacheClear, METH_NOARGS, "Drops cached executables that aren't in use."},
    {"has_dtype", HasDtype, METH_O, "has_dtype(dtype): tenon has torch's dtype."},
    {"text_counts", TextCounts, METH_NOARGS, "How many graphs, modules and JSON texts libtenon has printed and parsed."},
    {"build_id", BuildId, METH_NOARGS, "What every cache key starts with."},
    {nullptr, nullptr, 0, nullptr}};
PyModuleDef kModule = {PyModuleDef_HEAD_INIT,
                       "_C",
                       "The PyTorch side of tenon.",
                       -1,
                       kMethods,
                       nullptr,
                       nullptr,
                       nullptr,
                       nullptr};

}  // namespace
}  // namespace tenon::torch_host

extern "C" __attribute__((visibility("default"))) PyObject* PyInit__C() {
  PyObject* module = PyModule_Create(&tenon::torch_host::kModule);
  if (module == nullptr) return nullptr;
  if (tenon::torch_host::AddExecutableType(module) != 0 || tenon::torch_host::AddGraphType(module) != 0 ||
      tenon::torch_host::AddTrainingCall(module) != 0 || tenon::torch_host::AddOverlapCheck(module) != 0 ||
      tenon::torch_host::AddPartition(module) != 0 || tenon::torch_host::AddSizeGuard(module) != 0 ||
      PyModule_AddStringConstant(module, "TORCH_VERSION", TORCH_VERSION) != 0) {
    Py_DECREF(module);
    return nullptr;
  }
  return module;
}
