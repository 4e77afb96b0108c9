// A contraction that blocks compute by tiles of the result: slices of both operands go through shared memory. What of a fusion is one, how
// its operands lie, and what tensor cores take.
#pragma once

#include <optional>
#include <vector>

#include "backends/codegen/fused/fused_kernel.h"

namespace tenon::gpu {

// Rows, columns or terms, below which blocks would be mostly empty.
inline constexpr int64_t kFewest = 16;

// op[row, column] = sum over terms of x[row, term] * y[term, column], for each index of the outer loops.
struct BlockProduct {
  const Instruction* op = nullptr;
  int64_t row_operand = 0;  // the one that depends on the tile loop, next to the last; the other one depends on the last loop
};

// nullopt: one thread computes a tile. Such are windows with padding, which must not add 0 * weight, sums of complex numbers, and a
// contraction that the fusion reads at other places than its own.
std::optional<BlockProduct> BlockProductOf(const FusedKernel& fused, const std::vector<PlanLoop>& loops);

// Will a dot outside of kernels be computed so, as far as its types and sizes tell? Its operands are read fast whichever way they lie then.
bool BlocksTake(const Instruction& dot);

// f16 or bf16, if both operands are of that type in memory and summed in f32: a product of two halves is exact in f32, so what a tensor
// core adds up is what HLO says, in another order.
std::optional<PrimitiveType> HalvesOf(const FusedKernel& fused, const BlockProduct& product);

// Do both operands of halves lie as whole vectors of 16 bytes, along terms or along their own side of a tile?
bool LieAsVectors(const FusedKernel& fused, const std::vector<PlanLoop>& loops, const BlockProduct& product);

// Where element `index` of `operand` lies, if that is one element of a parameter, whatever is done with it on the way.
struct OperandSource {
  const Instruction* parameter = nullptr;
  Index offset = nullptr;
};
std::optional<OperandSource> SourceOf(IndexSpace& space, const FusedKernel& fused, const Instruction& operand, const IndexTuple& index);
// Do its elements lie side by side along this variable?
bool LiesAlong(const std::optional<OperandSource>& source, Index variable);

}  // namespace tenon::gpu
