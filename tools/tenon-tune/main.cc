// tenon-tune: measures this machine for the compiler: what a MachineModel says (backends/contract/machine.h).
#include <chrono>
#include <fstream>
#include <iostream>
#include <string>

#include "absl/strings/str_format.h"
#include "runtime/host/thread_pool.h"
#include "tools/tenon-tune/probes.h"

namespace tenon::tune {
namespace {

constexpr const char kUsage[] =
    R"(usage: tenon-tune [options]

Measures what generated code reaches on this machine: bytes a nanosecond from each level of memory, multiply-adds, what giving work to
threads costs. Takes some two seconds; other work beside it makes the figures smaller.

  --write=FILE     writes the model. With TENON_MACHINE=FILE in the environment the compiler plans by it, and not by its own table
  --isa=NAME       avx512, avx2, sse4 (default: this machine's best); a model holds for compiles for that instruction set
  --threads=N      at most so many (default: the cores)
  --quick          in a fifth of a second, roughly
  --json           the model's text instead of the table
  --help           this text

Exit code: 0 measured, 2 bad usage, 3 nothing was measured, or not written.
)";

struct Options {
  ProbeOptions probes;
  std::string write;
  bool json = false;
};

bool Usage(const std::string& what) {
  std::cerr << "tenon-tune: " << what << " (--help tells more)\n";
  return false;
}

bool ParseFlags(int argc, char** argv, Options* o) {
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i], name = arg.substr(0, arg.find('=')), value = name == arg ? "" : arg.substr(name.size() + 1);
    if (name == "--write" && !value.empty()) {
      o->write = value;
    } else if (name == "--isa" && !value.empty()) {
      o->probes.isa = value;
    } else if (name == "--threads" && std::atoi(value.c_str()) > 0) {
      LimitPoolThreads(std::atoi(value.c_str()));
    } else if (arg == "--quick") {
      o->probes.quick = true;
    } else if (arg == "--json") {
      o->json = true;
    } else {
      return Usage("unknown option " + arg);
    }
  }
  return true;
}

void PrintTable(const MachineModel& m) {
  std::cout << absl::StrFormat("%s, %d threads\n%-8s %12s %16s %16s\n", m.isa, m.threads, "level", "bytes", "GB/s, a thread", "GB/s, all");
  for (int k = 0; k < MachineModel::kLevels; ++k) {
    const MemoryLevel& level = m.levels[static_cast<size_t>(k)];
    const bool last = k + 1 == MachineModel::kLevels;
    std::cout << absl::StrFormat("%-8s %12s %16.1f %16.1f\n", std::string(MachineModel::kLevelNames[static_cast<size_t>(k)]),
                                 last ? "" : absl::StrFormat("%.0f", level.bytes), level.bytes_per_ns, level.all_bytes_per_ns);
  }
  std::cout << absl::StrFormat("f32 multiply-adds, a thread: %.1f a nanosecond\nfork and join: %.0f ns\n", m.multiply_adds_per_ns,
                               m.fork_join_ns);
}

int Main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--help") return std::cout << kUsage, 0;
  }
  Options o;
  if (!ParseFlags(argc, argv, &o)) return 2;
  const auto start = std::chrono::steady_clock::now();
  o.probes.progress = [&](const std::string& what, int done, int of) {
    if (std::chrono::steady_clock::now() - start < std::chrono::seconds(2)) return;
    std::cerr << absl::StrFormat("tenon-tune: %s (%d of %d)\n", what, done + 1, of);
  };
  const absl::StatusOr<MachineModel> model = Measure(o.probes);
  if (!model.ok()) return std::cerr << "tenon-tune: " << std::string(model.status().message()) << "\n", 3;
  if (o.json)
    std::cout << PrintMachine(*model);
  else
    PrintTable(*model);
  if (o.write.empty()) return 0;
  std::ofstream file(o.write, std::ios::binary);
  file << PrintMachine(*model);
  if (!file.flush()) return std::cerr << "tenon-tune: " << o.write << ": can't be written\n", 3;
  return 0;
}

}  // namespace
}  // namespace tenon::tune

int main(int argc, char** argv) { return tenon::tune::Main(argc, argv); }
