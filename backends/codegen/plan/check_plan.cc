// CheckPlan: would this plan compute the fusion, inside of its memory?
#include "backends/codegen/plan/check_plan.h"

#include <algorithm>
#include <bit>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "backends/codegen/emit/emit_types.h"
#include "backends/codegen/plan/nest_planner.h"
#include "backends/codegen/plan/packing.h"
#include "backends/codegen/plan/serial_plan.h"
#include "backends/codegen/plan/wide_sums.h"

namespace tenon {
namespace {

bool IsOne(Dim d) { return d == Dim(1); }
int RegisterBytes(PrimitiveType t) { return static_cast<int>(StorageBytes(t)); }

}  // namespace

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

namespace {

absl::Status CheckSerial(const FusedKernel& f, const KernelPlan& plan, bool own_scratch) {
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
      if (own_scratch && plan.scratch_bytes < SortScratch(f).bytes) return bad("too little scratch");
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
    if (absl::c_any_of(phase.lent, [&](PlanPhase::Lent l) { return ready.at(f.order[static_cast<size_t>(l.value)]) > p; })) return false;
    if (absl::c_any_of(phase.roots, [&](int64_t r) { return ready.at(f.roots[static_cast<size_t>(r)]) > p; })) return false;
  }
  return true;
}

// Values that are kept for later phases of a row.
int64_t RowScratch(const FusedKernel& f, const KernelPlan& plan) {
  const int64_t elements = KeptLength(plan);
  int64_t bytes = 0;
  for (const PlanPhase& phase : plan.phases) {
    for (int64_t k : phase.kept) {
      bytes += (elements * StorageBytes(f.order[static_cast<size_t>(k)]->shape().element_type()) + 63) / 64 * 64;
    }
  }
  return bytes;
}

}  // namespace

bool Keeps(const PlanPhase& phase, int64_t value) {
  return absl::c_linear_search(phase.kept, value) ||
         absl::c_any_of(phase.lent, [&](const PlanPhase::Lent& l) { return l.value == value; });
}

bool CanLend(const FusedKernel& f, const PlanPhase::Lent& lent) {
  if (lent.root < 0 || lent.root >= static_cast<int64_t>(f.roots.size())) return false;
  const Shape &value = f.order[static_cast<size_t>(lent.value)]->shape(), &root = f.roots[static_cast<size_t>(lent.root)]->shape();
  if (!value.is_array() || !root.is_array() || f.RoleOf(value) != Role::kFull || f.RoleOf(root) != Role::kFull) return false;
  const PrimitiveType type = value.element_type();
  return type == root.element_type() && !IsComplex(type) && StorageBytes(type) == ByteWidth(type);
}

namespace {

// Positions in the fusion: there, of the right sort, and each once.
absl::Status CheckPhases(const FusedKernel& f, const KernelPlan& plan) {
  auto bad = [&plan](std::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("kernel plan: ", std::string(what), ": ", ToString(plan)));
  };
  absl::flat_hash_set<int64_t> reduces, roots, kept, lend;
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
    for (const PlanPhase::Lent& l : p.lent) {
      const bool there = plan.kind == PlanKind::kRow && l.value >= 0 && l.value < static_cast<int64_t>(f.order.size()) &&
                         kept.insert(l.value).second && CanLend(f, l);
      const bool last = &p != &plan.phases.back() && absl::c_linear_search(plan.phases.back().roots, l.root);
      if (!there || !last || !lend.insert(l.root).second) return bad("a root lends its memory to what has no place there, or twice");
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

absl::Status CheckPlan(const FusedKernel& f, const KernelPlan& plan, bool own_scratch) {
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
  if (plan.block > 0 && plan.split == loops && plan.kind != PlanKind::kTranspose) return bad("blocks of a loop in the outer range");
  if (plan.lanes * plan.unroll > 1 && OnScalars(f))
    return bad("vectors through a region that works on scalars");
  if (plan.kind == PlanKind::kTranspose &&
      (plan.tile_loop < 0 || plan.tile_loop >= loops - 1 || plan.tile_loop < plan.split)) {
    return bad("no tile loop");
  }
  TENON_RETURN_IF_ERROR(CheckSerial(f, plan, own_scratch));
  if (plan.kind == PlanKind::kAttention) {  // what is in the fusion is the target's to check
    if (own_scratch) return bad("a kind of devices");
    if (loops < 2 || plan.tile_loop != loops - 2 || plan.split != loops - 2 || !plan.loops.back().reduced) {
      return bad("loops that are not the batch, the queries and the keys");
    }
    return plan.rows > 0 && plan.block > 0 && plan.phases.empty() ? absl::OkStatus() : bad("tiles of no scores");
  }
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
    if (plan.rows < 0 || plan.rows > kMaxTogether || plan.tile_loop < 0 || plan.tile_loop != loops - 2 || plan.split > plan.tile_loop) {
      return bad("no loop of which iterations can be done together");
    }
  }
  if (plan.kind != PlanKind::kContraction && !std::has_single_bit(static_cast<unsigned>(plan.unroll))) {
    return bad("vectors at once that are no power of two");
  }
  if (plan.kind == PlanKind::kRow && plan.block != 0) return bad("a row in blocks");
  if (plan.kind == PlanKind::kColumn && plan.block == 0) return bad("columns without blocks");
  const bool phased = plan.kind == PlanKind::kRow || plan.kind == PlanKind::kColumn;
  if (phased == f.reduces.empty()) return bad("kind and reductions do not fit");
  if (phased && plan.loops.back().reduced != (plan.kind == PlanKind::kRow))
    return bad("row and column differ by the vector loop");
  // What is stored when all steps are done is at a place that must not hang on a loop of theirs.
  for (int i = 1; phased && i + 1 < loops; ++i) {
    if (plan.loops[i - 1].reduced && !plan.loops[i].reduced) return bad("a kept loop inside of a reduced one");
  }
  if (plan.kind == PlanKind::kColumn && own_scratch && plan.scratch_bytes < ColumnScratch(f, plan)) return bad("too little scratch");
  TENON_RETURN_IF_ERROR(CheckPhases(f, plan));
  if (plan.kind == PlanKind::kRow && plan.scratch_bytes < RowScratch(f, plan)) return bad("too little scratch");
  if (plan.kind == PlanKind::kRow && plan.scratch_bytes % 64 != 0) return bad("scratch that is no multiple of 64 bytes");
  return absl::OkStatus();
}

}  // namespace tenon
