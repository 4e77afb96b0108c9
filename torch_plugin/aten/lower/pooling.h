// What the poolings and their backwards share: the windows and what they divide by.
#pragma once

#include <vector>

#include "torch_plugin/aten/lower/taps.h"

namespace tenon::aten {

// By spatial dim; `first` is the first of them.
struct Pool {
  int64_t spatial = 0, first = 0;
  std::vector<int64_t> kernel, stride, padding, dilation, in, out;
};
// Arguments kernel_size, stride, padding[, dilation] from position `at`; `in` and `out` are all dims of the pooled tensor
// and of the result (ceil_mode is in the latter).
Pool PoolOf(OpContext& op, int64_t spatial, bool dilated, int64_t at, absl::Span<const Dim> in, absl::Span<const Dim> out);
// The same without `in` and `out`, which may be symbolic, of tensors of `rank` dims.
Pool WindowsOf(OpContext& op, int64_t spatial, bool dilated, int64_t at, int64_t rank);
// Whether any of the last dims, `spatial` many, is symbolic.
bool HasSymbolicPlaces(absl::Span<const Dim> dims, int64_t spatial);
// flat * size, for positions (s64) that count elements of planes.
Instruction* TimesSize(OpContext& op, Instruction* flat, Dim size);

// Per window of spatial dim k the elements that it reads, padding left out; weight 1.
Taps WindowTaps(const Pool& p, int64_t k);
// Window o of `out` over `in` elements: [floor(o in / out), ceil((o + 1) in / out)).
Taps AdaptiveTaps(int64_t in, int64_t out);

// The same where a size is a symbol: where the windows start and end, [out] each, and what none is longer than.
struct AdaptiveWindow {
  Instruction *start, *end;
  Dim longest;
};
AdaptiveWindow AdaptiveWindowsOf(OpContext& op, Dim in, Dim out);
// x over the lengths of the windows along `axis`.
Instruction* DivideByLengths(OpContext& op, Instruction* x, int64_t axis, const AdaptiveWindow& windows);

std::vector<double> RowLengths(const Taps& taps);

// Elements that each window of an average counts, in spatial dim k; the product over the dims divides.
std::vector<double> AveragedElements(const Pool& p, int64_t k, bool include_pad);
// x over the product of counts[k][position in dim first + k].
Instruction* DivideByCounts(OpContext& op, Instruction* x, int64_t first, const std::vector<std::vector<double>>& counts);

}  // namespace tenon::aten
