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
#include "backends/cpu/plan/packing.h"
#include "backends/cpu/plan/wide_sums.h"
#include "hlo/check.h"
#include "hlo/own_calls.h"

namespace tenon {
namespace {

constexpr int64_t kSplitPieces =
    64;  // the outer range has at least so many units where the sizes allow
constexpr int64_t kFlatBlock = 1024;            // elements per unit of a one-dimensional kernel
constexpr int64_t kMaxKeptBytes = 128 << 10;    // row scratch: stays in L2
constexpr int kKeepCost = 12;                   // recomputing costs more instructions than a load
constexpr int kUnrollCost = 300;                // bodies above it are not unrolled
constexpr int kWideStepCost = 40;               // below it a step that ends in f64 is a long one
constexpr double kStreamedPerPiece = 64 << 10;  // elements that make a piece worth a thread
constexpr double kSerialPieceNs = 20000;   // work of a serial op that is worth a thread
constexpr int kTapCost = 3;  // of a window: address, load, the reducer
constexpr int64_t kTileBlock = 16;
constexpr int64_t kShortVector = 4;  // elements along the fastest dim below which vectors go along another one
constexpr int64_t kTogether = 4, kMaxTogether = 8;  // iterations of another loop that share work
constexpr int kWorthSharing = 12;   // instructions that they share
constexpr int kPlaceCost = 4;       // of an index that was read: bounds, the address
constexpr int64_t kScatterBlock = 16;
constexpr int64_t kColumnBlock = 64;
constexpr int64_t kMaxTileRows = 14, kMaxTileVectors = 6;
constexpr int64_t kRowsPerPackedPiece = 64;  // at least: each packs for itself
constexpr double kLatency = 8;         // multiply-adds that are under way at once
constexpr double kLoadShare = 0.25, kTileOverhead = 1;  // of a multiply-add

bool IsOne(Dim d) { return d == Dim(1); }

int RegisterBytes(PrimitiveType t) { return static_cast<int>(StorageBytes(t)); }

int LoadCost(PrimitiveType t) { return IsNarrowFloat(t) ? 6 : IsHalf(t) ? 3 : 1; }

int CostOf(const Instruction& op) {
  switch (op.family()) {
    case Family::kElementwise:
      return op.opcode() == Opcode::kMap ? 4 : ElementwiseCost(op);
    case Family::kIndexing:
      return 4;
    case Family::kReduction:
      return op.opcode() == Opcode::kReduceWindow ? kTapCost * static_cast<int>(TapsOf(WindowOf(op))) : 1;
    case Family::kContraction:
      return IsContraction(op) ? static_cast<int>(std::min<int64_t>(
                                     1 + TermsOf(op).value_or(1000) / 2, int64_t{1} << 24))
                               : 1;
    default:
      if (IsPointwiseCall(op)) return ElementwiseCost(op);
      return op.opcode() == Opcode::kParameter ? LoadCost(op.shape().element_type()) : 0;
  }
}

// Some region branches, or has arrays.
bool OnScalars(const FusedKernel& f) {
  return std::any_of(f.order.begin(), f.order.end(),
                     [](const Instruction* op) { return HasGeneralRegion(*op); });
}

// Accumulator rows of all reductions.
int64_t ColumnScratch(const FusedKernel& f, const KernelPlan& plan) {
  const bool stretches = StretchOf(f, plan).has_value();
  int64_t bytes = 0;
  for (const Instruction* r : f.reduces) {
    for (int64_t k = 0; k < r->operand_count() / 2; ++k) {
      bytes += kColumnChunk * std::max(1, RegisterBytes(r->operand(k)->shape().element_type())) + kColumnGap;
    }
    const bool each_step = AddsEachStep(*r, false);
    if (each_step || (stretches && HasWideTotal(*r))) bytes += kColumnChunk * RegisterBytes(PrimitiveType::kF64) + kColumnGap;
    if (each_step) bytes += kColumnChunk * RegisterBytes(r->shape().element_type()) + kColumnGap;  // a second partial sum
  }
  return bytes;
}

class Planner {
 public:
  Planner(const FusedKernel& fused, const CpuTarget& target) : f_(fused), target_(target) {}

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
      if (!OnScalars(f_)) plan_.unroll = BodyCost() < kUnrollCost && !VectorExtentBelow(2 * plan_.lanes) ? 2 : 1;
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
  bool IsFullShaped(const Instruction& op) const {
    return op.shape().is_array() && f_.RoleOf(op.shape()) == Role::kFull;
  }

  bool VectorExtentBelow(int64_t n) const {
    return plan_.loops.empty() || plan_.loops.back().extent.constant_or(INT64_MAX) < n;
  }

  // Larger strides outside. Symbolic strides keep the logical order.
  static bool StrideGreater(Dim a, Dim b) {
    if (a.is_constant() && b.is_constant()) return a.constant() > b.constant();
    return Less(b, a) == Ternary::kYes;
  }

