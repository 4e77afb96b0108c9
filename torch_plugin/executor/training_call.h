// torch_tenon._C.TrainingCall: a training graph as torch.compile calls it.
#pragma once

#include <torch/csrc/python_headers.h>

namespace tenon::torch_host {

// Adds the type, training_call() and AUTOGRAD_NODE (is there a node for this version of PyTorch) to the module. -1: a Python error is set.
int AddTrainingCall(PyObject* module);

}  // namespace tenon::torch_host
