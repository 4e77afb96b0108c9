#include "tools/hlo-opt/process.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "backends/report/document.h"
#include "hlo/check.h"
#include "hlo/cost.h"
#include "hlo/eval/evaluator.h"
#include "hlo/verifier.h"
#include "passes/memory/buffer_plan.h"
#include "passes/spaces/spaces.h"
#include "tools/hlo-opt/line_diff.h"
#include "tools/lab/gpu/ptxas.h"

namespace tenon::opt {
namespace {

using Json = nlohmann::ordered_json;

// Larger modules' pages come without the kernels' code, which would be most of the page: --stage shows it.
constexpr int64_t kMostWithCode = 1000;

class Processor {
 public:
  Processor(const Case& input, const Options& options) : input_(input), o_(options) {}

  absl::Status Run(std::vector<std::string>* graphs) {
    absl::Status status;
    try {
      status = Work(graphs);
    } catch (const std::exception& e) {
      status = absl::InternalError(e.what());
    }
    if (o_.json) PrintJson(status);
    return status;
  }

 private:
  absl::Status Work(std::vector<std::string>* graphs) {
    if (o_.time) return Time();
    TENON_ASSIGN_OR_RETURN(std::unique_ptr<Module> module, ParseModule(input_.text, o_.parse));
    if (o_.space != 0) MoveSignature(*module, o_.space);
    if (o_.stages != 0) TENON_RETURN_IF_ERROR(ShowStages(*module));
    if (!o_.html.empty()) TENON_RETURN_IF_ERROR(AddGraph(*module, graphs));
    if (o_.stages != 0 || !o_.html.empty()) return absl::OkStatus();
    if (o_.run_passes) TENON_RETURN_IF_ERROR(RunPasses(*module));
    if (o_.plan) return ShowPlan(*module);
    if (o_.check_roundtrip) return CheckRoundTrip(*module);
    if (o_.cost) return ShowCost(*module);
    Text("hlo", Print(*module, o_.print));
    return absl::OkStatus();
  }

  // ---- output ------------------------------------------------------------------------------------------------------
  void Text(const char* key, std::string text) {
    if (o_.json)
      json_[key] = std::move(text);
    else
      std::cout << text;
  }

  void PrintJson(const absl::Status& status) const {
    Json line = {{"file", input_.file}, {"case", input_.number}, {"ok", status.ok()}};
    if (!status.ok()) {
      const std::string message(status.message());
      line["error"] = {{"code", absl::StatusCodeToString(status.code())}, {"message", message}};
      int at = 0, column = 0;
      if (std::sscanf(message.c_str(), "line %d, column %d", &at, &column) == 2) {
        line["error"]["line"] = at;
        line["error"]["column"] = column;
      }
    }
    line.update(json_);
    std::cout << line.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
  }

  // ---- stages ------------------------------------------------------------------------------------------------------
  absl::Status ShowStages(const Module& module) {
    CompileOptions compile = o_.compile;
    compile.evaluate = ConstantFolder();
    compile.verify_passes = o_.parse.verify;
    const StageSink files = ToDirectory(o_.dump_to, input_.number > 0 ? absl::StrCat("case", input_.number, ".") : "");
    std::string before, before_name;
    compile.stages.wanted = o_.stages;
    absl::Status assembled;
    const auto show = [&](const Stage& stage) {
      std::string shown = stage.text;
      if (o_.diff && stage.kind == StageKind::kHlo) {
        if (!before_name.empty()) shown = LineDiff(before, stage.text, before_name, stage.file);
        before = stage.text;
        before_name = stage.file;
      }
      if (files.take)
        files.take({stage.kind, stage.file, std::move(shown)});
      else if (o_.json)
        json_["stages"].push_back({{"stage", StageName(stage.kind)}, {"file", stage.file}, {"text", std::move(shown)}});
      else
        std::cout << "// ---- " << stage.file << "\n" << shown << (shown.empty() || shown.back() == '\n' ? "" : "\n");
    };
    compile.stages.take = [&](const Stage& stage) {
      if (stage.kind != StageKind::kAssembly || o_.assembly) show(stage);
      if (stage.kind == StageKind::kAssembly && o_.sass && stage.file.ends_with(".ptx")) assembled.Update(ShowSass(stage, show));
    };
    TENON_RETURN_IF_ERROR(CompileStages(module.Clone(), BindingOf(module), compile));
    return assembled;
  }

  absl::Status ShowSass(const Stage& ptx, const std::function<void(const Stage&)>& show) const {
    TENON_ASSIGN_OR_RETURN(const gpu::Assembled assembled, gpu::Assemble(ptx.text, o_.architecture, /*disassemble=*/true));
    const std::string listing = assembled.sass.empty() ? "// no disassembler (nvdisasm, cuobjdump) in PATH\n" : assembled.sass;
    const std::string file = absl::StrCat(ptx.file.substr(0, ptx.file.size() - 4), ".sass");
    show({StageKind::kAssembly, file, gpu::ToString(assembled.kernels) + listing});
    return absl::OkStatus();
  }

  static std::string_view StageName(StageKind kind) {
    for (const StageInfo& stage : AllStages()) {
      if (stage.kind == kind) return stage.name;
    }
    return "";
  }

  // The page shows what there is, also of a module that the backend refuses: then the module as it came, and why.
  absl::Status AddGraph(const Module& module, std::vector<std::string>* graphs) {
    CompileOptions compile = o_.compile;
    compile.evaluate = ConstantFolder();
    const bool big = module.instruction_count() > kMostWithCode;
    compile.report = big ? CompileOptions::Report::kModule : CompileOptions::Report::kCode;
    absl::StatusOr<Program> program = CompileToProgram(module.Clone(), BindingOf(module), compile);
    graphs->push_back(program.ok() ? GraphReport(*program, "")
                                   : GraphReport(module, std::string(program.status().message())));
    return program.status();
  }

