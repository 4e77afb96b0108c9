// hlo-opt: parses, verifies, runs named passes over and prints HLO modules.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "hlo/cost.h"
#include "hlo/eval/evaluator.h"
#include "hlo/text/text.h"
#include "hlo/verifier.h"
#include "passes/memory/buffer_plan.h"
#include "passes/pipeline.h"

namespace tenon {
namespace {

constexpr const char kUsage[] =
    R"(usage: hlo-opt [options] file.hlo...      ("-" reads standard input)

Parses and verifies each file, runs passes over it and prints the module.

  --passes=a,b           run these passes in this order
  --pipeline             run the default pipeline
  --disable=a,b          leave these out of it
  --stop-after=a         stop after this pass
  --list-passes          print the passes and the default pipeline
  --plan                 print the buffer plan instead of the module (which the passes must have scheduled)
  --remarks              print the passes' remarks (JSON, one a line) to standard error
  --timing               print each pass's time and whether it changed the module to standard error
  --files=LIST           also the files that LIST names, one a line
  --canonical            print the canonical form (names renumbered, no metadata)
  --percent              print names with %
  --operand-shapes       print operand shapes
  --no-metadata          leave metadata out
  --elide=N              print constants of more than N elements as {...}
  --fill-elided          fill {...} constants deterministically instead of refusing them
  --no-verify            don't verify
  --check-roundtrip      print nothing but a line per file: parse(print(m)) is m, and print is a fixed point
  --cost[=N]             print flops, transcendentals, bytes and peak memory instead, with the N costliest instructions
  --time                 parse and verify each file for a while, print MB/s
  --help                 this text

Exit code: 0 success, 1 a file was refused or changed in a round trip, 2 bad usage.
)";

struct Options {
  ParseOptions parse;
  PrintOptions print;
  PipelineOptions pipeline;
  bool run_passes = false, plan = false, remarks = false, timing = false;
  bool check_roundtrip = false, time = false, cost = false;
  int64_t cost_rows = 20;
  std::vector<std::string> files;
};

std::vector<std::string> Names(const char* list) { return absl::StrSplit(list, ',', absl::SkipEmpty()); }

bool ReadList(const char* path, std::vector<std::string>* files) {
  std::ifstream in(path);
  if (!in) std::cerr << "hlo-opt: cannot open " << path << "\n";
  for (std::string line; std::getline(in, line);) {
    if (!line.empty()) files->push_back(line);
  }
  return !in.bad() && in.eof();
}

// False: bad usage, told on stderr.
bool ParseFlags(int argc, char** argv, Options* o) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == "--canonical") o->print.canonical = true;
    else if (arg == "--percent") o->print.percent = true;
    else if (arg == "--operand-shapes") o->print.operand_shapes = true;
    else if (arg == "--no-metadata") o->print.metadata = false;
    else if (arg.starts_with("--elide=")) o->print.max_constant_elements = std::atoll(argv[i] + 8);
    else if (arg == "--fill-elided") o->parse.fill_elided_constants = true;
    else if (arg == "--no-verify") o->parse.verify = false;
    else if (arg == "--check-roundtrip") o->check_roundtrip = true;
    else if (arg == "--time") o->time = true;
    else if (arg == "--cost") o->cost = true;
    else if (arg.starts_with("--cost=")) o->cost = true, o->cost_rows = std::atoll(argv[i] + 7);
    else if (arg == "--pipeline") o->run_passes = true;
    else if (arg.starts_with("--passes=")) o->pipeline.passes = Names(argv[i] + 9), o->run_passes = true;
    else if (arg.starts_with("--disable=")) o->pipeline.disable = Names(argv[i] + 10);
    else if (arg.starts_with("--stop-after=")) o->pipeline.stop_after = argv[i] + 13;
    else if (arg == "--plan") o->plan = true;
    else if (arg == "--remarks") o->remarks = true;
    else if (arg == "--timing") o->timing = true;
    else if (arg.starts_with("--files=") && !ReadList(argv[i] + 8, &o->files)) return false;
    else if (arg.starts_with("--files=")) continue;
    else if (arg.size() > 1 && arg[0] == '-') {
      std::cerr << "hlo-opt: unknown option " << arg << " (--help lists them)\n";
      return false;
    } else {
      o->files.emplace_back(arg);
    }
  }
  if (o->files.empty()) std::cerr << "hlo-opt: no file (--help tells more)\n";
  return !o->files.empty();
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  if (path == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::NotFoundError("cannot open the file");
  return std::string(std::istreambuf_iterator<char>(in), {});
}

