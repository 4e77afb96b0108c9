// Schedule: a topological order of the entry computation, and of every region, that keeps few bytes live.
//
// List scheduling (the source of the heuristic: register-pressure list schedulers): of the instructions that are ready, the one
// that frees most and allocates least, ties by program order, so that a chain stays a chain. Instructions with effects keep their
// order among each other. The better (by peak of live bytes) of this order and program order is kept. What needs nothing but numbers comes
// before everything else: the bias corrections of an optimizer's parameters then don't part the kernels of the parameters, which share a
// launch (runtime/execute/launch_group.h). After fusion; last pass.
#include <algorithm>
#include <queue>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "passes/expand/control_flow.h"
#include "passes/fusion/fused_form.h"
#include "passes/memory/pack_arena.h"
#include "passes/memory/strided_view.h"
#include "passes/pass.h"

namespace tenon {
namespace {

int64_t BytesOf(const Instruction& op, ViewCache& views) {
  if (op.opcode() == Opcode::kParameter || op.opcode() == Opcode::kConstant || op.opcode() == Opcode::kTuple ||
      op.opcode() == Opcode::kGetTupleElement || views.IsView(op)) {
    return 0;
  }
  int64_t bytes = 0;
  for (const Shape& leaf : FlattenShape(op.shape())) {
    if (leaf.is_array()) bytes += TypicalBytes(leaf.byte_size());
  }
  return bytes;
}

class Scheduler {
 public:
  explicit Scheduler(Computation* c) : program_order_(c->PostOrder()) {
    for (size_t i = 0; i < program_order_.size(); ++i) position_[program_order_[i]] = static_cast<int64_t>(i);
    ViewCache views;
    for (Instruction* op : program_order_) bytes_[op] = BytesOf(*op, views);
    // Views and tuple elements hold their operand's memory: uses count for the owner.
    for (Instruction* op : program_order_) {
      const bool alias = op->operand_count() > 0 && (op->opcode() == Opcode::kGetTupleElement || views.IsView(*op));
      owner_[op] = alias ? owner_.at(op->operand(0)) : op;
    }
    AddEffectEdges();
  }

  std::vector<Instruction*> Best() {
    std::vector<Instruction*> order = ListSchedule();
    if (Peak(order) >= Peak(program_order_)) order = program_order_;
    MoveNumbersFirst(&order);
    MoveChecksUp(&order);
    return order;
  }

 private:
  void AddEffectEdges() {
    Instruction* last = nullptr;
    for (Instruction* op : program_order_) {
      if (!op->IsStateful()) continue;
      if (last != nullptr) extra_[last].push_back(op);
      last = op;
    }
  }

  // Ops on a few bytes that depend on nothing larger than those.
  static void MoveNumbersFirst(std::vector<Instruction*>* order) {
    constexpr int64_t kFewBytes = 64;
    absl::flat_hash_set<const Instruction*> first;
    auto moves = [&](const Instruction* op) { return first.contains(op); };
    for (const Instruction* op : *order) {
      const bool given = op->opcode() == Opcode::kParameter || op->opcode() == Opcode::kConstant;
      const bool small = given || (op->shape().byte_size().constant_or(kFewBytes + 1) <= kFewBytes && !op->IsStateful() &&
                                   op != op->parent()->root());
      auto few = [&](const Instruction* o) { return moves(o) && o->shape().byte_size().constant_or(kFewBytes + 1) <= kFewBytes; };
      if (small && absl::c_all_of(op->operands(), few) && absl::c_all_of(op->control_predecessors(), moves)) first.insert(op);
    }
    std::stable_partition(order->begin(), order->end(), moves);
  }

