#include "backends/driver/compile.h"

#include <chrono>
#include <new>
#include <thread>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "backends/contract/provider.h"
#include "backends/contract/target.h"
#include "backends/driver/faulty_pass.h"
#include "backends/driver/given_plans.h"
#include "backends/driver/targets.h"
#include "backends/program/program_builder.h"
#include "backends/report/module_report.h"
#include "hlo/check.h"
#include "hlo/own_calls.h"
#include "hlo/text/text.h"
#include "hlo/verifier.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/ErrorHandling.h"
#include "passes/fusion/attention.h"
#include "passes/fusion/fused_form.h"
#include "passes/spaces/spaces.h"
#include "runtime/build_id.h"
#include "runtime/fork.h"
#include "runtime/host/pace.h"

namespace tenon {
namespace {

class PhaseTimer {
 public:
  explicit PhaseTimer(std::vector<std::pair<std::string, double>>* phases) : phases_(phases) {}
  void Done(std::string phase) {
    const auto now = std::chrono::steady_clock::now();
    phases_->emplace_back(std::move(phase), std::chrono::duration<double, std::milli>(now - last_).count());
    last_ = now;
  }

 private:
  std::vector<std::pair<std::string, double>>* phases_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

int Cores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

TargetInfo InfoOfTarget(const Target& target, const CompileOptions& options) {
  TargetInfo info = target.facts().info;
  info.threads = options.threads > 0 ? options.threads : Cores();
  return info;
}

constexpr int64_t kMaxInstructions = 200'000;

// One compile. The phases are called in order; each shows its stages also where it fails.
class Compilation {
 public:
  Compilation(Module& module, const Binding& binding, const CompileOptions& options)
      : module_(module), binding_(binding), options_(options),
        stages_(Both(ToDirectory(options.dump_dir, options.dump_prefix), options.stages)) {
    if (options.report == CompileOptions::Report::kCode) stages_ = Both(stages_, code_.Sink());
  }

  absl::Status Setup() {
    ForkSection section;
    TENON_ASSIGN_OR_RETURN(targets_, TargetsOf(options_.targets, options_.isa));
    TENON_RETURN_IF_ERROR(FindSpaces());
    if (!options_.provider.empty()) TENON_RETURN_IF_ERROR(CheckProviderName(options_.provider, targets_));
    TENON_ASSIGN_OR_RETURN(given_, GivenPlans::Parse(options_.plans));
    if (module_.instruction_count() > kMaxInstructions) {
      return absl::ResourceExhaustedError(absl::StrCat("module ", module_.name(), " has ", module_.instruction_count(),
                                                       " instructions; the CPU backend compiles at most ", kMaxInstructions));
    }
    if (options_.verify_passes) TENON_RETURN_IF_ERROR(Verify(module_));
    timer_.Done("setup");
    if (reports()) {
      report_.Input(module_, InfoOfTarget(*main_, options_));
      timer_.Done("report");
    }
    return absl::OkStatus();
  }

  absl::Status Passes() {
    ForkSection section;
    PassContext context = Context();
    PipelineOptions pipeline{.passes = options_.passes, .disable = options_.disable_passes, .stop_after = options_.stop_after,
                             .verify = options_.verify_passes};
    pipeline.between = [&] {
      absl::Status status;
      section.Yield([&] { status = AskUser(); });
      return status;
    };
    if (stages_.Wants(StageKind::kHlo)) {
      Show(StageKind::kHlo, "00.input.hlo", Print(module_));
      pipeline.dump = [&](std::string_view pass, int index, const Module& m) {
        Show(StageKind::kHlo, absl::StrCat(absl::Dec(index + 1, absl::kZeroPad2), ".", std::string(pass), ".hlo"), Print(m));
      };
    }
    if (options_.inject_fault == "pass-crash") throw InternalError("injected crash in a pass");
    std::vector<PassInfo> table;
    AddFaultyPass(options_.inject_fault, &pipeline, &table);
    const absl::Status status = RunPipeline(module_, context, pipeline, &pass_timings_).status();
    const bool altered = options_.sabotage.module && (options_.sabotage.module(module_), true);
    if (altered || ChangedBehindPlans()) plans_.clear();
    timer_.Done("passes");
    if (options_.verify_passes) MoveVerifying();
    return wrong_plan_.ok() ? status : wrong_plan_;
  }

