#include "passes/expand/control_flow.h"

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "hlo/check.h"

namespace tenon {

std::vector<Computation*> BranchesOf(const Instruction& conditional) {
  const Attributes& attrs = conditional.attrs();
  if (attrs.has(Attr::kBranchComputations)) return attrs.get<std::vector<Computation*>>(Attr::kBranchComputations);
  return {attrs.get<Computation*>(Attr::kTrueComputation), attrs.get<Computation*>(Attr::kFalseComputation)};
}

std::vector<Computation*> ControlRegions(const Instruction& op) {
  switch (op.opcode()) {
    case Opcode::kWhile: return {op.attrs().get<Computation*>(Attr::kCondition), op.attrs().get<Computation*>(Attr::kBody)};
    case Opcode::kConditional: return BranchesOf(op);
    default: return {};
  }
}

std::vector<Computation*> ControlComputations(const Module& module) {
  std::vector<Computation*> found = {module.entry()};
  absl::flat_hash_set<const Computation*> seen = {module.entry()};
  for (size_t i = 0; i < found.size(); ++i) {
    for (const Instruction* op : found[i]->instructions()) {
      for (Computation* c : ControlRegions(*op)) {
        if (seen.insert(c).second) found.push_back(c);
      }
    }
  }
  return found;
}

int64_t LeafCount(const Shape& shape) {
  if (!shape.is_tuple()) return 1;
  int64_t count = 0;
  for (const Shape& e : shape.elements()) count += LeafCount(e);
  return count;
}

int64_t LeafOffset(const Shape& tuple, int64_t element) {
  int64_t offset = 0;
  for (int64_t i = 0; i < element; ++i) offset += LeafCount(tuple.element(i));
  return offset;
}

int64_t FirstLeafOf(const Instruction& parameter) {
  int64_t first = 0;
  for (int64_t p = 0; p < parameter.parameter_number(); ++p) first += LeafCount(parameter.parent()->parameter(p)->shape());
  return first;
}

ValueLeaf SourceOfLeaf(const Instruction* op, int64_t leaf) {
  while (true) {
    switch (op->opcode()) {
      case Opcode::kOptBarrier: op = op->operand(0); break;
      case Opcode::kGetTupleElement:
        leaf += LeafOffset(op->operand(0)->shape(), op->tuple_index());
        op = op->operand(0);
        break;
      case Opcode::kTuple: {
        int64_t element = 0;
        for (int64_t count; leaf >= (count = LeafCount(op->operand(element)->shape())); ++element) leaf -= count;
        op = op->operand(element);
        break;
      }
      default: return {op, leaf};
    }
  }
}

namespace {

using Known = absl::flat_hash_map<const Instruction*, std::vector<bool>>;

const std::vector<bool>& Invariant(const Instruction& loop, Known* known) {
  if (auto it = known->find(&loop); it != known->end()) return it->second;
  const Computation* body = loop.attrs().get<Computation*>(Attr::kBody);
  const int64_t leaves = LeafCount(loop.shape());
  std::vector<bool> invariant(leaves);
  for (int64_t i = 0; i < leaves; ++i) {
    ValueLeaf source = SourceOfLeaf(body->root(), i);
    while (source.op->opcode() == Opcode::kWhile && Invariant(*source.op, known)[source.leaf]) {
      source = SourceOfLeaf(source.op->operand(0), source.leaf);
    }
    invariant[i] = source == ValueLeaf{body->parameter(0), i};
  }
  return (*known)[&loop] = std::move(invariant);
}

}  // namespace

std::vector<bool> InvariantLeaves(const Instruction& loop) {
  Known known;
  return Invariant(loop, &known);
}

}  // namespace tenon
