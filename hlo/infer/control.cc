// Shape inference of calls, control flow, tuples, tokens and asynchronous wrappers.
#include "hlo/infer/context.h"
#include "hlo/own_calls.h"

namespace tenon::infer {
namespace {

std::vector<Shape> OperandList(const Inference& in) {
  std::vector<Shape> shapes;
  for (const Instruction* i : in.operands) shapes.push_back(i->shape());
  return shapes;
}

absl::StatusOr<Shape> Callee(const Inference& in, Attr attr, std::string_view role) {
  const Computation* callee = in.comp(attr);
  TENON_RETURN_IF_ERROR(CheckCallee(callee, OperandList(in), role));
  return callee->root()->shape();
}

// An async op's shape is ((operands), result, contexts...).
absl::StatusOr<Shape> AsyncState(const Inference& in) {
  const Shape& s = in.shape(0);
  TENON_WANT(s.is_tuple() && s.elements().size() >= 2 && s.element(0).is_tuple(), "async_c1",
             "a tuple ((operands), result, ...)", s.ToString());
  return s;
}

}  // namespace

TENON_INFER(kCall) { return Callee(in, Attr::kToApply, "to_apply"); }
TENON_INFER(kFusion) { return Callee(in, Attr::kCalls, "calls"); }
TENON_INFER(kParameter) { return Declared(in); }
TENON_INFER(kCustomCall) { return NamesPointwiseCall(in.attrs) ? PointwiseCall(in) : Declared(in); }
TENON_INFER(kDomain) { return in.shape(0); }
TENON_INFER(kOptBarrier) { return in.shape(0); }
TENON_INFER(kTuple) { return Shape::Tuple(OperandList(in)); }

// Two forms: (pred, true args, false args) with true/false_computation, or (index, args...) with branch_computations.
TENON_INFER(kConditional) {
  std::vector<Computation*> branches = in.attrs.get_or<std::vector<Computation*>>(Attr::kBranchComputations, {});
  const Shape& selector = in.shape(0);
  if (branches.empty()) {
    branches = {in.comp(Attr::kTrueComputation), in.comp(Attr::kFalseComputation)};
    TENON_WANT(branches[0] != nullptr && branches[1] != nullptr, "conditional_c1",
               "branch_computations, or true_computation and false_computation", "neither");
    TENON_WANT(KnownCompatible(selector, Shape::Scalar(PrimitiveType::kPred)), "conditional_c2",
               "a selector of pred[]", selector.ToString());
  } else {
    TENON_WANT(KnownCompatible(selector, Shape::Scalar(PrimitiveType::kS32)) ||
                   (branches.size() == 2 && KnownCompatible(selector, Shape::Scalar(PrimitiveType::kPred))),
               "conditional_c3", "a selector of s32[] (or pred[] for two branches)", selector.ToString());
  }
  TENON_WANT(in.count() - 1 == static_cast<int64_t>(branches.size()), "conditional_c4",
             absl::StrCat(branches.size(), " branch operands"), in.count() - 1);
  for (size_t i = 0; i < branches.size(); ++i) {
    TENON_RETURN_IF_ERROR(CheckCallee(branches[i], {in.shape(static_cast<int64_t>(i) + 1)}, "branch"));
    TENON_WANT(KnownCompatible(branches[i]->root()->shape(), branches[0]->root()->shape()), "conditional_c5",
               absl::StrCat("every branch to return ", branches[0]->root()->shape().ToString()),
               branches[i]->root()->shape().ToString());
  }
  return branches[0]->root()->shape();
}

TENON_INFER(kWhile) {
  const Shape& state = in.shape(0);
  const Computation *condition = in.comp(Attr::kCondition), *body = in.comp(Attr::kBody);
  TENON_RETURN_IF_ERROR(CheckCallee(condition, {state}, "condition"));
  TENON_RETURN_IF_ERROR(CheckCallee(body, {state}, "body"));
  TENON_WANT(KnownCompatible(condition->root()->shape(), Shape::Scalar(PrimitiveType::kPred)), "while_c1",
             "condition to return pred[]", condition->root()->shape().ToString());
  TENON_WANT(KnownCompatible(body->root()->shape(), state), "while_c2",
             absl::StrCat("body to return ", state.ToString()), body->root()->shape().ToString());
  return state;
}

TENON_INFER(kGetTupleElement) {
  const Shape& s = in.shape(0);
  const int64_t index = in.integer(Attr::kTupleIndex, -1);
  TENON_WANT(s.is_tuple(), "get_tuple_element_c1", "a tuple", s.ToString());
  TENON_WANT(index >= 0 && index < static_cast<int64_t>(s.elements().size()), "get_tuple_element_c2",
             absl::StrCat("index in [0, ", s.elements().size(), ")"), index);
  return s.element(index);
}

TENON_INFER(kAddDependency) {
  TENON_WANT(in.shape(1).element_type() == PrimitiveType::kToken, "add_dependency_c1", "a token second operand",
             OperandShapes(in));
  return in.shape(0);
}

TENON_INFER(kAfterAll) {
  for (int64_t i = 0; i < in.count(); ++i) {
    TENON_WANT(in.shape(i).element_type() == PrimitiveType::kToken, "after_all_c1", "tokens", OperandShapes(in));
  }
  return Shape::Token();
}

TENON_INFER(kCopyStart) {
  return Shape::Tuple({in.shape(0), in.shape(0), Shape::Scalar(PrimitiveType::kU32)});
}

TENON_INFER(kCopyDone) {
  const Shape& s = in.shape(0);
  TENON_WANT(s.is_tuple() && s.elements().size() == 3, "copy_done_c1", "the tuple of a copy-start", s.ToString());
  return s.element(0);
}

TENON_INFER(kAsyncStart) {
  TENON_ASSIGN_OR_RETURN(const Shape result, Callee(in, Attr::kCalls, "calls"));
  const Shape operands = Shape::Tuple(OperandList(in));
  if (in.declared == nullptr) return Shape::Tuple({operands, result});
  // Backends append context elements of their own.
  TENON_WANT(in.declared->is_tuple() && in.declared->elements().size() >= 2 &&
                 KnownCompatible(in.declared->element(0), operands) &&
                 KnownCompatible(in.declared->element(1), result),
             "async_start_c1", absl::StrCat("(", operands.ToString(), ", ", result.ToString(), ", ...)"),
             in.declared->ToString());
  return *in.declared;
}

TENON_INFER(kAsyncUpdate) { return AsyncState(in); }

TENON_INFER(kAsyncDone) {
  TENON_ASSIGN_OR_RETURN(const Shape state, AsyncState(in));
  return state.element(1);
}

}  // namespace tenon::infer
