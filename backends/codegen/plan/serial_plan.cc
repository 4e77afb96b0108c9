// Plans of the serial ops that run along one dim, or over windows that overlap.
#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "backends/codegen/emit/elementwise.h"
#include "backends/codegen/fused/region.h"
#include "backends/codegen/plan/serial_plan.h"
#include "hlo/own_calls.h"

namespace tenon {
namespace {

constexpr int64_t kScanBlock = 64;  // columns of a unit
constexpr int kDearStep = 4;        // instructions of a scan's step
constexpr int64_t kSquares = 4;     // of lanes by lanes elements

int64_t RoundUp64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Lanes for the widest type in registers, no more than the vector loop has elements.
int Lanes(const FusedKernel& f, int vector_bytes, Dim extent) {
  for (const Instruction* op : f.order) {
    if (HasGeneralRegion(*op)) return 1;
  }
  int64_t bytes = 1;
  for (const Instruction* o : f.serial->operands()) {
    const PrimitiveType type = o->shape().element_type();
    bytes = std::max<int64_t>(bytes, std::max<int64_t>(ByteWidth(type), IsHalf(type) ? 4 : 1));
  }
  int64_t lanes = std::max<int64_t>(vector_bytes / bytes, 2);
  if (extent.is_constant()) {
    const uint64_t n = static_cast<uint64_t>(std::max<int64_t>(extent.constant(), 1));
    lanes = std::min<int64_t>(lanes, static_cast<int64_t>(std::bit_ceil(n)));
  }
  return static_cast<int>(std::min<int64_t>(lanes, 64));
}

PlanLoop LoopOf(const FusedKernel& f, int64_t d) {
  return {.dims = {d}, .extent = f.dims[static_cast<size_t>(d)], .reduced = f.reduced[static_cast<size_t>(d)]};
}

// The dims of more than one element, in order; kept ones, then the reduced one.
std::vector<PlanLoop> KeptThenReduced(const FusedKernel& f) {
  std::vector<PlanLoop> loops;
  for (const bool reduced : {false, true}) {
    for (size_t d = 0; d < f.dims.size(); ++d) {
      if (f.reduced[d] == reduced && !KnownOne(f.dims[d]))
        loops.push_back(LoopOf(f, static_cast<int64_t>(d)));
    }
  }
  return loops;
}

int KeptLoops(const KernelPlan& plan) {
  return static_cast<int>(std::count_if(plan.loops.begin(), plan.loops.end(),
                                        [](const PlanLoop& l) { return !l.reduced; }));
}

absl::StatusOr<KernelPlan> SortPlan(const FusedKernel& f, int vector_bytes) {
  KernelPlan plan{.kind = PlanKind::kSort, .loops = KeptThenReduced(f)};
  const Dim n = SerialExtent(f);
  if (!n.is_constant()) {
    return absl::UnimplementedError(absl::StrCat(std::string(OpcodeName(f.serial->opcode())), " ",
                                                 f.serial->name(), ": along a dimension of unknown size ",
                                                 n.ToString()));
  }
  plan.split = KeptLoops(plan);
  const bool row = !plan.loops.empty() && plan.loops.back().reduced;
  plan.lanes = row ? Lanes(f, vector_bytes, n) : 1;
  plan.scratch_bytes = SortScratch(f).bytes;
  return plan;
}

// Instructions of a step.
int StepCost(const Instruction& scan) {
  int cost = 0;
  for (const Instruction* op : scan.to_apply()->instructions()) cost += IsPointwise(*op) ? ElementwiseCost(*op) : 0;
  return cost;
}

// Of the kept loops the longest, where the scanned dim is the fastest: a step that waits for the one before is worth bringing elements of
// many rows together. -1: it is not.
int RowsSideBySide(const FusedKernel& f, int vector_bytes, const KernelPlan& plan) {
  if (HasGeneralRegion(*f.serial)) return -1;
  // A cheap step, of an integer, still takes as long as to store one element and to ask for the next: squares of many are turned in less,
  // but what is left over of a row costs more.
  const PrimitiveType type = f.serial->operand(0)->shape().element_type();
  const int64_t lanes = vector_bytes / std::max<int64_t>(ByteWidth(type), 4);
  const bool turned = !f.serial->attrs().get_or<bool>(Attr::kReverse, false) && !f.MakesMoreOfScan() && ByteWidth(type) >= 4;
  const bool squares = turned && !IsComplex(type) && lanes >= 4 && Typical(SerialExtent(f)) >= kSquares * lanes;
  if (StepCost(*f.serial) < kDearStep && !squares) return -1;
  int longest = -1;
  for (int i = 0; i < plan.split; ++i) {
    const int64_t extent = Typical(plan.loops[i].extent);
    if (extent >= 2 * vector_bytes / 4 && (longest < 0 || extent > Typical(plan.loops[longest].extent))) longest = i;
  }
  return longest;
}

// Along the fastest dim that is not the scanned one where the scanned one is not the fastest.
KernelPlan ScanPlan(const FusedKernel& f, int vector_bytes) {
  KernelPlan plan{.kind = PlanKind::kScan, .loops = KeptThenReduced(f)};
  plan.split = KeptLoops(plan);
  if (plan.split == 0 || static_cast<size_t>(plan.split) == plan.loops.size()) return plan;
  const std::vector<Dim>* strides = &f.results[0].strides;
  for (size_t i = 0; i < f.roots.size(); ++i) {
    if (f.roots[i]->shape().is_array() && f.RoleOf(f.roots[i]->shape()) == Role::kFull)
      strides = &f.results[i].strides;
  }
  if (strides->size() != f.dims.size()) return plan;
  const auto fastest = [&](const PlanLoop& l) { return (*strides)[static_cast<size_t>(l.dims[0])] == Dim(1); };
  const bool kept_fastest = std::any_of(plan.loops.begin(), plan.loops.begin() + plan.split, fastest);
  const int side_by_side = kept_fastest ? -1 : RowsSideBySide(f, vector_bytes, plan);
  for (int i = 0; i < plan.split; ++i) {
    if (i != side_by_side && !fastest(plan.loops[i])) continue;
    std::rotate(plan.loops.begin() + i, plan.loops.begin() + i + 1, plan.loops.end());
    --plan.split;
    plan.lanes = Lanes(f, vector_bytes, plan.loops.back().extent);
    plan.masked_tail = vector_bytes == 64;
    plan.block = kScanBlock;
    break;
  }
  return plan;
}

KernelPlan SelectAndScatterPlan(const FusedKernel& f) {
  KernelPlan plan{.kind = PlanKind::kSelectAndScatter};
  const Window window = f.serial->attrs().get_or<Window>(Attr::kWindow, {});
  for (const bool independent : {true, false}) {
    for (size_t d = 0; d < f.dims.size(); ++d) {
      if (KnownOne(f.dims[d]) || WindowsStayApart(window, static_cast<int64_t>(d)) != independent) continue;
      plan.loops.push_back(LoopOf(f, static_cast<int64_t>(d)));
      plan.split += independent ? 1 : 0;
    }
  }
  return plan;
}

}  // namespace

bool WindowsStayApart(const Window& window, int64_t d) {
  if (window.dims.empty()) return true;
  const WindowDim& w = window.dims[static_cast<size_t>(d)];
  return w.size == 1 && w.stride == 1 && w.padding_low == 0 && w.padding_high == 0 &&
         w.base_dilation == 1;
}

Dim SerialExtent(const FusedKernel& f) {
  for (size_t d = 0; d < f.dims.size(); ++d) {
    if (f.reduced[d]) return f.dims[d];
  }
  return 1;
}

SortColumns SortScratch(const FusedKernel& f) { return SortScratch(f, SerialExtent(f).constant_or(0)); }

SortColumns SortScratch(const FusedKernel& f, int64_t n) {
  SortColumns c;
  auto add = [&](PrimitiveType type) {
    c.types.push_back(type);
    c.offsets.push_back(c.bytes);
    c.distances.push_back(RoundUp64(n * ByteWidth(type)));
    c.bytes += 2 * c.distances.back();
  };
  for (const Instruction* o : f.serial->operands()) add(o->shape().element_type());
  if (f.serial->opcode() == Opcode::kTopk) add(PrimitiveType::kS32);
  return c;
}

absl::StatusOr<KernelPlan> MakeSerialPlan(const FusedKernel& f, int vector_bytes) {
  switch (f.serial->opcode()) {
    case Opcode::kScan:
      return ScanPlan(f, vector_bytes);
    case Opcode::kSelectAndScatter:
      return SelectAndScatterPlan(f);
    default:
      return SortPlan(f, vector_bytes);
  }
}

double SerialWork(const FusedKernel& f, double elements) {
  const Instruction& op = *f.serial;
  switch (op.opcode()) {
    case Opcode::kSort:
    case Opcode::kTopk: {
      const double n = static_cast<double>(std::max<int64_t>(SerialExtent(f).constant_or(16), 2));
      return elements * std::log2(n) * 3;
    }
    case Opcode::kSelectAndScatter: {
      double window = 1;
      for (const WindowDim& w : op.attrs().get_or<Window>(Attr::kWindow, {}).dims)
        window *= static_cast<double>(w.size);
      return elements +
             static_cast<double>(op.operand(1)->shape().num_elements().constant_or(0)) * window * 3;
    }
    default:
      return elements * 4;
  }
}

}  // namespace tenon
