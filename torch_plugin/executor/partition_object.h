// torch_tenon._C.partition: the cut of a joint graph (torch_plugin/aten/partition/partition.h) for Python.
#pragma once

#include <torch/csrc/python_headers.h>

namespace tenon::torch_host {

// Adds partition() and PARTITION_TRAITS, {name: bit}, to the module. -1: a Python error is set.
int AddPartition(PyObject* module);

}  // namespace tenon::torch_host
