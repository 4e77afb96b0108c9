#include "tools/hlo-run/options.h"

#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>

#include "absl/strings/str_split.h"
#include "tools/lab/case_files.h"
#include "tools/lab/judge/plant.h"

namespace tenon::run {
namespace {

constexpr const char kUsage[] =
    R"(usage: hlo-run [options] file.hlo       ("-" reads standard input)

Runs the module on the reference evaluator and on the CPU backend with the same inputs and compares: for each output
the element that is furthest off, with its index, absolute and relative difference, and the largest distance in ULP.
The CPU backend hands dots to a framework's library; there is none here, so they run as plain loops: right, not fast.

  --backend=both|eval|cpu   both (default) compares cpu with the evaluator
  --inputs=FILE.npz         inputs: members in0, in1, ... or arg0, ... or in file order, by parameter leaf
  --input=FILE.npy          one input; repeat for each
  --seed=N                  random inputs where no file is given (default 0): floats uniform in [-1, 1), integers in
                            [0, 4), pred 0 or 1
  --expect=FILE.npz         compare with these outputs (out0, out1, ... or file order) instead
  --save=FILE.npz           write the outputs (out0, out1, ...) of the evaluator, or of cpu with --backend=cpu
  --print                   print the outputs as literals
  --atol=X --rtol=X         |got-want| <= atol + rtol*|want|; default by type: f32 1e-5, f64 1e-12, f16 2e-3, bf16 1.6e-2,
                            8-bit floats 0.125, integers and pred exact
  --ulp=N                   at most N units in the last place instead
  --target=gpu-emulated[:MODEL]  instead of the CPU alone: a GPU (sm_90) that is emulated, with what it cannot compute left to the CPU
  --target=gpu[:MODEL]           the GPU of this machine, by its driver
  --isa=NAME                CPU instruction set: avx512, avx2, sse4
  --provider=NAME           who computes dots, convolutions, attention, where it takes them: host.matmul, generated
  --plans=FILE              plans of kernels, as hlo-opt --stage=plans shows them, instead of the compiler's own
  --threads=N               at most N threads
  --passes=a,b --disable=a,b --stop-after=a --dump=DIR   as in hlo-opt and TENON_DUMP
  --no-excess-precision     round bf16 and f16 after every instruction, as the evaluator does
  --fill-elided             fill {...} constants deterministically
  --plant=K                 with planted bug K (hlo-reduce --list-plants)
timing (the CPU backend alone unless --backend=both is given)
  --bench                   compile time by phase; run time: minimum, median, 90th percentile
  --profile[=FILE.json]     time, bytes, flops, speeds, share of the run and of the machine's roof of every step, the dearest
                            first; runs of each region of a loop; FILE: the timeline too, for ui.perfetto.dev
  --repeat=N                so many runs, after a tenth as many that don't count (default: for about a second, 10 to 1000)
  --rows=N                  so many steps of the profile (default 20; 0: all)
  --html=FILE               a page of the compiled module; with --profile its times and timeline
  --json                    print one JSON object instead: outputs compared, bench, profile, errors
  --help                    this text

Exit code: 0 all outputs agree (or nothing was compared), 1 they differ, 2 bad usage, 3 the module was refused or didn't run.
)";

std::vector<std::string> Names(const std::string& list) { return absl::StrSplit(list, ',', absl::SkipEmpty()); }

using Value = const std::string&;
using Flag = std::function<bool(Value)>;  // false: bad

std::map<std::string, Flag> Flags(Options* o) {
  const auto set = [](bool* flag, bool to = true) { return [=](Value) { return *flag = to, true; }; };
  const auto text = [](std::string* to) { return [=](Value v) { return *to = v, true; }; };
  const auto number = [](int* to) { return [=](Value v) { return *to = std::atoi(v.c_str()), *to >= 0; }; };
  const auto real = [](double* to) { return [=](Value v) { return *to = std::atof(v.c_str()), true; }; };
  const auto names = [](std::vector<std::string>* to) { return [=](Value v) { return *to = Names(v), true; }; };
  return {
      {"--backend", text(&o->backend)},
      {"--inputs", text(&o->inputs)},
      {"--input", [o](Value v) { return o->input_files.push_back(v), true; }},
      {"--seed", [o](Value v) { return o->seed = std::strtoull(v.c_str(), nullptr, 10), true; }},
      {"--expect", text(&o->expect)},
      {"--save", text(&o->save)},
      {"--print", set(&o->print)},
      {"--atol", real(&o->atol)},
      {"--rtol", real(&o->rtol)},
      {"--ulp", [o](Value v) { return o->ulp = std::atoll(v.c_str()), true; }},
      {"--repeat", number(&o->repeat)},
      {"--threads", number(&o->threads)},
      {"--rows", number(&o->rows)},
      {"--bench", set(&o->bench)},
      {"--profile", [o](Value v) { return o->profile = true, o->trace = v, true; }},
      {"--html", text(&o->html)},
      {"--json", set(&o->json)},
      {"--target", [o](Value v) { return o->target = v, true; }},
      {"--isa", text(&o->compile.isa)},
      {"--provider", text(&o->compile.provider)},
      {"--plans", [o](Value v) { return lab::ReadInto(v, &o->compile.plans); }},
      {"--passes", names(&o->compile.passes)},
      {"--disable", names(&o->compile.disable_passes)},
      {"--stop-after", text(&o->compile.stop_after)},
      {"--dump", text(&o->compile.dump_dir)},
      {"--no-excess-precision", set(&o->compile.excess_precision, false)},
      {"--fill-elided", set(&o->parse.fill_elided_constants)},
      {"--plant", [o](Value v) {
         const std::optional<lab::Plant> plant = lab::ParsePlant(v);
         if (plant.has_value()) lab::SetPlant(*plant), o->compile.sabotage = lab::PlantedBug();
         return plant.has_value();
       }},
  };
}

bool ParseInto(int argc, char** argv, Options* o) {
  const std::map<std::string, Flag> flags = Flags(o);
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg.size() > 1 && arg[0] == '-') {
      const size_t equals = std::min(arg.find('='), arg.size());
      const auto flag = flags.find(arg.substr(0, equals));
      if (flag != flags.end() && flag->second(equals < arg.size() ? arg.substr(equals + 1) : "")) continue;
      std::cerr << "hlo-run: " << (flag == flags.end() ? "unknown option " : "bad value in ") << arg
                << " (--help lists them)\n";
      return false;
    }
    if (!o->file.empty()) return std::cerr << "hlo-run: one file, please (--help tells more)\n", false;
    o->file = arg;
  }
  if (o->file.empty()) return std::cerr << "hlo-run: no file (--help tells more)\n", false;
  if (o->backend.empty()) o->backend = o->measures() && o->expect.empty() ? "cpu" : "both";
  if (o->backend == "eval" && o->measures())
    return std::cerr << "hlo-run: only the cpu backend is timed (--help tells more)\n", false;
  if (o->backend == "both" || o->backend == "eval" || o->backend == "cpu") return true;
  return std::cerr << "hlo-run: --backend is both, eval or cpu (--help tells more)\n", false;
}

}  // namespace

int ParseFlags(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--help") return std::cout << kUsage, 1;
  }
  return ParseInto(argc, argv, options) ? 0 : 3;
}

}  // namespace tenon::run
