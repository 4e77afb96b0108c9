// gpu-report: graphs of PyTorch (aten::Graph text, traced on the CPU) compiled for a GPU that is not there, and what their programs
// would do.
#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "backends/driver/compile.h"
#include "backends/driver/targets.h"
#include "hlo/eval/evaluator.h"
#include "tools/gpu-report/costs.h"
#include "tools/lab/gpu/ptxas.h"
#include "torch_plugin/aten/lower.h"
#include "torch_plugin/aten/retarget.h"

namespace tenon::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char kUsage[] =
    R"(usage: gpu-report [options] graph.aten...

Prints a JSON object per graph and line: launches, library calls, bytes, estimated time, what is left to the host, compile times.

  --architecture=sm_90   of the GPU
  --generated            kernels instead of cuBLASLt and cuDNN
  --threads=2            of the compiler
  --ptxas                assemble the kernels: registers, shared memory, spills (told where there is no ptxas)
  --retarget             print the graph for the GPU instead
  --bytes=4300 --half=790000 --flops=66900 --launch=2000
                         rates of the estimate: GB/s, GFLOP/s of halves' products and of f32, ns of a launch

Exit code: 0 success, 1 a graph was refused (its object says why), 2 bad usage.
)";

struct Options {
  std::string architecture = "sm_90";
  bool libraries = true, ptxas = false, retarget = false;
  int threads = 2;
  Rates rates;
  std::vector<std::string> files;
};

bool Parse(int argc, char** argv, Options* o) {
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (!arg.starts_with("--")) {
      o->files.push_back(arg);
      continue;
    }
    const size_t equals = std::min(arg.find('='), arg.size());
    const std::string name = arg.substr(0, equals), value = equals < arg.size() ? arg.substr(equals + 1) : "";
    if (name == "--architecture") o->architecture = value;
    else if (name == "--generated") o->libraries = false;
    else if (name == "--ptxas") o->ptxas = true;
    else if (name == "--retarget") o->retarget = true;
    else if (name == "--threads") o->threads = std::atoi(value.c_str());
    else if (name == "--bytes") o->rates.bytes_per_ns = std::atof(value.c_str());
    else if (name == "--half") o->rates.half_flops_per_ns = std::atof(value.c_str());
    else if (name == "--flops") o->rates.flops_per_ns = std::atof(value.c_str());
    else if (name == "--launch") o->rates.launch_ns = std::atof(value.c_str());
    else return false;
  }
  return !o->files.empty();
}

// By the architecture that the code is for.
Json Resources(const Program& program) {
  if (!gpu::HasPtxas()) return {{"skipped", gpu::kNoPtxas}};
  const absl::StatusOr<gpu::PtxModules> ptx = gpu::PtxOf(program);
  if (!ptx.ok()) return {{"error", std::string(ptx.status().message())}};
  const auto began = std::chrono::steady_clock::now();
  Json kernels = Json::array();
  int64_t spilled = 0, stack = 0;
  for (const std::string& module : ptx->modules) {
    const absl::StatusOr<gpu::Assembled> assembled = gpu::Assemble(module, ptx->architecture);
    if (!assembled.ok()) return {{"error", std::string(assembled.status().message())}};
    for (const gpu::PtxasKernel& k : assembled->kernels) {
      spilled += k.spill_stores + k.spill_loads;
      stack += k.stack;
      kernels.push_back({{"name", k.name}, {"registers", k.registers}, {"shared", k.shared}, {"barriers", k.barriers}, {"stack", k.stack},
                         {"spilled", k.spill_stores + k.spill_loads}});
    }
  }
  const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - began;
  return {{"ms", spent.count()}, {"spilled", spilled}, {"stack", stack}, {"kernels", kernels}};
}

