#include "passes/memory/buffer_plan.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "hlo/check.h"
#include "hlo/own_calls.h"
#include "passes/expand/control_flow.h"
#include "passes/fusion/fused_form.h"
#include "passes/lower/launches.h"
#include "passes/memory/live_sets.h"
#include "passes/memory/moves.h"
#include "passes/memory/pack_arena.h"
#include "passes/memory/value_views.h"
#include "passes/spaces/spaces.h"

namespace tenon {
namespace {

using Kind = Allocation::Kind;

class Planner {
 public:
  Planner(const Module& module, const BufferPlanOptions& options)
      : module_(module),
        options_(options),
        live_(module),
        own_views_(options.views ? std::nullopt : std::make_optional<ValueViews>(module)),
        views_(options.views ? *options.views : *own_views_) {}

  BufferPlan Run() {
    for (const Instruction* op : live_.order()) AllocateOwned(*op);
    for (const Instruction* op : live_.order()) AssignViews(*op);
    for (const Instruction* op : live_.order()) AddReads(*op);
    AddRootReads();
    sets_.Normalize();
    PlaceOutputs();
    UpdateParameters();
    MakeRegionsInPlace();
    if (options_.in_place) ReuseInPlace();
    MakeInitialValuesState();
    Settle();
    OrderAllMoves();
    for (const Instruction* op : live_.order()) AddTemporaries(*op);
    PackArena(&plan_);
    for (const Instruction* op : live_.order()) plan_.positions.emplace(op, live_.position(op));
    return std::move(plan_);
  }

 private:
  const LaunchPlan* PlanOf(const Instruction& op) const {
    if (options_.plans == nullptr) return nullptr;
    const auto plan = options_.plans->find(&op);
    return plan == options_.plans->end() ? nullptr : &plan->second;
  }
  bool IsOwned(const Instruction& op) const {
    const LaunchPlan* plan = PlanOf(op);
    return plan != nullptr && plan->owned;
  }

  // ---- who owns memory ---------------------------------------------------------------------------------------------
  void AllocateOwned(const Instruction& op) {
    const std::vector<Shape> leaves = FlattenShape(op.shape());
    for (int64_t leaf = 0; leaf < static_cast<int64_t>(leaves.size()); ++leaf) {
      const BufferKey key{&op, leaf};
      if (!views_.Has(key) || !(views_.at(key).buffer == key)) continue;
      Allocation a{.bytes = leaves[leaf].byte_size(), .space = options_.spaces ? leaves[leaf].memory_space() : 0};
      if (op.opcode() == Opcode::kParameter) {
        a.kind = Kind::kParameter;
        a.index = FirstLeafOf(op) + leaf;
      } else if (op.opcode() == Opcode::kConstant) {
        a.kind = Kind::kConstant;
        a.constant = &op;
      } else if ((options_.in_slot && options_.in_slot(op, leaf)) || IsOwned(op)) {
        a.kind = Kind::kSlot;
        a.index = slots_++;
      }
      plan_.allocations.push_back(a);
      owners_.push_back(key);
      kept_.push_back(false);
      plan_.of[key] = sets_.Add(live_.Born(op));
    }
  }

  void AssignViews(const Instruction& op) {
    if (op.opcode() == Opcode::kTuple) return;
    const int64_t leaves = LeafCount(op.shape());
    for (int64_t leaf = 0; leaf < leaves; ++leaf) {
      const BufferKey key{&op, leaf};
      if (views_.Has(key)) plan_.of[key] = plan_.of.at(views_.at(key).buffer);
    }
  }

  int32_t BufferOf(BufferKey leaf) const { return sets_.Find(plan_.of.at(views_.at(leaf).buffer)); }

