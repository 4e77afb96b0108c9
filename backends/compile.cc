#include "backends/compile.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "backends/common/kernel.h"
#include "backends/cpu/jit.h"
#include "backends/program_builder.h"
#include "hlo/check.h"
#include "hlo/eval/evaluator.h"
#include "hlo/text/text.h"
#include "hlo/verifier.h"
#include "llvm/Config/llvm-config.h"
#include "passes/fused_form.h"

namespace tenon {
namespace {

class PhaseTimer {
 public:
  explicit PhaseTimer(std::vector<std::pair<std::string, double>>* phases) : phases_(phases) {}
  void Done(std::string phase) {
    const auto now = std::chrono::steady_clock::now();
    phases_->emplace_back(std::move(phase), std::chrono::duration<double, std::milli>(now - last_).count());
    last_ = now;
  }

 private:
  std::vector<std::pair<std::string, double>>* phases_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// Files of one compile under dump_dir. A dump that cannot be written never fails the compile.
class Dumper {
 public:
  explicit Dumper(const CompileOptions& options) : dir_(options.dump_dir), prefix_(options.dump_prefix) {
    std::error_code ignored;
    if (on()) std::filesystem::create_directories(dir_, ignored);
  }
  bool on() const { return !dir_.empty(); }
  void Write(const std::string& name, const std::string& text) const {
    if (on()) std::ofstream(std::filesystem::path(dir_) / absl::StrCat(prefix_, name)) << text;
  }

