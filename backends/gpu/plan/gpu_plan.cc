#include "backends/gpu/plan/gpu_plan.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "backends/codegen/emit/emit_types.h"
#include "backends/codegen/index/contraction_index.h"
#include "backends/codegen/plan/check_plan.h"
#include "backends/codegen/plan/nest_planner.h"
#include "backends/codegen/plan/serial_plan.h"
#include "backends/gpu/plan/attention_tile.h"
#include "backends/gpu/plan/block_product.h"

namespace tenon::gpu {
namespace {

constexpr int kVectorBytes = 16;  // the widest access of a thread
constexpr int64_t kTileBytes = 4;  // of a thread's accesses of a transpose
constexpr int kThreads = 256;
constexpr int kMaxThreads = 1024;
constexpr int kMaxColumnTeam = 16;
constexpr int kHeavyBody = 100;       // instructions an element, above which a thread takes less at once
constexpr int64_t kWarpRow = 8;       // vectors of a row for each thread of a warp, above which a block shares it
constexpr int64_t kBlockVectors = 4;  // vectors for each thread of a block
constexpr int64_t kMaxSortPiece = 2048, kSortElements = 8;  // of a block, of a thread
constexpr int64_t kLeastScanElements = 2, kMaxScanElements = 8;  // of a thread
constexpr int kScanRounds = 4;        // pieces of a row that are read at once
constexpr int64_t kShortScan = 16;    // elements of a row, below which a thread has it
constexpr int64_t kLongScan = 8;      // pieces of a row, above which blocks share it where rows are few
constexpr int kSlice = 16, kMmaSlice = 32;  // terms
constexpr int kFewestStages = 3;            // that hide a copy's time behind the multiplication of others

bool IsWhole(Dim extent, int64_t lanes) { return lanes == 1 || (extent.is_constant() && extent.constant() % lanes == 0); }
int64_t PowerBelow(int64_t n) { return n <= 1 ? 1 : static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n))); }
int64_t PowerAbove(int64_t n) { return n <= 1 ? 1 : static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n))); }

// `use` reads elements side by side along loop `tile`, and apart along the vector loop: at places that these loops alone say, all inside.
bool LiesAcross(const MemoryUse& use, const Iteration& iteration, size_t tile) {
  uint64_t loops = 0;
  for (Index v : iteration.vars) loops |= v->deps;
  if (!use.inside || (use.offset->deps & ~loops) != 0) return false;
  return AccessAlong(use.offset, iteration.vars[tile]->var).kind == Access::Kind::kContiguous &&
         AccessAlong(use.offset, iteration.vars.back()->var).kind == Access::Kind::kStrided;
}

bool IsSort(const FusedKernel& f) {
  return f.serial != nullptr && (f.serial->opcode() == Opcode::kSort || f.serial->opcode() == Opcode::kTopk);
}

// One input and one carry of a row, and a combiner by which any grouping gives the same, but for a sum's rounding. Products round too much,
// and narrow floats.
bool ScansInAnyGrouping(const FusedKernel& f) {
  if (f.serial == nullptr || f.serial->opcode() != Opcode::kScan || !SerialExtent(f).is_constant()) return false;
  const Instruction& op = *f.serial;
  if (op.operand_count() != 2 || op.attrs().get_or<int64_t>(Attr::kNumCarries, 1) != 1) return false;
  if (op.operand(1)->shape().rank() + 1 != op.operand(0)->shape().rank()) return false;
  const Computation& body = *op.to_apply();
  const Instruction* root = body.root();
  if (root->opcode() == Opcode::kTuple) {
    if (root->operand_count() > 2 || root->operand(0) != root->operand(root->operand_count() - 1)) return false;
    root = root->operand(0);
  }
  const PrimitiveType type = op.operand(0)->shape().element_type();
  if (root->operand_count() != 2 || root->shape().element_type() != type || op.operand(1)->shape().element_type() != type) return false;
  const Instruction *x = body.parameter(0), *carry = body.parameter(1), *a = root->operand(0), *b = root->operand(1);
  if (!(a == x && b == carry) && !(a == carry && b == x)) return false;
  switch (root->opcode()) {
    case Opcode::kAdd:
      return IsIntegral(type) || type == PrimitiveType::kF32 || type == PrimitiveType::kF64 || IsHalf(type);
    case Opcode::kMultiply:
      return IsIntegral(type);
    case Opcode::kAnd:
    case Opcode::kOr:
    case Opcode::kXor:
      return true;
    case Opcode::kMaximum:
    case Opcode::kMinimum:
      return !IsComplex(type);
    default:
      return false;
  }
}

class GpuPlanner : public NestPlanner {
 public:
  GpuPlanner(const FusedKernel& fused, const GpuModel& model)
      // Half of the shared memory, so that two blocks fit; teams of a warp share it with others (below).
      : NestPlanner(fused, {kVectorBytes, /*masked_tail=*/false, model.shared_per_block / 2}), model_(model) {}

  absl::StatusOr<std::vector<GpuPlan>> Make() {
    if (IsSort(f_)) return Sort();
    if (ScansInAnyGrouping(f_)) {
      if (std::vector<GpuPlan> plans = Scan(); !plans.empty()) return plans;
    }
    TENON_ASSIGN_OR_RETURN(GpuPlan plan, One());
    return std::vector<GpuPlan>{std::move(plan)};
  }

