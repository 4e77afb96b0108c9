// Values of KernelEmitter: one function per kind of instruction.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "backends/codegen/emit/convert.h"
#include "backends/codegen/emit/elementwise.h"
#include "backends/codegen/kernel/kernel_emitter.h"
#include "backends/codegen/kernel/turns.h"
#include "hlo/check.h"
#include "hlo/own_calls.h"
#include "llvm/IR/Module.h"

namespace tenon {

using llvm::Value;

Val KernelEmitter::Eval(const Instruction* op, const IndexTuple& index, const Guard* guard,
                        int component) {
  Key key{op, {index.begin(), index.end()}, guard, component};
  Key unguarded = key;
  unguarded.guard = nullptr;
  for (size_t l = levels_.size(); l-- > 0;) {
    if (auto it = levels_[l].memo.find(key); it != levels_[l].memo.end()) return it->second;
    if (guard == nullptr) continue;
    // A value that is right everywhere is right where the guard holds.
    if (auto it = levels_[l].memo.find(unguarded); it != levels_[l].memo.end()) return it->second;
  }
  Val v;
  if (auto it = in_memory_.find(unguarded); it != in_memory_.end()) {
    v = LoadRaw(it->second);
  } else {
    v = EvalUncached(op, index, guard, component);
  }
  if (v.v.empty()) {  // failed: anything well-typed
    const Shape& shape = op->shape().is_tuple() ? op->shape().element(component) : op->shape();
    v = {.v = {llvm::PoisonValue::get(RegisterType(context(), shape.element_type()))}};
  }
  // A vector may be known outside of its loop (gathered by constant indices), but the tail of that
  // loop wants scalars.
  int remembered = v.level;
  if (v.is_vector() || v.v.size() > 1)
    remembered = std::min(std::max(v.level, mode_.level), innermost());
  levels_[static_cast<size_t>(remembered)].memo[key] = v;
  return v;
}

void KernelEmitter::Define(const Instruction* op, const IndexTuple& index, int component,
                           Val value) {
  levels_[static_cast<size_t>(value.level)]
      .memo[{op, {index.begin(), index.end()}, nullptr, component}] = std::move(value);
}

void KernelEmitter::DefineInMemory(const Instruction* op, const IndexTuple& index, int component,
                                   InMemory where) {
  in_memory_[{op, {index.begin(), index.end()}, nullptr, component}] = where;
}

namespace {

constexpr int64_t kUnrolledTaps = 9;  // of a window, straight on: their addresses and bounds are known outside of the loop

}  // namespace

Val KernelEmitter::EvalUncached(const Instruction* op, const IndexTuple& index, const Guard* guard,
                                int component) {
  switch (op->opcode()) {
    case Opcode::kParameter: {
      const size_t p = static_cast<size_t>(op->parameter_number());
      const PrimitiveType type = op->shape().element_type();
      bool inside = true;
      for (size_t d = 0; d < index.size(); ++d)
        inside &= Decide({index[d], op->shape().dim(static_cast<int64_t>(d))}) == true;
      Index offset = space_.Linear(index, fused_.operands[p].strides);
      // The place lies inside whatever the guard says, if there is a place; finding it may still take reads that do not.
      if (inside && !ReadsMemory(offset)) guard = OfSizes(guard);
      if (load_hook && guard == nullptr) {  // it loads whole tiles, so all of one must lie in the operand
        if (std::optional<Val> v = load_hook(op, offset)) return *v;
      }
      // An index that is right because of a loop that may be empty (j / 8 is 0 where j < 8m and m <= 1) hangs on it no longer:
      // the load stays within.
      const int level = inside || guard != nullptr ? 0 : innermost();
      Val v = LoadElements(pointers_[p], level, MemoryType(context(), type), offset, guard);
      for (Value*& x : v.v) x = FromMemory(At(v.level), type, x, specs_.types);
      return v;
    }
    case Opcode::kConstant:
      return EvalConstant(op, index, guard);
    case Opcode::kIota:
      return EvalIota(op, index, guard);
    case Opcode::kPad:
    case Opcode::kDynamicUpdateSlice:
      return EvalWindowed(op, index, guard);
    case Opcode::kConcatenate:
      return EvalConcatenate(op, index, guard);
    case Opcode::kReduce:
      return EvalReduce(op, index, guard, component);
    case Opcode::kReduceWindow:
      return EvalReduceWindow(op, index, guard, component);
    case Opcode::kDot:
    case Opcode::kConvolution:
      return EvalContraction(op, index, guard);
    case Opcode::kGetTupleElement:
      return Eval(op->operand(0), index, guard, static_cast<int>(op->tuple_index()));
    case Opcode::kTuple:
      return Eval(op->operand(component), index, guard);
    case Opcode::kWhile:
      return EvalWhile(op, guard, component);
    case Opcode::kConditional:
      return EvalConditional(op, guard, component);
    case Opcode::kCustomCall:
      if (IsPointwiseCall(*op)) break;
      return {.v = {llvm::ConstantInt::getFalse(context())}};  // tenon.check: nothing failed, as far as data go
    default:
      break;
  }
  if (ChangesWidth(*op)) {
    const bool joins = op->shape().rank() < op->operand(0)->shape().rank();
    return joins ? EvalJoinedBits(op, index, guard) : EvalSplitBits(op, index, guard);
  }
  if (op->family() == Family::kElementwise || IsPointwiseCall(*op)) return EvalElementwise(op, index, guard);
  if (std::optional<OperandIndex> mapped = MapToOperand(space_, *op, 0, index)) {
    Val v = Eval(op->operand(0), mapped->index, Under(guard, mapped->bounds));
    for (Value*& x : v.v) x = Retyped(At(v.level), *op, x);
    return v;
  }
  Fail(absl::UnimplementedError(absl::StrCat("code generation of ", op->ToString())));
  return {};
}

Val KernelEmitter::EvalElementwise(const Instruction* op, const IndexTuple& index,
                                   const Guard* guard) {
  std::vector<Val> operands;
  Val r;
  size_t copies = 1;
  bool vector = false;
  for (int64_t k = 0; k < op->operand_count(); ++k) {
    operands.push_back(Eval(op->operand(k), MapToOperand(space_, *op, k, index)->index, guard));
    r.level = std::max(r.level, operands.back().level);
    copies = std::max(copies, operands.back().v.size());
    vector |= operands.back().is_vector();
  }
  if (op->opcode() == Opcode::kMap && IsGeneral(*op->to_apply())) {
    std::vector<Value*> args;
    for (const Val& o : operands) args.push_back(o.v[0]);
    return {.v = {ApplyUnder(guard, *op->to_apply(), args)[0]}, .level = innermost()};
  }
  std::vector<llvm::SmallVector<Value*, 3>> args(copies);
  for (size_t c = 0; c < copies; ++c) {
    for (const Val& o : operands) args[c].push_back(vector ? Splat(o.at(c), o.level) : o.at(c));
  }
  Turns turns(At(r.level));
  for (size_t c = 0; c < copies; ++c) {
    if (op->opcode() == Opcode::kMap) {
      r.v.push_back(Apply(At(r.level), *op->to_apply(), args[c], /*merging=*/false)[0]);
      continue;
    }
    absl::StatusOr<Value*> v = EmitElementwise(At(r.level), *op, args[c], specs_.types);
    if (!v.ok()) {
      Fail(v.status());
      return {};
    }
    r.v.push_back(*v);
    turns.EndCopy(At(r.level));
  }
  if (vector) turns.Take(specs_.vector_bytes == 64 ? 4 : 2);  // of 32 registers or 16
  return r;
}

Val KernelEmitter::EvalConstant(const Instruction* op, const IndexTuple& index,
                                const Guard* guard) {
  const PrimitiveType type = op->shape().element_type();
  if (auto it = fused_.literal_of.find(op); it != fused_.literal_of.end()) {
    llvm::IRBuilder<>& b = At(0);
    const uint64_t slot = fused_.size_args.size() + static_cast<size_t>(it->second);
    Value* v = b.CreateLoad(StorageType(context(), type),
                            b.CreateConstInBoundsGEP1_64(i64_, entry_.args, slot));
    return {.v = {IsStoredAsInMemory(type) ? FromMemory(b, type, v, specs_.types) : v}};
  }
  const Literal& literal = op->literal();
  if (literal.num_elements() == 0)
    return {.v = {llvm::PoisonValue::get(RegisterType(context(), type))}};
  if (op->shape().rank() == 0 || literal.IsSplat())
    return {.v = {ScalarConstant(RegisterType(context(), type), type, literal, 0)}};
  llvm::GlobalVariable*& table = tables_[op];
  if (table == nullptr) {
    llvm::Type* element = StorageType(context(), type);
    std::vector<llvm::Constant*> values;
    for (int64_t i = 0; i < literal.num_elements(); ++i)
      values.push_back(ScalarConstant(element, type, literal, i));
    auto* array = llvm::ArrayType::get(element, values.size());
    table = new llvm::GlobalVariable(*function_->getParent(), array, true,
                                     llvm::GlobalValue::PrivateLinkage,
                                     llvm::ConstantArray::get(array, values));
    table->setAlignment(llvm::Align(16));
  }
  llvm::Type* element = llvm::cast<llvm::ArrayType>(table->getValueType())->getElementType();
  Val v = LoadElements(table, 0, element, space_.Linear(index, DenseStrides(op->shape().dims())),
                       guard);
  if (IsStoredAsInMemory(type)) {
    for (Value*& x : v.v) x = FromMemory(At(v.level), type, x, specs_.types);
  }
  return v;
}

Val KernelEmitter::EvalIota(const Instruction* op, const IndexTuple& index, const Guard* guard) {
  const PrimitiveType type = op->shape().element_type();
  Index e = index[static_cast<size_t>(op->attrs().get<int64_t>(Attr::kIotaDimension))];
  Val v = IsVectorIndex(e) ? VectorIndex(e, guard) : ScalarIndex(e, guard);
  for (Value*& x : v.v) {
    llvm::IRBuilder<>& b = At(v.level);
    x = ConvertFromIndex(b, type, x, specs_.types);
  }
  return v;
}

Val KernelEmitter::SelectVal(const Val& condition, const Val& a, const Val& b) {
  Val r{.level = std::max({condition.level, a.level, b.level})};
  const bool vector = condition.is_vector() || a.is_vector() || b.is_vector();
  for (size_t c = 0; c < std::max({condition.v.size(), a.v.size(), b.v.size()}); ++c) {
    Value *p = condition.at(c), *x = a.at(c), *y = b.at(c);
    if (vector) {
      x = Splat(x, a.level);
      y = Splat(y, b.level);
      p = Splat(p, condition.level);
    }
    r.v.push_back(SelectValue(At(r.level), p, x, y));
  }
  return r;
}

// Inside the window from one operand, outside from the other.
Val KernelEmitter::EvalWindowed(const Instruction* op, const IndexTuple& index,
                                const Guard* guard) {
  const bool pad = op->opcode() == Opcode::kPad;
  const int64_t inner = pad ? 0 : 1, outer = pad ? 1 : 0;
  OperandIndex window = *MapToOperand(space_, *op, inner, index);
  OperandIndex around = *MapToOperand(space_, *op, outer, index);
  for (const IndexBound& b : window.bounds) {
    if (Decide(b) == false) return Eval(op->operand(outer), around.index, guard);
  }
  const Guard* inside = Under(guard, window.bounds);
  Val in = Eval(op->operand(inner), window.index, inside);
  if (inside == guard) return in;
  Val out = Eval(op->operand(outer), around.index, guard);
  return SelectVal(BoundsHold(window.bounds, guard), in, out);
}

Val KernelEmitter::EvalConcatenate(const Instruction* op, const IndexTuple& index,
                                   const Guard* guard) {
  std::optional<Val> result;
  for (int64_t k = op->operand_count(); k-- > 0;) {
    OperandIndex piece = *MapToOperand(space_, *op, k, index);
    std::optional<bool> decided = Decide(piece.bounds[0]);
    if (decided == false || op->operand(k)->shape().num_elements() == Dim(0)) continue;
    if (decided == true) return Eval(op->operand(k), piece.index, guard);
    Val v = Eval(op->operand(k), piece.index, Under(guard, piece.bounds));
    result = result ? SelectVal(BoundsHold(piece.bounds, guard), v, *result) : v;
  }
  return result ? *result : Val{};
}

Value* KernelEmitter::PartialStart(const Instruction& reduce, int component) {
  const PrimitiveType type = reduce.operand(component)->shape().element_type();
  if (CombineOf(reduce) != Combine::kIdentity) {
    return Eval(reduce.operand(reduce.operand_count() / 2 + component), {}).v[0];
  }
  llvm::Type* t = RegisterType(context(), type);
  if (IsComplex(type)) {  // a sum
    llvm::Constant* zero = llvm::ConstantFP::get(t->getStructElementType(0), -0.0);
    return llvm::ConstantStruct::get(llvm::cast<llvm::StructType>(t), {zero, zero});
  }
  const double inf = std::numeric_limits<double>::infinity();
  auto integer = [&](uint64_t v) { return llvm::ConstantInt::get(t, v, false, true); };
  const int bits = BitWidth(type);
  const uint64_t top = uint64_t{1} << (bits - 1);
  switch (CombineOpcode(reduce)) {
    case Opcode::kMultiply:
      return IsFloat(type) ? llvm::ConstantFP::get(t, 1) : integer(1);
    case Opcode::kMaximum:
      return IsFloat(type) ? llvm::ConstantFP::get(t, -inf) : integer(IsSigned(type) ? top : 0);
    case Opcode::kMinimum:
      return IsFloat(type) ? llvm::ConstantFP::get(t, inf)
                           : integer(IsSigned(type) ? top - 1 : ~uint64_t{0});
    case Opcode::kAnd:
      return integer(~uint64_t{0});
    default:  // add, or, xor; -0 is what leaves -0 alone
      return IsFloat(type) ? llvm::ConstantFP::get(t, -0.0) : integer(0);
  }
}

std::vector<Val> KernelEmitter::SerialReduce(const Instruction* op, const IndexTuple& kept, const Walk& walk,
                                             const std::function<std::vector<Val>()>& values,
                                             const std::function<std::optional<Val>()>& condition) {
  const int64_t components = op->operand_count() / 2;
  const bool vector =
      std::any_of(kept.begin(), kept.end(), [this](Index e) { return IsVectorIndex(e); });
  const bool unrolled =
      std::any_of(kept.begin(), kept.end(), [this](Index e) { return IsUnrolledIndex(e); });
  const int copies = unrolled ? mode_.copies : 1;
  std::vector<std::vector<llvm::AllocaInst*>> slots(static_cast<size_t>(components));
  for (int64_t k = 0; k < components; ++k) {
    Val init = Eval(op->operand(components + k), {});
    Value* start = vector ? Splat(init.v[0], init.level) : init.v[0];
    for (int c = 0; c < copies; ++c) {
      slots[k].push_back(Alloca(start->getType()));
      Here().CreateStore(start, slots[k].back());
    }
  }
  auto accumulate = [&] {
    std::vector<Val> v = values();
    std::optional<Val> wanted = condition ? condition() : std::nullopt;
    if (IsGeneral(*op->to_apply())) return AccumulateGeneral(*op, v, wanted, slots);
    for (int c = 0; c < copies; ++c) {
      std::vector<Value*> args, old;
      for (int64_t k = 0; k < components; ++k)
        old.push_back(Here().CreateLoad(slots[k][c]->getAllocatedType(), slots[k][c]));
      args = old;
      for (const Val& x : v)
        args.push_back(vector ? Splat(x.at(static_cast<size_t>(c)), x.level)
                              : x.at(static_cast<size_t>(c)));
      std::vector<Value*> next = Apply(Here(), *op->to_apply(), args, /*merging=*/false);
      for (int64_t k = 0; k < components; ++k) {
        Value* n = next[k];
        if (wanted) {
          Value* p = wanted->at(static_cast<size_t>(c));
          if (IsVectorType(p->getType()) != IsVectorType(n->getType())) p = Splat(p, wanted->level);
          n = SelectValue(Here(), p, n, old[k]);
        }
        Here().CreateStore(n, slots[k][c]);
      }
    }
  };
  walk(accumulate);
  std::vector<Val> results;
  for (auto& component : slots) {
    Val r{.level = innermost()};
    for (llvm::AllocaInst* slot : component)
      r.v.push_back(Here().CreateLoad(slot->getAllocatedType(), slot));
    results.push_back(std::move(r));
  }
  return results;
}

KernelEmitter::Walk KernelEmitter::Nest(std::vector<Index> vars) {
  return [this, vars = std::move(vars)](const std::function<void()>& accumulate) {
    std::function<void(size_t)> nest = [&](size_t d) {
      if (d == vars.size()) return accumulate();
      LoopOver(vars[d], I64(0), EmitDim(vars[d]->high + 1), 1, [&] { nest(d + 1); });
    };
    nest(0);
  };
}

// Not one of the plan's reductions (or not at the plan's index): a serial loop right here.
Val KernelEmitter::EvalReduce(const Instruction* op, const IndexTuple& index, const Guard* guard,
                              int component) {
  const Shape& shape = op->operand(0)->shape();
  IndexTuple full(static_cast<size_t>(shape.rank()), nullptr);
  std::vector<Index> vars;
  std::vector<int64_t> dims(op->dimensions().begin(), op->dimensions().end());
  std::sort(dims.begin(), dims.end());  // row-major order, which a body may depend on
  for (int64_t d : dims) {
    if (space_.num_vars() == IndexSpace::kMaxVars) {
      Fail(absl::UnimplementedError(absl::StrCat("too many loops in one kernel at ", op->name())));
      return {};
    }
    vars.push_back(space_.Var(shape.dim(d)));
    full[static_cast<size_t>(d)] = vars.back();
  }
  size_t next = 0;
  for (Index& i : full) {
    if (i == nullptr) i = index[next++];
  }
  auto values = [&] {
    std::vector<Val> v;
    for (int64_t k = 0; k < op->operand_count() / 2; ++k)
      v.push_back(Eval(op->operand(k), full, guard));
    return v;
  };
  // A region that may loop is not run on what nobody wants.
  std::function<std::optional<Val>()> wanted = nullptr;
  if (guard != nullptr && IsGeneral(*op->to_apply()))
    wanted = [&]() -> std::optional<Val> { return Condition(guard); };
  std::vector<Val> results = SerialReduce(op, index, Nest(std::move(vars)), values, wanted);
  for (size_t k = 0; k < results.size(); ++k) {
    levels_[static_cast<size_t>(results[k].level)]
        .memo[{op, {index.begin(), index.end()}, guard, static_cast<int>(k)}] = results[k];
  }
  return results[static_cast<size_t>(component)];
}

// Serial over the window; positions in the padding, or between dilated elements, do not count.
Val KernelEmitter::EvalReduceWindow(const Instruction* op, const IndexTuple& index,
                                    const Guard* guard, int component) {
  const Window window = WindowOf(*op);
  OperandIndex at;  // of the tap
  const Guard* inside = nullptr;
  auto move_to = [&](absl::Span<const Index> tap) {
    at = MapWindow(space_, *op, index, tap);
    inside = Under(guard, at.bounds);
  };
  Walk walk;
  if (TapsOf(window) <= kUnrolledTaps && !IsGeneral(*op->to_apply())) {
    walk = [&](const std::function<void()>& accumulate) {
      std::vector<Index> tap(index.size());
      std::function<void(size_t)> each = [&](size_t d) {
        if (d == tap.size()) return move_to(tap), accumulate();
        for (int64_t k = 0; k < window.dims[d].size; ++k) {
          tap[d] = space_.Constant(k);
          each(d + 1);
        }
      };
      each(0);
    };
  } else {
    std::vector<Index> vars, tap;
    for (const WindowDim& w : window.dims) {
      if (w.size > 1 && space_.num_vars() == IndexSpace::kMaxVars) {
        Fail(absl::UnimplementedError(absl::StrCat("too many loops in one kernel at ", op->name())));
        return {};
      }
      if (w.size > 1) vars.push_back(space_.Var(w.size));
      tap.push_back(w.size > 1 ? vars.back() : space_.Constant(0));
    }
    move_to(tap);
    walk = Nest(std::move(vars));
  }
  auto values = [&] {
    std::vector<Val> v;
    for (int64_t k = 0; k < op->operand_count() / 2; ++k)
      v.push_back(Eval(op->operand(k), at.index, inside));
    return v;
  };
  auto counts = [&]() -> std::optional<Val> {
    if (inside != nullptr && IsGeneral(*op->to_apply())) return Condition(inside);
    if (inside == guard) return std::nullopt;
    return BoundsHold(at.bounds, guard);
  };
  std::vector<Val> results = SerialReduce(op, index, walk, values, counts);
  for (size_t k = 0; k < results.size(); ++k) {
    levels_[static_cast<size_t>(results[k].level)]
        .memo[{op, {index.begin(), index.end()}, guard, static_cast<int>(k)}] = results[k];
  }
  return results[static_cast<size_t>(component)];
}

void KernelEmitter::Check(const Instruction* check, const Val& condition) {
  llvm::AllocaInst*& flag = check_flags_[check];
  llvm::Type* i1 = llvm::Type::getInt1Ty(context());
  if (flag == nullptr) {
    flag = Alloca(i1);
    llvm::IRBuilder<> entry(flag->getParent(), std::next(flag->getIterator()));
    entry.CreateStore(llvm::ConstantInt::getFalse(context()), flag);
  }
  Value* any = Here().CreateLoad(i1, flag);
  for (size_t c = 0; c < condition.v.size(); ++c) {
    Value* failed = condition.v[c];
    if (Value* mask = LaneMask(static_cast<int>(c))) {
      failed = Splat(failed, condition.level);  // at its own level, before what is made here
      failed = Here().CreateAnd(failed, mask);
    }
    if (failed->getType()->isVectorTy()) failed = Here().CreateOrReduce(failed);
    any = Here().CreateOr(any, failed);
  }
  Here().CreateStore(any, flag);
}

}  // namespace tenon