  // ---- when it is read ---------------------------------------------------------------------------------------------
  void Read(BufferKey leaf, const Computation* in, int64_t position) {
    if (!views_.Has(leaf)) return;
    const BufferKey& owner = views_.at(leaf).buffer;
    sets_.Extend(plan_.of.at(owner), live_.ReadAt(*owner.instruction, in, position));
  }
  void ReadAll(const Instruction* value, const Computation* in, int64_t position) {
    const int64_t leaves = LeafCount(value->shape());
    for (int64_t leaf = 0; leaf < leaves; ++leaf) Read({value, leaf}, in, position);
  }

  // State that the loop keeps in a buffer of its own (not where the initial value lies).
  bool OwnState(const Instruction& loop, int64_t leaf) const {
    return views_.Has({&loop, leaf}) && views_.at({&loop, leaf}).buffer == BufferKey{&loop, leaf};
  }

  void AddReads(const Instruction& op) {
    if (op.opcode() == Opcode::kWhile) {
      const int64_t leaves = LeafCount(op.shape());
      for (int64_t leaf = 0; leaf < leaves; ++leaf) {
        if (OwnState(op, leaf)) Read({op.operand(0), leaf}, op.parent(), live_.begin(&op));
      }
    } else if (op.opcode() == Opcode::kConditional) {
      Read({op.operand(0), 0}, op.parent(), live_.begin(&op));
    } else if (!views_.IsAlias(op)) {  // an alias is no step: what reads it reads the memory
      for (const Instruction* o : op.operands()) ReadAll(o, op.parent(), live_.position(&op));
      if (IsFrameworkCall(op)) AddKept(op);
    }
  }

  // A framework's operator may keep an operand, go on with it when it has returned, or make a view of it.
  void AddKept(const Instruction& call) {
    for (const Instruction* o : call.operands()) {
      const int64_t leaves = LeafCount(o->shape());
      for (int64_t leaf = 0; leaf < leaves; ++leaf) {
        if (views_.Has({o, leaf})) kept_[BufferOf({o, leaf})] = true;
      }
    }
  }

  // What is read when a region is done.
  void AddRootReads() {
    for (const Computation* c : ControlComputations(module_)) {
      const LiveRanges::Region& region = live_.region(c);
      const int64_t leaves = LeafCount(c->root()->shape());
      for (int64_t leaf = 0; leaf < leaves; ++leaf) {
        const bool kept = region.caller != nullptr && IsBody(*c, *region.caller) && !OwnState(*region.caller, leaf);
        if (!kept) Read({c->root(), leaf}, c, region.end);
      }
    }
  }

  static bool IsBody(const Computation& c, const Instruction& caller) {
    return caller.opcode() == Opcode::kWhile && caller.attrs().get<Computation*>(Attr::kBody) == &c;
  }

  void PlaceOutputs() {
    if (!options_.direct_output) return;
    const Instruction* root = module_.entry()->root();
    const int64_t leaves = LeafCount(root->shape());
    for (int64_t leaf = 0; leaf < leaves; ++leaf) {
      if (!views_.Has({root, leaf}) || !options_.direct_output(leaf)) continue;
      Allocation& a = plan_.allocations[BufferOf({root, leaf})];
      if (a.kind != Kind::kArena) continue;
      a.kind = Kind::kOutput;
      a.index = leaf;
    }
  }

  // Of the values it reads: for want of memory all may that call a library. Launches and copies of a device may.
  bool MayFail(const Instruction& op) const {
    if (options_.spaces && (SpaceOf(op.shape()) != 0 || (op.operand_count() > 0 && SpaceOf(op.operand(0)->shape()) != 0))) return true;
    switch (op.opcode()) {
      case Opcode::kFusion: return op.HasSideEffect();
      case Opcode::kDot:
      case Opcode::kConvolution: return false;
      case Opcode::kCustomCall: return !options_.is_total || !options_.is_total(op);
      case Opcode::kParameter:
      case Opcode::kConstant:
      case Opcode::kTuple:
      case Opcode::kGetTupleElement:
      case Opcode::kCopy:
      case Opcode::kBitcast:
      case Opcode::kReshape:
      case Opcode::kTranspose:
      case Opcode::kSlice:
      case Opcode::kBroadcast: return false;
      default: return true;
    }
  }