  absl::Status Plan() {
    TENON_RETURN_IF_ERROR(AskUser());
    ForkSection section;
    TENON_RETURN_IF_ERROR(CheckFusedForm(module_));
    if (has_devices() && !spaces_.assigned) {
      return absl::FailedPreconditionError("a compile with a device needs the pass assign-spaces, which these passes leave out");
    }
    if (plans_.empty()) TENON_RETURN_IF_ERROR(PlanKernels());
    TENON_RETURN_IF_ERROR(wrong_plan_);
    TENON_RETURN_IF_ERROR(given_.AllUsed());
    TENON_ASSIGN_OR_RETURN(built_, BuildProgram(module_, binding_, plans_, targets_, &remarks_));
    if (stages_.Wants(StageKind::kPlans)) Show(StageKind::kPlans, "plans.txt", PlansOf(built_.program));
    if (stages_.Wants(StageKind::kBuffers)) Show(StageKind::kBuffers, "buffers.txt", built_.buffer_plan);
    if (stages_.Wants(StageKind::kProgram)) Show(StageKind::kProgram, "program.txt", built_.program.ToString());
    timer_.Done("plan");
    return absl::OkStatus();
  }

  // Each target emits its own.
  absl::Status Kernels() {
    for (size_t image = 0; image < built_.program.code.size(); ++image) {
      std::vector<std::shared_ptr<const PlannedKernel>> kernels;
      std::vector<std::string> symbols;
      for (size_t k = 0; k < built_.kernels.size(); ++k) {
        if (built_.program.kernels[k].code != static_cast<int32_t>(image)) continue;
        kernels.push_back(built_.kernels[k]);
        symbols.push_back(built_.program.kernels[k].symbol);
      }
      if (kernels.empty()) continue;
      EmitRequest request{.name = built_.program.name, .kernels = kernels, .symbols = symbols,
                          .threads = options_.compile_threads > 0 ? options_.compile_threads : std::min(3, Cores()),
                          .inject_fault = options_.inject_fault, .stages = &stages_, .cancelled = [this] { return !AskUser().ok(); }};
      CodeImage& code = built_.program.code[image];
      TENON_ASSIGN_OR_RETURN(code.object, TargetOfSpace(code.space).Emit(request));
    }
    for (size_t k = 0; reports() && k < built_.kernels.size(); ++k) {
      const KernelSpec& spec = built_.program.kernels[k];
      const Target& target = TargetOfSpace(built_.program.code[static_cast<size_t>(spec.code)].space);
      if (const auto occupancy = target.OccupancyOf(*built_.kernels[k])) report_.Occupied(spec.symbol, *occupancy);
    }
    if (!built_.kernels.empty()) timer_.Done("llvm");
    return absl::OkStatus();
  }

  Program Finish() {
    Program program = std::move(built_.program);
    if (options_.sabotage.program) options_.sabotage.program(program);
    for (const Remark& r : remarks_) program.remarks.push_back(r.ToJson());
    program.compile_ms = std::move(phases_);
    if (reports()) program.report = report_.Finish(module_, pass_timings_, code_);
    return program;
  }

  // Is there a stage from `kind` on that somebody wants?
  bool WantsFrom(StageKind kind) const {
    for (const StageInfo& stage : AllStages()) {
      if (stage.kind >= kind && stages_.Wants(stage.kind)) return true;
    }
    return false;
  }

 private:
  bool has_devices() const { return !spaces_.devices.empty(); }

