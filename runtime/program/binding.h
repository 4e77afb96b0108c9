// Binding: how an HLO module's parameters and root tuple stand for the caller's inputs and outputs.
//
// Made by whoever makes the module (torch_plugin/aten for PyTorch, BindingOf(module) for plain HLO), read by backends/driver/compile.
#pragma once

#include <vector>

#include "hlo/module.h"
#include "runtime/program/program.h"

namespace tenon {

struct Binding {
  struct Parameter {             // per leaf of the HLO parameters of the entry, one parameter after the other
    enum class Kind : uint8_t { kInput, kConstant } kind = Kind::kInput;
    int64_t index = 0;           // caller's input / framework constant number
    PrimitiveType dtype = PrimitiveType::kF32;
    // What the caller brings; may be non-dense, overlapping, stride 0. The HLO parameter has the same logical sizes and, as
    // layout, the stride order. flat_storage: the parameter is instead rank 1 over the storage extent from the lowest address.
    std::vector<Dim> sizes, strides;
    bool flat_storage = false;
  };
  std::vector<Parameter> parameters;

  struct Input {                 // all the caller's inputs in order, used or not
    InputSpec::Kind kind = InputSpec::Kind::kTensor;
    PrimitiveType dtype = PrimitiveType::kF32;
    std::vector<Dim> sizes, strides;
    Dim symint = 0;              // kSymInt
    std::string name;
    bool mutated = false;
    int32_t space = 0;           // the memory that it lies in
    std::string packed_by;       // InputSpec's
    std::vector<int64_t> packing;
  };
  std::vector<Input> inputs;

  struct Output {                // all the caller's outputs in order
    OutputKind kind = OutputKind::kFresh;
    int64_t index = 0;           // kInput/kConstant: which
    int64_t root_index = -1;     // kFresh/kSlot: leaf of the root (tuples flattened)
    PrimitiveType dtype = PrimitiveType::kF32;
    std::vector<Dim> sizes, strides;  // exact. A dim with stride 0 and size > 1 has size 1 in the root element.
    Dim symint = 0;
    int32_t space = 0;           // kFresh, kSlot: the memory that the caller wants it in
  };
  std::vector<Output> outputs;

  // Root element `root_index` is written into input `input`'s memory in the commit region.
  struct Mutation { int64_t input = 0; int64_t root_index = 0; };
  std::vector<Mutation> mutations;

  // custom-call "tenon.check"(pred of any shape: true = error), backend_config={"check":k}, pred[] result, side effect.
  std::vector<CheckSpec> checks;
};

// Plain HLO: the leaves of the parameters are the inputs, those of the root the outputs, dense by their layouts, in the memory
// spaces that these say (S(n)). A token is an input
// of kind kNone, or an output of kind kNone.
Binding BindingOf(const Module& module);

}  // namespace tenon
