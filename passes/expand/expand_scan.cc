// ExpandScan: a scan becomes a while loop over its steps, with the arrays as loop state.
//
// What the backend generates itself (PassContext::can_generate: bodies that work element by element) stays. After inline-calls,
// so that a body is seen as it is; before everything that fuses or plans, which know nothing of scans with other bodies.
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "hlo/builder.h"
#include "passes/pass.h"

namespace tenon {
namespace {

class Expansion {
 public:
  explicit Expansion(Instruction* scan)
      : scan_(scan),
        body_(*scan->to_apply()),
        dim_(scan->dimensions()[0]),
        steps_(scan->operand(0)->shape().dim(dim_)),
        carries_(scan->attrs().get_or<int64_t>(Attr::kNumCarries, scan->operand_count() / 2)),
        inputs_(scan->operand_count() - carries_),
        parts_(FlattenShape(scan->shape())),
        outputs_(static_cast<int64_t>(parts_.size()) - carries_) {}

  Instruction* Run() {
    Builder b(scan_->parent());
    b.set_metadata(scan_->metadata());
    // counter, inputs, carries, outputs
    std::vector<Instruction*> start = {b.ScalarConstantInt(PrimitiveType::kS64, 0)};
    start.insert(start.end(), scan_->operands().begin(), scan_->operands().end());
    for (int64_t k = 0; k < outputs_; ++k) start.push_back(b.Full(parts_[k].element_type(), parts_[k].dims(), 0));
    Instruction* state = b.Tuple(start);
    Instruction* end = state;
    if (!KnownEqual(steps_, 0)) {
      Attributes attrs;
      attrs.set(Attr::kCondition, Condition(state->shape()));
      attrs.set(Attr::kBody, Body(state->shape()));
      end = scan_->parent()->Add(Opcode::kWhile, state->shape(), {state});
      end->mutable_attrs() = std::move(attrs);
      end->metadata() = scan_->metadata();
    }
    std::vector<Instruction*> results;
    for (int64_t k = 0; k < outputs_; ++k) results.push_back(b.GetTupleElement(end, 1 + scan_->operand_count() + k));
    for (int64_t c = 0; c < carries_; ++c) results.push_back(b.GetTupleElement(end, 1 + inputs_ + c));
    return scan_->shape().is_tuple() ? b.Tuple(results) : results[0];
  }

 private:
  Computation* Condition(const Shape& state) {
    Computation* c = scan_->parent()->module()->AddComputation(absl::StrCat(scan_->name(), "_more"));
    Builder b(c);
    Instruction* step = b.GetTupleElement(b.Parameter(0, state), 0);
    c->set_root(b.Compare(step, b.ScalarConstantInt(PrimitiveType::kS64, steps_.constant()), "LT"));
    return c;
  }

  Computation* Body(const Shape& state) {
    Computation* c = scan_->parent()->module()->AddComputation(absl::StrCat(scan_->name(), "_step"));
    Builder b(c);
    b.set_metadata(scan_->metadata());
    Instruction* p = b.Parameter(0, state);
    std::vector<Instruction*> next;
    for (int64_t i = 0; i < static_cast<int64_t>(state.elements().size()); ++i) next.push_back(b.GetTupleElement(p, i));
    Instruction* step = next[0];
    next[0] = b.Binary(Opcode::kAdd, step, b.ScalarConstantInt(PrimitiveType::kS64, 1));
    if (scan_->attrs().get_or<bool>(Attr::kReverse, false))
      step = b.Binary(Opcode::kSubtract, b.ScalarConstantInt(PrimitiveType::kS64, steps_.constant() - 1), step);
    std::vector<Instruction*> args;
    for (int64_t k = 0; k < inputs_; ++k) args.push_back(SliceAt(b, next[1 + k], step));
    for (int64_t i = 0; i < carries_; ++i) args.push_back(next[1 + inputs_ + i]);
    const std::vector<Instruction*> made = Inline(c, args);
    for (int64_t k = 0; k < outputs_; ++k) {
      Instruction*& output = next[1 + scan_->operand_count() + k];
      output = Updated(b, output, made[k], step);
    }
    for (int64_t i = 0; i < carries_; ++i) next[1 + inputs_ + i] = made[outputs_ + i];
    c->set_root(b.Tuple(next));
    return c;
  }

