// Target: what code is made for, as a value. The driver (backends/driver), the program builder and the passes know targets by this alone.
//
// A target has one memory space: its kernels read and write values that lie there (docs/architecture/targets.md). A compile takes a set of
// targets, of which one has the host's memory, space 0. Immutable and shared; all of its functions are thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "backends/contract/kernel.h"
#include "backends/contract/machine.h"
#include "backends/contract/provider.h"
#include "backends/contract/stages.h"
#include "passes/memory/value_views.h"
#include "passes/pass.h"
#include "runtime/execute/code_loader.h"

namespace tenon {

// What is plain data of a target.
struct TargetFacts {
  std::string name;     // of the kind: "cpu". Names the loader of its code (CodeLoader::target): no two of a compile are alike
  std::string variant;  // which of its kind: an instruction set, a processor; for people
  std::string key;      // all that its plans and code depend on: part of cache keys
  int32_t space = 0;    // the memory that its kernels work on; 0: the host's
  bool framework = false;  // the framework's operators (custom-call "aten.*") work on values of that memory; always true of the host's
  TargetInfo info;      // what passes know of it; `threads` is the driver's
  MachineModel machine;
  absl::Span<const Provider> providers;  // of contractions, those preferred first; static
};

// Planned kernels -> an image of code.
struct EmitRequest {
  std::string_view name;  // of the program, for messages
  absl::Span<const std::shared_ptr<const PlannedKernel>> kernels;  // this target's own (Target::Plan)
  absl::Span<const std::string> symbols;                           // of each
  int threads = 1;                                                 // at most so many of its own
  std::string_view inject_fault;                                   // CompileOptions::inject_fault
  const StageSink* stages = nullptr;                               // gets kLlvm, kOptimizedLlvm, kAssembly, if the target has such texts
  // Does the user want it to end? Asked on the calling thread, some twenty times a second; yes ends it with kCancelled.
  std::function<bool()> cancelled;
};

// How many of a kernel's blocks are on one multiprocessor of a device at once, at most.
struct Occupancy {
  int blocks = 0, threads = 0;  // that many threads of them
  int most_threads = 0;         // that there can be
  int multiprocessors = 0;
};

class Target {
 public:
  explicit Target(TargetFacts facts) : facts_(std::move(facts)) {}
  virtual ~Target() = default;
  Target(const Target&) = delete;

  const TargetFacts& facts() const { return facts_; }

  // Can this instruction be part of a kernel at all (opcode, types)? What it cannot is computed by the host's target.
  virtual bool CanGenerate(const Instruction& op) const = 0;
  // PassContext::any_order.
  virtual bool ReducesInAnyOrder(const Instruction& reduce) const = 0;
  // PassContext::packs_where_it_lies.
  virtual bool PacksWhereItLies(const Instruction& contraction, absl::Span<const Dim> strides) const { return false; }
  // PassContext::takes_attention, of dots that no library takes. `excess_precision`: halves may keep the bits of f32.
  virtual bool TakesAttention(const Attention& attention, bool excess_precision) const { return false; }
  // How this fusion, or this contraction that a provider of this target computes as a kernel, runs. LaunchPlan::target is a PlannedKernel.
  // Unimplemented: names the instruction for which there is no code.
  virtual absl::StatusOr<LaunchPlan> Plan(const Instruction& op, const ValueViews& views, bool excess_precision) const = 0;
  // As Plan, by this plan (KernelInfo::plan_text). InvalidArgument: it is none, or would compute something else or touch memory outside.
  virtual absl::StatusOr<LaunchPlan> PlanAs(const Instruction& op, const ValueViews& views, bool excess_precision, std::string_view plan,
                                            DimTable* dims) const {
    return absl::InvalidArgumentError(absl::StrCat("target ", facts_.name, " takes no plans"));
  }
  // The caller is in no ForkSection.
  virtual absl::StatusOr<std::vector<uint8_t>> Emit(const EmitRequest& request) const = 0;
  // For reports: of a planned kernel of this target; nullopt: it isn't launched, or nothing is known.
  virtual std::optional<Occupancy> OccupancyOf(const PlannedKernel& kernel) const { return std::nullopt; }
  // Makes Emit's image callable, now or when it comes from a cache. Lives as long as the process.
  virtual CodeLoader* loader() const = 0;

 private:
  const TargetFacts facts_;
};

}  // namespace tenon
