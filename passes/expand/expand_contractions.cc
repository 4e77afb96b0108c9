// ExpandContractions: every contraction becomes a dot or a convolution of one type, which sums are kept in.
//
//   dot, convolution, ragged-dot with an algorithm   operands are rounded to the precision that it names (hlo/precision.h)
//   dot, convolution   operands are converted to the type of the sum, the sum to the result's type: f16, bf16 and f8 add up in f32
//                      and round once, integers wrap in the result's width. What a library takes (PassContext::library_takes) stays.
//   dot                of one row, or few, and a matrix whose summed dim is the fastest: reductions of products, which read it as it lies
//   convolution        whose taps are each one element, or the whole input, becomes a dot
//   scaled-dot         a dot of operands times their scales, in f64
//   ragged-dot         ragged batch: a dot. Ragged free dim: one dot with every group, of which each row keeps its own group's
//                      result. Ragged contracting dim: a batched dot, one batch per group, of operands that are zero in other groups.
//
// Early, before simplify: the converts fold or fuse. Numerically the same sums in the types named.
#include <algorithm>

#include "absl/algorithm/container.h"
#include "hlo/builder.h"
#include "hlo/precision.h"
#include "passes/lower/named_provider.h"
#include "passes/memory/strided_view.h"
#include "passes/pass.h"

namespace tenon {
namespace {

using Ints = std::vector<int64_t>;

bool IsHalf(PrimitiveType t) { return t == PrimitiveType::kF16 || t == PrimitiveType::kBF16; }
bool IsWide(PrimitiveType t) { return t == PrimitiveType::kF64 || t == PrimitiveType::kC128; }

// What a sum of products of `a` and `b` is kept in on the way to `result`.
PrimitiveType SumType(PrimitiveType a, PrimitiveType b, PrimitiveType result) {
  const bool wide = IsWide(a) || IsWide(b) || IsWide(result);
  if (IsComplex(result)) return wide ? PrimitiveType::kC128 : PrimitiveType::kC64;
  if (IsFloat(result)) return wide ? PrimitiveType::kF64 : PrimitiveType::kF32;
  const bool counted = IsFloat(a) || IsFloat(b);  // floats become integers of the full range first
  if (result == PrimitiveType::kPred) {
    return a == result && b == result ? PrimitiveType::kU32 : PrimitiveType::kU64;  // must not wrap to zero
  }
  if (counted) return IsSigned(result) ? PrimitiveType::kS64 : PrimitiveType::kU64;
  if (BitWidth(result) >= 8) return result;
  return IsSigned(result) ? PrimitiveType::kS8 : PrimitiveType::kU8;
}

Ints Range(int64_t n) {
  Ints r(n);
  for (int64_t i = 0; i < n; ++i) r[i] = i;
  return r;
}

class Expansion {
 public:
  Expansion(Instruction* op, const PassContext& context)
      : op_(op), context_(context), b_(op->parent()), type_(op->shape().element_type()) {
    b_.set_metadata(op->metadata());
  }

  // Rounds the operands to what the algorithm takes; then it says no more than the types do.
  bool ApplyAlgorithm() {
    if (!op_->attrs().has(Attr::kAlgorithm)) return false;
    for (int64_t side = 0; side < 2; ++side) {
      const std::optional<Precision> precision = OperandPrecision(*op_, type(side));
      if (!precision.has_value()) continue;
      Attributes attrs;
      attrs.set(Attr::kExponentBits, static_cast<int64_t>(precision->exponent_bits));
      attrs.set(Attr::kMantissaBits, static_cast<int64_t>(precision->mantissa_bits));
      op_->ReplaceOperand(side, b_.Make(Opcode::kReducePrecision, {op_->operand(side)}, std::move(attrs)));
    }
    op_->mutable_attrs().erase(Attr::kAlgorithm);
    return true;
  }