absl::Status CheckRoundTrip(const Module& module, const Options& o) {
  ParseOptions parse = o.parse;
  parse.fill_elided_constants = false;  // what was filled is printed in full
  const std::string once = Print(module, o.print);
  absl::StatusOr<std::unique_ptr<Module>> again = ParseModule(once, parse);
  if (!again.ok()) return absl::InternalError("the print doesn't parse: " + std::string(again.status().message()));
  std::string why;
  if (!o.print.canonical && !StructurallyEqual(module, **again, &why)) {
    return absl::InternalError("parse(print(m)) differs: " + why);
  }
  const std::string twice = Print(**again, o.print);
  if (once == twice) return absl::OkStatus();
  size_t at = 0;
  while (at < once.size() && at < twice.size() && once[at] == twice[at]) ++at;
  const size_t from = at < 60 ? 0 : at - 60;
  return absl::InternalError("print isn't a fixed point: ..." + once.substr(from, 120) + "... then ..." +
                             twice.substr(from, 120));
}

absl::Status Time(const std::string& text, const Options& o) {
  // Processor time: parsing is one thread's work, and machines are shared.
  auto now = [] { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };
  double best = 1e30;
  const double start = now();
  do {
    const double t = now();
    absl::StatusOr<std::unique_ptr<Module>> module = ParseModule(text, o.parse);
    if (!module.ok()) return module.status();
    best = std::min(best, now() - t);
  } while (now() - start < 0.5);
  std::printf("%.1f MB/s (%zu bytes in %.3f ms)\n", static_cast<double>(text.size()) / best / 1e6, text.size(),
              best * 1e3);
  return absl::OkStatus();
}

absl::Status RunPasses(Module& module, const Options& o) {
  std::vector<Remark> remarks;
  std::vector<PassTiming> timings;
  PassContext context;
  context.remarks = &remarks;
  context.evaluate = [](const Instruction& i, absl::Span<const Literal> operands) {
    return EvaluateInstruction(i, operands);
  };
  PipelineOptions pipeline = o.pipeline;
  pipeline.verify = o.parse.verify;
  const absl::StatusOr<bool> changed = RunPipeline(module, context, pipeline, &timings);
  if (o.remarks) {
    for (const Remark& r : remarks) std::cerr << r.ToJson() << "\n";
  }
  if (o.timing) {
    for (const PassTiming& t : timings) {
      std::fprintf(stderr, "%9.3f ms  %s%s\n", t.ms, t.name.c_str(), t.changed ? "  changed" : "");
    }
  }
  return changed.status();
}

void ListPasses() {
  for (const PassInfo& pass : AllPasses()) {
    std::printf("%-18s %s\n", std::string(pass.name).c_str(), std::string(pass.doc).c_str());
  }
  std::printf("\ndefault pipeline:");
  for (const std::string& name : DefaultPipeline()) std::printf(" %s", name.c_str());
  std::printf("\n");
}

absl::Status Process(const std::string& path, const Options& o) {
  absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return text.status();
  if (o.time) return Time(*text, o);
  absl::StatusOr<std::unique_ptr<Module>> module = ParseModule(*text, o.parse);
  if (!module.ok()) return module.status();
  if (o.run_passes) TENON_RETURN_IF_ERROR(RunPasses(**module, o));
  if (o.plan) {
    TENON_ASSIGN_OR_RETURN(const BufferPlan plan, PlanBuffers(**module, {}));
    std::cout << plan.ToString();
    return absl::OkStatus();
  }
  if (o.check_roundtrip) return CheckRoundTrip(**module, o);
  if (o.cost) {
    TENON_ASSIGN_OR_RETURN(const ModuleCost cost, AnalyzeCost(**module));
    std::cout << ToTable(cost, o.cost_rows);
    return absl::OkStatus();
  }
  std::cout << Print(**module, o.print);
  return absl::OkStatus();
}

int Run(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--help") {
      std::cout << kUsage;
      return 0;
    }
    if (std::string_view(argv[i]) == "--list-passes") {
      ListPasses();
      return 0;
    }
  }
  Options options;
  if (!ParseFlags(argc, argv, &options)) return 2;
  int failures = 0;
  for (const std::string& path : options.files) {
    absl::Status status;
    try {
      status = Process(path, options);
    } catch (const InternalError& e) {
      status = absl::InternalError(e.what());
    }
    if (!status.ok()) {
      ++failures;
      std::cerr << path << ": " << std::string(status.message()) << "\n";
    }
  }
  if (options.check_roundtrip) {
    std::cout << options.files.size() - failures << " of " << options.files.size() << " files round-trip\n";
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tenon

int main(int argc, char** argv) { return tenon::Run(argc, argv); }