 private:
  absl::StatusOr<GpuPlan> One() {
    if (f_.serial != nullptr && f_.serial->opcode() != Opcode::kScatter) return Serial();
    if (const std::optional<Attention> attention = AttentionOf(f_)) {
      if (const std::optional<GpuPlan> plan = PlanAttention(f_, *attention, model_)) return *plan;
    }
    OrderLoops();
    MergeLoops();
    ChooseLanes();
    if (f_.serial != nullptr) {
      plan_.kind = PlanKind::kScatter;
      CutScatter();
    } else if (Contraction() != nullptr) {
      PlanContraction();
    } else if (f_.reduces.empty()) {
      PlanElements();
    } else if (plan_.kind == PlanKind::kRow) {
      PlanRow();
    } else {
      PlanColumn();
    }
    gpu_.loops = std::move(plan_);
    return std::move(gpu_);
  }

  int64_t Extent(size_t loop) const { return Typical(plan_.loops[loop].extent); }
  int64_t Iterations(bool reduced) const {
    int64_t n = 1;
    for (const tenon::PlanLoop& l : plan_.loops) {
      if (l.reduced == reduced) n = std::min(n * std::max<int64_t>(Typical(l.extent), 1), int64_t{1} << 40);
    }
    return n;
  }
  // Threads that keep the whole machine busy.
  int64_t Busy() const { return int64_t{model_.sms} * model_.threads_per_sm / 2; }

  // Of halves 16 bytes are eight, though they are twice as many in registers.
  void WidenLanes() {
    int64_t bytes = 0;
    auto see = [&](const Shape& shape) {
      if (f_.RoleOf(shape) == Role::kFull) bytes = std::max<int64_t>(bytes, ByteWidth(shape.element_type()));
    };
    for (const Instruction* op : f_.order) {
      if (op->shape().is_array() && op->opcode() == Opcode::kParameter) see(op->shape());
      if (op->shape().is_array() && IsFullShaped(*op) && StorageBytes(op->shape().element_type()) > 4) return;
    }
    for (size_t r = 0; r < f_.roots.size(); ++r) see(RootShape(f_, r));
    if (bytes == 2 && plan_.lanes == 4 && !VectorExtentBelow(8)) plan_.lanes = 8;
  }

  // Vectors only where there is work for all without them; sizes that are no whole vectors go element by element at their ends.
  void NarrowLanes(int64_t elements) {
    while (plan_.lanes > 1 && elements / plan_.lanes < Busy()) plan_.lanes /= 2;
    if (BodyCost() > kHeavyBody) plan_.lanes = std::min(plan_.lanes, 2);
  }

  absl::StatusOr<GpuPlan> Serial() {
    TENON_ASSIGN_OR_RETURN(gpu_.loops, MakeSerialPlan(f_, /*vector_bytes=*/4));
    if (gpu_.loops.block > 0) gpu_.loops.block = gpu_.loops.lanes = 1;  // a thread has one row of a scan
    gpu_.threads = kThreads / 2;
    return std::move(gpu_);
  }

  // Rows that fit lie in a block's shared memory, beside others where they are short; of longer ones pieces do.
  absl::StatusOr<std::vector<GpuPlan>> Sort() {
    TENON_ASSIGN_OR_RETURN(gpu_.loops, MakeSerialPlan(f_, /*vector_bytes=*/1));
    gpu_.loops.lanes = 1;
    gpu_.loops.scratch_bytes = 0;
    const int64_t n = std::max<int64_t>(SerialExtent(f_).constant(), 1);
    gpu_.piece = std::min(PowerAbove(n), kMaxSortPiece);
    auto share = [&] {
      gpu_.team = static_cast<int>(std::max<int64_t>(gpu_.piece / kSortElements, n <= gpu_.piece ? 1 : kWarp));
      gpu_.threads = n <= gpu_.piece ? std::max(gpu_.team, kThreads / 2) : gpu_.team;
    };
    share();
    while (SharedOf(f_, gpu_).bytes > model_.shared_per_block) {
      if (gpu_.threads > std::max(gpu_.team, kWarp)) {
        gpu_.threads /= 2;  // fewer rows side by side
        continue;
      }
      if (n <= gpu_.piece && gpu_.team < kWarp) {
        gpu_.team *= 2;
        gpu_.piece = std::max<int64_t>(gpu_.piece, gpu_.team);
        continue;
      }
      gpu_.piece /= 2;
      if (gpu_.piece < kWarp) {
        return absl::UnimplementedError(absl::StrCat("GPU: ", std::string(OpcodeName(f_.serial->opcode())), " ", f_.serial->name(),
                                                     ": an element's columns are too wide for a block's shared memory"));
      }
      share();
    }
    if (n <= gpu_.piece) return std::vector<GpuPlan>{std::move(gpu_)};
    std::vector<GpuPlan> plans = {gpu_};
    plans.back().pass = GpuPass::kRuns;
    for (int64_t run = gpu_.piece; run < n; run *= 2) {
      plans.push_back(gpu_);
      plans.back().pass = 2 * run < n ? GpuPass::kMerge : GpuPass::kLast;
    }
    return plans;
  }

