// hlo-reduce: a failing HLO module and a predicate; a minimal module that still fails.
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "hlo/sizes.h"
#include "tools/lab/case_files.h"
#include "tools/lab/generate/random_inputs.h"
#include "tools/lab/generate/transformer.h"
#include "tools/lab/judge/plant.h"
#include "tools/lab/reduce/predicate.h"
#include "tools/lab/reduce/reduce.h"
#include "tools/lab/regress.h"

namespace tenon::lab {
namespace {

constexpr const char kUsage[] =
    R"(usage: hlo-reduce [options] file.hlo

Cuts a module that shows a problem down to a minimal one that still shows it: outputs, instructions, dimensions, values,
computations, attributes. Instructions that are cut off become parameters with the value that the evaluator computes for
them, so what is written is a module and its inputs.

What the problem is (one of):
  --miscompare         the CPU backend's results differ from the evaluator's (default)
  --crash              compiling or running kills the process, or takes longer than --timeout
  --error=REGEX        compiling, running or evaluating ends in an error whose message matches
  --script=CMD         CMD FILE exits with 0; the inputs are in FILE's neighbour .npz

Inputs, and how the CPU backend runs:
  --inputs=FILE.npz    by parameter leaf, as hlo-run takes them; else random by --seed=N (default 0)
  --sizes=s=7,t=64     of the module's symbols, for random inputs; a file of tests/regress says its own arguments
  --isa=NAME           avx512, avx2, sse4     --threads=N       --excess-precision
  --target=gpu-emulated[:MODEL]  instead of the CPU
  --provider=NAME      who computes contractions      --frozen=N  parameters (a bit each) whose values are computed by a program of their own
  --passes=a,b --disable=a,b                  as in hlo-opt
  --plant=K            with planted bug K (number or name; --list-plants)
  --tolerance=X        --miscompare: results of inexact inputs count too, beyond X * the largest magnitude (default 1e-3;
                       0: only what breaks the rule of tools/lab/judge/miscompare.h)
  --fill-elided        fill {...} constants deterministically

The reduction:
  --output=FILE        default: file.reduced.hlo; its inputs go beside it as .npz
  --max-seconds=S      default 60             --max-tries=N     default 20000
  --timeout=S          of one try, default 10 (--no-isolate: no child process per try)
  --no-dims --no-values  leave dimensions, values alone
  --json               one JSON object on standard output at the end
  --quiet              no progress on standard error
  --write-transformer=FILE   nothing is reduced: writes an optimised step of a 4-layer transformer and its inputs, to try it on
  --help               this text

Exit code: 0 reduced, 1 the module doesn't fail as given, 2 bad usage, 3 a file was refused or couldn't be written.
)";

struct Options {
  std::string file, kind = "miscompare", argument, inputs, output;
  uint64_t seed = 0;
  Sizes sizes;
  MiscompareOptions miscompare{.tolerance = 1e-3};
  ReduceOptions reduce;
  double timeout = 10;
  bool isolate = true, json = false, quiet = false;
  Plant plant = kNoPlant;
  ParseOptions parse;
};

std::vector<std::string> Names(const std::string& list) {
  return absl::StrSplit(list, ',', absl::SkipEmpty());
}

bool Usage(const std::string& what) {
  std::cerr << "hlo-reduce: " << what << " (--help tells more)\n";
  return false;
}

bool SetPlantFlag(const std::string& value, Options* o) {
  const std::optional<Plant> plant = ParsePlant(value);
  if (!plant) return Usage(absl::StrCat("no planted bug ", value));
  o->plant = *plant;
  SetPlant(*plant);
  return true;
}

bool SetSizes(const std::string& value, Options* o) {
  const absl::StatusOr<Sizes> sizes = ParseSizes(value);
  if (!sizes.ok()) return Usage(std::string(sizes.status().message()));
  o->sizes = *sizes;
  return true;
}

// 1: taken, 0: unknown, -1: bad, told on stderr.
int SetFlag(const std::string& key, const std::string& value, Options* o) {
  RunOptions& run = o->miscompare.run;
  if (key == "--miscompare" || key == "--crash")
    o->kind = key.substr(2);
  else if (key == "--error" || key == "--script")
    o->kind = key.substr(2), o->argument = value;
  else if (key == "--inputs")
    o->inputs = value;
  else if (key == "--sizes")
    return SetSizes(value, o) ? 1 : -1;
  else if (key == "--seed")
    o->seed = std::strtoull(value.c_str(), nullptr, 10);
  else if (key == "--isa")
    run.isa = value;
  else if (key == "--threads")
    run.threads = std::atoi(value.c_str());
  else if (key == "--target")
    run.target = value;
  else if (key == "--provider")
    run.provider = value;
  else if (key == "--frozen")
    run.frozen = std::strtoull(value.c_str(), nullptr, 10);
  else if (key == "--excess-precision")
    run.excess_precision = true;
  else if (key == "--passes")
    run.passes = Names(value);
  else if (key == "--disable")
    run.disable_passes = Names(value);
  else if (key == "--plant")
    return SetPlantFlag(value, o) ? 1 : -1;
  else if (key == "--tolerance")
    o->miscompare.tolerance = std::atof(value.c_str());
  else if (key == "--fill-elided")
    o->parse.fill_elided_constants = true;
  else if (key == "--output")
    o->output = value;
  else if (key == "--max-seconds")
    o->reduce.max_seconds = std::atof(value.c_str());
  else if (key == "--max-tries")
    o->reduce.max_tries = std::atoll(value.c_str());
  else if (key == "--timeout")
    o->timeout = std::atof(value.c_str());
  else if (key == "--no-isolate")
    o->isolate = false;
  else if (key == "--no-dims")
    o->reduce.dims = false;
  else if (key == "--no-values")
    o->reduce.values = false;
  else if (key == "--json")
    o->json = true;
  else if (key == "--quiet")
    o->quiet = true;
  else
    return 0;
  return 1;
}

bool ParseFlags(int argc, char** argv, Options* o) {
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg.size() > 1 && arg[0] == '-') {
      const size_t equals = std::min(arg.find('='), arg.size());
      const int taken =
          SetFlag(arg.substr(0, equals), equals < arg.size() ? arg.substr(equals + 1) : "", o);
      if (taken == 0) return Usage(absl::StrCat("unknown option ", arg));
      if (taken < 0) return false;
    } else if (!o->file.empty()) {
      return Usage("one file, please");
    } else {
      o->file = arg;
    }
  }
  if (o->file.empty()) return Usage("no file");
  if ((o->kind == "error" || o->kind == "script") && o->argument.empty())
    return Usage(absl::StrCat("--", o->kind, " wants a value"));
  if (o->reduce.max_seconds <= 0 || o->reduce.max_tries <= 0 || o->timeout <= 0)
    return Usage("budgets are positive");
  if (!o->output.empty()) return true;
  const size_t dot = o->file.rfind(".hlo");
  o->output = absl::StrCat(o->file == "-" ? "stdin" : o->file.substr(0, dot), ".reduced.hlo");
  return true;
}

