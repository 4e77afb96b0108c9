#include "passes/expand/pieces.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "hlo/own_calls.h"

namespace tenon {
namespace {

constexpr int kMaxMoved = 64;  // elementwise ops taken behind one reshape

int64_t DivisorNear(int64_t n, int64_t wanted) {
  for (int64_t p = wanted; p <= 4 * wanted && p < n; ++p) {
    if (n % p == 0) return p;
  }
  for (int64_t p = wanted; p > std::max<int64_t>(1, wanted / 2); --p) {
    if (n % p == 0) return p;
  }
  return wanted;  // with a rest
}

}  // namespace

bool IsReduced(const Instruction& reduce, int64_t d) { return absl::c_linear_search(reduce.dimensions(), d); }

bool IsSpreadAgain(const Instruction& reduce) {
  const Dim many = reduce.operand(0)->shape().num_elements();
  std::vector<const Instruction*> queue = {&reduce};
  for (size_t i = 0; i < queue.size() && i < 64; ++i) {
    for (const Instruction* u : queue[i]->users()) {
      if (!u->shape().is_array()) continue;
      if (KnownEqual(u->shape().num_elements(), many)) return true;
      if (IsPointwise(*u) || u->family() == Family::kMovement) queue.push_back(u);
    }
  }
  return false;
}

std::optional<Cut> CutInto(const Instruction& reduce, int64_t wanted) {
  const Shape& x = reduce.operand(0)->shape();
  Cut cut;
  const Permutation layout = x.minor_to_major();
  for (auto d = layout.rbegin(); d != layout.rend() && wanted > 1; ++d) {
    const int64_t extent = Typical(x.dim(*d));
    if (!IsReduced(reduce, *d) || extent == 1) continue;
    if (extent <= 2 * wanted) {
      cut.whole.push_back(*d);
    } else {
      cut.split = *d;
      cut.pieces = x.dim(*d).is_constant() ? DivisorNear(extent, wanted) : wanted;
    }
    wanted = extent <= 2 * wanted ? wanted / extent : 1;
  }
  if (cut.split < 0 && (cut.whole.empty() || cut.whole.size() == reduce.dimensions().size())) return std::nullopt;
  return cut;
}

Instruction* SplitView::Of(Instruction* x) {
  auto [it, inserted] = made_.try_emplace(x, nullptr);
  if (!inserted) return it->second;
  Instruction* seen = Elementwise(x);
  if (seen == nullptr) seen = Splat(x);
  if (seen == nullptr) seen = Leaf(x);
  seen->mutable_shape().set_layout(Layout(x->shape()));
  return made_[x] = seen;
}

DimVector SplitView::Dims(const Shape& s) const {
  DimVector dims(s.dims().begin(), s.dims().end());
  dims[dim_] = to_ - from_;
  if (pieces_ == 0) return dims;
  dims[dim_] = FloorDiv(to_ - from_, pieces_);
  dims.insert(dims.begin() + dim_, Dim(pieces_));
  return dims;
}
Permutation SplitView::Layout(const Shape& s) const {
  if (pieces_ == 0) return s.minor_to_major();
  Permutation layout;
  for (int64_t d : s.minor_to_major()) {
    if (d >= dim_) layout.push_back(d + 1);
    if (d <= dim_) layout.push_back(d);
  }
  return layout;
}

// Dear ops with other users are done once.
bool SplitView::Moves(const Instruction& x) const {
  if (!IsPointwise(x) || x.IsStateful() || !x.shape().is_array() || x.opcode() == Opcode::kBitcastConvert) return false;
  if (!x.control_predecessors().empty() || !x.control_successors().empty()) return false;
  if (!IsWhole()) return x.user_count() == 1;
  const bool cheap = x.operand_count() > 1 && x.opcode() != Opcode::kDivide && x.opcode() != Opcode::kPower;
  return x.user_count() == 1 || cheap || x.opcode() == Opcode::kConvert || x.opcode() == Opcode::kAbs || x.opcode() == Opcode::kNegate;
}

Instruction* SplitView::Elementwise(Instruction* x) {
  if (!Moves(*x) || ++moved_ > kMaxMoved) return nullptr;
  std::vector<Instruction*> operands;
  for (Instruction* o : x->operands()) operands.push_back(Shape::SameDims(o->shape(), like_) ? Of(o) : o);
  b_.set_metadata(x->metadata());
  return b_.Make(x->opcode(), operands, x->attrs(), Shape(x->shape().element_type(), Dims(x->shape())));
}

// What every element can tell by itself.
Instruction* SplitView::Splat(Instruction* x) {
  const int64_t along = x->attrs().get_or<int64_t>(Attr::kIotaDimension, dim_);
  if (along != dim_) {
    return b_.Iota(Shape(x->shape().element_type(), Dims(x->shape())), along + (along > dim_ && pieces_ > 0 ? 1 : 0));
  }
  if (x->opcode() != Opcode::kBroadcast || !x->operand(0)->shape().is_scalar()) return nullptr;
  return b_.Broadcast(x->operand(0), Dims(x->shape()), {});
}

Instruction* SplitView::Leaf(Instruction* x) {
  if (!IsWhole()) {
    const Permutation layout = x->shape().minor_to_major();
    x = b_.SliceDim(x, dim_, from_, to_);
    x->mutable_shape().set_layout(layout);
  }
  return pieces_ == 0 ? x : b_.Reshape(x, Dims(like_));
}

// `total`, in f64, is what `sum` and its wide uses are.
void ReplaceWide(Instruction* sum, const std::vector<Instruction*>& wide, Instruction* total) {
  Computation* c = sum->parent();
  const bool rounded = sum == c->root() || sum->users().size() > wide.size();
  if (rounded) {
    Builder b(c);
    b.set_metadata(sum->metadata());
    Instruction* narrow = b.Convert(total, PrimitiveType::kF32);
    narrow->mutable_shape() = sum->shape();
    for (Instruction* use : wide) c->ReplaceAndRemove(use, total);
    return c->ReplaceAndRemove(sum, narrow);
  }
  for (Instruction* use : wide) c->ReplaceAndRemove(use, total);  // with the last, the sum goes
}

}  // namespace tenon
