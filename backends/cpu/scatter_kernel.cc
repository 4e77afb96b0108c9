// kScatter: the operand is copied (unless the result has its memory), then updates are applied one
// after the other: the same order, so the same bits, every time. Elements of an update that fall
// outside are skipped one by one.
#include "absl/strings/str_cat.h"
#include "backends/cpu/kernels.h"
#include "hlo/check.h"

namespace tenon {

using llvm::Value;

namespace {

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
    e_.If(e_.Here().CreateICmpEQ(e_.begin(), e_.I64(0)), [&] {
      Copy();
      Updates();
    });
  }

 private:
  const Instruction* OperandOf(size_t root) const { return op_.operand(f_.components[root]); }
  bool InPlace(size_t root) const {
    const Instruction* operand = OperandOf(root);
    return operand->opcode() == Opcode::kParameter &&
           f_.operands[static_cast<size_t>(operand->parameter_number())].may_alias_result;
  }

  void Copy() {
    std::vector<size_t> copied;
    for (size_t i = 0; i < f_.roots.size(); ++i) {
      if (!InPlace(i)) copied.push_back(i);
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
    ForLoops(e_, plan_, iteration.vars, 0, plan_.loops.size() - 1, [&] {
      e_.VectorLoop(iteration.vars.back(), e_.I64(0), e_.EmitDim(plan_.loops.back().extent),
                    {plan_.lanes, plan_.unroll, plan_.masked_tail, false}, store);
    });
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
    for (size_t d = 0; d < at.size(); ++d) {
      if (!Has(window_dims, static_cast<int64_t>(d))) batch.push_back(at[d]);
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
        r.index.push_back(batch[static_cast<size_t>(s < vector_dim ? s : s - 1)]);
        continue;
      }
      Index e = e_.space().Constant(0);
      if (!Has(inserted, d)) e = at[static_cast<size_t>(window_dims[next_window++])];
      if (auto m = std::find(map.begin(), map.end(), d); m != map.end()) {
        e = e_.space().Add(e, component(m - map.begin()));
        r.bounds.push_back({e, shape_.dim(d)});
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
      if (i == batch_loops)
        return e_.If(e_.BoundsHold(whole, nullptr).v[0],
                     [&] { Window(order, at, offsets, each, i, apply); });
      Index var = at[static_cast<size_t>(order[i])];
      e_.LoopOver(var, e_.I64(0), e_.EmitDim(var->high + 1), 1, [&] { nest(i + 1); });
    };
    nest(0);
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
    Value* n = e_.EmitDim(var->high + 1);
    bool vector = i + 1 == order.size() && each.empty();
    for (Index offset : offsets)
      vector = vector && AccessAlong(offset, var->var).kind == Access::Kind::kContiguous;
    if (!vector)
      return e_.LoopOver(var, e_.I64(0), n, 1,
                         [&] { Window(order, at, offsets, each, i + 1, apply); });
    e_.VectorLoop(var, e_.I64(0), n, {plan_.lanes, 1, plan_.masked_tail, false}, apply);
  }

  KernelEmitter& e_;
  const FusedKernel& f_;
  const KernelPlan& plan_;
  const Instruction& op_;
  const int64_t count_;  // of operands that are scattered into
  const Shape& shape_;   // theirs
};

}  // namespace

void EmitScatterKernel(KernelEmitter& e, const KernelPlan& plan) {
  ScatterKernel(e, plan).Emit();
  EmitOthers(e, /*all_checks=*/true);
}

}  // namespace tenon
