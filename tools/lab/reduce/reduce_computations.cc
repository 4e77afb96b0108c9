// Steps on called computations: inlined where that is smaller, loops and conditionals by one of
// their parts, state and parameters dropped.
#include <algorithm>

#include "tools/lab/reduce/reduce_session.h"

namespace tenon::lab {
namespace {

void Replace(Instruction* op, Instruction* with) {
  op->ReplaceAllUsesWith(with);
  op->ClearControlEdges();
  op->parent()->Remove(op);
}

bool InlineBody(Instruction* op) {
  const Computation* callee = op->called_computations()[0];
  Replace(op, InlineInto(op->parent(), *callee, op->operands()));
  return true;
}

bool Inline(Session& s, Position at, const Instruction* op) {
  if (op->opcode() != Opcode::kCall && op->opcode() != Opcode::kFusion) return false;
  if (s.TryEdit("inline", [&](Case& c) { return InlineBody(At(*c.module, at)); })) return true;
  // Shared: all of its callers at once.
  return s.TryEdit("inline all", [&](Case& c) {
    const Computation* callee = At(*c.module, at)->called_computations()[0];
    for (Computation* computation : c.module->computations()) {
      for (Instruction* i : computation->instructions()) {
        const bool caller = i->opcode() == Opcode::kCall || i->opcode() == Opcode::kFusion;
        if (caller && i->called_computations()[0] == callee) InlineBody(i);
      }
    }
    return true;
  });
}

// What an async pair calls, where its result is taken.
bool InlineAsync(Session& s, Position at, const Instruction* op) {
  if (op->opcode() != Opcode::kAsyncDone) return false;
  return s.TryEdit("inline async", [&](Case& c) {
    Instruction* done = At(*c.module, at);
    Instruction* start = done->operand(0);
    std::vector<Instruction*> updates;
    for (; start->opcode() == Opcode::kAsyncUpdate; start = start->operand(0)) updates.push_back(start);
    if (start->opcode() != Opcode::kAsyncStart) return false;
    Replace(done, InlineInto(done->parent(), *start->fused_computation(), start->operands()));
    updates.push_back(start);
    for (Instruction* i : updates) {
      if (i->user_count() > 0) return true;
      i->ClearControlEdges();
      i->parent()->Remove(i);
    }
    return true;
  });
}

// Another computation of the module in place of the one that is applied to elements.
bool ShareRegion(Session& s, Position at, const Instruction* op) {
  const Computation* mine = op->attrs().get_or<Computation*>(Attr::kToApply, nullptr);
  if (mine == nullptr || op->opcode() == Opcode::kCall) return false;
  const std::vector<Computation*> all = s.best().module->computations();
  for (size_t k = 0; k < all.size(); ++k) {
    bool fits = all[k] != mine && all[k] != s.entry() && all[k]->parameters().size() == mine->parameters().size() &&
                all[k]->root()->shape() == mine->root()->shape();
    for (size_t p = 0; fits && p < mine->parameters().size(); ++p) {
      fits = all[k]->parameter(static_cast<int64_t>(p))->shape() == mine->parameter(static_cast<int64_t>(p))->shape();
    }
    if (!fits) continue;
    const bool done = s.TryEdit("region", [&](Case& c) {
      At(*c.module, at)->mutable_attrs().set(Attr::kToApply, c.module->computations()[k]);
      c.module->RemoveUnreachableComputations();
      return true;
    });
    if (done) return true;
  }
  return false;
}

bool TakeBranch(Session& s, Position at, const Instruction* op) {
  if (op->opcode() != Opcode::kConditional) return false;
  for (size_t b = 0; b < op->called_computations().size(); ++b) {
    const bool done = s.TryEdit("branch", [&](Case& c) {
      Instruction* i = At(*c.module, at);
      Instruction* argument = i->operand(static_cast<int64_t>(b) + 1);
      Replace(i, InlineInto(i->parent(), *i->called_computations()[b], {argument}));
      return true;
    });
    if (done) return true;
  }
  return false;
}

bool UnrollOnce(Session& s, Position at, const Instruction* op) {
  if (op->opcode() != Opcode::kWhile) return false;
  return s.TryEdit("body once", [&](Case& c) {
    Instruction* i = At(*c.module, at);
    Replace(i,
            InlineInto(i->parent(), *i->attrs().get<Computation*>(Attr::kBody), {i->operand(0)}));
    return true;
  });
}

Shape Without(const Shape& tuple, size_t k) {
  std::vector<Shape> elements(tuple.elements().begin(), tuple.elements().end());
  elements.erase(elements.begin() + static_cast<int64_t>(k));
  return Shape::Tuple(std::move(elements));
}

// Every use of element k of a tuple is a get-tuple-element: those take `instead` (made where they
// stand), later ones move down.
bool DropElement(Instruction* tuple, size_t k, const Literal& instead) {
  for (Instruction* user : tuple->users()) {
    if (user->opcode() != Opcode::kGetTupleElement) return false;
  }
  const std::vector<Instruction*> users(tuple->users().begin(), tuple->users().end());
  for (Instruction* user : users) {
    const size_t index = static_cast<size_t>(user->tuple_index());
    if (index == k) {
      Replace(user, user->parent()->AddConstant(instead));
    } else if (index > k) {
      user->mutable_attrs().set(Attr::kTupleIndex, static_cast<int64_t>(index) - 1);
    }
  }
  tuple->mutable_shape() = Without(tuple->shape(), k);
  return true;
}

bool DropOperand(Instruction* tuple, size_t k) {
  if (tuple->opcode() != Opcode::kTuple || tuple->user_count() > 1) return false;
  tuple->RemoveOperand(static_cast<int64_t>(k));
  tuple->mutable_shape() = Without(tuple->shape(), k);
  return true;
}

// The loop's state without element k, which is its initial value everywhere.
bool DropState(Session& s, Position at, const Instruction* op) {
  if (op->opcode() != Opcode::kWhile || !op->shape().is_tuple()) return false;
  const std::optional<Literal> init =
      ValueOf(op->operand(0),
              at.computation + 1 == s.best().module->computations().size() ? s.values() : Values());
  if (!init) return false;
  for (size_t k = op->shape().elements().size(); k-- > 0;) {
    if (!op->shape().element(static_cast<int64_t>(k)).is_array()) continue;
    const bool done = s.TryEdit("loop state", [&](Case& c) {
      Instruction* i = At(*c.module, at);
      const Literal& value = init->elements()[k];
      Computation *body = i->attrs().get<Computation*>(Attr::kBody),
                  *condition = i->attrs().get<Computation*>(Attr::kCondition);
      const bool unchanged = body->root() == body->parameter(0);
      return DropOperand(i->operand(0), k) && (unchanged || DropOperand(body->root(), k)) &&
             DropElement(body->parameter(0), k, value) &&
             DropElement(condition->parameter(0), k, value) && DropElement(i, k, value);
    });
    if (done) return true;
  }
  return false;
}

// What a branch's parameter tuple holds and the branch doesn't take, and operands that a callee
// doesn't read.
bool DropParameter(Session& s, Position at, const Instruction* op) {
  if (op->opcode() == Opcode::kConditional) {
    for (size_t b = 0; b < op->called_computations().size(); ++b) {
      const Instruction* argument = op->operand(static_cast<int64_t>(b) + 1);
      for (size_t k = argument->shape().elements().size(); k-- > 0;) {
        const bool done = s.TryEdit("branch parameter", [&](Case& c) {
          Instruction* i = At(*c.module, at);
          const std::optional<Literal> value =
              ValueOf(i->operand(static_cast<int64_t>(b) + 1), s.values());
          return value && DropOperand(i->operand(static_cast<int64_t>(b) + 1), k) &&
                 DropElement(i->called_computations()[b]->parameter(0), k, value->elements()[k]);
        });
        if (done) return true;
      }
    }
  }
  if (op->opcode() != Opcode::kCall && op->opcode() != Opcode::kFusion) return false;
  for (int64_t k = op->operand_count(); k-- > 0;) {
    if (op->called_computations()[0]->parameter(k)->user_count() > 0) continue;
    const bool done = s.TryEdit("callee parameter", [&](Case& c) {
      Instruction* i = At(*c.module, at);
      i->called_computations()[0]->RemoveParameter(k);
      i->RemoveOperand(k);
      return true;
    });
    if (done) return true;
  }
  return false;
}

// Inside of a callee, where no values are known: constants.
bool ReplaceByConstant(Session& s, Position at, const Instruction* op) {
  if (op->opcode() == Opcode::kConstant || op->opcode() == Opcode::kParameter ||
      !op->shape().is_array() || !op->shape().is_static()) {
    return false;
  }
  for (double value : {0.0, 1.0}) {
    const bool done = s.TryEdit("constant inside", [&](Case& c) {
      Instruction* i = At(*c.module, at);
      Literal literal = Literal::Full(i->shape().element_type(), i->shape().constant_dims(), value);
      Instruction* constant = i->parent()->AddConstant(std::move(literal));
      if (i->shape().has_layout()) constant->mutable_shape() = i->shape();
      Replace(i, constant);
      return true;
    });
    if (done) return true;
  }
  return false;
}

}  // namespace

bool ReduceComputations(Session& s) {
  return TryEverywhere(s, [&](const Position& at, const std::vector<Instruction*>& all) {
    const Instruction* op = all[at.instruction];
    const bool inside = op->parent() != s.entry();
    return Inline(s, at, op) || InlineAsync(s, at, op) || ShareRegion(s, at, op) || TakeBranch(s, at, op) || UnrollOnce(s, at, op) ||
           DropState(s, at, op) || DropParameter(s, at, op) || (inside && ReplaceByConstant(s, at, op));
  });
}

}  // namespace tenon::lab