  // Before other buffers are made one: a value that has taken over memory of an older one would bring that one's writes along.
  void UpdateParameters() {
    if (!options_.update) return;
    const Computation& entry = *module_.entry();
    int64_t last_failure = -1;
    for (const Instruction* op : entry.instructions()) {
      if (MayFail(*op)) last_failure = std::max(last_failure, live_.position(op));
    }
    absl::flat_hash_map<int64_t, BufferKey> owner_of;  // by the leaf among all parameters'
    for (const BufferKey& o : owners_) {
      const bool is_input = o.instruction->opcode() == Opcode::kParameter && o.instruction->parent() == &entry;
      if (is_input) owner_of.emplace(FirstLeafOf(*o.instruction) + o.leaf, o);
    }
    const int64_t leaves = LeafCount(entry.root()->shape());
    for (int64_t leaf = 0; leaf < leaves; ++leaf) {
      const BufferKey made{entry.root(), leaf};
      const std::optional<int64_t> parameter = views_.Has(made) ? options_.update(leaf) : std::nullopt;
      if (!parameter) continue;
      const auto old = owner_of.find(*parameter);
      if (old != owner_of.end()) TryUpdate(made, old->second, *parameter, last_failure);
    }
  }

  void TryUpdate(BufferKey made, BufferKey old, int64_t parameter, int64_t last_failure) {
    const int32_t into = BufferOf(old), from = BufferOf(made);
    const BufferKey owner = views_.at(made).buffer;
    if (plan_.allocations[from].kind != Kind::kArena || plan_.allocations[into].buffers != 1 || !SamePlaces(made, old)) return;
    if (plan_.allocations[into].space != 0) return;
    if (owner.instruction->parent() != module_.entry()) return;
    // A user's operator that changes an input has done so when something fails later, in the caller's program too.
    const bool writes = !WrittenOperands(*owner.instruction).empty();
    if (!writes && (owner.instruction->opcode() != Opcode::kFusion || live_.position(owner.instruction) <= last_failure)) return;
    if (!MergeIfApart(into, from)) return;
    plan_.updates.emplace_back(owner, parameter);
  }

  // ---- one buffer for several values --------------------------------------------------------------------------------
  // The moves at the end of a region, without those of values that are in place.
  std::vector<BufferMove> FinalMoves(const Computation& c) const {
    std::vector<BufferMove> moves;
    const Instruction* caller = live_.region(&c).caller;
    if (caller == nullptr || (caller->opcode() == Opcode::kWhile && !IsBody(c, *caller))) return moves;
    const int64_t leaves = LeafCount(caller->shape());
    for (int64_t leaf = 0; leaf < leaves; ++leaf) {
      if (OwnState(*caller, leaf)) AddMove({c.root(), leaf}, {caller, leaf}, &moves);
    }
    return moves;
  }

  std::vector<BufferMove> InitialMoves(const Instruction& loop) const {
    std::vector<BufferMove> moves;
    const int64_t leaves = LeafCount(loop.shape());
    for (int64_t leaf = 0; leaf < leaves; ++leaf) {
      if (OwnState(loop, leaf)) AddMove({loop.operand(0), leaf}, {&loop, leaf}, &moves);
    }
    return moves;
  }

  void AddMove(BufferKey from, BufferKey to, std::vector<BufferMove>* moves) const {
    if (BufferOf(from) != BufferOf(to) || !SamePlaces(from, to)) moves->push_back({.from = from, .to = to});
  }

  // `from` is the whole of its buffer, in the strides that the whole of `to`'s has.
  bool SamePlaces(BufferKey from, BufferKey to) const {
    if (!views_.IsWhole(from)) return false;
    const StridedView &a = views_.at(from), &b = views_.at(to);
    for (size_t d = 0; d < a.dims.size(); ++d) {
      if (!KnownOne(a.dims[d]) && !KnownEqual(a.strides[d], b.strides[d])) return false;
    }
    return true;
  }