  // A team for each row where threads of their own would not be busy, or would read rows that lie side by side element by element.
  std::vector<GpuPlan> Scan() {
    const int64_t n = SerialExtent(f_).constant();
    absl::StatusOr<KernelPlan> serial = MakeSerialPlan(f_, /*vector_bytes=*/4);
    if (!serial.ok() || n < kShortScan) return {};
    gpu_.loops = *std::move(serial);
    absl::c_stable_sort(gpu_.loops.loops, [](const tenon::PlanLoop& a, const tenon::PlanLoop& b) {
      return std::pair(a.reduced, a.dims[0]) < std::pair(b.reduced, b.dims[0]);
    });
    gpu_.loops.split = static_cast<int>(gpu_.loops.loops.size()) - 1;
    gpu_.loops.block = 0;
    gpu_.loops.lanes = 1;
    const size_t dim = static_cast<size_t>(gpu_.loops.loops.back().dims[0]);
    const auto along = [&](const OperandLayout& r) { return r.strides.size() > dim && r.strides[dim] == Dim(1); };
    const bool fastest = absl::c_any_of(f_.results, along);
    int64_t rows = 1;
    for (int i = 0; i < gpu_.loops.split; ++i) rows *= std::max<int64_t>(Typical(gpu_.loops.loops[static_cast<size_t>(i)].extent), 1);
    if (!fastest && rows >= Busy() / 8) return {};
    const int64_t vector = std::clamp<int64_t>(kVectorBytes / WidestInMemory(), kLeastScanElements, kMaxScanElements);
    const int64_t elements = BodyCost() > kHeavyBody ? kLeastScanElements : vector;
    const int64_t shares = (n + elements - 1) / elements;  // 16 bytes of the widest type
    int64_t team = std::min<int64_t>(PowerAbove(shares), shares > kWarp * kWarpRow ? kThreads : kWarp);
    while (team < kThreads && team < shares && rows * team < Busy()) team *= 2;
    gpu_.team = static_cast<int>(team);
    gpu_.threads = gpu_.team > kWarp ? gpu_.team : kThreads / 2;
    gpu_.piece = gpu_.team * elements;
    if (n < kLongScan * gpu_.piece || rows * gpu_.team >= Busy()) {
      const int64_t rounds = (n + gpu_.piece - 1) / gpu_.piece;
      gpu_.loops.unroll = OnScalars(f_) || BodyCost() > kHeavyBody ? 1 : kScanRounds;
      while (rounds % gpu_.loops.unroll != 0) --gpu_.loops.unroll;
      return {gpu_};
    }
    std::vector<GpuPlan> plans(3, gpu_);
    plans[0].pass = GpuPass::kTotals;
    plans[1].pass = GpuPass::kCarries;
    plans[2].pass = GpuPass::kCarried;
    return plans;
  }

  // Bytes of an element of operands and results of the full shape.
  int64_t WidestInMemory() const {
    int64_t bytes = 1;
    auto see = [&](const Shape& shape) {
      if (shape.is_array() && f_.RoleOf(shape) == Role::kFull) bytes = std::max<int64_t>(bytes, ByteWidth(shape.element_type()));
    };
    for (const Instruction* p : f_.computation->parameters()) see(p->shape());
    for (size_t r = 0; r < f_.roots.size(); ++r) see(RootShape(f_, r));
    return bytes;
  }

  // Some operand lies across the result: squares of both.
  bool PlanTranspose() {
    if (plan_.loops.size() < 2 || OnScalars(f_) || VectorExtentBelow(kTile / 2)) return false;
    IndexSpace space;
    Iteration iteration(space, f_, plan_.loops);
    std::optional<size_t> tile;
    for (const MemoryUse& use : TraceAccesses(space, f_, iteration).uses) {
      if (use.store && AccessAlong(use.offset, iteration.vars.back()->var).kind != Access::Kind::kContiguous) return false;
      for (size_t i = 0; i + 1 < plan_.loops.size() && !use.store && !tile; ++i) {
        if (LiesAcross(use, iteration, i) && plan_.loops[i].extent.constant_or(kTile) >= kTile / 2) tile = i;
      }
    }
    if (!tile) return false;
    tenon::PlanLoop loop = plan_.loops[*tile];
    plan_.loops.erase(plan_.loops.begin() + static_cast<std::ptrdiff_t>(*tile));
    plan_.loops.insert(plan_.loops.end() - 1, std::move(loop));
    plan_.kind = PlanKind::kTranspose;
    plan_.tile_loop = static_cast<int>(plan_.loops.size()) - 2;
    plan_.split = plan_.tile_loop;
    plan_.lanes = static_cast<int>(std::max<int64_t>(1, kTileBytes / WidestInMemory()));
    const Dim u = plan_.loops[static_cast<size_t>(plan_.tile_loop)].extent, v = plan_.loops.back().extent;
    auto fits = [&] {
      plan_.block = kTile * plan_.lanes;
      gpu_.loops = plan_;
      return IsWhole(u, plan_.lanes) && IsWhole(v, plan_.lanes) && Typical(GpuUnits(gpu_)) >= model_.sms;
    };
    while (!fits() && plan_.lanes > 1) plan_.lanes /= 2;
    gpu_.threads = kThreads;
    if (SharedOf(f_, gpu_).bytes <= model_.shared_per_block) return true;
    plan_.tile_loop = -1;
    return false;
  }

  void PlanElements() {
    plan_.kind = PlanKind::kLoop;
    if (PlanTranspose()) return;
    WidenLanes();
    NarrowLanes(Iterations(false));
    if (plan_.loops.empty()) plan_.lanes = 1;
    plan_.split = std::max(0, static_cast<int>(plan_.loops.size()) - 1);
    plan_.block = plan_.loops.empty() ? 0 : plan_.lanes;
    gpu_.threads = kThreads;
  }