 private:
  std::string dir_, prefix_;
};

int Cores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

TargetInfo InfoOfTarget(const CpuTarget& target, const CompileOptions& options) {
  TargetInfo info;
  info.name = absl::StrCat("cpu-", target.isa);
  info.vector_bytes = target.vector_bytes;
  info.threads = options.threads > 0 ? options.threads : Cores();
  return info;
}

// Planning with every operand dense in its layout: says whether the fusion can be a kernel, before memory is known.
absl::Status TryPlan(const Instruction& fusion, const CpuTarget& target, bool excess_precision) {
  auto layout = [](const Shape& shape) {
    const DimVector strides = shape.strides();
    return OperandLayout{.strides = {strides.begin(), strides.end()}};
  };
  KernelRequest request{.fusion = &fusion};
  for (const Instruction* operand : fusion.operands()) request.operands.push_back(layout(operand->shape()));
  for (const Shape& leaf : FlattenShape(fusion.shape())) request.results.push_back(layout(leaf));
  return PlanCpuKernel(request, target, excess_precision).status();
}

absl::Status RunPasses(Module& module, const CompileOptions& options, const CpuTarget& target, const Dumper& dumper,
                       std::vector<Remark>* remarks) {
  PassContext context;
  context.target = InfoOfTarget(target, options);
  context.excess_precision = options.excess_precision;
  context.remarks = remarks;
  context.evaluate = [](const Instruction& op, absl::Span<const Literal> operands) { return EvaluateInstruction(op, operands); };
  context.can_generate = CpuCanGenerate;
  context.try_plan = [&](const Instruction& fusion) { return TryPlan(fusion, target, options.excess_precision); };
  PipelineOptions pipeline{.passes = options.passes, .disable = options.disable_passes, .stop_after = options.stop_after,
                           .verify = options.verify_passes};
  if (dumper.on()) {
    dumper.Write("00.input.hlo", Print(module));
    pipeline.dump = [&](std::string_view pass, int index, const Module& m) {
      dumper.Write(absl::StrFormat("%02d.%s.hlo", index + 1, std::string(pass)), Print(m));
    };
  }
  if (options.inject_fault == "pass-crash") throw InternalError("injected crash in a pass");
  TENON_RETURN_IF_ERROR(RunPipeline(module, context, pipeline).status());
  return CheckFusedForm(module);
}

// Contiguous shares of the kernels, one LLVM module each, one thread each. Threads are joined before the return, so that a
// forked child never misses one.
absl::Status CompileKernels(BuiltProgram& built, const CompileOptions& options, const CpuTarget& target, const Dumper& dumper) {
  const int kernels = static_cast<int>(built.kernels.size());
  if (kernels == 0) return absl::OkStatus();
  const int wanted = options.compile_threads > 0 ? options.compile_threads : std::min(3, Cores());
  const int threads = std::clamp(kernels / 2, 1, wanted);
  struct Share { absl::StatusOr<std::vector<uint8_t>> object; std::string ir, assembly; };
  std::vector<Share> shares(threads);
  auto compile = [&](int t) {
    ObjectRequest request{.target = target, .name = absl::StrCat(built.program.name, ".", t), .inject_fault = options.inject_fault};
    if (dumper.on()) {
      request.llvm_ir = &shares[t].ir;
      request.assembly = &shares[t].assembly;
    }
    request.emit = [&, t](llvm::Module& module) -> absl::Status {
      for (int k = t; k < kernels; k += threads) {
        TENON_RETURN_IF_ERROR(built.kernels[k]->Emit(module, built.program.kernels[k].symbol));
      }
      return absl::OkStatus();
    };
    shares[t].object = CompileToObject(request);
  };
  std::vector<std::thread> workers;
  for (int t = 1; t < threads; ++t) workers.emplace_back(compile, t);
  compile(0);
  for (std::thread& w : workers) w.join();
  for (int t = 0; t < threads; ++t) {
    TENON_RETURN_IF_ERROR(shares[t].object.status());
    AppendObject(&built.program.object, *shares[t].object);
    dumper.Write(absl::StrFormat("llvm.%d.ll", t), shares[t].ir);
    dumper.Write(absl::StrFormat("llvm.%d.s", t), shares[t].assembly);
  }
  return absl::OkStatus();
}

std::string PlansOf(const BuiltProgram& built) {
  std::string text;
  for (const KernelSpec& k : built.program.kernels) absl::StrAppend(&text, "// ", k.symbol, "\n", k.plan, "\n");
  return text;
}

absl::StatusOr<Program> Compile(Module& module, const Binding& binding, const CompileOptions& options) {
  std::vector<std::pair<std::string, double>> phases;
  PhaseTimer timer(&phases);
  std::vector<Remark> remarks;
  const Dumper dumper(options);
  TENON_ASSIGN_OR_RETURN(const CpuTarget target, MakeCpuTarget(options.isa));
  if (options.verify_passes) TENON_RETURN_IF_ERROR(Verify(module));
  timer.Done("setup");
  TENON_RETURN_IF_ERROR(RunPasses(module, options, target, dumper, &remarks));
  timer.Done("passes");
  TENON_ASSIGN_OR_RETURN(BuiltProgram built, BuildProgram(module, binding, target, options.excess_precision, &remarks));
  dumper.Write("plans.txt", PlansOf(built));
  dumper.Write("buffers.txt", built.buffer_plan);
  timer.Done("plan");
  TENON_RETURN_IF_ERROR(CompileKernels(built, options, target, dumper));
  timer.Done("llvm");
  dumper.Write("program.txt", built.program.ToString());
  for (const Remark& r : remarks) built.program.remarks.push_back(r.ToJson());
  built.program.compile_ms = std::move(phases);
  return std::move(built.program);
}

}  // namespace

std::string CompileOptions::Key() const {
  return absl::StrCat("isa=", isa, ";excess=", excess_precision, ";passes=", absl::StrJoin(passes, ","),
                      ";disable=", absl::StrJoin(disable_passes, ","), ";stop=", stop_after, ";threads=", threads,
                      ";fault=", inject_fault);
}

absl::StatusOr<Program> CompileToProgram(std::unique_ptr<Module> module, Binding binding, const CompileOptions& options) {
  try {
    return Compile(*module, binding, options);
  } catch (const InternalError& e) {
    return absl::InternalError(e.what());
  }
}

std::string CompilerBuildId() {
  // The library's own version and the LLVM that generates its code. A development build differs at every compile of this file.
  return absl::StrCat("tenon-", TENON_VERSION, "-llvm-", LLVM_VERSION_STRING, "-", __DATE__, "-", __TIME__);
}

}  // namespace tenon
