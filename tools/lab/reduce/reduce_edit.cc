#include "tools/lab/reduce/reduce_edit.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "hlo/eval/evaluator.h"
#include "hlo/sizes.h"

namespace tenon::lab {

Case Case::Clone() const { return {module->Clone(), arguments}; }

Position PositionOf(const Instruction* instruction) {
  const std::vector<Computation*> computations = instruction->module()->computations();
  const std::vector<Instruction*> all = instruction->parent()->instructions();
  return {static_cast<size_t>(
              std::find(computations.begin(), computations.end(), instruction->parent()) -
              computations.begin()),
          static_cast<size_t>(std::find(all.begin(), all.end(), instruction) - all.begin())};
}

Instruction* At(const Module& module, Position position) {
  const std::vector<Computation*> computations = module.computations();
  if (position.computation >= computations.size()) return nullptr;
  const std::vector<Instruction*> all = computations[position.computation]->instructions();
  return position.instruction < all.size() ? all[position.instruction] : nullptr;
}

Values ValuesOf(const Case& c) {
  Values values;
  std::vector<Literal> operands;
  std::unique_ptr<Module> numbers;  // of the same instructions by the same names
  if (HasSymbols(*c.module)) {
    const absl::StatusOr<Sizes> sizes = SizesOfArguments(*c.module, c.arguments);
    if (!sizes.ok()) return values;
    absl::StatusOr<std::unique_ptr<Module>> made = WithSizes(*c.module, *sizes);
    if (!made.ok()) return values;
    numbers = *std::move(made);
  }
  const Module& module = numbers != nullptr ? *numbers : *c.module;
  for (const Instruction* op : module.entry()->PostOrder()) {
    if (op->opcode() == Opcode::kParameter) {
      values[op->name()] = c.arguments[op->parameter_number()];
      continue;
    }
    operands.clear();
    for (const Instruction* o : op->operands()) {
      if (auto it = values.find(o->name()); it != values.end()) operands.push_back(it->second);
    }
    if (static_cast<int64_t>(operands.size()) != op->operand_count()) continue;
    absl::StatusOr<Literal> value =
        EvaluateInstruction(*op, operands, {.max_while_iterations = 10000});
    if (value.ok()) values[op->name()] = *std::move(value);
  }
  return values;
}

namespace {

std::optional<Literal> Harmless(const Shape& shape) {
  if (shape.is_tuple()) {
    std::vector<Literal> elements;
    for (const Shape& e : shape.elements()) {
      std::optional<Literal> element = Harmless(e);
      if (!element) return std::nullopt;
      elements.push_back(*std::move(element));
    }
    return Literal::Tuple(std::move(elements));
  }
  if (!shape.is_array() || !shape.is_static()) return std::nullopt;
  return Literal::Full(shape.element_type(), shape.constant_dims(),
                       IsFloat(shape.element_type()) ? 0.5 : 0);
}

}  // namespace

std::optional<Literal> ValueOf(const Instruction* instruction, const Values& values) {
  auto it = values.find(instruction->name());
  return it != values.end() ? std::optional<Literal>(it->second) : Harmless(instruction->shape());
}

Instruction* Materialize(Case* c, const Shape& shape, const Literal& value,
                         const std::string& name) {
  Computation* entry = c->module->entry();
  if (shape.is_array()) {
    c->arguments.push_back(value);
    return entry->AddParameter(static_cast<int64_t>(entry->parameters().size()), shape, name);
  }
  if (!shape.is_tuple()) return nullptr;
  std::vector<Instruction*> elements;
  for (size_t i = 0; i < shape.elements().size(); ++i) {
    elements.push_back(
        Materialize(c, shape.element(static_cast<int64_t>(i)), value.elements()[i], name));
    if (elements.back() == nullptr) return nullptr;
  }
  return entry->Add(Opcode::kTuple, shape, elements, name);
}

std::vector<Instruction*> Outputs(const Module& module) {
  Instruction* root = module.entry()->root();
  if (root->opcode() != Opcode::kTuple) return {root};
  return {root->operands().begin(), root->operands().end()};
}

namespace {

// Array leaves of a value, taken out of its tuple.
void Leaves(Instruction* op, std::vector<Instruction*>* leaves) {
  if (!op->shape().is_tuple()) return leaves->push_back(op);
  for (size_t k = 0; k < op->shape().elements().size(); ++k) {
    Instruction* element = op->parent()->Add(Opcode::kGetTupleElement,
                                             op->shape().element(static_cast<int64_t>(k)), {op});
    element->mutable_attrs().set(Attr::kTupleIndex, static_cast<int64_t>(k));
    Leaves(element, leaves);
  }
}

void ForgetSignature(Module* module) {
  module->entry_layout.reset();
  module->aliases.clear();
  module->is_scheduled = false;
}

// Removes instructions of the entry that `dies` names and nobody else uses, users first.
void RemoveDead(Case* c, const std::function<bool(Instruction*)>& dies) {
  Computation* entry = c->module->entry();
  std::vector<Instruction*> order = entry->PostOrder();
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    Instruction* op = *it;
    if (op->opcode() == Opcode::kParameter || op == entry->root() || op->user_count() > 0 ||
        !dies(op))
      continue;
    op->ClearControlEdges();
    entry->Remove(op);
  }
}

}  // namespace