  // nullptr: the instruction is as it should be.
  Instruction* Run() {
    if (context_.library_takes && context_.library_takes(*op_)) return nullptr;
    switch (op_->opcode()) {
      case Opcode::kDot:
        if (op_->operand_count() != 2) return nullptr;
        for (const int64_t row : {0, 1}) {
          if (Instruction* sums = RowAsReduction(row)) return sums;
        }
        if (Instruction* sums = FewRowsAsReductions()) return sums;
        return OneType();
      case Opcode::kConvolution:
        if (!NamedProvider(*op_).empty()) return OneType();
        if (Instruction* dot = ConvolutionAsDot()) return dot;
        return OneType();
      case Opcode::kScaledDot: return ScaledDot();
      case Opcode::kRaggedDot: return RaggedDot();
      default: return nullptr;
    }
  }

 private:
  const Shape& shape(int64_t i) const { return op_->operand(i)->shape(); }
  PrimitiveType type(int64_t i) const { return shape(i).element_type(); }

  Instruction* OneType() {
    if (!context_.library_takes && op_->opcode() == Opcode::kDot && IsHalf(type_) && type(0) == type_ && type(1) == type_) return nullptr;
    const PrimitiveType sum = SumType(type(0), type(1), type_);
    if (type(0) == sum && type(1) == sum && type_ == sum) return nullptr;
    Shape wide = op_->shape();
    wide.set_element_type(sum);
    Instruction* made =
        b_.Make(op_->opcode(), {b_.Convert(op_->operand(0), sum), b_.Convert(op_->operand(1), sum)}, op_->attrs(), wide);
    return AsResult(made);
  }

  // In the result's type (and layout).
  Instruction* AsResult(Instruction* x) {
    if (x->shape().element_type() == type_) return x;
    Instruction* narrow = b_.Convert(x, type_);
    narrow->mutable_shape() = op_->shape();
    return narrow;
  }

  Instruction* Dot(Instruction* lhs, Instruction* rhs, const Ints& lhs_batch, const Ints& rhs_batch, const Ints& lhs_contracting,
                   const Ints& rhs_contracting) {
    const PrimitiveType l = lhs->shape().element_type(), r = rhs->shape().element_type();
    if (IsHalf(type_) && l == type_ && r == type_) {
      Instruction* dot = b_.Dot(lhs, rhs, lhs_batch, rhs_batch, lhs_contracting, rhs_contracting);
      if (!context_.library_takes || context_.library_takes(*dot)) return dot;
      op_->parent()->Remove(dot);
    }
    const PrimitiveType sum = SumType(l, r, type_);
    return b_.Dot(b_.Convert(lhs, sum), b_.Convert(rhs, sum), lhs_batch, rhs_batch, lhs_contracting, rhs_contracting);
  }

  // ---- dots as reductions ------------------------------------------------------------------------------------------
  // Operand `matrix` has one summed dim, along which elements lie side by side, and batch dims first.
  bool SumsLieSideBySide(int64_t matrix) const {
    constexpr int64_t kShort = 16;
    if (type_ != PrimitiveType::kF32 && type_ != PrimitiveType::kF64 && !(IsHalf(type_) && context_.library_takes)) return false;
    if (type(0) != type_ || type(1) != type_ || !NamedProvider(*op_).empty()) return false;
    const Ints batch = op_->int_list(matrix == 0 ? Attr::kLhsBatchDims : Attr::kRhsBatchDims), summed = Summed(matrix);
    if (summed.size() != 1 || batch != Range(static_cast<int64_t>(batch.size()))) return false;
    if (Typical(shape(matrix).dim(summed[0])) < kShort || KnownEqual(shape(matrix).num_elements(), 0)) return false;
    return KnownEqual(ViewByLayout(op_->operand(matrix)).strides[static_cast<size_t>(summed[0])], 1);
  }
  Ints Summed(int64_t side) const { return op_->int_list(side == 0 ? Attr::kLhsContractingDims : Attr::kRhsContractingDims); }

