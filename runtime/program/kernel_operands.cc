#include "runtime/program/kernel_operands.h"

#include <algorithm>

namespace tenon {

KernelOperands OperandsOf(const Program& program, const KernelStep& kernel) {
  const std::span<const View> all = kernel.operands;
  size_t end = all.size();
  while (end > 0 && all[end - 1].value >= 0 && program.values[all[end - 1].value].kind == ValueKind::kErrorWord) --end;
  const size_t results = std::min(end, static_cast<size_t>(std::max(0, kernel.num_results)));
  return {all.first(end - results), all.subspan(end - results, results), all.subspan(end)};
}

}  // namespace tenon
