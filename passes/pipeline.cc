#include "passes/pipeline.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>

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
      "take-composites",
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
      "library-sorts",
      "assign-layout",
      "layout-convolutions",
      "keep-row-dims",
      "split-reductions",
      "split-scatters",
      "insert-copies",
      "assign-spaces",
      "fuse-attention",
      "fold-bias",
      "fuse",
      "fold-bias",
      "dce",
      "settle-spaces",
      "lower-kernels",
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

absl::StatusOr<bool> RunOne(const PassInfo& pass, Module& module, PassContext& context) {
  const absl::StatusOr<bool> changed = pass.run(module, context);
  if (!changed.ok()) return Named(std::string(pass.name), changed.status());
  if (*changed) RestoreOrder(module);
  return changed;
}

// Finds lies about "changed" and broken modules. `text`: the module's print before the pass; becomes the one after it.
absl::Status Check(const std::string& pass, const Module& module, bool changed, std::string* text) {
  std::string now = Print(module);
  const bool really = now != *text;
  *text = std::move(now);
  if (really && !changed) return absl::InternalError(absl::StrCat("pass ", pass, " changed the module and said it did not"));
  if (changed && !really) return absl::InternalError(absl::StrCat("pass ", pass, " said it changed the module and did not"));
  if (!changed) return absl::OkStatus();
  if (absl::Status s = Verify(module, {.scheduled = module.is_scheduled}); !s.ok()) return Named(pass, s);
  return absl::OkStatus();
}

double Since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

bool VerifyByDefault() {
  static const bool verify = [] {
    const char* asked = std::getenv("TENON_VERIFY");
    if (asked != nullptr && *asked != 0) return std::string_view(asked) != "0";
#ifdef TENON_DEBUG_CHECKS
    return true;
#else
    return false;
#endif
  }();
  return verify;
}

absl::StatusOr<bool> RunPipeline(Module& module, PassContext& context, const PipelineOptions& options,
                                 std::vector<PassTiming>* timings) {
  const std::vector<std::string>& passes = options.passes.empty() ? DefaultPipeline() : options.passes;
  const absl::Span<const PassInfo> table = options.table.empty() ? AllPasses() : options.table;
  TENON_RETURN_IF_ERROR(Known(table, passes));
  TENON_RETURN_IF_ERROR(Known(table, options.disable));
  if (!options.stop_after.empty()) TENON_RETURN_IF_ERROR(Known(table, {options.stop_after}));
  bool any = false;
  std::string text = options.verify ? Print(module) : "";
  for (int i = 0; i < static_cast<int>(passes.size()); ++i) {
    if (std::find(options.disable.begin(), options.disable.end(), passes[i]) != options.disable.end()) continue;
    if (options.between) TENON_RETURN_IF_ERROR(options.between());
    const auto start = std::chrono::steady_clock::now();
    TENON_ASSIGN_OR_RETURN(const bool changed, RunOne(*Find(table, passes[i]), module, context));
    const double ms = Since(start);
    if (options.verify) TENON_RETURN_IF_ERROR(Check(passes[i], module, changed, &text));
    if (timings != nullptr) timings->push_back({passes[i], ms, changed, Since(start) - ms});
    if (changed && options.dump) options.dump(passes[i], i, module);
    any |= changed;
    if (passes[i] == options.stop_after) break;
  }
  return any;
}

}  // namespace tenon
