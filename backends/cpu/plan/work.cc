#include "backends/cpu/plan/work.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "backends/codegen/emit/emit_types.h"
#include "backends/codegen/fused/region.h"
#include "backends/codegen/index/access_trace.h"
#include "backends/codegen/index/contraction_index.h"
#include "backends/codegen/plan/check_plan.h"
#include "backends/codegen/plan/packing.h"
#include "backends/codegen/plan/serial_plan.h"
#include "backends/cpu/plan/tile_steps.h"
#include "hlo/cost_ops.h"
#include "hlo/own_calls.h"

namespace tenon {
namespace {

// In slots, if nothing else is said.
constexpr double kLoad = 1, kStore = 2;      // of a vector
constexpr double kElementLoad = 2;           // of an element that is gathered into a vector
constexpr double kIteration = 2;             // of the vector loop: counting, addresses
constexpr double kRow = 8;                   // of the loops around it
constexpr double kScalarOp = 0.4;            // of a vector's slots, an op that is done once a row, by a scalar
constexpr double kReduceRow = 10;            // the tree that ends a row's sum; the next row is under way beside it
constexpr double kNarrow = 20, kHalf = 3;    // to and from what registers hold
constexpr double kPacked = 8, kCopied = 3;   // of a vector that a contraction packs: loaded, turned, stored; as it lies
constexpr double kUpdate = 12;               // finding the place of a scatter's update
constexpr double kSerialStepNs = 0.3;        // in which SerialWork counts
constexpr double kLaunchNs = 120;            // pointers, the call
constexpr double kArrayNs = 100;             // the first lines of an array, which no prefetch brings
constexpr double kHidden = 0.75;             // of the smaller of computing and moving, what hides behind the larger
constexpr double kLine = 64;                 // bytes that memory moves for one element
constexpr int64_t kRowsPerPackedPiece = 64;  // at least: each packs for itself

double TypicalOf(Dim d) { return static_cast<double>(std::max<int64_t>(Typical(d), 0)); }
double ElementsOf(const Shape& shape) { return shape.is_array() ? TypicalOf(shape.num_elements()) : 0; }

class Estimate {
 public:
  Estimate(const FusedKernel& f, const KernelPlan& plan, int vector_bytes) : f_(f), plan_(plan), vector_bytes_(vector_bytes) {
    for (const PlanLoop& l : plan.loops) elements_ *= TypicalOf(l.extent);
    inner_ = plan.loops.empty() ? 1 : TypicalOf(plan.loops.back().extent);
    rows_ = inner_ > 0 ? elements_ / inner_ : 0;
    const double lanes = plan.lanes;
    vectors_ = rows_ * (plan.masked_tail ? std::ceil(inner_ / lanes) : std::floor(inner_ / lanes) + std::fmod(inner_, lanes));
  }

  KernelWork Of() {
    KernelWork w;
    for (const Instruction* op : f_.order) {
      if (op->opcode() == Opcode::kParameter && !IsCopied(*op)) w.bytes += TouchedBytes(*op);
    }
    for (const Instruction* r : f_.roots) w.bytes += r->shape().is_array() ? Typical(r->shape().byte_size()) : 0;
    w.flops = Flops();
    if (elements_ == 0) return w;
    w.arrays = static_cast<int64_t>(f_.operands.size() + f_.roots.size());
    w.streamed = w.resident = static_cast<double>(w.bytes);
    if (f_.serial != nullptr && f_.serial->opcode() == Opcode::kScatter) w.streamed = OwnCost(*f_.serial).bytes + Places() * kLine;
    AddFound(&w);
    w.slots = f_.serial != nullptr ? SerialSlots() : Slots();
    return w;
  }

 private:
  // The operand that an update finds copied.
  bool IsCopied(const Instruction& p) const { return f_.updated != nullptr && f_.updated->operand(0) == &p && p.user_count() == 1; }

  // Bytes of a parameter that are read: what slices and gathers take of it, all of it for other users.
  static int64_t TouchedBytes(const Instruction& parameter) {
    if (!parameter.shape().is_array()) return 0;
    const int64_t all = Typical(parameter.shape().byte_size()), width = ByteWidth(parameter.shape().element_type());
    int64_t touched = 0;
    for (const Instruction* u : parameter.users()) {
      const bool part = (u->opcode() == Opcode::kGather || u->opcode() == Opcode::kDynamicSlice || u->opcode() == Opcode::kSlice) &&
                        u->operand(0) == &parameter;
      touched += part ? Typical(u->shape().num_elements()) * width : all;
    }
    return std::min(all, touched);
  }

