#include "backends/cpu/cpu.h"

#include <algorithm>
#include <atomic>

#include "absl/strings/str_cat.h"
#include "backends/cpu/emit/codegen.h"
#include "backends/cpu/jit/jit.h"
#include "backends/cpu/plan/kernel.h"
#include "backends/cpu/plan/packing.h"
#include "hlo/check.h"
#include "runtime/program/program.h"

namespace tenon {
namespace {

TargetFacts FactsOf(const CpuTarget& target) {
  TargetFacts facts{.name = std::string(kHostTarget), .variant = target.isa, .key = target.Key(), .machine = target.machine,
                    .providers = HostProviders()};
  facts.info.name = absl::StrCat(facts.name, "-", target.isa);
  facts.info.vector_bytes = target.vector_bytes;
  return facts;
}

// Emits a program's kernels in shares, one LLVM module and one thread each.
class Emission {
 public:
  Emission(const EmitRequest& request, const CpuTarget& target) : request_(request), target_(target) {}

  absl::StatusOr<std::vector<uint8_t>> Run() {
    shares_.resize(static_cast<size_t>(std::clamp(static_cast<int>(request_.kernels.size()) / 2, 1, request_.threads)));
    std::vector<ObjectRequest> requests;
    for (size_t t = 0; t < shares_.size(); ++t) requests.push_back(Request(t));
    const auto objects = CompileToObjects(requests, [&] { cancelled_ = cancelled_ || (request_.cancelled && request_.cancelled()); });
    for (size_t t = 0; t < shares_.size(); ++t) {
      Show(StageKind::kLlvm, absl::StrCat("llvm.", t, ".emitted.ll"), std::move(shares_[t].emitted));
      Show(StageKind::kOptimizedLlvm, absl::StrCat("llvm.", t, ".ll"), std::move(shares_[t].ir));
      Show(StageKind::kAssembly, absl::StrCat("llvm.", t, ".s"), std::move(shares_[t].assembly));
    }
    std::vector<uint8_t> image;
    for (const auto& object : objects) {
      TENON_RETURN_IF_ERROR(object.status());
      AppendObject(&image, *object);
    }
    return image;
  }

 private:
  struct Share {
    std::string emitted, ir, assembly;
  };

  bool Wants(StageKind kind) const { return request_.stages != nullptr && request_.stages->Wants(kind); }
  void Show(StageKind kind, std::string file, std::string text) const {
    if (!text.empty() && Wants(kind)) request_.stages->take({kind, std::move(file), std::move(text)});
  }

  // Share t, every shares_.size()th kernel. A fault is injected into the first share only: one thread is lost, not each.
  ObjectRequest Request(size_t t) {
    ObjectRequest request{.target = target_, .name = absl::StrCat(std::string(request_.name), ".", t), .cancelled = &cancelled_};
    if (t == 0) request.inject_fault = request_.inject_fault;
    Share& share = shares_[t];
    if (Wants(StageKind::kLlvm)) request.emitted_ir = &share.emitted;
    if (Wants(StageKind::kOptimizedLlvm)) request.llvm_ir = &share.ir;
    if (Wants(StageKind::kAssembly)) request.assembly = &share.assembly;
    request.emit = [this, t](llvm::Module& module) -> absl::Status {
      for (size_t k = t; k < request_.kernels.size(); k += shares_.size()) {
        if (cancelled_) return absl::CancelledError("interrupted");
        const auto* kernel = dynamic_cast<const CpuPlannedKernel*>(request_.kernels[k].get());
        TENON_CHECK(kernel != nullptr, absl::StrCat("kernel ", request_.symbols[k], " is of another target"));
        TENON_RETURN_IF_ERROR(kernel->Emit(module, request_.symbols[k]));
      }
      return absl::OkStatus();
    };
    return request;
  }

  const EmitRequest& request_;
  const CpuTarget& target_;
  std::vector<Share> shares_;
  std::atomic<bool> cancelled_ = false;
};

class Cpu : public Target {
 public:
  explicit Cpu(CpuTarget target) : Target(FactsOf(target)), target_(std::move(target)) {}

  bool CanGenerate(const Instruction& op) const override { return CpuCanGenerate(op); }
  bool ReducesInAnyOrder(const Instruction& reduce) const override { return CpuReducesInAnyOrder(reduce); }
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
  absl::StatusOr<std::vector<uint8_t>> Emit(const EmitRequest& request) const override { return Emission(request, target_).Run(); }
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

}  // namespace tenon
