#include "passes/fusion/cluster.h"

#include <algorithm>
#include <deque>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "hlo/check.h"
#include "hlo/cost_ops.h"
#include "hlo/own_calls.h"
#include "passes/spaces/spaces.h"
#include "passes/wide_sum.h"

namespace tenon {
namespace {

constexpr int64_t kMaxReachVisits = 4000;
constexpr int64_t kMaxMembers = 800;
constexpr int kDearSlots = 10;  // of an op that is not done again for each element that it is broadcast to
constexpr int kDearScalarSlots = 40;  // of a scalar op, which a kernel does once in front of its loops: less than a launch

// Ops of several results: a reduce, sort, scatter, ... of several operands, a topk.
bool MakesTuple(const Instruction& op) {
  return op.shape().is_tuple() && (op.family() == Family::kReduction || op.family() == Family::kIndexing);
}
bool IsElementOfOp(const Instruction& op) { return op.opcode() == Opcode::kGetTupleElement && MakesTuple(*op.operand(0)); }
// What makes the value.
const Instruction& MakerOf(const Instruction& op) { return IsElementOfOp(op) ? *op.operand(0) : op; }
// Every element of a tuple is taken out by a get-tuple-element.
bool AllElementsUsed(const Instruction& op) {
  absl::flat_hash_set<int64_t> used;
  for (const Instruction* user : op.users()) used.insert(user->tuple_index());
  return used.size() == op.shape().elements().size();
}
bool IsCheck(const Instruction& op) {
  return op.opcode() == Opcode::kCustomCall && op.custom_call_target() == "tenon.check";
}
Dim ElementsOf(const Shape& shape) {
  return shape.is_tuple() ? shape.element(0).num_elements() : shape.num_elements();
}
const Shape& ArrayShape(const Instruction& op) { return op.shape().is_tuple() ? op.shape().element(0) : op.shape(); }

bool IsSort(Opcode opcode) { return opcode == Opcode::kSort || opcode == Opcode::kTopk; }

// Ops that fill their kernel alone: they join nobody.
bool Alone(Opcode opcode) {
  return opcode == Opcode::kScatter || opcode == Opcode::kReduceWindow || opcode == Opcode::kSelectAndScatter ||
         opcode == Opcode::kDynamicUpdateSlice || opcode == Opcode::kScan || IsSort(opcode) ||
         InfoOf(opcode).family == Family::kContraction;
}

// What may join such an op as producer: constants, and what a sort or scan reads once per element of its own.
bool FeedsAlone(const Instruction& op, const Instruction& consumer) {
  if (op.opcode() == Opcode::kConstant) return true;
  if (!IsSort(consumer.opcode()) && consumer.opcode() != Opcode::kScan) return false;
  if (op.opcode() == Opcode::kIota || op.opcode() == Opcode::kBroadcast) return true;
  return IsPointwise(op) && Shape::SameDims(op.shape(), consumer.operand(0)->shape());
}

// The results of a scan that have an element for each step come first.
int64_t StackedResults(const Instruction& scan) {
  const int64_t parts = scan.shape().is_tuple() ? static_cast<int64_t>(scan.shape().elements().size()) : 1;
  return parts - scan.attrs().get_or<int64_t>(Attr::kNumCarries, scan.operand_count() / 2);
}

// The op that fills the kernel alone, but for what feeds it and what is done elementwise with a scan's elements; null: none does.
const Instruction* AloneIn(const Cluster& c) {
  if (const Instruction& maker = MakerOf(*c.lead); Alone(maker.opcode())) return &maker;
  if (c.form != FusionForm::kScan) return nullptr;
  return *absl::c_find_if(c.members, [](const Instruction* m) { return m->opcode() == Opcode::kScan; });
}

// A scatter needs memory for all of its results, even for one that nobody reads: its fusion gives the tuple.
bool WholeTuple(const Instruction& op) {
  return op.opcode() == Opcode::kScatter && op.shape().is_tuple() && !AllElementsUsed(op);
}

bool IsProduct(const Instruction& op) { return op.opcode() == Opcode::kDot || op.opcode() == Opcode::kConvolution; }

bool OnDevice(const Shape& shape, const PassContext& context) { return context.spaces != nullptr && SpaceOf(shape) != 0; }

// f16 or bf16 to f32, as expand-contractions widens operands.
bool WidensHalves(const Instruction& op) {
  if (op.opcode() != Opcode::kConvert || op.shape().element_type() != PrimitiveType::kF32) return false;
  const PrimitiveType from = op.operand(0)->shape().element_type();
  return from == PrimitiveType::kF16 || from == PrimitiveType::kBF16;
}
// May it be done in the kernels of the contractions that read it? On a device, whose kernels read operands of half types as they lie.
bool WidensInProducts(const Instruction& op, const PassContext& context) {
  return OnDevice(op.shape(), context) && WidensHalves(op) &&
         absl::c_any_of(op.users(), [](const Instruction* u) { return IsProduct(*u); });
}

// What an epilogue may consist of: done where the sum is, with operands that lie as the sums do or are the same for many.
bool InEpilogue(const Instruction& op) {
  return IsPointwise(op) || op.opcode() == Opcode::kBroadcast || op.opcode() == Opcode::kConstant || op.opcode() == Opcode::kIota ||
         op.opcode() == Opcode::kReshape;
}

bool SamePlaces(const Shape& a, const Shape& b) {
  auto places = [](const Shape& s) { return Shape(PrimitiveType::kPred, s.dims(), s.minor_to_major()); };
  return Shape::SameWithLayout(places(a), places(b));
}

// A gather of whole rows by a table: where a row is read from is known outside of the loop along it, whatever moves the rows.
bool TakesRows(const Instruction& op) {
  if (op.opcode() != Opcode::kGather || op.operand(1)->shape().rank() != 1) return false;
  const std::vector<int64_t> offset = op.int_list(Attr::kOffsetDims), collapsed = op.int_list(Attr::kCollapsedSliceDims);
  if (collapsed.size() != 1 || !op.shape().has_layout() || op.shape().rank() < 2) return false;
  return absl::c_linear_search(offset, op.shape().minor_to_major()[0]);
}

// Whether the loop along the fastest dim of `result`, whose dims are those of the gather, runs along the rows that it takes: their elements
// are then vectors wherever they are wanted, also below arithmetic that is taken by index itself.
bool KeepsRowsWhole(const Instruction& gather, const Shape& result) {
  return result.has_layout() && result.rank() == gather.shape().rank() &&
         result.minor_to_major()[0] == gather.shape().minor_to_major()[0];
}

// So many fewer than `work` that a kernel of their own is nothing beside what it saves there.
bool AreFew(Dim elements, Dim work) {
  constexpr int64_t kTimes = 16, kMost = int64_t{1} << 50;
  return std::min(Typical(elements), kMost) * kTimes < Typical(work);
}

bool IsDear(const Instruction& op) {
  if (!IsPointwise(op)) return false;
  const bool scalar = op.shape().is_array() && KnownOne(op.shape().num_elements());
  return OpCostOf(op.opcode()).slots >= (scalar ? kDearScalarSlots : kDearSlots);
}

// A number that follows from sizes and constants alone: each kernel that wants it makes it, in front of its loops.
bool IsNumberOfSizes(const Instruction& op, int depth = 8) {
  if (op.opcode() == Opcode::kConstant || op.opcode() == Opcode::kIota) return true;
  const bool moves = op.opcode() == Opcode::kSlice || op.opcode() == Opcode::kReshape;
  if (depth == 0 || !op.shape().is_array() || !KnownOne(op.shape().num_elements()) || !(moves || IsPointwise(op))) return false;
  return !IsDear(op) && absl::c_all_of(op.operands(), [&](const Instruction* o) { return IsNumberOfSizes(*o, depth - 1); });
}

// Computed places that a gather reads at: a table in memory, as a rule.
bool IsTable(const Instruction& op) {
  return IsPointwise(op) && absl::c_any_of(op.users(), [&](const Instruction* u) {
           return u->opcode() == Opcode::kGather && u->operand(1) == &op;
         });
}

// Ops that read at places which other values say, or of one operand here and of another there.
bool IsIndexing(const Instruction& op) {
  return op.opcode() == Opcode::kGather || op.opcode() == Opcode::kDynamicSlice || op.opcode() == Opcode::kConcatenate;
}

int64_t LastDim(const Instruction& op) { return op.shape().rank() - 1; }

// Whether elements side by side along the last dim of a gather or dynamic-slice lie so in its operand: a loop along them has one address,
// which is known outside of it.
bool ReadsRuns(const Instruction& op) {
  const Shape& from = op.operand(0)->shape();
  if (op.shape().rank() == 0 || !from.has_layout()) return false;
  const int64_t fastest = from.minor_to_major()[0];
  if (op.opcode() == Opcode::kDynamicSlice) return fastest == LastDim(op);
  const std::vector<int64_t> collapsed = op.int_list(Attr::kCollapsedSliceDims), batching = op.int_list(Attr::kOperandBatchingDims);
  int64_t last = from.rank() - 1;  // of the operand's dims that are windows
  while (absl::c_linear_search(collapsed, last) || absl::c_linear_search(batching, last)) --last;
  return last == fastest && absl::c_linear_search(op.int_list(Attr::kOffsetDims), LastDim(op));
}

bool LoopLike(FusionForm form) {
  return form == FusionForm::kLoop || form == FusionForm::kTranspose || form == FusionForm::kConcat || form == FusionForm::kGather;
}

}  // namespace

ReduceKind KindOfReduce(const Instruction& reduce, const PassContext& context) {
  return context.any_order && !context.any_order(reduce) ? ReduceKind::kGeneral : KindOfReduce(reduce);
}

FusionForm SingleForm(const Instruction& op, const PassContext& context) {
  switch (op.opcode()) {
    case Opcode::kReduce:
      switch (KindOfReduce(op, context)) {
        case ReduceKind::kRow: return FusionForm::kRow;
        case ReduceKind::kColumn: return FusionForm::kColumn;
        case ReduceKind::kGeneral: return FusionForm::kReduce;
      }
      return FusionForm::kReduce;
    case Opcode::kGather:
    case Opcode::kDynamicSlice: return FusionForm::kGather;
    case Opcode::kScatter:
    case Opcode::kSelectAndScatter:
    case Opcode::kDynamicUpdateSlice: return FusionForm::kScatter;
    case Opcode::kSort:
    case Opcode::kTopk: return FusionForm::kSort;
    case Opcode::kScan: return FusionForm::kScan;
    case Opcode::kReduceWindow: return FusionForm::kWindow;
    case Opcode::kDot:
    case Opcode::kConvolution: return FusionForm::kContraction;
    case Opcode::kConcatenate: return FusionForm::kConcat;
    case Opcode::kCopy:
    case Opcode::kTranspose: return FusionForm::kTranspose;
    default: return FusionForm::kLoop;
  }
}

namespace {

// Does `op` hang, elementwise, on a reduce over rows that would make `work` elements a row kernel, in which op is done once a row?
bool BringsRowReduce(const Instruction& op, Dim work, const PassContext& context) {
  const Instruction* at = &op;
  for (int steps = 0; steps < 16; ++steps) {
    if (at->opcode() == Opcode::kReduce) {
      if (KindOfReduce(*at, context) != ReduceKind::kRow) return false;
      const RowDomain domain = DomainOfReduce(*at);
      return KnownEqual(domain.outer, op.shape().num_elements()) && KnownEqual(domain.outer * domain.inner, work);
    }
    const Instruction* next = nullptr;
    for (const Instruction* o : at->operands()) {  // the one operand that is not a constant
      const bool constant = o->opcode() == Opcode::kConstant ||
                            (o->opcode() == Opcode::kBroadcast && o->operand(0)->opcode() == Opcode::kConstant);
      if (!constant && next == nullptr) next = o;
    }
    if (next == nullptr || !(IsPointwise(*at) || at->opcode() == Opcode::kReshape)) return false;
    at = next;
  }
  return false;
}

}  // namespace

// Does `op` merge dims of which one only repeats? Which element it takes, divisions tell. On a device a launch costs more than those, so
// nobody asks there.
bool Clusters::FindsPlaces(const Instruction& op) const {
  if (op.opcode() != Opcode::kReshape || OnDevice(op.shape(), context_)) return false;
  const Instruction* repeated = op.operand(0);
  if (repeated->opcode() == Opcode::kCopy) repeated = repeated->operand(0);  // insert-copies
  return repeated->opcode() == Opcode::kBroadcast && !KnownOne(repeated->operand(0)->shape().num_elements());
}

// Does `op` merge the rows of a copy (insert-copies) with another dim, so that whoever reads it along the merged dim would find each
// element by divisions, and gather them? In its own dims the copy moves rows.
bool Clusters::MergesRows(const Instruction& op, const Cluster& c) const {
  if (op.opcode() != Opcode::kReshape || op.operand(0)->opcode() != Opcode::kCopy) return false;
  const Instruction& copy = *op.operand(0);
  if (copy.operand(0)->opcode() != Opcode::kTranspose || OnDevice(op.shape(), context_)) return false;
  if (op.shape().rank() == 0 || KnownEqual(op.shape().dim(LastDim(op)), copy.shape().dim(LastDim(copy)))) return false;
  return !LoopLike(c.form) || !AreFew(ElementsOf(ArrayShape(*c.lead)), op.shape().num_elements());
}

// Does `op`, of few elements, hang elementwise on something dear of as many elements, which will be computed once in a kernel of
// its own? (Batch norm's scale * rsqrt(variance): per channel, not per pixel.)
bool Clusters::FedByDear(const Instruction& op, Dim work) const {
  if (!AreFew(op.shape().num_elements(), work) || IsDear(op) || BringsRowReduce(op, work, context_)) return false;
  std::vector<const Instruction*> queue = {&op};
  for (size_t i = 0; i < queue.size() && i < 16; ++i) {
    for (const Instruction* o : queue[i]->operands()) {
      if (!KnownEqual(o->shape().is_array() ? o->shape().num_elements() : Dim(-1), op.shape().num_elements())) continue;
      const bool dear = (IsDear(*o) || FindsPlaces(*o) || IsTable(*o)) && Fusible(*o);
      if (dear && !BringsRowReduce(*o, work, context_)) return true;
      if (IsPointwise(*o) || o->opcode() == Opcode::kReshape) queue.push_back(o);
    }
  }
  return false;
}

Clusters::Clusters(Computation* computation, PassContext& context) : computation_(computation), context_(context) {}

void Clusters::Form() {
  std::vector<Instruction*> order = computation_->PostOrder();
  for (auto it = order.rbegin(); it != order.rend(); ++it) Place(*it);
  MergeSiblings();
  MergeLoops();
  MergeBehindRows();
}

absl::Span<Cluster* const> Clusters::homes(const Instruction* op) const {
  auto it = homes_.find(op);
  return it == homes_.end() ? absl::Span<Cluster* const>() : absl::MakeConstSpan(it->second);
}

bool Clusters::Fusible(const Instruction& op) const {
  if (context_.spaces != nullptr && ChangesSpace(op)) return false;  // what it joins would be of two targets
  switch (op.family()) {
    case Family::kElementwise:
    case Family::kMovement:
    case Family::kReduction:
    case Family::kIndexing: break;
    case Family::kContraction:  // those that a library takes stay outside
      if (!context_.can_generate) return false;
      break;
    default:
      if (!IsCheck(op) && !IsPointwiseCall(op)) return false;
  }
  if (op.opcode() == Opcode::kConstant) return UpperBound(op.shape().num_elements()) <= 16;
  if (!op.control_predecessors().empty() || !op.control_successors().empty()) return false;
  if (MakesTuple(op)) {  // a whole tuple is nothing that a kernel could give to others
    if (&op == computation_->root() || op.users().empty()) return false;
    if (!absl::c_all_of(op.users(), [](const Instruction* u) { return u->opcode() == Opcode::kGetTupleElement; })) return false;
  }
  return !context_.can_generate || context_.can_generate(op);
}

bool Clusters::Cheap(const Instruction& op) const {
  if (op.opcode() == Opcode::kConstant || op.opcode() == Opcode::kIota || op.opcode() == Opcode::kBroadcast) return true;
  if (IsPointwise(op) && IsNumberOfSizes(op)) return true;
  if (op.opcode() == Opcode::kConvert) {
    return ByteWidth(op.operand(0)->shape().element_type()) < ByteWidth(op.shape().element_type()) &&
           (op.operand(0)->opcode() == Opcode::kParameter || WidensInProducts(op, context_));
  }
  return views_.IsView(op);
}

// Rough instructions per vector of results; what fusion's size limit counts.
int64_t Clusters::CostOf(const Instruction& op) const {
  switch (op.opcode()) {
    case Opcode::kReduce: return 8;
    case Opcode::kParameter:
    case Opcode::kConstant:
    case Opcode::kBroadcast:
    case Opcode::kReshape:
    case Opcode::kGetTupleElement: return 0;
    default: return IsPointwise(op) ? OpCostOf(op.opcode()).instructions : 3;
  }
}

Clusters::Needs Clusters::NeedsOf(const Instruction* op) const {
  Needs needs;
  needs.outside = op == computation_->root();
  for (const Instruction* user : op->users()) {
    if (IsElementOfOp(*user)) {  // placed together with its reduce
      const Needs inner = NeedsOf(user);
      needs.outside |= inner.outside;
      for (Cluster* c : inner.clusters) {
        if (!absl::c_linear_search(needs.clusters, c)) needs.clusters.push_back(c);
      }
      continue;
    }
    for (Cluster* c : homes(user)) {
      if (!absl::c_linear_search(needs.clusters, c)) needs.clusters.push_back(c);
    }
    needs.outside |= outside_.contains(user);
  }
  return needs;
}

void Clusters::Place(Instruction* op) {
  if (IsElementOfOp(*op) && Fusible(*op->operand(0))) return;
  if (!Fusible(*op)) {
    outside_.insert(op);
    return;
  }
  const Needs needs = NeedsOf(op);
  if (Cheap(*op) && !Alone(op->opcode())) return PlaceCheap(op, needs);
  if (needs.clusters.size() == 1 && !needs.outside && TryJoin(op, needs.clusters[0], /*as_result=*/false)) return;
  for (Cluster* c : needs.clusters) {
    if (needs.clusters.size() == 1 && !needs.outside) break;
    if (TryJoin(op, c, /*as_result=*/true)) return;
  }
  Start(op, needs.outside || !needs.clusters.empty() || op->HasSideEffect());
}

void Clusters::PlaceCheap(Instruction* op, const Needs& needs) {
  bool outside = needs.outside;
  for (Cluster* c : needs.clusters) {
    if (!TryJoin(op, c, /*as_result=*/false)) outside = true;
  }
  if (!outside) return;
  if (op->opcode() == Opcode::kConstant || views_.IsView(*op)) outside_.insert(op);
  else Start(op, /*as_result=*/true);
}

bool Clusters::TryJoin(Instruction* op, Cluster* c, bool as_result) {
  std::string why;
  FusionForm form = c->form;
  if (!CanJoin(op, *c, as_result, &form, &why)) {
    context_.Note("fuse", "not-fused", *op, absl::StrCat("with ", c->lead->name(), ": ", why));
    return false;
  }
  if (as_result && WouldCycle(op, c)) {
    context_.Note("fuse", "not-fused", *op, absl::StrCat("with ", c->lead->name(), ": would make a cycle"));
    return false;
  }
  if (form == FusionForm::kRow && c->form != FusionForm::kRow) c->domain = DomainOfReduce(*op);
  c->form = form;
  Add(op, c, as_result);
  return true;
}

bool Clusters::CanJoin(const Instruction* op, const Cluster& c, bool as_result, FusionForm* form, std::string* why) const {
  if (IsProduct(*op) && IsEpilogueOf(c, *op)) {
    *form = FusionForm::kContraction;
    return true;
  }
  const bool scans_there = op->opcode() == Opcode::kScan && OnDevice(ArrayShape(*op), context_);
  if (scans_there && c.cost <= context_.target.max_fusion_instructions && IsEpilogueOf(c, *op)) {
    *form = FusionForm::kScan;  // on the CPU what follows a scan goes by vectors, as its own steps do not
    return true;
  }
  if (op->opcode() == Opcode::kReduceWindow && op->shape().is_array() && IsEpilogueOf(c, *op)) {
    *form = FusionForm::kWindow;
    return true;
  }
  auto takes = [&](const Instruction* u) {
    return (IsProduct(*u) || u->opcode() == Opcode::kReduceWindow) && c.contains.contains(u);
  };
  if (!as_result && WidensInProducts(*op, context_) && absl::c_any_of(op->users(), takes)) return true;
  if (!as_result && WidensWhatIsPacked(*op, c)) return true;
  if (Alone(op->opcode()) || IsCheck(*op)) {
    *why = "needs a kernel of its own";
    return false;
  }
  if (const Instruction* alone = AloneIn(c); alone != nullptr && !FeedsAlone(*op, *alone) && !FeedsUpdates(*op, *alone, c)) {
    *why = absl::StrCat(std::string(OpcodeName(alone->opcode())), " takes its operands from memory");
    return false;
  }
  if (c.form == FusionForm::kContraction || (c.form == FusionForm::kWindow && op->opcode() != Opcode::kConstant)) {
    const bool prologue = absl::c_any_of(op->users(), [&](const Instruction* u) {
      return takes(u) ||
             (c.contains.contains(u) && ((WidensHalves(*u) && absl::c_any_of(u->users(), takes)) || WidensWhatIsPacked(*u, c)));
    });
    if (prologue || !InEpilogue(*op)) {
      *why = prologue ? absl::StrCat("a ", std::string(FusionFormName(c.form)), " takes its operands from memory")
                      : "no part of an epilogue";
      return false;
    }
  }
  if (!as_result && MergesRows(*op, c)) {
    *why = "its rows are copied whole in its operand's dims";
    return false;
  }
  const bool looping = LoopLike(c.form) || c.form == FusionForm::kContraction;
  const bool loop = looping && op->opcode() != Opcode::kReduce;
  const int64_t most = loop ? context_.target.max_loop_instructions : context_.target.max_fusion_instructions;
  if (c.cost + CostOf(*op) > most && CostOf(*op) > 0) {
    *why = absl::StrCat("the kernel would have more than ", most, " instructions");
    return false;
  }
  if (static_cast<int64_t>(c.members.size()) >= kMaxMembers) {  // those that cost nothing count too
    *why = absl::StrCat("the fusion would have more than ", kMaxMembers, " members");
    return false;
  }
  if (op->opcode() == Opcode::kReduce) return ReduceCanJoin(op, c, form, why);
  if (IsWideUse(*op) && !SumCanFollow(*op->operand(0), c)) {
    *why = "stays with the sum, which is more exact in its own kernel";
    return false;
  }
  if (as_result && !MatchesAsResult(op, c)) {
    *why = "another iteration space";
    return false;
  }
  if (TakesRows(*op) && LoopLike(c.form) && absl::c_all_of(op->users(), [&](const Instruction* u) {
        if (!c.contains.contains(u)) return false;
        return u->family() == Family::kMovement || (IsPointwise(*u) && KeepsRowsWhole(*op, ArrayShape(*c.lead)));
      })) {
    return true;
  }
  if (IsIndexing(*op) && IndexesRows(*op, c, c.form, c.domain)) return true;
  if (!as_result && op->opcode() == Opcode::kConcatenate && IsPieceOfPieces(*op, c)) return true;
  if (c.form == FusionForm::kScatter) return !as_result;  // it feeds updates
  if (IsIndexing(*op)) {
    if (!LoopLike(c.form) || c.form == FusionForm::kConcat || !Shape::SameDims(op->shape(), c.lead->shape())) {
      *why = "indexing inside of another index map";
      return false;
    }
    *form = op->opcode() == Opcode::kConcatenate ? FusionForm::kConcat : FusionForm::kGather;
    return true;
  }
  if (!as_result && looping && IsPointwise(*op) && FedByDear(*op, ElementsOf(ArrayShape(*c.lead)))) {
    *why = "its operand has a kernel, which can do this once per element of it";
    return false;
  }
  if (!as_result && looping && FindsPlaces(*op) && AreFew(ElementsOf(op->shape()), ElementsOf(ArrayShape(*c.lead)))) {
    *why = "its places would be found again for each element that it is broadcast to";
    return false;
  }
  if (!LoopLike(c.form) && IsDear(*op) && IsReadByIndex(*op, c)) {
    *why = "would be computed again in each pass";
    return false;
  }
  // Recomputation: what is dear must not be done again for each element it is broadcast to.
  if (!as_result && IsDear(*op)) {
    const bool row_value = c.form == FusionForm::kRow && RoleOf(op->shape(), c.domain) != RowRole::kNone;
    const Dim work = c.form == FusionForm::kRow ? c.domain.outer * c.domain.inner : ElementsOf(ArrayShape(*c.lead));
    if (!row_value && looping && !BringsRowReduce(*op, work, context_) &&
        Less(op->shape().num_elements() * 2, work) != Ternary::kNo) {
      *why = "would be computed several times";
      return false;
    }
  }
  return true;
}

// May `op` be computed where `scatter` takes the elements of its updates, each of them once? Windows only: those are vectors.
bool Clusters::FeedsUpdates(const Instruction& op, const Instruction& scatter, const Cluster& c) const {
  if (scatter.opcode() != Opcode::kScatter || !op.shape().is_array() || IsDear(op)) return false;
  if (OnDevice(op.shape(), context_)) return false;
  const int64_t count = (scatter.operand_count() - 1) / 2;
  const Instruction& updates = *scatter.operand(count + 1);
  if (!absl::c_linear_search(scatter.int_list(Attr::kUpdateWindowDims), LastDim(updates))) return false;
  const bool elementwise = IsPointwise(op) || op.opcode() == Opcode::kBroadcast;
  if (!elementwise && !(op.opcode() == Opcode::kGather && ReadsRuns(op))) return false;
  if (!Shape::SameDims(op.shape(), updates.shape())) return false;
  for (int64_t k = 0; k <= count; ++k) {
    if (scatter.operand(k) == &op) return false;
  }
  return absl::c_all_of(op.users(), [&](const Instruction* u) { return u == &scatter || c.contains.contains(u); });
}

// Is `op`, a concatenation, a piece of another one along another dim, and are all of that dim cut alike? Then the pieces of both are loops.
bool Clusters::IsPieceOfPieces(const Instruction& op, const Cluster& c) const {
  constexpr int64_t kMostPieces = 4;
  if (c.form != FusionForm::kConcat || op.user_count() != 1 || op.operand_count() > kMostPieces) return false;
  const Instruction& whole = *op.users()[0];
  const int64_t d = op.dimensions()[0];
  if (whole.opcode() != Opcode::kConcatenate || !c.contains.contains(&whole) || whole.dimensions()[0] == d) return false;
  if (whole.operand_count() > kMostPieces || !Shape::SameDims(whole.shape(), c.lead->shape())) return false;
  return absl::c_all_of(c.members, [&](const Instruction* m) {
    if (m->opcode() != Opcode::kConcatenate || m == &whole) return true;
    if (m->dimensions()[0] != d || m->operand_count() != op.operand_count()) return false;
    for (int64_t k = 0; k < op.operand_count(); ++k) {
      if (!KnownEqual(m->operand(k)->shape().dim(d), op.operand(k)->shape().dim(d))) return false;
    }
    return true;
  });
}

// Whether says(value, user) of some edge of what `c` makes of `op`, as far as the reductions.
template <typename Says>
bool AnyEdgeBehind(const Instruction& op, const Cluster& c, const Says& says) {
  absl::flat_hash_set<const Instruction*> seen = {&op};
  std::vector<const Instruction*> work = {&op};
  while (!work.empty()) {
    const Instruction* at = work.back();
    work.pop_back();
    for (const Instruction* user : at->users()) {
      if (!c.contains.contains(user)) continue;
      if (says(*at, *user)) return true;
      if (user->opcode() != Opcode::kReduce && seen.insert(user).second) work.push_back(user);
    }
  }
  return false;
}

// Is what `c` makes of `op` an operand of a gather, dynamic-slice or concatenation?
bool Clusters::IsReadByIndex(const Instruction& op, const Cluster& c) const {
  if (absl::c_none_of(c.members, [](const Instruction* m) { return IsIndexing(*m); })) return false;
  return AnyEdgeBehind(op, c, [](const Instruction& at, const Instruction& user) {
    return IsIndexing(user) && (user.operand(0) == &at || user.opcode() == Opcode::kConcatenate);
  });
}

// Whether what `c` makes of `op` goes on along op's last dim, as far as the reductions.
bool Clusters::GoesOnAlongLastDim(const Instruction& op, const Cluster& c) const {
  return !AnyEdgeBehind(op, c, [](const Instruction& at, const Instruction& user) {
    if (user.opcode() == Opcode::kReduce) return false;
    if (!user.shape().is_array() || user.shape().rank() == 0) return true;
    if (!KnownEqual(user.shape().dim(LastDim(user)), at.shape().dim(LastDim(at)))) return true;
    const bool spread = user.opcode() == Opcode::kBroadcast && user.dimensions().back() == LastDim(user);
    const bool same = IsPointwise(user) && Shape::SameDims(user.shape(), at.shape());
    return !spread && !same && user.opcode() != Opcode::kReshape;
  });
}

// Is `op` the convert of a narrow operand that a product in `c` packs, or the transpose between them? Its elements are widened as they are
// brought into scratch, so that nothing of the wide operand is in memory.
bool Clusters::WidensWhatIsPacked(const Instruction& op, const Cluster& c) const {
  const Instruction* convert = op.opcode() == Opcode::kTranspose ? op.operand(0) : &op;
  if (convert->opcode() != Opcode::kConvert || OnDevice(op.shape(), context_) || !context_.packs_where_it_lies) return false;
  const Shape &wide = convert->shape(), &narrow = convert->operand(0)->shape();
  const int64_t bits = BitWidth(narrow.element_type());
  if ((bits != 8 && bits != 16) || bits >= BitWidth(wide.element_type())) return false;
  const DimVector strides = ViewByLayout(convert->operand(0)).strides;
  auto packed = [&](const Instruction& operand, absl::Span<const Dim> by) {
    return absl::c_any_of(operand.users(), [&](const Instruction* u) {
      return IsProduct(*u) && c.contains.contains(u) && u->operand(0) != &operand && context_.packs_where_it_lies(*u, by);
    });
  };
  auto turned = [&](const Instruction& transpose) {
    DimVector by;
    for (int64_t d : transpose.int_list(Attr::kDimensions)) by.push_back(strides[static_cast<size_t>(d)]);
    return packed(transpose, by);
  };
  if (&op != convert) return turned(op);
  return packed(op, strides) || absl::c_any_of(op.users(), [&](const Instruction* u) {
    return u->opcode() == Opcode::kTranspose && c.contains.contains(u) && turned(*u);
  });
}

// May `op` be part of a kernel of reductions? There each pass computes it again, so that must cost what reading it from memory would: an
// address per run of elements, or the pieces of a concatenation one after the other.
bool Clusters::IndexesRows(const Instruction& op, const Cluster& c, FusionForm form, const RowDomain& domain) const {
  const bool row = form == FusionForm::kRow;
  if (!row && form != FusionForm::kColumn && form != FusionForm::kReduce) return false;
  if (op.shape().rank() == 0 || !GoesOnAlongLastDim(op, c)) return false;
  if (op.opcode() != Opcode::kConcatenate) return ReadsRuns(op);
  constexpr int64_t kMostPieces = 4;
  if (OnDevice(op.shape(), context_)) return false;  // a device's teams take a row's elements in turn
  if (!row || op.operand_count() > kMostPieces || RoleOf(op.shape(), domain) != RowRole::kFull) return false;
  return absl::c_none_of(c.members, [&](const Instruction* m) { return m != &op && m->opcode() == Opcode::kConcatenate; });
}

// Whether `sum` could join `c` behind a convert to f64 that does.
bool Clusters::SumCanFollow(const Instruction& sum, const Cluster& c) const {
  if (c.form != FusionForm::kLoop && c.form != FusionForm::kRow) return false;
  const Shape& lead = ArrayShape(*c.lead);
  if (c.form == FusionForm::kLoop && Shape::SameDims(sum.shape(), lead)) return true;
  if (KindOfReduce(sum, context_) != ReduceKind::kRow) return false;
  const RowDomain domain = DomainOfReduce(sum);
  if (c.form == FusionForm::kRow) return c.domain == domain;
  return KnownEqual(domain.outer * domain.inner, ElementsOf(lead)) || RoleOf(lead, domain) == RowRole::kReduced;
}

// A reduce as producer: of values that go on elementwise in its rows, or of an elementwise epilogue on its results.
bool Clusters::ReduceCanJoin(const Instruction* reduce, const Cluster& c, FusionForm* form, std::string* why) const {
  const ReduceKind kind = KindOfReduce(*reduce, context_);
  if (kind == ReduceKind::kRow && (c.form == FusionForm::kLoop || c.form == FusionForm::kRow || c.form == FusionForm::kGather)) {
    const RowDomain domain = DomainOfReduce(*reduce);
    auto in_rows = [&](const Instruction* m) { return !IsIndexing(*m) || IndexesRows(*m, c, FusionForm::kRow, domain); };
    if (c.form == FusionForm::kGather && !absl::c_all_of(c.members, in_rows)) {
      *why = "its users read at places of their own";
      return false;
    }
    if (c.form == FusionForm::kRow && !(c.domain == domain)) {
      *why = "rows of another shape";
      return false;
    }
    if (!RowsStayApart(reduce, c, domain)) {
      *why = "its users mix rows";
      return false;
    }
    *form = FusionForm::kRow;
    return true;
  }
  if (c.form == FusionForm::kLoop && kind != ReduceKind::kRow) {
    const bool epilogue = absl::c_all_of(c.members, [&](const Instruction* m) {
      return (IsPointwise(*m) || m->opcode() == Opcode::kConstant || m->opcode() == Opcode::kBroadcast) &&
             (m->opcode() == Opcode::kConstant || Shape::SameDims(m->shape(), ArrayShape(*reduce)));
    });
    if (epilogue) {
      *form = kind == ReduceKind::kColumn ? FusionForm::kColumn : FusionForm::kReduce;
      return true;
    }
  }
  *why = "its users iterate in another space";
  return false;
}

// Every member that depends on `reduce`, and every result, keeps rows apart.
bool Clusters::RowsStayApart(const Instruction* reduce, const Cluster& c, const RowDomain& domain) const {
  absl::flat_hash_set<const Instruction*> below = {reduce};
  std::vector<const Instruction*> work = {reduce};
  while (!work.empty()) {
    const Instruction* op = work.back();
    work.pop_back();
    for (const Instruction* user : op->users()) {
      const bool inside = c.contains.contains(user) || IsElementOfOp(*user);
      if (inside && below.insert(user).second) work.push_back(user);
    }
  }
  if (!KeepsRows(*reduce, domain)) return false;
  for (const Instruction* m : c.members) {
    if (below.contains(m) && !KeepsRows(*m, domain)) return false;
    if (c.results.contains(m) && !m->shape().is_tuple() && RoleOf(m->shape(), domain) == RowRole::kNone) return false;
  }
  return true;
}

bool Clusters::MatchesAsResult(const Instruction* op, const Cluster& c) const {
  if (op->shape().is_tuple()) return false;
  if (c.form == FusionForm::kRow) return RoleOf(op->shape(), c.domain) != RowRole::kNone;
  if (c.form != FusionForm::kLoop && c.form != FusionForm::kContraction) return false;
  return SamePlaces(op->shape(), c.lead->shape());
}

// Is `c` done elementwise with what `product` (a contraction, or a scan) gives, so that each element can stay in a register until it is?
bool Clusters::IsEpilogueOf(const Cluster& c, const Instruction& product) const {
  if (c.form != FusionForm::kLoop || !c.lead->shape().is_array() || IsCheck(*c.lead)) return false;
  const Shape& shape = ArrayShape(product);
  if (!SamePlaces(shape, c.lead->shape())) return false;
  if (!absl::c_all_of(c.members, [](const Instruction* m) { return InEpilogue(*m); })) return false;
  absl::flat_hash_set<const Instruction*> below = {&product};
  std::vector<const Instruction*> work = {&product};
  while (!work.empty()) {
    const Instruction* op = work.back();
    work.pop_back();
    for (const Instruction* user : op->users()) {
      const bool element = op == &product && IsElementOfOp(*user);
      if ((!element && !c.contains.contains(user)) || !below.insert(user).second) continue;
      if (element && user->tuple_index() >= StackedResults(product)) {  // known when all is done
        if (absl::c_any_of(user->users(), [&](const Instruction* u) { return c.contains.contains(u); })) return false;
        continue;
      }
      if (!element && (!IsPointwise(*user) || !Shape::SameDims(user->shape(), shape))) return false;
      work.push_back(user);
    }
  }
  return absl::c_all_of(c.results, [&](const Instruction* r) { return SamePlaces(r->shape(), shape); });
}

// What reads `op`, a result of `c`, elsewhere: a user in `c` may be computed again in another cluster.
void Clusters::AddReaders(const Instruction* op, const Cluster* c, std::vector<const Instruction*>* readers) const {
  for (const Instruction* user : op->users()) {
    if (!c->contains.contains(user) || homes(user).size() > 1 || outside_.contains(user)) readers->push_back(user);
  }
}

bool Clusters::UsedOutside(const Instruction* op, const Cluster* c) const {
  std::vector<const Instruction*> readers;
  AddReaders(op, c, &readers);
  return op == computation_->root() || !readers.empty();
}

// Is there a way from a result of `from` to `to`? If not `directly`, what only `to` reads is none.
bool Clusters::LeadsTo(const Cluster* from, const Cluster* to, bool directly) const {
  std::vector<const Instruction*> readers;
  for (const Instruction* r : from->results) AddReaders(r, from, &readers);
  if (!directly) {
    std::erase_if(readers, [&](const Instruction* u) { return homes(u).size() == 1 && homes(u)[0] == to && !outside_.contains(u); });
  }
  if (absl::c_any_of(readers, [&](const Instruction* u) { return absl::c_linear_search(homes(u), to); })) return true;
  return Reaches(std::move(readers), to);
}

// `op` becomes a result of `c`: does another user of it lead back into `c`?
bool Clusters::WouldCycle(const Instruction* op, const Cluster* c) const {
  std::vector<const Instruction*> others;
  if (op->opcode() == Opcode::kScan && op->shape().is_tuple()) {
    for (const Instruction* element : op->users()) AddReaders(element, c, &others);
  } else {
    AddReaders(op, c, &others);
  }
  return Reaches(std::move(others), c);
}

// Over the graph in which a cluster is one node. Gives up (true) after a bounded number of visits.
bool Clusters::Reaches(std::vector<const Instruction*> from, const Cluster* target) const {
  absl::flat_hash_set<const Instruction*> seen;
  absl::flat_hash_set<const Cluster*> entered;
  std::vector<const Instruction*> work = std::move(from);
  const size_t starts = work.size();
  size_t taken = 0;
  int64_t visits = 0;
  std::deque<const Instruction*> queue(work.begin(), work.end());
  while (!queue.empty()) {
    const Instruction* op = queue.front();
    queue.pop_front();
    const bool first = taken++ < starts;
    if (!seen.insert(op).second) continue;
    if (++visits > kMaxReachVisits) return true;
    for (const Cluster* c : homes(op)) {
      if (c == target) {
        // A start may itself live in the target and elsewhere (cheap ops): only the elsewhere counts.
        if (!first) return true;
        continue;
      }
      if (!entered.insert(c).second) continue;
      for (const Instruction* result : c->results) {
        for (const Instruction* user : result->users()) queue.push_back(user);
      }
    }
    if (homes(op).empty() || outside_.contains(op)) {
      for (const Instruction* user : op->users()) queue.push_back(user);
      for (const Instruction* next : op->control_successors()) queue.push_back(next);  // draws of random state keep their order
    }
  }
  return false;
}

void Clusters::Add(Instruction* op, Cluster* c, bool as_result) {
  c->members.push_back(op);
  c->contains.insert(op);
  c->cost += CostOf(*op);
  homes_[op].push_back(c);
  if (WholeTuple(*op)) {
    c->results.insert(op);
    for (Instruction* element : op->users()) outside_.insert(element);
    return;
  }
  if (op->shape().is_tuple()) {  // a variadic reduce and its elements stay together
    for (Instruction* element : op->users()) {
      c->members.insert(c->members.end() - 1, element);
      c->contains.insert(element);
      homes_[element].push_back(c);
      if (UsedOutside(element, c)) c->results.insert(element);
    }
    return;
  }
  if (as_result) c->results.insert(op);
}

void Clusters::Start(Instruction* op, bool as_result) {
  clusters_.push_back(std::make_unique<Cluster>());
  Cluster* c = clusters_.back().get();
  c->form = SingleForm(*op, context_);
  if (c->form == FusionForm::kRow) c->domain = DomainOfReduce(*op);
  c->lead = op->shape().is_tuple() && !WholeTuple(*op) ? op->users()[0] : op;
  Add(op, c, as_result);
}

// Row (and column) kernels that read the same large value are one kernel with more results.
void Clusters::MergeSiblings() {
  absl::flat_hash_map<const Instruction*, std::vector<Cluster*>> readers;
  for (const auto& c : clusters_) {
    if (c->form != FusionForm::kRow && c->form != FusionForm::kColumn) continue;
    absl::flat_hash_set<const Instruction*> operands;
    for (const Instruction* m : c->members) {
      for (const Instruction* o : m->operands()) {
        if (!c->contains.contains(o) && operands.insert(o).second) readers[o].push_back(c.get());
      }
    }
  }
  for (const Instruction* value : computation_->PostOrder()) {  // not the map's order: deterministic
    auto it = readers.find(value);
    if (it == readers.end()) continue;
    std::vector<Cluster*>& clusters = it->second;
    if (!value->shape().is_array()) continue;
    std::erase_if(clusters, [&](const Cluster* c) {  // small shared operands are no reason
      return c->members.empty() || (c->form == FusionForm::kRow && RoleOf(value->shape(), c->domain) != RowRole::kFull) ||
             (c->form == FusionForm::kColumn && KnownEqual(value->shape().num_elements(), c->lead->shape().num_elements()));
    });
    for (size_t i = 0; i < clusters.size(); ++i) {
      for (size_t j = i + 1; j < clusters.size() && j < i + 8; ++j) TryMerge(clusters[i], clusters[j]);
    }
  }
  std::erase_if(clusters_, [](const auto& c) { return c->members.empty(); });
}

bool Clusters::TryMerge(Cluster* a, Cluster* b) {
  if (a == b || a->members.empty() || b->members.empty() || a->form != b->form) return false;
  if (a->cost + b->cost > context_.target.max_fusion_instructions) return false;
  if (static_cast<int64_t>(a->members.size() + b->members.size()) > kMaxMembers) return false;
  if (a->form == FusionForm::kRow ? !(a->domain == b->domain) : !Shape::SameDims(a->lead->shape(), b->lead->shape())) return false;
  if (LeadsTo(a, b, /*directly=*/true) || LeadsTo(b, a, /*directly=*/true)) return false;
  Absorb(a, b);
  return true;
}

// All of b goes to a.
void Clusters::Absorb(Cluster* a, Cluster* b) {
  for (Instruction* m : b->members) {
    std::vector<Cluster*>& homes = homes_[m];
    std::erase(homes, b);
    if (a->contains.insert(m).second) {
      a->members.push_back(m);
      homes.push_back(a);
    }
  }
  for (const Instruction* r : b->results) a->results.insert(r);
  a->cost += b->cost;
  b->members.clear();
  b->contains.clear();
  b->results.clear();
}

// Loops over the same elements, of which one reads what the other makes, are one: several results of a long chain of ops share most of it,
// and while they were found from their ends the chain could belong to one of them only.
void Clusters::MergeLoops() {
  for (const auto& reader : clusters_) {
    while (MergeAMaker(reader.get())) {
    }
  }
  std::erase_if(clusters_, [](const auto& c) { return c->members.empty(); });
}

bool Clusters::MergeAMaker(Cluster* reader) {
  for (const Instruction* m : reader->members) {
    for (const Instruction* o : m->operands()) {
      if (reader->contains.contains(o)) continue;
      for (Cluster* maker : homes(o)) {
        if (maker->results.contains(o) && TryMergeLoops(maker, reader)) return true;
      }
    }
  }
  return false;
}

// Every element that `reader` takes of `maker`'s results is at the place of the element that it goes into.
bool Clusters::ReadsInPlace(const Cluster& reader, const Cluster& maker) const {
  return absl::c_all_of(reader.members, [&](const Instruction* m) {
    return absl::c_all_of(m->operands(), [&](const Instruction* o) {
      const bool taken = !reader.contains.contains(o) && maker.results.contains(o);
      return !taken || (IsPointwise(*m) && Shape::SameDims(m->shape(), reader.lead->shape()) && Shape::SameDims(m->shape(), o->shape()));
    });
  });
}

bool Clusters::TryMergeLoops(Cluster* maker, Cluster* reader) {
  if (maker->form != FusionForm::kLoop || reader->form != FusionForm::kLoop) return false;
  if (maker->lead->shape().is_tuple() || reader->lead->shape().is_tuple() || !MatchesAsResult(maker->lead, *reader)) return false;
  if (IsCheck(*maker->lead) || IsCheck(*reader->lead)) return false;
  if (maker->cost + reader->cost > context_.target.max_loop_instructions) return false;
  if (static_cast<int64_t>(maker->members.size() + reader->members.size()) > kMaxMembers) return false;
  if (!ReadsInPlace(*reader, *maker)) return false;
  if (LeadsTo(maker, reader, /*directly=*/false) || LeadsTo(reader, maker, /*directly=*/true)) return false;
  Absorb(reader, maker);
  absl::erase_if(reader->results, [&](const Instruction* r) { return !UsedOutside(r, reader); });
  return true;
}

// A loop that goes on elementwise in the rows of a row kernel, over values that it reads too, is a pass of it. Found from their ends they
// are two where a reduction is a result as well: a norm's statistics, which training keeps.
void Clusters::MergeBehindRows() {
  for (const auto& reader : clusters_) {
    if (reader->form != FusionForm::kLoop) continue;
    absl::flat_hash_set<const Cluster*> tried;
    for (size_t i = 0; i < reader->members.size() && reader->form == FusionForm::kLoop; ++i) {
      for (const Instruction* o : reader->members[i]->operands()) {
        if (reader->contains.contains(o)) continue;
        const absl::Span<Cluster* const> makers = homes(o);
        const auto maker = absl::c_find_if(makers, [&](const Cluster* c) { return c->form == FusionForm::kRow && c->results.contains(o); });
        if (maker != makers.end() && tried.insert(*maker).second && TryMergeBehindRows(*maker, reader.get())) break;
      }
    }
  }
  std::erase_if(clusters_, [](const auto& c) { return c->members.empty(); });
}

// Whether both read a value with an element for each of the rows', or `reader` one that `maker` makes.
bool Clusters::ReadSameRows(const Cluster& maker, const Cluster& reader) const {
  absl::flat_hash_set<const Instruction*> read;
  for (const Instruction* m : maker.members) read.insert(m->operands().begin(), m->operands().end());
  return absl::c_any_of(reader.members, [&](const Instruction* m) {
    return absl::c_any_of(m->operands(), [&](const Instruction* o) {
      if (reader.contains.contains(o) && !maker.contains.contains(o)) return false;
      return (read.contains(o) || maker.contains.contains(o)) && RoleOf(o->shape(), maker.domain) == RowRole::kFull;
    });
  });
}

bool Clusters::TryMergeBehindRows(Cluster* maker, Cluster* reader) {
  if (IsCheck(*reader->lead) || RoleOf(reader->lead->shape(), maker->domain) != RowRole::kFull) return false;
  if (maker->cost + reader->cost > context_.target.max_fusion_instructions) return false;
  if (static_cast<int64_t>(maker->members.size() + reader->members.size()) > kMaxMembers) return false;
  absl::flat_hash_set<const Instruction*> below;
  for (auto it = reader->members.rbegin(); it != reader->members.rend(); ++it) {  // operands first
    const Instruction& m = **it;
    if (IsIndexing(m) || MergesRows(m, *maker) || (IsWideUse(m) && !SumCanFollow(*m.operand(0), *maker))) return false;
    const bool depends = absl::c_any_of(m.operands(), [&](const Instruction* o) {
      return below.contains(o) || (!reader->contains.contains(o) && maker->contains.contains(o));
    });
    if (!depends) continue;
    if (!KeepsRows(m, maker->domain)) return false;
    below.insert(&m);
  }
  if (absl::c_any_of(reader->results, [&](const Instruction* r) { return RoleOf(r->shape(), maker->domain) == RowRole::kNone; })) {
    return false;
  }
  if (!ReadSameRows(*maker, *reader)) return false;
  if (LeadsTo(maker, reader, /*directly=*/false) || LeadsTo(reader, maker, /*directly=*/true)) return false;
  reader->form = FusionForm::kRow;
  reader->domain = maker->domain;
  Absorb(reader, maker);
  absl::erase_if(reader->results, [&](const Instruction* r) { return !UsedOutside(r, reader); });
  return true;
}

}  // namespace tenon
