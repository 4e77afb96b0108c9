// GpuPlan: how one fusion runs on a GPU. Its loops are a KernelPlan, as on any target; who runs which of their units is the GPU's.
//
// Kinds, and what computes a unit of the outer range:
//   loop        a thread: one vector of the result
//   row         a team of threads that share a row: part of a warp, or a block
//   column      a block: 32 threads side by side, each with a vector of columns; `team` such rows of threads share the rows
//   transpose   a block: a square of 32 by 32 vectors of `lanes` elements, 4 bytes of narrow types, each way (`block`), which operands that
//               lie across it go through shared memory for
//   contraction a thread: a tile in registers. With `slice`: a block, whose tile is `rows` by `block` elements: slices of both operands, of
//               so many terms, go through shared memory; with `mma` tensor cores multiply them
//   attention   a block: a tile of `rows` queries, and of `block` keys at a time; with `mma` tensor cores multiply, with `stages`
//               too scores and weights stay in registers
//   scatter, select-and-scatter   a thread
//   scan        a thread; of an associative combiner a team, and rows that are few and long lie in pieces, a block each, in three launches
//   sort        a team of threads that share a row, in shared memory; longer rows lie in pieces, a block each, that are sorted by a first
//               launch and merged two by two by further ones
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/codegen/fused/fused_kernel.h"
#include "backends/codegen/index/access_trace.h"
#include "backends/codegen/plan/kernel_plan.h"
#include "backends/gpu/plan/gpu_model.h"
#include "passes/lower/launches.h"

namespace tenon::gpu {

inline constexpr int kWarp = 32;

// Which part of a fusion a launch computes.
enum class GpuPass : uint8_t {
  kWhole,  // all: there is one launch
  kRuns,   // of a sort: sorts each piece of the rows, into a temporary
  kMerge,  // merges runs two by two, from that temporary into another
  kLast,   // merges the last two, into the results
  kTotals,   // of a scan: combines each piece of the rows, into a temporary
  kCarries,  // scans a row's totals, into another
  kCarried,  // scans each piece, from what the pieces before it have
};

struct GpuPlan {
  KernelPlan loops;
  GpuPass pass = GpuPass::kWhole;
  int threads = 256;  // of a block
  int team = 1;       // threads that share a unit; a column's: rows of 32 threads
  // Sort, scan of a team: elements of a row that a team has at once, a power of two, which its threads share evenly.
  int64_t piece = 0;
  int slice = 0;      // of a contraction that blocks compute: terms that lie in shared memory at once
  bool mma = false;   // its operands are halves, multiplied by tensor cores
  int stages = 1;     // with `mma`: slices (attention: tiles of keys and values) in shared memory, of which all but one are on their way
  bool operator==(const GpuPlan&) const = default;

