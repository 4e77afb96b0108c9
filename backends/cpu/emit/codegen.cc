#include "backends/cpu/emit/codegen.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "backends/codegen/emit/elementwise.h"
#include "backends/codegen/fused/region.h"
#include "backends/codegen/index/contraction_index.h"
#include "backends/contract/digest.h"
#include "backends/cpu/emit/kernels.h"
#include "backends/cpu/plan/make_plan.h"
#include "hlo/byte_stream.h"
#include "hlo/check.h"
#include "hlo/own_calls.h"
#include "llvm/IR/Module.h"
#include "passes/expand/control_flow.h"
#include "passes/memory/value_views.h"

namespace tenon {
namespace {

bool IsEmpty(const FusedKernel& f) {
  for (size_t i = 0; i < f.roots.size(); ++i) {
    if (!(RootShape(f, i).num_elements() == Dim(0))) return false;
  }
  return f.checks.empty();
}

class CpuKernel : public CpuPlannedKernel {
 public:
  CpuKernel(FusedKernel fused, KernelPlan plan, const CpuTarget& target, bool excess_precision)
      : fused_(std::move(fused)),
        plan_(std::move(plan)),
        target_(target),
        excess_precision_(excess_precision) {
    const WorkEstimate work = EstimateWork(fused_, plan_);
    info_.plan_text = ToString(plan_);
    info_.may_overwrite = OverwritesOf(fused_, plan_);
    info_.copies = fused_.copies;
    info_.has_error_word = !fused_.checks.empty();
    info_.size_args = fused_.size_args;
    info_.literals = fused_.literals;
    info_.end = IsEmpty(fused_) ? Dim(0) : work.units;
    info_.grain = work.grain;
    info_.scratch_bytes = plan_.scratch_bytes;
    info_.estimated_ns = work.nanoseconds;
    info_.bytes = work.bytes;
    info_.flops = work.flops;
    ByteStream key(Digest);
    key.Text(target.Key());
    key.Bool(excess_precision);
    key.Text(info_.plan_text);
    AppendFingerprint(fused_, &key);
    fingerprint_ = HexDigest(key.bytes());
  }

  const KernelInfo& info() const override { return info_; }
  const std::string& fingerprint() const override { return fingerprint_; }

  absl::Status Emit(llvm::Module& module, const std::string& symbol) const override {
    llvm::LLVMContext& c = module.getContext();
    llvm::Type *ptr = llvm::PointerType::getUnqual(c), *i64 = llvm::Type::getInt64Ty(c);
    auto* type =
        llvm::FunctionType::get(llvm::Type::getVoidTy(c), {ptr, ptr, i64, i64, ptr}, false);
    llvm::Function* f =
        llvm::Function::Create(type, llvm::Function::ExternalLinkage, symbol, module);
    f->addFnAttr(llvm::Attribute::NoUnwind);
    // Without these, LLVM's tuning of x86-64-v4 takes 512-bit vectors apart.
    f->addFnAttr("prefer-vector-width", absl::StrCat(8 * target_.vector_bytes));
    f->addFnAttr("min-legal-vector-width", absl::StrCat(8 * target_.vector_bytes));
    KernelEmitter e(fused_, {target_.vector_bytes, {target_.has_f16c, excess_precision_}, target_.has_fma}, f);
    if (!IsEmpty(fused_)) EmitBody(e);
    return e.Finish();
  }

 private:
  void EmitBody(KernelEmitter& e) const {
    switch (plan_.kind) {
      case PlanKind::kLoop:
        return EmitLoopKernel(e, plan_);
      case PlanKind::kContraction:
        return EmitContractionKernel(e, plan_);
      case PlanKind::kRow:
        return EmitRowKernel(e, plan_);
      case PlanKind::kColumn:
        return EmitColumnKernel(e, plan_);
      case PlanKind::kTranspose:
        return EmitTransposeKernel(e, plan_);
      case PlanKind::kScatter:
        return EmitScatterKernel(e, plan_);
      case PlanKind::kSelectAndScatter:
        return EmitSelectAndScatterKernel(e, plan_);
      case PlanKind::kSort:
        return EmitSortKernel(e, plan_);
      case PlanKind::kScan:
        return EmitScanKernel(e, plan_);
    }
  }

