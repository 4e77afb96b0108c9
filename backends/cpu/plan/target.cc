#include "backends/cpu/plan/target.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/TargetParser/Host.h"

namespace tenon {
namespace {

struct Level {
  std::string_view isa, cpu;
  int vector_bytes;
  std::vector<std::string_view> needs;  // beyond the level below
};

// The x86-64 psABI levels, lowest first.
const std::array<Level, 3>& Levels() {
  static const std::array<Level, 3> levels = {{
      {"sse4", "x86-64-v2", 16, {"sse4.2", "popcnt", "ssse3"}},
      {"avx2", "x86-64-v3", 32, {"avx2", "fma", "f16c", "bmi2", "lzcnt"}},
      {"avx512", "x86-64-v4", 64, {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"}},
  }};
  return levels;
}

// Extensions beyond the level that generated code makes use of.
constexpr std::string_view kExtras[] = {"avx512bf16", "avx512fp16", "avx512vnni", "avx512vbmi"};

int HostLevel(const llvm::StringMap<bool>& host) {
  int level = -1;
  for (const Level& l : Levels()) {
    for (std::string_view f : l.needs) {
      auto it = host.find(llvm::StringRef(f.data(), f.size()));
      if (it == host.end() || !it->second) return level;
    }
    ++level;
  }
  return level;
}

// As the table of machines has it.
std::string ProcessorOf(const llvm::StringMap<bool>& host) {
  const auto amx = host.find("amx-tile");
  return amx != host.end() && amx->second ? std::string(kAmx) : llvm::sys::getHostCPUName().str();
}

}  // namespace

absl::StatusOr<CpuTarget> MakeCpuTarget(std::string_view isa, bool compile_only) {
  const llvm::StringMap<bool> host = llvm::sys::getHostCPUFeatures();
  const int host_level = HostLevel(host);
  int level = host_level;
  if (!isa.empty()) {
    level = -1;
    std::vector<std::string> known;
    for (size_t i = 0; i < Levels().size(); ++i) {
      known.emplace_back(Levels()[i].isa);
      if (Levels()[i].isa == isa) level = static_cast<int>(i);
    }
    if (level < 0) {
      return absl::InvalidArgumentError(absl::StrCat("isa: wanted one of ", absl::StrJoin(known, ", "), " or empty, got \"",
                                                     std::string(isa), "\""));
    }
    if (level > host_level && !compile_only) {
      return absl::InvalidArgumentError(absl::StrCat("isa \"", std::string(isa), "\" is above what this machine has (",
                                                     host_level < 0 ? "x86-64" : std::string(Levels()[host_level].isa), ")"));
    }
  }
  if (level < 0) return absl::UnimplementedError("this machine lacks SSE4.2: no native code is generated for it");

  const Level& l = Levels()[level];
  CpuTarget t;
  t.isa = l.isa;
  t.cpu = l.cpu;
  t.triple = llvm::sys::getProcessTriple();
  t.vector_bytes = l.vector_bytes;
  t.has_fma = t.has_f16c = level >= 1;
  std::vector<std::string> features;
  for (std::string_view f : kExtras) {
    auto it = host.find(llvm::StringRef(f.data(), f.size()));
    const bool has = level >= 2 && isa.empty() && it != host.end() && it->second;
    if (has) features.push_back(absl::StrCat("+", std::string(f)));
  }
  t.features = absl::StrJoin(features, ",");
  t.machine = compile_only ? MachineOf("", t.isa) : HostMachine(ProcessorOf(host), t.isa);
  return t;
}

std::vector<std::string> HostIsas() {
  std::vector<std::string> isas;
  for (const char* isa : {"sse4", "avx2", "avx512"}) {
    if (MakeCpuTarget(isa).ok()) isas.push_back(isa);
  }
  return isas;
}

}  // namespace tenon