absl::StatusOr<StillFails> Predicate(const Options& o) {
  const RunOptions& run = o.miscompare.run;
  if (o.kind == "crash") return Crashes(run, o.timeout);
  if (o.kind == "script") return Script(o.argument);
  if (o.kind == "error") return FailsWith(o.argument, run, o.isolate ? o.timeout : 0);
  MiscompareOptions options = o.miscompare;
  options.isolate_seconds = o.isolate ? o.timeout : 0;
  return Miscompares(options);
}

// Why the predicate says no, as far as it can be told.
std::string WhyNot(const Module& module, absl::Span<const Literal> arguments, const Options& o) {
  if (o.kind == "script") return absl::StrCat("the script doesn't exit with 0: ", o.argument);
  if (o.kind == "crash") return "compiling and running it ends well";
  const Verdict v = JudgeByTolerance(module, arguments, o.miscompare.run, o.miscompare.tolerance);
  std::string text(OutcomeName(v.outcome));
  if (v.outcome == Outcome::kSame) {
    text = absl::StrCat("the results are the evaluator's (", v.elements, " elements, ", v.unjudged,
                        " of them not judged)");
  }
  return v.text.empty() ? text : absl::StrCat(text, ": ", v.text);
}

std::string ReplayCommand(const Options& o, const std::string& inputs) {
  std::string command = absl::StrCat("hlo-run --no-excess-precision --inputs=", inputs);
  if (o.miscompare.run.excess_precision) command = absl::StrCat("hlo-run --inputs=", inputs);
  if (!o.miscompare.run.isa.empty()) absl::StrAppend(&command, " --isa=", o.miscompare.run.isa);
  if (o.plant != kNoPlant)
    absl::StrAppend(&command, " --plant=", std::string(PlantName(o.plant)));
  return absl::StrCat(command, " ", o.output);
}

void PrintJson(const Options& o, const Module& before, const ReduceResult& r,
               const std::string& inputs) {
  std::string out = absl::StrFormat(
      "{\"file\": %s, \"output\": %s, \"inputs\": %s, \"predicate\": %s, \"instructions_before\": "
      "%d, \"instructions\": %d, "
      "\"tries\": %d, \"seconds\": %.3f, \"finished\": %s, \"steps\": [",
      JsonString(o.file), JsonString(o.output), JsonString(inputs), JsonString(o.kind),
      before.instruction_count(), r.module->instruction_count(), r.tries, r.seconds,
      r.finished ? "true" : "false");
  for (size_t i = 0; i < r.steps.size(); ++i) {
    const ReduceProgress& s = r.steps[i];
    absl::StrAppendFormat(&out,
                          "%s{\"step\": %s, \"instructions\": %d, \"elements\": %d, \"tries\": %d, "
                          "\"seconds\": %.3f}",
                          i > 0 ? ", " : "", JsonString(s.step), s.instructions, s.elements,
                          s.tries, s.seconds);
  }
  std::cout << out << "]}\n";
}

