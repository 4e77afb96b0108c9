#include "absl/strings/str_cat.h"
#include "hlo/eval/internal.h"
#include "hlo/library/describe.h"
#include "hlo/own_calls.h"

namespace tenon::eval {
namespace {

absl::StatusOr<Literal> Call(Context& context, const Instruction& i, Operands operands) {
  return context.Call(*i.to_apply(), operands);
}

absl::StatusOr<Literal> Fusion(Context& context, const Instruction& i, Operands operands) {
  return context.Call(*i.fused_computation(), operands);
}

absl::StatusOr<Literal> While(Context& context, const Instruction& i, Operands operands) {
  const Computation& condition = *i.attrs().get<Computation*>(Attr::kCondition);
  const Computation& body = *i.attrs().get<Computation*>(Attr::kBody);
  Literal state = operands[0];
  for (int64_t n = 0;; ++n) {
    TENON_ASSIGN_OR_RETURN(Literal go_on, context.Call(condition, {state}));
    if (go_on.GetAsInt64(0) == 0) return state;
    if (n == context.options().max_while_iterations) {
      return absl::ResourceExhaustedError(
          absl::StrCat("while ", i.name(), ": more than ", n, " iterations"));
    }
    TENON_ASSIGN_OR_RETURN(state, context.Call(body, {std::move(state)}));
  }
}

// pred: true, false. s32: the branch of that number, the last one when out of range.
absl::StatusOr<Literal> Conditional(Context& context, const Instruction& i, Operands operands) {
  std::vector<Computation*> branches;
  if (i.attrs().has(Attr::kBranchComputations)) {
    branches = i.attrs().get<std::vector<Computation*>>(Attr::kBranchComputations);
  } else {
    branches = {i.attrs().get<Computation*>(Attr::kTrueComputation),
                i.attrs().get<Computation*>(Attr::kFalseComputation)};
  }
  int64_t chosen = operands[0].GetAsInt64(0);
  const int64_t count = static_cast<int64_t>(branches.size());
  if (operands[0].type() == PrimitiveType::kPred) chosen = chosen != 0 ? 0 : 1;
  if (chosen < 0 || chosen >= count) chosen = count - 1;
  if (static_cast<int64_t>(operands.size()) != count + 1) return Invalid(i, "operand per branch");
  return context.Call(*branches[chosen], {operands[chosen + 1]});
}

// (values, positions) of the k first by the comparison that the call names; the greater ones without one.
absl::StatusOr<Literal> TopKCall(const Instruction& i, Operands operands) {
  if (operands.size() != 1) return Invalid(i, "wanted one operand");
  const Shape& x = operands[0].shape();
  if (!i.shape().is_tuple() || i.shape().elements().size() != 2 || !x.is_array() || x.rank() < 1) {
    return Invalid(i, "wanted one array and (values, positions)");
  }
  const Shape& values = i.shape().element(0);
  if (values.rank() != x.rank() || values.dims().back().constant() > x.dims().back().constant() ||
      !Shape::SameDims(values, i.shape().element(1))) {
    return Invalid(i, absl::StrCat("result ", i.shape().ToString()));
  }
  return TopKOf(operands[0], values.dims().back().constant(), library::TopKLargest(i), i.shape());
}

absl::StatusOr<Literal> CallTarget(Context& context, const Instruction& i, Operands operands) {
  if (IsPointwiseCall(i)) return PointwiseCall(context, i, operands);
  const auto& targets = context.options().custom_calls;
  if (auto it = targets.find(i.custom_call_target()); it != targets.end()) return it->second(i, operands);
  if (library::IsMarker(i)) {
    if (operands.size() != 1) return Invalid(i, "wanted one operand");
    return operands[0];
  }
  if (library::IsTopKCall(i)) return TopKCall(i, operands);
  if (library::IsLibraryCall(i)) return CallLibrary(context, i, operands);
  return Unimplemented(i, absl::StrCat("custom-call target \"", i.custom_call_target(), "\" is not registered"));
}

absl::StatusOr<Literal> CustomCall(Context& context, const Instruction& i, Operands operands) {
  TENON_ASSIGN_OR_RETURN(Literal result, CallTarget(context, i, operands));
  if (!Shape::Compatible(result.shape(), i.shape())) {
    return Invalid(i, absl::StrCat("target \"", i.custom_call_target(), "\" gave ",
                                   result.shape().ToString(), ", wanted ", i.shape().ToString()));
  }
  return result;
}

absl::StatusOr<Literal> GetTupleElement(Context&, const Instruction& i, Operands operands) {
  const int64_t index = i.tuple_index();
  if (index < 0 || index >= static_cast<int64_t>(operands[0].elements().size())) {
    return Invalid(i, absl::StrCat("index ", index));
  }
  return operands[0].elements()[index];
}

absl::StatusOr<Literal> Tuple(Context&, const Instruction&, Operands operands) {
  return Literal::Tuple({operands.begin(), operands.end()});
}

// The first operand, unchanged.
absl::StatusOr<Literal> Forward(Context&, const Instruction&, Operands operands) {
  return operands[0];
}

absl::StatusOr<Literal> Token(Context&, const Instruction& i, Operands) {
  return Literal(i.shape());
}

// The asynchronous pairs finish at once: start keeps the result inside the tuple its shape asks for.
Literal FillRest(const Instruction& i, std::vector<Literal> elements) {
  for (size_t k = elements.size(); k < i.shape().elements().size(); ++k) {
    elements.emplace_back(i.shape().element(k));
  }
  return Literal::Tuple(std::move(elements));
}

absl::StatusOr<Literal> AsyncStart(Context& context, const Instruction& i, Operands operands) {
  TENON_ASSIGN_OR_RETURN(Literal result, context.Call(*i.fused_computation(), operands));
  return FillRest(i, {Literal::Tuple({operands.begin(), operands.end()}), std::move(result)});
}

absl::StatusOr<Literal> AsyncDone(Context&, const Instruction& i, Operands operands) {
  if (operands[0].elements().size() < 2) return Invalid(i, "wanted an async-start's tuple");
  return operands[0].elements()[1];
}

// (destination, source, context)
absl::StatusOr<Literal> CopyStart(Context&, const Instruction& i, Operands operands) {
  return FillRest(i, {operands[0], operands[0]});
}

absl::StatusOr<Literal> CopyDone(Context&, const Instruction& i, Operands operands) {
  if (operands[0].elements().empty()) return Invalid(i, "wanted a copy-start's tuple");
  return operands[0].elements()[0];
}

constexpr HandlerRow kRows[] = {
    {Opcode::kCall, Call},
    {Opcode::kConditional, Conditional},
    {Opcode::kCustomCall, CustomCall},
    {Opcode::kDomain, Forward},
    {Opcode::kFusion, Fusion},
    {Opcode::kGetTupleElement, GetTupleElement},
    {Opcode::kOptBarrier, Forward},
    {Opcode::kTuple, Tuple},
    {Opcode::kWhile, While},
    {Opcode::kAddDependency, Forward},
    {Opcode::kAfterAll, Token},
    {Opcode::kCopyStart, CopyStart},
    {Opcode::kCopyDone, CopyDone},
    {Opcode::kAsyncStart, AsyncStart},
    {Opcode::kAsyncUpdate, Forward},
    {Opcode::kAsyncDone, AsyncDone},
};

}  // namespace

absl::Span<const HandlerRow> ControlHandlers() { return kRows; }

}  // namespace tenon::eval
