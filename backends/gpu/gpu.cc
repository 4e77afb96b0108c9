#include "backends/gpu/gpu.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "backends/codegen/fused/fused_kernel.h"
#include "backends/codegen/llvm/emit_kernels.h"
#include "backends/codegen/math/library.h"
#include "backends/contract/provider.h"
#include "backends/gpu/emit/gpu_kernel.h"
#include "backends/gpu/emit/image.h"
#include "backends/gpu/emit/ptx_repair.h"
#include "backends/gpu/plan/attention_tile.h"
#include "backends/gpu/plan/block_product.h"
#include "backends/gpu/plan/gpu_plan.h"
#include "backends/gpu/plan/libraries.h"
#include "hlo/check.h"
#include "llvm/IR/Module.h"

extern "C" {
void LLVMInitializeNVPTXTargetInfo();
void LLVMInitializeNVPTXTarget();
void LLVMInitializeNVPTXTargetMC();
void LLVMInitializeNVPTXAsmPrinter();
}

namespace tenon::gpu {
namespace {

void InitializeNvptx() {
  LLVMInitializeNVPTXTargetInfo();
  LLVMInitializeNVPTXTarget();
  LLVMInitializeNVPTXTargetMC();
  LLVMInitializeNVPTXAsmPrinter();
}

// Without libraries everything is generated.
constexpr Provider kProviders[] = {
    {"generated", GeneratedTakes, Provider::Bias::kNever, nullptr},
};

TargetFacts FactsOf(const GpuOptions& o) {
  const std::string key = absl::StrCat(o.name, "|", o.model.Key(), o.bitcode ? "|bitcode" : "", o.libraries ? "|libraries" : "",
                                       o.sabotage ? "|sabotaged" : "");
  TargetFacts facts{.name = o.name, .variant = o.model.name, .key = key, .space = kSpace, .framework = o.libraries};
  facts.providers = o.libraries ? LibraryProviders(o.model) : absl::Span<const Provider>(kProviders);
  facts.info.name = absl::StrCat(o.name, "-", o.model.name);
  facts.info.vector_bytes = 16;
  facts.info.bytes_per_ns = o.model.bytes_per_ns;
  facts.info.flops_per_ns = o.model.f32_flops_per_ns;
  facts.info.kept_row_bytes = MostKeptBytes(o.model);
  facts.info.rows_at_once = int64_t{o.model.sms} * std::max(1, o.model.threads_per_sm / kRowThreads);
  facts.info.cache_bytes = o.model.l2_bytes;
  return facts;
}

// Only what NVPTX has instructions for: a GPU has no C library to link.
absl::Status CheckCalls(const llvm::Module& module) {
  for (const llvm::Function& f : module) {
    if (!f.isDeclaration() || f.isIntrinsic() || f.use_empty()) continue;
    return absl::InternalError(
        absl::StrCat("GPU code of ", module.getName().str(), " calls \"", f.getName().str(), "\", which no GPU has"));
  }
  return absl::OkStatus();
}

// LLVM's wrapper of bitcode (llvm/Bitcode/BitcodeReader.h), whose header says how long it is: a driver gets modules without a size.
std::string Wrapped(const std::string& bitcode) {
  const uint32_t header[] = {0x0b17c0de, 0, 20, static_cast<uint32_t>(bitcode.size()), 0};
  return std::string(reinterpret_cast<const char*>(header), sizeof(header)) + bitcode;
}

class Gpu : public Target {
 public:
  explicit Gpu(GpuOptions options) : Target(FactsOf(options)), options_(std::move(options)) {}

