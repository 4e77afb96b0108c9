#include "passes/memory/buffer_plan.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "hlo/check.h"
#include "hlo/plant.h"
#include "passes/fused_form.h"
#include "passes/memory/in_place.h"
#include "passes/memory/strided_view.h"

namespace tenon {
namespace {

constexpr int64_t kAlignment = 64;
constexpr size_t kMaxTwiceSorted = 2000;
Dim AlignUp(Dim bytes) { return CeilDiv(bytes, kAlignment) * kAlignment; }

class Planner {
 public:
  Planner(const Module& module, const BufferPlanOptions& options) : entry_(*module.entry()), options_(options) {
    if (!options_.is_view) options_.is_view = [this](const Instruction& op) { return views_.IsView(op); };
    order_ = entry_.instructions();
    for (size_t i = 0; i < order_.size(); ++i) position_[order_[i]] = static_cast<int64_t>(i);
  }

  BufferPlan Run() {
    for (const Instruction* op : order_) Allocate(*op);
    FindLastUses();
    PlaceOutputs();
    if (options_.in_place) ReuseInPlace();
    PackArena();
    return std::move(plan_);
  }

 private:
  // ---- who owns memory ---------------------------------------------------------------------------------------------
  void Allocate(const Instruction& op) {
    if (op.opcode() == Opcode::kTuple) return;
    if (op.opcode() == Opcode::kGetTupleElement) {
      Assign({&op, 0}, plan_.of.at({op.operand(0), op.tuple_index()}));
      return;
    }
    if (options_.is_view(op)) {
      Assign({&op, 0}, plan_.of.at({op.operand(0), 0}));
      return;
    }
    const std::vector<Shape> leaves = FlattenShape(op.shape());
    for (int64_t leaf = 0; leaf < static_cast<int64_t>(leaves.size()); ++leaf) {
      Allocation a{.bytes = leaves[leaf].is_array() ? leaves[leaf].byte_size() : Dim(0), .first = position_.at(&op),
                   .last = position_.at(&op)};
      if (op.opcode() == Opcode::kParameter) {
        a.kind = Allocation::Kind::kParameter;
        a.index = op.parameter_number();
      } else if (op.opcode() == Opcode::kConstant) {
        a.kind = Allocation::Kind::kConstant;
        a.constant = &op;
      } else if (options_.in_slot && options_.in_slot(op, leaf)) {
        a.kind = Allocation::Kind::kSlot;
        a.index = slots_++;
      }
      plan_.allocations.push_back(a);
      values_.emplace_back();
      Assign({&op, leaf}, static_cast<int32_t>(plan_.allocations.size()) - 1);
    }
  }

  void Assign(BufferKey value, int32_t allocation) {
    plan_.of[value] = allocation;
    values_[allocation].push_back(value);
  }

  void FindLastUses() {
    for (const Instruction* op : order_) {
      if (op->opcode() == Opcode::kGetTupleElement || options_.is_view(*op)) continue;  // no step: what reads it reads the memory
      for (const Instruction* o : op->operands()) {
        ForEachLeaf(*o, [&](int32_t a) { plan_.allocations[a].last = std::max(plan_.allocations[a].last, position_.at(op)); });
      }
    }
    // The root is read after the last step.
    ForEachLeaf(*entry_.root(), [&](int32_t a) { plan_.allocations[a].last = static_cast<int64_t>(order_.size()); });
  }

  void ForEachLeaf(const Instruction& op, const std::function<void(int32_t)>& fn) const {
    if (op.opcode() == Opcode::kTuple) {
      for (const Instruction* o : op.operands()) ForEachLeaf(*o, fn);
      return;
    }
    for (int64_t leaf = 0;; ++leaf) {
      auto it = plan_.of.find({&op, leaf});
      if (it == plan_.of.end()) return;
      fn(it->second);
    }
  }

  void PlaceOutputs() {
    if (!options_.direct_output) return;
    int64_t leaf = 0;
    ForEachLeaf(*entry_.root(), [&](int32_t a) {
      if (options_.direct_output(leaf) && plan_.allocations[a].kind == Allocation::Kind::kArena) {
        plan_.allocations[a].kind = Allocation::Kind::kOutput;
        plan_.allocations[a].index = leaf;
      }
      ++leaf;
    });
  }

