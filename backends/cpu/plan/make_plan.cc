#include "backends/cpu/plan/make_plan.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "backends/codegen/emit/elementwise.h"
#include "backends/codegen/emit/emit_types.h"
#include "backends/codegen/fused/region.h"
#include "backends/codegen/index/contraction_index.h"
#include "backends/codegen/plan/check_plan.h"
#include "backends/codegen/plan/nest_planner.h"
#include "backends/codegen/plan/packing.h"
#include "backends/codegen/plan/serial_plan.h"
#include "backends/codegen/plan/wide_sums.h"
#include "backends/cpu/plan/tile_steps.h"
#include "hlo/check.h"
#include "hlo/cost_ops.h"
#include "hlo/own_calls.h"

namespace tenon {
namespace {

constexpr int64_t kSplitPieces =
    64;  // the outer range has at least so many units where the sizes allow
constexpr int64_t kFlatBlock = 1024;            // elements per unit of a one-dimensional kernel
constexpr int64_t kMaxKeptBytes = 128 << 10;    // row scratch: stays in L2
constexpr int kUnrollCost = 300;                // bodies above it are not unrolled
constexpr int kChainsCost = 80;                 // bodies above it keep a core's registers and queues busy by two vectors
constexpr int64_t kManyElements = 64 << 10;
constexpr int kWideStepCost = 40;               // below it a step that ends in f64 is a long one
constexpr double kSumCost = 0.0006;             // share of a contraction's steps for which one more sum is written out and compiled
constexpr int64_t kTileBlock = 16;
constexpr int64_t kShortVector = 4;  // elements along the fastest dim below which vectors go along another one
constexpr int64_t kTogether = 4;  // iterations of another loop that share work
constexpr int kWorthSharing = 12;   // instructions that they share
constexpr int kPlaceCost = 4;       // of an index that was read: bounds, the address
constexpr int kGatherCost = 12;     // of a vector whose elements are read one by one, by an instruction or by some
constexpr int64_t kColumnBlock = 64;
constexpr int64_t kFewRows = 64;
constexpr int64_t kScratchShare = 16;  // of the other operand: what scratch may take

class Planner : public NestPlanner {
 public:
  Planner(const FusedKernel& fused, const CpuTarget& target)
      : NestPlanner(fused, {.vector_bytes = target.vector_bytes,
                            .masked_tail = target.vector_bytes == 64,
                            .max_kept_bytes = kMaxKeptBytes,
                            .keeps_in_results = true,
                            .keeps_symbolic = true}),
        target_(target) {}

  KernelPlan Make() {
    OrderLoops();
    MergeLoops();
    ChooseLanes();
    if (f_.serial != nullptr) {
      plan_.kind = PlanKind::kScatter;
      CutScatter();
      return std::move(plan_);
    }
    if (const Instruction* contraction = Contraction()) {
      PlanContraction(*contraction);
      return std::move(plan_);
    }
    if (f_.reduces.empty()) {
      InterleaveShort();
      if (!OnScalars(f_)) plan_.unroll = PointwiseUnroll();
      if (plan_.rows == 0) FindTile();
      if (plan_.tile_loop < 0) ShareAcross();
    } else {
      MakePhases();
      const int cost = BodyCost();
      plan_.unroll = plan_.kind == PlanKind::kColumn ? (cost < 60 ? 8 : 4)
                     : cost < 80                     ? 4
                     : cost < kUnrollCost            ? 2
                                                     : 1;
      const bool each_step = absl::c_any_of(f_.reduces, [](const Instruction* r) { return AddsEachStep(*r, true); });
      if (plan_.kind == PlanKind::kRow && each_step && cost < kWideStepCost) plan_.unroll = 8;
      while (plan_.kind == PlanKind::kRow && plan_.unroll > 1 &&
             VectorExtentBelow(plan_.unroll * plan_.lanes))
        plan_.unroll /= 2;
      if (plan_.kind == PlanKind::kColumn) plan_.scratch_bytes = ColumnScratch(f_, plan_);
    }
    Split();
    return std::move(plan_);
  }

