// Simplify: applies the rules until none fits. Every rule shrinks a measure (instructions, nesting, cost), so it ends; a bound on
// the number of rewrites guards against a rule that does not.
#include <cmath>
#include <deque>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "passes/simplify/rule.h"

namespace tenon {

const Instruction* SplatConstant(const Instruction* op) {
  if (op->opcode() == Opcode::kBroadcast) op = op->operand(0);
  return op->opcode() == Opcode::kConstant && op->shape().is_scalar() ? op : nullptr;
}

bool IsSplat(const Instruction* op, double value) {
  const Instruction* c = SplatConstant(op);
  if (c == nullptr || IsComplex(c->shape().element_type())) return false;
  const double v = c->literal().GetAsDouble(0);
  return v == value && std::signbit(v) == std::signbit(value);
}

namespace {

constexpr int64_t kRewritesPerInstruction = 16;

// A replacement must have the same dims and type, and where the old one's layout matters, its layout.
bool Fits(const Instruction& op, const Instruction& with) {
  return Shape::Compatible(op.shape(), with.shape()) && (!op.shape().has_layout() || Shape::SameWithLayout(op.shape(), with.shape()));
}

class Simplifier {
 public:
  Simplifier(Computation* c, const PassContext& context) : c_(c), context_(context) {}

  bool Run() {
    for (Instruction* op : c_->PostOrder()) Push(op);
    int64_t budget = kRewritesPerInstruction * (c_->instruction_count() + 16);
    bool changed = false;
    while (!queue_.empty() && budget > 0) {
      Instruction* op = queue_.front();
      queue_.pop_front();
      queued_.erase(op);
      if (!alive_.contains(op)) continue;
      if (RewriteOnce(op)) {
        changed = true;
        --budget;
      }
    }
    return changed;
  }

 private:
  void Push(Instruction* op) {
    alive_.insert(op);
    if (queued_.insert(op).second) queue_.push_back(op);
  }

  bool RewriteOnce(Instruction* op) {
    if (op->users().empty() && op != c_->root()) return false;
    for (absl::Span<const Rule> topic : {ArithmeticRules(), MovementRules(), ConvertRules(), ReductionRules()}) {
      for (const Rule& rule : topic) {
        const int64_t before = c_->instruction_count();
        Builder b(c_);
        b.set_metadata(op->metadata());
        Instruction* with = rule.apply(op, b, context_);
        if (with == nullptr || with == op) {
          if (c_->instruction_count() > before) RemoveMade(before);
          continue;
        }
        const bool made = c_->instruction_count() > before;
        if (made && op->shape().has_layout() && with->shape().is_array() && !with->shape().has_layout()) {
          with->mutable_shape().set_layout(op->shape().minor_to_major());
        }
        if (!Fits(*op, *with)) {
          RemoveDead(with);
          continue;
        }
        context_.Note("simplify", "simplified", *op, std::string(rule.name));
        Replace(op, with);
        return true;
      }
    }
    return false;
  }

  // What a rule made before it refused: the newest instructions, users behind operands.
  void RemoveMade(int64_t before) {
    std::vector<Instruction*> all = c_->instructions();
    for (size_t i = all.size(); i > static_cast<size_t>(before); --i) c_->Remove(all[i - 1]);
  }

  void Replace(Instruction* op, Instruction* with) {
    std::vector<Instruction*> users(op->users().begin(), op->users().end());
    op->ReplaceAllUsesWith(with);
    PushNew(with);
    for (Instruction* user : users) Push(user);
    RemoveDead(op);
  }

  // With the operands that are new too, in the order of a walk that goes down first.
  void PushNew(Instruction* first) {
    std::vector<Instruction*> left = {first};
    while (!left.empty()) {
      Instruction* op = left.back();
      left.pop_back();
      const bool known = alive_.contains(op);
      if (known && op != first) continue;
      Push(op);
      if (!known) left.insert(left.end(), op->operands().rbegin(), op->operands().rend());
    }
  }

  void RemoveDead(Instruction* first) {
    std::vector<Instruction*> dead = {first};
    while (!dead.empty()) {
      Instruction* op = dead.back();
      dead.pop_back();
      if (!op->users().empty() || op == c_->root() || op->opcode() == Opcode::kParameter || op->HasSideEffect()) continue;
      const absl::flat_hash_set<Instruction*> operands(op->operands().begin(), op->operands().end());
      alive_.erase(op);
      queued_.erase(op);
      c_->Remove(op);
      for (Instruction* operand : operands) {  // the last user's removal brings it here, once
        if (operand->users().empty()) dead.push_back(operand);
      }
    }
  }

  Computation* c_;
  const PassContext& context_;
  std::deque<Instruction*> queue_;
  absl::flat_hash_set<const Instruction*> queued_, alive_;
};

}  // namespace

absl::StatusOr<bool> Simplify(Module& module, PassContext& context) {
  bool changed = false;
  for (Computation* c : module.computations()) changed |= Simplifier(c, context).Run();
  return changed;
}

}  // namespace tenon
