#include "torch_plugin/executor/log.h"

#include "torch_plugin/executor/gil.h"

namespace tenon::torch_host {
namespace {

PyObject* logger = nullptr;  // guarded by the GIL

}  // namespace

void Log(void*, int level, const char* text) {
  if (!InterpreterIsAlive()) return;
  Gil gil;
  if (logger == nullptr) return;
  PyObject* type;
  PyObject* value;
  PyObject* trace;
  PyErr_Fetch(&type, &value, &trace);  // a message must not disturb an error that is on its way
  PyObject* result = PyObject_CallFunction(logger, "is", level, text);
  if (result == nullptr) PyErr_Clear();
  Py_XDECREF(result);
  PyErr_Restore(type, value, trace);
}

void SetLogger(PyObject* callable) {
  PyObject* old = logger;
  logger = callable == Py_None ? nullptr : Py_NewRef(callable);
  Py_XDECREF(old);
}

}  // namespace tenon::torch_host