 private:
  // Functions are chains of instructions that wait for each other, which other vectors fill if there are registers for more than two:
  // exp of 512,000 elements takes a fifth less time. Of few elements that is less than what compiling them takes.
  int PointwiseUnroll() const {
    const int cost = BodyCost();
    if (cost >= kUnrollCost || VectorExtentBelow(2 * plan_.lanes)) return 1;
    Dim elements = 1;
    for (const PlanLoop& l : plan_.loops) elements *= l.extent;
    const bool waits = absl::c_any_of(
        f_.order, [&](const Instruction* op) { return OpCostOf(op->opcode()).transcendental && IsFullShaped(*op); });
    const bool pays = waits && cost < kChainsCost && target_.vector_bytes == 64 && Typical(elements) >= kManyElements;
    return pays && !VectorExtentBelow(4 * plan_.lanes) ? 4 : 2;
  }

  // Blocks of vectors share what is the same for all of them.
  void PlanContraction(const Instruction& contraction) {
    ContractionNest();
    const std::optional<Packing> packing = PackingOf(f_, plan_);
    int64_t widest = kMaxTileVectors;
    const int64_t vectors = packing ? VectorsWorthPacking(*packing) : 0;
    if (packing && packing->apart == 0 && RowsOfOnePart(*packing) >= kRowsWorthPacking) {
      plan_.packed = vectors > 0;
      if (plan_.packed) widest = std::min(widest, vectors);
    }
    const bool both = ReadAsVectors(contraction, 0) && ReadAsVectors(contraction, 1);
    const int parts = IsComplex(contraction.shape().element_type()) ? 2 : 1;
    const int64_t tallest = RowsThatStay();
    ChooseTile(both, parts, tallest, widest);
    if (packing && packing->apart > 0 && packing->IsFarApart(plan_.block) && RowsOfOnePart(*packing) >= kRowsWorthCopying &&
        vectors > 1) {
      plan_.packed = true;
      ChooseTile(both, parts, tallest, std::min(widest, vectors));
    }
    if (plan_.packed) plan_.scratch_bytes = packing->Bytes(plan_.block);
    // A typical size may be none: of mod(s,4) it is.
    const auto some = [](Dim d) { return std::max<int64_t>(1, Typical(d)); };
    int64_t units = some(CeilDiv(plan_.loops.back().extent, plan_.block));
    for (int i = 0; i < plan_.split; ++i) units = std::min(units * some(plan_.loops[i].extent), int64_t{1} << 40);
    if (plan_.tile_loop < 0 || units >= kSplitPieces) return;
    const int64_t rows = Typical(plan_.loops[plan_.tile_loop].extent), wanted = (kSplitPieces + units - 1) / units;
    const int64_t tiles = std::max<int64_t>(1, (rows + plan_.unroll - 1) / plan_.unroll / wanted);
    if (rows > tiles * plan_.unroll || rows == 0) plan_.rows = tiles * plan_.unroll;
  }

  // Vectors of columns, at most, that are packed together. Two are as fast as four where the other operand stays in the caches:
  // scratch is little beside that one then. For a few rows one is, as it is the columns' way from memory that takes the time.
  int64_t VectorsWorthPacking(const Packing& packing) const {
    const bool few = RowsOfOnePart(packing) <= kFewRows;
    const int64_t bytes = packing.Bytes(plan_.lanes);
    const Shape& other = packing.contraction->operand(0)->shape();
    const int64_t beside = Typical(other.num_elements()) / kScratchShare * StorageBytes(other.element_type());
    const int64_t most = kMaxPackedBytes / bytes;
    return std::clamp(beside / bytes, std::min<int64_t>(few ? 1 : 2, most), most);
  }

  // Rows for which what is packed once serves.
  int64_t RowsOfOnePart(const Packing& packing) const {
    int64_t rows = plan_.tile_loop >= 0 ? Typical(plan_.loops[plan_.tile_loop].extent) : 1;
    for (int i = 0; i < plan_.split && !packing.by_outer; ++i) {
      rows = std::min(rows * Typical(plan_.loops[i].extent), int64_t{1} << 40);
    }
    return rows;
  }

  // Whether operand `side` moves along the vector loop.
  bool ReadAsVectors(const Instruction& contraction, int64_t side) const {
    IndexSpace space;
    Iteration iteration(space, f_, plan_.loops);
    std::vector<Index> summed;
    for (Dim extent : SummedExtents(contraction)) summed.push_back(space.Var(extent));
    const ContractionIndex at = MapContraction(space, contraction, iteration.IndexOf(space, f_, contraction.shape()), summed);
    return absl::c_any_of(side == 0 ? at.lhs : at.rhs, [&](Index i) { return i->DependsOn(iteration.vars.back()->var); });
  }

