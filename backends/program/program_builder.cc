#include "backends/program/program_builder.h"

#include "backends/program/builder.h"

namespace tenon {

absl::StatusOr<BuiltProgram> BuildProgram(const Module& module, const Binding& binding, const LaunchPlans& plans,
                                          std::vector<Remark>* remarks) {
  return ProgramBuilder(module, binding, plans, remarks).Build();
}

}  // namespace tenon