  void MergeMoves(const std::vector<BufferMove>& moves) {
    for (const BufferMove& move : moves) {
      if (SamePlaces(move.from, move.to)) TryMerge(BufferOf(move.to), BufferOf(move.from));
    }
  }

  // New state made where the old one lies, results of branches where the conditional's will be. Inner regions first: they run most.
  void MakeRegionsInPlace() {
    const std::vector<Computation*> regions = ControlComputations(module_);
    for (auto c = regions.rbegin(); c != regions.rend(); ++c) MergeMoves(FinalMoves(**c));
  }

  void MakeInitialValuesState() {
    for (const Instruction* op : live_.order()) {
      if (op->opcode() == Opcode::kWhile) MergeMoves(InitialMoves(*op));
    }
  }

  bool TryMerge(int32_t into, int32_t from) {
    Allocation &a = plan_.allocations[into], &b = plan_.allocations[from];
    const auto ours = [](const Allocation& x) { return x.kind == Kind::kArena || x.kind == Kind::kOutput; };
    if (into == from || !ours(a) || !ours(b) || (a.kind == Kind::kOutput && b.kind == Kind::kOutput)) return false;
    return MergeIfApart(into, from);
  }

  bool MergeIfApart(int32_t into, int32_t from) {
    Allocation &a = plan_.allocations[into], &b = plan_.allocations[from];
    if (!KnownEqual(a.bytes, b.bytes) || a.space != b.space) return false;
    auto may_take_over = [this, into, from](int32_t dying, int32_t born, int64_t at) {
      return live_.position(owners_[born].instruction) == at && MayTakeOver(dying, born, into, from);
    };
    if (!sets_.CanMerge(into, from, may_take_over)) return false;
    sets_.Merge(into, from);
    kept_[into] = kept_[into] || kept_[from];
    if (b.kind != Kind::kArena) {
      a.kind = b.kind;
      a.index = b.index;
    }
    a.buffers += b.buffers;
    return true;
  }

  // Results of kernels, and of calls that write operands.
  bool MayReuse(const Instruction& op) const {
    return op.opcode() == Opcode::kFusion || (op.opcode() == Opcode::kCustomCall && PlanOf(op) != nullptr);
  }

  // At one fusion the value in `dying` is read for the last time and that in `born` is made: element by element after its read?
  bool MayTakeOver(int32_t dying, int32_t born, int32_t one, int32_t other) const {
    const Instruction& op = *owners_[born].instruction;
    if (!MayReuse(op)) return false;
    int64_t operand = -1, readers = 0;
    for (int64_t i = 0; i < op.operand_count(); ++i) {
      const int32_t buffer = BufferOf({op.operand(i), 0});
      if (buffer != one && buffer != other) continue;
      ++readers;
      operand = i;
    }
    if (readers != 1) return false;  // nobody else reads that memory through another operand
    const BufferKey value{op.operand(operand), 0};
    if (!(views_.at(value).buffer == owners_[dying]) || !views_.IsWhole(value)) return false;
    const LaunchPlan* plan = PlanOf(op);
    return plan != nullptr && plan->MayOverwrite(operand, owners_[born].leaf);
  }

  void ReuseInPlace() {
    for (const Instruction* op : live_.order()) {
      if (!MayReuse(*op)) continue;
      const int64_t results = LeafCount(op->shape());
      for (int64_t leaf = 0; leaf < results; ++leaf) {
        for (int64_t i = 0; i < op->operand_count(); ++i) {
          if (TryInPlace(*op, leaf, i)) break;
        }
      }
    }
  }

  // The slot's tensor keeps its dtype, sizes and strides, so its new value must have them too. What an operator may have kept stays as it
  // is: the executor copies memory of its own for operators, not tensors.
  bool MayTakeSlot(int32_t slot, const Shape& result) const {
    const Instruction& call = *owners_[slot].instruction;
    return IsOwned(call) && !kept_[slot] && call.shape().is_array() && Shape::SameWithLayout(call.shape(), result);
  }

