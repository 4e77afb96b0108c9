// Ops that are calls of a library function (hlo/library): linear algebra, transforms, random numbers, custom calls.
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "hlo/eval/internal.h"
#include "hlo/library/describe.h"

namespace tenon::eval {
namespace {

absl::StatusOr<Literal> Run(Context& context, const Instruction& i, Operands operands) {
  std::vector<Shape> shapes;
  for (const Literal& operand : operands) shapes.push_back(operand.shape());
  TENON_ASSIGN_OR_RETURN(const library::Signature signature, library::DescribeWith(i, shapes));
  TENON_RETURN_IF_ERROR(library::CheckSignature(signature));
  std::vector<Literal> results;
  std::vector<const void*> from;
  std::vector<void*> to;
  for (const Literal& operand : operands) from.push_back(operand.bytes());
  for (const Shape& leaf : FlattenShape(i.shape())) results.emplace_back(leaf);
  for (Literal& l : results) to.push_back(l.mutable_bytes());
  std::vector<char> scratch(library::ScratchBytes(signature) + 64);
  char* aligned = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64;
  TENON_RETURN_IF_ERROR(
      library::FindFunction(signature.function)->run({signature, from, to, aligned, context.library_state}));
  return i.shape().is_tuple() ? Literal::Tuple(std::move(results)) : std::move(results[0]);
}

constexpr HandlerRow kRows[] = {
    {Opcode::kCholesky, CallLibrary},
    {Opcode::kFft, CallLibrary},
    {Opcode::kRaggedAllToAll, CallLibrary},
    {Opcode::kRng, CallLibrary},
    {Opcode::kRngBitGenerator, CallLibrary},
    {Opcode::kRngGetAndUpdateState, CallLibrary},
    {Opcode::kTriangularSolve, CallLibrary},
};

}  // namespace

absl::StatusOr<Literal> CallLibrary(Context& context, const Instruction& i, Operands operands) {
  absl::StatusOr<Literal> result = Run(context, i, operands);
  if (result.ok() || absl::StartsWith(result.status().message(), Describe(i))) return result;
  return absl::Status(result.status().code(), absl::StrCat(Describe(i), ": ", result.status().message()));
}

absl::Span<const HandlerRow> LibraryHandlers() { return kRows; }

}  // namespace tenon::eval
