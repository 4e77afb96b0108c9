#include "backends/cpu/cpu.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/codegen/fused/generate.h"
#include "backends/codegen/llvm/emit_kernels.h"
#include "backends/codegen/plan/packing.h"
#include "backends/cpu/emit/codegen.h"
#include "backends/cpu/jit/jit.h"
#include "backends/cpu/plan/kernel.h"
#include "hlo/check.h"
#include "runtime/program/program.h"

namespace tenon {
namespace {

TargetFacts FactsOf(const CpuTarget& target) {
  TargetFacts facts{.name = std::string(kHostTarget), .variant = target.isa, .key = target.Key(), .machine = target.machine,
                    .providers = HostProviders()};
  facts.info.name = absl::StrCat(facts.name, "-", target.isa);
  facts.info.vector_bytes = target.vector_bytes;
  facts.info.rows_as_sums = target.vector_bytes == 64 ? 4 : 1;  // four sums of four vectors each take half of the registers
  facts.info.bytes_per_ns = target.machine.levels.back().bytes_per_ns;
  facts.info.flops_per_ns = 2 * target.machine.multiply_adds_per_ns;
  return facts;
}

absl::StatusOr<std::vector<uint8_t>> EmitForCpu(const EmitRequest& request, const CpuTarget& target) {
  KernelEmission emission{.module = [&](std::string name) { return ObjectRequest(target, std::move(name)); }};
  emission.aliases = true;
  emission.emit = [](llvm::Module& module, const PlannedKernel& planned, const std::string& symbol) {
    const auto* kernel = dynamic_cast<const CpuPlannedKernel*>(&planned);
    TENON_CHECK(kernel != nullptr, absl::StrCat("kernel ", symbol, " is of another target"));
    return kernel->Emit(module, symbol);
  };
  TENON_ASSIGN_OR_RETURN(const std::vector<EmittedShare> shares, EmitKernels(request, emission));
  std::vector<uint8_t> image;
  for (const EmittedShare& share : shares) AppendObject(&image, share.code);
  return image;
}

class Cpu : public Target {
 public:
  explicit Cpu(CpuTarget target) : Target(FactsOf(target)), target_(std::move(target)) {}

  bool CanGenerate(const Instruction& op) const override { return tenon::CanGenerate(op); }
  bool ReducesInAnyOrder(const Instruction& reduce) const override { return CombineOf(reduce).has_value(); }
  bool PacksWhereItLies(const Instruction& contraction, absl::Span<const Dim> strides) const override {
    return tenon::PacksWhereItLies(contraction, strides, target_.vector_bytes);
  }
  absl::StatusOr<LaunchPlan> Plan(const Instruction& op, const ValueViews& views, bool excess_precision) const override {
    return PlanCpuLaunches(op, views, target_, excess_precision);
  }
  absl::StatusOr<LaunchPlan> PlanAs(const Instruction& op, const ValueViews& views, bool excess_precision, std::string_view plan,
                                    DimTable* dims) const override {
    TENON_ASSIGN_OR_RETURN(const KernelPlan given, ParseKernelPlan(plan, dims));
    return PlanCpuLaunches(op, views, target_, excess_precision, given);
  }
  absl::StatusOr<std::vector<uint8_t>> Emit(const EmitRequest& request) const override { return EmitForCpu(request, target_); }
  CodeLoader* loader() const override { return CpuLoader(); }

 private:
  const CpuTarget target_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Target>> MakeCpu(std::string_view isa, bool compile_only) {
  TENON_ASSIGN_OR_RETURN(CpuTarget target, MakeCpuTarget(isa, compile_only));
  return std::make_shared<Cpu>(std::move(target));
}

std::vector<std::string> CpuVariants() { return HostIsas(); }

absl::Status CpuMachineStatus() { return MachineFileStatus(); }

}  // namespace tenon
