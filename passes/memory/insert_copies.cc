// InsertCopies: a copy where one value may not live in the memory in which another wants it.
//
// An output that is written back over a parameter (Module::aliases) while its value is a view of a parameter that is written back
// itself (a, b = b, a): written first, the one destroys what the other still reads. Such a value is copied first.
// After assign-layout, before fuse.
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "hlo/builder.h"
#include "passes/memory/strided_view.h"
#include "passes/pass.h"

namespace tenon {
namespace {

// The parameter whose memory the value is in, or -1.
int64_t ParameterUnder(const Instruction* value, ViewCache& views) {
  const Instruction* owner = views.Of(value).buffer.instruction;
  return owner->opcode() == Opcode::kParameter ? owner->parameter_number() : -1;
}

}  // namespace

absl::StatusOr<bool> InsertCopies(Module& module, PassContext& context) {
  Instruction* root = module.entry()->root();
  if (module.aliases.empty() || root->opcode() != Opcode::kTuple) return false;
  absl::flat_hash_set<int64_t> overwritten;
  for (const InputOutputAlias& alias : module.aliases) overwritten.insert(alias.parameter);
  ViewCache views;
  Builder b(module.entry());
  bool changed = false;
  for (const InputOutputAlias& alias : module.aliases) {
    if (alias.output_index.size() != 1) continue;
    Instruction* value = root->operand(alias.output_index[0]);
    const int64_t under = ParameterUnder(value, views);
    if (under < 0 || !overwritten.contains(under) || (value->opcode() == Opcode::kParameter && under == alias.parameter)) continue;
    b.set_metadata(value->metadata());
    Instruction* copy = b.Copy(value);
    if (value->shape().has_layout()) copy->mutable_shape().set_layout(value->shape().minor_to_major());
    root->ReplaceOperand(alias.output_index[0], copy);
    context.Note("insert-copies", "copied", *value,
                 absl::StrCat("written back over parameter ", alias.parameter, " but lies in parameter ", under, ", which is written back too"));
    changed = true;
  }
  return changed;
}

}  // namespace tenon
