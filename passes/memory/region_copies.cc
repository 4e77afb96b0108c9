#include "passes/memory/region_copies.h"

#include <deque>
#include <functional>

#include "absl/strings/str_cat.h"
#include "hlo/builder.h"
#include "passes/expand/control_flow.h"
#include "passes/memory/strided_view.h"

namespace tenon {
namespace {

// Copies the array leaves of `value` for which `wanted` gives a layout; what holds them is a new tuple. Null: nothing to copy.
using WantedLayout = std::function<const Permutation*(const Instruction* leaf, int64_t index)>;
Instruction* WithCopies(Instruction* value, int64_t first, const WantedLayout& wanted) {
  if (value->shape().is_array()) {
    const Permutation* layout = wanted(value, first);
    return layout == nullptr ? nullptr : CopyWithLayout(value, *layout);
  }
  if (value->opcode() != Opcode::kTuple) return nullptr;
  std::vector<Instruction*> parts;
  bool changed = false;
  for (Instruction* part : value->operands()) {
    Instruction* copy = WithCopies(part, first, wanted);
    changed |= copy != nullptr;
    parts.push_back(copy != nullptr ? copy : part);
    first += LeafCount(part->shape());
  }
  return changed ? Builder(value->parent()).Tuple(parts) : nullptr;
}

// The operand of a conditional is read where it lies: a strided view is made dense first, since a branch takes its parameter for dense.
bool CopyBranchOperands(Instruction* conditional, ViewCache& views) {
  bool changed = false;
  for (int64_t i = 1; i < conditional->operand_count(); ++i) {
    std::deque<Permutation> layouts;
    Instruction* with = WithCopies(conditional->operand(i), 0, [&](const Instruction* leaf, int64_t) -> const Permutation* {
      if (views.Of(leaf).strides == leaf->shape().strides()) return nullptr;
      layouts.push_back(leaf->shape().minor_to_major());
      return &layouts.back();
    });
    if (with == nullptr) continue;
    conditional->ReplaceOperand(i, with);
    changed = true;
  }
  return changed;
}

// What a region computes in another layout than its caller keeps it, or as a view of something computed: the copy is made by the kernel
// that computes it.
bool CopyResults(Computation* region, const Instruction& caller, ViewCache& views) {
  const std::vector<Shape> kept = FlattenShape(caller.shape());
  std::vector<Permutation> layouts;
  layouts.reserve(kept.size());
  Instruction* with = WithCopies(region->root(), 0, [&](const Instruction* leaf, int64_t index) -> const Permutation* {
    const Instruction* owner = views.Of(leaf).buffer.instruction;
    if (owner->opcode() == Opcode::kParameter || owner->opcode() == Opcode::kConstant) return nullptr;
    const bool in_place = owner == leaf || leaf->opcode() == Opcode::kGetTupleElement;
    if (in_place && Shape::SameWithLayout(leaf->shape(), kept[index])) return nullptr;
    layouts.push_back(kept[index].minor_to_major());
    return &layouts.back();
  });
  if (with != nullptr) region->set_root(with);
  return with != nullptr;
}

}  // namespace

Instruction* CopyWithLayout(Instruction* value, const Permutation& layout) {
  Builder b(value->parent());
  b.set_metadata(value->metadata());
  Instruction* copy = b.Copy(value);
  copy->mutable_shape().set_layout(layout);
  return copy;
}

bool CopyIntoRegions(Computation* c, PassContext& context) {
  ViewCache views;
  bool changed = false;
  for (Instruction* op : c->PostOrder()) {
    const std::vector<Computation*> regions = ControlRegions(*op);
    if (op->opcode() == Opcode::kConditional) changed |= CopyBranchOperands(op, views);
    for (Computation* region : regions) {
      const bool condition = op->opcode() == Opcode::kWhile && region == regions[0];
      if (condition || !CopyResults(region, *op, views)) continue;
      context.Note("insert-copies", "copied", *op, absl::StrCat("results of ", region->name(), " lie otherwise than it keeps them"));
      changed = true;
    }
  }
  return changed;
}

}  // namespace tenon
