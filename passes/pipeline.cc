#include "passes/pipeline.h"

#include <algorithm>
#include <chrono>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "hlo/check.h"
#include "hlo/text/text.h"
#include "hlo/verifier.h"

namespace tenon {

const std::vector<std::string>& DefaultPipeline() {
  static const std::vector<std::string> pipeline = {
      "expand-bitcast",
      "order-random",
      "inline-calls",
      "single-device",
      "static-sizes",
      "expand-scan",
      "flatten-control-flow",
      "expand-composites",
      "expand-contractions",
      "dce",
      "canonicalize",
      "simplify",
      "fold-constants",
      "simplify",
      "cse",
      "assign-layout",
      "split-reductions",
      "insert-copies",
      "fuse",
      "dce",
      "schedule",
  };
  return pipeline;
}

namespace {

const PassInfo* Find(absl::Span<const PassInfo> table, std::string_view name) {
  for (const PassInfo& pass : table) {
    if (pass.name == name) return &pass;
  }
  return nullptr;
}

absl::Status Known(absl::Span<const PassInfo> table, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (Find(table, name) != nullptr) continue;
    std::string known;
    for (const PassInfo& pass : table) absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(pass.name));
    return absl::InvalidArgumentError(absl::StrCat("unknown pass \"", name, "\"; known: ", known));
  }
  return absl::OkStatus();
}

absl::Status Named(const std::string& pass, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("pass ", pass, ": ", std::string(status.message())));
}

bool InOrder(const Computation& c) {
  absl::flat_hash_set<const Instruction*> done;
  for (const Instruction* op : c.instructions()) {
    for (const Instruction* o : op->operands()) {
      if (!done.contains(o)) return false;
    }
    for (const Instruction* before : op->control_predecessors()) {
      if (!done.contains(before)) return false;
    }
    done.insert(op);
  }
  return true;
}

// Operands stand before their users again: what is dumped between passes parses. A schedule that the pass has not kept (the input's
// own: XLA writes scheduled modules) is none any more.
void RestoreOrder(Module& module) {
  for (Computation* c : module.computations()) {
    if (module.is_scheduled && !InOrder(*c)) module.is_scheduled = false;
  }
  if (module.is_scheduled) return;
  for (Computation* c : module.computations()) c->set_schedule(c->PostOrder());
}

// Runs one pass; with `verify`, finds lies about "changed" and broken modules.
absl::StatusOr<bool> RunOne(const PassInfo& pass, Module& module, PassContext& context, bool verify) {
  const std::string name(pass.name);
  std::string before;
  if (verify) before = Print(module);
  absl::StatusOr<bool> changed = pass.run(module, context);
  if (!changed.ok()) return Named(name, changed.status());
  if (*changed) RestoreOrder(module);
  if (!verify) return changed;
  const bool really = before != Print(module);
  if (really && !*changed) return absl::InternalError(absl::StrCat("pass ", name, " changed the module and said it did not"));
  if (*changed && !really) return absl::InternalError(absl::StrCat("pass ", name, " said it changed the module and did not"));
  if (*changed) {
    if (absl::Status s = Verify(module, {.scheduled = module.is_scheduled}); !s.ok()) return Named(name, s);
  }
  return changed;
}

}  // namespace

absl::StatusOr<bool> RunPipeline(Module& module, PassContext& context, const PipelineOptions& options,
                                 std::vector<PassTiming>* timings) {
  const std::vector<std::string>& passes = options.passes.empty() ? DefaultPipeline() : options.passes;
  const absl::Span<const PassInfo> table = options.table.empty() ? AllPasses() : options.table;
  TENON_RETURN_IF_ERROR(Known(table, passes));
  TENON_RETURN_IF_ERROR(Known(table, options.disable));
  if (!options.stop_after.empty()) TENON_RETURN_IF_ERROR(Known(table, {options.stop_after}));
  bool any = false;
  for (int i = 0; i < static_cast<int>(passes.size()); ++i) {
    if (std::find(options.disable.begin(), options.disable.end(), passes[i]) != options.disable.end()) continue;
    if (options.between) TENON_RETURN_IF_ERROR(options.between());
    const auto start = std::chrono::steady_clock::now();
    TENON_ASSIGN_OR_RETURN(const bool changed, RunOne(*Find(table, passes[i]), module, context, options.verify));
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    if (timings != nullptr) timings->push_back({passes[i], ms, changed});
    if (changed && options.dump) options.dump(passes[i], i, module);
    any |= changed;
    if (passes[i] == options.stop_after) break;
  }
  return any;
}

}  // namespace tenon
