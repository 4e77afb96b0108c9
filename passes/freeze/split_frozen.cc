#include "passes/freeze/split_frozen.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "hlo/builder.h"
#include "hlo/check.h"
#include "passes/lower/named_provider.h"
#include "passes/pass.h"

namespace tenon {
namespace {

constexpr int64_t kLine = 64;        // bytes of a cache line
constexpr int64_t kApart = 1 << 10;  // rows so many bytes apart, or a multiple, compete for few sets of a cache

// Values of these are cheap to have again and dear to keep.
bool StaysBehind(const Instruction& op) {
  switch (op.opcode()) {
    case Opcode::kParameter:
    case Opcode::kTranspose:
    case Opcode::kReshape:
    case Opcode::kBitcast:
    case Opcode::kSlice:
    case Opcode::kBroadcast:
    case Opcode::kTuple:
    case Opcode::kGetTupleElement: return true;
    default: return false;
  }
}

bool IsPure(const Instruction& op) {
  switch (op.family()) {
    case Family::kElementwise:
    case Family::kMovement:
    case Family::kReduction:
    case Family::kIndexing:
    case Family::kContraction: break;
    default: return false;
  }
  return !op.HasSideEffect() && op.shape().is_array() && op.shape().is_static() && op.control_predecessors().empty() &&
         op.control_successors().empty();
}

class Splitter {
 public:
  Splitter(Module& module, const std::vector<bool>& frozen) : module_(module), entry_(module.entry()) {
    for (const Instruction* p : entry_->parameters()) {
      if (p->parameter_number() < static_cast<int64_t>(frozen.size()) && frozen[p->parameter_number()] && p->shape().is_array()) {
        frozen_.insert(p);
      }
    }
    for (const Instruction* op : entry_->PostOrder()) Look(*op);
  }

  int64_t Pack(const std::function<bool(const Instruction&)>& packs) {
    int64_t packed = 0;
    for (Instruction* op : entry_->PostOrder()) {
      const bool product = op->opcode() == Opcode::kDot || op->opcode() == Opcode::kConvolution;
      if (!product || frozen_.contains(op) || op->operand_count() != 2) continue;
      if (frozen_.contains(op->operand(0)) || !frozen_.contains(op->operand(1)) || !packs(*op)) continue;
      packed += op->opcode() == Opcode::kDot ? PackDot(op) : PackConvolution(op);
    }
    return packed;
  }

  FrozenSplit Split() {
    FrozenSplit split;
    const std::vector<Instruction*> values = Values();
    if (values.empty()) return split;
    split.once = Once(values);
    for (Instruction* op : values) {
      split.values.push_back(RowMajor(op->shape()));
      Instruction* parameter = entry_->AddParameter(static_cast<int64_t>(entry_->parameters().size()), split.values.back());
      op->ReplaceAllUsesWith(parameter);
      if (entry_->root() == op) entry_->set_root(parameter);
    }
    RemoveDead(module_);
    return split;
  }

 private:
  // Frozen: made of frozen values, at least one, and constants.
  void Look(const Instruction& op) {
    if (op.opcode() == Opcode::kConstant || op.opcode() == Opcode::kIota) {
      neutral_.insert(&op);
      return;
    }
    if (op.operand_count() == 0 || !IsPure(op)) return;
    bool any = false;
    for (const Instruction* o : op.operands()) {
      any |= frozen_.contains(o);
      if (!frozen_.contains(o) && !neutral_.contains(o)) return;
    }
    // Of constants alone: no value of its own, folded later.
    if (!any) {
      neutral_.insert(&op);
    } else if (op.opcode() != Opcode::kBroadcast) {
      frozen_.insert(&op);
    }
  }

  // What is computed once and read by the rest.
  std::vector<Instruction*> Values() const {
    const std::vector<Instruction*> order = entry_->PostOrder();
    absl::flat_hash_set<const Instruction*> needed = {entry_->root()};
    std::vector<Instruction*> values;
    for (size_t i = order.size(); i-- > 0;) {
      Instruction* op = order[i];
      if (!needed.contains(op) && !op->HasSideEffect()) continue;
      if (frozen_.contains(op) && (!StaysBehind(*op) || kept_.contains(op))) {
        values.push_back(op);
      } else {
        needed.insert(op->operands().begin(), op->operands().end());
      }
    }
    std::reverse(values.begin(), values.end());
    return values;
  }

  static Shape RowMajor(Shape shape) {
    std::vector<int64_t> layout;
    for (int64_t d = shape.rank(); d-- > 0;) layout.push_back(d);
    shape.set_layout(layout);
    return shape;
  }

