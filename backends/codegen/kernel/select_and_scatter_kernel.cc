// kSelectAndScatter: the result is filled with the init value; then each source element, in
// row-major order, goes to the place in its window that `select` prefers, by `scatter`. Dims that no
// window crosses are the outer range: their elements have nothing to do with each other.
#include <algorithm>

#include "backends/codegen/kernel/kernel_parts.h"

namespace tenon {

using llvm::Value;

namespace {

class SelectAndScatterKernel {
 public:
  SelectAndScatterKernel(KernelEmitter& e, const KernelPlan& plan)
      : e_(e),
        f_(e.fused()),
        plan_(plan),
        op_(*f_.serial),
        shape_(op_.shape()),
        window_(WindowOf(op_)),
        iteration_(e.space(), f_, plan.loops) {}

  void Emit() {
    ForOuter(e_, plan_, iteration_.vars, Dim(1), [&](Value*) {
      ForLoops(e_, plan_, iteration_.vars, static_cast<size_t>(plan_.split), plan_.loops.size(),
               [&] { Fill(); });
      Scatter();
    });
  }

 private:
  llvm::IRBuilder<>& b() { return e_.Here(); }
  bool IsSplit(int64_t d) const {
    return std::any_of(plan_.loops.begin(), plan_.loops.begin() + plan_.split,
                       [d](const PlanLoop& l) { return l.dims[0] == d; });
  }

  void Fill() {
    Val init = e_.Eval(op_.operand(2), {});
    for (size_t r = 0; r < f_.roots.size(); ++r)
      e_.StoreResult(static_cast<int>(r),
                     e_.space().Linear(iteration_.full, f_.results[r].strides), init);
  }

  // Loops over a new variable per dim of `sizes`; dims of one element have none.
  void ForEach(absl::Span<const Index> index, size_t d, const std::function<void()>& body) {
    if (d == index.size()) return body();
    const bool loops = index[d]->kind == IndexNode::Kind::kVar && !IsBound(index[d]);
    if (!loops) return ForEach(index, d + 1, body);
    e_.LoopOver(index[d], e_.I64(0), e_.EmitDim(index[d]->high + 1), 1,
                [&] { ForEach(index, d + 1, body); });
  }
  bool IsBound(Index var) const {
    return std::find(iteration_.vars.begin(), iteration_.vars.begin() + plan_.split, var) !=
           iteration_.vars.begin() + plan_.split;
  }
  Index VarOf(Dim extent) {
    return KnownOne(extent) ? e_.space().Constant(0) : e_.space().Var(extent);
  }

  void Scatter() {
    const Instruction* source = op_.operand(1);
    if (source->shape().num_elements() == Dim(0)) return;
    IndexTuple at, within;
    for (int64_t d = 0; d < shape_.rank(); ++d) {
      at.push_back(IsSplit(d) ? iteration_.full[static_cast<size_t>(d)]
                              : VarOf(source->shape().dim(d)));
      within.push_back(VarOf(Dim(window_.dims[static_cast<size_t>(d)].size)));
    }
    ForEach(at, 0, [&] { Place(at, within); });
  }

  // The operand index of a window element, and where it exists.
  OperandIndex Position(const IndexTuple& at, const IndexTuple& within) {
    IndexSpace& s = e_.space();
    OperandIndex r;
    for (size_t d = 0; d < at.size(); ++d) {
      const WindowDim& w = window_.dims[d];
      const Dim size = shape_.dim(static_cast<int64_t>(d));
      Index i = s.AddConstant(s.Combine(at[d], w.stride, within[d], w.window_dilation),
                              -w.padding_low);
      if (w.base_dilation > 1) {
        r.bounds.push_back({s.Mod(i, w.base_dilation), 1});
        r.bounds.push_back({i, Max((size - 1) * Dim(w.base_dilation) + 1, 0)});
        i = s.FloorDiv(i, w.base_dilation);
      } else {
        r.bounds.push_back({i, size});
      }
      r.index.push_back(i);
    }
    return r;
  }

  void Place(const IndexTuple& at, const IndexTuple& within) {
    const PrimitiveType type = shape_.element_type();
    const OperandIndex candidate = Position(at, within);
    const Guard* guard = e_.Under(nullptr, candidate.bounds);
    llvm::Type* register_type = RegisterType(e_.context(), type);
    llvm::AllocaInst* best = e_.Alloca(register_type);
    llvm::AllocaInst* found = e_.Alloca(b().getInt1Ty());
    std::vector<llvm::AllocaInst*> places;  // per root
    b().CreateStore(llvm::Constant::getNullValue(register_type), best);
    b().CreateStore(b().getFalse(), found);
    for (size_t r = 0; r < f_.roots.size(); ++r) {
      places.push_back(e_.Alloca(b().getInt64Ty()));
      b().CreateStore(e_.I64(0), places.back());
    }
    ForEach(within, 0, [&] {
      e_.If(e_.BoundsHold(candidate.bounds, nullptr).v[0], [&] {
        Value* x = e_.Eval(op_.operand(0), candidate.index, guard).v[0];
        std::vector<Value*> offsets;
        for (const OperandLayout& l : f_.results)
          offsets.push_back(
              e_.ScalarIndex(e_.space().Linear(candidate.index, l.strides), guard).v[0]);
        Value* old = b().CreateLoad(register_type, best);
        Value* any = b().CreateLoad(b().getInt1Ty(), found);
        Value* args[] = {old, x};
        Value* keep = e_.Apply(b(), *op_.attrs().get<Computation*>(Attr::kSelect), args,
                               /*merging=*/false)[0];
        keep = b().CreateAnd(any, keep);
        b().CreateStore(SelectValue(b(), keep, old, x), best);
        for (size_t r = 0; r < places.size(); ++r) {
          Value* place = b().CreateLoad(b().getInt64Ty(), places[r]);
          b().CreateStore(b().CreateSelect(keep, place, offsets[r]), places[r]);
        }
        b().CreateStore(b().getTrue(), found);
      });
    });
    Value* any = b().CreateLoad(b().getInt1Ty(), found);
    e_.If(any, [&] {
      for (size_t r = 0; r < places.size(); ++r) Combine(r, at, places[r]);
    });
  }

  void Combine(size_t root, const IndexTuple& at, llvm::AllocaInst* place) {
    const PrimitiveType type = shape_.element_type();
    llvm::Type* memory = MemoryType(e_.context(), type);
    const llvm::Align align(std::max(1u, PartBits(memory) / 8));
    Value* source = e_.Eval(op_.operand(1), at).v[0];
    Value* pointer = b().CreateGEP(memory, e_.ResultPointer(static_cast<int>(root)),
                                   b().CreateLoad(b().getInt64Ty(), place));
    Value* old =
        FromMemory(b(), type, b().CreateAlignedLoad(memory, pointer, align), e_.specs().types);
    Value* args[] = {source, old};
    Value* next = e_.Apply(b(), *op_.attrs().get<Computation*>(Attr::kScatter), args,
                           /*merging=*/false)[0];
    b().CreateAlignedStore(ToMemory(b(), type, next, e_.specs().types), pointer, align);
  }

  KernelEmitter& e_;
  const FusedKernel& f_;
  const KernelPlan& plan_;
  const Instruction& op_;
  const Shape& shape_;
  Window window_;
  Iteration iteration_;
};

}  // namespace

void EmitSelectAndScatterKernel(KernelEmitter& e, const KernelPlan& plan) {
  SelectAndScatterKernel(e, plan).Emit();
  EmitOthers(e, /*all_checks=*/true);
}

}  // namespace tenon
