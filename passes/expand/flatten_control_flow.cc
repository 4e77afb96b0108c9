// FlattenControlFlow: what only orders or annotates goes, and each region has one caller.
//
//   copy-start, copy-done       a tuple (copy, source, 0) and its first element
//   domain, add-dependency      their operand (effects keep program order without tokens)
//   while and conditional       call computations of their own: one that is called twice is cloned
//
// Refused (kResourceExhausted): a module that the clones would make larger by more than kMaxGrowth instructions, and control flow
// nested deeper than kMaxDepth, which the evaluator refuses too.
//
// opt-barrier stays: what it holds apart, CSE and fusion must not bring together. After inline-calls, before everything else: later
// passes change a region for its one caller.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "hlo/builder.h"
#include "passes/expand/control_flow.h"
#include "passes/pass.h"

namespace tenon {
namespace {

Instruction* Zero(Computation* c, const Shape& shape) {
  if (shape.is_array()) return c->AddConstant(Literal(Shape::Array(shape.element_type(), shape.constant_dims())));
  return c->Add(Opcode::kAfterAll, shape, {});
}

Instruction* CopyStart(Instruction* op) {
  Builder b(op->parent());
  b.set_metadata(op->metadata());
  Instruction* copy = b.Copy(op->operand(0));
  copy->mutable_shape() = op->shape().element(0);
  std::vector<Instruction*> parts = {copy, op->operand(0)};
  for (size_t i = 2; i < op->shape().elements().size(); ++i) parts.push_back(Zero(op->parent(), op->shape().element(i)));
  return b.Tuple(parts);
}

Instruction* Plain(Instruction* op) {
  switch (op->opcode()) {
    case Opcode::kDomain:
    case Opcode::kAddDependency: return op->operand(0);
    case Opcode::kCopyStart: return CopyStart(op);
    case Opcode::kCopyDone: {
      Builder b(op->parent());
      b.set_metadata(op->metadata());
      return b.GetTupleElement(op->operand(0), 0);
    }
    default: return nullptr;
  }
}

bool MakePlain(Computation* c) {
  bool changed = false;
  for (Instruction* op : c->PostOrder()) {
    Instruction* plain = Plain(op);
    if (plain == nullptr) continue;
    for (Instruction* before : op->control_predecessors()) {
      for (Instruction* after : op->control_successors()) after->AddControlPredecessor(before);
    }
    op->ClearControlEdges();
    op->ReplaceAllUsesWith(plain);
    c->Remove(op);
    changed = true;
  }
  return changed;
}

// A copy with copies of the regions inside.
Computation* CloneRegion(Computation* c) {
  Module* module = c->module();
  absl::flat_hash_map<Computation*, Computation*> inner;
  for (const Instruction* op : c->instructions()) {
    for (Computation* r : ControlRegions(*op)) {
      if (!inner.contains(r)) inner[r] = CloneRegion(r);
    }
  }
  return c->CloneInto(module, c->name(), [&](Computation* called) {
    auto it = inner.find(called);
    return it == inner.end() ? called : it->second;
  });
}

void SetRegions(Instruction* op, const std::vector<Computation*>& regions) {
  Attributes& attrs = op->mutable_attrs();
  if (op->opcode() == Opcode::kWhile) {
    attrs.set(Attr::kCondition, regions[0]);
    attrs.set(Attr::kBody, regions[1]);
  } else if (attrs.has(Attr::kBranchComputations)) {
    attrs.set(Attr::kBranchComputations, regions);
  } else {
    attrs.set(Attr::kTrueComputation, regions[0]);
    attrs.set(Attr::kFalseComputation, regions[1]);
  }
}

constexpr int64_t kMaxGrowth = 1'000'000;
constexpr int kMaxDepth = 150;

// Counted before anything is cloned.
absl::Status CheckGrowth(const Module& module) {
  struct Size {
    int64_t instructions = 0;  // with a copy of each region for each caller
    int depth = 0;
  };
  absl::flat_hash_map<const Computation*, Size> sizes;
  for (const Computation* c : module.computations()) {  // callees first
    Size size{.instructions = c->instruction_count()};
    for (const Instruction* op : c->instructions()) {
      for (const Computation* region : ControlRegions(*op)) {
        const Size& inner = sizes.at(region);
        size.depth = std::max(size.depth, inner.depth + 1);
        size.instructions += inner.instructions;
        if (size.depth > kMaxDepth) {
          return absl::ResourceExhaustedError(absl::StrCat(op->name(), " of computation ", c->name(),
                                                           ": control flow is nested deeper than ", kMaxDepth));
        }
        if (size.instructions - module.instruction_count() > kMaxGrowth) {
          return absl::ResourceExhaustedError(
              absl::StrCat("a copy of each region of computation ", c->name(), " for each of its callers: more than ", kMaxGrowth,
                           " instructions, the budget of flatten-control-flow"));
        }
      }
    }
    sizes[c] = size;
  }
  return absl::OkStatus();
}

bool GiveEachItsOwn(Computation* c, absl::flat_hash_set<const Computation*>* taken) {
  bool changed = false;
  for (Instruction* op : c->PostOrder()) {
    std::vector<Computation*> regions = ControlRegions(*op);
    bool cloned = false;
    for (Computation*& r : regions) {
      if (taken->insert(r).second) continue;
      r = CloneRegion(r);
      taken->insert(r);
      cloned = true;
    }
    if (cloned) SetRegions(op, regions);
    changed |= cloned;
    for (Computation* r : regions) changed |= GiveEachItsOwn(r, taken);
  }
  return changed;
}

}  // namespace

absl::StatusOr<bool> FlattenControlFlow(Module& module, PassContext&) {
  TENON_RETURN_IF_ERROR(CheckGrowth(module));
  bool changed = false;
  for (Computation* c : module.computations()) changed |= MakePlain(c);
  absl::flat_hash_set<const Computation*> taken = {module.entry()};
  return GiveEachItsOwn(module.entry(), &taken) || changed;
}

}  // namespace tenon
