#include "backends/driver/targets.h"

#include "backends/cpu/cpu.h"

namespace tenon {

absl::Span<const BuiltInTarget> BuiltInTargets() {
  static constexpr BuiltInTarget kTargets[] = {
      {"cpu", MakeCpu, CpuVariants, CpuLoader},
  };
  return kTargets;
}

absl::StatusOr<std::shared_ptr<const Target>> MakeHostTarget(std::string_view isa, bool compile_only) { return MakeCpu(isa, compile_only); }

std::vector<std::string> HostVariants() { return CpuVariants(); }

}  // namespace tenon
