#include "backends/cpu/plan/usual_size.h"

#include <utility>

#include "backends/cpu/plan/make_plan.h"
#include "hlo/sizes.h"

namespace tenon {
namespace {

constexpr int64_t kMostUsual = 4;  // lengths begin short and grow; colours don't

// The fusion alone, in a module of its own, with these sizes.
Instruction* CloneFusion(const Instruction& fusion, const Sizes& sizes, Module& module) {
  Computation* fused = fusion.fused_computation()->CloneInto(&module, "usual");
  Computation* main = module.AddComputation("main");
  std::vector<Instruction*> operands;
  for (const Instruction* p : fused->parameters()) operands.push_back(main->AddParameter(p->parameter_number(), p->shape()));
  Instruction* clone = main->Add(Opcode::kFusion, fusion.shape(), operands);
  clone->mutable_attrs().set(Attr::kCalls, fused);
  main->set_root(clone);
  module.set_entry(main);
  PutSizes(module, sizes);
  return clone;
}

void PutSizes(std::vector<OperandLayout>& layouts, const Sizes& sizes) {
  for (OperandLayout& layout : layouts) {
    for (Dim& stride : layout.strides) stride = WithSizes(stride, sizes);
    layout.offset = WithSizes(layout.offset, sizes);
  }
}

}  // namespace

std::optional<UsualSize> PlanUsualSize(const KernelRequest& request, const FusedKernel& fused, const KernelPlan& plan,
                                       const CpuTarget& target) {
  if (plan.kind != PlanKind::kLoop || plan.rows > 0 || plan.loops.size() < 2 || fused.serial != nullptr) return std::nullopt;
  const Dim fastest = plan.loops.back().extent;
  if (fastest.is_constant() || fastest.expr()->kind != DimExpr::Kind::kSymbol) return std::nullopt;
  const std::shared_ptr<DimTable>& dims = request.fusion->parent()->module()->shared_dims();
  UsualSize usual{.symbol = fastest, .size = Typical(fastest), .module = std::make_unique<Module>("usual", dims)};
  if (usual.size < 2 || usual.size > kMostUsual) return std::nullopt;
  const Sizes sizes = {{fastest.expr()->symbol, usual.size}};
  KernelRequest number = request;
  number.fusion = CloneFusion(*request.fusion, sizes, *usual.module);
  PutSizes(number.operands, sizes);
  PutSizes(number.results, sizes);
  absl::StatusOr<FusedKernel> of_number = AnalyzeFusion(number);
  if (!of_number.ok() || of_number->literals != fused.literals) return std::nullopt;
  usual.fused = *std::move(of_number);
  usual.fused.size_args = fused.size_args;
  absl::StatusOr<KernelPlan> made = MakePlan(usual.fused, target);
  if (!made.ok() || made->rows == 0) return std::nullopt;
  usual.plan = *std::move(made);
  return usual;
}

}  // namespace tenon