  // Of `row`, whose dims are `places` of the matrix's, times operand `matrix`, which `row` comes before or after.
  Instruction* SumsOf(Instruction* row, const Ints& places, int64_t matrix) {
    const PrimitiveType sum = SumType(type_, type_, type_);
    Instruction* rows = b_.Broadcast(b_.Convert(row, sum), shape(matrix).dims(), places);
    Instruction* wide = b_.Convert(op_->operand(matrix), sum);
    Instruction* products = matrix == 1 ? b_.Binary(Opcode::kMultiply, rows, wide) : b_.Binary(Opcode::kMultiply, wide, rows);
    return b_.Reduce(products, b_.ScalarConstant(sum, 0), Summed(matrix), Opcode::kAdd);
  }

  // [batch..., 1, k] times [batch..., n, k], in either order.
  Instruction* RowAsReduction(int64_t row) {
    const int64_t matrix = 1 - row;
    if (!SumsLieSideBySide(matrix)) return nullptr;
    const Ints batch[2] = {op_->int_list(Attr::kLhsBatchDims), op_->int_list(Attr::kRhsBatchDims)};
    // The row without its dims of one, its dims as they lie among the matrix's.
    std::vector<Dim> kept;
    Ints places;
    for (int64_t d = 0; d < shape(row).rank(); ++d) {
      const auto at = absl::c_find(batch[row], d);
      if (at == batch[row].end() && d != Summed(row)[0]) {
        if (!KnownOne(shape(row).dim(d))) return nullptr;
        continue;
      }
      kept.push_back(shape(row).dim(d));
      places.push_back(at == batch[row].end() ? Summed(matrix)[0] : batch[matrix][static_cast<size_t>(at - batch[row].begin())]);
    }
    if (!absl::c_is_sorted(places)) return nullptr;
    return AsResult(b_.Reshape(SumsOf(b_.Reshape(op_->operand(row), kept), places, matrix), op_->shape().dims()));
  }

  // [rows..., k] times [n..., k] of few rows: as many sums, for which the matrix is read once.
  Instruction* FewRowsAsReductions() {
    const int64_t last = shape(0).rank() - 1;
    if (IsHalf(type_) || !SumsLieSideBySide(1) || !op_->int_list(Attr::kLhsBatchDims).empty() || Summed(0)[0] != last) return nullptr;
    Dim rows = 1;
    for (int64_t d = 0; d < last; ++d) rows *= shape(0).dim(d);
    if (!rows.is_constant() || rows.constant() < 2 || rows.constant() > context_.target.rows_as_sums) return nullptr;
    const Dim terms = shape(0).dim(last);
    Instruction* all = b_.Reshape(op_->operand(0), {rows, terms});
    std::vector<Instruction*> sums;
    for (int64_t r = 0; r < rows.constant(); ++r) {
      Instruction* of_row = SumsOf(b_.Reshape(b_.SliceDim(all, 0, r, r + 1), {terms}), Summed(1), 1);
      std::vector<Dim> dims = {1};
      dims.insert(dims.end(), of_row->shape().dims().begin(), of_row->shape().dims().end());
      sums.push_back(b_.Reshape(of_row, dims));
    }
    return AsResult(b_.Reshape(b_.Concatenate(sums, 0), op_->shape().dims()));
  }

