#include "backends/driver/faulty_pass.h"

namespace tenon {
namespace {

// Names are for people: what is compiled stays the same.
void Rename(Module& module, const std::string& name) { module.entry()->root()->set_name(name); }

absl::StatusOr<bool> BrokenModule(Module& module, PassContext&) {
  Rename(module, module.entry()->root()->operand(0)->name());
  return true;
}

absl::StatusOr<bool> SilentChange(Module& module, PassContext&) {
  Rename(module, "renamed_in_silence");
  return false;
}

absl::StatusOr<bool> FalseChange(Module&, PassContext&) { return true; }

constexpr PassInfo kFaulty[] = {
    {"broken-module", BrokenModule, ""},
    {"silent-change", SilentChange, ""},
    {"false-change", FalseChange, ""},
};

}  // namespace

void AddFaultyPass(std::string_view fault, PipelineOptions* pipeline, std::vector<PassInfo>* table) {
  for (const PassInfo& pass : kFaulty) {
    if (pass.name != fault) continue;
    table->assign(AllPasses().begin(), AllPasses().end());
    table->push_back(pass);
    pipeline->table = *table;
    if (pipeline->passes.empty()) pipeline->passes = DefaultPipeline();
    pipeline->passes.emplace_back(fault);
  }
}

}  // namespace tenon
