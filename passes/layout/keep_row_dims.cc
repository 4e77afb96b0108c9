// KeepRowDims: f(reshape(y), z) => reshape(f(y, reshape(z))) where y follows elementwise from a reduction of its own rows, and the reshape
// merges rows with what lies in them, as group norm's result [n, groups, channels / groups, h w] becomes [n, channels, h, w].
//
// In the dims of the rows f joins the reduction's kernel, which has the row at hand; in the others it is a kernel of its own, which reads
// everything again. All that is moved lies row-major, so the reshapes are views. After the layouts are known, before fuse.
#include <optional>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "hlo/builder.h"
#include "hlo/own_calls.h"
#include "passes/fusion/roles.h"
#include "passes/pass.h"

namespace tenon {
namespace {

bool LiesRowMajor(const Shape& shape) { return shape.is_array() && IsRowMajor(shape); }

// One group of `from`'s dims and `to`'s, [begin, end) of each, of as many elements; the groups of a reshape are side by side.
struct Group {
  int64_t from_begin, from_end, to_begin, to_end;
};
// nullopt: sizes that nobody can compare.
std::optional<std::vector<Group>> GroupsOf(const Shape& from, const Shape& to) {
  std::vector<Group> groups;
  int64_t f = 0, t = 0;
  while (f < from.rank() && t < to.rank()) {
    Group g{f, f + 1, t, t + 1};
    Dim a = from.dim(f++), b = to.dim(t++);
    while (!KnownEqual(a, b)) {
      if (Less(a, b) == Ternary::kYes && f < from.rank()) a *= from.dim(f++);
      else if (Less(b, a) == Ternary::kYes && t < to.rank()) b *= to.dim(t++);
      else return std::nullopt;
    }
    g.from_end = f;
    g.to_end = t;
    groups.push_back(g);
  }
  for (; f < from.rank(); ++f) {
    if (!KnownOne(from.dim(f))) return std::nullopt;
  }
  for (; t < to.rank(); ++t) {
    if (!KnownOne(to.dim(t))) return std::nullopt;
  }
  return groups;
}

class RowDims {
 public:
  explicit RowDims(Computation* computation) : computation_(computation), builder_(computation) {}

  bool Run() {
    bool changed = false;
    for (Instruction* op : computation_->PostOrder()) {
      const Instruction* reduce = MovedRows(*op);
      if (reduce != nullptr && Move(op, *reduce)) changed = true;
      else Follow(op);
    }
    for (Instruction* op : unread_) {
      if (op->user_count() == 0 && op != computation_->root()) computation_->Remove(op);
    }
    return changed;
  }

 private:
  const Shape& DimsOf(const Instruction& reduce) const { return reduce.operand(0)->shape(); }

  // The reduction from which the first operand that does follows.
  const Instruction* Followed(const Instruction& op) const {
    for (const Instruction* o : op.operands()) {
      if (const auto it = follows_.find(o->id()); it != follows_.end()) return it->second;
    }
    return nullptr;
  }

  void Follow(Instruction* op) {
    if (op->opcode() == Opcode::kReduce) {
      if (op->shape().is_array() && KindOfReduce(*op) == ReduceKind::kRow && LiesRowMajor(DimsOf(*op))) follows_[op->id()] = op;
      return;
    }
    const bool passes = IsPointwise(*op) || op->opcode() == Opcode::kBroadcast || op->opcode() == Opcode::kReshape;
    const Instruction* reduce = passes && op->shape().is_array() ? Followed(*op) : nullptr;
    if (reduce == nullptr) return;
    if (op->opcode() == Opcode::kReshape && Shape::SameDims(op->operand(0)->shape(), DimsOf(*reduce))) return;  // MergesRows asks for these
    follows_[op->id()] = reduce;
  }

  // The reduction whose rows `op`, a reshape, merges with what lies in them; nullptr: none.
  const Instruction* MergesRows(const Instruction& op) const {
    if (op.opcode() != Opcode::kReshape || !LiesRowMajor(op.shape())) return nullptr;
    const auto it = follows_.find(op.operand(0)->id());
    if (it == follows_.end() || !LiesRowMajor(op.operand(0)->shape())) return nullptr;
    if (!Shape::SameDims(op.operand(0)->shape(), DimsOf(*it->second))) return nullptr;
    return RoleOf(op.shape(), DomainOfReduce(*it->second)) == RowRole::kNone ? it->second : nullptr;
  }

  // The reduction in whose dims `op` would be computed; nullptr: it stays as it is.
  const Instruction* MovedRows(const Instruction& op) const {
    if (!IsPointwise(op) || op.opcode() == Opcode::kBitcastConvert || op.IsStateful() || !LiesRowMajor(op.shape())) return nullptr;
    if (!op.control_predecessors().empty() || !op.control_successors().empty()) return nullptr;
    const Instruction* reduce = nullptr;
    for (const Instruction* o : op.operands()) {
      if (!LiesRowMajor(o->shape()) || !Shape::SameDims(o->shape(), op.shape())) return nullptr;
      if (reduce == nullptr) reduce = MergesRows(*o);
    }
    return reduce;
  }

