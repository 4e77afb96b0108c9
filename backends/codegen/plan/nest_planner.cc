#include "backends/codegen/plan/nest_planner.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "absl/algorithm/container.h"
#include "backends/codegen/emit/elementwise.h"
#include "backends/codegen/emit/emit_types.h"
#include "backends/codegen/fused/region.h"
#include "backends/codegen/index/contraction_index.h"
#include "backends/codegen/plan/check_plan.h"
#include "backends/codegen/plan/serial_plan.h"
#include "backends/codegen/plan/wide_sums.h"
#include "hlo/own_calls.h"

namespace tenon {
namespace {

constexpr int kKeepCost = 12;         // recomputing costs more instructions than a load
constexpr int kTapCost = 3;           // of a window: address, load, the reducer
constexpr int64_t kShortVector = 4;   // elements along the fastest dim below which vectors go along another one
constexpr int64_t kScatterBlock = 16;

bool IsOne(Dim d) { return d == Dim(1); }
int RegisterBytes(PrimitiveType t) { return static_cast<int>(StorageBytes(t)); }
int LoadCost(PrimitiveType t) { return IsNarrowFloat(t) ? 6 : IsHalf(t) ? 3 : 1; }

}  // namespace

int CostOf(const Instruction& op) {
  switch (op.family()) {
    case Family::kElementwise:
      return ElementwiseCost(op);
    case Family::kIndexing:
      return 4;
    case Family::kReduction:
      return op.opcode() == Opcode::kReduceWindow ? kTapCost * static_cast<int>(TapsOf(WindowOf(op))) : 1;
    case Family::kContraction:
      return IsContraction(op) ? static_cast<int>(std::min<int64_t>(
                                     1 + Typical(TermsOf(op)) / 2, int64_t{1} << 24))
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

bool NestPlanner::IsFullShaped(const Instruction& op) const {
  return op.shape().is_array() && f_.RoleOf(op.shape()) == Role::kFull;
}

bool NestPlanner::VectorExtentBelow(int64_t n) const {
  return plan_.loops.empty() || plan_.loops.back().extent.constant_or(INT64_MAX) < n;
}

// Larger strides outside. Of symbolic ones, which may be 0 and then are no larger than any, those that are typically.
bool NestPlanner::StrideGreater(Dim a, Dim b) { return Typical(a) > Typical(b); }

// One loop per dim, the memory order of the result (loops) or of the operand read at every index
// (reductions).
void NestPlanner::OrderLoops() {
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

// The extent, if it is a symbol's a typical one, of the loop along which `use` is contiguous; 0: none.
int64_t NestPlanner::ContiguousExtent(const MemoryUse& use, const Iteration& iteration) {
  for (Index v : iteration.vars) {
    if (AccessAlong(use.offset, v->var).kind == Access::Kind::kContiguous) return Typical(v->high + 1);
  }
  return 0;
}

// A result whose fastest dim is too short for vectors, of an operand read along a long one (three features brought side by side): that
// operand's order, with stores apart.
const MemoryUse* NestPlanner::ReadAlongALongerLoop(const AccessTrace& trace, const Iteration& iteration, const MemoryUse& store) {
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

NestPlanner::Divisions NestPlanner::DivisionsOf(const std::vector<PlanLoop>& loops) const {
  IndexSpace space;
  Iteration iteration(space, f_, loops);
  const AccessTrace trace = TraceAccesses(space, f_, iteration);
  return {trace.divisions, trace.dear};
}

PlanLoop NestPlanner::Merged(const PlanLoop& a, const PlanLoop& b) {
  PlanLoop m = a;
  m.dims.insert(m.dims.end(), b.dims.begin(), b.dims.end());
  m.extent *= b.extent;
  return m;
}

// Windows whose elements are apart along the vector loop are gathered one by one, beside which a division is little; whole vectors are
// worth more.
bool NestPlanner::GathersWindows() const {
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
void NestPlanner::MergeLoops() {
  if (plan_.loops.size() < 2) return;
  const Divisions base = DivisionsOf(plan_.loops);
  std::vector<PlanLoop> all;
  for (const PlanLoop& l : plan_.loops) {
    if (!all.empty() && all.back().reduced == l.reduced) {
      all.back() = Merged(all.back(), l);
    } else {
      all.push_back(l);
    }
  }
  if (all.size() < plan_.loops.size()) {
    const Divisions merged = DivisionsOf(all);
    if (merged.NoMoreThan(base) || (merged.dear <= base.dear && GathersWindows())) {
      plan_.loops = std::move(all);
      return;
    }
  }
  for (size_t i = plan_.loops.size() - 1; i-- > 0;) {
    if (plan_.loops[i].reduced != plan_.loops[i + 1].reduced) continue;
    std::vector<PlanLoop> trial = plan_.loops;
    trial[i] = Merged(trial[i], trial[i + 1]);
    trial.erase(trial.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    if (DivisionsOf(trial).NoMoreThan(base)) plan_.loops = std::move(trial);
  }
}

// f32 converted to f64 to be summed, and for nothing else: such a vector is two registers, and what is before it keeps full lanes.
bool NestPlanner::IsWidenedForSums(const Instruction& op) {
  return op.opcode() == Opcode::kConvert && op.shape().element_type() == PrimitiveType::kF64 &&
         op.operand(0)->shape().element_type() == PrimitiveType::kF32 && !op.users().empty() &&
         absl::c_all_of(op.users(), [](const Instruction* u) { return HasWideTotal(*u); });
}

void NestPlanner::ChooseLanes() {
  if (OnScalars(f_)) return;
  int bytes = 0;
  for (const Instruction* op : f_.order) {
    if (!IsFullShaped(*op) || op->shape().element_type() == PrimitiveType::kPred || IsWidenedForSums(*op)) continue;
    bytes = std::max(bytes, RegisterBytes(op->shape().element_type()));
  }
  if (bytes == 0) bytes = 4;
  int64_t lanes = std::max(numbers_.vector_bytes / bytes, 2);
  if (plan_.loops.empty()) lanes = 1;
  // A short minor dim does with a shorter vector. A symbolic one if it is as short as colours are: lengths begin short and grow.
  if (!plan_.loops.empty()) {
    const Dim minor = plan_.loops.back().extent;
    const int64_t extent = minor.is_constant() || Typical(minor) <= kShortVector ? Typical(minor) : lanes;
    const int64_t least = minor.is_constant() ? 1 : 2;
    lanes = std::min(lanes, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(extent, least)))));
  }
  plan_.lanes = static_cast<int>(lanes);
  plan_.masked_tail = numbers_.masked_tail;
}

// The cut dim becomes a loop of its own: the last one in blocks if it is the fastest, else the first.
void NestPlanner::CutScatter() {
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

int NestPlanner::BodyCost() const {
  int cost = 0;
  for (const Instruction* op : f_.order) {
    if (IsFullShaped(*op) || op->opcode() == Opcode::kReduce) cost += CostOf(*op);
  }
  return cost;
}

// The contraction of a fusion that has one, of the result's shape.
const Instruction* NestPlanner::Contraction() const {
  const Instruction* found = nullptr;
  for (const Instruction* op : f_.order) {
    if (!IsContraction(*op)) continue;
    if (found != nullptr || !IsFullShaped(*op) || !f_.reduces.empty()) return nullptr;
    found = op;
  }
  return plan_.loops.empty() || OnScalars(f_) ? nullptr : found;
}

int64_t NestPlanner::PassOf(const Instruction* op) {
  auto [it, inserted] = pass_.try_emplace(op, 0);
  if (!inserted) return it->second;
  int64_t pass = 0;
  for (const Instruction* o : op->operands()) pass = std::max(pass, PassOf(o));
  if (op->opcode() == Opcode::kReduce) ++pass;
  return pass_[op] = pass;
}

void NestPlanner::MakePhases() {
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
absl::flat_hash_set<const Instruction*> NestPlanner::Cone(const PlanPhase& phase) const {
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

int NestPlanner::ConeCost(const Instruction* op, absl::flat_hash_set<const Instruction*>& seen) const {
  if (!IsFullShaped(*op) || op->opcode() == Opcode::kReduce || !seen.insert(op).second) return 0;
  int cost = CostOf(*op);
  for (const Instruction* o : op->operands()) cost += ConeCost(o, seen);
  return cost;
}

// It takes as many elements from memory, or more, and no pass has kept it.
bool NestPlanner::ReadsAgain(const Instruction* op, absl::flat_hash_set<const Instruction*>& seen) const {
  if (IsKept(op) || op->opcode() == Opcode::kReduce || !seen.insert(op).second) return false;
  if (op->opcode() == Opcode::kParameter) {
    Dim all = 1;
    for (const PlanLoop& l : plan_.loops) all *= l.extent;
    const Dim elements = op->shape().num_elements();
    return KnownEqual(elements, all) || (elements.is_constant() && all.is_constant() && elements.constant() > all.constant());
  }
  return absl::c_any_of(op->operands(), [&](const Instruction* o) { return ReadsAgain(o, seen); });
}

bool NestPlanner::IsKept(const Instruction* op) const {
  const auto number = f_.number.find(op);
  return number != f_.number.end() &&
         absl::c_any_of(plan_.phases, [&](const PlanPhase& p) { return Keeps(p, number->second); });
}

// What a later pass reads again and would be dear to recompute goes to row scratch: the last such
// value of each chain.
void NestPlanner::ChooseKept() {
  const int64_t row = KeptLength(plan_);
  if (!RowLength(plan_).is_constant() && (row == 0 || !numbers_.keeps_symbolic)) return;
  std::vector<absl::flat_hash_set<const Instruction*>> cones;
  for (const PlanPhase& p : plan_.phases) cones.push_back(Cone(p));
  for (size_t p = 0; p + 1 < cones.size(); ++p) {
    for (size_t q = p + 1; q < cones.size(); ++q) {
      for (const Instruction* op : f_.order) {
        if ((op->opcode() == Opcode::kParameter && !numbers_.keeps_reads) || !cones[p].contains(op) || !cones[q].contains(op)) continue;
        bool frontier = std::any_of(plan_.phases[q].roots.begin(), plan_.phases[q].roots.end(),
                                    [&](int64_t i) { return f_.roots[i] == op; });
        for (const Instruction* u : op->users()) {
          frontier |=
              !cones[p].contains(u) && (cones[q].contains(u) || u->opcode() == Opcode::kReduce);
        }
        absl::flat_hash_set<const Instruction*> seen;
        if (!frontier) continue;
        absl::flat_hash_set<const Instruction*> read;
        if (ConeCost(op, seen) <= kKeepCost && !(numbers_.keeps_reads && ReadsAgain(op, read))) continue;
        Keep(op, p, row);
      }
    }
  }
}

void NestPlanner::Keep(const Instruction* op, size_t phase, int64_t row) {
  if (IsKept(op)) return;
  const int64_t bytes =
      (row * std::max(1, RegisterBytes(op->shape().element_type())) + 63) / 64 * 64;
  if (plan_.scratch_bytes + bytes > numbers_.max_kept_bytes) return KeepInResult(op, phase);
  plan_.scratch_bytes += bytes;
  plan_.phases[phase].kept.push_back(f_.number.at(op));
}

void NestPlanner::KeepInResult(const Instruction* op, size_t phase) {
  if (!numbers_.keeps_in_results) return;
  const int64_t value = f_.number.at(op);
  const auto taken = [&](int64_t root) {
    return absl::c_any_of(plan_.phases, [&](const PlanPhase& p) {
      return absl::c_any_of(p.lent, [&](const PlanPhase::Lent& l) { return l.root == root; });
    });
  };
  IndexSpace space;
  Iteration iteration(space, f_, plan_.loops);
  for (const MemoryUse& use : TraceAccesses(space, f_, iteration).uses) {
    if (!use.store || AccessAlong(use.offset, iteration.vars.back()->var).kind != Access::Kind::kContiguous) continue;
    const PlanPhase::Lent lent{value, static_cast<int64_t>(use.root)};
    if (!absl::c_linear_search(plan_.phases.back().roots, lent.root) || taken(lent.root) || !CanLend(f_, lent)) continue;
    return plan_.phases[phase].lent.push_back(lent);
  }
}

void NestPlanner::ContractionNest() {
  plan_.kind = PlanKind::kContraction;
  IndexSpace space;
  Iteration iteration(space, f_, plan_.loops);
  const int vector = iteration.vars.back()->var;
  int best = -1;
  for (const MemoryUse& use : TraceAccesses(space, f_, iteration).uses) {
    if (use.store || !use.offset->DependsOn(vector)) continue;
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
}

}  // namespace tenon