  // At most, so that the first cache holds what they read of the first operand until the next term wants its neighbour: rows that lie a
  // large power of two apart share the lines of few sets. 14 rows 4 KiB apart take a quarter more time than 8.
  int64_t RowsThatStay() const {
    constexpr int64_t kLine = 64, kSets = 64, kWays = 8;  // of the smaller ones of the processors that are in use
    if (plan_.tile_loop < 0) return kMaxTileRows;
    int64_t rows = kMaxTileRows;
    IndexSpace space;
    Iteration iteration(space, f_, plan_.loops);
    for (const MemoryUse& use : TraceAccesses(space, f_, iteration).uses) {
      if (use.store || use.offset->DependsOn(iteration.vars.back()->var)) continue;
      const Access along = AccessAlong(use.offset, iteration.vars[static_cast<size_t>(plan_.tile_loop)]->var);
      if (along.kind != Access::Kind::kStrided || !along.stride.is_constant()) continue;
      const int64_t apart = along.stride.constant() * StorageBytes(use.op->shape().element_type());
      rows = std::min(rows, kWays * std::max<int64_t>(1, kLine * kSets / std::max(kLine, apart & -apart)));
    }
    return rows;
  }

  // Rows and vectors of the tile: those that take the fewest steps of the machine for the whole result, in the registers that there are.
  void ChooseTile(bool both, int parts, int64_t tallest, int64_t widest) {
    const int registers = target_.vector_bytes == 64 ? 32 : 16;
    const int64_t columns = plan_.loops.back().extent.constant_or(int64_t{1} << 20);
    const int64_t rows = plan_.tile_loop >= 0 ? Typical(plan_.loops[plan_.tile_loop].extent) : 1;
    const int64_t vectors = (columns + plan_.lanes - 1) / plan_.lanes;
    auto step = [&](int64_t r, int64_t v) { return TileStep(r, v, both, parts); };
    double least = 0;
    int64_t across = 1;
    for (int64_t v = 1; v <= (plan_.lanes > 1 ? std::min(vectors, widest) : 1); ++v) {
      for (int64_t r = 1; r <= std::min(rows, tallest); ++r) {
        const int64_t held = ((both ? 2 : 1) * r * v + v) * parts + 1;
        if (held > registers - 1 && r * v > 1) break;
        auto columns_of = [&](int64_t width) { return static_cast<double>(rows / r) * step(r, width) + step(rows % r, width); };
        const double steps = static_cast<double>(vectors / v) * columns_of(v) + (vectors % v > 0 ? columns_of(vectors % v) : 0);
        const auto written = static_cast<double>(SumsWritten(rows, columns, r, v * plan_.lanes, plan_.lanes));
        const double cost = steps * (1 + kSumCost * written);
        if (least > 0 && cost > least * 0.999) continue;
        least = cost;
        across = v;
        plan_.unroll = static_cast<int>(r);
      }
    }
    plan_.block = across * plan_.lanes;
  }

  // The last two loops, changed so that these are they.
  void PutInside(size_t tile, size_t vector) {
    std::vector<PlanLoop> loops;
    for (size_t i = 0; i < plan_.loops.size(); ++i) {
      if (i != tile && i != vector) loops.push_back(plan_.loops[i]);
    }
    loops.push_back(plan_.loops[tile]);
    loops.push_back(plan_.loops[vector]);
    plan_.loops = std::move(loops);
    plan_.tile_loop = static_cast<int>(plan_.loops.size()) - 2;
  }

  // Results whose fastest dim is too short for vectors (pairs, pixels of three colours), where everything is read as vectors along the
  // next one,
  // at most so many elements apart: all elements of the fastest dim together.
  void InterleaveShort() {
    if (plan_.loops.size() < 2 || OnScalars(f_)) return;
    IndexSpace space;
    Iteration iteration(space, f_, plan_.loops);
    const AccessTrace trace = TraceAccesses(space, f_, iteration);
    if (!trace.elsewhere.empty()) return;
    auto along = [&](const MemoryUse& use, size_t loop) { return AccessAlong(use.offset, iteration.vars[loop]->var); };
    for (size_t tile = 0; tile < plan_.loops.size(); ++tile) {
      const int64_t extent = plan_.loops[tile].extent.constant_or(0);
      if (extent < 2 || extent > kShortVector) continue;
      for (size_t vector = plan_.loops.size(); vector-- > 0;) {
        if (vector == tile || Typical(plan_.loops[vector].extent) < 4 * kShortVector) continue;
        const bool fits = absl::c_all_of(trace.uses, [&](const MemoryUse& use) {
          const Access a = along(use, vector);
          if (use.store) {
            return a.kind == Access::Kind::kStrided && a.stride == Dim(extent) && along(use, tile).kind == Access::Kind::kContiguous;
          }
          const bool near = a.kind == Access::Kind::kStrided && a.stride.constant_or(0) >= 2 && a.stride.constant_or(0) <= kShortVector;
          return near || a.kind == Access::Kind::kContiguous || a.kind == Access::Kind::kBroadcast;
        });
        if (!fits || BodyCost() * extent > kUnrollCost) continue;
        PutInside(tile, vector);
        plan_.rows = extent;
        return ChooseLanes();
      }
    }
  }

