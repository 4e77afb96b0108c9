// What lowering says of a framework call: backend_config of custom-call "aten.*".
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "hlo/instruction.h"
#include "runtime/program/program.h"

namespace tenon {

// See torch_plugin/aten/lower.h.
struct FrameworkConfig {
  std::vector<FrameworkArg> args;
  ResultRule rule = ResultRule::kOwned;
  bool total = false;  // FrameworkStep::total
  std::string reason;
  std::optional<std::vector<std::vector<int64_t>>> strides;  // per result, where the layout cannot say it
  // Where some results are None (undefined tensors): how many there are, and which of them are the leaves of the shape.
  std::optional<int64_t> num_results;
  std::vector<int64_t> results;
};

// InvalidArgument: a config that isn't one.
absl::StatusOr<FrameworkConfig> ConfigOf(const Instruction& op);

}  // namespace tenon
