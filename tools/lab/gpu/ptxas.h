// NVIDIA's assembler on a program's PTX: what each kernel needs. Machines without it are the rule: ask HasPtxas() first.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/program/program.h"

namespace tenon::gpu {

// Is there a ptxas in PATH?
bool HasPtxas();
inline constexpr char kNoPtxas[] = "no ptxas in PATH";

struct PtxasKernel {
  std::string name;
  int registers = 0, barriers = 0;              // of a thread, of a block
  int64_t shared = 0;                           // bytes, static, of a block
  int64_t stack = 0, spill_stores = 0, spill_loads = 0;  // bytes of local memory, of a thread
};
// A line per kernel, and one that names the columns.
std::string ToString(const std::vector<PtxasKernel>& kernels);

struct Assembled {
  std::vector<PtxasKernel> kernels;  // in the order of their names
  std::string sass;                  // "": not asked for, or no disassembler
};
// FailedPrecondition: there is no ptxas. Internal: it refuses the text; the message is its own.
absl::StatusOr<Assembled> Assemble(std::string_view ptx, std::string_view architecture, bool disassemble = false);

// What ptxas -v told.
std::vector<PtxasKernel> ParsePtxas(std::string_view told);

// The modules of a program's GPU code (backends/gpu/emit/image.h). DataLoss: they are bitcode.
struct PtxModules {
  std::string architecture;
  std::vector<std::string> modules;
};
absl::StatusOr<PtxModules> PtxOf(const Program& program);

}  // namespace tenon::gpu
