#include "backends/program_builder.h"

#include "absl/strings/str_cat.h"
#include "backends/program/builder.h"
#include "hlo/check.h"

namespace tenon {

absl::StatusOr<BuiltProgram> BuildProgram(const Module& module, const Binding& binding, const CpuTarget& target,
                                          bool excess_precision, std::vector<Remark>* remarks) {
  TENON_ASSIGN_OR_RETURN(BuiltProgram built, ProgramBuilder(module, binding, target, excess_precision).Build());
  if (remarks != nullptr) {
    for (const Region& region : built.program.regions) {
      for (const Step& step : region.steps) {
        if (const auto* call = std::get_if<FrameworkStep>(&step.body)) {
          remarks->push_back({.pass = "program", .instruction = step.name, .kind = "framework-call",
                              .reason = absl::StrCat(call->overload, ": ", call->reason), .source = step.source});
        } else if (std::holds_alternative<CopyStep>(step.body)) {
          remarks->push_back({.pass = "program", .instruction = step.name, .kind = "copied",
                              .reason = "its consumer or the caller needs other strides", .source = step.source});
        }
      }
    }
  }
  return built;
}

}  // namespace tenon
