// Index maps: which element of an operand an output element is made from.
//
// An Index is an interned integer expression over loop variables (affine, with floor-division and
// modulo where a reshape needs them, and values read at run time where a gather does).
// Coefficients, divisors and extents are Dims, so symbolic sizes work. Expressions are simplified
// by the known ranges of the variables: a reshape that only splits or merges dims leaves no
// division behind. One analysis for vectorisation, coalescing and the cost model: see AccessAlong.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "hlo/instruction.h"

namespace tenon {

struct IndexNode;
using Index = const IndexNode*;
using IndexTuple = absl::InlinedVector<Index, 6>;

// 0 <= index < size.
struct IndexBound {
  Index index;
  Dim size;
  friend bool operator==(const IndexBound&, const IndexBound&) = default;
};

struct IndexNode {
  enum class Kind : uint8_t { kVar, kSum, kFloorDiv, kMod, kRuntime };
  struct Term {
    Index node;  // never a kSum
    Dim coefficient;
    friend bool operator==(const Term&, const Term&) = default;
  };
  Kind kind;
  int id;                 // order of creation
  uint64_t deps = 0;      // bit v: depends on variable v
  Dim low = 0, high = 0;  // inclusive bounds, valid if bounded
  bool bounded = false;
  int var = -1;                        // kVar
  absl::InlinedVector<Term, 3> terms;  // kSum, by id
  Dim addend = 0;                      // kSum
  Index inner = nullptr;               // kFloorDiv, kMod
  Dim divisor = 1;
  const Instruction* producer = nullptr;  // kRuntime: the integer that `producer` has at `at`,
                                          // clamped to [0, high] if bounded
  IndexTuple at;

  bool DependsOn(int v) const { return (deps >> v & 1) != 0; }
  bool is_constant() const { return kind == Kind::kSum && terms.empty(); }
};

// How a linear element offset moves when a variable advances by one.
struct Access {
  enum class Kind : uint8_t { kBroadcast, kContiguous, kStrided, kGathered };
  Kind kind;
  Dim stride = 0;  // kStrided, kContiguous: 1
  std::string ToString() const;
};

// Owns expressions. Equal expressions of one space are the same pointer. Not thread-safe.
class IndexSpace {
 public:
  static constexpr int kMaxVars = 64;
  IndexSpace() = default;
  IndexSpace(const IndexSpace&) = delete;

  // A new variable with values in [0, extent).
  Index Var(Dim extent);
  int num_vars() const { return num_vars_; }
  Index Constant(Dim value);
  Index Runtime(const Instruction* producer, IndexTuple at, std::optional<Dim> max);

  Index Add(Index a, Index b) { return Combine(a, 1, b, 1); }
  Index AddConstant(Index a, Dim c) { return Combine(a, 1, Constant(c), 1); }
  Index Multiply(Index a, Dim c) { return Combine(a, c, Constant(0), 1); }
  Index Combine(Index a, Dim ca, Index b, Dim cb);
  // Rounding to -inf. The divisor is positive.
  Index FloorDiv(Index a, Dim divisor);
  Index Mod(Index a, Dim divisor);
  // sum(index[i] * stride[i]).
  Index Linear(absl::Span<const Index> index, absl::Span<const Dim> strides);
  // The inverse of Linear for dense strides given major to minor.
  IndexTuple Delinearize(Index linear, absl::Span<const Dim> dims_major_to_minor);
  // Row-major reinterpretation of an index into `from` as one into `to` (same number of elements).
  IndexTuple Reshape(absl::Span<const Index> index, absl::Span<const Dim> from,
                     absl::Span<const Dim> to);

 private:
  Index Intern(IndexNode node);
  Index MakeSum(absl::InlinedVector<IndexNode::Term, 3> terms, Dim addend);

  std::deque<IndexNode> nodes_;
  absl::flat_hash_map<std::string, Index> interned_;
  int num_vars_ = 0;
};

// The index into operand `operand` that element `index` of `op` reads, and the bounds that must
// hold for it to be read at all (pad, concatenate, dynamic-update-slice: otherwise the element
// comes from elsewhere; gather, dynamic-slice: a symbolic operand may have nothing to take).
// Elementwise ops map to themselves (a scalar operand to the empty index).
// nullopt: `op` is not a map on indices (reduce, scatter, ...).
struct OperandIndex {
  IndexTuple index;
  absl::InlinedVector<IndexBound, 2> bounds;
};
std::optional<OperandIndex> MapToOperand(IndexSpace& space, const Instruction& op, int64_t operand,
                                         absl::Span<const Index> index);

// The window of a reduce-window or select-and-scatter; all ones where none is given.
Window WindowOf(const Instruction& op);
// Elements of a window, or kManyTaps if there are more.
inline constexpr int64_t kManyTaps = 1 << 12;
int64_t TapsOf(const Window& window);
// What tap `tap` (an index into the window) of element `index` reads, if it is there.
OperandIndex MapWindow(IndexSpace& space, const Instruction& reduce_window, absl::Span<const Index> index, absl::Span<const Index> tap);

// True if the bound holds for all values of the variables / false if it never does; nullopt:
// depends or unknown.
std::optional<bool> Decide(const IndexBound& bound);
// Does the index hang on values that the kernel reads?
bool ReadsMemory(Index e);

// How `offset` moves along variable `var`.
Access AccessAlong(Index offset, int var);

// "d0*768 + d1", "floordiv(d0, 4)", "mod(d0, s0)", "%indices[d0]".
std::string ToString(Index index);
std::string ToString(absl::Span<const Index> index);  // "(d0, d1)"

// Where element `index` of a dynamic-update-slice's update lies in the result.
IndexTuple UpdatePlace(IndexSpace& space, const Instruction& update_slice, absl::Span<const Index> index);

}  // namespace tenon
