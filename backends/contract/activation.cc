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

// The other operand, where one is this number.
const Instruction* BesideNumber(const Instruction* op, Opcode opcode, double number) {
  if (op->opcode() != opcode) return nullptr;
  for (int64_t side = 0; side < 2; ++side) {
    if (IsNumber(op->operand(side), number)) return Through(op->operand(1 - side));
  }
  return nullptr;
}

// max(x, 0).
const Instruction* ReluOf(const Instruction* op) { return BesideNumber(op, Opcode::kMaximum, 0); }

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

// x / sqrt(2).
bool IsInnerOfGeluByErf(const Instruction* op, const Instruction* x) {
  const Product inner = ProductOf(op);
  return inner.IsOf(M_SQRT1_2, 1) && inner.factors[0] == x;
}

// 0.5 * x * (1 + tanh(inner)), or with erf, each of its own inner.
template <Opcode kOpcode, bool (*kIsInner)(const Instruction*, const Instruction*)>
const Instruction* GeluOf(const Instruction* op) {
  const Product product = ProductOf(op);
  if (op->opcode() != Opcode::kMultiply || !product.IsOf(0.5, 2)) return nullptr;
  for (size_t side = 0; side < 2; ++side) {
    const Instruction *x = product.factors[1 - side], *curve = BesideNumber(product.factors[side], Opcode::kAdd, 1);
    if (curve != nullptr && curve->opcode() == kOpcode && kIsInner(curve->operand(0), x)) return x;
  }
  return nullptr;
}

// x / (1 + exp(-x)).
const Instruction* SiluOf(const Instruction* op) {
  if (op->opcode() != Opcode::kDivide) return nullptr;
  const Instruction *x = Through(op->operand(0)), *power = BesideNumber(Through(op->operand(1)), Opcode::kAdd, 1);
  if (power == nullptr || power->opcode() != Opcode::kExponential) return nullptr;
  const Instruction* minus = Through(power->operand(0));
  return minus->opcode() == Opcode::kNegate && Through(minus->operand(0)) == x ? x : nullptr;
}

// x * min(max(x + 3, 0), 6) / 6.
const Instruction* HardswishOf(const Instruction* op) {
  if (op->opcode() != Opcode::kDivide || !IsNumber(op->operand(1), 6)) return nullptr;
  const Instruction* product = Through(op->operand(0));
  if (product->opcode() != Opcode::kMultiply) return nullptr;
  for (int64_t side = 0; side < 2; ++side) {
    const Instruction *x = Through(product->operand(side)), *v = Through(product->operand(1 - side));
    v = BesideNumber(v, Opcode::kMinimum, 6);
    if (v != nullptr) v = BesideNumber(v, Opcode::kMaximum, 0);
    if (v != nullptr) v = BesideNumber(v, Opcode::kAdd, 3);
    if (v == x) return x;
  }
  return nullptr;
}

template <Opcode kOpcode>
const Instruction* OperandOf(const Instruction* op) {
  return op->opcode() == kOpcode ? Through(op->operand(0)) : nullptr;
}

// What lies between `op` and the values that are `seen`, operands first.
void Collect(const Instruction* op, absl::flat_hash_set<const Instruction*>* seen, std::vector<const Instruction*>* inside) {
  if (!seen->insert(op).second) return;
  for (const Instruction* operand : op->operands()) Collect(operand, seen, inside);
  inside->push_back(op);
}

}  // namespace

std::string_view ActivationName(Activation activation) {
  constexpr std::string_view kNames[] = {"default", "relu", "gelu", "gelu_erf", "silu", "hardswish", "sigmoid", "tanh"};
  return kNames[static_cast<int>(activation)];
}

Activated ActivatedBy(const Instruction& root) {
  Activated activated;
  const Instruction* op = Through(&root);
  constexpr std::pair<Activation, const Instruction* (*)(const Instruction*)> kForms[] = {
      {Activation::kRelu, ReluOf},
      {Activation::kGelu, GeluOf<Opcode::kTanh, IsInnerOfGelu>},
      {Activation::kGeluByErf, GeluOf<Opcode::kErf, IsInnerOfGeluByErf>},
      {Activation::kSilu, SiluOf},
      {Activation::kHardswish, HardswishOf},
      {Activation::kSigmoid, OperandOf<Opcode::kLogistic>},
      {Activation::kTanh, OperandOf<Opcode::kTanh>}};
  for (const auto& [activation, value_of] : kForms) {
    activated.value = value_of(op);
    if (activated.value == nullptr) continue;
    activated.activation = activation;
    absl::flat_hash_set<const Instruction*> seen = {activated.value};
    Collect(&root, &seen, &activated.inside);
    break;
  }
  return activated;
}

std::vector<Summed> SummedBy(const Instruction& root) {
  const Instruction* add = Through(&root);
  std::vector<Summed> sums;
  if (add->opcode() != Opcode::kAdd) return sums;
  for (int64_t side = 0; side < 2; ++side) {
    Summed sum{.value = Through(add->operand(side)), .other = Through(add->operand(1 - side))};
    if (sum.value == sum.other || sum.other->opcode() == Opcode::kBroadcast || sum.other->opcode() == Opcode::kConstant) continue;
    if (!Shape::SameWithLayout(sum.value->shape(), root.shape()) || !Shape::SameWithLayout(sum.other->shape(), root.shape())) continue;
    absl::flat_hash_set<const Instruction*> seen = {sum.value, sum.other};
    Collect(&root, &seen, &sum.inside);
    sums.push_back(std::move(sum));
  }
  return sums;
}

}  // namespace tenon