  // ---- convolution -------------------------------------------------------------------------------------------------
  // Per spatial dim: a window of one element, or one that is the whole input and has one place to be.
  Instruction* ConvolutionAsDot() {
    const Attributes& attrs = op_->attrs();
    const DimLabels& l = attrs.get<DimLabels>(Attr::kDimLabels);
    if (attrs.get_or<int64_t>(Attr::kFeatureGroupCount, 1) != 1 || attrs.get_or<int64_t>(Attr::kBatchGroupCount, 1) != 1) return nullptr;
    Window window = attrs.get_or<Window>(Attr::kWindow, {});
    window.dims.resize(l.input_spatial.size());
    Ints lhs_contracting = {l.input_feature}, rhs_contracting = {l.kernel_input_feature};
    std::vector<bool> dropped(shape(1).rank(), false), kept(l.input_spatial.size(), false);
    for (size_t d = 0; d < window.dims.size(); ++d) {
      const WindowDim& w = window.dims[d];
      const Dim size = shape(0).dim(l.input_spatial[d]), out = op_->shape().dim(l.output_spatial[d]);
      if (w.padding_low != 0 || w.padding_high != 0 || w.base_dilation != 1) return nullptr;
      if (w.size == 1) {
        dropped[l.kernel_spatial[d]] = kept[d] = true;
      } else if (KnownEqual(size, w.size) && KnownOne(out) && w.window_dilation == 1 && !w.reversed) {
        lhs_contracting.push_back(l.input_spatial[d]);
        rhs_contracting.push_back(l.kernel_spatial[d]);
      } else {
        return nullptr;
      }
    }
    Instruction* x = op_->operand(0);
    for (size_t d = 0; d < window.dims.size(); ++d) {
      if (!kept[d] || window.dims[d].stride == 1) continue;
      const Dim out = op_->shape().dim(l.output_spatial[d]);
      if (!out.is_constant()) return nullptr;
      const int64_t limit = out.constant() == 0 ? 0 : (out.constant() - 1) * window.dims[d].stride + 1;
      x = b_.SliceDim(x, l.input_spatial[d], 0, limit, window.dims[d].stride);
    }
    // The kernel without its dims of one tap.
    std::vector<Dim> kernel_dims;
    Ints kernel_dim(shape(1).rank(), -1);
    for (int64_t i = 0; i < shape(1).rank(); ++i) {
      if (dropped[i]) continue;
      kernel_dim[i] = static_cast<int64_t>(kernel_dims.size());
      kernel_dims.push_back(shape(1).dim(i));
    }
    for (int64_t& d : rhs_contracting) d = kernel_dim[d];
    Instruction* dot = Dot(x, b_.Reshape(op_->operand(1), kernel_dims), {}, {}, lhs_contracting, rhs_contracting);
    return FromDot(dot, l, kept);
  }

  // [free dims of the input in its order, output feature] -> the convolution's own order, dims of one place put back.
  Instruction* FromDot(Instruction* dot, const DimLabels& l, const std::vector<bool>& kept) {
    const int64_t rank = op_->shape().rank();
    Ints place(rank, -1);  // result dim -> dim of the dot
    int64_t next = 0;
    for (int64_t i = 0; i < rank; ++i) {
      if (i == l.input_batch) place[l.output_batch] = next++;
      for (size_t d = 0; d < kept.size(); ++d) {
        if (kept[d] && l.input_spatial[d] == i) place[l.output_spatial[d]] = next++;
      }
    }
    place[l.output_feature] = next;
    Ints permutation;
    for (int64_t i = 0; i < rank; ++i) {
      if (place[i] >= 0) permutation.push_back(place[i]);
    }
    return AsResult(b_.Reshape(b_.Transpose(dot, permutation), op_->shape().dims()));
  }

  // ---- scaled-dot --------------------------------------------------------------------------------------------------
  Instruction* ScaledDot() {
    Instruction *lhs = Scaled(0), *rhs = Scaled(1);
    return AsResult(Dot(lhs, rhs, op_->int_list(Attr::kLhsBatchDims), op_->int_list(Attr::kRhsBatchDims),
                        op_->int_list(Attr::kLhsContractingDims), op_->int_list(Attr::kRhsContractingDims)));
  }

