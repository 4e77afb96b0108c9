// The compiler's half of a report (docs/architecture/report.md): the module before and after the passes, its costs, the
// passes' times, the kernels' code. JSON that stands on its own, because the module is gone when somebody asks.
#pragma once

#include <map>
#include <string>

#include "backends/contract/stages.h"
#include "backends/contract/target.h"
#include "hlo/json.h"
#include "hlo/module.h"
#include "passes/pipeline.h"

namespace tenon {

// {"name","entry","computations":[{"name","instructions":[index],"root"}],"instructions":[{"name","opcode","family","shape",
// "text","operands":[index],"calls":[index of a computation],"source","scope","cost":{...}}],"cost":{...}}.
// Computations that instructions apply to elements (a reduction's) are left out: `text` names them.
Json ModuleJson(const Module& module);

// The code of each kernel, cut out of the texts of the whole modules.
class KernelCode {
 public:
  StageSink Sink();         // `this` must stay where it is
  Json ToJson() const;      // {"k0": {"llvm": ..., "assembly": ...}}

 private:
  struct Texts {
    std::string llvm, assembly;
  };
  std::map<std::string, Texts> kernels_;
  std::map<std::string, std::string> same_;  // kernels that have another's code
};

class ModuleReport {
 public:
  // Before the passes.
  void Input(const Module& module, const TargetInfo& target);
  // Of a device's kernel, by its symbol.
  void Occupied(const std::string& symbol, const Occupancy& occupancy);
  // After everything: {"input": module, "module": module, "target", "passes", "code", "occupancy"}.
  std::string Finish(const Module& module, const std::vector<PassTiming>& passes, const KernelCode& code);

 private:
  Json json_;
};

}  // namespace tenon