  // ---- in place ------------------------------------------------------------------------------------------------------
  void ReuseInPlace() {
    for (const Instruction* op : order_) {
      if (op->opcode() != Opcode::kFusion) continue;
      const Instruction* root = op->fused_computation()->root();
      const int64_t results = root->opcode() == Opcode::kTuple ? root->operand_count() : 1;
      for (int64_t leaf = 0; leaf < results; ++leaf) {
        const Instruction& result = root->opcode() == Opcode::kTuple ? *root->operand(leaf) : *root;
        for (int64_t i = 0; i < op->operand_count(); ++i) {
          if (TryInPlace(*op, leaf, i, result)) break;
        }
      }
    }
  }

  // The slot's tensor keeps its dtype, sizes and strides, so its new value must have them too.
  bool MayTakeSlot(int32_t slot, const Instruction& result) const {
    if (plan_.allocations[slot].kind != Allocation::Kind::kSlot || !options_.exclusive_slot) return false;
    const BufferKey& filled = values_[slot].front();
    if (filled.instruction->opcode() == Opcode::kGetTupleElement || !options_.exclusive_slot(*filled.instruction)) return false;
    return filled.instruction->shape().is_array() && Shape::SameWithLayout(filled.instruction->shape(), result.shape());
  }

  bool TryInPlace(const Instruction& op, int64_t leaf, int64_t operand, const Instruction& result) {
    const Instruction* value = op.operand(operand);
    if (value->opcode() == Opcode::kGetTupleElement ? false : options_.is_view(*value)) return false;
    const int32_t from = plan_.of.at({value, 0}), to = plan_.of.at({&op, leaf});
    Allocation &a = plan_.allocations[from], &b = plan_.allocations[to];
    const int64_t dies = Planted(Plant::kAliasHazard) ? a.last - 1 : a.last;
    if (from == to || (a.last != position_.at(&op) && dies != position_.at(&op)) || !KnownEqual(a.bytes, b.bytes)) return false;
    if (a.kind != Allocation::Kind::kArena && !MayTakeSlot(from, result)) return false;
    if (b.kind != Allocation::Kind::kArena) return false;
    for (int64_t i = 0; i < op.operand_count(); ++i) {  // nobody else reads that memory through another operand
      if (i != operand && plan_.of.at({op.operand(i), 0}) == from) return false;
    }
    if (!MayOverwrite(op, operand, result)) return false;
    for (const BufferKey& value : values_[to]) Assign(value, from);
    values_[to].clear();
    a.last = b.last;
    b.bytes = 0;
    b.first = b.last = -1;
    return true;
  }

  // ---- the arena -----------------------------------------------------------------------------------------------------
  // Best fit by decreasing size into gaps of what is live at the same time (the offset calculation of Pisarchyk & Lee 2020).
  void PackArena() {
    std::vector<int32_t> arena;
    for (int32_t a = 0; a < static_cast<int32_t>(plan_.allocations.size()); ++a) {
      if (plan_.allocations[a].kind == Allocation::Kind::kArena && plan_.allocations[a].first >= 0) arena.push_back(a);
    }
    FindPeak(arena);
    const bool all_constant = std::all_of(arena.begin(), arena.end(), [&](int32_t a) { return plan_.allocations[a].bytes.is_constant(); });
    if (!all_constant) return StackSymbolic(arena);
    // Neither order is always the better: the smaller arena is kept. Many buffers: the first order only.
    std::vector<int64_t> best;
    int64_t best_end = INT64_MAX;
    for (const bool by_birth : {false, true}) {
      SortForPacking(by_birth, &arena);
      const int64_t end = Place(arena);
      if (end < best_end) {
        best_end = end;
        best.clear();
        for (const Allocation& a : plan_.allocations) best.push_back(a.offset.constant());
      }
      if (best_end == AlignUp(plan_.peak_live_bytes).constant() || arena.size() > kMaxTwiceSorted) break;
    }
    for (size_t a = 0; a < best.size(); ++a) plan_.allocations[a].offset = best[a];
    plan_.arena_bytes = arena.empty() ? 0 : best_end;
  }

  // Large before small; or by birth, large before small among those born together.
  void SortForPacking(bool by_birth, std::vector<int32_t>* arena) const {
    auto key = [&](int32_t a) {
      const Allocation& x = plan_.allocations[a];
      return std::tuple(by_birth ? x.first : 0, -x.bytes.constant(), a);
    };
    std::sort(arena->begin(), arena->end(), [&](int32_t x, int32_t y) { return key(x) < key(y); });
  }

  // Offsets in the order given; the arena's size.
  int64_t Place(const std::vector<int32_t>& arena) {
    std::vector<int32_t> placed;  // by offset
    int64_t end = 0;
    for (int32_t a : arena) {
      const int64_t size = AlignUp(plan_.allocations[a].bytes).constant();
      const int64_t offset = BestGap(placed, a, size);
      plan_.allocations[a].offset = offset;
      end = std::max(end, offset + size);
      auto lower = [&](int32_t x, int32_t y) { return plan_.allocations[x].offset.constant() < plan_.allocations[y].offset.constant(); };
      placed.insert(std::upper_bound(placed.begin(), placed.end(), a, lower), a);
    }
    return end;
  }

