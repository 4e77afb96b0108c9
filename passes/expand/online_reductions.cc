// Two reductions of a row x of which the second needs the first's result, with pieces p of it:
//
//   m = max x, s = sum exp(x - c)        c of m       m = max_p m_p           m_p = max x, s_p = sum exp(x - m_p) of the piece
//                                                     s = sum_p s_p exp(m_p - c)
//   t = sum x, q = sum (x - c)^2         c of t       t = sum_p t_p           t_p = sum x, a_p = t_p / n_p, q_p = sum (x - a_p)^2
//                                                     q = sum_p q_p + d (n_p d + 2 (t_p - n_p a_p))          d = a_p - c
//
// The first is online softmax (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018), the second Welford's variance
// by pieces (Chan, Golub and LeVeque, "Algorithms for computing the sample variance", 1983) with what the rounding of a_p leaves, so that c
// may be any number near the mean. Pieces follow from shapes, layouts and the device's numbers; so does the tree of the combination.
//
// Infinities: where m_p is infinite, x - m_p is no number for the elements that are m_p, so the piece takes exp(x - 0). A piece of -inf
// alone then has the sum 0 and the factor exp(-inf - c), which is 0, or no number where c is -inf, as exp(x - c) is for such a row. One
// with +inf has the sum +inf, and the factor exp(inf - c): no number where c is +inf, too. d is infinite where c is, and q then +inf.
#include "passes/expand/online_reductions.h"

#include <algorithm>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "hlo/builder.h"
#include "hlo/order_free.h"
#include "hlo/own_calls.h"
#include "passes/expand/pieces.h"
#include "passes/spaces/spaces.h"
#include "passes/wide_sum.h"