  FusedKernel fused_;
  KernelPlan plan_;
  CpuTarget target_;
  bool excess_precision_;
  KernelInfo info_;
  std::string fingerprint_;
};

// Wide enough for one sum: integers wrap in any width, floats narrower than f32 would round each step.
bool SumsInRegisters(PrimitiveType type) {
  if (IsFloat(type)) return type == PrimitiveType::kF32 || type == PrimitiveType::kF64;
  return type != PrimitiveType::kPred && (IsComplex(type) || BitWidth(type) >= 8);
}

// One type throughout that sums may be kept in: expand-contractions sees to that.
bool CanGenerateContraction(const Instruction& op) {
  return IsContraction(op) && SumsInRegisters(op.shape().element_type()) && !op.attrs().has(Attr::kAlgorithm) && OfOneType(op);
}

bool HasGeneratedTypes(const Instruction& op) {
  for (const Shape& s : FlattenShape(op.shape())) {
    if (!s.is_array() || !IsGeneratedType(s.element_type())) return false;
    for (int64_t d = 0; d < s.rank(); ++d) {
      if (s.is_dynamic(d)) return false;
    }
  }
  return true;
}

constexpr int64_t kMaxTable = 1 << 16;  // elements of a constant in a region

bool IsGeneralRegion(const Computation& region);

// Can this be part of a region that is evaluated on scalars? Loops carry scalars.
bool FitsRegion(const Instruction& op) {
  switch (op.opcode()) {
    case Opcode::kParameter:
    case Opcode::kTuple:
    case Opcode::kGetTupleElement:
      return true;
    case Opcode::kConstant:
      return HasGeneratedTypes(op) && op.literal().num_elements() <= kMaxTable;
    case Opcode::kWhile:
      return IsGeneralRegion(*op.attrs().get<Computation*>(Attr::kCondition)) &&
             IsGeneralRegion(*op.attrs().get<Computation*>(Attr::kBody));
    case Opcode::kConditional: {
      const std::vector<Computation*> branches = BranchesOf(op);
      return std::all_of(branches.begin(), branches.end(),
                         [](const Computation* c) { return IsGeneralRegion(*c); });
    }
    default:
      return !IsSerialOp(op.opcode()) && (op.opcode() != Opcode::kCustomCall || IsPointwise(op)) && CpuCanGenerate(op);
  }
}

// Parameters and results of scalars, perhaps in one tuple, and between them what can be read by index.
bool IsGeneralRegion(const Computation& region) {
  auto scalars = [](const Shape& shape) {
    for (const Shape& leaf : shape.is_tuple() ? shape.elements() : absl::MakeConstSpan(&shape, 1)) {
      if (!leaf.is_array() || !leaf.is_scalar() || !IsGeneratedType(leaf.element_type())) return false;
    }
    return true;
  };
  for (const Instruction* p : region.parameters()) {
    if (!scalars(p->shape())) return false;
  }
  if (!scalars(region.root()->shape())) return false;
  for (const Instruction* op : region.PostOrder()) {
    if (!FitsRegion(*op)) return false;
    // Tuples hold scalars, but for a reduce of several operands, whose elements are read one by one.
    const bool reduces = op->opcode() == Opcode::kReduce || op->opcode() == Opcode::kReduceWindow;
    if (op->shape().is_tuple() && !reduces && !scalars(op->shape())) return false;
  }
  return true;
}

}  // namespace

bool CpuReducesInAnyOrder(const Instruction& reduce) { return CombineOf(reduce).has_value(); }

bool CpuCanGenerate(const Instruction& op) {
  if (op.opcode() == Opcode::kTuple) return true;
  if (!HasGeneratedTypes(op)) return false;
  for (const Instruction* o : op.operands()) {
    if (!o->shape().is_tuple() && !HasGeneratedTypes(*o)) return false;
  }
  switch (op.opcode()) {
    case Opcode::kParameter:
    case Opcode::kGetTupleElement:
    case Opcode::kIota:
    case Opcode::kBroadcast:
    case Opcode::kReshape:
    case Opcode::kTranspose:
    case Opcode::kSlice:
    case Opcode::kPad:
    case Opcode::kConcatenate:
    case Opcode::kReverse:
    case Opcode::kCopy:
    case Opcode::kGather:
    case Opcode::kDynamicSlice:
    case Opcode::kDynamicUpdateSlice:
      return true;
    case Opcode::kBitcast:
      return BitWidth(op.shape().element_type()) ==
             BitWidth(op.operand(0)->shape().element_type());
    case Opcode::kBitcastConvert:
      return ChangesWidth(op) || HasElementwiseBody(op);
    case Opcode::kConstant:
      return op.shape().rank() == 0 || op.literal().IsSplat() || op.literal().num_elements() <= 16;
    case Opcode::kDot:
    case Opcode::kConvolution:
      return CanGenerateContraction(op);
    case Opcode::kReduce:
    case Opcode::kReduceWindow:
    case Opcode::kScatter:
    case Opcode::kMap:
    case Opcode::kSort:
    case Opcode::kSelectAndScatter: {
      const std::vector<const Computation*> regions = RegionsOf(op);
      return std::all_of(regions.begin(), regions.end(),
                         [](const Computation* r) { return IsFlatRegion(*r) || IsGeneralRegion(*r); });
    }
    case Opcode::kTopk:
      return !IsComplex(op.operand(0)->shape().element_type());
    case Opcode::kScan:
      return IsFlatRegion(*op.to_apply(), /*slabs=*/true);
    case Opcode::kCustomCall:
      return op.custom_call_target() == "tenon.check" || (IsPointwise(op) && HasElementwiseBody(op));
    default:
      return IsPointwise(op) && HasElementwiseBody(op);
  }
}

absl::StatusOr<std::unique_ptr<CpuPlannedKernel>> PlanCpuKernelWith(
    const KernelRequest& request, const CpuTarget& target, bool excess_precision,
    const std::optional<KernelPlan>& given) {
  for (const Instruction* op : request.fusion->fused_computation()->instructions()) {
    if (!CpuCanGenerate(*op)) {
      return absl::UnimplementedError(absl::StrCat("fusion ", request.fusion->name(),
                                                   ": no code generation for ", op->ToString()));
    }
  }
  TENON_ASSIGN_OR_RETURN(FusedKernel fused, AnalyzeFusion(request));
  KernelPlan plan;
  if (given) {
    TENON_RETURN_IF_ERROR(CheckPlan(fused, *given));
    plan = *given;
  } else {
    TENON_ASSIGN_OR_RETURN(plan, MakePlan(fused, target));
  }
  return std::make_unique<CpuKernel>(std::move(fused), std::move(plan), target, excess_precision);
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
