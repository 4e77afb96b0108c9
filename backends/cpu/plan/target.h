// CpuTarget: the instruction set that code is generated for; found at run time, lowered on request.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/cpu/plan/machine.h"

namespace tenon {

struct CpuTarget {
  std::string isa;        // "avx512", "avx2", "sse4" (x86-64-v4/v3/v2), "generic"; plus what was found
  std::string cpu;        // LLVM cpu name used for scheduling ("x86-64-v4" ...); never beyond `features`
  std::string features;   // LLVM feature string, effective (goes into the cache key)
  std::string triple;
  int vector_bytes = 32;  // 64, 32, 16
  bool has_fma = false, has_f16c = false;
  MachineModel machine;
  std::string Key() const { return isa + "|" + cpu + "|" + features + "|" + machine.Key(); }
};

// isa "" : the host's best. A higher ISA than the host's is refused (InvalidArgument, unless compile_only).
absl::StatusOr<CpuTarget> MakeCpuTarget(std::string_view isa, bool compile_only = false);
// Those of sse4, avx2, avx512 that the host has, in this order.
std::vector<std::string> HostIsas();

}  // namespace tenon
