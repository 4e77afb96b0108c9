// Which dim of its operand the pieces of a scatter share.
#include "absl/algorithm/container.h"
#include "backends/codegen/plan/serial_plan.h"

namespace tenon {
namespace {

constexpr int64_t kWorthPieces = 32 << 10;  // elements copied and updated
constexpr int64_t kManyRows = 64;           // so many are likely to be shared evenly
constexpr int64_t kWideRow = 128;           // elements that are worth a guess of the branch whose row it is
constexpr int64_t kWideWindow = 32;         // elements of a window that are worth finding it again in each piece

bool IsSlowest(const Shape& x, int64_t d) { return x.minor_to_major().back() == d; }

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
  const int64_t elements = Typical(x.num_elements()), updated = Typical(updates.num_elements());
  if (elements <= 0 || elements + updated < kWorthPieces) return std::nullopt;
  int64_t window = 1;
  for (int64_t d : scatter.int_list(Attr::kUpdateWindowDims)) window *= Typical(updates.dim(d));
  std::optional<int64_t> best[3];  // the longest dim of each sort
  for (int64_t d = 0; d < x.rank(); ++d) {
    const ScatterDim sort = ScatterDimOf(scatter, d);
    if (sort == ScatterDim::kTied) continue;
    std::optional<int64_t>& of = best[static_cast<int>(sort)];
    if (!of || Typical(x.dim(d)) > Typical(x.dim(*of))) of = d;
  }
  const auto [windowed, batch, indexed] = best;
  auto length = [&](std::optional<int64_t> d) { return d ? Typical(x.dim(*d)) : 0; };
  if (length(batch) >= 8) return batch;
  if (window >= kWideRow && length(indexed) >= kManyRows && IsSlowest(x, *indexed)) return indexed;
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

}  // namespace tenon