void SetOutputs(Case* c, const std::vector<Instruction*>& outputs) {
  Computation* entry = c->module->entry();
  Instruction* old = entry->root();
  std::vector<Instruction*> leaves;
  for (Instruction* o : outputs) Leaves(o, &leaves);
  if (leaves.size() == 1) {
    entry->set_root(leaves[0]);
  } else {
    std::vector<Shape> shapes;
    for (const Instruction* l : leaves) shapes.push_back(l->shape());
    entry->set_root(entry->Add(Opcode::kTuple, Shape::Tuple(std::move(shapes)), leaves));
  }
  ForgetSignature(c->module.get());
  if (old != entry->root() && old->opcode() == Opcode::kTuple && old->user_count() == 0)
    entry->Remove(old);
}

namespace {

std::optional<Case> CutOrThrow(const Case& original, const std::vector<bool>& keep,
                               const Values& values) {
  Case c = original.Clone();
  Computation* entry = c.module->entry();
  const std::vector<Instruction*> all = entry->instructions();
  absl::flat_hash_set<const Instruction*> kept;
  for (size_t i = 0; i < all.size(); ++i) {
    const bool leaf =
        all[i]->opcode() == Opcode::kParameter || all[i]->opcode() == Opcode::kConstant;
    const bool results = all[i] == entry->root() && all[i]->opcode() == Opcode::kTuple;
    if (keep[i] && !leaf && !results) kept.insert(all[i]);
  }
  std::vector<Instruction*> outputs;
  for (Instruction* op : all) {
    if (!kept.contains(op)) continue;
    const bool escapes = std::any_of(op->users().begin(), op->users().end(),
                                     [&](const Instruction* u) { return !kept.contains(u); });
    if (escapes || op == entry->root()) outputs.push_back(op);
  }
  if (outputs.empty()) return std::nullopt;
  for (Instruction* op : all) {
    if (kept.contains(op) || op->opcode() == Opcode::kParameter ||
        op->opcode() == Opcode::kConstant)
      continue;
    std::vector<Instruction*> users;
    for (Instruction* u : op->users()) {
      if (kept.contains(u)) users.push_back(u);
    }
    if (users.empty()) continue;
    const std::optional<Literal> value = ValueOf(op, values);
    Instruction* instead = value ? Materialize(&c, op->shape(), *value, op->name()) : nullptr;
    if (instead == nullptr) return std::nullopt;
    for (Instruction* u : users) {
      for (int64_t k = 0; k < u->operand_count(); ++k) {
        if (u->operand(k) == op) u->ReplaceOperand(k, instead);
      }
    }
  }
  SetOutputs(&c, outputs);
  absl::flat_hash_set<const Instruction*> before(all.begin(), all.end());
  RemoveDead(&c, [&](Instruction* op) { return before.contains(op) && !kept.contains(op); });
  Cleanup(&c);
  return c;
}

}  // namespace

