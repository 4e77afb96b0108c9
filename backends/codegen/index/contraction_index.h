// What a generated contraction (dot, convolution) reads: index maps of its two operands over the
// result's index and the summed loops.
//
// Convolution: window taps first, then the input features of one group. A tap that lies in the
// padding, or between the elements of a dilated base, adds nothing: bounds on the index into the
// input say so. A reversed window meets its kernel from the far end.
#pragma once

#include <optional>
#include <vector>

#include "backends/codegen/index/index_map.h"

namespace tenon {

// dot of two operands, or convolution.
bool IsContraction(const Instruction& op);
// Operands and result have one element type.
bool OfOneType(const Instruction& op);
// Number of products in one element of the result.
Dim TermsOf(const Instruction& contraction);

// Rounding errors of a sum grow with its length: more f32 terms than this are added up in parts, as libraries do.
inline constexpr int64_t kPartTerms = 512;
bool SumsInParts(const Instruction& contraction);

struct ContractionIndex {
  std::vector<Index> taps;   // loops over a convolution's window, outer to inner
  std::vector<Index> terms;  // loops inside of those: contracting dims, or the input feature
  IndexTuple lhs, rhs;
  std::vector<IndexBound> bounds;  // of lhs; they depend on taps, not on terms
};
// The extents of the summed loops, one per variable that MapContraction wants. Dims of one element
// have none.
std::vector<Dim> SummedExtents(const Instruction& contraction);
// `vars`: a variable per summed extent; `index`: into the result.
ContractionIndex MapContraction(IndexSpace& space, const Instruction& contraction,
                                absl::Span<const Index> index, absl::Span<const Index> vars);

}  // namespace tenon