  // A function such as tanh as one.
  int64_t Flops() const {
    double flops = 0;
    for (const Instruction* op : f_.order) {
      const Cost cost = OwnCost(*op);
      flops += cost.flops + cost.transcendentals;
    }
    return static_cast<int64_t>(std::min(flops, 9e18));
  }

  // Gathers find rows anywhere in what they gather from.
  void AddFound(KernelWork* w) const {
    for (const Instruction* op : f_.order) {
      if (op->opcode() != Opcode::kGather) continue;
      const Shape& from = op->operand(0)->shape();
      double row = static_cast<double>(ByteWidth(from.element_type()));
      for (Dim n : op->dim_list(Attr::kSliceSizes)) row *= TypicalOf(n);
      const double rows = ElementsOf(op->shape()) * static_cast<double>(ByteWidth(from.element_type())) / std::max(row, 1.0);
      w->streamed += rows * kLine;
      w->resident = std::max(w->resident, ElementsOf(from) * static_cast<double>(ByteWidth(from.element_type())));
    }
  }

  bool IsFull(const Instruction& op) const { return op.shape().is_array() && f_.RoleOf(op.shape()) == Role::kFull; }

  // Registers that hold the plan's lanes of a type.
  double Registers(PrimitiveType type) const {
    const double bytes = static_cast<double>(plan_.lanes) * static_cast<double>(StorageBytes(type));
    return std::max(1.0, bytes / vector_bytes_);
  }

  double ElementwiseSlots(const Instruction& op) const {
    const PrimitiveType type = op.shape().element_type();
    double slots = op.opcode() == Opcode::kCustomCall ? 1 : OpCostOf(op.opcode()).slots;
    if (IsNarrowFloat(type)) slots += kNarrow;
    if (IsComplex(type)) slots = (slots + 1) * 5;
    double registers = Registers(type);
    if (op.opcode() == Opcode::kConvert || op.opcode() == Opcode::kCompare) {
      registers = std::max(registers, Registers(op.operand(0)->shape().element_type()));
    }
    return slots * registers;
  }

  // Of one vector of a value that every iteration has.
  double SlotsOf(const Instruction& op) const {
    const PrimitiveType type = op.shape().element_type();
    switch (op.family()) {
      case Family::kElementwise:
        return ElementwiseSlots(op);
      case Family::kIndexing:
        return 4;
      case Family::kReduction:
        if (op.opcode() == Opcode::kReduceWindow) return 3.0 * static_cast<double>(TapsOf(WindowOf(op))) * Registers(type);
        return 1;
      case Family::kContraction:
        return ContractionSlots(op);
      default:
        if (IsPointwiseCall(op)) return ElementwiseSlots(op);
        if (op.opcode() == Opcode::kParameter)
          return (kLoad + (IsNarrowFloat(type) ? kNarrow : IsHalf(type) ? kHalf : 0)) * Registers(type);
        // A row's values for all rows: read as vectors.
        if (op.opcode() == Opcode::kBroadcast && op.operand(0)->shape().rank() > 0 && MovesAlongVectors(op)) return kLoad;
        return 0;
    }
  }

  bool MovesAlongVectors(const Instruction& broadcast) const {
    if (plan_.loops.empty()) return false;
    return absl::c_any_of(plan_.loops.back().dims, [&](int64_t d) { return absl::c_linear_search(broadcast.dimensions(), d); });
  }

  // Of a vector of sums: the tile's steps, shared by its vectors.
  double ContractionSlots(const Instruction& op) const {
    const double terms = TypicalOf(TermsOf(op));
    const double parts = IsComplex(op.shape().element_type()) ? 2 : 1;
    if (plan_.kind != PlanKind::kContraction) return (terms + 1) * parts * parts * (kLoad + 1);
    const int64_t across = std::max<int64_t>(1, plan_.block / std::max(plan_.lanes, 1));
    const double tiles = static_cast<double>(std::max(plan_.unroll, 1)) * static_cast<double>(across);
    return terms * TileStep(plan_.unroll, across, /*both=*/false, static_cast<int>(parts)) / tiles * Registers(op.shape().element_type());
  }