  void PlanRow() {
    plan_.split = static_cast<int>(absl::c_count_if(plan_.loops, [](const tenon::PlanLoop& l) { return !l.reduced; }));
    const int64_t n = std::max<int64_t>(Extent(plan_.loops.size() - 1), 1), rows = Iterations(false);
    while (plan_.lanes > 1 && n < 2 * plan_.lanes) plan_.lanes /= 2;
    if (ReducesParts()) plan_.lanes = std::min(plan_.lanes, 4);
    const int64_t vectors = (n + plan_.lanes - 1) / plan_.lanes;
    int64_t team = std::min<int64_t>(kWarp, PowerAbove(vectors));
    if (vectors > kWarp * kWarpRow) team = std::clamp<int64_t>(PowerAbove(vectors / kBlockVectors), 2 * kWarp, kRowThreads);
    // Few rows: more threads for each, while each has a vector.
    while (team < kMaxThreads && rows * team < Busy() && 2 * team <= vectors) team *= 2;
    gpu_.team = static_cast<int>(team);
    gpu_.threads = static_cast<int>(team > kWarp ? team : kThreads / 2);
    plan_.unroll = BodyCost() > kHeavyBody ? 1 : 4;
    while (plan_.unroll > 1 && plan_.unroll * team * plan_.lanes > n) plan_.unroll /= 2;
    if (team > kWarp) {
      numbers_.keeps_reads = true;
      numbers_.max_kept_bytes = std::min(MostKeptBytes(model_), model_.shared_per_sm * 2 * team / model_.threads_per_sm);
    }
    MakePhases();
    // All teams of the block keep their rows side by side.
    gpu_.loops = plan_;
    while (gpu_.threads > kWarp && gpu_.threads > gpu_.team && SharedOf(f_, gpu_).bytes > model_.shared_per_block) gpu_.threads /= 2;
    if (SharedOf(f_, gpu_).bytes > model_.shared_per_block) {
      for (PlanPhase& p : plan_.phases) p.kept.clear();  // computed again
      plan_.scratch_bytes = 0;
    }
  }

  void PlanColumn() {
    const int64_t columns = Iterations(false);
    const Dim last = plan_.loops.back().extent;
    // Threads outside of the columns take part, so vectors must be whole.
    if (!last.is_constant())
      plan_.lanes = 1;
    else
      while (plan_.lanes > 1 && last.constant() % plan_.lanes != 0) plan_.lanes /= 2;
    while (plan_.lanes > 1 && columns / plan_.lanes * kMaxColumnTeam < Busy()) plan_.lanes /= 2;
    if (BodyCost() > kHeavyBody) plan_.lanes = std::min(plan_.lanes, 2);
    plan_.split = static_cast<int>(absl::c_count_if(plan_.loops, [](const tenon::PlanLoop& l) { return !l.reduced; })) - 1;
    plan_.block = int64_t{kWarp} * plan_.lanes;
    const int64_t rows = std::max<int64_t>(Extent(plan_.loops.size() - 2), 1);
    gpu_.team = static_cast<int>(std::min<int64_t>(kMaxColumnTeam, PowerBelow(rows)));
    plan_.unroll = BodyCost() > kHeavyBody ? 1 : 4;
    while (plan_.unroll > 1 && plan_.unroll * gpu_.team > rows) plan_.unroll /= 2;
    MakePhases();
    gpu_.loops = plan_;
    gpu_.threads = kWarp * gpu_.team;
    while (gpu_.team > 1 && SharedOf(f_, gpu_).bytes > model_.shared_per_block) {
      gpu_.team /= 2;
      gpu_.threads /= 2;
    }
  }

  // Of elements smaller than a byte: LLVM halves vectors of more than four of them by way of local memory.
  bool ReducesParts() const {
    return absl::c_any_of(f_.reduces, [](const Instruction* r) {
      const PrimitiveType type = r->operand(0)->shape().element_type();
      return type != PrimitiveType::kPred && BitWidth(type) < 8;
    });
  }

  // Loop `i` next to the last.
  std::vector<tenon::PlanLoop> WithTileLoop(size_t i) const {
    std::vector<tenon::PlanLoop> loops = plan_.loops;
    tenon::PlanLoop loop = loops[i];
    loops.erase(loops.begin() + static_cast<std::ptrdiff_t>(i));
    loops.insert(loops.end() - 1, std::move(loop));
    return loops;
  }

  // Tiles of blocks: the largest of which there is one for each multiprocessor, and that are not mostly empty.
  bool PlanTiles() {
    std::optional<size_t> tile;
    for (size_t i = 0; i + 1 < plan_.loops.size(); ++i) {
      if ((!tile || Extent(i) >= Extent(*tile)) && BlockProductOf(f_, WithTileLoop(i))) tile = i;
    }
    if (!tile) return false;
    const int64_t rows = Extent(*tile), columns = Extent(plan_.loops.size() - 1);
    std::vector<tenon::PlanLoop> loops = WithTileLoop(*tile);
    const BlockProduct product = *BlockProductOf(f_, loops);
    int64_t terms = 1;
    for (Dim d : SummedExtents(*product.op)) terms *= std::max<int64_t>(Typical(d), 1);
    if (std::min({rows, columns, terms}) < kFewest) return false;
    const KernelPlan before = std::exchange(plan_, {});
    gpu_.mma = model_.bf16_flops_per_ns > 0 && HalvesOf(f_, product).has_value();
    gpu_.slice = gpu_.mma ? kMmaSlice : kSlice;
    plan_.kind = PlanKind::kContraction;
    plan_.loops = std::move(loops);
    plan_.split = plan_.tile_loop = static_cast<int>(plan_.loops.size()) - 2;
    plan_.rows = gpu_.mma ? 4 * kTile : 2 * kTile;
    const bool staged = gpu_.mma && LieAsVectors(f_, plan_.loops, product);
    gpu_.stages = staged ? kFewestStages : 1;
    plan_.block = staged ? 4 * kTile : 2 * kTile;
    plan_.lanes = kThreadColumns;
    plan_.unroll = kThreadRows;
    const int64_t others = Iterations(false) / (rows * columns);
    auto blocks = [&] { return others * ((rows + plan_.rows - 1) / plan_.rows) * ((columns + plan_.block - 1) / plan_.block); };
    auto fits = [&] {
      gpu_.loops = plan_;
      return SharedOf(f_, gpu_).bytes <= MostShared(gpu_, model_);
    };
    while (plan_.rows > kTile && plan_.rows / 2 >= rows) plan_.rows /= 2;
    while (plan_.block > kTile && plan_.block / 2 >= columns) plan_.block /= 2;
    while (plan_.rows * plan_.block > kTile * kTile && (blocks() < model_.sms || !fits())) {
      (plan_.rows >= plan_.block ? plan_.rows : plan_.block) /= 2;
    }
    // Larger parts for warps read less of shared memory for each sum, where there are eight for a multiprocessor all the same.
    const int64_t wide_warps = plan_.rows * plan_.block / (2 * kTile * kTile);
    const bool wide = staged && plan_.rows >= 2 * kTile && wide_warps * (blocks() / model_.sms) >= 8;
    gpu_.threads = gpu_.team = static_cast<int>(plan_.rows * plan_.block / (kThreadRows * kThreadColumns * (wide ? 2 : 1)));
    if (staged) {
      // As many as there is room for, beside the other blocks of a multiprocessor.
      const int64_t stage = SliceBytes(gpu_, plan_.rows, PrimitiveType::kF32) + SliceBytes(gpu_, plan_.block, PrimitiveType::kF32);
      const int64_t room = model_.shared_per_sm / ((blocks() + model_.sms - 1) / model_.sms);
      const int64_t most = gpu_.threads >= kThreads ? kFewestStages + 1 : kFewestStages;
      gpu_.stages = static_cast<int>(std::clamp<int64_t>(room / stage, most, kMaxStages));
      while (gpu_.stages > 1 && !fits()) --gpu_.stages;
    }
    if (fits()) return true;
    gpu_ = {};
    plan_ = before;
    return false;
  }

