// Holding and releasing the interpreter lock.
#pragma once

#include <torch/csrc/python_headers.h>

namespace tenon::torch_host {

// False while the interpreter shuts down: then the lock must not be asked for.
inline bool InterpreterIsAlive() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsInitialized() && !Py_IsFinalizing();
#else
  return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

class Gil {
 public:
  Gil() : state_(PyGILState_Ensure()) {}
  ~Gil() { PyGILState_Release(state_); }
  Gil(const Gil&) = delete;

 private:
  PyGILState_STATE state_;
};

class NoGil {
 public:
  NoGil() : state_(PyEval_SaveThread()) {}
  ~NoGil() { PyEval_RestoreThread(state_); }
  NoGil(const NoGil&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace tenon::torch_host
