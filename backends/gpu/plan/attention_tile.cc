#include "backends/gpu/plan/attention_tile.h"

#include <algorithm>
#include <bit>

#include "absl/algorithm/container.h"
#include "backends/codegen/emit/emit_types.h"
#include "backends/gpu/plan/block_product.h"

namespace tenon::gpu {
namespace {

constexpr int64_t kMostRows = 64, kMostKeys = 64, kMostHead = 256;

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

bool Fits(const AttentionTile& tile, const GpuModel& model) { return tile.bytes <= model.shared_per_block; }

// The largest tile that fits, and of which each multiprocessor has one.
std::optional<AttentionTile> ChooseTile(const Attention& a, const GpuModel& model) {
  const Head head = HeadOf(a);
  const bool mma = UsesMma(a, model);
  const Shape& scores = a.scores->shape();
  const int64_t queries = Typical(scores.dim(scores.rank() - 2)), keys = Typical(scores.dim(scores.rank() - 1));
  const int64_t batch = std::max<int64_t>(Typical(scores.num_elements()) / std::max<int64_t>(queries * keys, 1), 1);
  int64_t rows = kMostRows;
  while (rows > kWarpRows && (rows / 2 >= queries || batch * RoundUp(queries, rows) / rows < model.sms)) rows /= 2;
  for (; rows >= kWarpRows; rows /= 2) {
    for (int64_t at_once = mma ? kMostKeys : kMostKeys / 2; at_once >= kMostKeys / 2; at_once /= 2) {
      const AttentionTile tile = AttentionTileOf(rows, at_once, head.terms.constant(), head.columns.constant(), mma);
      if (Fits(tile, model)) return tile;
    }
  }
  return std::nullopt;
}

}  // namespace

AttentionTile AttentionTileOf(int64_t rows, int64_t keys, int64_t terms, int64_t columns, bool mma) {
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
  t.scores = t.others + RoundUp(keys * std::max(t.key_row, t.value_row) * element, 16);
  t.weights = t.scores + RoundUp(rows * t.score_row * 4, 16);
  // Two halves for each weight; without tensor cores they take the scores' places.
  t.bytes = t.weights + (mma ? 2 * rows * t.weight_row * element : 0);
  t.bytes = std::max(t.bytes, t.queries + rows * t.result_row * 4);
  return t;
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
  return AttentionTileOf(plan.loops.rows, plan.loops.block, head.terms.constant(), head.columns.constant(), plan.mma);
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
  return ChooseTile(a, model).has_value();
}

std::optional<GpuPlan> PlanAttention(const FusedKernel& f, const Attention& a, const GpuModel& model) {
  const std::optional<AttentionTile> tile = ChooseTile(a, model);
  if (!tile) return std::nullopt;
  GpuPlan plan{.threads = static_cast<int>(tile->threads), .team = static_cast<int>(tile->threads), .mma = UsesMma(a, model)};
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
  if (!power(loops.rows, kWarpRows, kMostRows)) return "a tile of no 16 to 64 queries";
  if (!power(loops.block, kMostKeys / 2, kMostKeys)) return "a tile of no 32 or 64 keys";
  if (plan.mma && !UsesMma(*a, model)) return "tensor cores for what are no halves in memory";
  const AttentionTile tile = AttentionTileOf(f, plan);
  if (plan.threads != tile.threads || plan.team != plan.threads) return "a block that has not the tile's threads";
  return loops.lanes == 1 && loops.unroll == 1 && !loops.packed ? "" : "not a thread's part of a tile";
}

}  // namespace tenon::gpu