  // What lies where by the binding, and who works there.
  absl::Status FindSpaces() {
    host_ = main_ = targets_.front().get();
    for (const Binding::Input& in : binding_.inputs) TENON_RETURN_IF_ERROR(Uses(in.space, "input", in.name));
    for (const Binding::Output& out : binding_.outputs) TENON_RETURN_IF_ERROR(Uses(out.space, "an output", ""));
    for (const Instruction* op : module_.entry()->instructions()) {
      const Target* to = op->opcode() == Opcode::kCopy && op->shape().is_array() ? FindTarget(op->shape().memory_space()) : nullptr;
      if (to != nullptr && main_ == host_) main_ = to;
    }
    for (size_t t = 1; t < targets_.size(); ++t) spaces_.devices.push_back(targets_[t]->facts().space);
    spaces_.main = main_->facts().space;
    for (const Binding::Parameter& p : binding_.parameters) {
      const bool input = p.kind == Binding::Parameter::Kind::kInput;
      spaces_.parameters.push_back(input ? binding_.inputs[static_cast<size_t>(p.index)].space : 0);
    }
    spaces_.runs = [this](const Instruction& op, int64_t space) {
      const Target& target = TargetOfSpace(space);
      if (IsFrameworkCall(op)) return target.facts().framework;
      return ContractionOf(op) != nullptr ? ChooseProvider(op, SiteOf(target)).provider != nullptr : target.CanGenerate(op);
    };
    return absl::OkStatus();
  }

  absl::Status Uses(int64_t space, std::string_view what, std::string_view name) {
    const Target* target = FindTarget(space);
    if (target == nullptr) {
      const std::string known = absl::StrJoin(targets_, ", ", [](std::string* out, const auto& t) {
        absl::StrAppend(out, t->facts().space, " (", t->facts().name, ")");
      });
      return absl::InvalidArgumentError(absl::StrCat(module_.name(), ": ", std::string(what), name.empty() ? "" : " ", std::string(name),
                                                     " lies in memory space ", space, "; the compile's targets have ", known));
    }
    if (main_ == host_) main_ = target;
    return absl::OkStatus();
  }

  const Target* FindTarget(int64_t space) const {
    for (const auto& target : targets_) {
      if (target->facts().space == space) return target.get();
    }
    return nullptr;
  }
  const Target& TargetOfSpace(int64_t space) const {
    const Target* target = FindTarget(space);
    TENON_CHECK(target != nullptr, absl::StrCat("memory space ", space));
    return *target;
  }

  // Whose it is to compute this; before that is decided, whose answers passes go by.
  const Target& TargetOf(const Instruction& op) const {
    if (!has_devices()) return *host_;
    return spaces_.assigned ? TargetOfSpace(SpaceOf(op.shape())) : *main_;
  }

  bool IsTaken(const Instruction& op) const { return TakenByLibrary(op, SiteOf(TargetOf(op))); }

  PassContext Context() {
    PassContext context;
    context.target = InfoOfTarget(*main_, options_);
    if (has_devices()) context.spaces = &spaces_;
    context.excess_precision = options_.excess_precision;
    context.remarks = &remarks_;
    context.evaluate = options_.evaluate;
    context.provide_composite = [this](const Instruction& op) { return ProvideComposite(op, SiteOf(TargetOf(op))); };
    context.library_takes = [this](const Instruction& op) { return IsTaken(op); };
    context.can_generate = [this](const Instruction& op) { return TargetOf(op).CanGenerate(op) && !IsTaken(op); };
    context.packs = [this](const Instruction& op) { return Packs(op, SiteOf(TargetOf(op))); };
    context.packs_where_it_lies = [this](const Instruction& op, absl::Span<const Dim> strides) {
      return TargetOf(op).PacksWhereItLies(op, strides);
    };
    context.folds_behind = [this](const Instruction& op, std::vector<const Instruction*>* inside) {
      return BehindToFold(op, SiteOf(TargetOf(op)), inside);
    };
    context.folds_bias = [this](const Instruction& op, const Instruction& epilogue) {
      return BiasToFold(op, epilogue, SiteOf(TargetOf(op)));
    };
    context.takes_attention = [this](const Attention& attention) {
      const bool library = IsTaken(*attention.scores) || IsTaken(*attention.values);
      return !library && TargetOf(*attention.values).TakesAttention(attention, options_.excess_precision);
    };
    context.any_order = [this](const Instruction& reduce) { return TargetOf(reduce).ReducesInAnyOrder(reduce); };
    context.own_strides = OwnStridesOf(module_, binding_);
    context.plan_launches = [this](const Instruction& op, const ValueViews& views) { return PlanLaunches(op, views); };
    context.launch_plans = &plans_;
    return context;
  }

