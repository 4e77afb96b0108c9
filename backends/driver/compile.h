// Compile: the one way from an HLO module to something that runs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "backends/contract/stages.h"
#include "hlo/module.h"
#include "passes/pipeline.h"
#include "runtime/execute/code_loader.h"
#include "runtime/host/functions.h"
#include "runtime/program/binding.h"
#include "runtime/program/program.h"

namespace tenon {

class Target;

struct CompileOptions {
  // What code is made for (backends/contract/target.h). One works on the host's memory: if none here does, the CPU of `isa`. Not part of
  // Key(): TargetKey tells them.
  std::vector<std::shared_ptr<const Target>> targets;
  std::string isa;                 // "" host's best; "avx512", "avx2", "sse4"
  bool excess_precision = true;
  std::vector<std::string> passes, disable_passes;
  std::string stop_after;
  bool verify_passes = VerifyByDefault();  // not part of Key(): the code is the same
  int threads = 0;                 // what a report tells; code is the same for any number. 0: number of cores
  int compile_threads = 0;         // 0: min(3, cores)
  uint64_t host_functions = kPlainFunctions;  // TenonHost::functions of the host that will run it (runtime/host/functions.h)
  std::string provider;            // who computes contractions, if it takes them (backends/contract/provider.h); "": the first that does
  std::string plans;               // of fusions, instead of the targets' own (backends/driver/given_plans.h)
  std::string dump_dir;            // "": nothing. hlo, plans, llvm, assembly per module
  std::string dump_prefix;
  StageSink stages;                // the same texts, in memory. Not part of Key()
  // Program::report is written: "none", "module" (graphs, costs, passes), "code" (and each kernel's LLVM IR and assembly).
  enum class Report : uint8_t { kNone, kModule, kCode } report = Report::kNone;
  // Folds constants: the value of an instruction from its operands' values. Whoever links the evaluator gives it
  // (EvaluateInstruction); null: nothing is folded, and results are the same. The backend itself has no evaluator.
  std::function<absl::StatusOr<Literal>(const Instruction&, absl::Span<const Literal>)> evaluate;
  // Does the user want the compile to end (Ctrl-C)? Asked on the calling thread, between phases and while LLVM is at work, at most
  // twenty times a second; yes ends it with kCancelled at the next phase. Null: never. Not part of Key()
  std::function<bool()> interrupted;
  // Tests: the failure to inject: a pass of backends/driver/faulty_pass.h; "invalid-ir", "fatal-error", "llvm-error", "unresolved-symbol",
  // "pass-crash".
  std::string inject_fault;
  // Tests: planted bugs (tools/lab/judge/plant.h). Changes the module after the passes, and the program, as a wrong pass or backend would.
  struct Sabotage {
    std::function<void(Module&)> module;
    std::function<void(Program&)> program;
  } sabotage;
  // What distinguishes two compilations of one module for one target, printed canonically (goes into the cache key).
  std::string Key() const;
};

// Module -> Program with its object code. The module is consumed. What fails is a Status that names the stage; an LLVM fatal error
// parks the thread that it happened on (backends/codegen/llvm/llvm_threads.h) and is reported as kInternal. Forks of other threads wait
// for the end of a phase.
absl::StatusOr<Program> CompileToProgram(std::unique_ptr<Module> module, Binding binding, const CompileOptions& options);

// As far as the last stage that options.stages wants, and no further: shows modules that cannot be compiled to the end.
absl::Status CompileStages(std::unique_ptr<Module> module, Binding binding, const CompileOptions& options);

// The loaders of programs that are compiled with these options.
CodeLoaders LoadersOf(const CompileOptions& options);

// What code of these targets may use, in full: part of cache keys, beside CompileOptions::Key().
std::string TargetKey(const CompileOptions& options);

// Version of everything that generated code depends on: the linker's build ids of this library and of LLVM.
std::string CompilerBuildId();

}  // namespace tenon
