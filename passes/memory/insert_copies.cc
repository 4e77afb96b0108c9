// InsertCopies: a copy where one value may not live in the memory in which another wants it.
//
// An output that is written back over a parameter (Module::aliases) while its value is a view of a parameter that is written back
// itself (a, b = b, a): written first, the one destroys what the other still reads. Such a value is copied first.
//
// A dot whose operand is a view in which its batch, free or contracting dims don't merge into one stride each: a library matmul
// can't read it. The copy's layout has the groups together; it becomes a kernel that reads through the view. After assign-layout,
// before fuse.
#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
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

bool CopyWriteBacks(Module& module, PassContext& context, ViewCache& views) {
  Instruction* root = module.entry()->root();
  if (module.aliases.empty() || root->opcode() != Opcode::kTuple) return false;
  absl::flat_hash_set<int64_t> overwritten;
  for (const InputOutputAlias& alias : module.aliases) overwritten.insert(alias.parameter);
  Builder b(module.entry());
  bool changed = false;
  for (const InputOutputAlias& alias : module.aliases) {
    if (alias.output_index.size() != 1) continue;
    Instruction* value = root->operand(alias.output_index[0]);
    const int64_t under = ParameterUnder(value, views);
    if (under < 0 || !overwritten.contains(under) || (value->opcode() == Opcode::kParameter && under == alias.parameter))
      continue;
    b.set_metadata(value->metadata());
    Instruction* copy = b.Copy(value);
    if (value->shape().has_layout()) copy->mutable_shape().set_layout(value->shape().minor_to_major());
    root->ReplaceOperand(alias.output_index[0], copy);
    context.Note("insert-copies", "copied", *value,
                 absl::StrCat("written back over parameter ", alias.parameter, " but lies in parameter ", under,
                              ", which is written back too"));
    changed = true;
  }
  return changed;
}

// Batch dims, then free and contracting dims in the order in which they stand: one copy serves several dots.
std::vector<std::vector<int64_t>> GroupsOf(const Instruction& dot, int64_t i) {
  const std::vector<int64_t> batch = dot.int_list(i == 0 ? Attr::kLhsBatchDims : Attr::kRhsBatchDims);
  const std::vector<int64_t> contracting = dot.int_list(i == 0 ? Attr::kLhsContractingDims : Attr::kRhsContractingDims);
  std::vector<int64_t> free;
  for (int64_t d = 0; d < dot.operand(i)->shape().rank(); ++d) {
    if (!absl::c_linear_search(batch, d) && !absl::c_linear_search(contracting, d)) free.push_back(d);
  }
  if (free < contracting) return {batch, free, contracting};
  return {batch, contracting, free};
}

bool CopyDotOperands(Computation* entry, PassContext& context, ViewCache& views) {
  absl::flat_hash_map<std::pair<const Instruction*, Permutation>, Instruction*> copies;
  bool changed = false;
  for (Instruction* dot : entry->PostOrder()) {
    if (dot->opcode() != Opcode::kDot || dot->operand_count() != 2) continue;
    for (int64_t i = 0; i < 2; ++i) {
      Instruction* operand = dot->operand(i);
      const std::vector<std::vector<int64_t>> groups = GroupsOf(*dot, i);
      const StridedView& view = views.Of(operand);
      if (absl::c_all_of(groups, [&](const auto& group) { return MergeDims(view, group).has_value(); })) continue;
      Permutation layout;
      for (const std::vector<int64_t>& group : groups) layout.insert(layout.end(), group.begin(), group.end());
      std::reverse(layout.begin(), layout.end());
      Instruction*& copy = copies[{operand, layout}];
      if (copy == nullptr) {
        Builder b(entry);
        b.set_metadata(dot->metadata());
        copy = b.Copy(operand);
        copy->mutable_shape().set_layout(layout);
        context.Note("insert-copies", "copied", *operand,
                     absl::StrCat(dot->name(), " can't read it by one stride per group of dims"));
      }
      dot->ReplaceOperand(i, copy);
      changed = true;
    }
  }
  return changed;
}

}  // namespace

absl::StatusOr<bool> InsertCopies(Module& module, PassContext& context) {
  ViewCache views;
  const bool dots = CopyDotOperands(module.entry(), context, views);
  return CopyWriteBacks(module, context, views) || dots;
}

}  // namespace tenon