  // Units that a block computes.
  int64_t units_per_block() const { return loops.kind == PlanKind::kColumn || loops.kind == PlanKind::kTranspose ? 1 : threads / team; }
  bool in_pieces() const { return pass != GpuPass::kWhole && pass != GpuPass::kCarries; }
  bool merges() const { return pass == GpuPass::kMerge || pass == GpuPass::kLast; }
  // A team of more threads than a warp has, or of columns, meets at barriers, and so does the block of a transpose.
  bool has_barriers() const {
    if (loops.kind == PlanKind::kTranspose || loops.kind == PlanKind::kAttention || slice > 0) return true;
    if (loops.kind == PlanKind::kSort) return team > 1 && !merges();
    return loops.kind == PlanKind::kColumn ? team > 1 : team > kWarp;
  }
};

// A launch of a plan, and the memory behind its pointers.
struct GpuLaunch {
  GpuPlan plan;
  std::vector<Launches::Memory> reads, writes;
  std::vector<uint64_t> numbers;  // arguments behind the fusion's own: a merge's elements of a run
};
struct GpuLaunches {
  std::vector<Dim> temporaries;  // bytes
  std::vector<GpuLaunch> launches;
};

// Vectors of a side of a transpose's square, and of one of its rows in shared memory: one more, so that a column lies in as many banks.
inline constexpr int64_t kTile = 32, kTileRow = kTile + 1;

// Bytes in shared memory of a square of this parameter's elements.
int64_t TileBytes(const KernelPlan& plan, const Instruction& parameter);

// A contraction's tile: each thread has the sums of kThreadRows by kThreadColumns of its elements; with `mma`, each warp those of kTile or
// twice as many rows of kTile columns. Tensor cores take kMmaTerms terms at once.
inline constexpr int kMaxStages = 8;
inline constexpr int64_t kThreadRows = 8, kThreadColumns = 4, kMmaTerms = 16;
// Rows in shared memory are so many bytes longer than what they hold, which leaves the banks of neighbours apart and vectors aligned: a
// slice's, of elements of so many bytes, and the sums'.
constexpr int64_t SliceGap(int64_t element) { return element < 4 ? 16 : 4 * element; }
inline constexpr int64_t kSumGap = 32;
// Bytes in shared memory of a slice of an operand along a side of `size` elements, whichever way it lies.
int64_t SliceBytes(const GpuPlan& plan, int64_t size, PrimitiveType type);

// Size of the outer range: UnitsOf, and of a transpose the squares along the vector loop.
Dim GpuUnits(const GpuPlan& plan);

// The reads of a transpose's operands that go through shared memory: those that lie along its tile loop, across the vector loop.
std::vector<MemoryUse> TurnedUses(IndexSpace& space, const FusedKernel& fused, const KernelPlan& plan, const Iteration& iteration);

// "threads=256 team=32 row loops=[...] ...": ToString(KernelPlan) behind the GPU's own. Several launches: a line each.
std::string ToString(const GpuPlan& plan);
absl::StatusOr<std::vector<GpuPlan>> ParseGpuPlans(std::string_view text, DimTable* dims);

// What a block that has a row for itself keeps of it at most: its reductions exchange something, too. Plans keep less where more than half
// of a multiprocessor's threads would be missing.
constexpr int64_t MostKeptBytes(const GpuModel& model) {
  return std::max<int64_t>(model.shared_per_block - 1024, model.shared_per_block / 2);
}
inline constexpr int kRowThreads = 512;  // of such a block, where rows are many

// A plan for each launch. Unimplemented: there is none for it on a GPU.
absl::StatusOr<std::vector<GpuPlan>> MakeGpuPlans(const FusedKernel& fused, const GpuModel& model);
// InvalidArgument unless these plans compute this fusion inside of its memory, and the GPU can run them: CheckPlan, and what is the GPU's.
absl::Status CheckGpuPlans(const FusedKernel& fused, absl::Span<const GpuPlan> plans, const GpuModel& model);
// Of checked plans.
GpuLaunches LaunchesOf(const FusedKernel& fused, absl::Span<const GpuPlan> plans);

// A temporary with all of a sort's columns, one behind the other: where each begins, and the bytes of all.
struct SortTemporary {
  std::vector<Dim> offsets;
  Dim bytes = 0;
};
SortTemporary SortTemporaryOf(const FusedKernel& fused);
// Of each temporary of a plan of several launches.
Dim TemporaryBytes(const FusedKernel& fused, const GpuPlan& plan);

// What static arrays may have; beyond, a launch gives a block its shared memory.
inline constexpr int64_t kStaticShared = 48 << 10;
// What a block of this plan may have.
int64_t MostShared(const GpuPlan& plan, const GpuModel& model);
// Bytes of a block's shared memory: what teams keep of their rows, and what their reductions exchange.
struct SharedLayout {
  int64_t kept = 0;      // of one team
  int64_t exchange = 0;  // where that begins, behind all teams' kept values; of a transpose its squares, one behind the other
  int64_t bytes = 0;     // of all
};
SharedLayout SharedOf(const FusedKernel& fused, const GpuPlan& plan);

}  // namespace tenon::gpu
