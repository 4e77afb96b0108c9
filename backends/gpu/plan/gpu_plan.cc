#include "backends/gpu/plan/gpu_plan.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "backends/codegen/emit/emit_types.h"
#include "backends/codegen/index/contraction_index.h"
#include "backends/codegen/plan/check_plan.h"
#include "backends/codegen/plan/nest_planner.h"
#include "backends/codegen/plan/serial_plan.h"
#include "backends/gpu/plan/block_product.h"

namespace tenon::gpu {
namespace {

constexpr int kVectorBytes = 16;  // the widest access of a thread
constexpr int kThreads = 256;
constexpr int kMaxThreads = 1024;
constexpr int kMaxColumnTeam = 16;
constexpr int kHeavyBody = 100;       // instructions an element, above which a thread takes less at once
constexpr int64_t kWarpRow = 8;       // vectors of a row for each thread of a warp, above which a block shares it
constexpr int64_t kBlockVectors = 4;  // vectors for each thread of a block
constexpr int kSlice = 16, kMmaSlice = 32;  // terms

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

class GpuPlanner : public NestPlanner {
 public:
  GpuPlanner(const FusedKernel& fused, const GpuModel& model)
      // Half of the shared memory, so that two blocks fit; teams of a warp share it with others (below).
      : NestPlanner(fused, {kVectorBytes, /*masked_tail=*/false, model.shared_per_block / 2}), model_(model) {}

