// SplitReductions: a long reduction to one or few results becomes two, so that threads share it:
//
//   f32[] reduce(f32[10000000])  =>  f32[] reduce(f32[64] reduce(f32[64,156250] reshape(x)))
//
// The first leaves the physically outermost reduced dims (or a part of one) alone, about 64 pieces (of a device 512); the second takes
// those. The pieces follow from shapes and layouts only, never from the number of threads: the same bits whatever that is. A dim without a
// suitable divisor, or of symbolic size, is cut into a main part and a rest; how many pieces are wanted follows from Typical sizes then.
//
// Sums of f32 that are wanted in f64 (wide_sum.h) go on in f64: the pieces are converted, and what the sum is converted to is their
// sum. With excess precision only: the pieces' sums and the total are not rounded between.
//
// On a device, long rows of which a sum needs another reduction first (softmax, variances) are read once for both: online_reductions.cc.
//
// Only for reducers that are one commutative op from a start that may be used more than once, and for those of one or several values
// that only choose (order_free.h: argmax, the largest and where). Elementwise ops before the reduction and iotas go behind the
// reshape, so that they still fuse with it. After assign-layout (what lies side by side must be known), before fuse.
#include <algorithm>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "hlo/builder.h"
#include "hlo/order_free.h"
#include "hlo/own_calls.h"
#include "passes/expand/control_flow.h"
#include "passes/expand/online_reductions.h"
#include "passes/expand/pieces.h"
#include "passes/pass.h"
#include "passes/spaces/spaces.h"
#include "passes/wide_sum.h"

namespace tenon {
namespace {

constexpr int64_t kLong = 128 << 10;        // elements that are worth a second kernel
constexpr int64_t kPieceElements = 8 << 10;  // at least
constexpr int64_t kBlock = 64;              // columns that one thread takes at a time (codegen.md)

// The op of a reducer of one op that may be applied in any order and to any number of starts.
std::optional<Opcode> ReorderableOp(const Instruction& reduce) {
  if (reduce.operand_count() != 2) return std::nullopt;
  const std::optional<Opcode> op = SimpleOp(*reduce.to_apply());
  if (!op) return std::nullopt;
  const PrimitiveType type = reduce.to_apply()->root()->shape().element_type();
  const bool wide = type == PrimitiveType::kF32 || type == PrimitiveType::kF64 || (!IsFloat(type) && !IsComplex(type));
  const Instruction* start = reduce.operand(1);
  auto starts_at = [&](double value) {
    return start->opcode() == Opcode::kConstant && start->literal().GetAsDouble(0) == value;
  };
  switch (*op) {
    case Opcode::kMaximum:
    case Opcode::kMinimum: return IsComplex(type) ? std::nullopt : op;
    case Opcode::kAnd:
    case Opcode::kOr: return op;
    case Opcode::kAdd: return wide && starts_at(0) ? op : std::nullopt;
    case Opcode::kMultiply: return wide && starts_at(1) ? op : std::nullopt;
    default: return std::nullopt;
  }
}

// What keeps a machine busy. A device has blocks of threads in place of threads; a row that is read again is read from its second cache
// by all of them, and not by the one block that keeps it.
struct Limits {
  int64_t pieces = 64;       // enough for any machine's threads
  int64_t enough_units = 8;  // what can be split without us
  int64_t enough_rows = 2;   // the same of what is spread again, if its rows are long
  int64_t long_row = 0;
};
constexpr Limits kHost, kDevice = {.pieces = 512, .enough_units = 128, .enough_rows = 32, .long_row = 128 << 10};

// Operands that are reduced together: half of all, the other half are the starts.
int64_t Width(const Instruction& reduce) { return reduce.operand_count() / 2; }

// Pieces that the backend can share out as it is: rows, or blocks of columns.
int64_t UnitsOf(const Instruction& reduce) {
  const Shape& x = reduce.operand(0)->shape();
  int64_t kept = 1, columns = 1;
  bool minor = true;  // no reduced dim has been seen inside
  for (int64_t d : x.minor_to_major()) {
    if (KnownOne(x.dim(d))) continue;
    if (IsReduced(reduce, d)) minor = false;
    else (minor ? columns : kept) *= std::max<int64_t>(Typical(x.dim(d)), 1);
  }
  return kept * ((columns + kBlock - 1) / kBlock);
}

std::optional<Cut> CutOf(const Instruction& reduce, const Limits& limits) {
  if (reduce.opcode() != Opcode::kReduce) return std::nullopt;
  const Shape& x = reduce.operand(0)->shape();
  if (!x.has_layout()) return std::nullopt;
  const int64_t elements = Typical(x.num_elements()), units = UnitsOf(reduce);
  if (elements < kLong || units >= limits.enough_units) return std::nullopt;
  if (IsSpreadAgain(reduce) && (units >= limits.enough_rows || elements / units < limits.long_row)) return std::nullopt;
  const int64_t wanted = std::min((limits.pieces + units - 1) / units, elements / units / kPieceElements);
  const std::optional<Cut> cut = CutInto(reduce, wanted);
  if (!cut) return std::nullopt;
  if (!ReorderableOp(reduce) && !IsOrderFree(*reduce.to_apply())) return std::nullopt;
  return cut;
}

class Split {
 public:
  // `wide`: the result is the sum in f64, of f32 values.
  Split(Instruction* reduce, const Cut& cut, bool wide) : reduce_(*reduce), cut_(cut), wide_(wide), b_(reduce->parent()) {
    b_.set_metadata(reduce->metadata());
  }

