#include "backends/cpu/emit/codegen.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "backends/codegen/fused/generate.h"
#include "backends/codegen/index/contraction_index.h"
#include "backends/codegen/plan/check_plan.h"
#include "backends/contract/digest.h"
#include "backends/cpu/emit/kernels.h"
#include "backends/cpu/plan/make_plan.h"
#include "backends/cpu/plan/tile_steps.h"
#include "backends/cpu/plan/usual_size.h"
#include "backends/cpu/plan/work.h"
#include "hlo/byte_stream.h"
#include "hlo/check.h"
#include "llvm/IR/Module.h"
#include "passes/memory/value_views.h"

namespace tenon {
namespace {

bool IsEmpty(const FusedKernel& f) {
  for (size_t i = 0; i < f.roots.size(); ++i) {
    if (!(RootShape(f, i).num_elements() == Dim(0))) return false;
  }
  return f.checks.empty();
}

// About how many instructions of LLVM a kernel is, by which kernels are shared among threads: of MobileNet's and DenseNet's kernels this
// is half to twice what they are, of a loop of an operation or two up to three times.
int64_t EmittedInstructions(const FusedKernel& f, const KernelPlan& plan) {
  constexpr int64_t kLoops = 60, kPacking = 60, kSquare = 130, kBorders = 4;  // borders: tiles with taps outside are written apart
  const auto operations = static_cast<int64_t>(f.order.size());
  if (plan.kind == PlanKind::kTranspose) return kLoops + kSquare;
  if (plan.kind != PlanKind::kContraction) return kLoops + 3 * operations * plan.unroll;
  // A sum's own instructions, and what is done with it.
  const int64_t rows = plan.tile_loop >= 0 ? Typical(plan.loops[plan.tile_loop].extent) : 1;
  const int64_t columns = plan.loops.back().extent.constant_or(plan.block + 1);
  const int64_t sums = SumsWritten(rows, columns, plan.unroll, plan.block, plan.lanes);
  const bool taps = plan.packed && absl::c_any_of(f.order, [](const Instruction* op) {
    const Window window = op->attrs().get_or<Window>(Attr::kWindow, {});
    return IsContraction(*op) && absl::c_any_of(window.dims, [](const WindowDim& w) { return w.size > 1; });
  });
  return kLoops + (plan.packed ? kPacking : 0) + sums * (4 + operations * 3 / 4) * (taps ? kBorders : 1);
}

class CpuKernel : public CpuPlannedKernel {
 public:
  CpuKernel(FusedKernel fused, KernelPlan plan, std::optional<UsualSize> usual, const CpuTarget& target, bool excess_precision)
      : fused_(std::move(fused)),
        plan_(std::move(plan)),
        usual_(std::move(usual)),
        target_(target),
        excess_precision_(excess_precision) {
    const WorkEstimate work = EstimateWork(fused_, plan_, target_);
    info_.plan_text = ToString(plan_);
    info_.may_overwrite = OverwritesOf(fused_, plan_);
    info_.copies = fused_.copies;
    info_.has_error_word = !fused_.checks.empty();
    info_.size_args = fused_.size_args;
    info_.literals = fused_.literals;
    info_.end = IsEmpty(fused_) ? Dim(0) : work.units;
    info_.grain = work.grain;
    info_.joins_units = plan_.kind == PlanKind::kColumn;
    info_.scratch_bytes = plan_.scratch_bytes;
    info_.estimated_ns = work.nanoseconds;
    info_.bytes = work.bytes;
    info_.flops = work.flops;
    if (usual_) TakeUsual();
    ByteStream key(Digest);
    key.Text(target.Key());
    key.Bool(excess_precision);
    key.Text(info_.plan_text);
    if (usual_) key.Text(absl::StrCat(usual_->symbol.ToString(), "=", usual_->size, ": ", ToString(usual_->plan)));
    AppendFingerprint(fused_, &key);
    fingerprint_ = HexDigest(key.bytes());
  }