std::optional<Case> Cut(const Case& original, const std::vector<bool>& keep, const Values& values) {
  try {
    return CutOrThrow(original, keep, values);
  } catch (const InternalError&) {  // a graph that cannot be cut like this
    return std::nullopt;
  }
}

void RemoveArgument(Case* c, int64_t parameter) {
  c->module->entry()->RemoveParameter(parameter);
  c->arguments.erase(c->arguments.begin() + parameter);
  ForgetSignature(c->module.get());
}

namespace {

void AddSymbols(const Shape& shape, absl::flat_hash_set<Dim>* symbols) {
  for (const Shape& leaf : FlattenShape(shape)) {
    for (Dim d : leaf.dims()) {
      if (d.expr() != nullptr && d.expr()->kind == DimExpr::Kind::kSymbol) symbols->insert(d);
    }
  }
}

// Whether a symbol could not be read without the parameter. Used by nobody it has its range all the same, and guards.
bool AloneHasSymbol(const Module& module, int64_t parameter) {
  absl::flat_hash_set<Dim> own, others;
  for (const Instruction* p : module.entry()->parameters()) {
    AddSymbols(p->shape(), p->parameter_number() == parameter ? &own : &others);
  }
  return std::any_of(own.begin(), own.end(), [&](Dim d) { return !others.contains(d); });
}

}  // namespace

void Cleanup(Case* c) {
  for (Computation* computation : c->module->computations()) {
    for (Instruction* op : computation->PostOrder()) {
      if (op->opcode() != Opcode::kGetTupleElement || op->operand(0)->opcode() != Opcode::kTuple)
        continue;
      Instruction* element = op->operand(0)->operand(op->tuple_index());
      op->ReplaceAllUsesWith(element);
      op->ClearControlEdges();
      computation->Remove(op);
    }
    std::vector<Instruction*> order = computation->PostOrder();
    for (auto it = order.rbegin(); it != order.rend(); ++it) {
      Instruction* op = *it;
      if (op->user_count() > 0 || op == computation->root() || op->opcode() == Opcode::kParameter ||
          op->HasSideEffect())
        continue;
      op->ClearControlEdges();
      computation->Remove(op);
    }
  }
  Computation* entry = c->module->entry();
  for (int64_t p = static_cast<int64_t>(entry->parameters().size()); p-- > 0;) {
    if (entry->parameter(p)->user_count() == 0 && entry->parameter(p) != entry->root() && !AloneHasSymbol(*c->module, p))
      RemoveArgument(c, p);
  }
  c->module->RemoveUnreachableComputations();
  if (c->module->is_scheduled) return;
  for (Computation* computation : c->module->computations())
    computation->set_schedule(computation->PostOrder());
}

Instruction* InlineInto(Computation* into, const Computation& callee,
                        absl::Span<Instruction* const> arguments) {
  absl::flat_hash_map<const Instruction*, Instruction*> here;
  for (Instruction* op : callee.PostOrder()) {
    if (op->opcode() == Opcode::kParameter) {
      here[op] = arguments[static_cast<size_t>(op->parameter_number())];
      continue;
    }
    std::vector<Instruction*> operands;
    for (Instruction* o : op->operands()) operands.push_back(here.at(o));
    here[op] = into->Add(op->Clone(operands));
  }
  return here.at(callee.root());
}

