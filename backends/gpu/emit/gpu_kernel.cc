#include "backends/gpu/emit/gpu_kernel.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "backends/codegen/fused/generate.h"
#include "backends/codegen/index/contraction_index.h"
#include "backends/codegen/plan/check_plan.h"
#include "backends/contract/digest.h"
#include "backends/gpu/emit/kernels.h"
#include "backends/gpu/emit/narrow_indices.h"
#include "backends/gpu/emit/selection_repair.h"
#include "backends/gpu/emit/threads.h"
#include "backends/gpu/plan/attention_tile.h"
#include "hlo/byte_stream.h"
#include "hlo/own_calls.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"

namespace tenon::gpu {
namespace {

using llvm::Value;

bool IsEmpty(const FusedKernel& f) {
  for (size_t i = 0; i < f.roots.size(); ++i) {
    if (!(RootShape(f, i).num_elements() == Dim(0))) return false;
  }
  return true;
}

// Where threads share a unit, one of them may read what another has overwritten: full-shaped results stay in place, whose elements are read
// and written by one thread.
std::vector<LaunchPlan::Pair> GpuOverwrites(const FusedKernel& f, const GpuPlan& plan) {
  if (plan.loops.kind == PlanKind::kAttention) return {};  // blocks read what others write
  std::vector<LaunchPlan::Pair> pairs = OverwritesOf(f, plan.loops);
  if (plan.loops.kind == PlanKind::kContraction) {  // the columns of a row may be several blocks'
    std::erase_if(pairs, [&](const LaunchPlan::Pair& p) {
      return absl::c_any_of(f.computation->parameter(p.operand)->users(), [](const Instruction* u) { return IsContraction(*u); });
    });
  }
  const bool column = plan.loops.kind == PlanKind::kColumn;
  // Rows of a sort have been read before a barrier, or by launches before the one that writes results.
  if ((plan.team == 1 && !column) || plan.loops.kind == PlanKind::kSort) return pairs;
  // Threads behind the last column read what others have.
  const bool whole = !column || plan.loops.loops.back().extent.constant_or(1) % plan.loops.block == 0;
  std::erase_if(pairs,
                [&](const LaunchPlan::Pair& p) { return !whole || f.RoleOf(RootShape(f, static_cast<size_t>(p.leaf))) != Role::kFull; });
  return pairs;
}

// Buffers of a GPU's memory begin at multiples of 256 (a caller's at least of 16: docs/gpu.md), so what lies at whole vectors in one can be
// accessed by them.
std::vector<bool> AlignedPointers(const FusedKernel& f) {
  std::vector<bool> aligned;
  auto add = [&](const OperandLayout& layout, const Shape& shape) {
    aligned.push_back(shape.is_array() && layout.offset.is_constant() &&
                      layout.offset.constant() * ByteWidth(shape.element_type()) % 16 == 0);
  };
  for (size_t p = 0; p < f.operands.size(); ++p) add(f.operands[p], f.computation->parameter(static_cast<int64_t>(p))->shape());
  for (size_t r = 0; r < f.results.size(); ++r) add(f.results[r], RootShape(f, r));
  return aligned;
}

// Of an array that is only picked from: what is picked, at most all of it.
int64_t BytesRead(const Instruction& parameter) {
  const int64_t all = Typical(parameter.shape().byte_size());
  int64_t picked = 0;
  for (const Instruction* user : parameter.users()) {
    const Opcode by = user->opcode();
    const bool picks = user->operand(0) == &parameter && (by == Opcode::kGather || by == Opcode::kDynamicSlice || by == Opcode::kSlice);
    if (!picks) return all;
    picked += Typical(user->shape().byte_size());
  }
  return std::min(all, picked);
}

int64_t BytesMoved(const FusedKernel& f, const GpuLaunch& launch) {
  int64_t bytes = 0;
  for (const auto* memory : {&launch.reads, &launch.writes}) {
    for (const Launches::Memory& m : *memory) {
      if (m.kind == Launches::Memory::Kind::kTemporary) bytes += Typical(TemporaryBytes(f, launch.plan));
      if (m.kind == Launches::Memory::Kind::kResult) bytes += Typical(RootShape(f, static_cast<size_t>(m.index)).byte_size());
      if (m.kind != Launches::Memory::Kind::kOperand || launch.plan.pass == GpuPass::kCarries) continue;
      const Instruction* parameter = f.computation->parameter(m.index);
      if (parameter->shape().is_array()) bytes += BytesRead(*parameter);
    }
  }
  return bytes;
}

int64_t Flops(const FusedKernel& f) {
  int64_t flops = 0;
  for (const Instruction* op : f.order) {
    if (!op->shape().is_array() || !IsPointwise(*op)) continue;
    flops += Typical(op->shape().num_elements());
  }
  for (const Instruction* r : f.reduces) flops += Typical(r->operand(0)->shape().num_elements());
  return flops;
}

// Numbers of f64 (whose division and roots are subroutines), and functions. With those ptxas spills rather than take a 33rd or 49th
// register, unless it is told how many blocks a multiprocessor should hold at least.
bool SpillsUnlessTold(const llvm::Function& f) {
  return absl::c_any_of(llvm::instructions(f), [](const llvm::Instruction& i) {
    const bool calls = llvm::isa<llvm::CallInst>(i) && !llvm::isa<llvm::IntrinsicInst>(i);
    return calls || i.getType()->getScalarType()->isDoubleTy();
  });
}

// Does it tell a NaN of f16 from others?
bool LooksAtF16Nans(const Instruction& op) {
  const auto takes_f16 = [&] { return op.operand(0)->shape().element_type() == PrimitiveType::kF16; };
  if (op.opcode() == Opcode::kBitcastConvert) return takes_f16();
  if (op.opcode() == Opcode::kCompare && takes_f16()) return op.attrs().get_or<std::string>(Attr::kComparisonType, "") == "TOTALORDER";
  return absl::c_any_of(op.called_computations(), [](const Computation* c) {
    return absl::c_any_of(c->instructions(), [](const Instruction* i) { return LooksAtF16Nans(*i); });
  });
}

}  // namespace

GpuKernel::GpuKernel(FusedKernel fused, GpuLaunch launch, const GpuModel& model, bool excess_precision)
    : fused_(std::move(fused)), launch_(std::move(launch)), excess_precision_(excess_precision),
      packs_bf16_(model.bf16_flops_per_ns > 0), aligned_(AlignedPointers(fused_)) {
  info_.plan_text = ToString(launch_.plan);
  info_.may_overwrite = GpuOverwrites(fused_, launch_.plan);
  info_.copies = fused_.copies;
  info_.size_args = fused_.size_args;
  info_.literals = fused_.literals;
  info_.literals.insert(info_.literals.end(), launch_.numbers.begin(), launch_.numbers.end());
  const Dim units = IsEmpty(fused_) ? Dim(0) : GpuUnits(launch_.plan);
  info_.launch = LaunchDims{.grid = {CeilDiv(units, launch_.plan.units_per_block()), 1, 1},
                            .block = {launch_.plan.threads, 1, 1},
                            .shared_bytes = SharedOf(fused_, launch_.plan).bytes};
  info_.bytes = BytesMoved(fused_, launch_);
  info_.flops = Flops(fused_);
  info_.estimated_ns = model.launch_ns + static_cast<double>(info_.bytes) / model.bytes_per_ns;
  ByteStream key(Digest);
  key.Text(absl::StrCat("gpu ", model.name));
  key.Bool(excess_precision);
  key.Text(info_.plan_text);
  for (const bool aligned : aligned_) key.Bool(aligned);
  AppendFingerprint(fused_, &key);
  fingerprint_ = HexDigest(key.bytes());
}

int GpuKernel::WordOf(Launches::Memory memory) const {
  int word = 0;
  for (const auto* pointers : {&launch_.reads, &launch_.writes}) {
    for (const Launches::Memory& m : *pointers) {
      if (m == memory) return word;
      ++word;
    }
  }
  return -1;
}

absl::Status GpuKernel::Emit(llvm::Module& module, const std::string& symbol) const {
  llvm::LLVMContext& c = module.getContext();
  auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(c), {llvm::PointerType::get(c, kGlobalSpace)}, false);
  llvm::Function* f = llvm::Function::Create(type, llvm::Function::ExternalLinkage, symbol, module);
  f->setCallingConv(llvm::CallingConv::PTX_Kernel);
  f->addFnAttr(llvm::Attribute::NoUnwind);
  f->addFnAttr("nvvm.maxntid", absl::StrCat(launch_.plan.threads));
  const SharedLayout shared = SharedOf(fused_, launch_.plan);
  Value *thread = nullptr, *memory = nullptr;
  LaunchMemory temporaries;
  const KernelSpecs specs{.vector_bytes = 16,
                          .types = {.has_f16c = true,
                                    .excess_precision = excess_precision_,
                                    .keeps_f16_nans = absl::c_any_of(fused_.order, [](const auto* op) { return LooksAtF16Nans(*op); }),
                                    .packs_f16 = true,
                                    .packs_bf16 = packs_bf16_},
                          .has_fma = true,
                          .prefetches = false,
                          .reads_between = false};
  KernelEmitter e(fused_, specs, f, [&](llvm::IRBuilder<>& b) {
    Value* table = b.CreateAddrSpaceCast(f->getArg(0), b.getPtrTy());
    thread = b.CreateZExt(ThreadInBlock(b), b.getInt64Ty());
    Value* block = b.CreateZExt(BlockInGrid(b), b.getInt64Ty());
    if (shared.bytes > 0) memory = SharedMemory(b, module, symbol, shared.bytes);
    KernelEntry entry{.pointers = table, .one_unit = true, .address_space = kGlobalSpace, .aligned = aligned_};
    entry.args = b.CreateConstGEP1_64(b.getInt64Ty(), table, static_cast<uint64_t>(pointers()));
    using Kind = Launches::Memory::Kind;
    for (size_t i = 0; i < fused_.operands.size(); ++i) entry.words.push_back(WordOf({Kind::kOperand, static_cast<int64_t>(i)}));
    for (size_t i = 0; i < fused_.results.size(); ++i) entry.words.push_back(WordOf({Kind::kResult, static_cast<int64_t>(i)}));
    auto temporary = [&](const std::vector<Launches::Memory>& of) -> Value* {
      if (of.empty() || of.back().kind != Kind::kTemporary) return nullptr;
      Value* word = b.CreateConstInBoundsGEP1_64(b.getPtrTy(), table, static_cast<uint64_t>(WordOf(of.back())));
      return b.CreateAddrSpaceCast(b.CreateLoad(b.getPtrTy(kGlobalSpace), word), b.getPtrTy());
    };
    temporaries.from = temporary(launch_.reads);
    temporaries.to = temporary(launch_.writes);
    if (!launch_.numbers.empty())
      temporaries.run = b.CreateLoad(b.getInt64Ty(), b.CreateConstGEP1_64(b.getInt64Ty(), entry.args, static_cast<uint64_t>(args() - 1)));
    entry.begin = block;
    if (launch_.plan.units_per_block() > 1) {
      Value* in_block = launch_.plan.team > 1 ? b.CreateUDiv(thread, b.getInt64(static_cast<uint64_t>(launch_.plan.team))) : thread;
      entry.begin = b.CreateAdd(b.CreateMul(block, b.getInt64(static_cast<uint64_t>(launch_.plan.units_per_block()))), in_block);
      if (shared.kept > 0)
        entry.scratch = b.CreateGEP(b.getInt8Ty(), memory, b.CreateMul(in_block, b.getInt64(static_cast<uint64_t>(shared.kept))));
    } else if (shared.kept > 0) {
      entry.scratch = memory;
    }
    entry.end = b.CreateAdd(entry.begin, b.getInt64(1));
    return entry;
  });
  // All threads are wanted where they meet at barriers, of a block for each unit or of a sort.
  if (launch_.plan.units_per_block() > 1 && !launch_.plan.has_barriers()) {
    e.LeaveUnless(e.Here().CreateICmpSLT(e.begin(), e.EmitDim(GpuUnits(launch_.plan))));
  }
  Value* exchange =
      memory == nullptr ? nullptr : e.Here().CreateConstGEP1_64(e.Here().getInt8Ty(), memory, static_cast<uint64_t>(shared.exchange));
  e.set_team(MakeTeam(e, launch_.plan, thread, exchange));
  auto body = [&] {
    switch (launch_.plan.loops.kind) {
      case PlanKind::kRow:
        return EmitRowKernel(e, launch_.plan.loops);
      case PlanKind::kColumn:
        return EmitColumnKernel(e, launch_.plan, thread);
      case PlanKind::kTranspose:
        return EmitTransposeKernel(e, launch_.plan, thread, exchange);
      case PlanKind::kContraction:
        if (launch_.plan.slice > 0) return EmitTiledContractionKernel(e, launch_.plan, thread);
        return EmitContractionKernel(e, launch_.plan.loops);
      case PlanKind::kAttention:
        return EmitAttentionKernel(e, launch_.plan, thread);
      case PlanKind::kScatter:
        return EmitScatterKernel(e, launch_.plan.loops);
      case PlanKind::kSelectAndScatter:
        return EmitSelectAndScatterKernel(e, launch_.plan.loops);
      case PlanKind::kScan:
        if (launch_.plan.team > 1) return EmitTeamScanKernel(e, launch_.plan, temporaries, exchange);
        return EmitScanKernel(e, launch_.plan.loops);
      case PlanKind::kSort:
        return EmitSortKernel(e, launch_.plan, temporaries);
      default:
        return EmitLoopKernel(e, launch_.plan.loops);
    }
  };
  if (!IsEmpty(fused_)) body();
  TENON_RETURN_IF_ERROR(e.Finish());
  RepairSelection(*f);
  NarrowIndices(*f, launch_.plan.threads, info_.launch->grid[0].constant_or(0));
  // Tiles have their sums in registers, as many as there are.
  const bool attention = launch_.plan.loops.kind == PlanKind::kAttention;
  if (launch_.plan.slice > 0 || attention || SpillsUnlessTold(*f)) {
    f->addFnAttr("nvvm.minctasm", absl::StrCat(attention ? BlocksOfAttention(fused_, launch_.plan) : 1));
  }
  return absl::OkStatus();
}

