#include "hlo/sizes.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "hlo/verifier.h"

namespace tenon {
namespace {

void Collect(Dim d, std::map<std::string, Dim>* symbols) {
  const DimExpr* e = d.expr();
  if (e == nullptr) return;
  if (e->kind == DimExpr::Kind::kSymbol) symbols->emplace(e->symbol, d);
  for (Dim operand : e->operands) Collect(operand, symbols);
}

// Calls f(Dim&) for every dim of the shape.
template <typename F>
void EachDim(Shape& shape, F&& f) {
  for (int64_t i = 0; i < shape.rank(); ++i) {
    Dim d = shape.dim(i);
    f(d);
    shape.set_dim(i, d);
  }
  for (size_t i = 0; i < shape.elements().size(); ++i) EachDim(shape.mutable_element(static_cast<int64_t>(i)), f);
}

// ... of the instruction: of its shape and of the attributes that hold dims.
template <typename F>
void EachDim(Instruction& op, F&& f) {
  EachDim(op.mutable_shape(), f);
  for (const auto& [attr, value] : op.attrs()) {
    if (auto* dims = const_cast<std::vector<Dim>*>(std::get_if<std::vector<Dim>>(&value))) {
      for (Dim& d : *dims) f(d);
    } else if (auto* slice = const_cast<SliceSpec*>(std::get_if<SliceSpec>(&value))) {
      for (Dim& d : slice->starts) f(d);
      for (Dim& d : slice->limits) f(d);
    }
  }
}

template <typename F>
void EachDim(const Module& module, F&& f) {
  for (Computation* c : module.computations()) {
    for (Instruction* op : c->instructions()) EachDim(*op, f);
  }
}

absl::Status OutOfRange(const DimExpr& e, int64_t size) {
  std::string range = absl::StrCat("[", e.lower, ", ", e.upper == INT64_MAX ? "inf" : absl::StrCat(e.upper), "]");
  if (e.divisor != 1) absl::StrAppend(&range, ", divisible by ", e.divisor);
  return absl::InvalidArgumentError(absl::StrCat("wanted ", e.symbol, " in ", range, ", got ", size));
}

bool InRange(const DimExpr& e, int64_t size) { return size >= e.lower && size <= e.upper && size % e.divisor == 0; }

// Shape against shape, leaf by leaf: f(dim wanted, size that came, where).
template <typename F>
absl::Status EachSize(const Shape& want, const Shape& got, const std::string& where, F&& f) {
  if (want.is_tuple()) {
    if (!got.is_tuple() || got.elements().size() != want.elements().size()) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": wanted ", want.ToString(), ", got ", got.ToString()));
    }
    for (size_t i = 0; i < want.elements().size(); ++i) {
      const auto k = static_cast<int64_t>(i);
      TENON_RETURN_IF_ERROR(EachSize(want.element(k), got.element(k), where, f));
    }
    return absl::OkStatus();
  }
  if (want.element_type() != got.element_type() || want.rank() != got.rank()) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": wanted ", want.ToString(), ", got ", got.ToString()));
  }
  for (int64_t d = 0; d < want.rank(); ++d) {
    TENON_RETURN_IF_ERROR(f(want.dim(d), got.constant_dim(d), absl::StrCat(where, "'s dim ", d)));
  }
  return absl::OkStatus();
}

template <typename F>
absl::Status EachSize(const Module& module, absl::Span<const Literal> arguments, F&& f) {
  for (const Instruction* p : module.entry()->parameters()) {
    const int64_t k = p->parameter_number();
    TENON_RETURN_IF_ERROR(EachSize(p->shape(), arguments[static_cast<size_t>(k)].shape(), absl::StrCat("argument ", k), f));
  }
  return absl::OkStatus();
}

}  // namespace

std::string SizesText(const Sizes& sizes) {
  return absl::StrJoin(sizes, ",", [](std::string* out, const auto& s) { absl::StrAppend(out, s.first, "=", s.second); });
}

