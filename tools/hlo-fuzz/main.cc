// hlo-fuzz: random HLO modules, evaluator against CPU backend.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "backends/driver/targets.h"
#include "hlo/sizes.h"
#include "hlo/text/text.h"
#include "tools/hlo-fuzz/fuzz.h"
#include "tools/hlo-fuzz/plants.h"
#include "tools/hlo-fuzz/report.h"
#include "tools/lab/generate/random_sizes.h"
#include "tools/lab/gpu/devices.h"
#include "tools/lab/gpu/emulated_target.h"
#include "tools/lab/judge/plant.h"
#include "tools/lab/workers.h"

namespace tenon::lab {
namespace {

constexpr char kUsage[] = R"(usage: hlo-fuzz [options]

Makes random HLO modules and runs each on the evaluator and on the CPU backend. Module k of a seed is the same on every machine.

  --seed=S              which modules (default 1)
  --modules=N           how many (default 1000); --seconds=T: as many as begin within T seconds
  --module=K            only module K, in this process
  --jobs=N              worker processes (default 2); a crash or a hang costs one module
  --target=gpu-emulated[:MODEL]  on a GPU that is emulated, as far as it can, and the rest by the CPU; runs in several orders of
                        threads and blocks. Without MODEL: sm_90, and one whose plans take vectors for a few elements
  --target=gpu[:MODEL]  on the GPU of this machine, by its driver
  --isa=a,b             instruction sets (default: sse4, avx2, avx512 as the machine has them)
  --threads=n,m         thread counts (default 1,3); work is cut into that many pieces however small it is
  --excess-precision=on,off  halves keep f32's bits between instructions, as users' do, or not (default: both, in turn)
  --runs=N              configurations a module runs under, drawn from isa x threads (default 2); in a third of them all contractions are
                        generated, in a third what hangs on some of the parameters alone is computed by a program of its own,
                        in a quarter one of the CPU's kernels has a plan that was changed at random
  --large-every=N       one module in N has arrays of 10^4 to 10^6 elements, emulated to 10^5 (default 50; 0: none)
  --symbols             sizes are symbols and expressions of them: each module is compiled once, called at several sizes (--sizes=N,
                        default 5), and called as it may not be, which must be refused
  --only=a,b            families (elementwise, movement, reduction, contraction, indexing, control, random, linalg,
                        collective) and opcodes to draw from; --without=a,b: not these
  --types=a,b           element types to draw from where an op leaves a choice
  --size=N              size of a module (default 20)
  --disable=a,b         passes the backend leaves out; --verify-passes: verify after each pass
  --plant=K             with planted bug K (hlo-reduce --list-plants); ends at the first module that differs because of it
  --plants              every planted bug: modules until each is found and cut to 10 instructions; a row per plant, exit code 1 if
                        one isn't; --seconds is CPU time here
  --save=DIR            where the module of each failure goes, reduced, with its arguments (default: tests/regress of the source
                        tree, which tools_test replays, if it is there and no bug is planted); --save=: nowhere
  --reduce-seconds=T    spent on reducing a failure (default 20; 0: not at all)
  --print-module        with --module: print it
  --json[=FILE]         the table as JSON (FILE: beside the text)
  --quiet               no progress
  --help                this text

Exit code: 0 nothing found (refusals are counted, not failures), 1 a failure, 2 bad usage.
)";

struct Flags {
  FuzzOptions fuzz;
  WorkersOptions workers{.jobs = 2, .count = 1000};
  int64_t module = -1;
  std::optional<std::string> save;
  std::string json_file;
  bool print_module = false, json = false, quiet = false;
  Plant plant = kNoPlant;
  bool all_plants = false;
  bool found_plant = false;
};

std::vector<std::string> List(const std::string& value) { return absl::StrSplit(value, ',', absl::SkipEmpty()); }

bool Integer(const std::string& value, int64_t low, int64_t* to) { return absl::SimpleAtoi(value, to) && *to >= low; }

bool Integer(const std::string& value, int low, int* to) { return absl::SimpleAtoi(value, to) && *to >= low; }

bool Types(const std::string& value, std::vector<PrimitiveType>* types) {
  for (const std::string& name : List(value)) {
    const std::optional<PrimitiveType> type = ParsePrimitiveType(name);
    if (!type.has_value() || !IsArrayType(*type)) return false;
    types->push_back(*type);
  }
  return !types->empty();
}

bool Switches(const std::string& value, std::vector<bool>* to) {
  to->clear();
  for (const std::string& name : List(value)) {
    if (name != "on" && name != "off") return false;
    to->push_back(name == "on");
  }
  return !to->empty();
}

bool SetFlag(const std::string& name, const std::string& value, Flags* f) {
  if (name == "--seed") return absl::SimpleAtoi(value, &f->fuzz.seed);
  if (name == "--modules") return Integer(value, 1, &f->workers.count);
  if (name == "--seconds") return f->workers.count = -1, absl::SimpleAtod(value, &f->workers.seconds) && f->workers.seconds > 0;
  if (name == "--module") return Integer(value, 0, &f->module);
  if (name == "--jobs") return Integer(value, 1, &f->workers.jobs);
  if (name == "--target") {
    // A GPU is looked for by the workers: none can be used behind a fork.
    const std::string_view kind = std::string_view(value).substr(0, value.find(':'));
    const bool driver = kind == "gpu" || kind == "gpu-rehearsed";
    if (driver) f->workers.worn_out = gpu::GpuIsLost;
    return f->fuzz.run.target = value, driver || gpu::MakeEmulatedGpu(value).ok();
  }
  if (name == "--isa") return f->fuzz.isas = List(value), !f->fuzz.isas.empty();
  if (name == "--excess-precision") return Switches(value, &f->fuzz.excess_precision);
  if (name == "--large-every") return Integer(value, 0, &f->fuzz.large_every);
  if (name == "--symbols") return f->fuzz.generator.symbols = true, value.empty();
  if (name == "--sizes") return Integer(value, 1, &f->fuzz.sizes);
  if (name == "--runs") return Integer(value, 1, &f->fuzz.runs);
  if (name == "--only") return f->fuzz.generator.only = List(value), !f->fuzz.generator.only.empty();
  if (name == "--without") return f->fuzz.generator.without = List(value), !f->fuzz.generator.without.empty();
  if (name == "--types") return Types(value, &f->fuzz.generator.types);
  if (name == "--size") return Integer(value, 1, &f->fuzz.generator.size);
  if (name == "--disable") return f->fuzz.run.disable_passes = List(value), true;
  if (name == "--save") return f->save = value, true;
  if (name == "--reduce-seconds") return absl::SimpleAtod(value, &f->fuzz.reduce_seconds);
  if (name == "--verify-passes") return f->fuzz.run.verify_passes = true;
  if (name == "--plant") return f->plant = ParsePlant(value).value_or(kNoPlant), SetPlant(f->plant), f->plant != kNoPlant;
  if (name == "--plants") return f->all_plants = true;
  if (name == "--print-module") return f->print_module = true;
  if (name == "--json") return f->json = value.empty(), f->json_file = value, true;
  if (name == "--quiet") return f->quiet = true;
  if (name != "--threads") return false;
  f->fuzz.threads.clear();
  for (const std::string& n : List(value)) {
    if (!Integer(n, 1, &f->fuzz.threads.emplace_back())) return false;
  }
  return !f->fuzz.threads.empty();
}

// Empty: fine.
std::string ParseFlags(int argc, char** argv, Flags* f) {
  for (int i = 1; i < argc; ++i) {
    const std::pair<std::string, std::string> flag = absl::StrSplit(argv[i], absl::MaxSplits('=', 1));
    if (!SetFlag(flag.first, flag.second, f)) return absl::StrCat("cannot use ", argv[i]);
  }
  if (std::string unknown = UnknownNames(f->fuzz.generator); !unknown.empty()) return unknown;
  if (f->fuzz.isas.empty()) f->fuzz.isas = HostVariants();
  for (const std::string& isa : f->fuzz.isas) {
    if (auto target = MakeHostTarget(isa); !target.ok()) return std::string(target.status().message());
  }
  return "";
}

void Save(const Flags& f, const Record& r) {
  if (f.save->empty()) return;
  std::filesystem::create_directories(*f.save);
  std::ofstream out(absl::StrCat(*f.save, "/seed", f.fuzz.seed, "_", r.k, ".hlo"));
  if (!r.file.empty()) {
    out << r.file;
    return;
  }
  const char* symbols = f.fuzz.generator.symbols ? " --symbols" : "";
  out << "// hlo-fuzz" << symbols << " --seed=" << f.fuzz.seed << " --module=" << r.k << ": " << OutcomeName(r.outcome) << " ("
      << r.configuration << ")\n";
  if (!f.fuzz.generator.symbols) out << "// inputs: " << ModuleSeed(f.fuzz.seed, r.k) << "\n";
  for (absl::string_view line : absl::StrSplit(r.text, '\n')) out << "// " << line << "\n";
  try {
    const std::unique_ptr<Module> module = MakeModule(f.fuzz, r.k);
    if (HasSymbols(*module)) {
      Random random(ModuleSeed(f.fuzz.seed, r.k) + 3);
      out << "// sizes: " << SizesText(RandomSizes(*module, random, 1, 1 << 17)[0]) << "\n// inputs: " << random.Next() << "\n";
    }
    out << module->ToString();
  } catch (const InternalError& e) {
    out << "// " << e.what() << "\n";
  }
}

int RunModule(const Flags& f) {
  if (f.print_module) std::cout << MakeModule(f.fuzz, f.module)->ToString() << std::flush;
  const Record r = FuzzOne(f.fuzz, f.module);
  const bool right = r.outcome == Outcome::kSame || r.outcome == Outcome::kRefused;
  if (!right) Save(f, r);
  std::cerr << "module " << f.module << " of seed " << f.fuzz.seed << " (inputs " << ModuleSeed(f.fuzz.seed, f.module) << "), "
            << r.instructions << " instructions, " << r.elements << " elements (" << r.bounded - r.unjudged << " within a bound, "
            << r.unjudged << " not judged): " << OutcomeName(r.outcome);
  if (!r.text.empty()) std::cerr << " (" << r.configuration << ")\n" << r.text;
  std::cerr << "\n";
  return right ? 0 : 1;
}

// Is it the planted bug's doing? Without it the module is right.
bool BecauseOfPlant(const Flags& f, const Record& r) {
  if (r.outcome != Outcome::kDifferent) return false;
  SetPlant(kNoPlant);
  const bool right = FuzzOne(f.fuzz, r.k).outcome == Outcome::kSame;
  SetPlant(f.plant);
  return right;
}

int RunMany(Flags f) {
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  Report report;
  f.workers.stop = &f.found_plant;
  const auto found = [&](const Record& r) {
    if (r.outcome == Outcome::kSame || r.outcome == Outcome::kRefused) return;
    if (f.plant != kNoPlant && (f.found_plant || !BecauseOfPlant(f, r))) return;
    if (f.plant != kNoPlant) {
      f.found_plant = true;
      std::cerr << "plant " << PlantName(f.plant) << " is found by module " << r.k << " after " << seconds() << " s\n";
    }
    Save(f, r);
    if (f.quiet) return;
    std::cerr << "--seed=" << f.fuzz.seed << " --module=" << r.k << ": " << OutcomeName(r.outcome) << ": " << r.text.substr(0, 500)
              << " (" << r.configuration << ")\n";
  };
  RunWorkers(
      f.workers, [&](int64_t k) { return Encode(FuzzOne(f.fuzz, k)); },
      [&](int64_t, const std::string& line) {
        const Record r = Decode(line);
        report.Add(r);
        found(r);
      },
      [&](int64_t k, const std::string& how) {
        report.AddDeath(k, how);
        found(report.failed().back());
      },
      [&] {
        if (!f.quiet) std::cerr << static_cast<int64_t>(seconds()) << " s: " << report.Line() << "\n";
      });
  if (!f.json_file.empty()) std::ofstream(f.json_file) << report.Json(f.fuzz, seconds());
  std::cout << (f.json ? report.Json(f.fuzz, seconds()) : report.Table(f.fuzz, seconds()));
  return report.failures() == 0 ? 0 : 1;
}

int Main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--help") return std::cout << kUsage, 0;
  }
  Flags flags;
  flags.fuzz.seed = 1;
  if (const std::string wrong = ParseFlags(argc, argv, &flags); !wrong.empty()) {
    std::cerr << "hlo-fuzz: " << wrong << " (--help tells more)\n";
    return 2;
  }
  if (!flags.save) {
    const std::filesystem::path regress = TENON_SOURCE_DIR "/tests/regress";
    const bool keep = flags.plant == kNoPlant && std::filesystem::is_directory(regress);
    flags.save = keep ? regress.string() : "";
  }
  if (flags.plant != kNoPlant && flags.save->empty()) flags.fuzz.reduce_seconds = 0;  // who asks wants the number
  flags.workers.seconds_per_number = 60 + 2 * flags.fuzz.reduce_seconds;
  if (flags.all_plants) return FindPlants(flags.fuzz, flags.workers.seconds, flags.workers.count, flags.quiet);
  return flags.module >= 0 ? RunModule(flags) : RunMany(flags);
}

}  // namespace
}  // namespace tenon::lab

int main(int argc, char** argv) { return tenon::lab::Main(argc, argv); }
