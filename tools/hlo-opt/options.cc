#include "tools/hlo-opt/options.h"

#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "backends/driver/targets.h"
#include "tools/lab/case_files.h"

namespace tenon::opt {
namespace {

constexpr const char kUsage[] =
    R"(usage: hlo-opt [options] file.hlo...      ("-" reads standard input)

Parses and verifies each file, runs passes over it and prints the module, or shows any stage of its compilation for the CPU.

passes
  --passes=a,b           run these passes in this order
  --pipeline             run the default pipeline
  --disable=a,b          leave these out of it
  --stop-after=a         stop after this pass
  --list-passes          print the passes and the default pipeline
  --no-verify            don't verify
stages
  --stage=a,b            compile for the CPU and print these stages, in the order of the compile; "all": all of them.
                         The compile goes no further than the last one needs. --passes and the like hold for it too
  --list-stages          print the stages
  --diff                 print the hlo stages as differences, each from the one before
  --dump-to=DIR          write the stages to files in DIR instead of printing them; without --stage: all of them
  --target=NAME          compile for a GPU of this architecture, in whose memory all parameters and results lie, instead: sm_75 ...
                         sm_120; sm_90,sms=4: with other numbers; sm_90,libraries: contractions by cuBLASLt and cuDNN. Its
                         assembly is PTX (stage ptx); stage sass: what ptxas makes of it, and what each kernel needs
  --isa=NAME             CPU instruction set: avx512, avx2, sse4 (default: this machine's best)
  --provider=NAME        who computes dots, convolutions, attention, where it takes them: host.matmul, generated
  --plans=FILE           plans of kernels, as --stage=plans shows them, instead of the compiler's own
  --no-excess-precision  round bf16 and f16 after every instruction
  --html=FILE            a page with graph, buffers, costs and remarks of the compiled modules, of all files together, and
                         with the kernels' code (but of modules of more than 1000 instructions)
instead of the module
  --plan                 print the buffer plan (of a module that the passes have scheduled)
  --cost[=N]             print flops, transcendentals, bytes and peak memory, with the N costliest instructions
  --check-roundtrip      a line per file: parse(print(m)) is m, and print is a fixed point
  --time                 parse and verify each file for a while, print MB/s
besides it
  --remarks              print the passes' remarks (JSON, one a line) to standard error
  --timing               print each pass's time and whether it changed the module to standard error
  --json                 print one JSON object per module and line instead, with all that was asked for, errors included
input
  --split-input          a line "// -----" ends a module: each is processed on its own, and errors don't stop the others
  --files=LIST           also the files that LIST names, one a line
  --fill-elided          fill {...} constants deterministically instead of refusing them
print
  --canonical            print the canonical form (names renumbered, no metadata)
  --percent              print names with %
  --operand-shapes       print operand shapes
  --no-metadata          leave metadata out
  --elide=N              print constants of more than N elements as {...}
  --help                 this text

Exit code: 0 success, 1 a module was refused or changed in a round trip, 2 bad usage.
)";

std::vector<std::string> Names(const std::string& list) { return absl::StrSplit(list, ',', absl::SkipEmpty()); }

bool ReadList(const std::string& path, std::vector<std::string>* files) {
  std::ifstream in(path);
  if (!in) return std::cerr << "hlo-opt: cannot open " << path << "\n", false;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty()) files->push_back(line);
  }
  return true;
}

bool AddStages(const std::string& list, Options* o) {
  for (const std::string& name : Names(list)) {
    const std::optional<StageKind> kind = name == "ptx" || name == "sass" ? StageKind::kAssembly : FindStage(name);
    if (name != "all" && !kind)
      return std::cerr << "hlo-opt: unknown stage " << name << " (--list-stages lists them)\n", false;
    o->stages |= kind ? 1u << static_cast<int>(*kind) : ~0u;
    o->sass |= name == "sass";
    o->assembly |= name != "sass" && (!kind || *kind == StageKind::kAssembly);
  }
  return true;
}

bool AddTarget(const std::string& name, Options* o) {
  absl::StatusOr<std::shared_ptr<const Target>> target = MakeTarget("gpu", name, /*compile_only=*/true);
  if (!target.ok()) return std::cerr << "hlo-opt: " << std::string(target.status().message()) << "\n", false;
  o->space = (*target)->facts().space;
  o->architecture = (*target)->facts().variant;
  o->compile.targets.push_back(*std::move(target));
  return true;
}

using Value = const std::string&;
using Flag = std::function<bool(Value)>;  // false: bad, and told

