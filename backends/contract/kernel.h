// The contract between the compile driver (backends/driver/compile) and the code generator of a target: one fusion in, one kernel out.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hlo/module.h"
#include "passes/lower/launch_plan.h"

namespace tenon {

// How a fusion operand or result lies in memory: strides in elements per dim of the parameter's / result leaf's shape.
// Constant strides are baked into the code; symbolic ones become arguments.
struct OperandLayout {
  std::vector<Dim> strides;
  Dim offset = 0;  // elements from where its buffer begins
};

struct KernelRequest {
  const Instruction* fusion = nullptr;
  std::vector<OperandLayout> operands;  // per fusion operand
  std::vector<OperandLayout> results;   // per leaf of the result
};

// How a device launches a kernel (LaunchShape).
struct LaunchDims {
  std::array<Dim, 3> grid = {1, 1, 1};
  std::array<int32_t, 3> block = {1, 1, 1};
  int64_t shared_bytes = 0;
};

// What the runtime must know to launch it (runtime/program/program.h KernelStep, KernelSpec).
struct KernelInfo {
  std::string plan_text;            // of the target's plan
  std::vector<LaunchPlan::Pair> may_overwrite, copies;  // as LaunchPlan says
  bool has_error_word = false;      // one more pointer, after the results
  std::vector<Dim> size_args;       // symbolic sizes, in order
  std::vector<uint64_t> literals;   // bits of hoisted scalar literals, behind the sizes
  Dim begin = 0, end = 1;           // splittable outer range
  Dim grain = 1;                    // units of it that are worth a thread
  bool joins_units = false;         // a call's units are computed together: better in few calls than in many
  int64_t scratch_bytes = 0;        // per thread
  std::optional<LaunchDims> launch;  // a device's; in place of begin, end, grain, joins_units and scratch_bytes
  double estimated_ns = 0;          // whole kernel, one thread, static sizes (else 0)
  int64_t bytes = 0, flops = 0;
};

// Kernels of one key may turn out to have the same code, though their sizes differ: they are compiled together.
struct Likeness {
  std::optional<uint64_t> key;  // none: it is like no other
  int64_t operations = 1;       // how much there is to compile
};

// A kernel that is planned but not yet emitted: everything needed to hash it and for its target to emit it (Target::Emit).
class PlannedKernel : public TargetPlan {
 public:
  virtual const KernelInfo& info() const = 0;
  // Structural: equal fingerprints => equal code (operand strides, plan, target included; literals' values, names and
  // metadata not). Two requests with equal fingerprints share one symbol.
  virtual const std::string& fingerprint() const = 0;
  virtual Likeness likeness() const { return {}; }
};

// The strides of its operands and results, as the views have them.
class ValueViews;
KernelRequest RequestOf(const Instruction& fusion, const ValueViews& views);

}  // namespace tenon
