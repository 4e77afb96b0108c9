// LayoutConvolutions: activations between convolutions of a library lie with their features side by side (channels_last), where that pays.
//
// Libraries compute so; of rows of pixels they make copies, before and behind each call. What lies between the calls (elementwise ops,
// pooling, padding, concatenations) takes any layout. So: from each convolution that would rather have it, all that hangs together by such
// ops is one stack; its values change their layout if that saves more bytes of the libraries' own copies than it makes copies at its ends.
// After assign-layout, which gives every value the framework's layout.
#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "hlo/builder.h"
#include "hlo/own_calls.h"
#include "passes/expand/control_flow.h"
#include "passes/lower/named_provider.h"
#include "passes/memory/strided_view.h"
#include "passes/pass.h"

namespace tenon {
namespace {

int64_t Bytes(const Instruction& op) { return Typical(op.shape().byte_size()); }

// [batch, feature, space...] with the features fastest.
Permutation FeaturesFastest(int64_t rank) {
  Permutation layout = {1};
  for (int64_t d = rank; d-- > 2;) layout.push_back(d);
  layout.push_back(0);
  return layout;
}

Instruction* CopyOf(Instruction* x, const Shape& shape) {
  Builder b(x->parent());
  b.set_metadata(x->metadata());
  Instruction* copy = b.Copy(x);
  copy->mutable_shape() = shape;
  return copy;
}

// Generated code reads the kernel fast where it lies.
bool ReadsKernelWhereItLies(const Instruction& convolution, const PassContext& context) {
  if (!context.packs || !context.packs_where_it_lies || !context.packs(convolution)) return false;
  return context.packs_where_it_lies(convolution, ViewByLayout(convolution.operand(1)).strides);
}

// A kernel larger than what it is applied to costs more to bring into another order than is saved.
bool HasSmallKernel(const Instruction& convolution) {
  return Bytes(*convolution.operand(1)) <= 2 * (Bytes(*convolution.operand(0)) + Bytes(convolution));
}

// Generated, where that beats the library, the kernel as it reads it. Its images lie with the features fastest.
bool Pack(Instruction* convolution, const PassContext& context) {
  if (!NamedProvider(*convolution).empty() || !context.packs || !context.packs(*convolution)) return false;
  NameProvider(convolution, "generated");
  if (ReadsKernelWhereItLies(*convolution, context)) return true;
  const DimLabels& l = convolution->attrs().get<DimLabels>(Attr::kDimLabels);
  Shape packed = convolution->operand(1)->shape();
  std::vector<int64_t> layout = {l.kernel_output_feature, l.kernel_input_feature};
  layout.insert(layout.end(), l.kernel_spatial.rbegin(), l.kernel_spatial.rend());
  packed.set_layout(layout);
  convolution->ReplaceOperand(1, CopyOf(convolution->operand(1), packed));
  return true;
}

bool IsFeaturesFastest(const Shape& shape) { return shape.minor_to_major() == FeaturesFastest(shape.rank()); }

// The caller's layout is features fastest (channels_last).
bool PackWhereItLies(Instruction* op, const PassContext& context) {
  if (op->opcode() != Opcode::kConvolution || op->shape().rank() < 4) return false;
  const DimLabels& l = op->attrs().get<DimLabels>(Attr::kDimLabels);
  if (l.input_feature != 1 || l.output_feature != 1 || (!HasSmallKernel(*op) && !ReadsKernelWhereItLies(*op, context))) return false;
  return IsFeaturesFastest(op->shape()) && IsFeaturesFastest(op->operand(0)->shape()) && Pack(op, context);
}

class Stack {
 public:
  Stack(const PassContext& context, Instruction* first, absl::flat_hash_set<const Instruction*>* seen)
      : context_(context), seen_(*seen), rank_(first->shape().rank()) {
    Add(first);
    for (size_t i = 0; i < members_.size(); ++i) Reach(members_[i]);
  }

