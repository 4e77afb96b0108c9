// kScatter: the operand is computed into the result (a parameter has been copied there: FusedKernel::copies), then updates are applied one
// after the other: the same order, so the same bits, every time. Elements of an update that fall
// outside are skipped one by one.
//
// Where the plan cuts a dim of the operand, each piece owns a range of it and walks all updates, of which it applies what falls
// into its range: along a batching or window dim it has no more to walk, along an indexed one it skips the others' windows. So an
// element of the result sees its updates in one order, whatever the pieces.
#include "absl/strings/str_cat.h"
#include "backends/codegen/kernel/kernel_parts.h"
#include "backends/codegen/plan/serial_plan.h"
#include "hlo/check.h"
#include "llvm/IR/Intrinsics.h"

namespace tenon {

using llvm::Value;

namespace {

constexpr int64_t kElementsAtOnce = 8;
constexpr size_t kShortBody = 8;  // instructions of a kernel

bool Has(const std::vector<int64_t>& v, int64_t x) {
  return std::find(v.begin(), v.end(), x) != v.end();
}

class ScatterKernel {
 public:
  ScatterKernel(KernelEmitter& e, const KernelPlan& plan)
      : e_(e),
        f_(e.fused()),
        plan_(plan),
        op_(*f_.serial),
        count_((op_.operand_count() - 1) / 2),
        shape_(op_.operand(0)->shape()) {}

  void Emit() {
    const std::optional<int64_t> cut = CutDim(plan_);
    if (!cut) {
      return e_.If(e_.Here().CreateICmpEQ(e_.begin(), e_.I64(0)), [&] {
        Copy();
        Updates();
      });
    }
    cut_ = *cut;
    llvm::IRBuilder<>& b = e_.Here();
    low_ = e_.begin();
    high_ = e_.end();
    if (plan_.block > 0) {
      low_ = b.CreateMul(low_, e_.I64(plan_.block));
      high_ = Min(b.CreateMul(high_, e_.I64(plan_.block)), e_.EmitDim(shape_.dim(cut_)));
    }
    Copy();
    Updates();
  }

 private:
  Value* Min(Value* x, Value* y) { return e_.Here().CreateBinaryIntrinsic(llvm::Intrinsic::smin, x, y); }
  // What a piece walks of `n` elements along a dim of the operand.
  std::pair<Value*, Value*> RangeOf(int64_t dim, Value* n) {
    if (dim < 0 || dim != cut_) return {e_.I64(0), n};
    Value* high = Min(high_, n);
    return {Min(low_, high), high};
  }

  const Instruction* OperandOf(size_t root) const { return op_.operand(f_.components[root]); }

  // Results of which the launch has made no copy.
  void Copy() {
    std::vector<size_t> copied;
    for (size_t i = 0; i < f_.roots.size(); ++i) {
      if (OperandOf(i)->opcode() != Opcode::kParameter) copied.push_back(i);
    }
    if (copied.empty()) return;
    Iteration iteration(e_.space(), f_, plan_.loops);
    auto store = [&] {
      IndexTuple index = iteration.IndexOf(e_.space(), f_, shape_);
      for (size_t i : copied) {
        e_.StoreResult(static_cast<int>(i), e_.space().Linear(index, f_.results[i].strides),
                       e_.Eval(OperandOf(i), index));
      }
    };
    if (plan_.loops.empty()) return store();
    const size_t last = plan_.loops.size() - 1;
    auto row = [&] {
      const auto [low, high] = RangeOf(plan_.block > 0 ? cut_ : -1, e_.EmitDim(plan_.loops.back().extent));
      e_.VectorLoop(iteration.vars.back(), low, high, {plan_.lanes, plan_.unroll, plan_.masked_tail, false}, store);
    };
    if (plan_.split == 0) return ForLoops(e_, plan_, iteration.vars, 0, last, row);
    e_.LoopOver(iteration.vars[0], low_, high_, 1, [&] { ForLoops(e_, plan_, iteration.vars, 1, last, row); });
  }