  Instruction* Frozen(Instruction* op) {
    frozen_.insert(op);
    return op;
  }

  // [.., rows, columns] with rows apart as caches like it; `kept`, and the part of it that is the value.
  Instruction* Materialised(Builder& b, Instruction* x) {
    const int64_t last = x->shape().rank() - 1, columns = x->shape().constant_dim(last), width = ByteWidth(x->shape().element_type());
    Instruction* whole = x;
    if (columns * width % kApart == 0) {
      PaddingConfig padding;
      padding.dims.resize(static_cast<size_t>(x->shape().rank()));
      padding.dims.back().high = kLine / width;
      whole = Frozen(b.Pad(x, b.ScalarConstant(x->shape().element_type(), 0), padding));
    }
    kept_.insert(whole);
    return whole == x ? x : b.SliceDim(whole, last, 0, columns);
  }

  int64_t PackDot(Instruction* op) {
    Instruction* rhs = op->operand(1);
    const std::vector<int64_t> contracting = op->int_list(Attr::kRhsContractingDims);
    if (rhs->shape().rank() != 2 || contracting.size() != 1 || !op->int_list(Attr::kRhsBatchDims).empty()) return 0;
    Builder b(entry_);
    b.set_metadata(op->metadata());
    if (contracting[0] == 1) rhs = Frozen(b.Transpose(rhs, {1, 0}));
    const std::vector<int64_t> rows = {0};
    Replace(op, Materialised(b, rhs), [&](Instruction* dot) { dot->mutable_attrs().set(Attr::kRhsContractingDims, rows); });
    return 1;
  }

  int64_t PackConvolution(Instruction* op) {
    DimLabels l = op->attrs().get<DimLabels>(Attr::kDimLabels);
    std::vector<int64_t> order = l.kernel_spatial;
    order.push_back(l.kernel_input_feature);
    order.push_back(l.kernel_output_feature);
    Builder b(entry_);
    b.set_metadata(op->metadata());
    Instruction* kernel = Frozen(b.Transpose(op->operand(1), order));
    for (size_t d = 0; d < l.kernel_spatial.size(); ++d) l.kernel_spatial[d] = static_cast<int64_t>(d);
    l.kernel_input_feature = static_cast<int64_t>(order.size()) - 2;
    l.kernel_output_feature = static_cast<int64_t>(order.size()) - 1;
    Replace(op, Materialised(b, kernel), [&](Instruction* made) { made->mutable_attrs().set(Attr::kDimLabels, l); });
    return 1;
  }

  void Replace(Instruction* op, Instruction* rhs, const std::function<void(Instruction*)>& change) {
    Instruction* made = entry_->Add(op->Clone({op->operand(0), rhs}));
    change(made);
    NameProvider(made, "generated");
    op->ReplaceAllUsesWith(made);
    if (entry_->root() == op) entry_->set_root(made);
    entry_->Remove(op);
  }

  std::unique_ptr<Module> Once(const std::vector<Instruction*>& values) {
    Instruction* root = entry_->root();
    Instruction* tuple = Builder(entry_).Tuple(values);  // the root while the copy is made
    entry_->set_root(tuple);
    std::unique_ptr<Module> once = module_.Clone();
    entry_->set_root(root);
    entry_->Remove(tuple);
    once->name() = absl::StrCat(module_.name(), "_once");
    once->aliases.clear();
    once->entry_layout.reset();
    for (Instruction* value : once->entry()->root()->operands()) value->mutable_shape() = RowMajor(value->shape());
    std::vector<Shape> shapes;
    for (const Instruction* value : once->entry()->root()->operands()) shapes.push_back(value->shape());
    once->entry()->root()->mutable_shape() = Shape::Tuple(std::move(shapes));
    RemoveDead(*once);
    return once;
  }

  static void RemoveDead(Module& module) {
    PassContext context;
    TENON_CHECK(FindPass("dce")->run(module, context).ok(), module.name());
  }

  Module& module_;
  Computation* entry_;
  absl::flat_hash_set<const Instruction*> frozen_, neutral_;
  absl::flat_hash_set<const Instruction*> kept_;  // materialised though a view could have been
};

}  // namespace

FrozenSplit SplitFrozen(Module& module, const std::vector<bool>& frozen, const std::function<bool(const Instruction&)>& packs) {
  PassContext context;  // a bitcast means its operand's layout, which a value on the border gives up
  TENON_CHECK(FindPass("expand-bitcast")->run(module, context).ok(), module.name());
  Splitter splitter(module, frozen);
  const int64_t packed = splitter.Pack(packs);
  FrozenSplit split = splitter.Split();
  split.packed = packed;
  return split;
}

}  // namespace tenon