  using Values = std::vector<Instruction*>;  // one for each operand

  // What takes the place of the reduce's results.
  Values Results() {
    const absl::Span<Instruction* const> operands = reduce_.operands();
    const Values xs(operands.begin(), operands.begin() + Width(reduce_));
    if (cut_.split < 0) return Second(Reduced(xs, Without(cut_.whole)), cut_.whole);
    const Dim extent = xs[0]->shape().dim(cut_.split), main_part = FloorDiv(extent, cut_.pieces) * Dim(cut_.pieces);
    const Values main = Pieces(xs, main_part);
    if (KnownEqual(main_part, extent)) return main;
    SplitView rest(b_, xs[0]->shape(), cut_.split, 0, main_part, extent);
    const Values seen = Seen(xs, rest);
    return Both(main, Shaped(Widened(Reduced(seen, reduce_.dimensions()))));
  }

 private:
  std::vector<int64_t> Without(const std::vector<int64_t>& left) const {
    std::vector<int64_t> dims;
    for (int64_t d : reduce_.dimensions()) {
      if (!absl::c_linear_search(left, d)) dims.push_back(d);
    }
    return dims;
  }

  Values Reduced(const Values& xs, const std::vector<int64_t>& dims) {
    Instruction* r = b_.Reduce(xs, reduce_.operands().subspan(static_cast<size_t>(Width(reduce_))), dims, reduce_.to_apply());
    if (!r->shape().is_tuple()) {
      r->mutable_shape().set_layout(RowMajor(r->shape().rank()));
      return {r};
    }
    Values parts;
    for (int64_t k = 0; k < Width(reduce_); ++k) {
      Shape& part = r->mutable_shape().mutable_element(k);
      part.set_layout(RowMajor(part.rank()));
      parts.push_back(b_.GetTupleElement(r, k));
    }
    return parts;
  }

  Values Widened(Values sums) {
    if (!wide_) return sums;
    for (Instruction*& sum : sums) {
      const Permutation layout = sum->shape().minor_to_major();
      sum = b_.Convert(sum, PrimitiveType::kF64);
      sum->mutable_shape().set_layout(layout);
    }
    return sums;
  }
  Shape ResultShape(int64_t k) const {
    Shape shape = reduce_.shape().is_tuple() ? reduce_.shape().element(k) : reduce_.shape();
    if (wide_) shape.set_element_type(PrimitiveType::kF64);
    return shape;
  }
  // In the layout of the reduce's results: `rs` are the results of one reduce, or what reads them.
  Values Shaped(Values rs) const {
    for (size_t k = 0; k < rs.size(); ++k) {
      const Shape shape = ResultShape(static_cast<int64_t>(k));
      rs[k]->mutable_shape() = shape;
      if (rs[k]->opcode() == Opcode::kGetTupleElement) rs[k]->operand(0)->mutable_shape().mutable_element(static_cast<int64_t>(k)) = shape;
    }
    return rs;
  }

  // The reducer, element by element.
  Values Both(const Values& main, const Values& rest) {
    if (std::optional<Opcode> op = ReorderableOp(reduce_)) return Shaped({b_.Binary(*op, main[0], rest[0])});
    absl::flat_hash_map<const Instruction*, Instruction*> made;
    const Computation& body = *reduce_.to_apply();
    for (int64_t k = 0; k < Width(reduce_); ++k) {
      made[body.parameter(k)] = main[static_cast<size_t>(k)];
      made[body.parameter(Width(reduce_) + k)] = rest[static_cast<size_t>(k)];
    }
    const Shape like = ResultShape(0);
    for (const Instruction* op : body.PostOrder()) {
      if (op->opcode() == Opcode::kParameter || op->opcode() == Opcode::kTuple) continue;
      Values operands;
      for (const Instruction* o : op->operands()) operands.push_back(made.at(o));
      Shape shape = like;
      shape.set_element_type(op->shape().element_type());
      made[op] = b_.Make(op->opcode(), operands, op->attrs(), shape);
    }
    if (body.root()->opcode() != Opcode::kTuple) return {made.at(body.root())};
    Values both;
    for (const Instruction* r : body.root()->operands()) both.push_back(made.at(r));
    return both;
  }

