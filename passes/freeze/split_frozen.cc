#include "passes/freeze/split_frozen.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "hlo/builder.h"
#include "hlo/check.h"
#include "hlo/own_calls.h"
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

bool Computes(const Instruction& op) {
  if (IsPointwiseCall(op)) return true;
  switch (op.family()) {
    case Family::kElementwise:
    case Family::kMovement:
    case Family::kReduction:
    case Family::kIndexing:
    case Family::kContraction: return true;
    default: return false;
  }
}

bool IsPure(const Instruction& op) {
  if (!Computes(op)) return false;
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

  int64_t Pack(const PackedForFn& packed_for) {
    std::vector<Instruction*> products = entry_->PostOrder();
    std::erase_if(products, [](const Instruction* op) { return op->opcode() != Opcode::kDot && op->opcode() != Opcode::kConvolution; });
    int64_t packed = 0;
    for (Instruction* op : products) {
      if (frozen_.contains(op) || op->operand_count() != 2) continue;
      if (frozen_.contains(op->operand(0)) || !frozen_.contains(op->operand(1))) continue;
      const std::optional<KernelPacking> packing = packed_for(*op);
      if (!packing.has_value()) continue;
      const bool generated = packing->provider == "generated";
      if (op->opcode() == Opcode::kDot) packed += generated ? PackDot(op) : GiveDot(op, *packing);
      else packed += generated ? PackConvolution(op) : GiveConvolution(op, *packing);
    }
    return packed;
  }

  FrozenSplit Split() {
    FrozenSplit split;
    const std::vector<Instruction*> values = Values();
    if (values.empty()) return split;
    split.once = Once(values);
    for (Instruction* op : values) {
      const auto given = absl::c_find_if(given_, [&](const GivenValue& g) { return g.value == op; });
      split.values.push_back({RowMajor(op->shape()), given == given_.end() ? KernelPacking() : given->packing});
      Instruction* parameter = entry_->AddParameter(static_cast<int64_t>(entry_->parameters().size()), split.values.back().shape);
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

  // By a matrix, of which one dim is summed.
  static bool IsByMatrix(const Instruction& dot) {
    return dot.operand(1)->shape().rank() == 2 && dot.int_list(Attr::kRhsContractingDims).size() == 1 &&
           dot.int_list(Attr::kRhsBatchDims).empty();
  }

  int64_t PackDot(Instruction* op) {
    if (!IsByMatrix(*op)) return 0;
    Instruction* rhs = op->operand(1);
    Builder b(entry_);
    b.set_metadata(op->metadata());
    if (op->int_list(Attr::kRhsContractingDims)[0] == 1) rhs = Frozen(b.Transpose(rhs, {1, 0}));
    const std::vector<int64_t> rows = {0};
    Replace(op, Materialised(b, rhs), "generated", [&](Instruction* dot) { dot->mutable_attrs().set(Attr::kRhsContractingDims, rows); });
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
    Replace(op, Materialised(b, kernel), "generated", [&](Instruction* made) { made->mutable_attrs().set(Attr::kDimLabels, l); });
    return 1;
  }

  // The host's: a value of its own, which products that want it alike share.
  Instruction* Given(Builder& b, Instruction* x, Permutation order, const KernelPacking& packing) {
    while (x->opcode() == Opcode::kTranspose) {
      for (int64_t& d : order) d = x->dimensions()[static_cast<size_t>(d)];
      x = x->operand(0);
    }
    for (const GivenValue& given : given_) {
      const bool alike = given.packing.provider == packing.provider && given.packing.numbers == packing.numbers;
      if (alike && given.from == x && given.order == order) return given.value;
    }
    Instruction* value = Frozen(b.Copy(Frozen(b.Transpose(x, order))));
    kept_.insert(value);
    given_.push_back({value, x, order, packing});
    return value;
  }

  int64_t GiveDot(Instruction* op, const KernelPacking& packing) {
    if (!IsByMatrix(*op)) return 0;
    Builder b(entry_);
    b.set_metadata(op->metadata());
    const bool turned = op->int_list(Attr::kRhsContractingDims)[0] == 0;
    Instruction* rhs = Given(b, op->operand(1), turned ? Permutation{1, 0} : Permutation{0, 1}, packing);
    const std::vector<int64_t> columns = {1};
    Replace(op, rhs, packing.provider, [&](Instruction* dot) { dot->mutable_attrs().set(Attr::kRhsContractingDims, columns); });
    return 1;
  }

  int64_t GiveConvolution(Instruction* op, const KernelPacking& packing) {
    DimLabels l = op->attrs().get<DimLabels>(Attr::kDimLabels);
    Permutation order = {l.kernel_output_feature, l.kernel_input_feature};
    order.insert(order.end(), l.kernel_spatial.begin(), l.kernel_spatial.end());
    l.kernel_output_feature = 0;
    l.kernel_input_feature = 1;
    for (size_t d = 0; d < l.kernel_spatial.size(); ++d) l.kernel_spatial[d] = static_cast<int64_t>(d) + 2;
    Builder b(entry_);
    b.set_metadata(op->metadata());
    Instruction* kernel = op->operand(1);
    const std::optional<Scaled> scaled = ScaledBehind(op, l.output_feature);
    if (scaled) kernel = Times(b, kernel, scaled->scale, order[0]);
    Instruction* made = Replace(op, Given(b, kernel, order, packing), packing.provider,
                                [&](Instruction* m) { m->mutable_attrs().set(Attr::kDimLabels, l); });
    if (scaled) AddInsteadOf(b, *scaled, made, l.output_feature);
    return 1;
  }

  // (op + bias) * scale + shift, of which scale, shift and bias are vectors along dim `feature` of `op`, and frozen.
  struct Scaled {
    Instruction *root, *scale, *shift, *bias;  // bias may be null
  };

  // What is the same along all dims but `dim`, as a frozen vector along that; null: it isn't.
  Instruction* FrozenAlong(Instruction* op, int64_t dim) const {
    if (op->opcode() != Opcode::kBroadcast || op->dimensions() != std::vector<int64_t>{dim}) return nullptr;
    Instruction* vector = op->operand(0);
    return frozen_.contains(vector) && IsFloat(vector->shape().element_type()) ? vector : nullptr;
  }

  Instruction* OnlyUser(const Instruction* op) const {
    return op->user_count() == 1 && op != entry_->root() ? op->users().front() : nullptr;
  }

  // As batch norm comes: [convert] fma(x, scale, shift) [convert]; x may have a bias.
  std::optional<Scaled> ScaledBehind(Instruction* op, int64_t feature) const {
    Scaled scaled = {};
    Instruction *x = op, *user = OnlyUser(op);
    if (user != nullptr && user->opcode() == Opcode::kAdd) {
      scaled.bias = FrozenAlong(user->operand(user->operand(0) == x ? 1 : 0), feature);
      if (scaled.bias == nullptr) return std::nullopt;
      x = user;
      user = OnlyUser(x);
    }
    const bool half = user != nullptr && user->opcode() == Opcode::kConvert && user->shape().element_type() == PrimitiveType::kF32 &&
                      op->shape().element_type() == PrimitiveType::kBF16;
    if (half) {
      x = user;
      user = OnlyUser(x);
    }
    const bool multiply_add = user != nullptr && IsPointwiseCall(*user) && user->custom_call_target() == kFmaTarget;
    if (!multiply_add || user->operand(0) != x) return std::nullopt;
    scaled.root = user;
    scaled.scale = FrozenAlong(user->operand(1), feature);
    scaled.shift = FrozenAlong(user->operand(2), feature);
    if (scaled.scale == nullptr || scaled.shift == nullptr) return std::nullopt;
    if (!half) return scaled;
    scaled.root = OnlyUser(user);
    const bool back = scaled.root != nullptr && scaled.root->opcode() == Opcode::kConvert &&
                      scaled.root->shape().element_type() == op->shape().element_type();
    return back ? std::make_optional(scaled) : std::nullopt;
  }

  Instruction* Converted(Builder& b, Instruction* x, PrimitiveType type) {
    return x->shape().element_type() == type ? x : Frozen(b.Convert(x, type));
  }

  // kernel * scale, along `dim`, in the type of `scale`, rounded once.
  Instruction* Times(Builder& b, Instruction* kernel, Instruction* scale, int64_t dim) {
    const PrimitiveType type = kernel->shape().element_type();
    Instruction* wide = Converted(b, kernel, scale->shape().element_type());
    Instruction* spread = Frozen(b.Broadcast(scale, wide->shape().dims(), {dim}));
    return Converted(b, Frozen(b.Binary(Opcode::kMultiply, wide, spread)), type);
  }

  // made + (shift, or bias * scale + shift) in `scaled`'s place.
  void AddInsteadOf(Builder& b, const Scaled& scaled, Instruction* made, int64_t feature) {
    Instruction* bias = scaled.shift;
    if (scaled.bias != nullptr) {
      Instruction* wide = Converted(b, scaled.bias, scaled.scale->shape().element_type());
      bias = Frozen(b.Binary(Opcode::kAdd, Frozen(b.Binary(Opcode::kMultiply, wide, scaled.scale)), scaled.shift));
    }
    bias = Converted(b, bias, made->shape().element_type());
    Instruction* sum = b.Binary(Opcode::kAdd, made, b.Broadcast(bias, made->shape().dims(), {feature}));
    scaled.root->ReplaceAllUsesWith(sum);
    if (entry_->root() == scaled.root) entry_->set_root(sum);
  }

  Instruction* Replace(Instruction* op, Instruction* rhs, std::string_view provider, const std::function<void(Instruction*)>& change) {
    Instruction* made = entry_->Add(op->Clone({op->operand(0), rhs}));
    change(made);
    NameProvider(made, provider);
    op->ReplaceAllUsesWith(made);
    if (entry_->root() == op) entry_->set_root(made);
    entry_->Remove(op);
    return made;
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
  struct GivenValue {
    Instruction* value;  // transpose(from, order), copied
    const Instruction* from;
    Permutation order;
    KernelPacking packing;
  };
  std::vector<GivenValue> given_;  // those of kept_ that are the host's
};

}  // namespace

FrozenSplit SplitFrozen(Module& module, const std::vector<bool>& frozen, const PackedForFn& packed_for) {
  PassContext context;  // a bitcast means its operand's layout, which a value on the border gives up
  TENON_CHECK(FindPass("expand-bitcast")->run(module, context).ok(), module.name());
  Splitter splitter(module, frozen);
  const int64_t packed = splitter.Pack(packed_for);
  FrozenSplit split = splitter.Split();
  split.packed = packed;
  return split;
}

}  // namespace tenon
