#include "backends/program/dim_slots.h"

#include "absl/strings/str_cat.h"
#include "hlo/check.h"

namespace tenon {

// The first place where an input is exactly the symbol gives its value; what is said elsewhere is guarded.
void DimSlots::Define(Dim dim, DimOp op) {
  if (dim.is_constant()) return;
  const DimExpr& e = *dim.expr();
  if (e.kind != DimExpr::Kind::kSymbol || symbols_.contains(e.symbol)) {
    said_.emplace_back(dim, op);
    return;
  }
  const SizeRef slot = symbols_[e.symbol] = builder_.Emit(op);
  const bool number = op.kind == DimOp::Kind::kInputScalar || op.kind == DimOp::Kind::kInputStride;
  if (e.upper == INT64_MAX && e.divisor == 1 && e.lower <= 0 && !(number && e.lower == 0)) return;
  program_->guards.push_back(
      {.kind = Guard::Kind::kRange, .size = slot, .lower = e.lower, .upper = e.upper, .divisor = e.divisor, .text = e.symbol});
}

absl::Status DimSlots::AddGuards() {
  for (const auto& [dim, op] : said_) {
    Guard guard{.input = op.a, .axis = op.b, .text = dim.ToString()};
    guard.kind = op.kind == DimOp::Kind::kInputDim      ? Guard::Kind::kDim
                 : op.kind == DimOp::Kind::kInputStride ? Guard::Kind::kStride
                                                        : Guard::Kind::kNumber;
    TENON_ASSIGN_OR_RETURN(guard.size, Ref(dim));
    program_->guards.push_back(std::move(guard));
  }
  said_.clear();
  return absl::OkStatus();
}

absl::Status DimSlots::DefineSymbols(const Binding& binding) {
  for (int64_t i = 0; i < static_cast<int64_t>(binding.inputs.size()); ++i) {
    const Binding::Input& input = binding.inputs[i];
    if (input.kind == InputSpec::Kind::kSymInt) Define(input.symint, {DimOp::Kind::kInputScalar, i, 0});
    for (int64_t d = 0; d < static_cast<int64_t>(input.sizes.size()); ++d) {
      Define(input.sizes[d], {DimOp::Kind::kInputDim, i, d});
    }
    for (int64_t d = 0; d < static_cast<int64_t>(input.strides.size()); ++d) {
      Define(input.strides[d], {DimOp::Kind::kInputStride, i, d});
    }
  }
  return AddGuards();
}

absl::StatusOr<SizeRef> DimSlots::Ref(Dim dim) {
  if (dim.is_constant()) {
    return dim.constant() >= 0 ? dim.constant() : builder_.Emit({DimOp::Kind::kConstant, dim.constant(), 0});
  }
  const DimExpr& e = *dim.expr();
  if (e.kind == DimExpr::Kind::kSymbol) {
    auto it = symbols_.find(e.symbol);
    if (it == symbols_.end()) return absl::InvalidArgumentError(absl::StrCat("no input defines the symbol ", e.symbol));
    return it->second;
  }
  if (e.kind == DimExpr::Kind::kSum) {
    TENON_ASSIGN_OR_RETURN(SizeRef sum, Ref(Dim(e.addend)));
    for (size_t i = 0; i < e.operands.size(); ++i) {
      TENON_ASSIGN_OR_RETURN(SizeRef term, Ref(e.operands[i]));
      TENON_ASSIGN_OR_RETURN(SizeRef factor, Ref(Dim(e.coefficients[i])));
      sum = builder_.Emit({DimOp::Kind::kAdd, sum, builder_.Emit({DimOp::Kind::kMul, factor, term})});
    }
    return sum;
  }
  DimOp::Kind kind = DimOp::Kind::kMul;
  switch (e.kind) {
    case DimExpr::Kind::kProduct: kind = DimOp::Kind::kMul; break;
    case DimExpr::Kind::kFloorDiv: kind = DimOp::Kind::kFloorDiv; break;
    case DimExpr::Kind::kMod: kind = DimOp::Kind::kMod; break;
    case DimExpr::Kind::kMin: kind = DimOp::Kind::kMin; break;
    case DimExpr::Kind::kMax: kind = DimOp::Kind::kMax; break;
    default: TENON_CHECK(false, dim.ToString());
  }
  TENON_ASSIGN_OR_RETURN(SizeRef result, Ref(e.operands[0]));
  for (size_t i = 1; i < e.operands.size(); ++i) {
    TENON_ASSIGN_OR_RETURN(SizeRef operand, Ref(e.operands[i]));
    result = builder_.Emit({kind, result, operand});
  }
  return result;
}

absl::StatusOr<std::vector<SizeRef>> DimSlots::Refs(absl::Span<const Dim> dims) {
  std::vector<SizeRef> refs;
  for (Dim d : dims) {
    TENON_ASSIGN_OR_RETURN(SizeRef r, Ref(d));
    refs.push_back(r);
  }
  return refs;
}

}  // namespace tenon
