// Regions of KernelEmitter: computations applied to elements (to_apply of reduce, sort, map, ...).
//
// A flat region (region.h) is a chain of elementwise ops on whatever registers it is given. Any
// other is *general*: its parameters become known values of a scope of its own, and its root is
// evaluated as everything in a kernel is, on scalars; so arrays in it (tables, small reductions) are
// read by index, and while and conditional become branches.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "backends/codegen/emit/convert.h"
#include "backends/codegen/emit/elementwise.h"
#include "backends/codegen/fused/region.h"
#include "backends/codegen/kernel/kernel_emitter.h"
#include "hlo/check.h"
#include "hlo/own_calls.h"
#include "llvm/IR/Module.h"
#include "passes/expand/control_flow.h"

namespace tenon {

using llvm::Value;

llvm::Constant* ScalarConstant(llvm::Type* type, PrimitiveType element, const Literal& literal,
                               int64_t i) {
  if (IsComplex(element)) {
    const std::complex<double> c = literal.GetAsComplex(i);
    auto* parts = llvm::cast<llvm::StructType>(type);
    return llvm::ConstantStruct::get(parts,
                                     {llvm::ConstantFP::get(parts->getElementType(0), c.real()),
                                      llvm::ConstantFP::get(parts->getElementType(1), c.imag())});
  }
  if (IsFloat(element)) return llvm::ConstantFP::get(type, literal.GetAsDouble(i));
  return llvm::ConstantInt::get(type, static_cast<uint64_t>(literal.GetAsInt64(i)), false,
                                /*ImplicitTrunc=*/true);
}

bool KernelEmitter::IsGeneral(const Computation& region) {
  auto [it, fresh] = general_.try_emplace(&region, false);
  if (fresh) it->second = !IsFlatRegion(region, /*slabs=*/true);
  return it->second;
}

// What moves a scalar unchanged; a bitcast may give it another type of the same width.
Value* KernelEmitter::Retyped(llvm::IRBuilder<>& b, const Instruction& op, Value* v) {
  const PrimitiveType from = op.operand(0)->shape().element_type(),
                      to = op.shape().element_type();
  if (from == to) return v;
  return FromWords(b, to, ToWords(b, from, v, specs_.types), specs_.types);
}

std::vector<Value*> KernelEmitter::Apply(llvm::IRBuilder<>& b, const Computation& computation,
                                         std::span<Value* const> args, bool merging) {
  if (IsGeneral(computation)) return ApplyGeneral(computation, args);
  absl::flat_hash_map<const Instruction*, Value*> values;
  EmitOptions options = specs_.types;
  options.merging = merging;
  for (const Instruction* op : computation.PostOrder()) {
    if (op->opcode() == Opcode::kTuple) continue;
    if (op->opcode() == Opcode::kParameter) {
      values[op] = args[static_cast<size_t>(op->parameter_number())];
      continue;
    }
    if (op->opcode() == Opcode::kConstant) {
      const PrimitiveType type = op->shape().element_type();
      values[op] = ScalarConstant(RegisterType(context(), type), type, op->literal(), 0);
      continue;
    }
    if (KeepsScalar(op->opcode())) {
      values[op] = Retyped(b, *op, values[op->operand(0)]);
      continue;
    }
    llvm::SmallVector<Value*, 3> operands;
    unsigned lanes = 1;
    for (const Instruction* o : op->operands()) {
      operands.push_back(values[o]);
      lanes = std::max(lanes, LanesOf(values[o]->getType()));
    }
    for (Value*& o : operands) {
      if (lanes > 1 && !IsVectorType(o->getType())) o = SplatValue(b, lanes, o);
    }
    if (op->opcode() == Opcode::kMap) {
      values[op] = Apply(b, *op->to_apply(), operands, merging)[0];
      continue;
    }
    absl::StatusOr<Value*> v =
        IsPointwise(*op)
            ? EmitElementwise(b, *op, operands, options)
            : absl::UnimplementedError(absl::StrCat("code generation of ", op->ToString()));
    if (!v.ok()) {
      Fail(v.status());
      v = llvm::PoisonValue::get(RegisterType(context(), op->shape().element_type()));
    }
    values[op] = *v;
  }
  std::vector<Value*> results;
  const Instruction* root = computation.root();
  if (root->opcode() == Opcode::kTuple) {
    for (const Instruction* o : root->operands()) results.push_back(values[o]);
  } else {
    results.push_back(values[root]);
  }
  return results;
}

std::vector<Value*> KernelEmitter::ApplyGeneral(const Computation& region,
                                                std::span<Value* const> args) {
  if (mode_.lanes > 1 || mode_.copies > 1) {
    Fail(absl::InternalError(
        absl::StrCat("the region ", region.name(), " is emitted for scalars only")));
  }
  // A level of its own: what depends on the parameters is forgotten at its end.
  llvm::BasicBlock* block = llvm::BasicBlock::Create(context(), "region", function_);
  levels_.back().before = Here().CreateBr(block);
  levels_.push_back({block});
  size_t next = 0;
  for (const Instruction* p : region.parameters()) {
    const size_t leaves = FlattenShape(p->shape()).size();
    for (size_t k = 0; k < leaves; ++k, ++next) {
      if (args[next] != nullptr)
        Define(p, {}, static_cast<int>(k), {.v = {args[next]}, .level = innermost()});
    }
  }
  std::vector<Value*> results;
  const size_t leaves = FlattenShape(region.root()->shape()).size();
  for (size_t k = 0; k < leaves; ++k)
    results.push_back(Eval(region.root(), {}, nullptr, static_cast<int>(k)).v[0]);
  block = levels_.back().block;
  levels_.pop_back();
  levels_.back().block = block;
  levels_.back().before = nullptr;
  return results;
}

std::vector<Value*> KernelEmitter::ApplyUnder(const Guard* guard, const Computation& region,
                                              std::span<Value* const> args) {
  if (guard == nullptr) return Apply(Here(), region, args, /*merging=*/false);
  std::vector<llvm::AllocaInst*> slots = Slots(region.root()->shape());
  If(Condition(guard).v[0], [&] {
    std::vector<Value*> results = Apply(Here(), region, args, /*merging=*/false);
    for (size_t k = 0; k < slots.size(); ++k) Here().CreateStore(results[k], slots[k]);
  });
  return Load(slots);
}

std::vector<llvm::AllocaInst*> KernelEmitter::Slots(const Shape& shape) {
  std::vector<llvm::AllocaInst*> slots;
  for (const Shape& leaf : FlattenShape(shape)) {
    llvm::Type* type = RegisterType(context(), leaf.element_type());
    slots.push_back(Alloca(type));
    Here().CreateStore(llvm::Constant::getNullValue(type), slots.back());
  }
  return slots;
}

std::vector<Value*> KernelEmitter::Load(std::span<llvm::AllocaInst* const> slots) {
  std::vector<Value*> values;
  for (llvm::AllocaInst* slot : slots)
    values.push_back(Here().CreateLoad(slot->getAllocatedType(), slot));
  return values;
}

void KernelEmitter::AccumulateGeneral(
    const Instruction& reduce, const std::vector<Val>& values, const std::optional<Val>& wanted,
    const std::vector<std::vector<llvm::AllocaInst*>>& slots) {
  auto accumulate = [&] {
    std::vector<Value*> args;
    for (const auto& slot : slots)
      args.push_back(Here().CreateLoad(slot[0]->getAllocatedType(), slot[0]));
    for (const Val& v : values) args.push_back(v.v[0]);
    std::vector<Value*> next = Apply(Here(), *reduce.to_apply(), args, /*merging=*/false);
    for (size_t k = 0; k < slots.size(); ++k) Here().CreateStore(next[k], slots[k][0]);
  };
  if (wanted) return If(wanted->v[0], accumulate);
  accumulate();
}

// Values of all leaves, known from here on.
Val KernelEmitter::DefineLeaves(const Instruction* op, const Guard* guard,
                                const std::vector<Value*>& leaves, int component) {
  for (size_t k = 0; k < leaves.size(); ++k) {
    levels_.back().memo[{op, {}, guard, static_cast<int>(k)}] = {.v = {leaves[k]},
                                                                 .level = innermost()};
  }
  return {.v = {leaves[static_cast<size_t>(component)]}, .level = innermost()};
}

Val KernelEmitter::EvalWhile(const Instruction* op, const Guard* guard, int component) {
  std::vector<llvm::AllocaInst*> state = Slots(op->shape());
  for (size_t k = 0; k < state.size(); ++k) {
    Val init = Eval(op->operand(0), {}, guard, static_cast<int>(k));
    Here().CreateStore(init.v[0], state[k]);
  }
  const Computation& condition = *op->attrs().get<Computation*>(Attr::kCondition);
  const Computation& body = *op->attrs().get<Computation*>(Attr::kBody);
  auto loop = [&] {
    While([&] { return Apply(Here(), condition, Load(state), /*merging=*/false)[0]; },
          [&] {
            std::vector<Value*> next = Apply(Here(), body, Load(state), /*merging=*/false);
            for (size_t k = 0; k < state.size(); ++k) Here().CreateStore(next[k], state[k]);
          });
  };
  if (guard != nullptr) {
    If(Condition(guard).v[0], loop);
  } else {
    loop();
  }
  return DefineLeaves(op, guard, Load(state), component);
}

Val KernelEmitter::EvalConditional(const Instruction* op, const Guard* guard, int component) {
  const std::vector<Computation*> branches = BranchesOf(*op);
  const int64_t last = static_cast<int64_t>(branches.size()) - 1;
  std::vector<llvm::AllocaInst*> results = Slots(op->shape());
  Value* selector = Eval(op->operand(0), {}, guard).v[0];
  const bool pred = op->operand(0)->shape().element_type() == PrimitiveType::kPred;
  for (int64_t k = 0; k <= last; ++k) {
    std::vector<Value*> args;
    const size_t leaves = FlattenShape(op->operand(k + 1)->shape()).size();
    for (size_t l = 0; l < leaves; ++l)
      args.push_back(Eval(op->operand(k + 1), {}, guard, static_cast<int>(l)).v[0]);
    llvm::IRBuilder<>& b = Here();
    Value* chosen = selector;
    if (pred) {
      if (k == 1) chosen = b.CreateNot(selector);
    } else if (k == last) {  // and whatever is out of range
      chosen =
          b.CreateICmpUGE(selector, llvm::ConstantInt::getSigned(selector->getType(), last));
    } else {
      chosen = b.CreateICmpEQ(selector, llvm::ConstantInt::getSigned(selector->getType(), k));
    }
    if (guard != nullptr) {
      Value* live = Condition(guard).v[0];
      chosen = Here().CreateAnd(chosen, live);
    }
    If(chosen, [&] {
      std::vector<Value*> values = Apply(Here(), *branches[static_cast<size_t>(k)], args,
                                         /*merging=*/false);
      for (size_t l = 0; l < results.size(); ++l) Here().CreateStore(values[l], results[l]);
    });
  }
  return DefineLeaves(op, guard, Load(results), component);
}

}  // namespace tenon