  // The index into the operand of the update element at `at`, and the bounds of it that depend on
  // data.
  OperandIndex Target(const IndexTuple& at) {
    const std::vector<int64_t> window_dims = op_.int_list(Attr::kUpdateWindowDims),
                               inserted = op_.int_list(Attr::kInsertedWindowDims),
                               map = op_.int_list(Attr::kScatterDimsToOperandDims),
                               batching = op_.int_list(Attr::kInputBatchingDims),
                               index_batching = op_.int_list(Attr::kScatterIndicesBatchingDims);
    const int64_t vector_dim = op_.attrs().get<int64_t>(Attr::kIndexVectorDim);
    const Instruction* indices = op_.operand(count_);
    std::vector<Index> batch;
    std::vector<size_t> batch_dims;
    operand_dims_.assign(at.size(), -1);
    for (size_t d = 0; d < at.size(); ++d) {
      if (Has(window_dims, static_cast<int64_t>(d))) continue;
      batch.push_back(at[d]);
      batch_dims.push_back(d);
    }
    auto component = [&](int64_t k) {
      IndexTuple i;
      size_t next = 0;
      for (int64_t d = 0; d < indices->shape().rank(); ++d)
        i.push_back(d == vector_dim ? e_.space().Constant(k) : batch[next++]);
      return e_.space().Runtime(indices, i, std::nullopt);
    };
    OperandIndex r;
    size_t next_window = 0;
    for (int64_t d = 0; d < shape_.rank(); ++d) {
      if (auto b = std::find(batching.begin(), batching.end(), d); b != batching.end()) {
        const int64_t s = index_batching[static_cast<size_t>(b - batching.begin())];
        const size_t position = static_cast<size_t>(s < vector_dim ? s : s - 1);
        r.index.push_back(batch[position]);
        operand_dims_[batch_dims[position]] = d;
        continue;
      }
      Index e = e_.space().Constant(0);
      if (!Has(inserted, d)) {
        const size_t w = static_cast<size_t>(window_dims[next_window++]);
        e = at[w];
        operand_dims_[w] = d;
      }
      if (auto m = std::find(map.begin(), map.end(), d); m != map.end()) {
        e = e_.space().Add(e, component(m - map.begin()));
        if (d == cut_) cut_index_ = e;
        else r.bounds.push_back({e, shape_.dim(d)});
      }
      r.index.push_back(e);
    }
    return r;
  }

  void Updates() {
    const Instruction* updates = op_.operand(count_ + 1);
    IndexTuple at;
    std::vector<int64_t> order;  // batch dims outside, window dims inside
    const std::vector<int64_t> window_dims = op_.int_list(Attr::kUpdateWindowDims);
    for (int64_t d = 0; d < updates->shape().rank(); ++d) {
      at.push_back(KnownOne(updates->shape().dim(d)) ? e_.space().Constant(0)
                                                     : e_.space().Var(updates->shape().dim(d)));
      if (!Has(window_dims, d) && at.back()->kind == IndexNode::Kind::kVar) order.push_back(d);
    }
    const size_t batch_loops = order.size();
    for (int64_t d : window_dims) {
      if (at[static_cast<size_t>(d)]->kind == IndexNode::Kind::kVar) order.push_back(d);
    }
    OperandIndex target = Target(at);
    std::vector<Index> offsets;  // per root
    for (const OperandLayout& l : f_.results)
      offsets.push_back(e_.space().Linear(target.index, l.strides));
    uint64_t window_vars = 0;
    for (size_t i = batch_loops; i < order.size(); ++i)
      window_vars |= at[static_cast<size_t>(order[i])]->deps;
    std::vector<IndexBound> whole, each;  // once per update, or per element of its window
    for (const IndexBound& b : target.bounds)
      (b.index->deps & window_vars ? each : whole).push_back(b);
    auto apply = [&] { Combine(at, offsets); };
    std::function<void(size_t)> nest = [&](size_t i) {
      if (i == batch_loops) {
        Value* wanted = e_.BoundsHold(whole, nullptr).v[0];
        if (cut_index_ != nullptr) wanted = e_.Here().CreateAnd(wanted, InCut());
        return e_.If(wanted, [&] { Window(order, at, offsets, each, i, apply); });
      }
      const size_t d = static_cast<size_t>(order[i]);
      const auto [low, high] = RangeOf(operand_dims_[d], e_.EmitDim(at[d]->high + 1));
      const bool elements = i + 1 == order.size() && i + 1 == batch_loops;
      if (elements && f_.order.size() <= kShortBody) return Elements(at[d], low, high, [&] { nest(i + 1); });
      e_.LoopOver(at[d], low, high, 1, [&] { nest(i + 1); });
    };
    nest(0);
  }

