// torch_tenon._C.
#include <ATen/Parallel.h>
#include <torch/csrc/python_headers.h>
#include <torch/version.h>

#include "torch_plugin/executor/executable_object.h"
#include "torch_plugin/executor/log.h"
#include "torch_plugin/executor/op.h"

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
PyObject* CacheStats(PyObject*, PyObject*) { return TakeText(tenon_cache_stats()); }
PyObject* CacheClear(PyObject*, PyObject*) {
  tenon_cache_clear();
  Py_RETURN_NONE;
}
PyObject* BuildId(PyObject*, PyObject*) { return PyUnicode_FromString(tenon_build_id()); }

PyMethodDef kMethods[] = {
    {"compile", CompileGraph, METH_VARARGS,
     "compile(graph: str, options: str, constants) -> Executable"},
    {"register_callable", Register, METH_O,
     "register_callable(callable) -> id, for \"python.<id>\" nodes"},
    {"unregister_callable", Unregister, METH_O,
     "Forgets an id; executables that use it keep their callable."},
    {"set_logger", Logger, METH_O, "set_logger(callable(level, text) or None)"},
    {"set_profiling", Profiling, METH_O, "Times kernels and copies too."},
    {"report_html", ReportHtml, METH_O, "report_html(document) -> the page that shows a report (JSON)."},
    {"cache_stats", CacheStats, METH_NOARGS, "JSON: the in-memory cache."},
    {"cache_clear", CacheClear, METH_NOARGS, "Drops cached executables that aren't in use."},
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
  if (tenon::torch_host::AddExecutableType(module) != 0 ||
      PyModule_AddStringConstant(module, "TORCH_VERSION", TORCH_VERSION) != 0) {
    Py_DECREF(module);
    return nullptr;
  }
  return module;
}
