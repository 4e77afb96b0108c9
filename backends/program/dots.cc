// ProgramBuilder: contractions by the framework's library.
#include "absl/strings/str_cat.h"
#include "backends/contract/library_call.h"
#include "backends/program/builder.h"
#include "hlo/check.h"
#include "passes/memory/live_ranges.h"
#include "runtime/host/host.h"

namespace tenon {

// mm(x, y) + b whose sum nothing else could be fused into: the library adds b. The sum is written when the product would
// be, so its memory must be its own by then: the product's, or an output.
void ProgramBuilder::FoldBiases() {
  const LiveRanges live(module_);
  for (const Instruction* dot : live.order()) {
    if (dot->opcode() != Opcode::kDot || dot->user_count() != 1) continue;
    const Instruction* sum = dot->users().front();
    const Instruction* bias = BiasAddedTo(*dot, *sum);
    // The library rounds once; without excess precision the product is rounded before the bias is added.
    if (!excess_precision_ && BitWidth(dot->shape().element_type()) < 32) continue;
    if (bias == nullptr) continue;
    const Instruction* producer = views_.at({bias, 0}).buffer.instruction;
    if (producer->parent() == dot->parent() && live.position(producer) > live.position(dot)) continue;
    const int32_t to = plan_.of.at({sum, 0});
    const Allocation& memory = plan_.allocations[to];
    const bool free = memory.kind == Allocation::Kind::kOutput && memory.buffers == 1;
    if (to != plan_.of.at({dot, 0}) && !free) continue;
    sum_of_[dot] = {sum, bias};
    folded_.insert(sum);
  }
}

absl::Status ProgramBuilder::EmitDot(const Instruction& op) {
  if (op.operand_count() != 2) return absl::UnimplementedError(absl::StrCat(op.name(), ": a dot with sparsity metadata"));
  if (!HostMultiplies(op.shape().element_type())) return Unexpected(op);
  const StridedView &lhs = views_.at({op.operand(0), 0}), &rhs = views_.at({op.operand(1), 0});
  const auto sum = sum_of_.find(&op);
  const Instruction& result = sum == sum_of_.end() ? op : *sum->second.sum;
  TENON_ASSIGN_OR_RETURN(MatmulViews m, MatmulViewsOf(op, lhs, rhs, views_.at({&result, 0})));
  const PrimitiveType type = op.shape().element_type();
  FrameworkStep call{.overload = m.batched ? "aten.bmm.out" : "aten.mm.out",
                     .args = {FrameworkArg::Tensor(0), FrameworkArg::Tensor(1)},
                     .rule = ResultRule::kOut,
                     .reason = "library: dot"};
  TENON_ASSIGN_OR_RETURN(View l, ViewOf(m.lhs, type));
  TENON_ASSIGN_OR_RETURN(View r, ViewOf(m.rhs, type));
  TENON_ASSIGN_OR_RETURN(View out, ViewOf(m.result, type));
  call.operands = {std::move(l), std::move(r)};
  call.results = {std::move(out)};
  if (sum != sum_of_.end()) {
    call.overload = "aten.addmm.out";
    call.args = {FrameworkArg::Tensor(2), FrameworkArg::Tensor(0), FrameworkArg::Tensor(1), FrameworkArg::Int(1), FrameworkArg::Int(1)};
    call.reason = "library: dot and its bias";
    TENON_ASSIGN_OR_RETURN(View bias, ViewOf(BufferKey{sum->second.bias, 0}));
    call.operands.push_back(std::move(bias));
  }
  Step step = NewStep(result);
  step.body = std::move(call);
  steps().push_back(std::move(step));
  return absl::OkStatus();
}

}  // namespace tenon