  // Each element times the scale of its block.
  Instruction* Scaled(int64_t side) {
    Instruction* x = b_.Convert(op_->operand(side), PrimitiveType::kF64);
    Instruction* scale = b_.Convert(op_->operand(side + 2), PrimitiveType::kF64);
    if (KnownEqual(x->shape().num_elements(), 0)) return x;
    if (scale->shape().rank() == 0) return b_.Binary(Opcode::kMultiply, x, b_.Broadcast(scale, x->shape().dims(), {}));
    std::vector<Dim> blocked;
    Ints at;
    for (int64_t d = 0; d < x->shape().rank(); ++d) {
      const Dim blocks = scale->shape().dim(d);
      at.push_back(static_cast<int64_t>(blocked.size()));
      blocked.push_back(blocks);
      if (!KnownEqual(blocks, x->shape().dim(d))) blocked.push_back(FloorDiv(x->shape().dim(d), blocks));
    }
    Instruction* spread = b_.Reshape(b_.Broadcast(scale, blocked, at), x->shape().dims());
    return b_.Binary(Opcode::kMultiply, x, spread);
  }

  // ---- ragged-dot --------------------------------------------------------------------------------------------------
  Instruction* RaggedDot() {
    const int64_t ragged = op_->int_list(Attr::kLhsRaggedDims)[0];
    const Ints lhs_batch = op_->int_list(Attr::kLhsBatchDims), rhs_batch = op_->int_list(Attr::kRhsBatchDims);
    const Ints lhs_k = op_->int_list(Attr::kLhsContractingDims), rhs_k = op_->int_list(Attr::kRhsContractingDims);
    if (absl::c_linear_search(lhs_batch, ragged)) {
      return AsResult(Dot(op_->operand(0), op_->operand(1), lhs_batch, rhs_batch, lhs_k, rhs_k));
    }
    if (shape(2).rank() != 1 || !shape(0).dim(ragged).is_constant() || !shape(2).dim(0).is_constant()) return nullptr;
    return absl::c_linear_search(lhs_k, ragged) ? RaggedContracting(ragged) : RaggedFree(ragged);
  }

  // pred[groups, extent]: is this position of the ragged dim in this group? Groups follow each other; what is behind the last is
  // in none; a negative size is none.
  Instruction* Membership(int64_t extent) {
    const int64_t groups = shape(2).constant_dim(0);
    const PrimitiveType s64 = PrimitiveType::kS64;
    Instruction* raw = op_->operand(2);
    const Dim n = groups;
    Instruction *zero = b_.ScalarConstantInt(s64, 0), *most = b_.ScalarConstantInt(s64, extent);
    Instruction* sizes;
    if (raw->shape().element_type() == PrimitiveType::kU64) {  // beyond s64: as good as the extent
      Instruction* limit = b_.Broadcast(b_.ScalarConstantInt(PrimitiveType::kU64, extent), {n}, {});
      sizes = b_.Convert(b_.Binary(Opcode::kMinimum, raw, limit), s64);
    } else {
      sizes = b_.Clamp(zero, b_.Convert(raw, s64), most);
    }
    // ends[g] = sum of sizes[0..g], as a masked sum.
    const std::vector<Dim> square = {n, n}, table = {n, Dim(extent)};
    Instruction* before = b_.Compare(b_.Iota(Shape(s64, DimVector{n, n}), 1), b_.Iota(Shape(s64, DimVector{n, n}), 0), "LE");
    Instruction* summed = b_.Select(before, b_.Broadcast(sizes, square, {1}), b_.Broadcast(zero, square, {}));
    Instruction* ends = b_.Reduce(summed, zero, {1}, Opcode::kAdd);
    Instruction* starts = b_.Binary(Opcode::kSubtract, ends, sizes);
    Instruction* position = b_.Iota(Shape(s64, DimVector{n, Dim(extent)}), 1);
    return b_.Binary(Opcode::kAnd, b_.Compare(position, b_.Broadcast(starts, table, {0}), "GE"),
                     b_.Compare(position, b_.Broadcast(ends, table, {0}), "LT"));
  }

