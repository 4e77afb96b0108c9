#include "torch_plugin/libtenon/request.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/driver/targets.h"
#include "hlo/check.h"
#include "torch_plugin/aten/graph.h"
#include "torch_plugin/aten/lower.h"
#include "torch_plugin/libtenon/repro.h"

namespace tenon {
namespace {

class Stopwatch {
 public:
  double Ms() {
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration<double, std::milli>(now - std::exchange(last_, now)).count();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

void Log(const TenonHost* host, int level, const std::string& text) {
  host->log(host->context, level, text.c_str());
}

// Once in a process.
void WarnOfMachineFile(const TenonHost* host) {
  static std::atomic<bool> warned = false;
  const absl::Status status = HostMachineStatus();
  if (!status.ok() && !warned.exchange(true)) Log(host, 2, std::string(status.message()));
}

// For the repro of a compile that came to grief, for want of memory perhaps.
std::string Text(const aten::Graph& graph) {
  try {
    return aten::Print(graph);
  } catch (const std::exception&) {
    return "";
  }
}

// Native, or the reason why not.
absl::StatusOr<CompiledGraph> TryNative(const aten::Graph& graph, const RequestOptions& options,
                                        const std::vector<TenonTensor>& constants, const TenonHost* host) {
  NativeCompile compile{graph, options, constants, host};
  absl::Status failure;
  try {
    absl::StatusOr<CompiledGraph> native = compile.Run();
    if (native.ok() || absl::IsUnimplemented(native.status()) || absl::IsCancelled(native.status())) return native;
    failure = native.status();
  } catch (const std::exception& e) {
    failure = absl::InternalError(e.what());
  } catch (...) {
    failure = absl::InternalError("something unknown was thrown");
  }
  const std::string repro =
      SaveRepro(options.repro_dir, graph.name, failure.ToString(), Text(graph), compile.Hlo());
  std::string message = absl::StrCat("the compile failed: ", failure.message());
  if (!repro.empty()) absl::StrAppend(&message, " (repro: ", repro, ")");
  Log(host, 2, absl::StrCat("graph ", graph.name, ": ", message));
  return absl::Status(failure.code(), message);
}

// What a forward saved may not be what its fake kernels had said.
void AllowAnyInputs(aten::Graph* graph) {
  for (aten::ValueId v : graph->inputs) {
    aten::Meta& meta = graph->values[v].meta;
    if (meta.kind != aten::Meta::Kind::kTensor) continue;
    meta = {.kind = aten::Meta::Kind::kOther, .other = "any tensor"};
  }
}

}  // namespace

absl::StatusOr<CompiledGraph> CompileRequest(const aten::Graph& given, const RequestOptions& options,
                                             const std::vector<TenonTensor>& constants, const TenonHost* host) {
  Stopwatch watch;
  std::optional<aten::Graph> changed;
  if (given.has_symbols() && !options.symbols.empty()) {
    TENON_ASSIGN_OR_RETURN(changed, aten::Specialize(given, options.symbols));
  }
  if (options.any_inputs) {
    if (!changed) changed = given;
    AllowAnyInputs(&*changed);
  }
  const aten::Graph& graph = changed ? *changed : given;
  if (graph.constants.size() != constants.size()) {
    return absl::InvalidArgumentError(absl::StrCat("graph ", graph.name, " has ",
                                                   graph.constants.size(), " constants, ",
                                                   constants.size(), " were given"));
  }
  if (!options.compile.dump_dir.empty()) {
    const std::string path = absl::StrCat(options.compile.dump_dir, "/", options.compile.dump_prefix, "aten");
    std::error_code failure;
    std::filesystem::create_directories(options.compile.dump_dir, failure);
    std::ofstream file(path);
    file << aten::Print(graph);
    if (!file.flush()) {
      Log(host, 2, absl::StrCat("the dump of graph ", graph.name, " can't be written: ", path,
                                failure ? absl::StrCat(": ", failure.message()) : ""));
    }
  }
  std::string reason = options.reason;
  if (!options.eager_program) {
    WarnOfMachineFile(host);
    absl::StatusOr<CompiledGraph> native = TryNative(graph, options, constants, host);
    if (native.ok() || absl::IsCancelled(native.status())) return native;
    if (graph.has_symbols()) return native.status();  // the eager program knows numbers only
    reason = std::string(native.status().message());
  }
  watch.Ms();
  TENON_ASSIGN_OR_RETURN(Program program, aten::EagerProgram(graph, std::move(reason)));
  program.compile_ms.emplace_back("eager_program", watch.Ms());
  CompiledGraph compiled;
  TENON_ASSIGN_OR_RETURN(compiled.executable, Executable::Create(std::move(program), nullptr, host, constants));
  return compiled;
}

}  // namespace tenon
