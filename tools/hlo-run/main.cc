// hlo-run: runs an HLO module on the evaluator and the CPU backend, says where and how far results differ, and what
// runs cost.
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "backends/driver/targets.h"
#include "hlo/check.h"
#include "hlo/eval/evaluator.h"
#include "runtime/host/plain_host.h"
#include "runtime/host/thread_pool.h"
#include "tools/hlo-run/arrays.h"
#include "tools/hlo-run/compare.h"
#include "tools/hlo-run/measure.h"
#include "tools/lab/case_files.h"
#include "tools/lab/gpu/devices.h"
#include "tools/lab/gpu/emulated_target.h"
#include "tools/lab/judge/miscompare.h"
#include "tools/lab/spaces.h"

namespace tenon::run {
namespace {

using Json = nlohmann::ordered_json;

absl::Status Told(const char* by, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(by, ": ", status.message()));
}

absl::StatusOr<std::vector<Literal>> RunOnEvaluator(const Module& module, absl::Span<const Literal> args) {
  absl::StatusOr<Literal> result = Evaluate(module, args);
  if (!result.ok()) return Told("evaluator", result.status());
  std::vector<Literal> leaves;
  lab::AppendLeaves(*result, &leaves);
  return leaves;
}

absl::StatusOr<std::vector<Literal>> RunOnCpu(const Module& module, absl::Span<const Literal> args, const Options& o,
                                              Json* json) {
  CompileOptions compile = o.compile;
  compile.evaluate = ConstantFolder();
  if (o.threads > 0) compile.threads = o.threads;
  if (!o.html.empty()) compile.report = CompileOptions::Report::kCode;
  const std::unique_ptr<Module> moved = module.Clone();
  const TenonHost* host = nullptr;
  if (!o.target.empty()) {
    TENON_ASSIGN_OR_RETURN(const gpu::LabDevice device, gpu::FindDevice(o.target));
    lab::MoveInside(*moved, device.target->facts().space);
    compile.targets.push_back(device.target);
    host = device.host(PlainHost());
  }
  absl::StatusOr<std::unique_ptr<LiteralExecutable>> executable = LiteralExecutable::Compile(*moved, compile, host);
  if (!executable.ok()) return Told("cpu", executable.status());
  double us = 0;
  absl::StatusOr<std::vector<Literal>> outputs = (*executable)->Run(args, &us);
  if (!outputs.ok()) return Told("cpu", outputs.status());
  if (json != nullptr)
    (*json)["cpu"] = {{"compile_ms", (*executable)->compile_ms()}, {"first_run_us", us}};
  else if (!o.measures() && o.target.starts_with(gpu::kEmulatedName))
    std::printf("%s: compiled in %.1f ms, %lld launches\n", o.target.c_str(), (*executable)->compile_ms(),
                static_cast<long long>(gpu::CountsOfEmulation().launches));
  else if (!o.measures())
    std::printf("%s: compiled in %.1f ms, ran in %.1f us\n", o.target.empty() ? "cpu" : o.target.c_str(), (*executable)->compile_ms(), us);
  if (o.measures()) TENON_RETURN_IF_ERROR(Measure(**executable, args, o, json));
  return outputs;
}

// The number of outputs that are off.
absl::StatusOr<int> Run(const Options& o, Json* json) {
  TENON_ASSIGN_OR_RETURN(const std::string text, lab::ReadText(o.file));
  TENON_ASSIGN_OR_RETURN(const std::unique_ptr<Module> module, ParseModule(text, o.parse));
  TENON_ASSIGN_OR_RETURN(const std::vector<Literal> args, Arguments(*module, o));
  std::vector<Literal> evaluated, native;
  if (o.backend != "cpu") {
    TENON_ASSIGN_OR_RETURN(evaluated, RunOnEvaluator(*module, args));
  }
  if (o.backend != "eval") {
    TENON_ASSIGN_OR_RETURN(native, RunOnCpu(*module, args, o, json));
  }
  const std::vector<Literal>& shown = o.backend == "cpu" ? native : evaluated;
  for (size_t i = 0; o.print && i < shown.size(); ++i) {
    if (json != nullptr)
      (*json)["outputs"].push_back({{"shape", shown[i].shape().ToString()}, {"value", shown[i].ToString()}});
    else
      std::printf("%s %s\n", shown[i].shape().ToString().c_str(), shown[i].ToString().c_str());
  }
  if (!o.save.empty()) TENON_RETURN_IF_ERROR(Save(o.save, shown));
  Json* compared = json == nullptr ? nullptr : &((*json)["compared"] = Json::array());
  int off = 0;
  if (!o.expect.empty()) {
    TENON_ASSIGN_OR_RETURN(const std::vector<Literal> want, Expected(o.expect, *module));
    if (o.backend != "cpu") off += Compare(evaluated, want, "eval", o, compared);
    if (o.backend != "eval") off += Compare(native, want, "cpu", o, compared);
  } else if (o.backend == "both") {
    off = Compare(native, evaluated, "cpu", o, compared);
  }
  return off;
}

int Main(int argc, char** argv) {
  Options options;
  if (const int done = ParseFlags(argc, argv, &options); done != 0) return done - 1;
  if (options.threads > 0) LimitPoolThreads(options.threads);
  if (const absl::Status file = HostMachineStatus(); !file.ok()) std::cerr << "hlo-run: " << std::string(file.message()) << "\n";
  Json json = {{"file", options.file}};
  absl::StatusOr<int> off = absl::InternalError("");
  try {
    off = Run(options, options.json ? &json : nullptr);
  } catch (const std::exception& e) {
    off = absl::InternalError(e.what());
  }
  if (options.json) {
    json["ok"] = off.ok() && *off == 0;
    if (!off.ok())
      json["error"] = {{"code", absl::StatusCodeToString(off.status().code())},
                       {"message", std::string(off.status().message())}};
    std::cout << json.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
  }
  if (!off.ok()) {
    std::cerr << options.file << ": " << std::string(off.status().message()) << "\n";
    return 3;
  }
  return *off == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tenon::run

int main(int argc, char** argv) { return tenon::run::Main(argc, argv); }
