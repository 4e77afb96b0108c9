#include "backends/contract/activation.h"

#include <cmath>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"

namespace tenon {
namespace {

// Behind conversions between floats: without excess precision nobody asks.
const Instruction* Through(const Instruction* op) {
  while (op->opcode() == Opcode::kConvert && IsFloat(op->shape().element_type()) && IsFloat(op->operand(0)->shape().element_type())) {
    op = op->operand(0);
  }
  return op;
}

// The number that is all of its elements.
std::optional<double> SplatOf(const Instruction* op) {
  op = Through(op);
  while (op->opcode() == Opcode::kBroadcast) op = Through(op->operand(0));
  if (op->opcode() != Opcode::kConstant || !op->shape().is_array() || op->shape().rank() != 0) return std::nullopt;
  return op->literal().GetAsDouble(0);
}

// As numbers of f32.
bool IsNumber(const Instruction* op, double number) {
  const std::optional<double> splat = SplatOf(op);
  return splat.has_value() && static_cast<float>(*splat) == static_cast<float>(number);
}

// c * f0 * f1 * ...
struct Product {
  double number = 1;
  std::vector<const Instruction*> factors;
  bool IsOf(double wanted, size_t count) const {
    return factors.size() == count && std::fabs(number - wanted) <= 1e-6 * std::fabs(wanted);
  }
};
void Multiply(const Instruction* op, Product* to) {
  op = Through(op);
  if (const std::optional<double> splat = SplatOf(op)) {
    to->number *= *splat;
  } else if (op->opcode() == Opcode::kMultiply) {
    Multiply(op->operand(0), to);
    Multiply(op->operand(1), to);
  } else {
    to->factors.push_back(op);
  }
}
Product ProductOf(const Instruction* op) {
  Product product;
  Multiply(op, &product);
  return product;
}

// max(x, 0).
const Instruction* ReluOf(const Instruction* op) {
  if (op->opcode() != Opcode::kMaximum) return nullptr;
  for (int64_t side = 0; side < 2; ++side) {
    if (IsNumber(op->operand(side), 0)) return Through(op->operand(1 - side));
  }
  return nullptr;
}

// sqrt(2 / pi) * (x + 0.044715 * x^3), for this x.
bool IsInnerOfGelu(const Instruction* op, const Instruction* x) {
  const Product outer = ProductOf(op);
  if (!outer.IsOf(std::sqrt(2 / M_PI), 1) || outer.factors[0]->opcode() != Opcode::kAdd) return false;
  for (int64_t side = 0; side < 2; ++side) {
    if (Through(outer.factors[0]->operand(side)) != x) continue;
    const Product cube = ProductOf(outer.factors[0]->operand(1 - side));
    if (cube.IsOf(0.044715, 3) && absl::c_all_of(cube.factors, [&](const Instruction* f) { return f == x; })) return true;
  }
  return false;
}

// 0.5 * x * (1 + tanh(inner)).
const Instruction* GeluOf(const Instruction* op) {
  const Product product = ProductOf(op);
  if (op->opcode() != Opcode::kMultiply || !product.IsOf(0.5, 2)) return nullptr;
  for (size_t side = 0; side < 2; ++side) {
    const Instruction *sum = product.factors[side], *x = product.factors[1 - side];
    if (sum->opcode() != Opcode::kAdd) continue;
    for (int64_t k = 0; k < 2; ++k) {
      const Instruction* tanh = Through(sum->operand(k));
      if (tanh->opcode() == Opcode::kTanh && IsNumber(sum->operand(1 - k), 1) && IsInnerOfGelu(tanh->operand(0), x)) return x;
    }
  }
  return nullptr;
}

// What lies between `op` and `value`, operands first.
void Collect(const Instruction* op, const Instruction* value, absl::flat_hash_set<const Instruction*>* seen,
             std::vector<const Instruction*>* inside) {
  if (op == value || !seen->insert(op).second) return;
  for (const Instruction* operand : op->operands()) Collect(operand, value, seen, inside);
  inside->push_back(op);
}

}  // namespace

std::string_view ActivationName(Activation activation) {
  constexpr std::string_view kNames[] = {"default", "relu", "gelu"};
  return kNames[static_cast<int>(activation)];
}

Activated ActivatedBy(const Instruction& root) {
  Activated activated;
  const Instruction* op = Through(&root);
  if ((activated.value = ReluOf(op)) != nullptr)
    activated.activation = Activation::kRelu;
  else if ((activated.value = GeluOf(op)) != nullptr)
    activated.activation = Activation::kGelu;
  else
    return activated;
  absl::flat_hash_set<const Instruction*> seen;
  Collect(&root, activated.value, &seen, &activated.inside);
  return activated;
}

}  // namespace tenon
