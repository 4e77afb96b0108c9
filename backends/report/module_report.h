// The compiler's half of a report (docs/architecture/report.md): the module before and after the passes, its costs, the
// passes' times, the kernels' code. JSON that stands on its own, because the module is gone when somebody asks.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "backends/stages.h"
#include "hlo/module.h"
#include "passes/pipeline.h"

namespace tenon {

using ReportJson = nlohmann::ordered_json;

// Text of ours may quote a user's bytes; JSON wants UTF-8.
std::string DumpReport(const ReportJson& json);

// {"name","entry","computations":[{"name","instructions":[index],"root"}],"instructions":[{"name","opcode","family","shape",
// "text","operands":[index],"calls":[index of a computation],"source","scope","cost":{...}}],"cost":{...}}.
// Computations that instructions apply to elements (a reduction's) are left out: `text` names them.
ReportJson ModuleJson(const Module& module);

// The code of each kernel, cut out of the texts of the whole modules.
class KernelCode {
 public:
  StageSink Sink();         // `this` must stay where it is
  ReportJson Json() const;  // {"k0": {"llvm": ..., "assembly": ...}}

 private:
  struct Texts {
    std::string llvm, assembly;
  };
  std::map<std::string, Texts> kernels_;
};

class ModuleReport {
 public:
  // Before the passes.
  void Input(const Module& module, const TargetInfo& target);
  // After everything: {"input": module, "module": module, "target", "passes", "code"}.
  std::string Finish(const Module& module, const std::vector<PassTiming>& passes, const KernelCode& code);

 private:
  ReportJson json_;
};

}  // namespace tenon