  // `partial` has the kept dims and `left`, named as in the (split) operand: everything of `left` goes.
  Values Second(const Values& partial, std::vector<int64_t> left) {
    std::sort(left.begin(), left.end());
    std::vector<int64_t> dims;
    int64_t at = 0;
    const int64_t shift = cut_.split < 0 ? 0 : 1;
    for (int64_t d = 0; d < reduce_.operand(0)->shape().rank() + shift; ++d) {
      const bool is_left = absl::c_linear_search(left, d);
      const int64_t original = d - (shift == 1 && d > cut_.split ? 1 : 0);
      if (!is_left && IsReduced(reduce_, original)) continue;
      if (is_left) dims.push_back(at);
      ++at;
    }
    if (!wide_) return Shaped(Reduced(partial, dims));
    Instruction* zero = b_.ScalarConstant(PrimitiveType::kF64, 0);
    return Shaped({b_.Reduce(Widened(partial)[0], zero, dims, Opcode::kAdd)});
  }

  Values Seen(const Values& xs, SplitView& view) {
    Values seen;
    for (Instruction* x : xs) seen.push_back(view.Of(x));
    b_.set_metadata(reduce_.metadata());
    return seen;
  }

  // Of the first `end` elements of the dim that is split.
  Values Pieces(const Values& xs, Dim end) {
    SplitView view(b_, xs[0]->shape(), cut_.split, cut_.pieces, 0, end);
    const Values seen = Seen(xs, view);
    auto renamed = [&](int64_t d) { return d + (d > cut_.split ? 1 : 0); };
    std::vector<int64_t> left = {cut_.split}, first;
    for (int64_t d : cut_.whole) left.push_back(renamed(d));
    for (int64_t d : reduce_.dimensions()) {
      if (d == cut_.split) first.push_back(d + 1);
      else if (!absl::c_linear_search(cut_.whole, d)) first.push_back(renamed(d));
    }
    std::sort(first.begin(), first.end());
    return Second(Reduced(seen, first), left);
  }

  const Instruction& reduce_;
  const Cut& cut_;
  const bool wide_;
  Builder b_;
};

// `results` are those of `reduce`; what reads one of several reads it itself. Returns what went with the reduce.
std::vector<Instruction*> Replace(Instruction* reduce, const std::vector<Instruction*>& results) {
  Computation* c = reduce->parent();
  if (!reduce->shape().is_tuple()) return c->ReplaceAndRemove(reduce, results[0]), std::vector<Instruction*>();
  std::vector<Instruction*> elements;
  bool whole = reduce == c->root();
  for (Instruction* user : reduce->users()) {
    if (user->opcode() == Opcode::kGetTupleElement) elements.push_back(user);
    else whole = true;
  }
  if (whole) return c->ReplaceAndRemove(reduce, Builder(c).Tuple(results)), std::vector<Instruction*>();
  for (Instruction* e : elements) c->ReplaceAndRemove(e, results[static_cast<size_t>(e->tuple_index())]);  // with the last, the reduce goes
  const auto is_read = [&](const Instruction* r) { return !r->users().empty() || r == c->root(); };
  const auto read = absl::c_find_if(results, is_read);
  for (Instruction* r : results) {  // fusions don't take what nobody reads
    if (read != results.end() && !is_read(r)) c->ReplaceAndRemove(r, *read);
  }
  return elements;
}

}  // namespace

absl::StatusOr<bool> SplitReductions(Module& module, PassContext& context) {
  const bool device = context.spaces != nullptr && context.spaces->main != 0;
  bool changed = false;
  for (Computation* c : ControlComputations(module)) {
    const absl::flat_hash_set<const Instruction*> pieces =
        device ? ReduceOnline(c, context) : absl::flat_hash_set<const Instruction*>();
    changed |= !pieces.empty();
    absl::flat_hash_set<const Instruction*> gone;
    for (Instruction* op : c->PostOrder()) {
      if (gone.contains(op) || pieces.contains(op)) continue;
      const std::optional<Cut> cut = CutOf(*op, device ? kDevice : kHost);
      if (!cut) continue;
      context.Note("split-reductions", "split", *op,
                   absl::StrCat(op->operand(0)->shape().num_elements().ToString(), " elements to ",
                                (op->shape().is_tuple() ? op->shape().element(0) : op->shape()).num_elements().ToString(),
                                ": threads share it in pieces"));
      const std::vector<Instruction*> wide = context.excess_precision && Width(*op) == 1 ? WideUsesOf(*op) : std::vector<Instruction*>();
      if (wide.empty()) {
        const std::vector<Instruction*> elements = Replace(op, Split(op, *cut, false).Results());
        gone.insert(elements.begin(), elements.end());
      } else {
        ReplaceWide(op, wide, Split(op, *cut, true).Results()[0]);
        gone.insert(wide.begin(), wide.end());
      }
      changed = true;
    }
  }
  return changed;
}

}  // namespace tenon
