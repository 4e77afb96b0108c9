// A block's tile of attention: some query rows of one batch element, and so many keys at a time. Where its parts lie in shared memory, what
// sizes and types have a kernel, and how it is planned.
#pragma once

#include <optional>

#include "backends/codegen/fused/fused_kernel.h"
#include "backends/gpu/plan/block_product.h"
#include "backends/gpu/plan/gpu_model.h"
#include "backends/gpu/plan/gpu_plan.h"
#include "passes/fusion/attention.h"

namespace tenon::gpu {

// A warp of tensor cores has so many query rows; a thread of a block without has the scores of kScoreSide rows by as many keys.
inline constexpr int64_t kWarpRows = 16, kScoreSide = 4;

// One after the other in shared memory; sizes in elements, but for places, in bytes. Of several stages scores and weights stay in
// registers, and each stage has a tile of keys and one of values.
struct AttentionTile {
  int64_t rows = 0, keys = 0;        // of the scores
  int64_t terms = 0, columns = 0;    // of a head: of queries and keys, of values; padded to what a step takes
  int64_t side = 0;                  // places between a thread's keys, and its groups of four columns (without tensor cores)
  int64_t threads = 0, share = 0;    // of the block; that share a row of the softmax
  int64_t query_row = 0, key_row = 0, value_row = 0, score_row = 0, weight_row = 0, result_row = 0;  // from one to the next
  int64_t queries = 0, others = 0, scores = 0, weights = 0;  // where they begin, behind a factor for each row. others: keys, then values
  int64_t values = 0, stage_bytes = 0;  // of several stages: where values begin behind their keys; from one stage to the next
  int64_t bytes = 0;                 // of all; in the end results lie behind the factors
};
AttentionTile AttentionTileOf(int64_t rows, int64_t keys, int64_t terms, int64_t columns, bool mma, int64_t stages);
// Registers of a thread that hold sums, scores and queries, where those stay in registers.
int64_t FragmentRegisters(const AttentionTile& tile);

// An operand's part of a tile, on its way to shared memory: `places` rows of `terms` elements side by side, zeros for what is outside.
struct AttentionOperand {
  const Instruction* op = nullptr;  // what is multiplied; of halves, as they lie in memory
  Index place = nullptr, term = nullptr;
  IndexTuple index;
  std::optional<OperandSource> source;
  int64_t places = 0, terms = 0;  // of the tile
  int64_t real_terms = 0;         // without padding
  int64_t row = 0, bytes_before = 0;
  int64_t lanes = 1;        // of a load, along the terms
  bool along_terms = true;  // neighbouring threads take neighbouring terms, else places
};

// Variables of a tile, and where its operands lie.
class AttentionIndex {
 public:
  AttentionIndex(IndexSpace& space, const FusedKernel& fused, const Attention& attention, const AttentionTile& tile, bool mma);
  // Element (batch, row of the block, column) of an array whose last two dims they are in. `keys`: a column is a key of the tile.
  IndexTuple At(const Shape& shape, Index row, Index column, bool keys = true) const;

  Index batch = nullptr, row_block = nullptr, key_block = nullptr, row = nullptr, key = nullptr;  // batch: null: there is none
  AttentionOperand queries, keys, values;

 private:
  IndexSpace& space_;
  const AttentionTile& tile_;
};

// The attention that a fusion is, nothing else being in it; nullopt: it is none.
std::optional<Attention> AttentionOf(const FusedKernel& fused);
AttentionTile AttentionTileOf(const FusedKernel& fused, const GpuPlan& plan);
// Blocks of it that the registers of a multiprocessor are shared out to.
int64_t BlocksOfAttention(const FusedKernel& fused, const GpuPlan& plan);

// Is there a kernel? Outside of fusions.
bool TakesAttention(const Attention& attention, const GpuModel& model, bool excess_precision);
// Of a fusion that is one; nullopt: no tile fits.
std::optional<GpuPlan> PlanAttention(const FusedKernel& fused, const Attention& attention, const GpuModel& model);
// What is wrong with a plan that CheckPlan lets pass; "": nothing.
std::string_view WrongAttention(const FusedKernel& fused, const GpuPlan& plan, const GpuModel& model);

}  // namespace tenon::gpu