  // A tile of up to four rows by one vector of columns for each thread.
  void PlanContraction() {
    if (PlanTiles()) return;
    ContractionNest();
    plan_.block = plan_.lanes;
    if (plan_.tile_loop < 0) return;
    const int64_t rows = Extent(static_cast<size_t>(plan_.tile_loop));
    plan_.unroll = static_cast<int>(std::min<int64_t>(4, PowerBelow(rows)));
    plan_.rows = plan_.unroll;
    if (plan_.loops[static_cast<size_t>(plan_.tile_loop)].extent.constant_or(INT64_MAX) <= plan_.rows) plan_.rows = 0;
    gpu_.threads = kThreads / 2;
  }

  const GpuModel& model_;
  GpuPlan gpu_;
};

// Bytes of one thread's partial results of a reduction that its team exchanges.
int64_t ExchangeBytes(const FusedKernel& f) {
  int64_t most = 0;
  for (const Instruction* r : f.reduces) {
    int64_t bytes = 0;
    for (int64_t k = 0; k < r->operand_count() / 2; ++k) {
      // In registers; sums may have totals in f64.
      bytes += std::max<int64_t>(8, 2 * StorageBytes(r->operand(k)->shape().element_type()));
    }
    most = std::max(most, bytes);
  }
  return most;
}

}  // namespace

int64_t TileBytes(const KernelPlan& plan, const Instruction& parameter) {
  return (plan.block * plan.lanes * kTileRow * ByteWidth(parameter.shape().element_type()) + 15) / 16 * 16;
}

std::vector<MemoryUse> TurnedUses(IndexSpace& space, const FusedKernel& fused, const KernelPlan& plan, const Iteration& iteration) {
  std::vector<MemoryUse> turned;
  for (const MemoryUse& use : TraceAccesses(space, fused, iteration).uses) {
    const bool known = absl::c_any_of(turned, [&](const MemoryUse& t) { return t.op == use.op && t.offset == use.offset; });
    if (!use.store && !known && LiesAcross(use, iteration, static_cast<size_t>(plan.tile_loop))) turned.push_back(use);
  }
  return turned;
}

int64_t SliceBytes(const GpuPlan& plan, int64_t size, PrimitiveType type) {
  const int64_t bytes = plan.mma ? 2 : StorageBytes(type), terms = plan.slice;
  return std::max(terms * (size * bytes + SliceGap(bytes)), plan.mma ? size * (terms * bytes + SliceGap(bytes)) : 0);
}

Dim GpuUnits(const GpuPlan& plan) {
  const Dim units = UnitsOf(plan.loops);
  if (plan.loops.kind == PlanKind::kTranspose) return units * CeilDiv(plan.loops.loops.back().extent, plan.loops.block);
  // The last loop of rows in pieces is the row.
  return !plan.in_pieces() ? units : units * CeilDiv(plan.loops.loops.back().extent, plan.piece);
}

int64_t MostShared(const GpuPlan& plan, const GpuModel& model) { return plan.stages > 1 ? model.shared_opt_in : model.shared_per_block; }

SharedLayout SharedOf(const FusedKernel& fused, const GpuPlan& plan) {
  SharedLayout shared;
  if (plan.slice > 0) {  // the slices, then in their place the sums
    const Instruction* product = *absl::c_find_if(fused.order, [](const Instruction* op) { return IsContraction(*op); });
    const PrimitiveType type = product->shape().element_type();
    const int64_t slices = plan.stages * (SliceBytes(plan, plan.loops.rows, type) + SliceBytes(plan, plan.loops.block, type));
    shared.kept = shared.exchange = std::max(slices, plan.loops.rows * (plan.loops.block * StorageBytes(type) + kSumGap));
  }
  if (plan.loops.kind == PlanKind::kAttention) shared.kept = shared.exchange = AttentionTileOf(fused, plan).bytes;
  if (plan.loops.kind == PlanKind::kRow) {
    shared.kept = plan.loops.scratch_bytes;
    shared.exchange = shared.kept * plan.units_per_block();
  }
  if (plan.loops.kind == PlanKind::kSort && !plan.merges()) {
    shared.kept = SortScratch(fused, plan.piece).bytes;
    shared.exchange = shared.kept * plan.units_per_block();
  }
  shared.bytes = shared.exchange;
  if (!plan.has_barriers() || plan.loops.kind == PlanKind::kSort || plan.slice > 0) return shared;
  if (plan.loops.kind == PlanKind::kAttention) return shared;
  if (plan.loops.kind == PlanKind::kScan) {
    shared.bytes += plan.threads / kWarp * std::max<int64_t>(8, StorageBytes(fused.serial->operand(0)->shape().element_type()));
    return shared;
  }
  if (plan.loops.kind == PlanKind::kTranspose) {
    IndexSpace space;
    const Iteration iteration(space, fused, plan.loops.loops);
    for (const MemoryUse& use : TurnedUses(space, fused, plan.loops, iteration)) shared.bytes += TileBytes(plan.loops, *use.op);
    return shared;
  }
  const int64_t slots = plan.loops.kind == PlanKind::kColumn ? int64_t{plan.threads} * plan.loops.lanes : plan.threads / kWarp;
  shared.bytes += slots * ExchangeBytes(fused);
  return shared;
}