namespace tenon {
namespace {

constexpr int64_t kPiece = 4 << 10, kShortPiece = 1 << 10;  // elements; at least, where pieces would be few
constexpr int64_t kBusy = 512;                              // pieces that keep a device busy
constexpr int64_t kFewRows = 128, kFewSpreadRows = 32;      // that don't; that don't, if all of the row is computed from the results
constexpr int64_t kLongRow = 32 << 10, kLongSpreadRow = 128 << 10;
constexpr int kMaxSteps = 16;                               // from the first result to `c`

// A value that is the same number in a wider type.
const Instruction* Unwidened(const Instruction* x) {
  while (x->opcode() == Opcode::kConvert && IsFloat(x->operand(0)->shape().element_type()) &&
         BitWidth(x->operand(0)->shape().element_type()) < BitWidth(x->shape().element_type()))
    x = x->operand(0);
  return x;
}

bool IsWide(const Shape& shape) { return shape.element_type() == PrimitiveType::kF32 || shape.element_type() == PrimitiveType::kF64; }

bool StartsAt(const Instruction& reduce, double value) {
  const Instruction* start = reduce.operand(1);
  return start->opcode() == Opcode::kConstant && start->literal().GetAsDouble(0) == value;
}

bool IsReduceBy(const Instruction& op, Opcode opcode) {
  if (op.opcode() != Opcode::kReduce || op.operand_count() != 2 || SimpleOp(*op.to_apply()) != opcode) return false;
  const Shape& x = op.operand(0)->shape();
  return op.to_apply()->root()->shape().element_type() == x.element_type() && x.is_static() && x.has_layout();
}

// `second` is a sum over f(x - c), where c is the same for all elements of a row and comes of `first`, a reduction of the same rows.
struct Pair {
  Instruction *first = nullptr, *second = nullptr;
  Instruction *x = nullptr, *spread = nullptr;  // c, as all elements see it
  bool exponential = false;  // else squares
};

// The reduction that c is computed from, elementwise.
Instruction* FirstOf(const Pair& pair) {
  std::vector<Instruction*> queue = {pair.spread->operand(0)};
  for (size_t i = 0; i < queue.size() && i < kMaxSteps; ++i) {
    Instruction* op = queue[i];
    if (IsReduceBy(*op, pair.exponential ? Opcode::kMaximum : Opcode::kAdd)) {
      const bool fits = pair.exponential ? op->operand(1)->opcode() == Opcode::kConstant : StartsAt(*op, 0) && IsWide(op->shape());
      if (fits && Unwidened(op->operand(0)) == Unwidened(pair.x) && op->dimensions() == pair.second->dimensions()) return op;
    } else if (IsPointwise(*op)) {
      for (Instruction* o : op->operands()) {
        if (!absl::c_linear_search(queue, o)) queue.push_back(o);
      }
    }
  }
  return nullptr;
}

std::optional<Pair> PairOf(Instruction* second) {
  if (!IsReduceBy(*second, Opcode::kAdd) || !StartsAt(*second, 0)) return std::nullopt;
  Pair pair{.second = second};
  Instruction* f = second->operand(0);
  const PrimitiveType type = f->shape().element_type();
  if (!IsWide(f->shape())) return std::nullopt;
  if (f->opcode() == Opcode::kConvert && f->operand(0)->shape().element_type() == PrimitiveType::kF32) f = f->operand(0);
  Instruction* difference = f->operand_count() > 0 ? f->operand(0) : nullptr;
  pair.exponential = f->opcode() == Opcode::kExponential;
  if (!pair.exponential && !(f->opcode() == Opcode::kMultiply && f->operand(1) == difference)) return std::nullopt;
  if (difference->opcode() != Opcode::kSubtract || (pair.exponential && f->shape().element_type() != type)) return std::nullopt;
  pair.x = difference->operand(0);
  pair.spread = difference->operand(1);
  if (pair.spread->opcode() != Opcode::kBroadcast) return std::nullopt;
  const Shape &shape = pair.x->shape(), &c = pair.spread->operand(0)->shape();
  if (!IsWide(shape)) return std::nullopt;
  int64_t kept = 0;  // c has exactly the kept dims
  for (int64_t d = 0; d < shape.rank(); ++d) {
    if (IsReduced(*second, d)) continue;
    if (kept >= c.rank() || pair.spread->dimensions()[static_cast<size_t>(kept)] != d) return std::nullopt;
    ++kept;
  }
  if (kept != c.rank()) return std::nullopt;
  pair.first = FirstOf(pair);
  return pair.first == nullptr ? std::nullopt : std::optional<Pair>(pair);
}

bool IsRow(const Instruction& reduce) {
  const Shape& x = reduce.operand(0)->shape();
  for (int64_t d : x.minor_to_major()) {
    if (!KnownOne(x.dim(d))) return IsReduced(reduce, d);
  }
  return false;
}

// Rows that no block keeps and no cache, or so few that they keep few blocks busy.
std::optional<Cut> CutOf(const Pair& pair, const TargetInfo& target) {
  const Shape& x = pair.x->shape();
  if (!x.is_static() || !x.has_layout() || x.num_elements().constant() == 0 || !IsRow(*pair.second)) return std::nullopt;
  const int64_t rows = std::max<int64_t>(pair.second->shape().num_elements().constant(), 1), row = x.num_elements().constant() / rows;
  const int64_t bytes = row * ByteWidth(Unwidened(pair.x)->shape().element_type());
  const bool again = row * ByteWidth(x.element_type()) > target.kept_row_bytes &&
                     std::min(rows, target.rows_at_once) * bytes > target.cache_bytes / 2;
  const bool spread = IsSpreadAgain(*pair.second);
  const bool few = rows < (spread ? kFewSpreadRows : kFewRows) && row >= (spread ? kLongSpreadRow : kLongRow);
  if (!again && !few) return std::nullopt;
  const int64_t piece = std::min<int64_t>(kPiece, std::max<int64_t>(target.kept_row_bytes / ByteWidth(x.element_type()), 1));
  const int64_t wanted = std::max((row + piece - 1) / piece, std::min((kBusy + rows - 1) / rows, row / kShortPiece));
  return CutInto(*pair.second, wanted);
}

// The pieces of the rows of one value: a main part, and a rest that is a piece of each row.
class Rows {
 public:
  Rows(Builder& b, const Pair& pair, const Cut& cut, absl::flat_hash_set<const Instruction*>* made) : b_(b), made_(made) {
    Instruction* x = pair.x;
    const Metadata metadata = b.metadata();
    const std::vector<int64_t> dims(pair.second->dimensions().begin(), pair.second->dimensions().end());
    if (cut.split < 0) {
      Add(x, cut.whole, dims);
      return;
    }
    const int64_t extent = x->shape().dim(cut.split).constant(), part = extent / cut.pieces;
    const bool whole = part * cut.pieces == extent;
    Instruction* source = x;  // of a part of it, what it was widened from: a kernel that reads a part of an operand is seen to
    while (!whole && source->opcode() == Opcode::kConvert) source = source->operand(0);
    auto slice = [&](int64_t from, int64_t to) { return Laid(b_.SliceDim(source, cut.split, from, to), source); };
    Instruction* main = whole ? x : slice(0, part * cut.pieces);
    auto renamed = [&](int64_t d) { return d + (d > cut.split ? 1 : 0); };
    std::vector<int64_t> left = {cut.split}, all = {cut.split};
    for (int64_t d : cut.whole) left.push_back(renamed(d));
    for (int64_t d : dims) all.push_back(d == cut.split ? d + 1 : renamed(d));
    Add(Widened(x, source, SplitView(b_, main->shape(), cut.split, cut.pieces).Of(main)), left, all);
    b_.set_metadata(metadata);
    if (!whole) Add(Widened(x, source, slice(part * cut.pieces, extent)), {}, dims);
  }