absl::StatusOr<Sizes> ParseSizes(std::string_view text) {
  Sizes sizes;
  for (absl::string_view entry : absl::StrSplit(absl::string_view(text.data(), text.size()), ',', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(entry, absl::MaxSplits('=', 1));
    if (parts.first.empty() || !absl::SimpleAtoi(parts.second, &sizes[parts.first])) {
      return absl::InvalidArgumentError(absl::StrCat("wanted sizes as s=7,t=64, got ", std::string(text)));
    }
  }
  return sizes;
}

std::vector<Dim> SymbolsOf(const Module& module) {
  std::map<std::string, Dim> symbols;
  EachDim(module, [&](const Dim& d) { Collect(d, &symbols); });
  std::vector<Dim> all;
  for (const auto& [name, d] : symbols) all.push_back(d);
  return all;
}

Dim WithSizes(Dim d, const Sizes& sizes) {
  if (d.is_constant()) return d;
  const DimExpr& e = *d.expr();
  const auto operand = [&](size_t i) { return WithSizes(e.operands[i], sizes); };
  Dim made = e.kind == DimExpr::Kind::kProduct ? 1 : e.addend;
  switch (e.kind) {
    case DimExpr::Kind::kSymbol: {
      const auto it = sizes.find(e.symbol);
      return it == sizes.end() ? d : Dim(it->second);
    }
    case DimExpr::Kind::kSum:
      for (size_t i = 0; i < e.operands.size(); ++i) made += operand(i) * Dim(e.coefficients[i]);
      return made;
    case DimExpr::Kind::kProduct:
      for (size_t i = 0; i < e.operands.size(); ++i) made *= operand(i);
      return made;
    case DimExpr::Kind::kFloorDiv: return FloorDiv(operand(0), operand(1));
    case DimExpr::Kind::kMod: return Mod(operand(0), operand(1));
    case DimExpr::Kind::kMin: return Min(operand(0), operand(1));
    case DimExpr::Kind::kMax: return Max(operand(0), operand(1));
  }
  return d;
}

absl::StatusOr<int64_t> SizeOf(Dim d, const Sizes& sizes) {
  return Evaluate(d, [&](std::string_view name) -> absl::StatusOr<int64_t> {
    const auto it = sizes.find(std::string(name));
    if (it == sizes.end()) return absl::InvalidArgumentError(absl::StrCat("no size for the symbol ", std::string(name)));
    return it->second;
  });
}

absl::StatusOr<Sizes> SizesOfArguments(const Module& module, absl::Span<const Literal> arguments) {
  const size_t wanted = module.entry()->parameters().size();
  if (arguments.size() != wanted) {
    return absl::InvalidArgumentError(absl::StrCat("wanted ", wanted, " arguments, got ", arguments.size()));
  }
  Sizes sizes;
  TENON_RETURN_IF_ERROR(EachSize(module, arguments, [&](Dim dim, int64_t size, const std::string&) -> absl::Status {
    const DimExpr* e = dim.expr();
    if (e == nullptr || e->kind != DimExpr::Kind::kSymbol || !sizes.emplace(e->symbol, size).second) return absl::OkStatus();
    return InRange(*e, size) ? absl::OkStatus() : OutOfRange(*e, size);
  }));
  TENON_RETURN_IF_ERROR(EachSize(module, arguments, [&](Dim dim, int64_t size, const std::string& where) -> absl::Status {
    TENON_ASSIGN_OR_RETURN(const int64_t want, SizeOf(dim, sizes));
    if (want == size) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(where, ": wanted ", dim.ToString(), " = ", want, ", got ", size));
  }));
  return sizes;
}

void PutSizes(Module& module, const Sizes& sizes) {
  const auto put = [&](Dim& d) { d = WithSizes(d, sizes); };
  EachDim(module, put);
  if (!module.entry_layout.has_value()) return;
  for (Shape& shape : module.entry_layout->first) EachDim(shape, put);
  EachDim(module.entry_layout->second, put);
}

absl::StatusOr<std::unique_ptr<Module>> WithSizes(const Module& module, const Sizes& sizes) {
  for (Dim symbol : SymbolsOf(module)) {
    TENON_ASSIGN_OR_RETURN(const int64_t size, SizeOf(symbol, sizes));
    if (!InRange(*symbol.expr(), size)) return OutOfRange(*symbol.expr(), size);
  }
  std::unique_ptr<Module> made = module.Clone();
  try {
    PutSizes(*made, sizes);
  } catch (const InternalError& e) {  // a division by zero, a product beyond all sizes
    return absl::InvalidArgumentError(absl::StrCat("with ", SizesText(sizes), ": ", e.what()));
  }
  if (absl::Status wrong = Verify(*made); !wrong.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("with ", SizesText(sizes), ": ", std::string(wrong.message())));
  }
  return made;
}

}  // namespace tenon
