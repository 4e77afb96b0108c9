#include "tools/lab/error_bound.h"

#include <limits>

#include "hlo/eval/evaluator.h"

namespace tenon::lab {
namespace {

bool IsInexactOn(Opcode opcode, PrimitiveType type) {
  if (!IsFloat(type) && !IsComplex(type)) return false;
  switch (opcode) {
    case Opcode::kAcos: case Opcode::kAcosh: case Opcode::kAsin: case Opcode::kAsinh: case Opcode::kAtan:
    case Opcode::kAtanh: case Opcode::kAtan2: case Opcode::kCbrt: case Opcode::kCosine: case Opcode::kCosh:
    case Opcode::kErf: case Opcode::kExponential: case Opcode::kExponentialMinusOne: case Opcode::kLog:
    case Opcode::kLogPlusOne: case Opcode::kLogistic: case Opcode::kPower: case Opcode::kRsqrt: case Opcode::kSine:
    case Opcode::kSinh: case Opcode::kTan: case Opcode::kTanh:
    case Opcode::kReduce: case Opcode::kReduceWindow: case Opcode::kScatter: case Opcode::kSelectAndScatter:
    case Opcode::kDot: case Opcode::kConvolution: case Opcode::kRaggedDot: case Opcode::kScaledDot:
    case Opcode::kBatchNormTraining: case Opcode::kBatchNormInference: case Opcode::kBatchNormGrad:
    case Opcode::kCholesky: case Opcode::kFft: case Opcode::kTriangularSolve: case Opcode::kCustomCall: case Opcode::kRng:
      return true;
    case Opcode::kMultiply: case Opcode::kDivide: case Opcode::kAbs: case Opcode::kSqrt: case Opcode::kSign:
      return IsComplex(type);
    default:
      return false;
  }
}

}  // namespace

bool HasInexact(const Module& module) {
  for (const Computation* c : module.computations()) {
    for (const Instruction* i : c->instructions()) {
      const Shape& operand = i->operand_count() > 0 ? i->operand(0)->shape() : i->shape();
      for (const Shape& leaf : FlattenShape(operand)) {
        if (IsInexactOn(i->opcode(), leaf.element_type())) return true;
      }
    }
  }
  return false;
}

absl::StatusOr<Expectation> EvaluateWithBounds(const Module& module, absl::Span<const Literal> arguments) {
  TENON_ASSIGN_OR_RETURN(const Literal result, Evaluate(module, arguments));
  Expectation expected;
  std::vector<const Literal*> stack = {&result};
  while (!stack.empty()) {
    const Literal* l = stack.back();
    stack.pop_back();
    if (!l->shape().is_tuple()) {
      expected.values.push_back(*l);
      expected.bounds.push_back(Literal::Full(PrimitiveType::kF64, {std::max<int64_t>(1, l->shape().is_array() ? 2 * l->num_elements() : 1)},
                                              std::numeric_limits<double>::infinity()));
      continue;
    }
    for (size_t k = l->elements().size(); k-- > 0;) stack.push_back(&l->elements()[k]);
  }
  return expected;
}

}  // namespace tenon::lab