  // ---- passes ------------------------------------------------------------------------------------------------------
  absl::Status RunPasses(Module& module) {
    std::vector<Remark> remarks;
    std::vector<PassTiming> timings;
    PassContext context;
    context.remarks = &remarks;
    context.evaluate = ConstantFolder();
    const PipelineOptions pipeline{.passes = o_.compile.passes,
                                   .disable = o_.compile.disable_passes,
                                   .stop_after = o_.compile.stop_after,
                                   .verify = o_.parse.verify};
    const absl::StatusOr<bool> changed = RunPipeline(module, context, pipeline, &timings);
    if (o_.remarks) ShowRemarks(remarks);
    if (o_.timing) ShowTimings(timings);
    if (changed.ok() && o_.json) json_["changed"] = *changed;
    return changed.status();
  }

  void ShowRemarks(const std::vector<Remark>& remarks) {
    if (o_.json) json_["remarks"] = Json::array();
    for (const Remark& r : remarks) {
      if (o_.json)
        json_["remarks"].push_back(Json::parse(r.ToJson()));
      else
        std::cerr << r.ToJson() << "\n";
    }
  }

  void ShowTimings(const std::vector<PassTiming>& timings) {
    if (o_.json) json_["timings"] = Json::array();
    for (const PassTiming& t : timings) {
      if (o_.json)
        json_["timings"].push_back({{"pass", t.name}, {"ms", t.ms}, {"changed", t.changed}});
      else
        std::fprintf(stderr, "%9.3f ms  %s%s\n", t.ms, t.name.c_str(), t.changed ? "  changed" : "");
    }
  }

  // ---- instead of the module ---------------------------------------------------------------------------------------
  absl::Status ShowPlan(const Module& module) {
    TENON_ASSIGN_OR_RETURN(const BufferPlan plan, PlanBuffers(module, {}));
    if (!o_.json) return std::cout << plan.ToString(), absl::OkStatus();
    static constexpr const char* kKinds[] = {"parameter", "constant", "arena", "output", "slot"};
    Json allocations = Json::array();
    for (const Allocation& a : plan.allocations) {
      allocations.push_back({{"kind", kKinds[static_cast<int>(a.kind)]},
                             {"index", a.index},
                             {"offset", absl::StrCat(a.offset)},
                             {"lender", a.lender},
                             {"bytes", a.bytes.ToString()},
                             {"first", a.first},
                             {"last", a.last},
                             {"values", Json::array()}});
    }
    for (const auto& [key, number] : plan.of)
      allocations[number]["values"].push_back(
          absl::StrCat(key.instruction->name(), key.leaf > 0 ? absl::StrCat("#", key.leaf) : ""));
    for (Json& a : allocations) std::sort(a["values"].begin(), a["values"].end());
    json_["plan"] = {{"arena_bytes", absl::StrCat(plan.arena_bytes)},
                     {"peak_live_bytes", absl::StrCat(plan.peak_live_bytes)},
                     {"allocations", std::move(allocations)}};
    return absl::OkStatus();
  }

  absl::Status ShowCost(const Module& module) {
    TENON_ASSIGN_OR_RETURN(const ModuleCost cost, AnalyzeCost(module));
    if (o_.json)
      json_["cost"] = Json::parse(ToJson(cost));
    else
      std::cout << ToTable(cost, o_.cost_rows);
    return absl::OkStatus();
  }

  absl::Status CheckRoundTrip(const Module& module) const {
    ParseOptions parse = o_.parse;
    parse.fill_elided_constants = false;  // what was filled is printed in full
    const std::string once = Print(module, o_.print);
    absl::StatusOr<std::unique_ptr<Module>> again = ParseModule(once, parse);
    if (!again.ok()) return absl::InternalError("the print doesn't parse: " + std::string(again.status().message()));
    std::string why;
    if (!o_.print.canonical && !StructurallyEqual(module, **again, &why)) {
      return absl::InternalError("parse(print(m)) differs: " + why);
    }
    const std::string twice = Print(**again, o_.print);
    if (once == twice) return absl::OkStatus();
    return absl::InternalError("print isn't a fixed point:\n" + LineDiff(once, twice, "once", "twice"));
  }

  absl::Status Time() {
    // Processor time: parsing is one thread's work, and machines are shared.
    auto now = [] { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };
    double best = 1e30;
    const double start = now();
    do {
      const double t = now();
      TENON_RETURN_IF_ERROR(ParseModule(input_.text, o_.parse).status());
      best = std::min(best, now() - t);
    } while (now() - start < 0.5);
    const double mb_per_s = static_cast<double>(input_.text.size()) / best / 1e6;
    if (o_.json)
      json_["parse"] = {{"mb_per_s", mb_per_s}, {"bytes", input_.text.size()}, {"ms", best * 1e3}};
    else
      std::printf("%.1f MB/s (%zu bytes in %.3f ms)\n", mb_per_s, input_.text.size(), best * 1e3);
    return absl::OkStatus();
  }

  const Case& input_;
  const Options& o_;
  Json json_ = Json::object();
};

}  // namespace

absl::Status Process(const Case& input, const Options& options, std::vector<std::string>* graphs) {
  return Processor(input, options).Run(graphs);
}

}  // namespace tenon::opt