  static bool Prefers(const Instruction& op, const PassContext& context) {
    if (op.opcode() != Opcode::kConvolution || op.shape().rank() < 4) return false;
    const std::string named = NamedProvider(op);
    const bool packed = named == "host.conv_packed";  // its kernel lies as the host likes it
    const bool generated = named == "generated" || (named.empty() && ReadsKernelWhereItLies(op, context));
    if (!generated && (!context.library_takes || !context.library_takes(op))) return false;
    const DimLabels& l = op.attrs().get<DimLabels>(Attr::kDimLabels);
    if (l.input_batch != 0 || l.input_feature != 1 || l.output_batch != 0 || l.output_feature != 1) return false;
    if (IsFeaturesFastest(op.shape())) return false;
    // Of doubles there is no other way; a transposed convolution is another function.
    const Window window = op.attrs().get_or<Window>(Attr::kWindow, {});
    if (op.shape().element_type() == PrimitiveType::kF64) return false;
    if (absl::c_any_of(window.dims, [](const WindowDim& w) { return w.base_dilation != 1 || w.reversed; })) return false;
    return generated || packed || HasSmallKernel(op);
  }

  bool Pays() {
    for (Instruction* op : members_) {
      if (op->opcode() == Opcode::kConvolution) gain_ += Bytes(*op->operand(0)) + Bytes(*op);
      for (Instruction* o : op->operands()) {
        if (Ties(*op, *o) && !contains(o) && counted_.insert(o).second) cost_ += Bytes(*o);
      }
      if (absl::c_any_of(op->users(), [&](const Instruction* u) { return !contains(u) && ReadsInOrder(*u); }) || IsRoot(*op)) {
        cost_ += Bytes(*op);
      }
    }
    // As many bytes, all of them moved by ops that are there anyway: generated code then spares the library's copy of its kernel.
    return cost_ < gain_ || (cost_ == gain_ && absl::c_all_of(members_, [&](const Instruction* op) { return IsFreeToMove(*op); }));
  }

  // New layouts; copies where somebody wants the old one, and of what convolutions read from outside.
  void Apply() {
    Computation* c = members_[0]->parent();
    absl::flat_hash_map<const Instruction*, Instruction*> inside;
    for (Instruction* op : members_) {
      const Shape old = op->shape();
      op->mutable_shape().set_layout(FeaturesFastest(rank_));
      if (op->opcode() == Opcode::kConvolution && !contains(op->operand(0))) {
        Instruction*& copy = inside[op->operand(0)];
        if (copy == nullptr) {
          Shape wanted = op->operand(0)->shape();
          wanted.set_layout(FeaturesFastest(rank_));
          copy = CopyOf(op->operand(0), wanted);
        }
        op->ReplaceOperand(0, copy);
      }
      if (op->opcode() == Opcode::kConvolution) packed_ += Pack(op, context_);
      std::vector<Instruction*> strict;
      for (Instruction* u : op->users()) {
        if (!contains(u) && WantsOldLayout(*u) && !absl::c_linear_search(strict, u)) strict.push_back(u);
      }
      if (strict.empty() && !IsRoot(*op)) continue;
      Instruction* copy = CopyOf(op, old);
      for (Instruction* u : strict) {
        for (int64_t i = 0; i < u->operand_count(); ++i) {
          if (u->operand(i) == op) u->ReplaceOperand(i, copy);
        }
      }
      if (IsRoot(*op)) c->set_root(copy);
    }
  }

  void Note(PassContext& context) const {
    const auto convolutions = absl::c_count_if(members_, [](const Instruction* op) { return op->opcode() == Opcode::kConvolution; });
    context.Note("layout-convolutions", "features-fastest", *members_[0], absl::StrCat(members_.size(), " values of one stack"),
                 {{"convolutions", static_cast<double>(convolutions)}, {"bytes_saved", static_cast<double>(gain_)},
                  {"bytes_copied", static_cast<double>(cost_)}, {"copies", static_cast<double>(copies_)},
                  {"packed", static_cast<double>(packed_)}});
  }