  std::vector<Instruction*> Starts(Builder& b, int64_t rank, Instruction* step) {
    std::vector<Instruction*> starts(rank, nullptr);
    for (int64_t d = 0; d < rank; ++d) starts[d] = d == dim_ ? step : b.ScalarConstantInt(PrimitiveType::kS64, 0);
    return starts;
  }

  Instruction* SliceAt(Builder& b, Instruction* x, Instruction* step) {
    DimVector dims(x->shape().dims().begin(), x->shape().dims().end());
    std::vector<int64_t> sizes = x->shape().constant_dims();
    sizes[dim_] = 1;
    std::vector<Instruction*> operands = {x};
    for (Instruction* s : Starts(b, x->shape().rank(), step)) operands.push_back(s);
    Attributes attrs;
    attrs.set(Attr::kDynamicSliceSizes, sizes);
    Instruction* slice = b.Make(Opcode::kDynamicSlice, operands, std::move(attrs));
    dims.erase(dims.begin() + dim_);
    return b.Reshape(slice, dims);
  }

  Instruction* Updated(Builder& b, Instruction* x, Instruction* element, Instruction* step) {
    DimVector dims(element->shape().dims().begin(), element->shape().dims().end());
    dims.insert(dims.begin() + dim_, Dim(1));
    std::vector<Instruction*> operands = {x, b.Reshape(element, dims)};
    for (Instruction* s : Starts(b, x->shape().rank(), step)) operands.push_back(s);
    return b.Make(Opcode::kDynamicUpdateSlice, operands, Attributes());
  }

  // The body's results on these arguments.
  std::vector<Instruction*> Inline(Computation* c, const std::vector<Instruction*>& args) {
    absl::flat_hash_map<const Instruction*, Instruction*> here;
    for (Instruction* op : body_.PostOrder()) {
      if (op->opcode() == Opcode::kParameter) {
        here[op] = args[op->parameter_number()];
        continue;
      }
      if (op == body_.root() && op->opcode() == Opcode::kTuple) continue;
      std::vector<Instruction*> operands;
      for (Instruction* o : op->operands()) operands.push_back(here.at(o));
      here[op] = c->Add(op->Clone(operands));
    }
    std::vector<Instruction*> results;
    Instruction* root = body_.root();
    if (root->opcode() == Opcode::kTuple) {
      for (Instruction* o : root->operands()) results.push_back(here.at(o));
    } else if (root->shape().is_tuple()) {
      Builder b(c);
      for (int64_t i = 0; i < static_cast<int64_t>(root->shape().elements().size()); ++i)
        results.push_back(b.GetTupleElement(here.at(root), i));
    } else {
      results.push_back(here.at(root));
    }
    return results;
  }

  Instruction* scan_;
  const Computation& body_;
  const int64_t dim_;
  const Dim steps_;
  const int64_t carries_, inputs_;
  const std::vector<Shape> parts_;
  const int64_t outputs_;
};

bool MayExpand(const Instruction& op, const PassContext& context) {
  if (op.opcode() != Opcode::kScan || (context.can_generate && context.can_generate(op))) return false;
  for (const Instruction* o : op.operands()) {
    if (!o->shape().is_static()) return false;
  }
  return op.control_predecessors().empty() && op.control_successors().empty();
}

}  // namespace

absl::StatusOr<bool> ExpandScan(Module& module, PassContext& context) {
  bool changed = false;
  // A scan inside of a scan's body is expanded first: computations come callees first.
  for (Computation* c : module.computations()) {
    for (Instruction* op : c->PostOrder()) {
      if (!MayExpand(*op, context)) continue;
      c->ReplaceAndRemove(op, Expansion(op).Run());
      changed = true;
    }
  }
  if (changed) module.RemoveUnreachableComputations();
  return changed;
}

}  // namespace tenon