  // What `op` costs together with all that it is computed of, short of what was seen before.
  int CostOfAll(const Instruction* op, absl::flat_hash_set<const Instruction*>& seen) const {
    if (!seen.insert(op).second) return 0;
    int cost = CostOf(*op);
    for (const Instruction* o : op->operands()) cost += CostOfAll(o, seen);
    return cost;
  }

  // By loop: vectors that are read element by element at places that its iterations share (what groups of channels have, by channel).
  std::vector<int> SharedGathers() const {
    IndexSpace space;
    Iteration iteration(space, f_, plan_.loops);
    std::vector<int> shared(plan_.loops.size());
    absl::flat_hash_set<std::pair<const Instruction*, Index>> seen;
    for (const MemoryUse& use : TraceAccesses(space, f_, iteration).uses) {
      if (use.store || AccessAlong(use.offset, iteration.vars.back()->var).kind != Access::Kind::kGathered) continue;
      if (!seen.insert({use.op, use.offset}).second) continue;
      for (size_t i = 0; i < shared.size(); ++i) shared[i] += !use.offset->DependsOn(iteration.vars[i]->var);
    }
    return shared;
  }

  // What is computed per vector, but is the same for all iterations of `loop`: of broadcasts that lack its dims, of the places that
  // gathers read.
  int SharedCost(const PlanLoop& loop) const {
    const std::vector<int64_t>& vector = plan_.loops.back().dims;
    absl::flat_hash_set<const Instruction*> seen;
    int cost = 0;
    for (const Instruction* op : f_.order) {
      if (!IsFullShaped(*op) || op->shape().rank() != static_cast<int64_t>(f_.dims.size())) continue;
      std::vector<int64_t> kept;  // the dims on which it depends
      if (op->opcode() == Opcode::kBroadcast) {
        kept = op->dimensions();
      } else if (op->opcode() == Opcode::kGather) {
        const std::vector<int64_t> offset = op->int_list(Attr::kOffsetDims);
        for (int64_t d = 0; d < op->shape().rank(); ++d) {
          if (!absl::c_linear_search(offset, d)) kept.push_back(d);
        }
      } else {
        continue;
      }
      auto depends = [&](int64_t d) { return absl::c_linear_search(kept, d); };
      if (absl::c_none_of(vector, depends) || absl::c_any_of(loop.dims, depends)) continue;
      cost += CostOfAll(op->operand(op->operand_count() - 1), seen) + (op->opcode() == Opcode::kGather ? kPlaceCost : 0);
    }
    return cost;
  }

  // A loop whose iterations share much: some of them together.
  void ShareAcross() {
    if (plan_.loops.size() < 2 || plan_.lanes < 4 || OnScalars(f_)) return;
    std::optional<size_t> best;
    int most = kWorthSharing - 1;
    const std::vector<int> gathers = SharedGathers();
    for (size_t i = plan_.loops.size() - 1; i-- > 0;) {
      const int cost = SharedCost(plan_.loops[i]) + kGatherCost * gathers[i];
      if (cost > most) best = i, most = cost;
    }
    if (!best) return;
    const int64_t together = gathers[*best] > 0 && kMaxTogether * BodyCost() + most <= 3 * kUnrollCost ? kMaxTogether : kTogether;
    // The inner dims of it: the others are for threads.
    PlanLoop &loop = plan_.loops[*best], inner{{}, 1, false};
    while (!loop.dims.empty() && Typical(inner.extent) < together) {
      inner.dims.insert(inner.dims.begin(), loop.dims.back());
      inner.extent *= f_.dims[static_cast<size_t>(loop.dims.back())];
      loop.dims.pop_back();
    }
    if (Typical(inner.extent) < 2) return RestoreDims(loop, inner);
    const int64_t rows = std::min(Typical(inner.extent), together);
    if (BodyCost() * rows + most > 3 * kUnrollCost) return RestoreDims(loop, inner);
    loop.extent = 1;
    for (int64_t d : loop.dims) loop.extent *= f_.dims[static_cast<size_t>(d)];
    const bool whole = loop.dims.empty();
    if (whole) loop = inner;
    else plan_.loops.insert(plan_.loops.begin() + static_cast<std::ptrdiff_t>(*best) + 1, inner);
    PutInside(*best + (whole ? 0 : 1), plan_.loops.size() - 1);
    plan_.rows = rows;
    plan_.unroll = 1;
  }
  static void RestoreDims(PlanLoop& loop, const PlanLoop& inner) {
    loop.dims.insert(loop.dims.end(), inner.dims.begin(), inner.dims.end());
  }