namespace {

constexpr std::string_view kPasses[] = {"whole", "runs", "merge", "last", "totals", "carries", "carried"};

absl::StatusOr<GpuPlan> ParseGpuPlan(std::string_view text, DimTable* dims) {
  GpuPlan plan;
  // The word that begins with `name`, without that; nothing if the text goes on otherwise.
  auto word = [&text](std::string_view name) -> std::optional<std::string> {
    const size_t end = text.find(' ');
    if (!text.starts_with(name) || end == std::string_view::npos) return std::nullopt;
    const std::string found(text.substr(name.size(), end - name.size()));
    text.remove_prefix(end + 1);
    return found;
  };
  auto wrong = [&text](std::string_view wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat("GPU plan: wanted \"", std::string(wanted), "\", got \"", std::string(text.substr(0, 20)), "\""));
  };
  for (auto [name, number] : {std::pair{"threads=", &plan.threads}, std::pair{"team=", &plan.team}}) {
    const std::optional<std::string> given = word(name);
    if (!given || !absl::SimpleAtoi(*given, number)) return wrong(absl::StrCat(name, "<number>"));
  }
  if (const std::optional<std::string> slice = word("slice="); slice && !absl::SimpleAtoi(*slice, &plan.slice)) {
    return wrong("slice=<number>");
  }
  if (constexpr std::string_view kMma = "mma "; text.starts_with(kMma)) {
    plan.mma = true;
    text.remove_prefix(kMma.size());
  }
  if (const std::optional<std::string> stages = word("stages="); stages && !absl::SimpleAtoi(*stages, &plan.stages)) {
    return wrong("stages=<number>");
  }
  if (const std::optional<std::string> piece = word("piece="); piece && !absl::SimpleAtoi(*piece, &plan.piece)) {
    return wrong("piece=<number>");
  }
  if (const std::optional<std::string> pass = word("pass=")) {
    const auto known = absl::c_find(kPasses, *pass);
    if (known == std::end(kPasses)) return wrong("pass=<runs, merge, ...>");
    plan.pass = static_cast<GpuPass>(known - std::begin(kPasses));
  }
  TENON_ASSIGN_OR_RETURN(plan.loops, ParseKernelPlan(text, dims));
  return plan;
}

}  // namespace

std::string ToString(const GpuPlan& plan) {
  std::string text = absl::StrCat("threads=", plan.threads, " team=", plan.team, " ");
  if (plan.slice > 0) absl::StrAppend(&text, "slice=", plan.slice, " ");
  if (plan.mma) absl::StrAppend(&text, "mma ");
  if (plan.stages != 1) absl::StrAppend(&text, "stages=", plan.stages, " ");
  if (plan.piece > 0) absl::StrAppend(&text, "piece=", plan.piece, " ");
  if (plan.pass != GpuPass::kWhole) absl::StrAppend(&text, "pass=", std::string(kPasses[static_cast<size_t>(plan.pass)]), " ");
  return text + ToString(plan.loops);
}

absl::StatusOr<std::vector<GpuPlan>> ParseGpuPlans(std::string_view text, DimTable* dims) {
  std::vector<GpuPlan> plans;
  for (const auto& line : absl::StrSplit(std::string(text), '\n')) {
    TENON_ASSIGN_OR_RETURN(GpuPlan plan, ParseGpuPlan(std::string(line), dims));
    plans.push_back(std::move(plan));
  }
  return plans;
}

absl::StatusOr<std::vector<GpuPlan>> MakeGpuPlans(const FusedKernel& fused, const GpuModel& model) {
  TENON_ASSIGN_OR_RETURN(std::vector<GpuPlan> plans, GpuPlanner(fused, model).Make());
  TENON_RETURN_IF_ERROR(CheckGpuPlans(fused, plans, model));
  return plans;
}

SortTemporary SortTemporaryOf(const FusedKernel& fused) {
  SortTemporary t;
  Dim elements = 1;
  for (const Dim d : fused.dims) elements *= d;
  for (const PrimitiveType type : SortScratch(fused, 1).types) {
    t.offsets.push_back(t.bytes);
    t.bytes += CeilDiv(elements * ByteWidth(type), 64) * 64;
  }
  return t;
}

Dim TemporaryBytes(const FusedKernel& fused, const GpuPlan& plan) {
  if (plan.loops.kind == PlanKind::kSort) return SortTemporaryOf(fused).bytes;
  return UnitsOf(plan.loops) * CeilDiv(SerialExtent(fused), plan.piece) *
         StorageBytes(fused.serial->operand(0)->shape().element_type());
}

