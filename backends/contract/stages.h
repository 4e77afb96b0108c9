// Stages: what a compile shows of itself, as texts that a sink gets in the order of their making. A sink that wants
// nothing costs nothing. Files under dump_dir, `hlo-opt --stage=` and the kernels' code in reports are the three sinks
// there are.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/types/span.h"

namespace tenon {

enum class StageKind : uint8_t { kHlo, kPlans, kBuffers, kProgram, kLlvm, kOptimizedLlvm, kAssembly };

struct StageInfo {
  StageKind kind;
  std::string_view name, doc;
};
absl::Span<const StageInfo> AllStages();  // in the order of the compile
std::optional<StageKind> FindStage(std::string_view name);

struct Stage {
  StageKind kind;
  std::string file;  // "03.canonicalize.hlo", "plans.txt", "llvm.0.ll": unique in a compile
  std::string text;
};

struct StageSink {
  std::function<void(const Stage&)>
      take;               // null: nobody listens. Called on the compiling thread, also for what fails later
  uint32_t wanted = ~0u;  // bits of StageKind

  bool Wants(StageKind kind) const { return take != nullptr && (wanted >> static_cast<int>(kind) & 1) != 0; }
};

// A file per stage, <dir>/<prefix><file>. What cannot be written is left out: a dump never fails a compile. dir "": no
// sink.
StageSink ToDirectory(std::string dir, std::string prefix);
// Both get what they want.
StageSink Both(StageSink a, StageSink b);

}  // namespace tenon
