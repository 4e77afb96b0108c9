// ProgramBuilder: calls of library functions. insert-copies has made their operands and results dense, as far as layouts say; an
// input whose strides only the caller knows is copied here, into memory behind the planned arena.
#include "absl/strings/str_cat.h"
#include "backends/program/builder.h"
#include "hlo/library/describe.h"
#include "runtime/execute/library_step.h"
#include "runtime/program/dim_program.h"

namespace tenon {
namespace {

int64_t RoundUp64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// A dense view of new memory in the arena, of the dims of `like`.
View NewDense(Program& program, const View& like) {
  View v = like;
  int64_t bytes = ByteWidth(like.dtype);
  for (size_t d = v.dims.size(); d-- > 0;) {
    v.strides[d] = bytes / ByteWidth(like.dtype);
    bytes *= v.dims[d];
  }
  const int64_t offset = RoundUp64(program.arena_bytes);
  program.arena_bytes = offset + RoundUp64(bytes);
  v.value = static_cast<int32_t>(program.values.size());
  v.byte_offset = 0;
  program.values.push_back({.kind = ValueKind::kArena, .offset = offset, .bytes = bytes});
  return v;
}

}  // namespace

absl::Status ProgramBuilder::EmitLibrary(const Instruction& op) {
  TENON_ASSIGN_OR_RETURN(library::Signature signature, library::Describe(op));
  LibraryStep call;
  call.scratch_bytes = library::ScratchBytes(signature);
  call.function = std::move(signature.function);
  call.attributes = std::move(signature.attributes);
  for (const Instruction* operand : op.operands()) {
    TENON_ASSIGN_OR_RETURN(View v, ViewOf(BufferKey{operand, 0}));
    if (!IsDense(v) && IsStatic(v.dims) && IsStatic(v.strides) && program().arena_bytes >= 0) {
      const View dense = NewDense(program(), v);
      Step copy = NewStep(*operand);
      copy.body = CopyStep{std::move(v), dense};
      Note(copy, "copied", absl::StrCat(op.name(), " reads dense arrays"));
      steps().push_back(std::move(copy));
      v = dense;
    }
    call.operands.push_back(std::move(v));
  }
  for (int64_t leaf = 0; leaf < static_cast<int64_t>(signature.results.size()); ++leaf) {
    TENON_ASSIGN_OR_RETURN(View v, ViewOf(BufferKey{&op, leaf}));
    call.results.push_back(std::move(v));
  }
  if (absl::Status s = CheckLibraryStep(call); !s.ok()) {
    return absl::UnimplementedError(absl::StrCat(op.name(), ": ", s.message()));
  }
  Step step = NewStep(op);
  step.body = std::move(call);
  step.effect = op.HasSideEffect() ? Effect::kRandom : Effect::kPure;
  steps().push_back(std::move(step));
  return absl::OkStatus();
}

}  // namespace tenon