  // The dot with all groups has the group dim among rhs's free dims; a sum over the groups in which one counts takes it out.
  Instruction* RaggedFree(int64_t ragged) {
    const Ints lhs_batch = op_->int_list(Attr::kLhsBatchDims), rhs_batch = op_->int_list(Attr::kRhsBatchDims);
    const Ints lhs_k = op_->int_list(Attr::kLhsContractingDims), rhs_k = op_->int_list(Attr::kRhsContractingDims);
    Instruction* every = Dot(op_->operand(0), op_->operand(1), lhs_batch, rhs_batch, lhs_k, rhs_k);
    int64_t at = static_cast<int64_t>(lhs_batch.size()), row = -1, group = -1;
    for (int64_t d = 0; d < shape(0).rank(); ++d) {
      if (absl::c_linear_search(lhs_batch, d) || absl::c_linear_search(lhs_k, d)) continue;
      if (d == ragged) row = at;
      ++at;
    }
    for (int64_t d = 0; d < shape(1).rank(); ++d) {
      if (absl::c_linear_search(rhs_batch, d) || absl::c_linear_search(rhs_k, d)) continue;
      if (d == op_->int_list(Attr::kRhsGroupDims)[0]) group = at;
      ++at;
    }
    const PrimitiveType sum = every->shape().element_type();
    Instruction* zero = b_.ScalarConstant(sum, 0);
    Instruction* own = b_.Broadcast(Membership(shape(0).constant_dim(ragged)), every->shape().dims(), {group, row});
    Instruction* one = b_.Select(own, every, b_.Broadcast(zero, every->shape().dims(), {}));
    return AsResult(b_.Reduce(one, zero, {group}, Opcode::kAdd));
  }

  // Both operands are cleared outside of the group: the other side may hold infinities there.
  Instruction* RaggedContracting(int64_t ragged) {
    Ints dims[2][2] = {{op_->int_list(Attr::kLhsBatchDims), op_->int_list(Attr::kLhsContractingDims)},
                       {op_->int_list(Attr::kRhsBatchDims), op_->int_list(Attr::kRhsContractingDims)}};
    const auto which = std::find(dims[0][1].begin(), dims[0][1].end(), ragged) - dims[0][1].begin();
    const int64_t position[2] = {ragged, dims[1][1][which]};
    const PrimitiveType sum = SumType(type(0), type(1), type_);  // has a zero, which f8e8m0fnu lacks
    Instruction* member = Membership(shape(0).constant_dim(ragged));
    Instruction* masked[2];
    for (int64_t side = 0; side < 2; ++side) {
      std::vector<Dim> grouped = {shape(2).dim(0)};
      grouped.insert(grouped.end(), shape(side).dims().begin(), shape(side).dims().end());
      Ints behind = Range(shape(side).rank());
      for (int64_t& d : behind) ++d;
      Instruction* all = b_.Broadcast(b_.Convert(op_->operand(side), sum), grouped, behind);
      Instruction* own = b_.Broadcast(member, grouped, {0, position[side] + 1});
      masked[side] = b_.Select(own, all, b_.Broadcast(b_.ScalarConstant(sum, 0), grouped, {}));
      for (Ints& list : dims[side]) {
        for (int64_t& d : list) ++d;
      }
      dims[side][0].insert(dims[side][0].begin(), 0);
    }
    return AsResult(Dot(masked[0], masked[1], dims[0][0], dims[1][0], dims[0][1], dims[1][1]));
  }

  Instruction* op_;
  const PassContext& context_;
  Builder b_;
  PrimitiveType type_;
};

}  // namespace

absl::StatusOr<bool> ExpandContractions(Module& module, PassContext& context) {
  bool changed = false;
  for (Computation* c : module.computations()) {
    for (Instruction* op : c->PostOrder()) {
      if (op->family() != Family::kContraction) continue;
      Expansion expansion(op, context);
      changed |= expansion.ApplyAlgorithm();
      Instruction* with = expansion.Run();
      if (with == nullptr) continue;
      context.Note("expand-contractions", "expanded", *op, std::string(OpcodeName(op->opcode())));
      c->ReplaceAndRemove(op, with);
      changed = true;
    }
  }
  return changed;
}

}  // namespace tenon
