// Framework steps: resolving and calling operators of PyTorch, and Python callables
// ("python.<id>").
#pragma once

#include <c10/util/Exception.h>
#include <torch/csrc/python_headers.h>

#include "runtime/tenon_c.h"

namespace tenon::torch_host {

// The TenonHost entries; see runtime/tenon_c.h. CallOp expects that autograd and autocast keys are
// excluded already.
void* PrepareOp(void* context, const TenonOpSpec* spec, char** error);
void ReleaseOp(void* context, void* op);
int CallOp(void* context, TenonOpCall* call);

// What CallOp fails with when a result has another dtype or size than the program was compiled for.
class ResultMismatch : public c10::Error {
  using Error::Error;
};

// Python callables of graphs. A callable takes the operands and returns a tensor, None, or a list
// or tuple of these. With the GIL.
int64_t RegisterCallable(PyObject* callable);
void UnregisterCallable(int64_t id);  // prepared operators keep theirs

}  // namespace tenon::torch_host