  // A broadcast along whole groups of dims is one along those of `rows`: of an operand of `sizes`.
  struct Spread {
    std::vector<Dim> sizes;
    std::vector<int64_t> dimensions;
  };
  // nullopt: only elements, one by one, say where they are there.
  std::optional<Spread> SpreadOf(const Instruction& broadcast, const Shape& rows) const {
    const std::vector<int64_t>& dims = broadcast.dimensions();
    if (!LiesRowMajor(broadcast.operand(0)->shape()) || !absl::c_is_sorted(dims)) return std::nullopt;
    const std::optional<std::vector<Group>> groups = GroupsOf(broadcast.shape(), rows);
    if (!groups) return std::nullopt;
    Spread spread;
    for (const Group& g : *groups) {
      int64_t there = 0, many = 0;
      for (int64_t d = g.from_begin; d < g.from_end; ++d) {
        if (KnownOne(broadcast.shape().dim(d))) continue;
        ++many;
        there += absl::c_linear_search(dims, d);
      }
      if (there != 0 && there != many) return std::nullopt;
      for (int64_t d = g.to_begin; there != 0 && d < g.to_end; ++d) {
        spread.sizes.push_back(rows.dim(d));
        spread.dimensions.push_back(d);
      }
    }
    return spread;
  }

  static bool ComesFrom(const Instruction& o, const Shape& rows) {
    return o.opcode() == Opcode::kReshape && LiesRowMajor(o.operand(0)->shape()) && Shape::SameDims(o.operand(0)->shape(), rows);
  }
  bool CanMove(const Instruction& o, const Shape& rows) const {
    return o.opcode() != Opcode::kBroadcast || SpreadOf(o, rows).has_value();
  }
  // `o` in the dims of `rows`.
  Instruction* InDimsOf(Instruction* o, const Shape& rows) {
    if (ComesFrom(*o, rows)) return o->operand(0);
    Instruction*& moved = moved_[o->id()];
    if (moved != nullptr && Shape::SameDims(moved->shape(), rows)) return moved;
    if (o->opcode() != Opcode::kBroadcast) return moved = RowMajorLike(builder_.Reshape(o, rows.dims()));
    const Spread spread = *SpreadOf(*o, rows);
    Instruction* from = RowMajorLike(builder_.Reshape(o->operand(0), spread.sizes));
    return moved = RowMajorLike(builder_.Broadcast(from, rows.dims(), spread.dimensions));
  }

  Instruction* RowMajorLike(Instruction* op) {
    op->mutable_shape().set_layout(RowMajor(op->shape().rank()));
    return op;
  }

  bool Move(Instruction* op, const Instruction& reduce) {
    const Shape& rows = DimsOf(reduce);
    if (!absl::c_all_of(op->operands(), [&](const Instruction* o) { return CanMove(*o, rows); })) return false;
    builder_.set_metadata(op->metadata());
    std::vector<Instruction*> operands;
    for (Instruction* o : op->operands()) operands.push_back(InDimsOf(o, rows));
    Instruction* inner = RowMajorLike(builder_.Make(op->opcode(), operands, op->attrs(), Shape(op->shape().element_type(), rows.dims())));
    follows_[inner->id()] = &reduce;
    Instruction* result = RowMajorLike(builder_.Reshape(inner, op->shape().dims()));
    std::string name = op->name();
    bool unread = false;
    for (Instruction* user : std::vector<Instruction*>(op->users().begin(), op->users().end())) {
      if (user->opcode() != Opcode::kReshape || !LiesRowMajor(user->shape())) continue;
      if (!Shape::SameDims(user->shape(), rows)) {
        user->ReplaceOperand(0, inner);
        continue;
      }
      user->ReplaceAllUsesWith(inner);
      unread_.push_back(user);
      unread = true;
    }
    computation_->ReplaceAndRemove(op, result);
    inner->set_name(std::move(name));  // it names the kernel
    if (unread) unread_.push_back(result);
    return true;
  }

  Computation* computation_;
  Builder builder_;
  std::vector<Instruction*> unread_;                        // reshapes that nobody may read any more, users first
  absl::flat_hash_map<int64_t, const Instruction*> follows_;  // a value's id: the reduction from whose rows it follows
  absl::flat_hash_map<int64_t, Instruction*> moved_;          // an operand's id: the same in the dims of rows
};

}  // namespace

absl::StatusOr<bool> KeepRowDims(Module& module, PassContext&) {
  bool changed = false;
  for (Computation* c : module.computations()) changed |= RowDims(c).Run();
  return changed;
}

}  // namespace tenon