  // What a pass computes of full values, short of what other passes have done.
  double Cone(const PlanPhase& phase, size_t number, bool* reads) const {
    absl::flat_hash_set<const Instruction*> seen;
    double slots = 0;
    std::function<void(const Instruction*)> visit = [&](const Instruction* op) {
      if (!IsFull(*op) || op->opcode() == Opcode::kReduce || !seen.insert(op).second) return;
      for (size_t p = 0; p < number; ++p) {
        if (Keeps(plan_.phases[p], f_.number.at(op))) {
          slots += kLoad;
          return;
        }
      }
      *reads |= op->opcode() == Opcode::kParameter;
      slots += SlotsOf(*op);
      for (const Instruction* o : op->operands()) visit(o);
    };
    for (int64_t r : phase.reduces) {
      const Instruction& reduce = *f_.order[static_cast<size_t>(r)];
      for (const Instruction* o : reduce.operands()) visit(o);
      slots += RegionSlots(reduce);
    }
    for (const PlanPhase::Lent& l : phase.lent) visit(f_.order[static_cast<size_t>(l.value)]);
    for (int64_t i : phase.roots) {
      visit(f_.roots[static_cast<size_t>(i)]);
      slots += kStore;
    }
    return slots + kStore * static_cast<double>(phase.kept.size() + phase.lent.size());
  }

  // Of one application of a reduction's computation.
  double RegionSlots(const Instruction& reduce) const {
    double slots = 0;
    for (const Instruction* op : reduce.to_apply()->instructions()) {
      if (IsPointwise(*op) && op->shape().is_array()) slots += ElementwiseSlots(*op);
    }
    return std::max(slots, 1.0);
  }

  double Slots() const {
    double body = kIteration, once = 0, rows = rows_ * kRow;
    if (!plan_.phases.empty()) {
      body = 0;
      for (size_t p = 0; p < plan_.phases.size(); ++p) {
        bool reads = false;
        body += kIteration + Cone(plan_.phases[p], p, &reads);
      }
      const double units = OuterRows();
      for (const Instruction* op : f_.order) {
        if (op->opcode() == Opcode::kReduce || IsFull(*op) || !op->shape().is_array() || f_.RoleOf(op->shape()) != Role::kKept) continue;
        const double slots = SlotsOf(*op);
        rows += plan_.kind == PlanKind::kRow ? units * slots * kScalarOp : ElementsOf(op->shape()) / plan_.lanes * slots;
      }
      if (plan_.kind == PlanKind::kRow) rows += units * kReduceRow * static_cast<double>(f_.reduces.size());
    } else {
      for (const Instruction* op : f_.order) {
        if (!op->shape().is_array()) continue;
        if (op->opcode() == Opcode::kReduce)
          once += ElementsOf(op->operand(0)->shape()) / plan_.lanes * (RegionSlots(*op) + kLoad + kIteration);
        else if (IsFull(*op))
          body += SlotsOf(*op);
        else
          once += std::min(ElementsOf(op->shape()), vectors_) * SlotsOf(*op);
      }
      for (const Instruction* r : f_.roots) body += IsFull(*r) ? kStore * Registers(r->shape().element_type()) : 0;
    }
    return vectors_ * (body + Apart()) + rows + once + PackingSlots();
  }

  // The second operand, brought into scratch once.
  double PackingSlots() const {
    const std::optional<Packing> packing = plan_.packed ? PackingOf(f_, plan_) : std::nullopt;
    if (!packing) return 0;
    return static_cast<double>(packing->terms) * std::ceil(inner_ / plan_.lanes) * (packing->apart > 0 ? kCopied : kPacked);
  }

  // Rows of a row kernel: what is not reduced.
  double OuterRows() const {
    double rows = 1;
    for (const PlanLoop& l : plan_.loops) rows *= l.reduced ? 1 : TypicalOf(l.extent);
    return rows;
  }

  // Elements of a vector that do not lie side by side, or not where one knows; of a window's operand, at each tap.
  double Apart() const {
    if (plan_.loops.empty() || plan_.kind == PlanKind::kTranspose || plan_.kind == PlanKind::kContraction) return 0;
    int64_t taps = 1;
    for (const Instruction* op : f_.order) {
      if (op->opcode() == Opcode::kReduceWindow) taps = std::max(taps, TapsOf(WindowOf(*op)));
    }
    IndexSpace space;
    const Iteration iteration(space, f_, plan_.loops);
    double slots = 0;
    for (const MemoryUse& use : TraceAccesses(space, f_, iteration).uses) {
      const Access along = AccessAlong(use.offset, iteration.vars.back()->var);
      const double few = along.kind == Access::Kind::kStrided ? static_cast<double>(std::abs(along.stride.constant_or(1 << 20))) : 1 << 20;
      if (along.kind == Access::Kind::kStrided || along.kind == Access::Kind::kGathered) {
        const bool together = plan_.rows > 0 && !use.offset->DependsOn(iteration.vars[static_cast<size_t>(plan_.tile_loop)]->var);
        slots += std::min(few <= 4 ? 2 * few : 1e9, kElementLoad * plan_.lanes) * (use.store ? 1 : static_cast<double>(taps)) /
                 static_cast<double>(together ? plan_.rows : 1);
      }
    }
    return slots;
  }