  bool TryInPlace(const Instruction& op, int64_t leaf, int64_t operand) {
    const BufferKey value{op.operand(operand), 0};
    const int32_t from = BufferOf(value), to = BufferOf({&op, leaf});
    const Allocation &a = plan_.allocations[from], &b = plan_.allocations[to];
    if (from == to || !views_.IsWhole(value)) return false;
    if (b.kind == Kind::kOutput) return a.kind == Kind::kArena && MergeIfApart(from, to);  // the operand lies in the output from its start
    if (b.kind != Kind::kArena) return false;
    const bool slot = a.kind == Kind::kSlot && MayTakeSlot(from, FlattenShape(op.shape())[leaf]);
    if (a.kind != Kind::kArena && a.kind != Kind::kOutput && !slot) return false;
    return MergeIfApart(from, to);
  }

  // ---- what came of it -----------------------------------------------------------------------------------------------
  void Settle() {
    for (auto& [leaf, buffer] : plan_.of) buffer = sets_.Find(buffer);
    for (int32_t i = 0; i < static_cast<int32_t>(plan_.allocations.size()); ++i) {
      Allocation& a = plan_.allocations[i];
      const LivePiece hull = sets_.Hull(i);
      a.first = hull.first;
      a.last = hull.last;
      if (hull.first < 0) a.bytes = 0;
    }
    // Memory is theirs while anything may write it: state from the first initial move on, results from the end of a branch.
    for (const Instruction* op : live_.order()) {
      const int64_t leaves = ControlRegions(*op).empty() ? 0 : LeafCount(op->shape());
      for (int64_t leaf = 0; leaf < leaves; ++leaf) {
        if (!OwnState(*op, leaf)) continue;
        Allocation& a = plan_.allocations[plan_.of.at({op, leaf})];
        const int64_t written = op->opcode() == Opcode::kWhile ? live_.begin(op) : live_.region(ControlRegions(*op)[0]).end;
        a.first = std::min(a.first, written);
      }
    }
  }

  void OrderAllMoves() {
    for (const Instruction* op : live_.order()) {
      if (op->opcode() == Opcode::kWhile) Order(InitialMoves(*op), live_.begin(op), &plan_.initial_moves[op]);
      for (const Computation* region : ControlRegions(*op)) {
        Order(FinalMoves(*region), live_.region(region).end, &plan_.final_moves[region]);
      }
    }
  }

  void Order(std::vector<BufferMove> moves, int64_t position, std::vector<BufferMove>* order) {
    auto temporary = [&](const BufferMove& move) {
      const int64_t bytes_of = plan_.of.at(move.to);
      const Allocation& like = plan_.allocations[bytes_of];
      plan_.allocations.push_back({.bytes = like.bytes, .first = position, .last = position, .space = like.space});
      return static_cast<int32_t>(plan_.allocations.size()) - 1;
    };
    auto where = [this](BufferKey leaf) { return plan_.of.at(views_.at(leaf).buffer); };
    *order = OrderMoves(std::move(moves), where, temporary);
  }

  void AddTemporaries(const Instruction& op) {
    const LaunchPlan* plan = PlanOf(op);
    const Launches* launches = plan == nullptr ? nullptr : LaunchesOf(*plan);
    if (launches == nullptr) return;
    const int64_t position = live_.position(&op), space = options_.spaces ? SpaceOf(op.shape()) : 0;
    for (const Dim bytes : launches->temporaries) {
      plan_.temporaries[&op].push_back(static_cast<int32_t>(plan_.allocations.size()));
      plan_.allocations.push_back({.bytes = bytes, .first = position, .last = position, .space = space});
    }
  }