GpuLaunches LaunchesOf(const FusedKernel& fused, absl::Span<const GpuPlan> plans) {
  using Kind = Launches::Memory::Kind;
  auto all = [](Kind kind, size_t count) {
    std::vector<Launches::Memory> memory;
    for (size_t i = 0; i < count; ++i) memory.push_back({kind, static_cast<int64_t>(i)});
    return memory;
  };
  GpuLaunches made;
  for (const GpuPlan& plan : plans) {
    GpuLaunch launch{plan, all(Kind::kOperand, fused.operands.size()), all(Kind::kResult, fused.results.size())};
    // Of a sort's two temporaries: the launch before has written `from`.
    const int64_t merges = static_cast<int64_t>(made.launches.size()) - 1, from = merges % 2;
    if (plan.merges()) {
      launch.reads = {{Kind::kTemporary, from}};
      launch.numbers = {static_cast<uint64_t>(plan.piece << merges)};
    }
    if (plan.pass == GpuPass::kRuns) launch.writes = {{Kind::kTemporary, 0}};
    if (plan.pass == GpuPass::kMerge) launch.writes = {{Kind::kTemporary, 1 - from}};
    // Of a scan's: the first has totals, the second what is carried.
    if (plan.pass == GpuPass::kTotals) launch.writes = {{Kind::kTemporary, 0}};
    if (plan.pass == GpuPass::kCarries) {
      launch.reads.push_back({Kind::kTemporary, 0});
      launch.writes = {{Kind::kTemporary, 1}};
    }
    if (plan.pass == GpuPass::kCarried) launch.reads.push_back({Kind::kTemporary, 1});
    made.launches.push_back(std::move(launch));
  }
  if (plans.size() > 1) made.temporaries.assign(plans.size() > 2 ? 2 : 1, TemporaryBytes(fused, plans[0]));
  return made;
}