  double SerialSlots() const {
    if (f_.serial->opcode() != Opcode::kScatter) {
      double before = 0;  // what is computed of the elements first
      for (const Instruction* op : f_.order) before += op != f_.serial && IsFull(*op) ? SlotsOf(*op) : 0;
      return elements_ / plan_.lanes * before + SerialWork(f_, elements_) / kSerialStepNs;
    }
    const double each = std::ceil(UpdateWindow() / plan_.lanes) * (kIteration + 2 * kLoad + kStore + RegionSlots(*f_.serial));
    return Places() * (kUpdate + each);
  }

  // Of a scatter: elements that an update writes side by side, and how many updates there are.
  double UpdateWindow() const {
    const Shape& updates = f_.serial->operand(f_.serial->operand_count() - 1)->shape();
    double window = 1;
    for (int64_t d : f_.serial->int_list(Attr::kUpdateWindowDims)) window *= TypicalOf(updates.dim(d));
    return window;
  }
  double Places() const {
    const double window = UpdateWindow();
    return window > 0 ? ElementsOf(f_.serial->operand(f_.serial->operand_count() - 1)->shape()) / window : 0;
  }

  const FusedKernel& f_;
  const KernelPlan& plan_;
  const int vector_bytes_;
  double elements_ = 1, inner_ = 1, rows_ = 1, vectors_ = 1;
};

}  // namespace

KernelWork WorkOf(const FusedKernel& fused, const KernelPlan& plan, int vector_bytes) { return Estimate(fused, plan, vector_bytes).Of(); }

double NanosecondsOf(const KernelWork& work, const CpuTarget& target, int threads) {
  const MachineModel& machine = target.machine;
  const double computing = work.slots * machine.SlotNs(target.vector_bytes) / threads;
  const double moving = work.resident > 0 ? machine.StreamNs(work.resident, threads) * work.streamed / work.resident : 0;
  const double starting = kLaunchNs + kArrayNs * static_cast<double>(work.arrays) + (threads > 1 ? machine.fork_join_ns : 0);
  return starting + std::max(computing, moving) + (1 - kHidden) * std::min(computing, moving);
}

WorkEstimate EstimateWork(const FusedKernel& fused, const KernelPlan& plan, const CpuTarget& target) {
  const KernelWork work = WorkOf(fused, plan, target.vector_bytes);
  WorkEstimate w{.bytes = work.bytes, .flops = work.flops, .nanoseconds = NanosecondsOf(work, target), .units = UnitsOf(plan)};
  Dim elements = 1;
  for (const PlanLoop& l : plan.loops) elements *= l.extent;
  const double n = TypicalOf(elements), ns = std::max(w.nanoseconds - kLaunchNs - kArrayNs * static_cast<double>(work.arrays), 1e-3),
               piece = target.machine.fork_join_ns;
  if (!w.units.is_constant() || !elements.is_constant()) {
    const auto per_piece = std::max<int64_t>(1, static_cast<int64_t>(std::min(piece * std::max(n, 1.0) / ns, 1e15)));
    w.grain = Max(1, FloorDiv(w.units * Dim(per_piece), elements + 1));  // also for sizes that a guard has yet to refuse
  } else {
    const double units = TypicalOf(w.units);
    w.grain = n == 0 ? 1 : std::max<int64_t>(1, static_cast<int64_t>(std::min(piece * std::max(units, 1.0) / ns, 1e15)));
  }
  if (plan.packed) {
    const int64_t rows = plan.tile_loop < 0 ? 1 : plan.rows > 0 ? plan.rows : Typical(plan.loops[plan.tile_loop].extent);
    // All that one part serves, unless that is much.
    const Packing packing = *PackingOf(fused, plan);
    Dim served = plan.rows > 0 ? CeilDiv(plan.loops[static_cast<size_t>(plan.tile_loop)].extent, plan.rows) : Dim(1);
    for (int i = 0; i < plan.split && !packing.by_outer; ++i) served *= plan.loops[static_cast<size_t>(i)].extent;
    w.grain = Max(w.grain, Min(served, (kRowsPerPackedPiece + rows - 1) / std::max<int64_t>(rows, 1)));
  }
  return w;
}

}  // namespace tenon