  absl::StatusOr<GpuPlan> Make() {
    if (f_.serial != nullptr && f_.serial->opcode() != Opcode::kScatter) return Serial();
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

 private:
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

  // Vectors only where there is work for all without them; sizes that are no whole vectors go element by element at their ends.
  void NarrowLanes(int64_t elements) {
    while (plan_.lanes > 1 && elements / plan_.lanes < Busy()) plan_.lanes /= 2;
    if (BodyCost() > kHeavyBody) plan_.lanes = std::min(plan_.lanes, 2);
  }

  absl::StatusOr<GpuPlan> Serial() {
    if (f_.serial->opcode() == Opcode::kSort || f_.serial->opcode() == Opcode::kTopk) {
      return absl::UnimplementedError(absl::StrCat("GPU: no plan for ", std::string(OpcodeName(f_.serial->opcode()))));
    }
    TENON_ASSIGN_OR_RETURN(gpu_.loops, MakeSerialPlan(f_, /*vector_bytes=*/4));
    if (gpu_.loops.block > 0) gpu_.loops.block = gpu_.loops.lanes = 1;  // a thread has one row of a scan
    gpu_.threads = kThreads / 2;
    return std::move(gpu_);
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
    plan_.block = kTile;
    plan_.lanes = 1;
    gpu_.loops = plan_;
    gpu_.threads = kThreads;
    if (SharedOf(f_, gpu_).bytes <= model_.shared_per_block) return true;
    plan_.tile_loop = -1;
    return false;
  }

  void PlanElements() {
    plan_.kind = PlanKind::kLoop;
    if (PlanTranspose()) return;
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
    if (vectors > kWarp * kWarpRow) team = std::clamp<int64_t>(PowerAbove(vectors / kBlockVectors), 2 * kWarp, kMaxThreads / 2);
    // Few rows: more threads for each, while each has a vector.
    while (team < kMaxThreads && rows * team < Busy() && 2 * team <= vectors) team *= 2;
    gpu_.team = static_cast<int>(team);
    gpu_.threads = static_cast<int>(team > kWarp ? team : kThreads / 2);
    plan_.unroll = BodyCost() > kHeavyBody ? 1 : 4;
    while (plan_.unroll > 1 && plan_.unroll * team * plan_.lanes > n) plan_.unroll /= 2;
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
    plan_.block = 2 * kTile;
    plan_.lanes = kThreadColumns;
    plan_.unroll = kThreadRows;
    const int64_t others = Iterations(false) / (rows * columns);
    auto blocks = [&] { return others * ((rows + plan_.rows - 1) / plan_.rows) * ((columns + plan_.block - 1) / plan_.block); };
    auto fits = [&] {
      gpu_.loops = plan_;
      return SharedOf(f_, gpu_).bytes <= model_.shared_per_block;
    };
    while (plan_.rows > kTile && plan_.rows / 2 >= rows) plan_.rows /= 2;
    while (plan_.block > kTile && plan_.block / 2 >= columns) plan_.block /= 2;
    while (plan_.rows * plan_.block > kTile * kTile && (blocks() < model_.sms || !fits())) {
      (plan_.rows >= plan_.block ? plan_.rows : plan_.block) /= 2;
    }
    gpu_.threads = gpu_.team = static_cast<int>(plan_.rows * plan_.block / (kThreadRows * kThreadColumns));
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

int64_t TileBytes(const Instruction& parameter) { return (kTile * kTileRow * ByteWidth(parameter.shape().element_type()) + 15) / 16 * 16; }

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
  return plan.loops.kind == PlanKind::kTranspose ? units * CeilDiv(plan.loops.loops.back().extent, kTile) : units;
}

SharedLayout SharedOf(const FusedKernel& fused, const GpuPlan& plan) {
  SharedLayout shared;
  if (plan.slice > 0) {  // the slices, then in their place the sums
    const Instruction* product = *absl::c_find_if(fused.order, [](const Instruction* op) { return IsContraction(*op); });
    const PrimitiveType type = product->shape().element_type();
    const int64_t slices = SliceBytes(plan, plan.loops.rows, type) + SliceBytes(plan, plan.loops.block, type);
    shared.kept = shared.exchange = std::max(slices, plan.loops.rows * (plan.loops.block * StorageBytes(type) + kSumGap));
  }
  if (plan.loops.kind == PlanKind::kRow) {
    shared.kept = plan.loops.scratch_bytes;
    shared.exchange = shared.kept * plan.units_per_block();
  }
  shared.bytes = shared.exchange;
  if (!plan.has_barriers() || plan.slice > 0) return shared;
  if (plan.loops.kind == PlanKind::kTranspose) {
    IndexSpace space;
    const Iteration iteration(space, fused, plan.loops.loops);
    for (const MemoryUse& use : TurnedUses(space, fused, plan.loops, iteration)) shared.bytes += TileBytes(*use.op);
    return shared;
  }
  const int64_t slots = plan.loops.kind == PlanKind::kColumn ? int64_t{plan.threads} * plan.loops.lanes : plan.threads / kWarp;
  shared.bytes += slots * ExchangeBytes(fused);
  return shared;
}

std::string ToString(const GpuPlan& plan) {
  const std::string slice = plan.slice > 0 ? absl::StrCat("slice=", plan.slice, plan.mma ? " mma " : " ") : "";
  return absl::StrCat("threads=", plan.threads, " team=", plan.team, " ", slice, ToString(plan.loops));
}

absl::StatusOr<GpuPlan> ParseGpuPlan(std::string_view text, DimTable* dims) {
  GpuPlan plan;
  for (auto [name, number, wanted] :
       {std::tuple{"threads=", &plan.threads, true}, {"team=", &plan.team, true}, {"slice=", &plan.slice, false}}) {
    const size_t end = text.find(' ');
    const std::string_view word = text.substr(0, end);
    if (!wanted && !word.starts_with(name)) continue;
    if (!word.starts_with(name) || end == std::string_view::npos ||
        !absl::SimpleAtoi(absl::string_view(word.data() + std::string_view(name).size(), word.size() - std::string_view(name).size()),
                          number)) {
      return absl::InvalidArgumentError(absl::StrCat("GPU plan: wanted \"", name, "<number>\", got \"", std::string(word), "\""));
    }
    text.remove_prefix(end + 1);
  }
  if (constexpr std::string_view kMma = "mma "; text.starts_with(kMma)) {
    plan.mma = true;
    text.remove_prefix(kMma.size());
  }
  TENON_ASSIGN_OR_RETURN(plan.loops, ParseKernelPlan(text, dims));
  return plan;
}

absl::StatusOr<GpuPlan> MakeGpuPlan(const FusedKernel& fused, const GpuModel& model) {
  TENON_ASSIGN_OR_RETURN(GpuPlan plan, GpuPlanner(fused, model).Make());
  TENON_RETURN_IF_ERROR(CheckGpuPlan(fused, plan, model));
  return plan;
}

namespace {

// What is wrong with a contraction's tiles; "": nothing.
std::string_view WrongTiles(const FusedKernel& fused, const GpuPlan& plan, const GpuModel& model) {
  const KernelPlan& loops = plan.loops;
  if (plan.slice == 0) return plan.mma ? "tensor cores without slices" : "";
  const std::optional<BlockProduct> product = BlockProductOf(fused, loops.loops);
  if (!product) return "a contraction that blocks cannot compute";
  auto power = [](int64_t n, int64_t least, int64_t most) {
    return n >= least && n <= most && std::has_single_bit(static_cast<uint64_t>(n));
  };
  if (loops.tile_loop < 0 || loops.lanes != kThreadColumns || loops.unroll != kThreadRows) return "not a thread's part of a tile";
  if (!power(loops.rows, kTile, 8 * kTile) || !power(loops.block, kTile, 8 * kTile)) return "a tile whose sides are not 32 to 256";
  if (!power(plan.slice, kMmaTerms, 2 * kMmaTerms)) return "a slice that is not 16 or 32 terms";
  if (plan.team != plan.threads || plan.threads != loops.rows * loops.block / (kThreadRows * kThreadColumns)) {
    return "a block that is not a thread for each 32 elements of a tile";
  }
  if (!plan.mma) return "";
  if (model.bf16_flops_per_ns <= 0) return "no tensor cores that sum halves in f32";
  return HalvesOf(fused, *product) ? "" : "tensor cores for what are no halves in memory";
}

}  // namespace

absl::Status CheckGpuPlan(const FusedKernel& fused, const GpuPlan& plan, const GpuModel& model) {
  const KernelPlan& loops = plan.loops;
  auto bad = [&](std::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("GPU plan: ", std::string(what), ": ", ToString(plan)));
  };
  TENON_RETURN_IF_ERROR(CheckPlan(fused, loops, /*column_scratch=*/false));
  auto power = [](int n) { return n > 0 && std::has_single_bit(static_cast<unsigned>(n)); };
  if (!power(plan.threads) || plan.threads < kWarp || plan.threads > kMaxThreads)
    return bad("no block of 32 to 1024 threads, a power of two");
  if (!power(plan.team) || plan.team > plan.threads) return bad("no team of some threads of a block, a power of two");
  if (loops.lanes > kVectorBytes || loops.masked_tail) return bad("vectors wider than a thread's, or with masks");
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
      if (loops.block != kTile || loops.lanes != 1 || loops.unroll != 1) return bad("a unit that is not a square");
      if (plan.threads % kTile != 0 || plan.threads > kTile * kTile) return bad("no block of some of a square's rows");
      break;
    case PlanKind::kRow:
      if (loops.split != kept) return bad("a row is a unit");
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
    case PlanKind::kScatter:
    case PlanKind::kSelectAndScatter:
      break;
    case PlanKind::kScan:
      if (loops.block > 1) return bad("rows of a scan side by side");
      break;
    default:
      return bad("a kind that GPUs don't have");
  }
  if (loops.kind != PlanKind::kContraction && (plan.slice != 0 || plan.mma)) return bad("slices of what is no contraction");
  const bool teams = loops.kind == PlanKind::kRow || loops.kind == PlanKind::kColumn || plan.slice > 0;
  if (!teams && plan.team != 1) return bad("a team for what one thread computes");
  if (const int64_t bytes = SharedOf(fused, plan).bytes; bytes > model.shared_per_block) {
    return bad(absl::StrCat(bytes, " bytes of shared memory, a block of ", model.name, " has ", model.shared_per_block));
  }
  return absl::OkStatus();
}

}  // namespace tenon::gpu