  int64_t BestGap(const std::vector<int32_t>& placed, int32_t a, int64_t size) const {
    const Allocation& wanted = plan_.allocations[a];
    int64_t best = -1, best_gap = INT64_MAX, cursor = 0;
    for (int32_t p : placed) {
      const Allocation& other = plan_.allocations[p];
      if (other.last < wanted.first || wanted.last < other.first) continue;
      const int64_t gap = other.offset.constant() - cursor;
      if (gap >= size && gap < best_gap) {
        best = cursor;
        best_gap = gap;
      }
      cursor = std::max(cursor, other.offset.constant() + AlignUp(other.bytes).constant());
    }
    return best >= 0 ? best : cursor;
  }

  // Symbolic sizes: one after the other; reuse only between equal sizes whose lives don't meet.
  void StackSymbolic(const std::vector<int32_t>& arena) {
    std::vector<std::vector<int32_t>> shelves;
    for (int32_t a : arena) {
      Allocation& wanted = plan_.allocations[a];
      bool found = false;
      for (std::vector<int32_t>& shelf : shelves) {
        const Allocation& first = plan_.allocations[shelf[0]];
        const bool free = std::all_of(shelf.begin(), shelf.end(), [&](int32_t p) {
          return plan_.allocations[p].last < wanted.first || wanted.last < plan_.allocations[p].first;
        });
        if (!free || !KnownEqual(first.bytes, wanted.bytes)) continue;
        wanted.offset = first.offset;
        shelf.push_back(a);
        found = true;
        break;
      }
      if (found) continue;
      wanted.offset = plan_.arena_bytes;
      plan_.arena_bytes += AlignUp(wanted.bytes);
      shelves.push_back({a});
    }
  }

  void FindPeak(const std::vector<int32_t>& arena) {
    std::vector<int64_t> delta(order_.size() + 2, 0);
    for (int32_t a : arena) {
      const Allocation& x = plan_.allocations[a];
      if (!x.bytes.is_constant()) return;
      delta[x.first] += x.bytes.constant();
      delta[x.last + 1] -= x.bytes.constant();
    }
    int64_t live = 0, peak = 0;
    for (int64_t d : delta) peak = std::max(peak, live += d);
    plan_.peak_live_bytes = peak;
  }

  const Computation& entry_;
  BufferPlanOptions options_;
  std::vector<Instruction*> order_;
  absl::flat_hash_map<const Instruction*, int64_t> position_;
  ViewCache views_;
  std::vector<std::vector<BufferKey>> values_;  // by allocation
  int64_t slots_ = 0;
  BufferPlan plan_;
};

}  // namespace

absl::StatusOr<BufferPlan> PlanBuffers(const Module& module, const BufferPlanOptions& options) {
  if (!module.is_scheduled) return absl::FailedPreconditionError("buffer planning wants a scheduled module");
  return Planner(module, options).Run();
}

std::string BufferPlan::ToString() const {
  static constexpr const char* kKinds[] = {"parameter", "constant", "arena", "output", "slot"};
  std::vector<std::string> names(allocations.size());
  std::vector<std::pair<BufferKey, int32_t>> values(of.begin(), of.end());
  std::sort(values.begin(), values.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.instruction->id(), a.first.leaf) < std::pair(b.first.instruction->id(), b.first.leaf);
  });
  for (const auto& [key, a] : values) {
    if (key.instruction->opcode() == Opcode::kGetTupleElement) continue;
    absl::StrAppend(&names[a], names[a].empty() ? "" : " ", key.instruction->name(), key.leaf > 0 ? absl::StrCat("#", key.leaf) : "");
  }
  std::string text = absl::StrCat("arena ", arena_bytes.ToString(), " bytes, live at most ", peak_live_bytes.ToString(), "\n");
  for (size_t i = 0; i < allocations.size(); ++i) {
    const Allocation& a = allocations[i];
    absl::StrAppend(&text, absl::StrFormat("%4d %-9s %-10s %12s + %-12s [%d, %d] ", i, kKinds[static_cast<int>(a.kind)],
                                           a.kind == Allocation::Kind::kArena ? "" : absl::StrCat("#", a.index),
                                           a.offset.ToString(), a.bytes.ToString(), a.first, a.last),
                    names[i], "\n");
  }
  return text;
}

}  // namespace tenon
