// KernelPlan: how one fusion runs as loops (DESIGN D10). The fusion says what is computed, the plan
// only how: any plan of MakePlan's gives the right values, and CheckPlan finds most that would not. Built in microseconds from the
// fusion and the target, printable, parsable.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/codegen/fused/plan_loop.h"
#include "hlo/dim/dim.h"

namespace tenon {

enum class PlanKind : uint8_t {
  kLoop,       // one nest over the result, vector along its minor loop
  kContraction,  // kLoop around sums of products, a tile of them in registers: `unroll` iterations of loop `tile_loop` times the
                 // vectors of a block
  kAttention,  // two products and the softmax between them: tiles of `rows` by `block` scores at a time, never in memory
  kRow,        // reductions along the vector loop: phases over one row at a time
  kColumn,     // reductions across the vector loop: accumulator rows in scratch
  kTranspose,  // kLoop whose operands are contiguous along another loop: square tiles turned in
               // registers
  kScatter,    // copy, then serial updates
  kSelectAndScatter,  // fill, then serial updates, windows outermost last; split over dims that no
                      // window crosses
  kSort,              // one row at a time, in scratch; also topk
  kScan,              // one row at a time, or a vector of rows
};
std::string_view PlanKindName(PlanKind kind);

// One pass over the row (kRow) or over the rows (kColumn). Numbers are positions in the fused
// computation's post-order.
struct PlanPhase {
  std::vector<int64_t> reduces;  // finished by this pass
  std::vector<int64_t> roots;    // full-shaped roots stored by this pass
  std::vector<int64_t> kept;     // values stored to row scratch, read by later passes (but of rows beyond KeptLength)
  // The same of values that wait where a root will be: the root of this number, which the last pass stores, lends its memory (kRow).
  struct Lent {
    int64_t value, root;
    bool operator==(const Lent&) const = default;
  };
  std::vector<Lent> lent;
  bool operator==(const PlanPhase&) const = default;
};

// Scratch of kColumn: accumulator rows of this many columns, bytes apart that no power of two divides, so that a column's
// accumulators and the rows read beside them don't compete for one set of the cache.
inline constexpr int64_t kColumnChunk = 1024, kColumnGap = 320;

inline constexpr int64_t kCachedBytes = 2 << 20;  // a kernel that moves less finds its data in a cache of the host's

struct KernelPlan {
  PlanKind kind = PlanKind::kLoop;
  std::vector<PlanLoop> loops;  // outermost first; the last is the vector loop
  int split = 0;                // leading loops merged into the outer range
  int64_t block =
      0;  // > 0: the vector loop too is in the outer range, in blocks of this many elements
  // kTranspose: the loop along which operands are contiguous; kContraction: the one along which `unroll` goes, if any; kLoop: see `rows`.
  int tile_loop = -1;
  // kContraction, kAttention, > 0: the tile loop too is in the outer range, in so many iterations. kLoop, > 0: so many iterations of the
  // tile loop, which is
  // next to the vector loop, are done together inside of that one: what does not depend on them is computed once, and vectors that lie
  // between each other are stored as one.
  int64_t rows = 0;
  bool packed = false;  // kContraction: a block's part of the second operand is brought into scratch as the tiles read it (packing.h)
  int lanes = 1;
  int unroll = 1;            // kLoop, kRow: vectors at once; kColumn, kContraction: rows at once
  bool masked_tail = false;  // else the tail runs lane by lane
  std::vector<PlanPhase> phases;
  int64_t scratch_bytes = 0;
  bool operator==(const KernelPlan&) const = default;
};

// Size of the outer range.
Dim UnitsOf(const KernelPlan& plan);
// kRow: elements of a row, and of how long a one values are kept: of all where the length is a number. Longer ones (of a symbolic length,
// that is; there is scratch for a few times the typical one) are computed again in every pass.
Dim RowLength(const KernelPlan& plan);
int64_t KeptLength(const KernelPlan& plan);

// "row loops=[0:128 1:768!] split=1 block=0 tile=-1 lanes=16 unroll=4 tail=mask phases=[{reduces 3;
// roots; kept 2} ...] scratch=0"; of a phase that has some, "...; kept; lent 5:0", value and root.
std::string ToString(const KernelPlan& plan);
absl::StatusOr<KernelPlan> ParseKernelPlan(std::string_view text, DimTable* dims);

}  // namespace tenon
