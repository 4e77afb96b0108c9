// What part a shape plays in a kernel that works row by row.
//
// A row kernel has an outer domain of `outer` rows and rows of `inner` elements, both counted in logical row-major order. A value
// that depends on a reduction of the row must be one of
//   full     its dims split into a prefix of `outer` and a suffix of `inner` elements: one element per row element
//   reduced  a prefix of `outer` elements and ones behind it: one element per row
#pragma once

#include "hlo/module.h"

namespace tenon {

struct RowDomain {
  Dim outer = 1, inner = 1;
  bool operator==(const RowDomain&) const = default;
};
enum class RowRole : uint8_t { kNone, kFull, kReduced };

RowRole RoleOf(const Shape& shape, const RowDomain& domain);
// Does `op` (whose operands' roles are theirs) keep rows apart: row i of the result needs row i of the operands only?
bool KeepsRows(const Instruction& op, const RowDomain& domain);

// How a reduce walks its operand.
enum class ReduceKind : uint8_t { kRow, kColumn, kGeneral };
ReduceKind KindOfReduce(const Instruction& reduce);
// kRow only.
RowDomain DomainOfReduce(const Instruction& reduce);

}  // namespace tenon
