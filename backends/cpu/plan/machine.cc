#include "backends/cpu/plan/machine.h"

#include <string>

namespace tenon {
namespace {

struct Row {
  std::string_view processor, isa;
  double matmul_share;
};

constexpr Row kRows[] = {
    {"znver4", "avx512", 0.76},
    {"znver5", "avx512", 0.5},
};

}  // namespace

MachineModel MachineOf(std::string_view processor, std::string_view isa) {
  for (const Row& row : kRows) {
    if (row.processor == processor && row.isa == isa) return {.name = std::string(processor), .matmul_share = row.matmul_share};
  }
  return {};
}

}  // namespace tenon
