#include "backends/gpu/plan/attention_tile.h"

#include <algorithm>
#include <bit>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "backends/codegen/emit/emit_types.h"
#include "backends/codegen/index/contraction_index.h"
#include "backends/gpu/plan/block_product.h"

namespace tenon::gpu {
namespace {

constexpr int64_t kMostRows = 64, kMostKeys = 64, kMostHead = 256;
constexpr int64_t kMostStagedRows = 128, kStages = 2;  // of a tile whose scores stay in registers
constexpr int64_t kMostRegisters = 128;                // of a thread's sums, scores and queries, beside which the rest has room
// Of a multiprocessor: as many as have 128 registers each, where they hold few of those; of others half as many.
constexpr int64_t kManyWarps = 16, kFewRegisters = 64;
constexpr int64_t kMostOps = 48;                       // between scores and weights, which are unrolled

int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Sizes of a head: of the dim that scores are summed along, and of the results' columns.
struct Head {
  Dim terms, columns;
};
Head HeadOf(const Attention& a) {
  const Shape& queries = a.scores->operand(0)->shape();
  return {queries.dim(a.scores->int_list(Attr::kLhsContractingDims)[0]), a.values->shape().dim(a.values->shape().rank() - 1)};
}

// The one half type of all that is multiplied, as it lies in memory.
std::optional<PrimitiveType> HalvesOf(const Attention& a) {
  std::optional<PrimitiveType> halves;
  for (const Instruction* op : {a.scores->operand(0), a.scores->operand(1), a.values->operand(1)}) {
    if (op->opcode() != Opcode::kConvert) return std::nullopt;
    const PrimitiveType type = op->operand(0)->shape().element_type();
    if (!IsHalf(type) || (halves && *halves != type)) return std::nullopt;
    halves = type;
  }
  return halves;
}

// Weights are halves there, if of two parts: HLO must round them, too. In f16 none may be large.
bool UsesMma(const Attention& a, const GpuModel& model) {
  const std::optional<PrimitiveType> halves = a.rounds ? HalvesOf(a) : std::nullopt;
  return model.bf16_flops_per_ns > 0 && halves && (*halves != PrimitiveType::kF16 || a.by_maximum);
}

bool Fits(const AttentionTile& tile, int64_t bytes) { return tile.bytes <= bytes; }

// What HLO makes of the scores.
struct BetweenScores {
  int64_t ops = 0;
  bool element_by_element = true;
  bool reads_arrays = false;  // masks and biases
};
BetweenScores BetweenOf(const Attention& a) {
  BetweenScores between;
  absl::flat_hash_set<const Instruction*> seen = {a.scores, a.x};
  std::vector<const Instruction*> open = {a.x};
  while (!open.empty()) {
    const Instruction* op = open.back();
    open.pop_back();
    if (op == a.scores) continue;
    const bool made = op->family() == Family::kElementwise || op->family() == Family::kMovement;
    const bool read = op->opcode() == Opcode::kParameter || op->opcode() == Opcode::kConstant;
    between.ops += 1;
    between.element_by_element &= (made || read) && op->opcode() != Opcode::kMap;
    between.reads_arrays |= read && op->shape().rank() > 0;
    for (const Instruction* o : op->operands()) {
      if (seen.insert(o).second) open.push_back(o);
    }
  }
  return between;
}

// Can scores and weights stay in registers? Keys and values are copied as vectors of 16 bytes.
bool StaysInRegisters(const FusedKernel& f, const Attention& a, const AttentionTile& tile) {
  const BetweenScores between = BetweenOf(a);
  if (FragmentRegisters(tile) > kMostRegisters || !between.element_by_element || between.ops > kMostOps) return false;
  IndexSpace space;
  const AttentionIndex index(space, f, a, tile, /*mma=*/true);
  return index.keys.source && index.values.source && index.keys.lanes * 2 == 16 && index.values.lanes * 2 == 16;
}

bool NeedsFewRegisters(const Attention& a, const AttentionTile& tile) {
  return FragmentRegisters(tile) <= kFewRegisters && !BetweenOf(a).reads_arrays;
}

// The largest tile that fits, and of which each multiprocessor has one.
std::optional<AttentionTile> ChooseTile(const Attention& a, const GpuModel& model, int64_t stages) {
  const Head head = HeadOf(a);
  const bool mma = UsesMma(a, model);
  const int64_t most = stages > 1 ? model.shared_opt_in : model.shared_per_block;
  const Shape& scores = a.scores->shape();
  const int64_t queries = Typical(scores.dim(scores.rank() - 2)), keys = Typical(scores.dim(scores.rank() - 1));
  const int64_t batch = std::max<int64_t>(Typical(scores.num_elements()) / std::max<int64_t>(queries * keys, 1), 1);
  int64_t rows = stages > 1 ? kMostStagedRows : kMostRows;
  while (rows > kWarpRows && (rows / 2 >= queries || batch * RoundUp(queries, rows) / rows < model.sms)) rows /= 2;
  const auto tile_of = [&](int64_t at_once) {
    return AttentionTileOf(rows, at_once, head.terms.constant(), head.columns.constant(), mma, stages);
  };
  for (; rows >= kWarpRows; rows /= 2) {
    // Few keys where that makes room for twice as many warps.
    const bool few = !mma || (stages > 1 && NeedsFewRegisters(a, tile_of(kMostKeys / 2)));
    for (int64_t at_once = few ? kMostKeys / 2 : kMostKeys; at_once >= kMostKeys / 2; at_once /= 2) {
      const AttentionTile tile = tile_of(at_once);
      if (Fits(tile, most) && (stages == 1 || FragmentRegisters(tile) <= kMostRegisters)) return tile;
    }
  }
  return std::nullopt;
}

}  // namespace

AttentionTile AttentionTileOf(int64_t rows, int64_t keys, int64_t terms, int64_t columns, bool mma, int64_t stages) {
  const int64_t element = mma ? 2 : 4, gap = 16 / element;
  AttentionTile t{.rows = rows, .keys = keys};
  t.side = keys / kScoreSide;
  t.threads = mma ? rows / kWarpRows * kWarp : rows * keys / (kScoreSide * kScoreSide);
  t.share = t.threads / rows;
  t.terms = RoundUp(terms, mma ? kMmaTerms : kScoreSide);
  t.columns = RoundUp(columns, mma ? kMmaTerms : kScoreSide * t.side);
  t.query_row = t.key_row = t.terms + gap;
  t.value_row = t.columns + gap;
  t.score_row = keys + t.share;
  t.weight_row = keys + gap;
  t.result_row = t.columns + kSumGap / 4;
  t.queries = rows * 4;
  t.others = t.queries + RoundUp(rows * t.query_row * element, 16);
  if (stages > 1) {
    t.values = keys * t.key_row * element;
    t.stage_bytes = t.values + keys * t.value_row * element;
    t.bytes = std::max(t.others + stages * t.stage_bytes, t.queries + rows * t.result_row * 4);
    return t;
  }
  t.scores = t.others + RoundUp(keys * std::max(t.key_row, t.value_row) * element, 16);
  t.weights = t.scores + RoundUp(rows * t.score_row * 4, 16);
  // Two halves for each weight; without tensor cores they take the scores' places.
  t.bytes = t.weights + (mma ? 2 * rows * t.weight_row * element : 0);
  t.bytes = std::max(t.bytes, t.queries + rows * t.result_row * 4);
  return t;
}

int64_t FragmentRegisters(const AttentionTile& t) { return t.columns / 2 + t.keys / 2 + t.terms / 4; }

AttentionIndex::AttentionIndex(IndexSpace& space, const FusedKernel& f, const Attention& a, const AttentionTile& tile, bool mma)
    : space_(space), tile_(tile) {
  const size_t rank = f.dims.size();
  if (rank > 2) {
    Dim extent = 1;
    for (size_t d = 0; d + 2 < rank; ++d) extent *= f.dims[d];
    batch = space.Var(extent);
  }
  row_block = space.Var(CeilDiv(f.dims[rank - 2], tile.rows));
  key_block = space.Var(CeilDiv(f.dims[rank - 1], tile.keys));
  row = space.Var(tile.rows);
  key = space.Var(tile.keys);
  const int64_t element = mma ? 2 : 4;
  queries = {.places = tile.rows, .terms = tile.terms, .row = tile.query_row, .bytes_before = tile.queries};
  keys = {.places = tile.keys, .terms = tile.terms, .row = tile.key_row, .bytes_before = tile.others};
  values = {.places = tile.keys, .terms = tile.columns, .row = tile.value_row, .bytes_before = tile.others + tile.values};
  const auto summed = [](const Instruction& dot, Index term) {
    return SummedExtents(dot).empty() ? std::vector<Index>() : std::vector<Index>{term};
  };
  for (AttentionOperand* o : {&queries, &keys, &values}) {
    const bool of_values = o == &values;
    const Instruction& dot = of_values ? *a.values : *a.scores;
    const int64_t side = o == &queries ? 0 : 1;
    const Dim terms = of_values ? dot.shape().dim(dot.shape().rank() - 1) : SummedExtents(dot).empty() ? Dim(1) : SummedExtents(dot)[0];
    o->real_terms = terms.constant();
    o->place = space.Var(o->places);
    o->term = space.Var(o->real_terms);
    ContractionIndex at;
    if (of_values) {
      const Index of_key = space.Combine(key_block, tile.keys, o->place, 1);
      at = MapContraction(space, dot, At(dot.shape(), row, o->term, /*keys=*/false), summed(dot, of_key));
    } else {
      at = MapContraction(space, dot, At(dot.shape(), side == 0 ? o->place : row, side == 1 ? o->place : key), summed(dot, o->term));
    }
    o->index = side == 0 ? at.lhs : at.rhs;
    o->op = dot.operand(side);
    if (mma) o->op = o->op->operand(0);
    o->source = SourceOf(space, f, *o->op, o->index);
    o->along_terms = LiesAlong(o->source, o->term) || !LiesAlong(o->source, o->place);
    if (!LiesAlong(o->source, o->term)) continue;
    for (o->lanes = 16 / element; o->real_terms % o->lanes != 0;) o->lanes /= 2;
  }
}

IndexTuple AttentionIndex::At(const Shape& shape, Index own_row, Index column, bool of_keys) const {
  const std::vector<Dim> dims(shape.dims().begin(), shape.dims().end() - 2);
  IndexTuple index;
  if (batch != nullptr) {
    index = space_.Delinearize(batch, dims);
  } else {
    index.assign(dims.size(), space_.Constant(0));
  }
  index.push_back(space_.Combine(row_block, tile_.rows, own_row, 1));
  index.push_back(of_keys ? space_.Combine(key_block, tile_.keys, column, 1) : column);
  return index;
}

std::optional<Attention> AttentionOf(const FusedKernel& f) {
  if (f.roots.size() != 1 || f.serial != nullptr || f.updated != nullptr || !f.checks.empty()) return std::nullopt;
  const Instruction* values = f.roots[0];
  if (values->opcode() == Opcode::kConvert) values = values->operand(0);
  if (values->opcode() != Opcode::kDot) return std::nullopt;
  std::optional<Attention> a = tenon::AttentionOf(*values);
  if (!a || a->result != f.roots[0] || f.dims.size() != static_cast<size_t>(a->x->shape().rank())) return std::nullopt;
  for (size_t d = 0; d < f.dims.size(); ++d) {
    if (f.reduced[d] != (d + 1 == f.dims.size())) return std::nullopt;
  }
  const Head head = HeadOf(*a);
  return head.terms.is_constant() && head.columns.is_constant() ? a : std::nullopt;
}

AttentionTile AttentionTileOf(const FusedKernel& f, const GpuPlan& plan) {
  const Head head = HeadOf(*AttentionOf(f));
  return AttentionTileOf(plan.loops.rows, plan.loops.block, head.terms.constant(), head.columns.constant(), plan.mma, plan.stages);
}

int64_t BlocksOfAttention(const FusedKernel& f, const GpuPlan& plan) {
  if (plan.stages == 1) return 1;
  const int64_t warps = NeedsFewRegisters(*AttentionOf(f), AttentionTileOf(f, plan)) ? kManyWarps : kManyWarps / 2;
  return std::max<int64_t>(warps * kWarp / plan.threads, 1);
}

bool TakesAttention(const Attention& a, const GpuModel& model, bool excess_precision) {
  // Weights stay f32 (or two halves), which they may not where each op rounds.
  if (a.rounds && !excess_precision) return false;
  const Head head = HeadOf(a);
  if (!head.terms.is_constant() || !head.columns.is_constant()) return false;
  const auto [fewest, most] = std::minmax({head.terms.constant(), head.columns.constant()});
  if (fewest < 1 || most > kMostHead) return false;
  // Few queries or keys: tiles would be mostly empty.
  const Shape& scores = a.scores->shape();
  const Dim keys = scores.dim(scores.rank() - 1);
  if (LowerBound(keys) < 1 || std::min(Typical(keys), Typical(scores.dim(scores.rank() - 2))) < kFewest) return false;
  return ChooseTile(a, model, 1).has_value();
}

std::optional<GpuPlan> PlanAttention(const FusedKernel& f, const Attention& a, const GpuModel& model) {
  const bool mma = UsesMma(a, model);
  int64_t stages = mma ? kStages : 1;
  std::optional<AttentionTile> tile = ChooseTile(a, model, stages);
  if (mma && (!tile || !StaysInRegisters(f, a, *tile))) tile = ChooseTile(a, model, stages = 1);
  if (!tile) return std::nullopt;
  GpuPlan plan{.threads = static_cast<int>(tile->threads), .team = static_cast<int>(tile->threads), .mma = mma};
  plan.stages = static_cast<int>(stages);
  plan.loops.kind = PlanKind::kAttention;
  const int64_t rank = static_cast<int64_t>(f.dims.size());
  PlanLoop batch{.dims = {}, .extent = 1, .reduced = false};
  for (int64_t d = 0; d < rank - 2; ++d) {
    batch.dims.push_back(d);
    batch.extent *= f.dims[static_cast<size_t>(d)];
  }
  if (!batch.dims.empty()) plan.loops.loops.push_back(std::move(batch));
  for (int64_t d = rank - 2; d < rank; ++d) {
    plan.loops.loops.push_back({.dims = {d}, .extent = f.dims[static_cast<size_t>(d)], .reduced = d == rank - 1});
  }
  plan.loops.split = plan.loops.tile_loop = static_cast<int>(plan.loops.loops.size()) - 2;
  plan.loops.rows = tile->rows;
  plan.loops.block = tile->keys;
  return plan;
}

std::string_view WrongAttention(const FusedKernel& f, const GpuPlan& plan, const GpuModel& model) {
  const std::optional<Attention> a = AttentionOf(f);
  if (!a) return "attention of what is none";
  const KernelPlan& loops = plan.loops;
  if (loops.loops[loops.loops.size() - 2].dims != std::vector<int64_t>{static_cast<int64_t>(f.dims.size()) - 2} || loops.split > 1) {
    return "loops that are not the batch, the queries and the keys";
  }
  const auto power = [](int64_t n, int64_t least, int64_t most) {
    return n >= least && n <= most && std::has_single_bit(static_cast<uint64_t>(n));
  };
  if (plan.stages < 1 || plan.stages > kMaxStages) return "no stages, or more stages than 8";
  if (plan.stages == 1 && !power(loops.rows, kWarpRows, kMostRows)) return "a tile of no 16 to 64 queries";
  if (plan.stages > 1 && !power(loops.rows, kWarpRows, kMostStagedRows)) return "a tile of no 16 to 128 queries";
  if (!power(loops.block, kMostKeys / 2, kMostKeys)) return "a tile of no 32 or 64 keys";
  if (plan.mma && !UsesMma(*a, model)) return "tensor cores for what are no halves in memory";
  const AttentionTile tile = AttentionTileOf(f, plan);
  if (plan.stages > 1 && !plan.mma) return "stages of what no tensor cores multiply";
  if (plan.stages > 1 && !StaysInRegisters(f, *a, tile)) return "stages of keys and values that are no vectors, or too much for registers";
  if (plan.threads != tile.threads || plan.team != plan.threads) return "a block that has not the tile's threads";
  return loops.lanes == 1 && loops.unroll == 1 && !loops.packed ? "" : "not a thread's part of a tile";
}

}  // namespace tenon::gpu
