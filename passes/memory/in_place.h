// May a fusion write a result over one of its operands?
#pragma once

#include <functional>

#include "hlo/module.h"

namespace tenon {

// Will the backend's kernel of this fusion work row by row: all reductions over a row are complete before a result of that row is
// stored, and no two pieces of the kernel's range share a row? A fusion of form `row` whose reducer depends on the order of the
// elements does not: its kernel may read the row again for every vector of the result. Only the kernel's plan knows.
using WorksByRows = std::function<bool(const Instruction& fusion)>;

// True if every element of `operand` has been read for the last time when the element of `result` (the root of the fused
// computation, or an element of its tuple) at the same place is written. That holds for
//   loop     the operand's elements go elementwise, or through row-major reshapes, into elements at the same place
//   row      one result; the operand's elements go elementwise to the same place and, by reductions, into values of their own row,
//            which are complete before the row's results are written: `works_by_rows` says so (null: no)
//   scatter  the operand is what is scattered into, and is read for nothing else
// The caller has seen that the memory dies here, and that no other operand shares it.
bool MayOverwrite(const Instruction& fusion, int64_t operand, const Instruction& result, const WorksByRows& works_by_rows);

// Dense, the last dim fastest.
bool IsRowMajor(const Shape& shape);

}  // namespace tenon