int Fail(int code, const absl::Status& status) {
  std::cerr << "hlo-reduce: " << std::string(status.message()) << "\n";
  return code;
}

absl::StatusOr<std::vector<Literal>> ArgumentsOf(const Module& module, const Options& o) {
  if (!o.inputs.empty()) return ReadArguments(module, o.inputs);
  // A file that says its own arguments.
  TENON_ASSIGN_OR_RETURN(const std::string text, ReadText(o.file));
  if (absl::StrContains(text, "// argument: ") || absl::StrContains(text, "// inputs: ")) {
    TENON_ASSIGN_OR_RETURN(Case c, ParseRegress(text));
    return std::move(c.arguments);
  }
  TENON_ASSIGN_OR_RETURN(const std::unique_ptr<Module> numbers, WithSizes(module, o.sizes));
  return RandomInputs(*numbers, o.seed);
}

int Run(Options o) {
  const absl::StatusOr<std::unique_ptr<Module>> module = ReadModule(o.file, o.parse);
  if (!module.ok()) return Fail(3, module.status());
  absl::StatusOr<std::vector<Literal>> arguments = ArgumentsOf(**module, o);
  if (!arguments.ok()) return Fail(3, arguments.status());
  absl::StatusOr<StillFails> predicate = Predicate(o);
  if (!predicate.ok()) return Fail(2, predicate.status());
  if (!o.quiet) {
    o.reduce.progress = [](const ReduceProgress& p) {
      std::fprintf(stderr, "%7.2f s %6lld tries  %5lld instructions %9lld elements  %s\n",
                   p.seconds, static_cast<long long>(p.tries),
                   static_cast<long long>(p.instructions), static_cast<long long>(p.elements),
                   p.step.c_str());
    };
  }
  absl::StatusOr<ReduceResult> r = Reduce(**module, *arguments, *predicate, o.reduce);
  if (absl::IsFailedPrecondition(r.status())) {
    std::cerr << "hlo-reduce: " << o.file
              << " doesn't fail as given: " << WhyNot(**module, *arguments, o) << "\n";
    return 1;
  }
  if (!r.ok()) return Fail(3, r.status());
  const absl::StatusOr<std::string> inputs = WriteCase(*r->module, r->arguments, o.output);
  if (!inputs.ok()) return Fail(3, inputs.status());
  if (!o.quiet) {
    std::fprintf(stderr, "%lld instructions of %lld after %lld tries in %.1f s%s: %s\n",
                 static_cast<long long>(r->module->instruction_count()),
                 static_cast<long long>((*module)->instruction_count()),
                 static_cast<long long>(r->tries), r->seconds,
                 r->finished ? "" : " (the budget ended it)", o.output.c_str());
    if (o.kind == "miscompare") {
      const Verdict v =
          JudgeByTolerance(*r->module, r->arguments, o.miscompare.run, o.miscompare.tolerance);
      std::fprintf(stderr, "%s\nreplay: %s\n", v.text.c_str(), ReplayCommand(o, *inputs).c_str());
    }
  }
  if (o.json) {
    PrintJson(o, **module, *r, *inputs);
  } else {
    std::cout << Print(*r->module);
  }
  return 0;
}

int WriteTransformer(const std::string& path) {
  const absl::StatusOr<Case> c = OptimizedTransformer();
  if (!c.ok()) return Fail(3, c.status());
  const absl::StatusOr<std::string> inputs = WriteCase(*c->module, c->arguments, path);
  if (!inputs.ok()) return Fail(3, inputs.status());
  std::cout << c->module->instruction_count() << " instructions: " << path << " " << *inputs
            << "\n";
  return 0;
}

int Main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--help") return std::cout << kUsage, 0;
    if (arg.rfind("--write-transformer=", 0) == 0) return WriteTransformer(arg.substr(20));
    if (arg != "--list-plants") continue;
    for (size_t k = 0; k < AllPlants().size(); ++k) {
      std::printf("%2d %-20s %s\n", static_cast<int>(k + 1), std::string(AllPlants()[k].name).c_str(),
                  std::string(AllPlants()[k].doc).c_str());
    }
    return 0;
  }
  Options options;
  if (!ParseFlags(argc, argv, &options)) return 2;
  try {
    return Run(std::move(options));
  } catch (const std::exception& e) {
    return Fail(3, absl::InternalError(e.what()));
  }
}

}  // namespace
}  // namespace tenon::lab

int main(int argc, char** argv) { return tenon::lab::Main(argc, argv); }
