#include "backends/driver/targets.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "backends/cpu/cpu.h"
#include "backends/gpu/driver/cuda_loader.h"
#include "backends/gpu/gpu.h"
#include "hlo/check.h"
#include "runtime/program/program.h"

namespace tenon {

namespace {

absl::StatusOr<std::shared_ptr<const Target>> MakeGpu(std::string_view architecture, bool compile_only) {
  constexpr std::string_view kLibraries = ",libraries";
  const bool libraries = architecture.ends_with(kLibraries);
  if (libraries) architecture.remove_suffix(kLibraries.size());
  if (!compile_only) return gpu::ThisGpu(architecture);
  TENON_ASSIGN_OR_RETURN(gpu::GpuModel model, gpu::FindGpuModel(architecture));
  return gpu::MakeGpu({.model = std::move(model), .libraries = libraries});
}

}  // namespace

absl::Span<const BuiltInTarget> BuiltInTargets() {
  static constexpr BuiltInTarget kTargets[] = {
      {"cpu", MakeCpu, CpuVariants, CpuLoader},
      {gpu::kTargetName, MakeGpu, [] { return std::vector<std::string>(); }, gpu::CudaLoader},
  };
  return kTargets;
}

absl::StatusOr<std::shared_ptr<const Target>> MakeTarget(std::string_view name, std::string_view variant, bool compile_only) {
  for (const BuiltInTarget& built_in : BuiltInTargets()) {
    if (built_in.name == name) return built_in.make(variant, compile_only);
  }
  return absl::InvalidArgumentError(absl::StrCat("no target is named \"", std::string(name), "\""));
}

absl::StatusOr<std::shared_ptr<const Target>> MakeHostTarget(std::string_view isa, bool compile_only) { return MakeCpu(isa, compile_only); }

std::vector<std::string> HostVariants() { return CpuVariants(); }

absl::Status HostMachineStatus() { return CpuMachineStatus(); }

absl::StatusOr<std::vector<std::shared_ptr<const Target>>> TargetsOf(absl::Span<const std::shared_ptr<const Target>> given,
                                                                     std::string_view isa) {
  std::vector<std::shared_ptr<const Target>> targets(given.begin(), given.end());
  const auto host = std::find_if(targets.begin(), targets.end(), [](const auto& t) { return t->facts().space == 0; });
  if (host != targets.end()) {
    std::rotate(targets.begin(), host, host + 1);
  } else {
    TENON_ASSIGN_OR_RETURN(std::shared_ptr<const Target> made, MakeHostTarget(isa));
    targets.insert(targets.begin(), std::move(made));
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    const TargetFacts& facts = targets[i]->facts();
    if (facts.space < 0 || facts.space >= kMaxSpaces) {
      return absl::InvalidArgumentError(
          absl::StrCat("target ", facts.name, ": wanted a memory space from 0 to ", kMaxSpaces - 1, ", got ", facts.space));
    }
    for (size_t k = 0; k < i; ++k) {
      const TargetFacts& other = targets[k]->facts();
      if (other.name != facts.name && other.space != facts.space) continue;
      return absl::InvalidArgumentError(absl::StrCat("targets ", other.name, " (memory space ", other.space, ") and ", facts.name,
                                                     " (", facts.space, "): names and memory spaces must differ"));
    }
  }
  return targets;
}

}  // namespace tenon