 private:
  bool contains(const Instruction* op) const { return inside_.contains(op); }
  static bool IsRoot(const Instruction& op) { return op.parent()->root() == &op; }

  Instruction* CopyOf(Instruction* x, const Shape& shape) {
    ++copies_;
    return tenon::CopyOf(x, shape);
  }

  // Is `op` made in whatever layout it is given, from operands in theirs?
  bool TakesAnyLayout(const Instruction& op) const {
    if (!op.shape().is_array() || op.shape().rank() != rank_) return false;
    if (!op.control_predecessors().empty() || !op.control_successors().empty()) return false;
    switch (op.opcode()) {
      case Opcode::kConvolution: return Prefers(op, context_);
      case Opcode::kBroadcast:
      case Opcode::kReduceWindow:
      case Opcode::kPad:
      case Opcode::kSlice:
      case Opcode::kConcatenate:
      case Opcode::kReverse:
      case Opcode::kCopy: return true;
      default: return IsPointwise(op) && op.operand_count() > 0;
    }
  }

  // Should `operand` lie as `op` does?
  bool Ties(const Instruction& op, const Instruction& operand) const {
    if (!operand.shape().is_array() || operand.shape().rank() != rank_) return false;
    return op.opcode() != Opcode::kConvolution || op.operand(0) == &operand;
  }

  void Add(Instruction* op) {
    if (!TakesAnyLayout(*op) || !inside_.insert(op).second) return;
    seen_.insert(op);
    members_.push_back(op);
  }
  void Reach(Instruction* op) {
    for (Instruction* o : op->operands()) {
      if (Ties(*op, *o)) Add(o);
    }
    for (Instruction* u : op->users()) {
      if (Ties(*u, *op)) Add(u);
    }
  }

  // No copy of its own is made at an end here, and a convolution's kernel is read where it lies.
  bool IsFreeToMove(const Instruction& op) const {
    if (IsRoot(op) || absl::c_any_of(op.users(), [&](const Instruction* u) { return !contains(u) && WantsOldLayout(*u); })) return false;
    return op.opcode() != Opcode::kConvolution || (contains(op.operand(0)) && ReadsKernelWhereItLies(op, context_));
  }

  // It looks at its operand's memory, not at its elements.
  static bool WantsOldLayout(const Instruction& user) {
    switch (user.opcode()) {
      case Opcode::kTuple:
      case Opcode::kWhile:
      case Opcode::kConditional:
      case Opcode::kCustomCall:
      case Opcode::kConvolution:
      case Opcode::kBitcast:
      case Opcode::kOptBarrier: return !IsPointwise(user);
      default: return false;
    }
  }
  // As before it costs nothing, or a copy must be made.
  static bool ReadsInOrder(const Instruction& user) {
    return WantsOldLayout(user) || user.opcode() == Opcode::kReshape || user.opcode() == Opcode::kDot;
  }

  const PassContext& context_;
  absl::flat_hash_set<const Instruction*>& seen_;
  const int64_t rank_;
  std::vector<Instruction*> members_;
  absl::flat_hash_set<const Instruction*> inside_, counted_;
  int64_t gain_ = 0, cost_ = 0, copies_ = 0, packed_ = 0;
};

}  // namespace

absl::StatusOr<bool> LayoutConvolutions(Module& module, PassContext& context) {
  bool changed = false;
  for (Computation* c : ControlComputations(module)) {
    absl::flat_hash_set<const Instruction*> seen;
    for (Instruction* op : c->PostOrder()) {
      if (seen.contains(op) || !Stack::Prefers(*op, context)) continue;
      Stack stack(context, op, &seen);
      if (!stack.Pays()) continue;
      stack.Apply();
      stack.Note(context);
      changed = true;
    }
    for (Instruction* op : c->PostOrder()) changed |= PackWhereItLies(op, context);
  }
  return changed;
}

}  // namespace tenon
