#include "backends/contract/stages.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace tenon {

absl::Span<const StageInfo> AllStages() {
  static constexpr StageInfo stages[] = {
      {StageKind::kHlo, "hlo", "the module as it came, then after each pass that changed it"},
      {StageKind::kPlans, "plans", "each kernel's plan: loops, lanes, phases"},
      {StageKind::kBuffers, "buffers", "where every value lives, and when"},
      {StageKind::kProgram, "program", "the steps that the runtime walks"},
      {StageKind::kLlvm, "llvm", "LLVM IR as emitted"},
      {StageKind::kOptimizedLlvm, "optimized-llvm", "LLVM IR after LLVM's passes"},
      {StageKind::kAssembly, "assembly", "the machine's code"},
  };
  return stages;
}

std::optional<StageKind> FindStage(std::string_view name) {
  for (const StageInfo& stage : AllStages()) {
    if (stage.name == name) return stage.kind;
  }
  return std::nullopt;
}

StageSink ToDirectory(std::string dir, std::string prefix) {
  if (dir.empty()) return {};
  std::error_code ignored;
  std::filesystem::create_directories(dir, ignored);
  return {.take = [dir = std::move(dir), prefix = std::move(prefix)](const Stage& stage) {
    std::ofstream(std::filesystem::path(dir) / absl::StrCat(prefix, stage.file)) << stage.text;
  }};
}

StageSink Both(StageSink a, StageSink b) {
  if (!a.take) return b;
  if (!b.take) return a;
  const uint32_t wanted = a.wanted | b.wanted;
  return {.take =
              [a = std::move(a), b = std::move(b)](const Stage& stage) {
                if (a.Wants(stage.kind)) a.take(stage);
                if (b.Wants(stage.kind)) b.take(stage);
              },
          .wanted = wanted};
}

}  // namespace tenon
