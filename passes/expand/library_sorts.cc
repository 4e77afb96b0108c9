// LibrarySorts: a sort by a plain order of one key, and a topk, become calls of the library (hlo/library/sort.cc), which knows what
// the order is instead of asking a comparator, and has a row's threads share one row:
//
//   (f32[9], s64[9]) sort(x, iota), to_apply=less  =>  custom-call(x), "tenon.sort", {"key":0,"positions":2,...}
//
// An operand that counts along the sorted dimension is not read: the call gives positions. Operands whose results nobody reads are
// left out; the key is read all the same. Those that the main device computes stay, too: the library is the host's.
// Sorts by other comparators or of more than 48 operands stay and become kernels. After canonicalize (a tuple's users are its elements)
// and dce, before assign-layout.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "hlo/builder.h"
#include "hlo/library/describe.h"
#include "hlo/library/sort_order.h"
#include "passes/expand/control_flow.h"
#include "passes/pass.h"
#include "passes/spaces/spaces.h"

namespace tenon {
namespace {

constexpr int64_t kMostColumns = 48;

// The element of a tuple that each user is; false: it is used whole.
bool OnlyElementsUsed(const Instruction& op) {
  if (!op.shape().is_tuple()) return true;
  if (op.parent()->root() == &op) return false;
  return std::all_of(op.users().begin(), op.users().end(), [](const Instruction* u) { return u->opcode() == Opcode::kGetTupleElement; });
}

bool IsUsed(const Instruction& op, int64_t column) {
  if (!op.shape().is_tuple()) return true;
  return std::any_of(op.users().begin(), op.users().end(), [&](const Instruction* u) { return u->tuple_index() == column; });
}

// Counts 0, 1, 2, ... along `dimension`, in a type that the library gives positions in.
bool IsPosition(const Instruction& x, int64_t dimension) {
  const PrimitiveType type = x.shape().element_type();
  if (ByteWidth(type) < 4 || !IsIntegral(type)) return false;
  if (x.opcode() == Opcode::kIota) return x.attrs().get<int64_t>(Attr::kIotaDimension) == dimension;
  return x.opcode() == Opcode::kBroadcast && x.operand(0)->opcode() == Opcode::kIota && x.operand(0)->shape().rank() == 1 &&
         x.dimensions()[0] == dimension;
}

// `with` in place of `op`'s result; with the layout that it had.
void Replace(Instruction* op, Instruction* with, Builder& b) {
  const Shape& wanted = op->shape();
  if (wanted.has_layout() && !Shape::SameWithLayout(wanted, with->shape())) {
    with = b.Copy(with);
    with->mutable_shape().set_layout(wanted.minor_to_major());
  }
  op->parent()->ReplaceAndRemove(op, with);
}

Shape Plain(const Shape& s) { return Shape(s.element_type(), s.dims()); }

// Elements `columns` of `op` are those of `call`, in order.
void ReplaceElements(Instruction* op, Instruction* call, const std::vector<int64_t>& columns, Builder& b) {
  auto element = [&](int64_t k) { return call->shape().is_tuple() ? b.GetTupleElement(call, k) : call; };
  if (!op->shape().is_tuple()) return Replace(op, element(0), b);
  const std::vector<Instruction*> users(op->users().begin(), op->users().end());
  for (Instruction* user : users) {
    const auto at = std::find(columns.begin(), columns.end(), user->tuple_index());
    Replace(user, element(at - columns.begin()), b);  // with the last of them the sort goes too
  }
}

// False, and all as it was: the library does not take the call.
bool ReplaceBy(Instruction* op, Instruction* call, const std::vector<int64_t>& columns, Builder& b) {
  if (!library::Describe(*call).ok()) {
    op->parent()->Remove(call);
    return false;
  }
  ReplaceElements(op, call, columns, b);
  return true;
}

bool ReplaceSort(Instruction* op) {
  const std::optional<library::PlainOrder> plain = library::PlainOrderOf(*op);
  if (!plain || op->operand_count() > kMostColumns || !OnlyElementsUsed(*op)) return false;
  const int64_t dimension = op->dimensions()[0];
  std::vector<int64_t> columns;
  std::vector<Instruction*> operands;
  std::vector<Shape> results;
  int64_t key = -1, positions = 0;
  for (int64_t k = 0; k < op->operand_count(); ++k) {
    Instruction* x = op->operand(k);
    if (k != plain->key && !IsUsed(*op, k)) continue;
    if (k != plain->key && IsPosition(*x, dimension)) {
      positions |= int64_t{1} << columns.size();
    } else {
      if (k == plain->key) key = static_cast<int64_t>(operands.size());
      operands.push_back(x);
    }
    if (!IsUsed(*op, k)) continue;
    columns.push_back(k);
    results.push_back(Plain(x->shape()));
  }
  if (columns.empty()) return false;
  Builder b(op->parent());
  b.set_metadata(op->metadata());
  const library::SortOrder& order = plain->order;
  std::string config = absl::StrCat("{\"key\":", key, ",\"dimension\":", dimension, ",\"descending\":", order.descending ? 1 : 0,
                                    ",\"total\":", order.total ? 1 : 0, ",\"nan_first\":", order.nan_first ? 1 : 0,
                                    ",\"positions\":", positions, ",\"hidden_key\":", IsUsed(*op, plain->key) ? 0 : 1, "}");
  Instruction* call = b.CustomCall("tenon.sort", results.size() == 1 ? results[0] : Shape::Tuple(results), operands, std::move(config));
  return ReplaceBy(op, call, columns, b);
}

// The one place in each row that all users of a topk's elements take, as slices; -1: others are used, too.
int64_t OnlyPlaceUsed(const Instruction& op) {
  int64_t place = -1;
  for (const Instruction* element : op.users()) {
    if (element->parent()->root() == element) return -1;
    for (const Instruction* user : element->users()) {
      if (user->opcode() != Opcode::kSlice) return -1;
      const SliceSpec& slice = user->attrs().get<SliceSpec>(Attr::kSlice);
      const Dim first = slice.starts.back();
      if (!KnownOne(user->shape().dims().back()) || !first.is_constant() || (place >= 0 && first.constant() != place)) return -1;
      place = first.constant();
    }
  }
  return place;
}

// (f32[9,100], s32[9,100]) topk(x), k=100, of which slices take the last  =>  slices of (f32[9,1], s32[9,1]) "tenon.topk", {"skip":99,...}
bool ReplaceTopK(Instruction* op) {
  if (!OnlyElementsUsed(*op)) return false;
  Builder b(op->parent());
  b.set_metadata(op->metadata());
  const int64_t place = OnlyPlaceUsed(*op);
  auto result = [&](int64_t k) {
    Shape shape = Plain(op->shape().element(k));
    if (place < 0) return shape;
    DimVector dims(shape.dims().begin(), shape.dims().end());
    dims.back() = 1;
    return Shape(shape.element_type(), dims);
  };
  const std::string config = absl::StrCat("{\"largest\":", op->attrs().get<bool>(Attr::kLargest) ? 1 : 0,
                                          place > 0 ? absl::StrCat(",\"skip\":", place) : "", "}");
  Instruction* call = b.CustomCall("tenon.topk", Shape::Tuple({result(0), result(1)}), {op->operand(0)}, config);
  if (place < 0) return ReplaceBy(op, call, {0, 1}, b);
  if (!library::Describe(*call).ok()) {
    op->parent()->Remove(call);
    return false;
  }
  const std::vector<Instruction*> elements(op->users().begin(), op->users().end());
  for (Instruction* element : elements) {
    Instruction* taken = b.GetTupleElement(call, element->tuple_index());
    const std::vector<Instruction*> slices(element->users().begin(), element->users().end());
    for (Instruction* slice : slices) {
      SliceSpec whole = slice->attrs().get<SliceSpec>(Attr::kSlice);
      whole.starts.back() = 0;
      whole.limits.back() = 1;
      Attributes attrs;
      attrs.set(Attr::kSlice, std::move(whole));
      Replace(slice, b.Make(Opcode::kSlice, {taken}, std::move(attrs)), b);
    }
  }
  return true;
}

bool SortedByDevice(const Instruction& op, const PassContext& context) {
  return context.spaces != nullptr && context.spaces->main != 0 && context.spaces->runs(op, context.spaces->main);
}

}  // namespace

absl::StatusOr<bool> LibrarySorts(Module& module, PassContext& context) {
  bool changed = false;
  for (Computation* c : ControlComputations(module)) {
    std::vector<Instruction*> sorts;  // elements go together with their tuple, so not while walking
    for (Instruction* op : c->PostOrder()) {
      const bool sort = op->opcode() == Opcode::kSort || op->opcode() == Opcode::kTopk;
      if (sort && SortedByDevice(*op, context)) continue;
      if (sort && op->control_predecessors().empty() && op->control_successors().empty()) sorts.push_back(op);
    }
    for (Instruction* op : sorts) changed |= op->opcode() == Opcode::kSort ? ReplaceSort(op) : ReplaceTopK(op);
  }
  return changed;
}

}  // namespace tenon
