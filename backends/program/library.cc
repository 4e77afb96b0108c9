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

}  // namespace

// A dense view of new memory in the arena, of the dims of `like`. Of symbolic sizes it is alive throughout: such inputs are few.
absl::StatusOr<View> ProgramBuilder::NewDense(const StridedView& like, PrimitiveType type) {
  StridedView dense{.dims = like.dims, .strides = DimVector(like.dims.size(), 1)};
  for (size_t d = dense.dims.size(); d-- > 1;) dense.strides[d - 1] = dense.strides[d] * dense.dims[d];
  Dim bytes = ByteWidth(type);
  for (Dim d : dense.dims) bytes *= d;
  Value value{.kind = ValueKind::kArena};
  if (bytes.is_constant() && program().arena_bytes >= 0) {
    value.offset = RoundUp64(program().arena_bytes);
    value.bytes = bytes.constant();
    program().arena_bytes = value.offset + RoundUp64(value.bytes);
  } else {
    TENON_ASSIGN_OR_RETURN(value.bytes, dims_.Ref(bytes));
    for (const Value& v : program().values) value.life.last = std::max(value.life.last, v.life.last);
    value.life = {0, std::max(value.life.last, 0)};
  }
  View view{.value = static_cast<int32_t>(program().values.size()), .dtype = type};
  TENON_ASSIGN_OR_RETURN(view.dims, dims_.Refs(dense.dims));
  TENON_ASSIGN_OR_RETURN(view.strides, dims_.Refs(dense.strides));
  program().values.push_back(value);
  return view;
}

absl::Status ProgramBuilder::EmitLibrary(const Instruction& op) {
  TENON_ASSIGN_OR_RETURN(library::Signature signature, library::Describe(op));
  LibraryStep call;
  call.function = std::move(signature.function);
  call.attributes = std::move(signature.attributes);
  for (const Instruction* operand : op.operands()) {
    TENON_ASSIGN_OR_RETURN(View v, ViewOf(BufferKey{operand, 0}));
    const StridedView& strided = views_.at(BufferKey{operand, 0});
    if (!IsRowMajor(strided) || v.byte_offset < 0) {  // or at an offset that a call decides
      TENON_ASSIGN_OR_RETURN(View dense, NewDense(strided, v.dtype));
      Step copy = NewStep(*operand);
      copy.body = CopyStep{std::move(v), dense};
      Note(copy, "copied", absl::StrCat(op.name(), " reads dense arrays"));
      steps().push_back(std::move(copy));
      v = std::move(dense);
    }
    call.operands.push_back(std::move(v));
  }
  for (int64_t leaf = 0; leaf < static_cast<int64_t>(signature.results.size()); ++leaf) {
    TENON_ASSIGN_OR_RETURN(View v, ViewOf(BufferKey{&op, leaf}));
    call.results.push_back(std::move(v));
  }
  call.scratch_bytes = IsStatic(call) ? library::ScratchBytes(SignatureOf(call)) : -1;
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