  const KernelInfo& info() const override { return info_; }
  const std::string& fingerprint() const override { return fingerprint_; }
  Likeness likeness() const override {
    Likeness likeness = LikenessOf(fused_);
    likeness.operations = EmittedInstructions(fused_, plan_);
    if (plan_.kind == PlanKind::kContraction) likeness.key.reset();  // its sizes are in its code
    return likeness;
  }

  absl::Status Emit(llvm::Module& module, const std::string& symbol) const override {
    llvm::Function* kernel = NewFunction(module, symbol);
    if (!usual_) return EmitFunction(kernel, fused_, plan_);
    llvm::Function *usual = NewFunction(module, symbol + ".usual"), *others = NewFunction(module, symbol + ".others");
    llvm::IRBuilder<> b(llvm::BasicBlock::Create(module.getContext(), "entry", kernel));
    const auto at = static_cast<uint64_t>(absl::c_find(fused_.size_args, usual_->symbol) - fused_.size_args.begin());
    llvm::Value* size = b.CreateLoad(b.getInt64Ty(), b.CreateConstInBoundsGEP1_64(b.getInt64Ty(), kernel->getArg(1), at));
    llvm::Value* callee = b.CreateSelect(b.CreateICmpEQ(size, b.getInt64(static_cast<uint64_t>(usual_->size))), usual, others);
    llvm::SmallVector<llvm::Value*, 5> args;
    for (llvm::Argument& a : kernel->args()) args.push_back(&a);
    b.CreateCall(kernel->getFunctionType(), callee, args);
    b.CreateRetVoid();
    for (llvm::Function* f : {usual, others}) f->setLinkage(llvm::Function::InternalLinkage);
    TENON_RETURN_IF_ERROR(EmitFunction(usual, usual_->fused, usual_->plan));
    return EmitFunction(others, fused_, plan_);
  }

 private:
  // What the launch is in calls of the usual size.
  void TakeUsual() {
    const WorkEstimate work = EstimateWork(usual_->fused, usual_->plan, target_);
    const Dim is = usual_->Is();
    info_.end += is * (work.units - info_.end);
    info_.grain = Max(1, info_.grain + is * (work.grain - info_.grain));
    info_.joins_units |= usual_->plan.kind == PlanKind::kColumn;
    info_.scratch_bytes = std::max(info_.scratch_bytes, usual_->plan.scratch_bytes);
    const std::vector<LaunchPlan::Pair> may_overwrite = OverwritesOf(usual_->fused, usual_->plan);
    std::erase_if(info_.may_overwrite, [&](const LaunchPlan::Pair& p) { return !absl::c_linear_search(may_overwrite, p); });
    info_.estimated_ns = work.nanoseconds;
    info_.bytes = work.bytes;
    info_.flops = work.flops;
  }

  llvm::Function* NewFunction(llvm::Module& module, const std::string& name) const {
    llvm::LLVMContext& c = module.getContext();
    llvm::Type *ptr = llvm::PointerType::getUnqual(c), *i64 = llvm::Type::getInt64Ty(c);
    auto* type =
        llvm::FunctionType::get(llvm::Type::getVoidTy(c), {ptr, ptr, i64, i64, ptr}, false);
    llvm::Function* f =
        llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, module);
    f->addFnAttr(llvm::Attribute::NoUnwind);
    // Without these, LLVM's tuning of x86-64-v4 takes 512-bit vectors apart.
    f->addFnAttr("prefer-vector-width", absl::StrCat(8 * target_.vector_bytes));
    f->addFnAttr("min-legal-vector-width", absl::StrCat(8 * target_.vector_bytes));
    // With its register reserved LLVM can align the stack. Else slots of spilled vectors lie at multiples of 16, most of them on two
    // cache lines: a kernel with many took up to 1.2 times as long, as the stack of its thread happened to lie.
    f->addFnAttr("frame-pointer", "all");
    return f;
  }

