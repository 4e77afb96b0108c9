#include "backends/program/program_builder.h"

#include "backends/program/builder.h"

namespace tenon {

absl::StatusOr<BuiltProgram> BuildProgram(const Module& module, const Binding& binding, const LaunchPlans& plans,
                                          absl::Span<const std::shared_ptr<const Target>> targets, std::vector<Remark>* remarks) {
  return ProgramBuilder(module, binding, plans, targets, remarks).Build();
}

}  // namespace tenon