  struct Part {
    Instruction* x;
    std::vector<int64_t> inside;  // dims of x inside of a piece
    std::vector<int64_t> kept;    // the others
    std::vector<int64_t> left;    // of a value for each piece, the dims that are pieces of one row
    int64_t count = 1;            // elements of a piece
  };
  const std::vector<Part>& parts() const { return parts_; }

  // Of elements, and of values that there is one of for each piece.
  Instruction* Elements(const Part& p, Opcode opcode, Instruction* x, Instruction* y = nullptr) { return Laid(Of(opcode, x, y), p.x); }
  Instruction* Pieces(Opcode opcode, Instruction* x, Instruction* y = nullptr) { return Laid(Of(opcode, x, y)); }
  Instruction* Converted(Instruction* x, PrimitiveType type, const Instruction* like = nullptr) {
    return x->shape().element_type() == type ? x : Laid(b_.Convert(x, type), like);
  }
  Instruction* Number(Instruction* like, double value) {
    return Laid(b_.Broadcast(b_.ScalarConstant(like->shape().element_type(), value), like->shape().dims(), {}));
  }

  // In the layout of `like`: of elements.
  Instruction* Laid(Instruction* op, const Instruction* like = nullptr) {
    op->mutable_shape().set_layout(like == nullptr ? RowMajor(op->shape().rank()) : like->shape().minor_to_major());
    return op;
  }

  // Each piece's elements become one.
  Instruction* OverPiece(const Part& p, Instruction* elements, Instruction* start, Opcode opcode) {
    return Reduced(elements, start, p.inside, opcode);
  }
  Instruction* ToElements(const Part& p, Instruction* pieces) { return Laid(b_.Broadcast(pieces, p.x->shape().dims(), p.kept), p.x); }
  // A row's number for each of its pieces.
  Instruction* ToPieces(const Part& p, Instruction* row) {
    if (p.left.empty()) return row;
    std::vector<Dim> dims;
    std::vector<int64_t> rows;
    for (size_t i = 0; i < p.kept.size(); ++i) {
      dims.push_back(p.x->shape().dim(p.kept[i]));
      if (!absl::c_linear_search(p.left, static_cast<int64_t>(i))) rows.push_back(static_cast<int64_t>(i));
    }
    return Laid(b_.Broadcast(row, dims, rows));
  }
  // The pieces of a row become one, of the parts one after the other.
  Instruction* OverPieces(const std::vector<Instruction*>& of_parts, Instruction* start, Opcode opcode) {
    Instruction* total = nullptr;
    for (size_t i = 0; i < parts_.size(); ++i) {
      Instruction* part = parts_[i].left.empty() ? of_parts[i] : Reduced(of_parts[i], start, parts_[i].left, opcode);
      total = total == nullptr ? part : Pieces(opcode, total, part);
    }
    return total;
  }