  bool CanGenerate(const Instruction& op) const override { return GpuCanGenerate(op); }
  bool ReducesInAnyOrder(const Instruction& reduce) const override { return CombineOf(reduce).has_value(); }
  // Slices of it go through shared memory.
  bool PacksWhereItLies(const Instruction& contraction, absl::Span<const Dim>) const override { return BlocksTake(contraction); }
  bool TakesAttention(const Attention& attention, bool excess_precision) const override {
    return gpu::TakesAttention(attention, options_.model, excess_precision);
  }
  absl::StatusOr<LaunchPlan> Plan(const Instruction& op, const ValueViews& views, bool excess_precision) const override {
    return PlanAs(op, views, excess_precision, nullptr);
  }
  absl::StatusOr<LaunchPlan> PlanAs(const Instruction& op, const ValueViews& views, bool excess_precision, std::string_view plan,
                                    DimTable* dims) const override {
    TENON_ASSIGN_OR_RETURN(const std::vector<GpuPlan> given, ParseGpuPlans(plan, dims));
    return PlanAs(op, views, excess_precision, &given);
  }

  absl::StatusOr<std::vector<uint8_t>> Emit(const EmitRequest& request) const override {
    KernelEmission emission{.keep_bitcode = options_.bitcode};
    emission.module = [this](std::string name) {
      return ModuleRequest{.target = {"nvptx64-nvidia-cuda", options_.model.name, options_.model.ptx, /*jit=*/false, InitializeNvptx},
                           .name = std::move(name),
                           .as_text = true,
                           .repair = RepairPtx,
                           .no_code = options_.bitcode && !options_.ptx_besides};
    };
    emission.emit = [this](llvm::Module& module, const PlannedKernel& planned, const std::string& symbol) {
      TENON_RETURN_IF_ERROR(KernelOf(planned, symbol).Emit(module, symbol));
      if (options_.sabotage) options_.sabotage(*module.getFunction(symbol));
      math::DefineLibraryFunctions(module);
      return CheckCalls(module);
    };
    TENON_ASSIGN_OR_RETURN(std::vector<EmittedShare> shares, EmitKernels(request, emission));
    Image image{.architecture = options_.model.name, .bitcode = options_.bitcode};
    for (EmittedShare& share : shares) {
      const std::string_view ptx(reinterpret_cast<const char*>(share.code.data()), share.code.size());
      ImageModule module{.code = options_.bitcode ? Wrapped(share.bitcode) : std::string(ptx)};
      for (const size_t k : share.kernels) {
        const GpuKernel& kernel = KernelOf(*request.kernels[k], request.symbols[k]);
        module.kernels.push_back({request.symbols[k], kernel.pointers(), kernel.args()});
      }
      image.modules.push_back(std::move(module));
    }
    return Serialize(image);
  }

  // Registers are ptxas's to give: as if there were enough.
  std::optional<Occupancy> OccupancyOf(const PlannedKernel& planned) const override {
    const GpuModel& model = options_.model;
    const LaunchDims& launch = *KernelOf(planned, "").info().launch;
    const int threads = launch.block[0] * launch.block[1] * launch.block[2];
    const int blocks = BlocksPerSm(model, threads, /*registers=*/1, launch.shared_bytes);
    return Occupancy{.blocks = blocks, .threads = blocks * threads, .most_threads = model.threads_per_sm, .multiprocessors = model.sms};
  }

  CodeLoader* loader() const override { return options_.loader; }

 private:
  static const GpuKernel& KernelOf(const PlannedKernel& planned, const std::string& symbol) {
    const auto* kernel = dynamic_cast<const GpuKernel*>(&planned);
    TENON_CHECK(kernel != nullptr, absl::StrCat("kernel ", symbol, " is of another target"));
    return *kernel;
  }

  absl::StatusOr<LaunchPlan> PlanAs(const Instruction& op, const ValueViews& views, bool excess_precision,
                                    const std::vector<GpuPlan>* given) const {
    if (op.opcode() != Opcode::kFusion)
      return absl::UnimplementedError(absl::StrCat("no GPU code for ", op.ToString(), " outside of a kernel"));
    return PlanGpuLaunches(RequestOf(op, views), options_.model, excess_precision, given);
  }

  const GpuOptions options_;
};

}  // namespace

std::shared_ptr<const Target> MakeGpu(GpuOptions options) { return std::make_shared<Gpu>(std::move(options)); }

}  // namespace tenon::gpu