  ContractionSite SiteOf(const Target& target) const {
    return {.target = &target, .host_functions = options_.host_functions, .excess_precision = options_.excess_precision,
            .wanted = options_.provider};
  }

  // Contractions by their providers, all else as kernels.
  absl::StatusOr<LaunchPlan> PlanLaunches(const Instruction& op, const ValueViews& views) {
    const Instruction* contraction = ContractionOf(op);
    if (contraction == nullptr && op.opcode() != Opcode::kFusion) {
      return absl::UnimplementedError(absl::StrCat("no code for ", op.ToString()));
    }
    const Target& target = TargetOf(op);
    if (const std::string& given = given_.For(op.name()); !given.empty()) {
      absl::StatusOr<LaunchPlan> plan = target.PlanAs(op, views, options_.excess_precision, given, &module_.dims());
      if (!plan.ok()) wrong_plan_.Update(absl::InvalidArgumentError(absl::StrCat(op.name(), ": ", std::string(plan.status().message()))));
      return plan;
    }
    if (contraction == nullptr) return target.Plan(op, views, options_.excess_precision);
    const Choice choice = ChooseProvider(*contraction, SiteOf(target));
    const std::string refusals = absl::StrJoin(choice.refusals, "; ");
    if (choice.provider == nullptr) return absl::UnimplementedError(absl::StrCat("no provider for ", op.name(), ": ", refusals));
    remarks_.push_back({.pass = "lower-kernels", .instruction = op.name(), .kind = "provider",
                        .reason = absl::StrCat(std::string(choice.provider->name), refusals.empty() ? "" : "; not ", refusals),
                        .source = SourceOf(op)});
    if (choice.provider->lower != nullptr) return choice.provider->lower(op, views);
    return target.Plan(op, views, options_.excess_precision);
  }

  // By a pass of somebody's own pipeline, or a faulty one: the plans may be of instructions that are gone.
  bool ChangedBehindPlans() const {
    bool planned = false, changed = false;
    for (const PassTiming& pass : pass_timings_) {
      changed |= planned && pass.changed && pass.name != "schedule";
      planned |= pass.name == "lower-kernels";
    }
    return changed;
  }

  // Where no pass has: a pipeline of one's own, of a module that stands fused.
  absl::Status PlanKernels() {
    PassContext context = Context();
    PipelineOptions pipeline{.passes = {"lower-kernels"}, .verify = options_.verify_passes};
    TENON_ASSIGN_OR_RETURN(const bool split, RunPipeline(module_, context, pipeline));
    pipeline.passes = {"schedule"};
    return split ? RunPipeline(module_, context, pipeline).status() : absl::OkStatus();
  }

  // Never in a ForkSection: the answer may need Python's lock.
  absl::Status AskUser() {
    if (options_.interrupted && pace_.Due() && options_.interrupted()) return absl::CancelledError("interrupted");
    return absl::OkStatus();
  }

  // The checks between passes are a phase of their own: `passes` stays comparable, and who reads the phases sees that they ran.
  void MoveVerifying() {
    double ms = 0;
    for (const PassTiming& t : pass_timings_) ms += t.verify_ms;
    phases_.back().second -= ms;
    phases_.emplace_back("verify", ms);
  }

  void Show(StageKind kind, std::string file, std::string text) const {
    if (stages_.Wants(kind)) stages_.take({kind, std::move(file), std::move(text)});
  }
  bool reports() const { return options_.report != CompileOptions::Report::kNone; }