 private:
  // What makes x of `source`, on a part of that.
  Instruction* Widened(Instruction* x, const Instruction* source, Instruction* part) {
    return x == source ? part : Laid(b_.Convert(Widened(x->operand(0), source, part), x->shape().element_type()), part);
  }
  // `left`: of `all` dims that are reduced in the end those that pieces leave.
  void Add(Instruction* x, const std::vector<int64_t>& left, const std::vector<int64_t>& all) {
    Part p{.x = x};
    for (int64_t d = 0; d < x->shape().rank(); ++d) {
      if (absl::c_linear_search(left, d)) p.left.push_back(static_cast<int64_t>(p.kept.size()));
      if (absl::c_linear_search(left, d) || !absl::c_linear_search(all, d)) {
        p.kept.push_back(d);
      } else {
        p.inside.push_back(d);
        p.count *= x->shape().dim(d).constant();
      }
    }
    parts_.push_back(std::move(p));
  }
  Instruction* Of(Opcode opcode, Instruction* x, Instruction* y) { return y == nullptr ? b_.Unary(opcode, x) : b_.Binary(opcode, x, y); }
  Instruction* Reduced(Instruction* x, Instruction* start, const std::vector<int64_t>& dims, Opcode opcode) {
    Instruction* reduce = Laid(b_.Reduce(x, start, dims, opcode));
    made_->insert(reduce);
    return reduce;
  }

  Builder& b_;
  absl::flat_hash_set<const Instruction*>* made_;
  std::vector<Part> parts_;
};

// `value` takes the place of `reduce`.
void Replace(Builder& b, Instruction* reduce, Instruction* value) {
  value = b.Convert(value, reduce->shape().element_type());
  value->mutable_shape() = reduce->shape();
  reduce->parent()->ReplaceAndRemove(reduce, value);
}

// `total` is in f64, as are the converts of `sum` with excess precision.
void ReplaceSum(Builder& b, Instruction* sum, Instruction* total, bool excess_precision) {
  const std::vector<Instruction*> wide = excess_precision ? WideUsesOf(*sum) : std::vector<Instruction*>();
  if (wide.empty()) return Replace(b, sum, total);
  total->mutable_shape() = wide[0]->shape();
  ReplaceWide(sum, wide, total);
}

class Online {
 public:
  Online(std::vector<Pair> pairs, const Cut& cut, bool excess_precision, absl::flat_hash_set<const Instruction*>* made)
      : pairs_(std::move(pairs)), excess_precision_(excess_precision), b_(BuilderAt(*pairs_[0].second)), rows_(b_, pairs_[0], cut, made) {}

  void Replace() { pairs_[0].exponential ? Exponentials() : Squares(); }

 private:
  static Builder BuilderAt(const Instruction& op) {
    Builder b(op.parent());
    b.set_metadata(op.metadata());
    return b;
  }

  void Exponentials() {
    const PrimitiveType type = pairs_[0].x->shape().element_type();
    Instruction *first = pairs_[0].first, *start = b_.Convert(first->operand(1), type), *zero = b_.ScalarConstant(type, 0);
    std::vector<Instruction*> maxima, sums;
    for (const Rows::Part& p : rows_.parts()) {
      Instruction* max = rows_.OverPiece(p, p.x, start, Opcode::kMaximum);
      Instruction* size = rows_.Pieces(Opcode::kAbs, max);
      Instruction* infinite = rows_.Laid(b_.Compare(size, rows_.Number(size, INFINITY), "EQ"));
      Instruction* finite = rows_.Laid(b_.Select(infinite, rows_.Number(max, 0), max));
      Instruction* difference = rows_.Elements(p, Opcode::kSubtract, p.x, rows_.ToElements(p, finite));
      sums.push_back(rows_.OverPiece(p, rows_.Elements(p, Opcode::kExponential, difference), zero, Opcode::kAdd));
      maxima.push_back(max);
    }
    tenon::Replace(b_, first, rows_.OverPieces(maxima, start, Opcode::kMaximum));
    for (const Pair& pair : pairs_) {
      std::vector<Instruction*> scaled;
      for (size_t i = 0; i < sums.size(); ++i) {
        Instruction* c = rows_.ToPieces(rows_.parts()[i], pair.spread->operand(0));
        Instruction* factor = rows_.Pieces(Opcode::kExponential, rows_.Pieces(Opcode::kSubtract, maxima[i], c));
        scaled.push_back(rows_.Pieces(Opcode::kMultiply, sums[i], factor));
      }
      tenon::Replace(b_, pair.second, rows_.OverPieces(scaled, zero, Opcode::kAdd));
    }
  }