  // A materialised transpose: some operand is contiguous along a loop that is not the vector loop.
  void FindTile() {
    if (plan_.loops.size() < 2 || plan_.lanes < 4) return;
    IndexSpace space;
    Iteration iteration(space, f_, plan_.loops);
    const int vector = iteration.vars.back()->var;
    for (const MemoryUse& use : TraceAccesses(space, f_, iteration).uses) {
      if (use.store) {
        if (AccessAlong(use.offset, vector).kind != Access::Kind::kContiguous) return;
        continue;
      }
      if (AccessAlong(use.offset, vector).kind != Access::Kind::kStrided || plan_.tile_loop >= 0)
        continue;
      for (size_t i = 0; i + 1 < plan_.loops.size(); ++i) {
        if (AccessAlong(use.offset, iteration.vars[i]->var).kind == Access::Kind::kContiguous)
          plan_.tile_loop = static_cast<int>(i);
      }
    }
    if (plan_.tile_loop < 0) return;
    const int64_t tile = std::min<int64_t>(plan_.lanes, 8);
    const Dim extent = plan_.loops[plan_.tile_loop].extent;
    if (extent.constant_or(INT64_MAX) < tile || VectorExtentBelow(tile)) {
      plan_.tile_loop = -1;
      return;
    }
    plan_.kind = PlanKind::kTranspose;
    plan_.lanes = static_cast<int>(tile);
  }

  // ---- outer range ----

  void Split() {
    int64_t pieces = 1;
    size_t outer = 0;
    while (outer + 1 < plan_.loops.size() && !plan_.loops[outer].reduced)
      ++outer;  // loops that may be split
    size_t n = 0;
    while (n < outer && pieces < kSplitPieces && static_cast<int>(n) != plan_.tile_loop) {
      pieces *= std::min(std::max<int64_t>(1, Typical(plan_.loops[n].extent)), int64_t{1} << 40);
      ++n;
    }
    plan_.split = static_cast<int>(n);
    if (plan_.kind == PlanKind::kColumn) {
      plan_.block = kColumnBlock;
    } else if (plan_.kind == PlanKind::kTranspose) {
      if (pieces < kSplitPieces) plan_.block = kTileBlock;
    } else if (plan_.kind == PlanKind::kLoop && !plan_.loops.empty()) {
      if (plan_.loops.size() == 1) {
        plan_.block = kFlatBlock;
      } else if (plan_.rows > 0) {
        if (n + 2 == plan_.loops.size() && pieces < kSplitPieces && !VectorExtentBelow(2 * kFlatBlock)) plan_.block = kFlatBlock;
      } else if (n + 1 == plan_.loops.size() && pieces < kSplitPieces &&
                 !VectorExtentBelow(4 * kFlatBlock)) {
        plan_.block = 4 * kFlatBlock;
      }
    }
  }

  const CpuTarget& target_;
};

}  // namespace

absl::StatusOr<KernelPlan> MakePlan(const FusedKernel& fused, const CpuTarget& target) {
  KernelPlan plan;
  if (fused.serial != nullptr && fused.serial->opcode() != Opcode::kScatter) {
    TENON_ASSIGN_OR_RETURN(plan, MakeSerialPlan(fused, target.vector_bytes));
  } else {
    plan = Planner(fused, target).Make();
  }
  TENON_RETURN_IF_ERROR(CheckPlan(fused, plan));
  return plan;
}

}  // namespace tenon