namespace {

int64_t ElementsOf(const Shape& shape) {
  int64_t n = 0;
  constexpr int64_t kSymbolic = 1 << 20;  // a number is simpler, whatever it is
  for (const Shape& leaf : FlattenShape(shape)) {
    if (leaf.is_array() && leaf.is_static()) n += leaf.num_elements_constant();
    for (Dim d : leaf.dims()) n += d.is_constant() ? 0 : kSymbolic;
  }
  return n;
}

// How far a window, a padding and the like are from doing nothing.
int64_t DetailOf(const AttrValue& value) {
  int64_t n = 1;
  if (const auto* window = std::get_if<Window>(&value)) {
    for (const WindowDim& d : window->dims) {
      n += (d.size != 1) + (d.stride != 1) + (d.padding_low != 0) + (d.padding_high != 0) +
           (d.base_dilation != 1) + (d.window_dilation != 1) + d.reversed;
    }
  } else if (const auto* padding = std::get_if<PaddingConfig>(&value)) {
    for (const PaddingDim& d : padding->dims)
      n += std::abs(d.low) + std::abs(d.high) + std::abs(d.interior);
  } else if (const auto* slice = std::get_if<SliceSpec>(&value)) {
    for (size_t i = 0; i < slice->starts.size(); ++i)
      n += (slice->starts[i] != Dim(0)) + (slice->strides[i] != 1);
  }
  return n;
}

int64_t DetailOf(const Shape& shape) {
  int64_t n = 0;
  for (const Shape& leaf : FlattenShape(shape)) {
    const PrimitiveType t = leaf.element_type();
    n += t != PrimitiveType::kF32 && t != PrimitiveType::kPred && t != PrimitiveType::kS32;
    n += leaf.has_layout() && leaf.minor_to_major() != RowMajor(leaf.rank());
  }
  return n;
}

// 0 for all zeros, 1 for another splat, then by the elements that aren't small whole numbers and
// those that aren't zero.
int64_t DetailOf(const Literal& literal) {
  if (literal.shape().is_tuple()) {
    int64_t n = 0;
    for (const Literal& e : literal.elements()) n += DetailOf(e);
    return n;
  }
  if (IsComplex(literal.type()) || literal.num_elements() == 0 || literal.IsAllEqualTo(0)) return 0;
  if (literal.IsSplat()) return 1;
  int64_t n = 1;
  for (int64_t i = 0; i < literal.num_elements(); ++i) {
    const double v = literal.GetAsDouble(i);
    n += v != 0 ? 1 : 0;
    n += v == static_cast<double>(static_cast<int>(std::clamp(v, -16.0, 16.0))) ? 0 : 1;
  }
  return n;
}

}  // namespace

Size SizeOf(const Case& c) {
  Size size;
  for (const Computation* computation : c.module->computations()) {
    for (const Instruction* op : computation->instructions()) {
      ++size.instructions;
      size.elements += ElementsOf(op->shape());
      size.detail += DetailOf(op->shape());
      if (op->has_literal()) size.detail += DetailOf(op->literal());
      for (const auto& [attr, value] : op->attrs()) size.detail += DetailOf(value);
      size.detail += static_cast<int64_t>(op->attrs().unknown.size()) + !op->metadata().empty();
      size.detail += static_cast<int64_t>(op->control_predecessors().size());
    }
  }
  for (size_t p = 0; p < c.arguments.size(); ++p) {
    size.detail += DetailOf(c.arguments[p]);
    if (!c.module->entry()->parameter(static_cast<int64_t>(p))->shape().is_static()) size.elements += ElementsOf(c.arguments[p].shape());
  }
  size.outputs = static_cast<int64_t>(FlattenShape(c.module->entry()->root()->shape()).size());
  size.detail += static_cast<int64_t>(c.module->attributes.size() + c.module->origin_tables.size() +
                                      c.module->aliases.size()) +
                 c.module->entry_layout.has_value() + c.module->is_scheduled;
  return size;
}

}  // namespace tenon::lab