  // Checks as soon as there is what they look at: where none follows, inputs may be written in place (PlanBuffers).
  static void MoveChecksUp(std::vector<Instruction*>* order) {
    absl::flat_hash_map<const Instruction*, size_t> place;
    std::vector<std::vector<Instruction*>> behind(order->size() + 1);  // element 0: before all others
    for (size_t i = 0; i < order->size(); ++i) {
      Instruction* op = (*order)[i];
      place[op] = i + 1;
      size_t at = i + 1;
      if (op->opcode() == Opcode::kFusion && op->HasSideEffect() && op->user_count() == 0) {
        at = 0;
        for (const Instruction* o : op->operands()) at = std::max(at, place.at(o));
        for (const Instruction* o : op->control_predecessors()) at = std::max(at, place.at(o));
      }
      behind[at].push_back(op);
    }
    order->clear();
    for (const std::vector<Instruction*>& ops : behind) {
      order->insert(order->end(), ops.begin(), ops.end());
    }
  }

  std::vector<Instruction*> Owners(const Instruction* op) const {
    std::vector<Instruction*> owners;
    for (Instruction* o : op->operands()) owners.push_back(owner_.at(o));
    std::sort(owners.begin(), owners.end());
    owners.erase(std::unique(owners.begin(), owners.end()), owners.end());
    return owners;
  }

  absl::flat_hash_map<const Instruction*, int64_t> UseCounts() const {
    absl::flat_hash_map<const Instruction*, int64_t> uses;
    for (Instruction* op : program_order_) {
      for (Instruction* owner : Owners(op)) ++uses[owner];
    }
    return uses;
  }

  std::vector<Instruction*> ListSchedule() {
    absl::flat_hash_map<const Instruction*, int64_t> waiting, uses = UseCounts();
    for (Instruction* op : program_order_) {
      for (Instruction* user : op->users()) ++waiting[user];
      for (Instruction* s : op->control_successors()) ++waiting[s];
      for (Instruction* s : extra_[op]) ++waiting[s];
    }
    auto score = [&](Instruction* op) {  // bytes that running it now adds
      int64_t delta = bytes_[op];
      for (Instruction* owner : Owners(op)) {
        if (uses[owner] == 1) delta -= bytes_[owner];
      }
      return delta;
    };
    // Scores only fall while waiting; a stale entry is refreshed when popped.
    using Entry = std::tuple<int64_t, int64_t, Instruction*>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> ready;
    for (Instruction* op : program_order_) {
      if (waiting[op] == 0) ready.push({score(op), position_[op], op});
    }
    std::vector<Instruction*> order;
    while (!ready.empty()) {
      auto [s, p, op] = ready.top();
      ready.pop();
      if (const int64_t now = score(op); now != s) {
        ready.push({now, p, op});
        continue;
      }
      order.push_back(op);
      for (Instruction* owner : Owners(op)) --uses[owner];
      auto release = [&](Instruction* next) {
        if (--waiting[next] == 0) ready.push({score(next), position_[next], next});
      };
      for (Instruction* user : op->users()) release(user);
      for (Instruction* next : op->control_successors()) release(next);
      for (Instruction* next : extra_[op]) release(next);
    }
    return order;
  }

  int64_t Peak(const std::vector<Instruction*>& order) const {
    absl::flat_hash_map<const Instruction*, int64_t> uses = UseCounts();
    int64_t live = 0, peak = 0;
    for (Instruction* op : order) {
      live += bytes_.at(op);
      peak = std::max(peak, live);
      for (Instruction* owner : Owners(op)) {
        if (--uses[owner] == 0) live -= bytes_.at(owner);
      }
    }
    return peak;
  }

  std::vector<Instruction*> program_order_;
  absl::flat_hash_map<const Instruction*, int64_t> position_, bytes_;
  absl::flat_hash_map<const Instruction*, Instruction*> owner_;
  absl::flat_hash_map<const Instruction*, std::vector<Instruction*>> extra_;
};

}  // namespace

absl::StatusOr<bool> Schedule(Module& module, PassContext&) {
  bool changed = !module.is_scheduled;
  for (Computation* c : ControlComputations(module)) {
    std::vector<Instruction*> order = Scheduler(c).Best();
    changed |= order != c->instructions();
    c->set_schedule(order);
  }
  module.is_scheduled = true;
  return changed;
}

}  // namespace tenon
