#include "tools/lab/spaces.h"

#include <vector>

#include "hlo/instruction.h"

namespace tenon::lab {
namespace {

// `value`, or each array of a tuple, brought to `space`.
Instruction* Brought(Instruction* value, int64_t space) {
  Computation* c = value->parent();
  const Shape& shape = value->shape();
  if (shape.is_tuple()) {
    std::vector<Instruction*> elements;
    for (int64_t i = 0; i < static_cast<int64_t>(shape.elements().size()); ++i) {
      Instruction* element = c->Add(Opcode::kGetTupleElement, shape.element(i), {value});
      element->mutable_attrs().set(Attr::kTupleIndex, i);
      elements.push_back(Brought(element, space));
    }
    return c->Add(Opcode::kTuple, shape, elements);
  }
  if (!shape.is_array()) return value;
  Shape there = shape;
  there.set_memory_space(space);
  return c->Add(Opcode::kCopy, there, {value});
}

}  // namespace

void MoveInside(Module& module, int64_t space) {
  Computation* entry = module.entry();
  Instruction* root = entry->root();
  for (Instruction* p : std::vector<Instruction*>(entry->parameters().begin(), entry->parameters().end())) {
    const std::vector<Instruction*> users(p->users().begin(), p->users().end());
    Instruction* there = Brought(p, space);
    if (there == p) continue;
    for (Instruction* user : users) {
      for (int64_t i = 0; i < user->operand_count(); ++i) {
        if (user->operand(i) == p) user->ReplaceOperand(i, there);
      }
    }
    if (root == p) root = there;
  }
  // What is computed from nothing: its result is brought there, and home.
  if (entry->parameters().empty()) root = Brought(root, space);
  if (root != entry->root()) entry->set_root(Brought(root, 0));  // its space is that of the result: the host's
}

}  // namespace tenon::lab