  // Updates of single elements, each a few instructions: the loop would be as many again.
  void Elements(Index var, Value* low, Value* high, const std::function<void()>& body) {
    e_.LoopOver(var, e_.Rounds(var, low, high, 1, kElementsAtOnce, [&](int64_t) { body(); }), high, 1, body);
  }

  // The index along the cut dim falls into this piece, whose range is inside of the dim.
  Value* InCut() {
    Value* at = e_.ScalarIndex(cut_index_).v[0];
    return e_.Here().CreateICmpULT(e_.Here().CreateSub(at, low_), e_.Here().CreateSub(high_, low_));
  }

  // One element: the old values of all operands with one of each update.
  void Combine(const IndexTuple& at, absl::Span<const Index> offsets) {
    std::vector<Value*> args;
    for (int64_t k = 0; k < count_; ++k) {
      auto root = std::find(f_.components.begin(), f_.components.end(), k);
      if (root == f_.components.end())
        return e_.Fail(absl::UnimplementedError(absl::StrCat(
            "scatter ", op_.name(), ": result ", k, " has no memory in its kernel")));
      const size_t r = static_cast<size_t>(root - f_.components.begin());
      args.push_back(e_.LoadResult(static_cast<int>(r), offsets[r]).v[0]);
    }
    for (int64_t k = 0; k < count_; ++k) {
      Val update = e_.Eval(op_.operand(count_ + 1 + k), at);
      args.push_back(e_.mode().lanes > 1 ? e_.Splat(update.v[0], update.level) : update.v[0]);
    }
    std::vector<Value*> next = e_.Apply(e_.Here(), *op_.to_apply(), args, /*merging=*/false);
    for (size_t r = 0; r < f_.roots.size(); ++r) {
      e_.StoreResult(static_cast<int>(r), offsets[r],
                     {.v = {next[static_cast<size_t>(f_.components[r])]}, .level = e_.innermost()});
    }
  }

  // Elements of one window are distinct, so they may go as vectors where they lie side by side.
  void Window(const std::vector<int64_t>& order, const IndexTuple& at,
              absl::Span<const Index> offsets, const std::vector<IndexBound>& each, size_t i, const std::function<void()>& apply) {
    if (i == order.size())
      return each.empty() ? apply() : e_.If(e_.BoundsHold(each, nullptr).v[0], apply);
    Index var = at[static_cast<size_t>(order[i])];
    const auto [low, high] = RangeOf(operand_dims_[static_cast<size_t>(order[i])], e_.EmitDim(var->high + 1));
    bool vector = i + 1 == order.size() && each.empty();
    for (Index offset : offsets)
      vector = vector && AccessAlong(offset, var->var).kind == Access::Kind::kContiguous;
    if (!vector)
      return e_.LoopOver(var, low, high, 1, [&] { Window(order, at, offsets, each, i + 1, apply); });
    e_.VectorLoop(var, low, high, {plan_.lanes, 1, plan_.masked_tail, false}, apply);
  }

  KernelEmitter& e_;
  const FusedKernel& f_;
  const KernelPlan& plan_;
  const Instruction& op_;
  const int64_t count_;  // of operands that are scattered into
  const Shape& shape_;   // theirs
  int64_t cut_ = -1;     // the operand's dim that pieces share, and this piece's range of it
  Value *low_ = nullptr, *high_ = nullptr;
  Index cut_index_ = nullptr;          // along it, if updates say by index where they go
  std::vector<int64_t> operand_dims_;  // of each dim of the updates, the operand's that it walks; -1: none
};

}  // namespace

void EmitScatterKernel(KernelEmitter& e, const KernelPlan& plan) {
  ScatterKernel(e, plan).Emit();
  EmitOthers(e, /*all_checks=*/true);
}

}  // namespace tenon
