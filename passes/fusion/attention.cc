#include "passes/fusion/attention.h"

#include <algorithm>
#include <cmath>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "hlo/order_free.h"
#include "hlo/own_calls.h"

namespace tenon {
namespace {

constexpr size_t kMostInside = 200;

using Dims = std::vector<int64_t>;

bool IsF32(const Instruction& op) { return op.shape().is_array() && op.shape().element_type() == PrimitiveType::kF32; }
bool IsHalf(const Instruction& op) {
  const PrimitiveType type = op.shape().element_type();
  return type == PrimitiveType::kF16 || type == PrimitiveType::kBF16;
}

// One free and one summed dim on either side; the result is [batch..., free of the first, free of the second].
bool IsBatchedProduct(const Instruction& op) {
  if (op.opcode() != Opcode::kDot || op.operand_count() != 2 || !IsF32(op)) return false;
  if (!IsF32(*op.operand(0)) || !IsF32(*op.operand(1))) return false;
  const size_t batch = op.int_list(Attr::kLhsBatchDims).size();
  if (op.int_list(Attr::kLhsContractingDims).size() != 1 || op.int_list(Attr::kRhsContractingDims).size() != 1) return false;
  return op.operand(0)->shape().rank() == static_cast<int64_t>(batch) + 2 && op.operand(1)->shape().rank() == op.operand(0)->shape().rank();
}

// The weights lie as the softmax made them: rows next to last, summed along the last dim.
bool SumsAlongLast(const Instruction& dot) {
  const int64_t rank = dot.operand(0)->shape().rank();
  const Dims batch = dot.int_list(Attr::kLhsBatchDims);
  for (size_t d = 0; d < batch.size(); ++d) {
    if (batch[d] != static_cast<int64_t>(d)) return false;
  }
  return dot.int_list(Attr::kLhsContractingDims)[0] == rank - 1;
}

// A reshape of nothing but the batch.
bool KeepsMatrices(const Instruction& op) {
  if (op.opcode() != Opcode::kReshape) return false;
  const Shape &from = op.operand(0)->shape(), &to = op.shape();
  if (from.rank() < 2 || to.rank() < 2) return false;
  return KnownEqual(from.dim(from.rank() - 1), to.dim(to.rank() - 1)) && KnownEqual(from.dim(from.rank() - 2), to.dim(to.rank() - 2));
}

// What is spread along the last dim, by dims that are the others in their order; null: something else.
const Instruction* SpreadAlongLast(const Instruction& op) {
  if (op.opcode() != Opcode::kBroadcast || op.operand(0)->shape().rank() != op.shape().rank() - 1) return nullptr;
  const Dims& dims = op.dimensions();
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] != static_cast<int64_t>(d)) return nullptr;
  }
  return op.operand(0);
}

bool IsConstant(const Instruction& op, double value) {
  const Instruction* at = &op;
  while (at->opcode() == Opcode::kBroadcast || at->opcode() == Opcode::kConvert) at = at->operand(0);
  return at->opcode() == Opcode::kConstant && at->shape().rank() == 0 && IsFloat(at->shape().element_type()) &&
         at->literal().GetAsDouble(0) == value;
}

// A reduction of one array along its last dim, by one op.
bool ReducesRows(const Instruction& op, Opcode by) {
  if (op.opcode() != Opcode::kReduce || op.operand_count() != 2) return false;
  return SimpleOp(*op.to_apply()) == by && op.dimensions() == Dims{op.operand(0)->shape().rank() - 1};
}

// `row` without reshapes that add or drop dims of one.
const Instruction& Unshaped(const Instruction& row) {
  const Instruction* at = &row;
  while (at->opcode() == Opcode::kReshape) at = at->operand(0);
  return *at;
}

// Is it whether `x`, of a row, is this number?
bool TellsWhether(const Instruction& op, const Instruction* x, double value) {
  if (op.opcode() != Opcode::kCompare || op.attrs().get<std::string>(Attr::kDirection) != "EQ") return false;
  return &Unshaped(*op.operand(0)) == x && IsConstant(*op.operand(1), value);
}

bool IsByMaximum(const Instruction& shift, const Instruction* maximum) {
  const Instruction& row = Unshaped(shift);
  if (row.opcode() != Opcode::kSelect) return &row == maximum;
  return TellsWhether(Unshaped(*row.operand(0)), maximum, -INFINITY) && &Unshaped(*row.operand(2)) == maximum;
}

