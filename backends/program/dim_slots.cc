#include "backends/program/dim_slots.h"

#include <functional>

#include "absl/algorithm/container.h"
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
  AddSymbol(e, builder_.Emit(op), op.kind == DimOp::Kind::kInputScalar || op.kind == DimOp::Kind::kInputStride);
}

void DimSlots::AddSymbol(const DimExpr& e, SizeRef slot, bool may_be_negative) {
  symbols_[e.symbol] = slot;
  if (e.upper == INT64_MAX && e.divisor == 1 && e.lower <= 0 && !(may_be_negative && e.lower == 0)) return;
  program_->guards.push_back(
      {.kind = Guard::Kind::kRange, .size = slot, .lower = e.lower, .upper = e.upper, .divisor = e.divisor, .text = e.symbol});
}

namespace {

// a*symbol + rest.
struct Linear {
  Dim factor = 0, rest = 0;
};

bool Mentions(Dim dim, Dim symbol) {
  if (dim.is_constant() || dim == symbol) return dim == symbol;
  return absl::c_any_of(dim.expr()->operands, [&](Dim d) { return Mentions(d, symbol); });
}

std::optional<Linear> LinearIn(Dim symbol, Dim dim) {
  if (!Mentions(dim, symbol)) return Linear{0, dim};
  if (dim == symbol) return Linear{1, 0};
  const DimExpr& e = *dim.expr();
  Linear sum{0, e.addend};
  if (e.kind == DimExpr::Kind::kSum) {
    for (size_t i = 0; i < e.operands.size(); ++i) {
      const std::optional<Linear> term = LinearIn(symbol, e.operands[i]);
      if (!term) return std::nullopt;
      sum.factor += term->factor * e.coefficients[i];
      sum.rest += term->rest * e.coefficients[i];
    }
    return sum;
  }
  const auto mentions = absl::c_count_if(e.operands, [&](Dim d) { return Mentions(d, symbol); });
  if (e.kind != DimExpr::Kind::kProduct || mentions != 1) return std::nullopt;
  Linear product{1, 1};
  for (Dim d : e.operands) {
    const std::optional<Linear> factor = LinearIn(symbol, d);
    if (!factor) return std::nullopt;
    if (Mentions(d, symbol)) product = {product.factor * factor->factor, product.rest * factor->rest};
    else product = {product.factor * d, product.rest * d};
  }
  return product;
}

}  // namespace

std::optional<Dim> DimSlots::OnlyUndefined(Dim dim) const {
  std::optional<Dim> found;
  bool several = false;
  const std::function<void(Dim)> walk = [&](Dim d) {
    if (d.is_constant()) return;
    if (d.expr()->kind == DimExpr::Kind::kSymbol && !symbols_.contains(d.expr()->symbol)) {
      several |= found && *found != d;
      found = d;
    }
    for (Dim operand : d.expr()->operands) walk(operand);
  };
  walk(dim);
  return several ? std::nullopt : found;
}

// A symbol that no input is, by what is linear in it: 2*s0+1 is 7, so s0 is 3. The guard of that input says whether it is so.
absl::Status DimSlots::SolveSymbols() {
  for (bool progress = true; progress;) {
    progress = false;
    for (size_t k = 0; k < said_.size(); ++k) {
      const auto [dim, op] = said_[k];
      if (op.kind == DimOp::Kind::kInputStride) continue;  // it means nothing where the size is 1
      const std::optional<Dim> symbol = OnlyUndefined(dim);
      const std::optional<Linear> linear = symbol ? LinearIn(*symbol, dim) : std::nullopt;
      if (!linear || linear->factor == Dim(0)) continue;
      TENON_ASSIGN_OR_RETURN(const SizeRef rest, Ref(linear->rest));
      TENON_ASSIGN_OR_RETURN(const SizeRef factor, Ref(linear->factor));
      const SizeRef difference = builder_.Emit({DimOp::Kind::kSub, builder_.Emit(op), rest});
      AddSymbol(*symbol->expr(), builder_.Emit({DimOp::Kind::kFloorDiv, difference, factor}), /*may_be_negative=*/true);
      progress = true;
    }
  }
  return absl::OkStatus();
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
  TENON_RETURN_IF_ERROR(SolveSymbols());
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