  const Module& module_;
  const BufferPlanOptions& options_;
  LiveRanges live_;
  std::optional<ValueViews> own_views_;
  const ValueViews& views_;
  LiveSets sets_;
  std::vector<bool> kept_;  // by allocation: an operator of the framework reads it
  std::vector<BufferKey> owners_;  // by allocation
  int64_t slots_ = 0;
  BufferPlan plan_;
};

std::string LeafName(BufferKey key) {
  return absl::StrCat(key.instruction->name(), key.leaf > 0 ? absl::StrCat("#", key.leaf) : "");
}

// A leaf of a region's results by the value that it is.
std::string SourceName(BufferKey key) {
  const ValueLeaf source = SourceOfLeaf(key.instruction, key.leaf);
  return LeafName({source.op, source.leaf});
}

// Padded to a column. Not by StrFormat, which ends the process where there is no memory for its result.
std::string Left(std::string text, size_t width) { return text.append(width - std::min(width, text.size()), ' '); }
std::string Right(const std::string& text, size_t width) { return std::string(width - std::min(width, text.size()), ' ') + text; }

std::string MovesText(const std::vector<BufferMove>& moves) {
  std::string text;
  for (const BufferMove& m : moves) {
    absl::StrAppend(&text, text.empty() ? "" : ", ",
                    m.from_temporary >= 0 ? absl::StrCat("@", m.from_temporary) : SourceName(m.from), " -> ",
                    m.to_temporary >= 0 ? absl::StrCat("@", m.to_temporary) : LeafName(m.to));
  }
  return text.empty() ? "none" : text;
}

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
  std::vector<const Instruction*> control;
  for (const auto& [key, a] : values) {
    if (!ControlRegions(*key.instruction).empty() && (control.empty() || control.back() != key.instruction)) {
      control.push_back(key.instruction);
    }
    if (key.instruction->opcode() == Opcode::kGetTupleElement) continue;
    absl::StrAppend(&names[a], names[a].empty() ? "" : " ", LeafName(key));
  }
  for (const auto& [op, of_op] : temporaries) {
    for (size_t k = 0; k < of_op.size(); ++k) names[static_cast<size_t>(of_op[k])] = absl::StrCat(op->name(), "'s temporary ", k);
  }
  auto placed = [this](int64_t space) { return symbolic_arenas.contains(space) ? ", placed in each call, here for typical sizes" : ""; };
  std::string text = absl::StrCat("arena ", arena_bytes, " bytes, live at most ", peak_live_bytes, placed(0), "\n");
  for (const auto& [space, bytes] : device_arenas) {
    absl::StrAppend(&text, "arena in space ", space, " ", bytes, " bytes", placed(space), "\n");
  }
  for (size_t i = 0; i < allocations.size(); ++i) {
    const Allocation& a = allocations[i];
    const std::string index = a.lender >= 0                        ? absl::StrCat("in ", a.lender)
                              : a.kind == Allocation::Kind::kArena ? ""
                                                                   : absl::StrCat("#", a.index);
    absl::StrAppend(&text, Right(absl::StrCat(i), 4), " ", Left(kKinds[static_cast<int>(a.kind)], 9), " ", Left(index, 10), " ");
    absl::StrAppend(&text, Right(absl::StrCat(a.offset), 12), " + ", Left(a.bytes.ToString(), 12), " [", a.first, ", ", a.last, "] ",
                    names[i], a.space == 0 ? "" : absl::StrCat(" in space ", a.space), "\n");
  }
  for (const Instruction* op : control) {
    if (auto it = initial_moves.find(op); it != initial_moves.end()) {
      absl::StrAppend(&text, "before ", op->name(), ": ", MovesText(it->second), "\n");
    }
    for (const Computation* region : ControlRegions(*op)) {
      if (auto it = final_moves.find(region); it != final_moves.end()) {
        absl::StrAppend(&text, "end of ", region->name(), " in ", op->name(), ": ", MovesText(it->second), "\n");
      }
    }
  }
  return text;
}

}  // namespace tenon
