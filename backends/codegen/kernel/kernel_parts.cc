#include "backends/codegen/kernel/kernel_parts.h"

#include "absl/strings/str_cat.h"
#include "backends/codegen/emit/elementwise.h"
#include "backends/codegen/emit/emit_types.h"
#include "hlo/own_calls.h"
#include "llvm/IR/Module.h"

namespace tenon {

using llvm::Value;

std::vector<int64_t> RootsWithRole(const FusedKernel& fused, Role role) {
  std::vector<int64_t> r;
  for (size_t i = 0; i < fused.roots.size(); ++i) {
    if (fused.RoleOf(RootShape(fused, i)) == role) r.push_back(static_cast<int64_t>(i));
  }
  return r;
}

bool IsHeavy(const FusedKernel& fused) {
  int cost = 0;
  for (const Instruction* op : fused.order) cost += IsPointwise(*op) ? ElementwiseCost(*op) : 0;
  return cost > 80;
}

void ForOuter(KernelEmitter& e, const KernelPlan& plan, absl::Span<const Index> vars, Dim blocks,
              const std::function<void(Value*)>& body) {
  e.ForUnits([&](Value* o) {
    Value* rest = o;
    Value* block = e.I64(0);
    auto digit = [&](Dim extent, bool last) {
      if (last) return rest;
      Value* n = e.EmitDim(extent);
      Value* d = e.Here().CreateURem(rest, n);
      rest = e.Here().CreateUDiv(rest, n);
      return d;
    };
    const bool has_block = !(blocks == Dim(1));
    if (has_block) block = digit(blocks, plan.split == 0);
    for (int i = plan.split; i-- > 0;)
      e.BindVar(vars[static_cast<size_t>(i)],
                digit(plan.loops[static_cast<size_t>(i)].extent, i == 0));
    body(block);
  });
}

void ForLoops(KernelEmitter& e, const KernelPlan& plan, absl::Span<const Index> vars, size_t first,
              size_t last, const std::function<void()>& body) {
  if (first >= last) return body();
  e.LoopOver(vars[first], e.I64(0), e.EmitDim(plan.loops[first].extent), 1,
             [&] { ForLoops(e, plan, vars, first + 1, last, body); });
}

void StoreRoots(KernelEmitter& e, const Iteration& iteration, absl::Span<const int64_t> roots) {
  std::vector<Val> values;
  std::vector<Index> offsets;
  for (int64_t i : roots) {
    const Instruction* root = e.fused().roots[static_cast<size_t>(i)];
    IndexTuple index =
        iteration.IndexOf(e.space(), e.fused(), RootShape(e.fused(), static_cast<size_t>(i)));
    values.push_back(
        e.Eval(root, index, nullptr, root->shape().is_tuple() ? static_cast<int>(i) : 0));
    if (e.fused().updated != nullptr) index = UpdatePlace(e.space(), *e.fused().updated, index);
    offsets.push_back(e.space().Linear(index, e.fused().results[static_cast<size_t>(i)].strides));
  }
  for (size_t k = 0; k < values.size(); ++k)
    e.StoreResult(static_cast<int>(roots[k]), offsets[k], values[k]);
}

void EmitChecks(KernelEmitter& e, const Iteration& iteration, Role role) {
  for (const Instruction* check : e.fused().checks) {
    const Instruction* pred = check->operand(0);
    if (e.fused().RoleOf(pred->shape()) != role) continue;
    e.Check(check, e.Eval(pred, iteration.IndexOf(e.space(), e.fused(), pred->shape())));
  }
}

void EmitOthers(KernelEmitter& e, bool all_checks) {
  const FusedKernel& f = e.fused();
  struct Item {
    const Shape* shape;
    int64_t root;
    const Instruction* check;
  };
  std::vector<Item> items;
  for (int64_t i : f.serial != nullptr ? std::vector<int64_t>() : RootsWithRole(f, Role::kOther))
    items.push_back({&RootShape(f, static_cast<size_t>(i)), i, nullptr});
  for (const Instruction* c : f.checks) {
    if (all_checks || f.RoleOf(c->operand(0)->shape()) == Role::kOther)
      items.push_back({&c->operand(0)->shape(), -1, c});
  }
  if (items.empty()) return;
  e.ByFirst([&] {
    for (const Item& item : items) {
      IndexTuple index;
      for (Dim d : item.shape->dims())
        index.push_back(KnownOne(d) ? e.space().Constant(0) : e.space().Var(d));
      std::function<void(size_t)> nest = [&](size_t d) {
        if (d < index.size()) {
          if (index[d]->kind != IndexNode::Kind::kVar) return nest(d + 1);
          return e.LoopOver(index[d], e.I64(0), e.EmitDim(item.shape->dim(static_cast<int64_t>(d))),
                            1, [&] { nest(d + 1); });
        }
        if (item.check != nullptr)
          return e.Check(item.check, e.Eval(item.check->operand(0), index));
        const Instruction* root = f.roots[static_cast<size_t>(item.root)];
        Val v = e.Eval(root, index, nullptr,
                       root->shape().is_tuple() ? static_cast<int>(item.root) : 0);
        e.StoreResult(static_cast<int>(item.root),
                      e.space().Linear(index, f.results[static_cast<size_t>(item.root)].strides),
                      v);
      };
      nest(0);
    }
  });
}

namespace {

// LLVM's instruction selection looks from each shuffle through all that stand behind it, and again for each that it changes: of 64 in a
// row that takes longer than all else of a kernel. It doesn't look through a fence, for which no instruction is emitted.
// Devices' squares are too small for one.
Value* Fenced(llvm::IRBuilder<>& b, Value* v) {
  return PerPart(b, {&v, 1}, [&](auto p) -> Value* {
    llvm::Type* type = p[0]->getType();
    const uint64_t bits = type->getPrimitiveSizeInBits().getFixedValue();
    if (bits % 32 != 0) return p[0];
    Value* floats = b.CreateBitCast(p[0], llvm::FixedVectorType::get(b.getFloatTy(), static_cast<unsigned>(bits / 32)));
    return b.CreateBitCast(b.CreateUnaryIntrinsic(llvm::Intrinsic::arithmetic_fence, floats), type);
  });
}

}  // namespace

void TurnSquare(llvm::IRBuilder<>& b, Val& m, int lanes) {
  constexpr int kFew = 4;  // rows of shuffles that are soon looked through
  for (int half = lanes / 2; half > 0; half /= 2) {
    llvm::SmallVector<int, 64> low, high;
    for (int i = 0; i < lanes; ++i) {
      const bool second = (i & half) != 0;
      low.push_back(second ? lanes + i - half : i);
      high.push_back(second ? lanes + i : i + half);
    }
    for (int r = 0; r < lanes; ++r) {
      if (r & half) continue;
      Value *x = m.v[static_cast<size_t>(r)], *y = m.v[static_cast<size_t>(r + half)];
      m.v[static_cast<size_t>(r)] = ShuffleValues(b, x, y, low);
      m.v[static_cast<size_t>(r + half)] = ShuffleValues(b, x, y, high);
    }
    if (half == 1 || lanes <= kFew) continue;
    for (Value*& v : m.v) v = Fenced(b, v);
  }
}

llvm::Function* TurningFunction(llvm::Function& kernel, const TurningSpec& spec) {
  const uint64_t element_bytes = spec.element->getPrimitiveSizeInBits().getFixedValue() / 8, lanes = static_cast<uint64_t>(spec.lanes);
  const std::string name = absl::StrCat("turn.", lanes, "x", element_bytes, spec.ahead > 0 ? absl::StrCat(".ahead", spec.ahead) : "");
  llvm::Module& module = *kernel.getParent();
  if (llvm::Function* made = module.getFunction(name)) return made;
  llvm::LLVMContext& c = module.getContext();
  llvm::Type *ptr = llvm::PointerType::getUnqual(c), *i64 = llvm::Type::getInt64Ty(c);
  auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(c), {ptr, i64, ptr, i64, i64}, false);
  llvm::Function* f = llvm::Function::Create(type, llvm::Function::InternalLinkage, name, module);
  f->setAttributes(kernel.getAttributes());
  f->addFnAttr(llvm::Attribute::NoInline);
  llvm::BasicBlock* entry = llvm::BasicBlock::Create(c, "entry", f);
  llvm::BasicBlock* loop = llvm::BasicBlock::Create(c, "loop", f);
  llvm::BasicBlock* exit = llvm::BasicBlock::Create(c, "exit", f);
  llvm::IRBuilder<> b(entry);
  b.CreateBr(loop);
  b.SetInsertPoint(loop);
  llvm::PHINode *from = b.CreatePHI(ptr, 2), *to = b.CreatePHI(ptr, 2), *left = b.CreatePHI(i64, 2);
  auto* row = llvm::FixedVectorType::get(spec.element, static_cast<unsigned>(spec.lanes));
  const llvm::Align align(element_bytes);
  Val square;
  Value *next_from = from, *next_to = to;
  for (int k = 0; k < spec.lanes; ++k, next_from = b.CreateGEP(b.getInt8Ty(), next_from, f->getArg(1))) {
    square.v.push_back(b.CreateAlignedLoad(row, next_from, align));
    if (spec.ahead == 0) continue;
    Value* ahead = b.CreateConstGEP1_64(b.getInt8Ty(), next_from, static_cast<uint64_t>(spec.ahead) * lanes * element_bytes);
    AskForLine(b, ahead);
  }
  TurnSquare(b, square, spec.lanes);
  for (int k = 0; k < spec.lanes; ++k, next_to = b.CreateGEP(b.getInt8Ty(), next_to, f->getArg(3))) {
    b.CreateAlignedStore(square.v[static_cast<size_t>(k)], next_to, align);
  }
  next_from = b.CreateConstGEP1_64(b.getInt8Ty(), from, lanes * element_bytes);
  Value* next_left = b.CreateSub(left, b.getInt64(1));
  b.CreateCondBr(b.CreateICmpNE(next_left, b.getInt64(0)), loop, exit);
  auto go_on = [&](llvm::PHINode* phi, unsigned first, Value* next) {
    phi->addIncoming(f->getArg(first), entry);
    phi->addIncoming(next, loop);
  };
  go_on(from, 0, next_from);
  go_on(to, 2, next_to);
  go_on(left, 4, next_left);
  b.SetInsertPoint(exit);
  b.CreateRetVoid();
  return f;
}

}  // namespace tenon
