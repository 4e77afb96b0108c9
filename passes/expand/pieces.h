// Reductions in pieces: what is cut, values as their pieces, and what takes a sum's place. For passes behind assign-layout.
#pragma once

#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "hlo/builder.h"

namespace tenon {

// What a first reduction leaves: whole dims, then `pieces` parts of dim `split` (-1: of none).
struct Cut {
  std::vector<int64_t> whole;
  int64_t split = -1, pieces = 1;
};
// Of a reduce whose operand has a layout: about `wanted` pieces of what becomes one result at Typical sizes, along the physically outermost
// reduced dims. A dim without a suitable divisor, or of symbolic size, leaves a rest. nullopt: nothing would be left to cut.
std::optional<Cut> CutInto(const Instruction& reduce, int64_t wanted);

bool IsReduced(const Instruction& reduce, int64_t d);
// Its result is spread over as many elements again: all of it is one kernel that finds its rows in a cache.
bool IsSpreadAgain(const Instruction& reduce);

// Elements [from, to) of dim `dim`, which becomes two: `pieces` and the rest (pieces 0: it stays one). Values that have the dims of `like`,
// seen so; elementwise ops that may move go behind the slice and the reshape. Behind a slice those that nobody else reads: what others
// read is in memory, and slices of it need no other array kept beside it.
class SplitView {
 public:
  SplitView(Builder& b, const Shape& like, int64_t dim, int64_t pieces) : SplitView(b, like, dim, pieces, 0, like.dim(dim)) {}
  SplitView(Builder& b, const Shape& like, int64_t dim, int64_t pieces, Dim from, Dim to)
      : b_(b), like_(like), dim_(dim), pieces_(pieces), from_(from), to_(to) {}
  Instruction* Of(Instruction* x);

 private:
  DimVector Dims(const Shape& s) const;
  Permutation Layout(const Shape& s) const;
  bool Moves(const Instruction& x) const;
  Instruction* Elementwise(Instruction* x);
  Instruction* Splat(Instruction* x);
  Instruction* Leaf(Instruction* x);
  bool IsWhole() const { return KnownEqual(from_, 0) && KnownEqual(to_, like_.dim(dim_)); }

  Builder& b_;
  const Shape like_;
  const int64_t dim_, pieces_;
  const Dim from_, to_;
  int moved_ = 0;
  absl::flat_hash_map<Instruction*, Instruction*> made_;
};

// `total`, in f64, is what the f32 `sum` and `wide`, its wide uses (passes/wide_sum.h), are.
void ReplaceWide(Instruction* sum, const std::vector<Instruction*>& wide, Instruction* total);

}  // namespace tenon
