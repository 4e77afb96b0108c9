#include "passes/fusion/roles.h"

#include "absl/algorithm/container.h"
#include "hlo/own_calls.h"

namespace tenon {
namespace {

// The number of leading dims whose product is `outer`, trailing ones of size 1 left to the suffix; -1 if there is none.
int64_t SplitOf(const Shape& shape, Dim outer) {
  Dim product = 1;
  int64_t i = 0;
  for (; i < shape.rank() && !KnownEqual(product, outer); ++i) product *= shape.dim(i);
  return KnownEqual(product, outer) ? i : -1;
}

const Shape& OperandShape(const Instruction& reduce) { return reduce.operand(0)->shape(); }

}  // namespace

RowRole RoleOf(const Shape& shape, const RowDomain& domain) {
  if (!shape.is_array()) return RowRole::kNone;
  const int64_t split = SplitOf(shape, domain.outer);
  if (split < 0) return RowRole::kNone;
  Dim rest = 1;
  for (int64_t i = split; i < shape.rank(); ++i) rest *= shape.dim(i);
  if (KnownEqual(rest, domain.inner)) return RowRole::kFull;
  return KnownOne(rest) ? RowRole::kReduced : RowRole::kNone;
}

bool KeepsRows(const Instruction& op, const RowDomain& domain) {
  const RowRole role = op.shape().is_tuple() ? RowRole::kReduced : RoleOf(op.shape(), domain);
  if (role == RowRole::kNone) return false;
  if (IsPointwise(op) || op.opcode() == Opcode::kCopy || op.opcode() == Opcode::kGetTupleElement) return true;
  switch (op.opcode()) {
    case Opcode::kReshape:
    case Opcode::kBitcast: return RoleOf(op.operand(0)->shape(), domain) == role;
    case Opcode::kReduce: return KindOfReduce(op) == ReduceKind::kRow && DomainOfReduce(op) == domain;
    case Opcode::kBroadcast: {
      const Shape& from = op.operand(0)->shape();
      if (RoleOf(from, domain) != RowRole::kReduced) return false;
      // The operand's dims must be the result's outer dims in order, so that its element i belongs to row i.
      int64_t next = 0;
      for (int64_t i = 0; i < from.rank(); ++i) {
        if (KnownOne(from.dim(i))) continue;
        const int64_t to = op.dimensions()[i];
        for (; next < to; ++next) {
          if (!KnownOne(op.shape().dim(next))) return false;
        }
        next = to + 1;
      }
      return true;
    }
    default: return false;
  }
}

ReduceKind KindOfReduce(const Instruction& reduce) {
  const Shape& operand = OperandShape(reduce);
  const std::vector<int64_t>& dims = reduce.dimensions();
  // Row: the reduced dims are the last ones, ones aside, and the operand is row-major.
  auto reduced = [&](int64_t d) { return absl::c_linear_search(dims, d); };
  const Permutation layout = operand.minor_to_major();
  bool row_major = true;
  for (int64_t i = 0; i < operand.rank(); ++i) row_major &= layout[i] == operand.rank() - 1 - i;
  bool row = row_major, kept_behind = false;
  for (int64_t i = operand.rank() - 1; i >= 0; --i) {
    if (KnownOne(operand.dim(i))) continue;
    if (!reduced(i)) kept_behind = true;
    else if (kept_behind) row = false;
  }
  if (row) return ReduceKind::kRow;
  for (int64_t d : layout) {
    if (KnownOne(operand.dim(d))) continue;
    if (reduced(d)) return ReduceKind::kGeneral;
    break;
  }
  // The minor dim is kept. Column: everything reduced lies outside of everything kept.
  bool reduced_inside = false, kept = false;
  for (auto it = layout.rbegin(); it != layout.rend(); ++it) {  // major to minor
    if (KnownOne(operand.dim(*it))) continue;
    if (reduced(*it)) reduced_inside |= kept;
    else kept = true;
  }
  return reduced_inside ? ReduceKind::kGeneral : ReduceKind::kColumn;
}

RowDomain DomainOfReduce(const Instruction& reduce) {
  RowDomain domain;
  for (int64_t i = 0; i < OperandShape(reduce).rank(); ++i) {
    const Dim d = OperandShape(reduce).dim(i);
    if (absl::c_linear_search(reduce.dimensions(), i)) domain.inner *= d;
    else domain.outer *= d;
  }
  return domain;
}

}  // namespace tenon