  // One loop per dim, the memory order of the result (loops) or of the operand read at every index
  // (reductions).
  void OrderLoops() {
    std::vector<PlanLoop> loops;
    for (size_t d = 0; d < f_.dims.size(); ++d) {
      if (!IsOne(f_.dims[d]))
        loops.push_back({{static_cast<int64_t>(d)}, f_.dims[d], f_.reduced[d]});
    }
    std::vector<Dim> strides(loops.size(), 0);
    IndexSpace space;
    Iteration iteration(space, f_, loops);
    AccessTrace trace = TraceAccesses(space, f_, iteration);
    const MemoryUse* reference = nullptr;
    for (const MemoryUse& use : trace.uses) {
      const bool whole = std::all_of(iteration.vars.begin(), iteration.vars.end(),
                                     [&](Index v) { return use.offset->DependsOn(v->var); });
      const bool wanted = f_.reduces.empty() ? use.store : !use.store && whole;
      if (wanted && reference == nullptr) reference = &use;
    }
    if (f_.reduces.empty() && reference != nullptr) {
      if (const MemoryUse* load = ReadAlongALongerLoop(trace, iteration, *reference)) reference = load;
    }
    if (reference != nullptr) {
      const std::vector<Dim> logical = DenseStrides(f_.dims);
      for (size_t i = 0; i < loops.size(); ++i) {
        const Access access = AccessAlong(reference->offset, iteration.vars[i]->var);
        strides[i] = access.kind == Access::Kind::kContiguous ? Dim(1)
                     : access.kind == Access::Kind::kGathered ? logical[loops[i].dims[0]]  // no one stride: as if it were dense
                                                              : access.stride;
      }
    } else {
      strides.clear();
      for (const PlanLoop& l : loops) strides.push_back(DenseStrides(f_.dims)[l.dims[0]]);
    }
    std::vector<size_t> by_stride(loops.size());
    for (size_t i = 0; i < by_stride.size(); ++i) by_stride[i] = i;
    std::stable_sort(by_stride.begin(), by_stride.end(),
                     [&](size_t a, size_t b) { return StrideGreater(strides[a], strides[b]); });
    if (f_.reduces.empty()) {
      for (size_t i : by_stride) plan_.loops.push_back(loops[i]);
      return;
    }
    const bool row = loops[by_stride.back()].reduced;
    plan_.kind = row ? PlanKind::kRow : PlanKind::kColumn;
    std::vector<PlanLoop> kept, reduced;
    for (size_t i : by_stride) (loops[i].reduced ? reduced : kept).push_back(loops[i]);
    plan_.loops = kept;
    plan_.loops.insert(row ? plan_.loops.end() : plan_.loops.end() - 1, reduced.begin(),
                       reduced.end());
  }

  // The extent of the loop along which `use` is contiguous; 0: none.
  static int64_t ContiguousExtent(const MemoryUse& use, const Iteration& iteration) {
    for (Index v : iteration.vars) {
      if (AccessAlong(use.offset, v->var).kind == Access::Kind::kContiguous) return (v->high + 1).constant_or(0);
    }
    return 0;
  }

  // A result whose fastest dim is too short for vectors, of an operand read along a long one (three features brought side by side): that
  // operand's order, with stores apart.
  static const MemoryUse* ReadAlongALongerLoop(const AccessTrace& trace, const Iteration& iteration, const MemoryUse& store) {
    const int64_t stored = ContiguousExtent(store, iteration);
    if (stored == 0 || stored >= kShortVector) return nullptr;
    const MemoryUse* load = nullptr;
    for (const MemoryUse& use : trace.uses) {
      if (use.store) continue;
      const int64_t extent = ContiguousExtent(use, iteration);
      if (extent == stored) return nullptr;  // read as it is stored
      if (extent >= 4 * kShortVector && absl::c_all_of(iteration.vars, [&](Index v) { return use.offset->DependsOn(v->var); })) {
        load = &use;
      }
    }
    return load;
  }

  int Divisions(const std::vector<PlanLoop>& loops) const {
    IndexSpace space;
    Iteration iteration(space, f_, loops);
    return TraceAccesses(space, f_, iteration).divisions;
  }

  static PlanLoop Merged(const PlanLoop& a, const PlanLoop& b) {
    PlanLoop m = a;
    m.dims.insert(m.dims.end(), b.dims.begin(), b.dims.end());
    m.extent *= b.extent;
    return m;
  }

  // Windows whose elements are apart along the vector loop are gathered one by one, beside which a division is little; whole vectors are
  // worth more.
  bool GathersWindows() const {
    if (!f_.reduces.empty() || absl::c_none_of(f_.order, [](const Instruction* op) { return op->opcode() == Opcode::kReduceWindow; })) {
      return false;
    }
    IndexSpace space;
    Iteration iteration(space, f_, plan_.loops);
    const int vector = iteration.vars.back()->var;
    return absl::c_all_of(TraceAccesses(space, f_, iteration).uses, [&](const MemoryUse& use) {
      return use.store || AccessAlong(use.offset, vector).kind != Access::Kind::kContiguous;
    });
  }

