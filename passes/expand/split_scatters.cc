// SplitScatters: many single elements added into few places become that in pieces, so that threads share it:
//
//   f32[D] scatter(x, i, u[N])  =>  x + f32[D] reduce(f32[P,D] scatter(-0, i', u[P,N/P]))
//
// A piece adds its updates into a copy of its own, which a batching dim of the scatter tells from the others'. What zeroing and adding
// the copies costs is a quarter of the updates at most. Pieces follow from sizes alone (Typical ones): the same bits whatever the number of
// threads. Updates that make no whole piece are scattered into x first.
//
// Only adds of f32, f64 and integers; windows of one element (wider ones are shared out by the scatter's kernel). After
// assign-layout, as split-reductions, before fuse.
#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "hlo/builder.h"
#include "hlo/order_free.h"
#include "passes/expand/control_flow.h"
#include "passes/pass.h"

namespace tenon {
namespace {

constexpr int64_t kLong = 128 << 10;  // updates that are worth three kernels
constexpr int64_t kLeastPieces = 4, kMostPieces = 8;
constexpr int64_t kUpdatesPerCopied = 4;  // updates for each element of all copies

bool IsSum(const Computation& c) {
  const PrimitiveType type = c.root()->shape().element_type();
  const bool wide = type == PrimitiveType::kF32 || type == PrimitiveType::kF64 || (IsIntegral(type) && ByteWidth(type) > 1);
  return wide && SimpleOp(c) == Opcode::kAdd;
}

bool IsPlain(const Shape& s) { return s.is_array() && IsRowMajor(s); }

// The dim of the updates that counts them; -1 if they are counted by several.
int64_t CountingDim(const Instruction& scatter) {
  const std::vector<int64_t> window = scatter.int_list(Attr::kUpdateWindowDims);
  int64_t dim = -1;
  for (int64_t d = 0; d < scatter.operand(2)->shape().rank(); ++d) {
    if (absl::c_linear_search(window, d)) continue;
    if (dim >= 0) return -1;
    dim = d;
  }
  return dim;
}

int64_t PiecesOf(const Instruction& op) {
  if (op.opcode() != Opcode::kScatter || op.operand_count() != 3 || !IsSum(*op.to_apply())) return 0;
  const Shape &x = op.operand(0)->shape(), &index = op.operand(1)->shape(), &updates = op.operand(2)->shape();
  if (!IsPlain(x) || !IsPlain(index) || !IsPlain(updates) || !IsPlain(op.shape())) return 0;
  if (!op.control_predecessors().empty() || !op.control_successors().empty()) return 0;
  const bool listed = index.rank() == 1 || (index.rank() == 2 && op.attrs().get<int64_t>(Attr::kIndexVectorDim) == 1);
  const int64_t dim = CountingDim(op);
  if (!listed || dim < 0 || !op.int_list(Attr::kInputBatchingDims).empty()) return 0;
  const int64_t count = Typical(updates.dim(dim)), places = Typical(x.num_elements());
  if (count < kLong || !KnownEqual(updates.dim(dim), updates.num_elements()) || places <= 0) return 0;
  if (op.attrs().get_or<bool>(Attr::kUniqueIndices, false)) return 0;
  const int64_t pieces = std::min(count / places / kUpdatesPerCopied, kMostPieces);
  return pieces >= kLeastPieces ? pieces : 0;
}

class Split {
 public:
  Split(Instruction* scatter, int64_t pieces) : op_(*scatter), pieces_(pieces), dim_(CountingDim(op_)), b_(scatter->parent()) {
    b_.set_metadata(op_.metadata());
  }

  // What takes the scatter's place.
  Instruction* Result() {
    const Dim count = op_.operand(2)->shape().dim(dim_), whole = FloorDiv(count, pieces_) * Dim(pieces_);
    Instruction *x = op_.operand(0), *index = op_.operand(1), *updates = op_.operand(2);
    if (!KnownEqual(whole, count)) {
      x = Laid(b_.Make(Opcode::kScatter, {x, Part(index, 0, whole, count), Part(updates, dim_, whole, count)}, op_.attrs()));
      index = Part(index, 0, 0, whole);
      updates = Part(updates, dim_, 0, whole);
    }
    Instruction* zero = Laid(b_.ScalarConstant(x->shape().element_type(), -0.0));  // adds nothing to -0 either
    Instruction* copies = Laid(b_.Broadcast(zero, WithPieces(x->shape(), 0, 1), {}));
    index = Laid(b_.Reshape(index, WithPieces(index->shape(), 0, pieces_)));
    updates = Laid(b_.Reshape(updates, WithPieces(updates->shape(), dim_, pieces_)));
    Instruction* sums = Laid(b_.Make(Opcode::kScatter, {copies, index, updates}, AttributesOfPieces()));
    return Laid(b_.Binary(Opcode::kAdd, x, Laid(b_.Reduce({sums}, {zero}, {0}, op_.to_apply()))));
  }

 private:
  static Instruction* Laid(Instruction* x) {
    x->mutable_shape().set_layout(RowMajor(x->shape().rank()));
    return x;
  }
  Instruction* Part(Instruction* x, int64_t dim, Dim from, Dim to) { return Laid(b_.SliceDim(x, dim, from, to)); }

  // A dim of the pieces before `dim`, which is cut into `parts`.
  DimVector WithPieces(const Shape& s, int64_t dim, int64_t parts) const {
    DimVector dims(s.dims().begin(), s.dims().end());
    dims[dim] = FloorDiv(s.dim(dim), parts);
    dims.insert(dims.begin() + dim, Dim(pieces_));
    return dims;
  }

  // The scatter's own, of arrays with a dim of pieces.
  Attributes AttributesOfPieces() const {
    Attributes attrs = op_.attrs();
    for (Attr attr : {Attr::kInsertedWindowDims, Attr::kScatterDimsToOperandDims}) {
      std::vector<int64_t> dims = op_.int_list(attr);
      for (int64_t& d : dims) ++d;
      attrs.set(attr, std::move(dims));
    }
    std::vector<int64_t> window = op_.int_list(Attr::kUpdateWindowDims);
    for (int64_t& d : window) d += d > dim_ ? 1 : 0;
    attrs.set(Attr::kUpdateWindowDims, std::move(window));
    attrs.set(Attr::kInputBatchingDims, std::vector<int64_t>{0});
    attrs.set(Attr::kScatterIndicesBatchingDims, std::vector<int64_t>{0});
    attrs.set(Attr::kIndexVectorDim, op_.attrs().get<int64_t>(Attr::kIndexVectorDim) + 1);
    return attrs;
  }

  const Instruction& op_;
  const int64_t pieces_, dim_;
  Builder b_;
};

}  // namespace

absl::StatusOr<bool> SplitScatters(Module& module, PassContext& context) {
  bool changed = false;
  for (Computation* c : ControlComputations(module)) {
    for (Instruction* op : c->PostOrder()) {
      const int64_t pieces = PiecesOf(*op);
      if (pieces == 0) continue;
      context.Note("split-scatters", "split", *op,
                   absl::StrCat(op->operand(2)->shape().num_elements().ToString(), " updates of ", op->shape().num_elements().ToString(),
                                " elements: threads share them in ", pieces, " pieces"));
      c->ReplaceAndRemove(op, Split(op, pieces).Result());
      changed = true;
    }
  }
  return changed;
}

}  // namespace tenon