class Matcher {
 public:
  explicit Matcher(const Instruction& values) { a_.values = &values; }

  std::optional<Attention> Run() {
    if (!IsBatchedProduct(*a_.values) || !SumsAlongLast(*a_.values)) return std::nullopt;
    if (!a_.values->control_predecessors().empty() || !a_.values->control_successors().empty()) return std::nullopt;
    if (!Softmax() || !Scores() || !Rows() || !Collect()) return std::nullopt;
    return std::move(a_);
  }

 private:
  // From the weights up to the softmax's operand.
  bool Softmax() {
    const Instruction* at = a_.values->operand(0);
    const auto pass = [&] {
      for (;; at = at->operand(0)) {
        if (at->opcode() == Opcode::kConvert && (IsF32(*at) || IsHalf(*at)) && (IsF32(*at->operand(0)) || IsHalf(*at->operand(0)))) {
          a_.rounds |= IsHalf(*at);
        } else if (!KeepsMatrices(*at)) {
          return;
        }
      }
    };
    pass();
    const Instruction* guard = nullptr;
    if (at->opcode() == Opcode::kSelect && IsConstant(*at->operand(1), 0)) {
      guard = SpreadAlongLast(*at->operand(0));
      if (guard == nullptr) return false;
      at = at->operand(2);
      pass();
    }
    if (at->opcode() != Opcode::kDivide || !IsF32(*at)) return false;
    a_.exp = at->operand(0);
    a_.divisor = SpreadAlongLast(*at->operand(1));
    if (a_.divisor == nullptr || a_.exp->opcode() != Opcode::kExponential) return false;
    const Instruction& shifted = *a_.exp->operand(0);
    if (shifted.opcode() != Opcode::kSubtract) return false;
    a_.x = shifted.operand(0);
    a_.shift = SpreadAlongLast(*shifted.operand(1));
    if (a_.shift == nullptr) return false;
    for (const Instruction* user : a_.x->users()) {
      if (ReducesRows(*user, Opcode::kMaximum) && IsConstant(*user->operand(1), -INFINITY)) a_.maximum = user;
    }
    for (const Instruction* user : a_.exp->users()) {
      if (ReducesRows(*user, Opcode::kAdd) && IsConstant(*user->operand(1), 0)) a_.sum = user;
    }
    a_.by_maximum = IsByMaximum(*a_.shift, a_.maximum);
    return a_.maximum != nullptr && a_.sum != nullptr && (guard == nullptr || SetZeros(Unshaped(*guard)));
  }

  // Rows for which the exponentials are 0, however they are found.
  bool SetZeros(const Instruction& guard) {
    const bool all = ReducesRows(guard, Opcode::kAnd) && TellsWhether(*guard.operand(0), a_.x, -INFINITY);
    if (all || TellsWhether(guard, a_.maximum, -INFINITY)) a_.zeros = Attention::Zeros::kNoMaximum;
    else if (TellsWhether(guard, a_.sum, 0)) a_.zeros = Attention::Zeros::kNoSum;
    return a_.zeros != Attention::Zeros::kNone;
  }

  // What rows are shifted and divided by is computed elementwise of these reductions, and of what else there is of a row.
  bool Rows() { return RowsHangOn(*a_.shift, {a_.maximum}) && RowsHangOn(*a_.divisor, {a_.maximum, a_.sum}); }
  bool RowsHangOn(const Instruction& row, const std::vector<const Instruction*>& reductions) {
    bool found = false;
    std::vector<const Instruction*> work = {&row};
    for (size_t i = 0; i < work.size() && i < kMostInside; ++i) {
      const Instruction& op = *work[i];
      if (absl::c_linear_search(reductions, &op)) {
        found = true;
      } else if (IsPointwise(op) || op.opcode() == Opcode::kReshape) {
        work.insert(work.end(), op.operands().begin(), op.operands().end());
      } else if (DependsOnScores(op)) {
        return false;
      }
    }
    return found && work.size() < kMostInside;
  }