  // Neighbours become one loop where no index needs a division for it. The whole at once first: the
  // common case.
  void MergeLoops() {
    if (plan_.loops.size() < 2) return;
    const int base = Divisions(plan_.loops);
    std::vector<PlanLoop> all;
    for (const PlanLoop& l : plan_.loops) {
      if (!all.empty() && all.back().reduced == l.reduced) {
        all.back() = Merged(all.back(), l);
      } else {
        all.push_back(l);
      }
    }
    if (all.size() < plan_.loops.size() && (Divisions(all) <= base || GathersWindows())) {
      plan_.loops = std::move(all);
      return;
    }
    for (size_t i = plan_.loops.size() - 1; i-- > 0;) {
      if (plan_.loops[i].reduced != plan_.loops[i + 1].reduced) continue;
      std::vector<PlanLoop> trial = plan_.loops;
      trial[i] = Merged(trial[i], trial[i + 1]);
      trial.erase(trial.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      if (Divisions(trial) <= base) plan_.loops = std::move(trial);
    }
  }

  // f32 converted to f64 to be summed, and for nothing else: such a vector is two registers, and what is before it keeps full lanes.
  static bool IsWidenedForSums(const Instruction& op) {
    return op.opcode() == Opcode::kConvert && op.shape().element_type() == PrimitiveType::kF64 &&
           op.operand(0)->shape().element_type() == PrimitiveType::kF32 && !op.users().empty() &&
           absl::c_all_of(op.users(), [](const Instruction* u) { return HasWideTotal(*u); });
  }

  void ChooseLanes() {
    if (OnScalars(f_)) return;
    int bytes = 0;
    for (const Instruction* op : f_.order) {
      if (!IsFullShaped(*op) || op->shape().element_type() == PrimitiveType::kPred || IsWidenedForSums(*op)) continue;
      bytes = std::max(bytes, RegisterBytes(op->shape().element_type()));
    }
    if (bytes == 0) bytes = 4;
    int64_t lanes = std::max(target_.vector_bytes / bytes, 2);
    if (plan_.loops.empty()) lanes = 1;
    // A short minor dim does with a shorter vector.
    if (!plan_.loops.empty() && plan_.loops.back().extent.is_constant()) {
      const uint64_t extent =
          static_cast<uint64_t>(std::max<int64_t>(plan_.loops.back().extent.constant(), 1));
      lanes = std::min<int64_t>(lanes, static_cast<int64_t>(std::bit_ceil(extent)));
    }
    plan_.lanes = static_cast<int>(lanes);
    plan_.masked_tail = target_.vector_bytes == 64;
  }

  // The cut dim becomes a loop of its own: the last one in blocks if it is the fastest, else the first.
  void CutScatter() {
    const std::optional<int64_t> cut = ChooseCut(*f_.serial);
    if (!cut) return;
    std::vector<PlanLoop> loops;
    for (const PlanLoop& l : plan_.loops) {
      const auto at = absl::c_find(l.dims, *cut);
      if (at == l.dims.end()) {
        loops.push_back(l);
        continue;
      }
      auto push = [&](std::vector<int64_t> dims) {
        if (dims.empty()) return;
        PlanLoop part{std::move(dims), 1, l.reduced};
        for (int64_t d : part.dims) part.extent *= f_.dims[static_cast<size_t>(d)];
        loops.push_back(std::move(part));
      };
      push({l.dims.begin(), at});
      push({*cut});
      push({at + 1, l.dims.end()});
    }
    plan_.loops = std::move(loops);
    if (plan_.loops.back().dims[0] == *cut) {
      plan_.block = kScatterBlock;
    } else {
      const auto at = absl::c_find_if(plan_.loops, [&](const PlanLoop& l) { return l.dims[0] == *cut; });
      std::rotate(plan_.loops.begin(), at, at + 1);
      plan_.split = 1;
    }
    ChooseLanes();
  }

  int BodyCost() const {
    int cost = 0;
    for (const Instruction* op : f_.order) {
      if (IsFullShaped(*op) || op->opcode() == Opcode::kReduce) cost += CostOf(*op);
    }
    return cost;
  }

  // The contraction of a fusion that has one, of the result's shape.
  const Instruction* Contraction() const {
    const Instruction* found = nullptr;
    for (const Instruction* op : f_.order) {
      if (!IsContraction(*op)) continue;
      if (found != nullptr || !IsFullShaped(*op) || !f_.reduces.empty()) return nullptr;
      found = op;
    }
    return plan_.loops.empty() || OnScalars(f_) ? nullptr : found;
  }

  // Several sums side by side, along a loop that an operand read as vectors does not depend on: a vector is loaded once for all of them.
  // That loop comes next to the vector loop. Blocks of vectors share what is the same for all of them.
  void PlanContraction(const Instruction& contraction) {
    plan_.kind = PlanKind::kContraction;
    IndexSpace space;
    Iteration iteration(space, f_, plan_.loops);
    const int vector = iteration.vars.back()->var;
    int best = -1, read_as_vectors = 0;
    for (const MemoryUse& use : TraceAccesses(space, f_, iteration).uses) {
      if (use.store || !use.offset->DependsOn(vector)) continue;
      ++read_as_vectors;
      for (int i = static_cast<int>(plan_.loops.size()) - 1; i-- > 0;) {
        if (use.offset->DependsOn(iteration.vars[i]->var)) continue;
        if (plan_.loops[i].extent.constant_or(kMaxTileRows) < 2) continue;
        best = std::max(best, i);
        break;
      }
    }
    if (best >= 0) {
      PlanLoop loop = plan_.loops[best];
      plan_.loops.erase(plan_.loops.begin() + best);
      plan_.loops.insert(plan_.loops.end() - 1, std::move(loop));
      plan_.tile_loop = static_cast<int>(plan_.loops.size()) - 2;
    }
    plan_.split = static_cast<int>(plan_.loops.size()) - 1 - (plan_.tile_loop >= 0 ? 1 : 0);
    const std::optional<Packing> packing = PackingOf(f_, plan_);
    int64_t widest = kMaxTileVectors;
    if (packing && RowsOfOnePart(*packing) >= kRowsWorthPacking) {
      const int64_t vectors = kMaxPackedBytes / packing->Bytes(plan_.lanes);
      plan_.packed = vectors > 0;
      if (plan_.packed) widest = std::min(widest, vectors);
    }
    const bool both = ReadAsVectors(contraction, 0) && ReadAsVectors(contraction, 1);
    ChooseTile(both, IsComplex(contraction.shape().element_type()) ? 2 : 1, widest);
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

  // Rows and vectors of the tile: those that take the fewest steps of the machine for the whole result, in the registers that there are.
  // A step of a tile is its multiply-adds, two a cycle, and a share for its loads; below kLatency of them the sums wait for each other.
  void ChooseTile(bool both, int parts, int64_t widest) {
    const int registers = target_.vector_bytes == 64 ? 32 : 16;
    const int64_t columns = plan_.loops.back().extent.constant_or(int64_t{1} << 20);
    const int64_t rows = plan_.tile_loop >= 0 ? Typical(plan_.loops[plan_.tile_loop].extent) : 1;
    const int64_t vectors = (columns + plan_.lanes - 1) / plan_.lanes;
    auto step = [&](int64_t r, int64_t v) {
      if (r == 0 || v == 0) return 0.0;
      const double loads = both ? r * v + v : r + v;
      return std::max({static_cast<double>(r * v * parts), loads * parts, kLatency}) + kLoadShare * loads + kTileOverhead;
    };
    double least = 0;
    int64_t across = 1;
    for (int64_t v = 1; v <= (plan_.lanes > 1 ? std::min(vectors, widest) : 1); ++v) {
      for (int64_t r = 1; r <= std::min<int64_t>(rows, kMaxTileRows); ++r) {
        const int64_t held = ((both ? 2 : 1) * r * v + v) * parts + 1;
        if (held > registers - 1 && r * v > 1) break;
        auto columns_of = [&](int64_t width) { return static_cast<double>(rows / r) * step(r, width) + step(rows % r, width); };
        const double cost = static_cast<double>(vectors / v) * columns_of(v) + (vectors % v > 0 ? columns_of(vectors % v) : 0);
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
        if (vector == tile || plan_.loops[vector].extent.constant_or(0) < 4 * kShortVector) continue;
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
    for (size_t i = plan_.loops.size() - 1; i-- > 0;) {
      if (!plan_.loops[i].extent.is_constant()) continue;
      const int cost = SharedCost(plan_.loops[i]);
      if (cost > most) best = i, most = cost;
    }
    if (!best) return;
    // The inner dims of it: the others are for threads.
    PlanLoop &loop = plan_.loops[*best], inner{{}, 1, false};
    while (!loop.dims.empty() && inner.extent.constant() < kTogether) {
      inner.dims.insert(inner.dims.begin(), loop.dims.back());
      inner.extent *= f_.dims[static_cast<size_t>(loop.dims.back())];
      loop.dims.pop_back();
    }
    if (inner.extent.constant() < 2) return RestoreDims(loop, inner);
    const int64_t rows = std::min(inner.extent.constant(), kTogether);
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

  // ---- phases ----

  int64_t PassOf(const Instruction* op) {
    auto [it, inserted] = pass_.try_emplace(op, 0);
    if (!inserted) return it->second;
    int64_t pass = 0;
    for (const Instruction* o : op->operands()) pass = std::max(pass, PassOf(o));
    if (op->opcode() == Opcode::kReduce) ++pass;
    return pass_[op] = pass;
  }

  void MakePhases() {
    int64_t last = 0;
    for (const Instruction* r : f_.reduces) last = std::max(last, PassOf(r) - 1);
    for (const Instruction* r : f_.roots) {
      if (IsFullShaped(*r)) last = std::max(last, PassOf(r));
    }
    plan_.phases.resize(last + 1);
    for (const Instruction* r : f_.reduces)
      plan_.phases[PassOf(r) - 1].reduces.push_back(f_.number.at(r));
    for (size_t i = 0; i < f_.roots.size(); ++i) {
      if (IsFullShaped(*f_.roots[i])) plan_.phases[PassOf(f_.roots[i])].roots.push_back(static_cast<int64_t>(i));
    }
    if (plan_.kind == PlanKind::kRow) ChooseKept();
  }

  // Full-shaped instructions that pass `p` computes, short of finished reductions.
  absl::flat_hash_set<const Instruction*> Cone(const PlanPhase& phase) const {
    absl::flat_hash_set<const Instruction*> cone;
    std::function<void(const Instruction*)> visit = [&](const Instruction* op) {
      if (!IsFullShaped(*op) || op->opcode() == Opcode::kReduce || !cone.insert(op).second) return;
      for (const Instruction* o : op->operands()) visit(o);
    };
    for (int64_t r : phase.reduces) {
      for (const Instruction* o : f_.order[r]->operands()) visit(o);
    }
    for (int64_t i : phase.roots) visit(f_.roots[i]);
    return cone;
  }

  int ConeCost(const Instruction* op, absl::flat_hash_set<const Instruction*>& seen) const {
    if (!IsFullShaped(*op) || op->opcode() == Opcode::kReduce || !seen.insert(op).second) return 0;
    int cost = CostOf(*op);
    for (const Instruction* o : op->operands()) cost += ConeCost(o, seen);
    return cost;
  }

  // What a later pass reads again and would be dear to recompute goes to row scratch: the last such
  // value of each chain.
  void ChooseKept() {
    Dim row = 1;
    for (const PlanLoop& l : plan_.loops) {
      if (l.reduced) row *= l.extent;
    }
    if (!row.is_constant()) return;
    std::vector<absl::flat_hash_set<const Instruction*>> cones;
    for (const PlanPhase& p : plan_.phases) cones.push_back(Cone(p));
    for (size_t p = 0; p + 1 < cones.size(); ++p) {
      for (size_t q = p + 1; q < cones.size(); ++q) {
        for (const Instruction* op : f_.order) {
          if (op->opcode() == Opcode::kParameter || !cones[p].contains(op) ||
              !cones[q].contains(op))
            continue;
          bool frontier = std::any_of(plan_.phases[q].roots.begin(), plan_.phases[q].roots.end(),
                                      [&](int64_t i) { return f_.roots[i] == op; });
          for (const Instruction* u : op->users()) {
            frontier |=
                !cones[p].contains(u) && (cones[q].contains(u) || u->opcode() == Opcode::kReduce);
          }
          absl::flat_hash_set<const Instruction*> seen;
          if (!frontier || ConeCost(op, seen) <= kKeepCost) continue;
          Keep(op, p, row.constant());
        }
      }
    }
  }

  void Keep(const Instruction* op, size_t phase, int64_t row) {
    for (const PlanPhase& p : plan_.phases) {
      if (std::find(p.kept.begin(), p.kept.end(), f_.number.at(op)) != p.kept.end()) return;
    }
    const int64_t bytes =
        (row * std::max(1, RegisterBytes(op->shape().element_type())) + 63) / 64 * 64;
    if (plan_.scratch_bytes + bytes > kMaxKeptBytes) return;
    plan_.scratch_bytes += bytes;
    plan_.phases[phase].kept.push_back(f_.number.at(op));
  }

  // ---- outer range ----

  void Split() {
    int64_t pieces = 1;
    size_t outer = 0;
    while (outer + 1 < plan_.loops.size() && !plan_.loops[outer].reduced)
      ++outer;  // loops that may be split
    size_t n = 0;
    while (n < outer && pieces < kSplitPieces && static_cast<int>(n) != plan_.tile_loop) {
      pieces *= std::min(plan_.loops[n].extent.constant_or(kSplitPieces), int64_t{1} << 40);
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

  const FusedKernel& f_;
  const CpuTarget& target_;
  KernelPlan plan_;
  absl::flat_hash_map<const Instruction*, int64_t> pass_;
};

constexpr int64_t kWorthPieces = 32 << 10;  // elements copied and updated
constexpr int64_t kWideWindow = 32;         // elements of a window that are worth finding it again in each piece

// Bytes of a parameter that are read: what slices and gathers take of it, all of it for other
// users.
int64_t TouchedBytes(const Instruction& parameter) {
  const int64_t all = Typical(parameter.shape().byte_size()),
                width = ByteWidth(parameter.shape().element_type());
  int64_t touched = 0;
  for (const Instruction* u : parameter.users()) {
    const bool part = (u->opcode() == Opcode::kGather || u->opcode() == Opcode::kDynamicSlice ||
                       u->opcode() == Opcode::kSlice) &&
                      u->operand(0) == &parameter;
    touched += part ? Typical(u->shape().num_elements()) * width : all;
  }
  return std::min(all, touched);
}

}  // namespace

ScatterDim ScatterDimOf(const Instruction& scatter, int64_t d) {
  const std::vector<int64_t> batching = scatter.int_list(Attr::kInputBatchingDims), inserted = scatter.int_list(Attr::kInsertedWindowDims);
  if (absl::c_linear_search(batching, d)) return ScatterDim::kBatch;
  const bool indexed = absl::c_linear_search(scatter.int_list(Attr::kScatterDimsToOperandDims), d);
  if (absl::c_linear_search(inserted, d)) return indexed ? ScatterDim::kIndexed : ScatterDim::kTied;
  if (indexed) return ScatterDim::kTied;
  size_t window = 0;  // which of the updates' window dims walks it
  for (int64_t k = 0; k < d; ++k) window += !absl::c_linear_search(batching, k) && !absl::c_linear_search(inserted, k);
  const Shape& updates = scatter.operand(scatter.operand_count() - 1)->shape();
  const bool whole = KnownEqual(updates.dim(scatter.int_list(Attr::kUpdateWindowDims)[window]), scatter.operand(0)->shape().dim(d));
  return whole ? ScatterDim::kWindow : ScatterDim::kTied;
}

std::optional<int64_t> ChooseCut(const Instruction& scatter) {
  const Shape &x = scatter.operand(0)->shape(), &updates = scatter.operand(scatter.operand_count() - 1)->shape();
  if (!x.is_static() || !updates.is_static()) return std::nullopt;
  const int64_t elements = x.num_elements().constant(), updated = updates.num_elements().constant();
  if (elements == 0 || elements + updated < kWorthPieces) return std::nullopt;
  int64_t window = 1;
  for (int64_t d : scatter.int_list(Attr::kUpdateWindowDims)) window *= updates.constant_dim(d);
  std::optional<int64_t> best[3];  // the longest dim of each sort
  for (int64_t d = 0; d < x.rank(); ++d) {
    const ScatterDim sort = ScatterDimOf(scatter, d);
    if (sort == ScatterDim::kTied) continue;
    std::optional<int64_t>& of = best[static_cast<int>(sort)];
    if (!of || x.constant_dim(d) > x.constant_dim(*of)) of = d;
  }
  const auto [windowed, batch, indexed] = best;
  auto length = [&](std::optional<int64_t> d) { return d ? x.constant_dim(*d) : 0; };
  if (length(batch) >= 8) return batch;
  if (length(windowed) >= kWideWindow) return windowed;
  if (length(batch) >= 2) return batch;
  // Each piece asks every update where it goes: worth it if that is little of the work.
  const bool little = window >= kWideWindow || updated / std::max<int64_t>(window, 1) <= elements / 8;
  return little && length(indexed) >= 2 ? indexed : std::nullopt;
}

std::optional<int64_t> CutDim(const KernelPlan& plan) {
  if (plan.loops.empty() || plan.split + (plan.block > 0 ? 1 : 0) != 1) return std::nullopt;
  const PlanLoop& loop = plan.block > 0 ? plan.loops.back() : plan.loops.front();
  return loop.dims.size() == 1 ? std::optional<int64_t>(loop.dims[0]) : std::nullopt;
}

absl::StatusOr<KernelPlan> MakePlan(const FusedKernel& fused, const CpuTarget& target) {
  KernelPlan plan;
  if (fused.serial != nullptr && fused.serial->opcode() != Opcode::kScatter) {
    TENON_ASSIGN_OR_RETURN(plan, MakeSerialPlan(fused, target));
  } else {
    plan = Planner(fused, target).Make();
  }
  TENON_RETURN_IF_ERROR(CheckPlan(fused, plan));
  return plan;
}

namespace {

absl::Status CheckSerial(const FusedKernel& f, const KernelPlan& plan) {
  auto bad = [&plan](std::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("kernel plan: ", std::string(what), ": ", ToString(plan)));
  };
  PlanKind wanted = plan.kind;
  if (f.serial != nullptr) {
    switch (f.serial->opcode()) {
      case Opcode::kScatter:
        wanted = PlanKind::kScatter;
        break;
      case Opcode::kSelectAndScatter:
        wanted = PlanKind::kSelectAndScatter;
        break;
      case Opcode::kScan:
        wanted = PlanKind::kScan;
        break;
      default:
        wanted = PlanKind::kSort;
    }
  }
  const bool serial = plan.kind == PlanKind::kScatter ||
                      plan.kind == PlanKind::kSelectAndScatter || plan.kind == PlanKind::kScan ||
                      plan.kind == PlanKind::kSort;
  if (plan.kind != wanted || serial != (f.serial != nullptr)) return bad("not this op's kind");
  if (!serial) return absl::OkStatus();
  const size_t loops = plan.loops.size();
  const size_t kept = static_cast<size_t>(std::count_if(
      plan.loops.begin(), plan.loops.end(), [](const PlanLoop& l) { return !l.reduced; }));
  for (const PlanLoop& l : plan.loops) {
    if (l.dims.size() > 1 && plan.kind != PlanKind::kScatter) return bad("loops merged");
  }
  switch (plan.kind) {
    case PlanKind::kSort:
      if (static_cast<size_t>(plan.split) != kept || plan.block != 0)
        return bad("a row is a unit of a sort");
      if (loops > kept && !plan.loops.back().reduced) return bad("the sorted dim is no inner loop");
      if (plan.scratch_bytes < SortScratch(f).bytes) return bad("too little scratch");
      return absl::OkStatus();
    case PlanKind::kScan:
      if (static_cast<size_t>(plan.split) + (plan.block > 0 ? 1 : 0) != kept ||
          (plan.block > 0) != (loops > 0 && !plan.loops.back().reduced && loops > kept))
        return bad("a row or a block of rows is a unit of a scan");
      if (plan.block == 0 && plan.lanes > 1) return bad("vectors along a scan");
      return absl::OkStatus();
    case PlanKind::kSelectAndScatter: {
      const Window window = f.serial->attrs().get_or<Window>(Attr::kWindow, {});
      if (plan.lanes > 1 || plan.block > 0) return bad("vectors across windows");
      for (int i = 0; i < plan.split; ++i) {
        if (!WindowsStayApart(window, plan.loops[static_cast<size_t>(i)].dims[0]))
          return bad("windows cross a dim of the outer range");
      }
      return absl::OkStatus();
    }
    default: {
      if (plan.split == 0 && plan.block == 0) return absl::OkStatus();
      const std::optional<int64_t> cut = CutDim(plan);
      if (!cut || (plan.split == 1 && loops < 2)) return bad("a scatter in pieces of more than one dim");
      if (ScatterDimOf(*f.serial, *cut) == ScatterDim::kTied) return bad("a scatter in pieces of a dim that they cannot share");
      return absl::OkStatus();
    }
  }
}

// What a phase finishes, stores or keeps is made of what phases before it have finished.
bool PhasesInOrder(const FusedKernel& f, const KernelPlan& plan) {
  absl::flat_hash_map<const Instruction*, size_t> finished;  // the first phase that may read it
  for (size_t p = 0; p < plan.phases.size(); ++p) {
    for (int64_t r : plan.phases[p].reduces) finished[f.order[static_cast<size_t>(r)]] = p + 1;
  }
  absl::flat_hash_map<const Instruction*, size_t> ready, wanted;
  for (const Instruction* op : f.order) {
    size_t operands = 0;
    for (const Instruction* o : op->operands()) {
      const auto at = ready.find(o);
      if (at != ready.end()) operands = std::max(operands, at->second);
    }
    wanted[op] = operands;
    const auto own = finished.find(op);
    ready[op] = own == finished.end() ? operands : std::max(operands, own->second);
  }
  for (size_t p = 0; p < plan.phases.size(); ++p) {
    const PlanPhase& phase = plan.phases[p];
    if (absl::c_any_of(phase.reduces, [&](int64_t r) { return wanted.at(f.order[static_cast<size_t>(r)]) > p; })) return false;
    if (absl::c_any_of(phase.kept, [&](int64_t k) { return ready.at(f.order[static_cast<size_t>(k)]) > p; })) return false;
    if (absl::c_any_of(phase.roots, [&](int64_t r) { return ready.at(f.roots[static_cast<size_t>(r)]) > p; })) return false;
  }
  return true;
}

// Values that are kept for later phases of a row.
int64_t RowScratch(const FusedKernel& f, const KernelPlan& plan) {
  int64_t elements = 1, bytes = 0;
  for (const PlanLoop& l : plan.loops) elements *= l.reduced ? l.extent.constant_or(0) : 1;
  for (const PlanPhase& phase : plan.phases) {
    for (int64_t k : phase.kept) {
      bytes += (elements * StorageBytes(f.order[static_cast<size_t>(k)]->shape().element_type()) + 63) / 64 * 64;
    }
  }
  return bytes;
}

// Positions in the fusion: there, of the right sort, and each once.
absl::Status CheckPhases(const FusedKernel& f, const KernelPlan& plan) {
  auto bad = [&plan](std::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("kernel plan: ", std::string(what), ": ", ToString(plan)));
  };
  absl::flat_hash_set<int64_t> reduces, roots, kept;
  for (const PlanPhase& p : plan.phases) {
    for (int64_t r : p.reduces) {
      const bool there = r >= 0 && r < static_cast<int64_t>(f.order.size()) && absl::c_linear_search(f.reduces, f.order[r]);
      if (!there || !reduces.insert(r).second) return bad("a phase finishes what is no reduction, or twice");
    }
    for (int64_t r : p.roots) {
      const bool there = r >= 0 && r < static_cast<int64_t>(f.roots.size()) && f.roots[r]->shape().is_array() &&
                         f.RoleOf(f.roots[r]->shape()) == Role::kFull;
      if (!there || !roots.insert(r).second) return bad("a phase stores what is no full-shaped root, or twice");
    }
    for (int64_t k : p.kept) {
      const bool there = plan.kind == PlanKind::kRow && k >= 0 && k < static_cast<int64_t>(f.order.size()) &&
                         f.order[k]->shape().is_array() && f.RoleOf(f.order[k]->shape()) == Role::kFull;
      if (!there || !kept.insert(k).second) return bad("a phase keeps what is no full-shaped value, or twice");
    }
  }
  if (reduces.size() != f.reduces.size()) return bad("a reduction in no phase");
  if (!PhasesInOrder(f, plan)) return bad("a phase reads a reduction that is not finished");
  for (size_t i = 0; i < f.roots.size() && !plan.phases.empty(); ++i) {
    const Shape& shape = f.roots[i]->shape();
    if (shape.is_array() && f.RoleOf(shape) == Role::kFull && !roots.contains(static_cast<int64_t>(i))) {
      return bad("a full-shaped root in no phase");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckPlan(const FusedKernel& f, const KernelPlan& plan) {
  auto bad = [&plan](std::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("kernel plan: ", std::string(what), ": ", ToString(plan)));
  };
  std::vector<bool> covered(f.dims.size(), false);
  for (const PlanLoop& loop : plan.loops) {
    Dim extent = 1;
    for (int64_t d : loop.dims) {
      if (d < 0 || d >= static_cast<int64_t>(f.dims.size()) || covered[d])
        return bad("a dim out of range or twice");
      if (f.reduced[d] != loop.reduced) return bad("a kept and a reduced dim in one loop");
      covered[d] = true;
      extent *= f.dims[d];
    }
    if (!KnownEqual(extent, loop.extent)) return bad("a loop's extent differs from its dims");
  }
  for (size_t d = 0; d < f.dims.size(); ++d) {
    if (!covered[d] && !IsOne(f.dims[d])) return bad("a dim in no loop");
  }
  const int loops = static_cast<int>(plan.loops.size());
  if (plan.split < 0 || plan.split > loops || plan.lanes < 1 ||
      !std::has_single_bit(static_cast<unsigned>(plan.lanes)) || plan.lanes > 64 ||
      plan.unroll < 1 || plan.unroll > kMaxTileRows || plan.block < 0 || plan.scratch_bytes < 0) {
    return bad("a number out of range");
  }
  for (int i = 0; i < plan.split; ++i) {
    if (plan.loops[i].reduced) return bad("a reduced loop in the outer range");
  }
  if (loops == 0 && (plan.lanes > 1 || plan.block > 0)) return bad("vectors or blocks without a loop");
  if (plan.lanes * plan.unroll > 1 && OnScalars(f))
    return bad("vectors through a region that works on scalars");
  if (plan.kind == PlanKind::kTranspose &&
      (plan.tile_loop < 0 || plan.tile_loop >= loops - 1 || plan.tile_loop < plan.split)) {
    return bad("no tile loop");
  }
  TENON_RETURN_IF_ERROR(CheckSerial(f, plan));
  if (plan.kind == PlanKind::kContraction) {
    if (loops == 0 || plan.block <= 0 || plan.block % plan.lanes != 0 || (plan.lanes == 1 && plan.block > 1)) {
      return bad("a block is not some vectors");
    }
    if (plan.tile_loop >= 0 ? plan.tile_loop != loops - 2 || plan.split != loops - 2 : plan.split != loops - 1 || plan.unroll > 1) {
      return bad("the unrolled loop is not the one around the vector loop, or not all others are in the outer range");
    }
    if (plan.rows < 0 || plan.rows % plan.unroll != 0 || (plan.rows > 0 && plan.tile_loop < 0)) return bad("rows that are not some tiles");
    if (plan.packed) {
      const std::optional<Packing> packing = PackingOf(f, plan);
      if (!packing) return bad("an operand that cannot be packed");
      if (plan.scratch_bytes < packing->Bytes(plan.block)) return bad("too little scratch");
    }
  } else if ((plan.rows != 0 && plan.kind != PlanKind::kLoop) || plan.unroll > 8 || plan.packed) {
    return bad("tiles of what is no contraction");
  }
  if (plan.kind == PlanKind::kLoop && plan.rows != 0) {
    if (plan.rows < 0 || plan.rows > kMaxTogether || plan.tile_loop < 0 || plan.tile_loop != loops - 2 || plan.split > plan.tile_loop ||
        !plan.loops[static_cast<size_t>(plan.tile_loop)].extent.is_constant()) {
      return bad("no loop of which iterations can be done together");
    }
  }
  if ((plan.kind == PlanKind::kLoop || plan.kind == PlanKind::kRow) && !std::has_single_bit(static_cast<unsigned>(plan.unroll))) {
    return bad("vectors at once that are no power of two");
  }
  if (plan.kind == PlanKind::kRow && plan.block != 0) return bad("a row in blocks");
  if (plan.kind == PlanKind::kColumn && plan.block == 0) return bad("columns without blocks");
  const bool phased = plan.kind == PlanKind::kRow || plan.kind == PlanKind::kColumn;
  if (phased == f.reduces.empty()) return bad("kind and reductions do not fit");
  if (phased && plan.loops.back().reduced != (plan.kind == PlanKind::kRow))
    return bad("row and column differ by the vector loop");
  if (plan.kind == PlanKind::kColumn && plan.scratch_bytes < ColumnScratch(f, plan)) return bad("too little scratch");
  TENON_RETURN_IF_ERROR(CheckPhases(f, plan));
  if (plan.kind == PlanKind::kRow && plan.scratch_bytes < RowScratch(f, plan)) return bad("too little scratch");
  return absl::OkStatus();
}

WorkEstimate EstimateWork(const FusedKernel& f, const KernelPlan& plan) {
  WorkEstimate w;
  for (int i = 0; i < plan.split; ++i) w.units *= plan.loops[i].extent;
  const int blocked = plan.kind == PlanKind::kTranspose ? plan.tile_loop
                                                        : static_cast<int>(plan.loops.size()) - 1;
  if (plan.block > 0) w.units *= CeilDiv(plan.loops[blocked].extent, plan.block);
  if (plan.rows > 0 && plan.kind == PlanKind::kContraction) w.units *= CeilDiv(plan.loops[plan.tile_loop].extent, plan.rows);
  Dim elements = 1;
  for (const PlanLoop& l : plan.loops) elements *= l.extent;
  int cost = 1;
  int64_t flops = 0;
  for (const Instruction* op : f.order) {
    if (!op->shape().is_array()) continue;
    if (op->opcode() == Opcode::kReduce || f.RoleOf(op->shape()) == Role::kFull) {
      cost += CostOf(*op);
      flops += op->family() == Family::kElementwise || op->family() == Family::kReduction ? 1 : IsPointwiseCall(*op) ? 2 : 0;
      if (IsContraction(*op)) flops += 2 * TermsOf(*op).value_or(0);
    }
    const bool copied = f.updated != nullptr && f.updated->operand(0) == op && op->user_count() == 1;
    if (op->opcode() == Opcode::kParameter && !copied) w.bytes += TouchedBytes(*op);
    // Reads from places that only the data knows wait for memory: 1 ns an element, where rows of 32 come from a table beyond the cache.
    if (op->opcode() == Opcode::kGather) cost += 16;
  }
  for (const Instruction* r : f.roots)
    w.bytes += r->shape().is_array() ? Typical(r->shape().byte_size()) : 0;
  int64_t n = Typical(elements);
  w.flops = n * flops;
  if (f.serial != nullptr && f.serial->opcode() == Opcode::kScatter) {
    cost += 8;  // one after the other
    if (n > 0) n += Typical(f.serial->operand(f.serial->operand_count() - 1)->shape().num_elements());
  }
  const double bytes_per_ns = w.bytes > kCachedBytes ? 12 : 40;
  w.nanoseconds = static_cast<double>(n) * cost * 0.3 / plan.lanes +
                  static_cast<double>(w.bytes) / bytes_per_ns;
  if (f.serial != nullptr && f.serial->opcode() != Opcode::kScatter) {
    w.nanoseconds += SerialWork(f, static_cast<double>(n));
    const double each = w.nanoseconds / static_cast<double>(std::max<int64_t>(Typical(w.units), 1));
    w.grain = n == 0 ? 1 : std::max<int64_t>(1, static_cast<int64_t>(kSerialPieceNs / each));
    return w;
  }
  const double weight = std::max(1.0, cost * 4.0 / plan.lanes / 4.0);  // of an element
  if (!w.units.is_constant() || !elements.is_constant()) {
    const auto per_piece = std::max<int64_t>(1, static_cast<int64_t>(kStreamedPerPiece / weight));
    w.grain = Max(1, FloorDiv(w.units * Dim(per_piece), elements + 1));  // also for sizes that a guard has yet to refuse
  } else if (n == 0) {
    w.grain = plan.block > 0 ? std::max<int64_t>(1, static_cast<int64_t>(kStreamedPerPiece) / plan.block) : 16;
    return w;
  } else {
    const double per_unit = static_cast<double>(n) / static_cast<double>(std::max<int64_t>(w.units.constant(), 1));
    w.grain = std::max<int64_t>(1, static_cast<int64_t>(kStreamedPerPiece / (std::max(per_unit, 1.0) * weight)));
  }
  if (plan.packed) {
    const int64_t rows = plan.tile_loop < 0 ? 1 : plan.rows > 0 ? plan.rows : Typical(plan.loops[plan.tile_loop].extent);
    w.grain = Max(w.grain, (kRowsPerPackedPiece + rows - 1) / std::max<int64_t>(rows, 1));
  }
  return w;
}

}  // namespace tenon