std::map<std::string, Flag> Flags(Options* o) {
  const auto set = [](bool* flag, bool to = true) { return [=](Value) { return *flag = to, true; }; };
  const auto text = [](std::string* to) { return [=](Value v) { return *to = v, true; }; };
  return {
      {"--canonical", set(&o->print.canonical)},
      {"--percent", set(&o->print.percent)},
      {"--operand-shapes", set(&o->print.operand_shapes)},
      {"--no-metadata", set(&o->print.metadata, false)},
      {"--elide", [o](Value v) { return o->print.max_constant_elements = std::atoll(v.c_str()), true; }},
      {"--fill-elided", set(&o->parse.fill_elided_constants)},
      {"--no-verify", set(&o->parse.verify, false)},
      {"--check-roundtrip", set(&o->check_roundtrip)},
      {"--time", set(&o->time)},
      {"--cost", [o](Value v) { return o->cost = true, v.empty() || (o->cost_rows = std::atoll(v.c_str()), true); }},
      {"--pipeline", set(&o->run_passes)},
      {"--passes", [o](Value v) { return o->compile.passes = Names(v), o->run_passes = true; }},
      {"--disable", [o](Value v) { return o->compile.disable_passes = Names(v), true; }},
      {"--stop-after", text(&o->compile.stop_after)},
      {"--stage", [o](Value v) { return AddStages(v, o); }},
      {"--diff", set(&o->diff)},
      {"--dump-to", text(&o->dump_to)},
      {"--isa", text(&o->compile.isa)},
      {"--target", [o](Value v) { return AddTarget(v, o); }},
      {"--provider", text(&o->compile.provider)},
      {"--plans", [o](Value v) { return lab::ReadInto(v, &o->compile.plans); }},
      {"--no-excess-precision", set(&o->compile.excess_precision, false)},
      {"--html", text(&o->html)},
      {"--plan", set(&o->plan)},
      {"--remarks", set(&o->remarks)},
      {"--timing", set(&o->timing)},
      {"--json", set(&o->json)},
      {"--split-input", set(&o->split_input)},
      {"--files", [o](Value v) { return ReadList(v, &o->files); }},
  };
}

void ListPasses(bool json) {
  if (json) {
    nlohmann::ordered_json passes = nlohmann::ordered_json::array();
    for (const PassInfo& pass : AllPasses()) passes.push_back({{"name", pass.name}, {"doc", pass.doc}});
    std::cout << nlohmann::ordered_json{{"passes", passes}, {"default_pipeline", DefaultPipeline()}}.dump() << "\n";
    return;
  }
  for (const PassInfo& pass : AllPasses()) {
    std::printf("%-18s %s\n", std::string(pass.name).c_str(), std::string(pass.doc).c_str());
  }
  std::printf("\ndefault pipeline:");
  for (const std::string& name : DefaultPipeline()) std::printf(" %s", name.c_str());
  std::printf("\n");
}

void ListStages(bool json) {
  nlohmann::ordered_json stages = nlohmann::ordered_json::array();
  for (const StageInfo& stage : AllStages()) {
    stages.push_back({{"name", stage.name}, {"doc", stage.doc}});
    if (!json) std::printf("%-15s %s\n", std::string(stage.name).c_str(), std::string(stage.doc).c_str());
  }
  if (json) std::cout << nlohmann::ordered_json{{"stages", stages}}.dump() << "\n";
}

// Of the requests that need no file. 0: none was made.
int Listed(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  const auto given = [&](const char* flag) { return std::find(args.begin(), args.end(), flag) != args.end(); };
  if (given("--help")) return std::cout << kUsage, 1;
  if (given("--list-passes")) return ListPasses(given("--json")), 1;
  if (given("--list-stages")) return ListStages(given("--json")), 1;
  return 0;
}

bool ParseInto(int argc, char** argv, Options* o) {
  const std::map<std::string, Flag> flags = Flags(o);
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg.size() < 2 || arg[0] != '-') {
      o->files.push_back(arg);
      continue;
    }
    const size_t equals = std::min(arg.find('='), arg.size());
    const auto flag = flags.find(arg.substr(0, equals));
    if (flag == flags.end()) return std::cerr << "hlo-opt: unknown option " << arg << " (--help lists them)\n", false;
    if (!flag->second(equals < arg.size() ? arg.substr(equals + 1) : "")) return false;
  }
  if (o->files.empty()) return std::cerr << "hlo-opt: no file (--help tells more)\n", false;
  if (o->diff) o->stages |= 1u << static_cast<int>(StageKind::kHlo);
  if (!o->dump_to.empty() && o->stages == 0) o->stages = ~0u, o->assembly = true;
  if (o->sass && o->architecture.empty()) return std::cerr << "hlo-opt: the stage sass is of a GPU (--target)\n", false;
  return true;
}

}  // namespace

Options ParseFlags(int argc, char** argv) {
  Options options;
  options.done = Listed(argc, argv);
  if (options.done == 0 && !ParseInto(argc, argv, &options)) options.done = 3;
  return options;
}

}  // namespace tenon::opt
