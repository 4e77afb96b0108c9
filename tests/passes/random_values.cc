#include "tests/passes/random_values.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tenon {
namespace {

double RandomFloat(bool extremes, std::mt19937_64& random) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr double kSpecial[] = {std::numeric_limits<double>::quiet_NaN(), kInf, -kInf, 0.0, -0.0, 1.0, -1.0, 2.0, 1e-40, 3e38};
  if (extremes && random() % 4 == 0) return kSpecial[random() % std::size(kSpecial)];
  return std::normal_distribution<double>(0, 2)(random);
}

int64_t RandomInteger(PrimitiveType type, bool extremes, std::mt19937_64& random) {
  const int bits = BitWidth(type);
  if (extremes && random() % 5 == 0) {
    const int64_t top = bits == 64 ? INT64_MAX : (int64_t{1} << (bits - 1)) - 1;
    return IsUnsigned(type) ? top : (random() % 2 == 0 ? top : -top - 1);
  }
  const int64_t small = static_cast<int64_t>(random() % 7);
  return IsUnsigned(type) ? small : small - 2;
}

Literal RandomLiteral(const Shape& shape, bool extremes, std::mt19937_64& random) {
  if (shape.is_tuple()) {
    std::vector<Literal> elements;
    for (const Shape& e : shape.elements()) elements.push_back(RandomLiteral(e, extremes, random));
    return Literal::Tuple(std::move(elements));
  }
  Literal literal(Shape(shape.element_type(), shape.dims()));
  const PrimitiveType type = shape.element_type();
  for (int64_t i = 0; i < literal.num_elements(); ++i) {
    if (type == PrimitiveType::kPred)
      literal.SetFromInt64(i, static_cast<int64_t>(random() % 2));
    else if (IsIntegral(type))
      literal.SetFromInt64(i, RandomInteger(type, extremes, random));
    else
      literal.SetFromDouble(i, RandomFloat(extremes, random));
  }
  return literal;
}

// A value in which every operand's every bit counts.
Literal StandIn(const Shape& shape, uint64_t seed) {
  std::mt19937_64 random(seed);
  return RandomLiteral(shape, /*extremes=*/true, random);
}

}  // namespace

std::vector<Literal> RandomArguments(const Module& module, bool extremes, std::mt19937_64& random) {
  std::vector<Literal> arguments;
  for (const Instruction* p : module.entry()->parameters()) arguments.push_back(RandomLiteral(p->shape(), extremes, random));
  return arguments;
}

absl::StatusOr<Literal> EvaluateWithCalls(const Module& module, absl::Span<const Literal> arguments,
                                          std::vector<std::string>* checks) {
  EvalOptions options;
  for (const Computation* c : module.computations()) {
    for (const Instruction* op : c->instructions()) {
      if (op->opcode() != Opcode::kCustomCall || !op->custom_call_target().starts_with("aten.")) continue;
      options.custom_calls[op->custom_call_target()] = [](const Instruction& call, absl::Span<const Literal> operands) {
        uint64_t seed = std::hash<std::string>()(call.custom_call_target() + call.backend_config());
        for (const Literal& l : operands) {
          Literal dense = l;
          seed = seed * 31 + dense.Hash();
        }
        return absl::StatusOr<Literal>(StandIn(call.shape(), seed));
      };
    }
  }
  options.custom_calls["tenon.check"] = [checks](const Instruction& check, absl::Span<const Literal> operands) {
    bool bad = false;
    for (int64_t i = 0; i < operands[0].num_elements(); ++i) bad = bad || operands[0].GetAsInt64(i) != 0;
    checks->push_back(check.backend_config() + (bad ? " fired" : " passed"));
    return absl::StatusOr<Literal>(Literal::ScalarInt(PrimitiveType::kPred, bad));
  };
  absl::StatusOr<Literal> result = Evaluate(module, arguments, options);
  std::sort(checks->begin(), checks->end());
  return result;
}

}  // namespace tenon
