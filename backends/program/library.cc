// ProgramBuilder: calls of library functions. insert-copies has made their operands and results dense.
#include "absl/strings/str_cat.h"
#include "backends/program/builder.h"
#include "hlo/library/describe.h"
#include "runtime/library_step.h"

namespace tenon {

absl::Status ProgramBuilder::EmitLibrary(const Instruction& op) {
  TENON_ASSIGN_OR_RETURN(library::Signature signature, library::Describe(op));
  LibraryStep call;
  call.scratch_bytes = library::ScratchBytes(signature);
  call.function = std::move(signature.function);
  call.attributes = std::move(signature.attributes);
  for (const Instruction* operand : op.operands()) {
    TENON_ASSIGN_OR_RETURN(View v, ViewOf(BufferKey{operand, 0}));
    call.operands.push_back(std::move(v));
  }
  for (int64_t leaf = 0; leaf < static_cast<int64_t>(signature.results.size()); ++leaf) {
    TENON_ASSIGN_OR_RETURN(View v, ViewOf(BufferKey{&op, leaf}));
    call.results.push_back(std::move(v));
  }
  if (absl::Status s = CheckLibraryStep(call); !s.ok()) {  // an input whose strides only the caller knows
    return absl::UnimplementedError(absl::StrCat(op.name(), ": ", s.message()));
  }
  Step step = NewStep(op);
  step.body = std::move(call);
  step.effect = op.HasSideEffect() ? Effect::kRandom : Effect::kPure;
  steps().push_back(std::move(step));
  return absl::OkStatus();
}

}  // namespace tenon