namespace {

// What is wrong with a contraction's tiles; "": nothing.
std::string_view WrongTiles(const FusedKernel& fused, const GpuPlan& plan, const GpuModel& model) {
  const KernelPlan& loops = plan.loops;
  if (plan.slice == 0) return plan.mma || plan.stages != 1 ? "tensor cores without slices" : "";
  const std::optional<BlockProduct> product = BlockProductOf(fused, loops.loops);
  if (!product) return "a contraction that blocks cannot compute";
  auto power = [](int64_t n, int64_t least, int64_t most) {
    return n >= least && n <= most && std::has_single_bit(static_cast<uint64_t>(n));
  };
  if (loops.tile_loop < 0 || loops.lanes != kThreadColumns || loops.unroll != kThreadRows) return "not a thread's part of a tile";
  if (!power(loops.rows, kTile, 8 * kTile) || !power(loops.block, kTile, 8 * kTile)) return "a tile whose sides are not 32 to 256";
  if (!power(plan.slice, kMmaTerms, 2 * kMmaTerms)) return "a slice that is not 16 or 32 terms";
  const int64_t part = loops.rows * loops.block / plan.threads, least = kThreadRows * kThreadColumns;
  if (plan.team != plan.threads || (part != least && !(plan.mma && part == 2 * least && loops.rows >= 2 * kTile))) {
    return "a block that is not a thread for each 32 elements of a tile, or 64 of tensor cores";
  }
  if (plan.stages < 1 || plan.stages > kMaxStages) return "no stages, or more stages than 8";
  if (plan.stages > 1 && !plan.mma) return "stages of what no tensor cores multiply";
  if (!plan.mma) return "";
  if (model.bf16_flops_per_ns <= 0) return "no tensor cores that sum halves in f32";
  return HalvesOf(fused, *product) ? "" : "tensor cores for what are no halves in memory";
}

// One launch, by itself.
absl::Status CheckGpuPlan(const FusedKernel& fused, const GpuPlan& plan, const GpuModel& model) {
  const KernelPlan& loops = plan.loops;
  auto bad = [&](std::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("GPU plan: ", std::string(what), ": ", ToString(plan)));
  };
  TENON_RETURN_IF_ERROR(CheckPlan(fused, loops, /*own_scratch=*/false));
  auto power = [](int n) { return n > 0 && std::has_single_bit(static_cast<unsigned>(n)); };
  if (!power(plan.threads) || plan.threads < kWarp || plan.threads > kMaxThreads)
    return bad("no block of 32 to 1024 threads, a power of two");
  if (!power(plan.team) || plan.team > plan.threads) return bad("no team of some threads of a block, a power of two");
  if (loops.lanes > kVectorBytes || loops.masked_tail) return bad("vectors wider than a thread's, or with masks");
  const bool pieces = plan.piece >= plan.team && std::has_single_bit(static_cast<uint64_t>(plan.piece));
  const int kept = static_cast<int>(absl::c_count_if(loops.loops, [](const tenon::PlanLoop& l) { return !l.reduced; }));
  switch (loops.kind) {
    case PlanKind::kLoop:
      if (loops.rows != 0 || loops.unroll != 1) return bad("iterations together");
      if (loops.split != std::max(0, static_cast<int>(loops.loops.size()) - 1)) return bad("a loop that is no unit's");
      if (loops.block != (loops.loops.empty() ? 0 : loops.lanes)) return bad("a unit that is not one vector");
      break;
    case PlanKind::kTranspose:
      if (loops.tile_loop != static_cast<int>(loops.loops.size()) - 2 || loops.split != loops.tile_loop)
        return bad("a loop that is no unit's");
      if (loops.block != kTile * loops.lanes || loops.unroll != 1) return bad("a unit that is not a square");
      if (loops.lanes > 1 && !IsWhole(loops.loops.back().extent, loops.lanes)) return bad("rows that are no whole vectors");
      if (loops.lanes > 1 && !IsWhole(loops.loops[static_cast<size_t>(loops.tile_loop)].extent, loops.lanes)) {
        return bad("columns that are no whole vectors");
      }
      if (plan.threads % kTile != 0 || plan.threads > kTile * kTile) return bad("no block of some of a square's rows");
      break;
    case PlanKind::kRow:
      if (loops.split != kept) return bad("a row is a unit");
      if (absl::c_any_of(loops.phases, [](const PlanPhase& p) { return !p.lent.empty(); })) return bad("a root that lends its memory");
      if (plan.team > kWarp && plan.team != plan.threads) return bad("a team of some warps that is not the block");
      break;
    case PlanKind::kColumn:
      if (loops.split != kept - 1 || loops.block != int64_t{kWarp} * loops.lanes) return bad("a unit that is not 32 vectors of columns");
      if (plan.threads != kWarp * plan.team) return bad("a block that is not the team");
      if (loops.lanes > 1 && loops.loops.back().extent.constant_or(1) % loops.lanes != 0) return bad("columns that are no whole vectors");
      if (!power(loops.unroll)) return bad("rows at once that are no power of two");
      break;
    case PlanKind::kContraction:
      if (loops.packed) return bad("packed operands");
      if (const std::string_view wrong = WrongTiles(fused, plan, model); !wrong.empty()) return bad(wrong);
      break;
    case PlanKind::kAttention:
      if (const std::string_view wrong = WrongAttention(fused, plan, model); !wrong.empty()) return bad(wrong);
      break;
    case PlanKind::kScatter:
    case PlanKind::kSelectAndScatter:
      break;
    case PlanKind::kScan:
      if (loops.block > 1) return bad("rows of a scan side by side");
      if (plan.team == 1 || plan.in_pieces() || plan.pass == GpuPass::kCarries) {
        if (loops.unroll != 1) return bad("pieces at once of what is no team's row");
        if (plan.team == 1) break;
      }
      if (!ScansInAnyGrouping(fused)) return bad("a team for a scan that goes step by step");
      if (loops.loops.empty() || !loops.loops.back().reduced) return bad("a team for what is no row");
      if (!pieces || plan.piece > plan.team * kMaxScanElements) return bad("no piece of a row for a team");
      if (plan.team > kWarp && plan.team != plan.threads) return bad("a team of some warps that is not the block");
      break;
    case PlanKind::kSort:
      if (!SerialExtent(fused).is_constant()) return bad("a row of unknown size");
      if (loops.lanes > 1 || loops.unroll > 1) return bad("vectors of a sort");
      if (!pieces) return bad("no piece of a row for a team");
      if (plan.pass == GpuPass::kWhole ? SerialExtent(fused).constant() > plan.piece : plan.team != plan.threads) {
        return bad("rows that no team has");
      }
      break;
    default:
      return bad("a kind that GPUs don't have");
  }
  const bool scan = loops.kind == PlanKind::kScan && plan.team > 1;
  if (loops.kind != PlanKind::kSort && !scan && (plan.piece != 0 || plan.pass != GpuPass::kWhole)) {
    return bad("pieces of what is no sort and no scan of a team");
  }
  const bool multiplies = loops.kind == PlanKind::kContraction || loops.kind == PlanKind::kAttention;
  const bool slices = (plan.slice != 0 && loops.kind != PlanKind::kContraction) || (plan.stages != 1 && !multiplies);
  if (slices || (plan.mma && !multiplies)) return bad("slices of what is no contraction");
  const bool rows = loops.kind == PlanKind::kRow || loops.kind == PlanKind::kColumn || loops.kind == PlanKind::kSort;
  const bool teams = rows || scan || plan.slice > 0 || loops.kind == PlanKind::kAttention;
  if (!teams && plan.team != 1) return bad("a team for what one thread computes");
  if (const int64_t bytes = SharedOf(fused, plan).bytes, most = MostShared(plan, model); bytes > most) {
    return bad(absl::StrCat(bytes, " bytes of shared memory, a block of ", model.name, " has ", most));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckGpuPlans(const FusedKernel& fused, absl::Span<const GpuPlan> plans, const GpuModel& model) {
  for (const GpuPlan& plan : plans) TENON_RETURN_IF_ERROR(CheckGpuPlan(fused, plan, model));
  const GpuPlan& first = plans.front();
  auto bad = [&](std::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("GPU plans: ", std::string(what), ": ", ToString(first)));
  };
  if (plans.size() == 1) return first.pass == GpuPass::kWhole ? absl::OkStatus() : bad("one launch of several");
  if (first.loops.kind == PlanKind::kScan) {
    constexpr GpuPass kScan[] = {GpuPass::kTotals, GpuPass::kCarries, GpuPass::kCarried};
    if (!absl::c_equal(plans, kScan, [](const GpuPlan& plan, GpuPass pass) { return plan.pass == pass; })) {
      return bad("launches that are not totals, their scan, and the scan from there");
    }
    for (const GpuPlan& plan : plans) {
      if (plan.piece != first.piece) return bad("pieces of different sizes");
    }
    return absl::OkStatus();
  }
  // Each merge doubles the runs, until two make the row.
  int64_t run = first.piece;
  if (first.pass != GpuPass::kRuns) return bad("a first launch that does not sort runs");
  const int64_t n = SerialExtent(fused).constant();
  for (size_t i = 1; i < plans.size(); ++i, run *= 2) {
    if (run >= n) return bad("merges of what is one run");
    if (plans[i].pass != (2 * run < n ? GpuPass::kMerge : GpuPass::kLast)) return bad("a launch that is not the merge that is next");
    if (plans[i].piece != first.piece) return bad("pieces of different sizes");
  }
  return run >= n ? absl::OkStatus() : bad("runs that are not merged");
}

}  // namespace tenon::gpu