  void Squares() {
    constexpr PrimitiveType kWide = PrimitiveType::kF64;
    Instruction *first = pairs_[0].first, *wide_zero = b_.ScalarConstant(kWide, 0);
    auto sum_of = [&](const Rows::Part& p, Instruction* elements, const Instruction* like) {
      const PrimitiveType type = like->shape().element_type();
      Instruction* sum = rows_.OverPiece(p, rows_.Converted(elements, type, p.x), b_.ScalarConstant(type, 0), Opcode::kAdd);
      return rows_.Converted(sum, kWide);
    };
    std::vector<Instruction*> sums, means, squares;
    for (const Rows::Part& p : rows_.parts()) {
      Instruction* sum = sum_of(p, p.x, first);
      Instruction* mean = rows_.Pieces(Opcode::kMultiply, sum, rows_.Number(sum, 1 / static_cast<double>(p.count)));
      mean = rows_.Converted(mean, p.x->shape().element_type());
      Instruction* centered = rows_.Elements(p, Opcode::kSubtract, p.x, rows_.ToElements(p, mean));
      squares.push_back(sum_of(p, rows_.Elements(p, Opcode::kMultiply, centered, centered), pairs_[0].second));
      sums.push_back(sum);
      means.push_back(rows_.Converted(mean, kWide));
    }
    ReplaceSum(b_, first, rows_.OverPieces(sums, wide_zero, Opcode::kAdd), excess_precision_);
    for (const Pair& pair : pairs_) {
      std::vector<Instruction*> all;
      for (size_t i = 0; i < sums.size(); ++i) {
        const Rows::Part& p = rows_.parts()[i];
        Instruction* c = rows_.ToPieces(p, rows_.Converted(pair.spread->operand(0), kWide));
        Instruction* d = rows_.Pieces(Opcode::kSubtract, means[i], c);
        Instruction* count = rows_.Number(d, static_cast<double>(p.count));
        Instruction* rounded = rows_.Pieces(Opcode::kSubtract, sums[i], rows_.Pieces(Opcode::kMultiply, means[i], count));
        Instruction* along = rows_.Pieces(Opcode::kMultiply, d, count);
        along = rows_.Pieces(Opcode::kAdd, along, rows_.Pieces(Opcode::kAdd, rounded, rounded));
        Instruction* square = rows_.Pieces(Opcode::kAdd, squares[i], rows_.Pieces(Opcode::kMultiply, d, along));
        all.push_back(rows_.Pieces(Opcode::kMaximum, square, rows_.Number(square, 0)));
      }
      ReplaceSum(b_, pair.second, rows_.OverPieces(all, wide_zero, Opcode::kAdd), excess_precision_);
    }
  }

  const std::vector<Pair> pairs_;
  const bool excess_precision_;
  Builder b_;
  Rows rows_;
};

}  // namespace

absl::flat_hash_set<const Instruction*> ReduceOnline(Computation* c, PassContext& context) {
  if (context.target.kept_row_bytes == 0) return {};
  std::vector<std::vector<Pair>> all;  // those of one first reduction together
  for (Instruction* op : c->PostOrder()) {
    const std::optional<Pair> pair = PairOf(op);
    if (!pair) continue;
    const auto same = absl::c_find_if(all, [&](const std::vector<Pair>& pairs) { return pairs[0].first == pair->first; });
    if (same != all.end()) same->push_back(*pair);
    else all.push_back({*pair});
  }
  absl::flat_hash_set<const Instruction*> made;
  for (const std::vector<Pair>& pairs : all) {
    const std::optional<Cut> cut = CutOf(pairs[0], context.target);
    if (!cut) continue;
    context.Note("split-reductions", "split", *pairs[0].second,
                 absl::StrCat("rows of ", pairs[0].x->shape().num_elements().constant(), " elements, all in all, are read once for ",
                              pairs[0].exponential ? "maximum and sum of exponentials" : "sum and sum of squares", ", in pieces"));
    Online(pairs, *cut, context.excess_precision, &made).Replace();
  }
  return made;
}

}  // namespace tenon