  absl::Status EmitFunction(llvm::Function* f, const FusedKernel& fused, const KernelPlan& plan) const {
    const EmitOptions types{.has_f16c = target_.has_f16c,
                            .excess_precision = excess_precision_,
                            .divides_as_doubles = target_.vector_bytes == 64};
    KernelEmitter e(fused, {target_.vector_bytes, types, target_.has_fma}, f, [f](llvm::IRBuilder<>&) {
      return KernelEntry{f->getArg(0), f->getArg(1), f->getArg(2), f->getArg(3), f->getArg(4)};
    });
    if (!IsEmpty(fused)) EmitBody(e, plan);
    return e.Finish();
  }

  static void EmitBody(KernelEmitter& e, const KernelPlan& plan) {
    switch (plan.kind) {
      case PlanKind::kLoop:
        return EmitLoopKernel(e, plan);
      case PlanKind::kContraction:
        return EmitContractionKernel(e, plan);
      case PlanKind::kAttention:  // refused by CheckPlan
        return;
      case PlanKind::kRow:
        return EmitRowKernel(e, plan);
      case PlanKind::kColumn:
        return EmitColumnKernel(e, plan);
      case PlanKind::kTranspose:
        return EmitTransposeKernel(e, plan);
      case PlanKind::kScatter:
        return EmitScatterKernel(e, plan);
      case PlanKind::kSelectAndScatter:
        return EmitSelectAndScatterKernel(e, plan);
      case PlanKind::kSort:
        return EmitSortKernel(e, plan);
      case PlanKind::kScan:
        return EmitScanKernel(e, plan);
    }
  }

  FusedKernel fused_;
  KernelPlan plan_;  // for all sizes
  std::optional<UsualSize> usual_;
  CpuTarget target_;
  bool excess_precision_;
  KernelInfo info_;
  std::string fingerprint_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CpuPlannedKernel>> PlanCpuKernelWith(
    const KernelRequest& request, const CpuTarget& target, bool excess_precision,
    const std::optional<KernelPlan>& given) {
  for (const Instruction* op : request.fusion->fused_computation()->instructions()) {
    if (!CanGenerate(*op)) {
      return absl::UnimplementedError(absl::StrCat("fusion ", request.fusion->name(),
                                                   ": no code generation for ", op->ToString()));
    }
  }
  TENON_ASSIGN_OR_RETURN(FusedKernel fused, AnalyzeFusion(request));
  KernelPlan plan;
  std::optional<UsualSize> usual;
  if (given) {
    TENON_RETURN_IF_ERROR(CheckPlan(fused, *given));
    plan = *given;
  } else {
    TENON_ASSIGN_OR_RETURN(plan, MakePlan(fused, target));
    usual = PlanUsualSize(request, fused, plan, target);
  }
  return std::make_unique<CpuKernel>(std::move(fused), std::move(plan), std::move(usual), target, excess_precision);
}

absl::StatusOr<std::unique_ptr<CpuPlannedKernel>> PlanCpuKernel(const KernelRequest& request,
                                                             const CpuTarget& target,
                                                             bool excess_precision) {
  return PlanCpuKernelWith(request, target, excess_precision, std::nullopt);
}

absl::StatusOr<LaunchPlan> PlanCpuLaunches(const Instruction& fusion, const ValueViews& views, const CpuTarget& target,
                                           bool excess_precision, const std::optional<KernelPlan>& given) {
  const KernelRequest request = RequestOf(fusion, views);
  TENON_ASSIGN_OR_RETURN(std::shared_ptr<const PlannedKernel> kernel, PlanCpuKernelWith(request, target, excess_precision, given));
  const KernelInfo& info = kernel->info();
  return LaunchPlan{.may_overwrite = info.may_overwrite, .copies = info.copies, .nanoseconds = info.estimated_ns, .bytes = info.bytes,
                    .flops = info.flops, .target = std::move(kernel)};
}

}  // namespace tenon
