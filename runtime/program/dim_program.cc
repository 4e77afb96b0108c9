#include "runtime/program/dim_program.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "hlo/check.h"

namespace tenon {
namespace {

using Kind = DimOp::Kind;

bool IsBinary(Kind kind) { return kind >= Kind::kAdd; }

int64_t FloorDivide(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}

// nullopt: division by zero.
std::optional<int64_t> Apply(Kind kind, int64_t a, int64_t b) {
  switch (kind) {
    case Kind::kAdd:
      return a + b;
    case Kind::kSub:
      return a - b;
    case Kind::kMul:
      return a * b;
    case Kind::kMin:
      return std::min(a, b);
    case Kind::kMax:
      return std::max(a, b);
    case Kind::kFloorDiv:
      return b == 0 ? std::nullopt : std::optional(FloorDivide(a, b));
    case Kind::kMod:
      return b == 0 ? std::nullopt : std::optional(a - b * FloorDivide(a, b));
    default:
      TENON_CHECK(false, "not a binary dim op");
  }
}

// `divided`: an error where some slot is no number, being divided by zero.
absl::Status EvaluateAll(std::span<const DimOp> ops, const TenonTensor* inputs, std::vector<int64_t>* slots, absl::Status* divided) {
  slots->resize(ops.size());
  for (size_t k = 0; k < ops.size(); ++k) {
    const DimOp& op = ops[k];
    int64_t value = 0;
    if (op.kind == Kind::kConstant) {
      value = op.a;
    } else if (op.kind == Kind::kInputScalar) {
      value = reinterpret_cast<int64_t>(inputs[op.a].data);
    } else if (op.kind == Kind::kInputDim || op.kind == Kind::kInputStride) {
      const TenonTensor& t = inputs[op.a];
      if (op.b >= t.ndim) {
        return absl::InvalidArgumentError(absl::StrCat(
            "input ", op.a, " has ", t.ndim, " dimensions, dimension ", op.b, " was wanted"));
      }
      value = op.kind == Kind::kInputDim ? t.sizes[op.b] : t.strides[op.b];
    } else {
      const std::optional<int64_t> result =
          Apply(op.kind, Resolve(op.a, *slots), Resolve(op.b, *slots));
      if (!result) *divided = absl::InvalidArgumentError("a size expression divides by zero");
      value = result.value_or(0);
    }
    (*slots)[k] = value;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status EvaluateDims(std::span<const DimOp> ops, const TenonTensor* inputs,
                          std::vector<int64_t>* slots) {
  absl::Status divided;
  TENON_RETURN_IF_ERROR(EvaluateAll(ops, inputs, slots, &divided));
  return divided;
}

absl::Status EvaluateGuarded(const Program& program, const TenonTensor* inputs, std::vector<int64_t>* slots) {
  absl::Status divided;
  TENON_RETURN_IF_ERROR(EvaluateAll(program.dim_program, inputs, slots, &divided));
  TENON_RETURN_IF_ERROR(CheckGuards(program.guards, inputs, *slots));
  return divided;
}

SizeRef DimProgramBuilder::Emit(DimOp op) {
  std::vector<DimOp>& ops = program_->dim_program;
  if (op.kind == Kind::kConstant && op.a >= 0) return op.a;
  if (IsBinary(op.kind)) {
    auto constant = [&](SizeRef ref) -> std::optional<int64_t> {
      if (ref >= 0) return ref;
      if (ops[~ref].kind == Kind::kConstant) return ops[~ref].a;
      return std::nullopt;
    };
    const std::optional<int64_t> a = constant(op.a), b = constant(op.b);
    if (a && b) {
      if (const std::optional<int64_t> folded = Apply(op.kind, *a, *b)) {
        return Emit({.kind = Kind::kConstant, .a = *folded});
      }
    }
    if (b && ((*b == 0 && (op.kind == Kind::kAdd || op.kind == Kind::kSub)) ||
              (*b == 1 && (op.kind == Kind::kMul || op.kind == Kind::kFloorDiv)))) {
      return op.a;
    }
    if (a && ((*a == 0 && op.kind == Kind::kAdd) || (*a == 1 && op.kind == Kind::kMul)))
      return op.b;
  }
  for (size_t k = 0; k < ops.size(); ++k) {
    if (ops[k].kind == op.kind && ops[k].a == op.a && ops[k].b == op.b)
      return ~static_cast<int64_t>(k);
  }
  ops.push_back(op);
  return ~static_cast<int64_t>(ops.size() - 1);
}

}  // namespace tenon
