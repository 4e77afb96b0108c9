// The targets that are built in, and those of a compile. targets.cc is the one place outside of backends/cpu and backends/gpu that knows
// their headers.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "backends/contract/target.h"

namespace tenon {

struct BuiltInTarget {
  std::string_view name;
  // `variant` "": this machine's best. Refused where this machine cannot run it (InvalidArgument), unless compile_only.
  absl::StatusOr<std::shared_ptr<const Target>> (*make)(std::string_view variant, bool compile_only);
  std::vector<std::string> (*variants)();  // those that this machine can run, the best last
  CodeLoader* (*loader)();                 // of programs, those that were compiled before too
};
absl::Span<const BuiltInTarget> BuiltInTargets();

// The built-in target of this name, as BuiltInTarget::make. InvalidArgument: there is none.
absl::StatusOr<std::shared_ptr<const Target>> MakeTarget(std::string_view name, std::string_view variant, bool compile_only);

// The target of the host's memory. `isa`: its variant.
absl::StatusOr<std::shared_ptr<const Target>> MakeHostTarget(std::string_view isa, bool compile_only = false);
std::vector<std::string> HostVariants();
// What is wrong with the file that TENON_MACHINE names (contract/machine.h), if anything: compiles go by the built-in table then.
absl::Status HostMachineStatus();

// A compile's set of targets: `given`, and first the host's, MakeHostTarget(isa) if none of `given` is. InvalidArgument: two of one name or
// one memory space, a space that there cannot be.
absl::StatusOr<std::vector<std::shared_ptr<const Target>>> TargetsOf(absl::Span<const std::shared_ptr<const Target>> given,
                                                                     std::string_view isa);

}  // namespace tenon