  // The one dot that x hangs on, elementwise.
  bool Scores() {
    std::vector<const Instruction*> work = {a_.x};
    absl::flat_hash_set<const Instruction*> seen = {a_.x};
    for (size_t i = 0; i < work.size(); ++i) {
      const Instruction& op = *work[i];
      if (op.opcode() == Opcode::kDot) {
        if (a_.scores != nullptr || !IsBatchedProduct(op)) return false;
        a_.scores = &op;
        continue;
      }
      if (!IsPointwise(op) && !KeepsMatrices(op)) continue;
      if (seen.size() > kMostInside) return false;
      for (const Instruction* o : op.operands()) {
        if (seen.insert(o).second) work.push_back(o);
      }
    }
    if (a_.scores == nullptr || !FindBelow()) return false;
    // No other way: what hangs on the scores does so elementwise.
    for (const Instruction* op : work) {
      if (op != a_.scores && !IsPointwise(*op) && !KeepsMatrices(*op) && DependsOnScores(*op)) return false;
    }
    const Shape &scores = a_.scores->shape(), &x = a_.x->shape();
    if (x.rank() < 2 || !IsF32(*a_.x)) return false;
    return KnownEqual(scores.dim(scores.rank() - 1), x.dim(x.rank() - 1)) && KnownEqual(scores.dim(scores.rank() - 2), x.dim(x.rank() - 2));
  }

  // All that hangs on the scores, short of the result.
  bool FindBelow() {
    std::vector<const Instruction*> work = {a_.scores};
    below_ = {a_.scores};
    for (size_t i = 0; i < work.size(); ++i) {
      if (work.size() > kMostInside) return false;
      for (const Instruction* user : work[i]->users()) {
        if (user != a_.values && below_.insert(user).second) work.push_back(user);
      }
    }
    return !below_.contains(a_.values->operand(1));
  }
  bool DependsOnScores(const Instruction& op) const { return below_.contains(&op); }

  static bool MadeOfNothing(const Instruction& op, int depth = 0) {
    if (op.opcode() == Opcode::kConstant) return UpperBound(op.shape().num_elements()) <= 1;
    if (op.opcode() == Opcode::kIota) return true;
    if (depth > 8 || op.operand_count() == 0 || !(IsPointwise(op) || op.opcode() == Opcode::kBroadcast)) return false;
    return absl::c_all_of(op.operands(), [&](const Instruction* o) { return MadeOfNothing(*o, depth + 1); });
  }

  // Users first.
  bool Collect() {
    const Computation& around = *a_.values->parent();
    absl::flat_hash_set<const Instruction*> inside = {a_.values};
    std::vector<Instruction*> order = around.PostOrder();
    std::reverse(order.begin(), order.end());
    const auto read_inside = [&](const Instruction& op) {
      return &op != around.root() && op.control_successors().empty() && op.control_predecessors().empty() &&
             absl::c_all_of(op.users(), [&](const Instruction* u) { return inside.contains(u); });
    };
    for (Instruction* op : order) {
      if (op == a_.values) {
        a_.inside.push_back(op);
        continue;
      }
      const auto reads = [&](const Instruction* u) { return inside.contains(u); };
      if (!absl::c_any_of(op->users(), reads)) continue;
      const bool depends = DependsOnScores(*op);
      if (depends && !read_inside(*op)) return false;
      const bool of_dot = absl::c_any_of(op->users(), [&](const Instruction* u) {
        return (u == a_.scores || u == a_.values) && (u != a_.values || op == u->operand(1));
      });
      const bool widens = of_dot && op->opcode() == Opcode::kConvert && IsHalf(*op->operand(0));
      const bool spread = !of_dot && op->opcode() == Opcode::kBroadcast && op->control_predecessors().empty();
      const bool own = !of_dot && IsPointwise(*op) && read_inside(*op) && Shape::SameDims(op->shape(), a_.x->shape());
      if (!depends && !widens && !spread && !own && (of_dot || !MadeOfNothing(*op))) continue;
      inside.insert(op);
      a_.inside.push_back(op);
    }
    std::reverse(a_.inside.begin(), a_.inside.end());
    a_.result = const_cast<Instruction*>(a_.values);
    if (a_.values != around.root() && a_.values->user_count() == 1) {
      Instruction* user = a_.values->users().front();
      const bool free = user->control_predecessors().empty() && user->control_successors().empty();
      if (user->opcode() == Opcode::kConvert && free) a_.inside.push_back(a_.result = user);
    }
    return a_.inside.size() <= kMostInside;
  }

  Attention a_;
  absl::flat_hash_set<const Instruction*> below_;
};

}  // namespace

std::optional<Attention> AttentionOf(const Instruction& values) { return Matcher(values).Run(); }

}  // namespace tenon