bool GpuCanGenerate(const Instruction& op) {
  if (op.opcode() == Opcode::kCustomCall && !IsPointwiseCall(op)) return false;  // checks: an error of a launch comes too late
  return CanGenerate(op);
}

absl::StatusOr<LaunchPlan> PlanGpuLaunches(const KernelRequest& request, const GpuModel& model, bool excess_precision,
                                           const std::vector<GpuPlan>* given) {
  for (const Instruction* op : request.fusion->fused_computation()->instructions()) {
    if (!GpuCanGenerate(*op)) {
      return absl::UnimplementedError(absl::StrCat("fusion ", request.fusion->name(), ": no GPU code for ", op->ToString()));
    }
  }
  TENON_ASSIGN_OR_RETURN(FusedKernel fused, AnalyzeFusion(request));
  std::vector<GpuPlan> plans;
  if (given != nullptr) {
    TENON_RETURN_IF_ERROR(CheckGpuPlans(fused, *given, model));
    plans = *given;
  } else {
    TENON_ASSIGN_OR_RETURN(plans, MakeGpuPlans(fused, model));
  }
  GpuLaunches made = LaunchesOf(fused, plans);
  LaunchPlan planned{.may_overwrite = GpuOverwrites(fused, plans[0]), .copies = fused.copies};
  auto several = std::make_shared<Launches>();
  several->temporaries = std::move(made.temporaries);
  for (GpuLaunch& launch : made.launches) {
    Launches::Launch& made_so = several->launches.emplace_back(Launches::Launch{.reads = launch.reads, .writes = launch.writes});
    auto kernel = std::make_shared<GpuKernel>(fused, std::move(launch), model, excess_precision);
    planned.nanoseconds += kernel->info().estimated_ns;
    planned.bytes += kernel->info().bytes;
    planned.flops += kernel->info().flops;
    made_so.target = std::move(kernel);
  }
  if (several->launches.size() == 1) planned.target = std::move(several->launches[0].target);
  else planned.target = std::move(several);
  return planned;
}

}  // namespace tenon::gpu