absl::StatusOr<Json> Report(const aten::Graph& graph, const Options& o) {
  const auto began = std::chrono::steady_clock::now();
  TENON_ASSIGN_OR_RETURN(const aten::Graph moved, aten::Retarget(graph, {.device = "cuda:0", .foreign = true}));
  CompileOptions compile;
  compile.evaluate = ConstantFolder();
  compile.compile_threads = o.threads;
  TENON_ASSIGN_OR_RETURN(std::shared_ptr<const Target> target, MakeTarget("gpu", o.architecture + (o.libraries ? ",libraries" : ""), true));
  compile.targets.push_back(std::move(target));
  TENON_ASSIGN_OR_RETURN(aten::Lowered lowered,
                         aten::Lower(moved, {.disable = {}, .device = "cuda:0", .space = compile.targets[0]->facts().space}));
  const std::chrono::duration<double, std::milli> lower = std::chrono::steady_clock::now() - began;
  TENON_ASSIGN_OR_RETURN(const Program program, CompileToProgram(std::move(lowered.module), std::move(lowered.binding), compile));
  const std::chrono::duration<double, std::milli> all = std::chrono::steady_clock::now() - began;

  const Costs costs = CostsOf(program, o.rates);
  const EagerCosts eager = EagerCostsOf(graph);
  Json unplanned = Json::array(), left = Json::object();
  for (const std::string& text : program.remarks) {
    const Json remark = Json::parse(text);
    if (remark.value("kind", "") != "host") continue;
    const std::string reason = remark.value("reason", "");
    if (remark.value("pass", "") == "lower-kernels") unplanned.push_back(absl::StrCat(remark.value("instruction", ""), ": ", reason));
    else left[reason] = left.value(reason, 0) + 1;
  }
  Json phases = {{"lower", lower.count()}};
  for (const auto& [phase, ms] : program.compile_ms) phases[phase] = ms;
  Json report = {{"architecture", o.architecture}, {"kernels", costs.kernels}, {"launches", costs.launches}, {"library", costs.library},
                 {"framework", costs.framework}, {"copies", costs.copies}, {"host_copies", costs.host_copies}, {"host", costs.host},
                 {"left_to_host", left}, {"unplanned", unplanned}, {"steps", costs.steps()},
                 {"kernel_bytes", costs.kernel_bytes}, {"library_bytes", costs.library_bytes}, {"framework_bytes", costs.framework_bytes},
                 {"copy_bytes", costs.copy_bytes}, {"host_copy_bytes", costs.host_copy_bytes}, {"flops", costs.flops},
                 {"busy_us", costs.busy_ns / 1e3}, {"launch_us", static_cast<double>(costs.steps()) * o.rates.launch_ns / 1e3},
                 {"eager_nodes", eager.nodes}, {"eager_launches", eager.launches}, {"eager_bytes", eager.bytes},
                 {"workspace_bytes", costs.workspace_bytes}, {"arena_bytes", costs.arena_bytes}, {"code_bytes", program.code_bytes()},
                 {"compile_ms", all.count()}, {"phases", phases}};
  if (o.ptxas) report["ptxas"] = Resources(program);
  return report;
}

int Run(int argc, char** argv) {
  Options o;
  if (!Parse(argc, argv, &o)) return std::cerr << kUsage, 2;
  int failures = 0;
  for (const std::string& file : o.files) {
    Json line = {{"file", file}};
    absl::Status status;
    try {
      std::ifstream in(file);
      const std::string text{std::istreambuf_iterator<char>(in), {}};
      const absl::StatusOr<aten::Graph> graph = aten::ParseGraph(text);
      status = graph.status();
      if (graph.ok() && o.retarget) {
        const absl::StatusOr<aten::Graph> moved = aten::Retarget(*graph);
        status = moved.status();
        if (moved.ok()) std::cout << aten::Print(*moved);
      } else if (graph.ok()) {
        line["graph"] = graph->name;
        const absl::StatusOr<Json> report = Report(*graph, o);
        status = report.status();
        if (report.ok()) line.update(*report);
      }
    } catch (const std::exception& e) {
      status = absl::InternalError(e.what());
    }
    failures += !status.ok();
    if (!status.ok()) line["error"] = std::string(status.message());
    if (!o.retarget || !status.ok()) std::cout << line.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tenon::report

int main(int argc, char** argv) { return tenon::report::Run(argc, argv); }
