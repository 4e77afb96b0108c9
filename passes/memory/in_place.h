// May a fusion write a result over one of its operands?
#pragma once

#include "hlo/module.h"

namespace tenon {

// True if every element of `operand` has been read for the last time when the element of `result` (the root of the fused
// computation, or an element of its tuple) at the same place is written. That holds for
//   loop     the operand's elements go elementwise, or through row-major reshapes, into elements at the same place
//   row      one result; the operand's elements go elementwise to the same place and, by reductions, into values of their own row,
//            which are complete before the row's results are written
//   scatter  the operand is what is scattered into, and is read for nothing else
// The caller has seen that the memory dies here, and that no other operand shares it.
bool MayOverwrite(const Instruction& fusion, int64_t operand, const Instruction& result);

// Dense, the last dim fastest.
bool IsRowMajor(const Shape& shape);

}  // namespace tenon
