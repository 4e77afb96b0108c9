#include "runtime/program/dim_program.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "hlo/check.h"

namespace tenon {
namespace {

using Kind = DimOp::Kind;

bool IsBinary(Kind kind) { return kind >= Kind::kAdd; }

bool IsDivisible(int64_t a, int64_t b) { return b != 0 && !(b == -1 && a == std::numeric_limits<int64_t>::min()); }

int64_t FloorDivide(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}

// nullopt: division by zero, or no number of 64 bits.
std::optional<int64_t> Apply(Kind kind, int64_t a, int64_t b) {
  int64_t result;
  const auto unless = [&](bool overflows) { return overflows ? std::nullopt : std::optional(result); };
  switch (kind) {
    case Kind::kAdd:
      return unless(__builtin_add_overflow(a, b, &result));
    case Kind::kSub:
      return unless(__builtin_sub_overflow(a, b, &result));
    case Kind::kMul:
      return unless(__builtin_mul_overflow(a, b, &result));
    case Kind::kMin:
      return std::min(a, b);
    case Kind::kMax:
      return std::max(a, b);
    case Kind::kFloorDiv:
      return IsDivisible(a, b) ? std::optional(FloorDivide(a, b)) : std::nullopt;
    case Kind::kMod:
      return IsDivisible(a, b) ? std::optional(a - b * FloorDivide(a, b)) : std::nullopt;
    default:
      TENON_CHECK(false, "not a binary dim op");
  }
}

// `undefined`: an error where some slot is no number: divided by zero, or too large.
absl::Status EvaluateAll(std::span<const DimOp> ops, const TenonTensor* inputs, std::vector<int64_t>* slots, absl::Status* undefined) {
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
      if (!result) *undefined = absl::InvalidArgumentError("a size expression divides by zero or is no number of 64 bits");
      value = result.value_or(0);
    }
    (*slots)[k] = value;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status EvaluateDims(std::span<const DimOp> ops, const TenonTensor* inputs,
                          std::vector<int64_t>* slots) {
  absl::Status undefined;
  TENON_RETURN_IF_ERROR(EvaluateAll(ops, inputs, slots, &undefined));
  return undefined;
}

absl::Status EvaluateGuarded(const Program& program, const TenonTensor* inputs, std::vector<int64_t>* slots) {
  absl::Status undefined;
  TENON_RETURN_IF_ERROR(EvaluateAll(program.dim_program, inputs, slots, &undefined));
  TENON_RETURN_IF_ERROR(CheckGuards(program.guards, inputs, *slots));
  return undefined;
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