  Module& module_;
  const Binding& binding_;
  const CompileOptions& options_;
  std::vector<std::shared_ptr<const Target>> targets_;  // the host's first
  const Target *host_ = nullptr, *main_ = nullptr;
  Spaces spaces_;
  std::vector<std::pair<std::string, double>> phases_;
  PhaseTimer timer_{&phases_};
  std::vector<Remark> remarks_;
  std::vector<PassTiming> pass_timings_;
  LaunchPlans plans_;
  GivenPlans given_;
  absl::Status wrong_plan_;  // a given one that does not fit: lower-kernels would split the fusion
  BuiltProgram built_;
  ModuleReport report_;
  KernelCode code_;
  StageSink stages_;
  Pace pace_;
};

absl::StatusOr<Program> CompileAll(Module& module, const Binding& binding, const CompileOptions& options) {
  Compilation compilation(module, binding, options);
  TENON_RETURN_IF_ERROR(compilation.Setup());
  TENON_RETURN_IF_ERROR(compilation.Passes());
  TENON_RETURN_IF_ERROR(compilation.Plan());
  TENON_RETURN_IF_ERROR(compilation.Kernels());
  return compilation.Finish();
}

absl::Status CompileWanted(Module& module, const Binding& binding, const CompileOptions& options) {
  Compilation compilation(module, binding, options);
  TENON_RETURN_IF_ERROR(compilation.Setup());
  TENON_RETURN_IF_ERROR(compilation.Passes());
  if (!compilation.WantsFrom(StageKind::kPlans)) return absl::OkStatus();
  TENON_RETURN_IF_ERROR(compilation.Plan());
  return compilation.WantsFrom(StageKind::kLlvm) ? compilation.Kernels() : absl::OkStatus();
}

}  // namespace

std::string CompileOptions::Key() const {
  std::string key = absl::StrCat("excess=", excess_precision, ";passes=", absl::StrJoin(passes, ","),
                                 ";disable=", absl::StrJoin(disable_passes, ","), ";stop=", stop_after, ";host=", host_functions,
                                 ";provider=", provider, ";plans=", plans, ";fold=", evaluate != nullptr,
                                 ";fault=", inject_fault, ";report=", static_cast<int>(report));
  // Code is the same for any number of threads; a report tells it.
  if (report != Report::kNone) absl::StrAppend(&key, ";threads=", threads);
  return key;
}

absl::StatusOr<Program> CompileToProgram(std::unique_ptr<Module> module, Binding binding, const CompileOptions& options) {
  try {
    return CompileAll(*module, binding, options);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory");
  } catch (const std::exception& e) {
    return absl::InternalError(e.what());
  }
}

absl::Status CompileStages(std::unique_ptr<Module> module, Binding binding, const CompileOptions& options) {
  try {
    return CompileWanted(*module, binding, options);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory");
  } catch (const std::exception& e) {
    return absl::InternalError(e.what());
  }
}

CodeLoaders LoadersOf(const CompileOptions& options) {
  std::vector<CodeLoader*> loaders;
  for (const BuiltInTarget& built_in : BuiltInTargets()) loaders.push_back(built_in.loader());
  for (const auto& target : options.targets) loaders.push_back(target->loader());
  std::erase(loaders, nullptr);
  return CodeLoaders(std::move(loaders));
}

std::string TargetKey(const CompileOptions& options) {
  const auto targets = TargetsOf(options.targets, options.isa);
  if (!targets.ok()) return absl::StrCat("refused: ", std::string(targets.status().message()));
  return absl::StrJoin(*targets, ";", [](std::string* out, const auto& target) {
    const TargetFacts& facts = target->facts();
    absl::StrAppend(out, facts.name, "@", facts.space, ":", facts.key);
  });
}

std::string CompilerBuildId() {
  static const auto* id = new std::string(
      absl::StrCat("tenon-", TENON_VERSION, "-", BuildIdOf(reinterpret_cast<const void*>(&CompilerBuildId)), "-llvm-", LLVM_VERSION_STRING,
                   "-", BuildIdOf(reinterpret_cast<const void*>(&llvm::install_fatal_error_handler))));
  return *id;
}

}  // namespace tenon
