#include "tools/lab/generate/generator.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "hlo/infer/infer.h"
#include "hlo/tolerance.h"
#include "tools/lab/judge/error_rules.h"

namespace tenon::lab {
namespace {

// Of at least nothing, whatever the sizes.
bool DimsAreSizes(const Shape& shape) {
  for (Dim d : shape.dims()) {
    if (!d.is_constant() && LowerBound(d) < 0) return false;
  }
  return true;
}

constexpr int64_t kTooMany = int64_t{1} << 40;  // more elements than any array has

// Of numbers at most kTooMany.
Dim Product(absl::Span<const Dim> dims) {
  int64_t n = 1;
  Dim symbolic = 1;
  for (Dim dim : dims) {
    if (const int64_t d = dim.constant_or(1); d > 0 && n > kTooMany / d) n = kTooMany;
    else n *= d;
    if (!dim.is_constant()) symbolic = symbolic * dim;
  }
  return symbolic * Dim(n);
}

constexpr PrimitiveType kAllTypes[] = {
#define TENON_TYPE(e, ...) PrimitiveType::e,
#include "hlo/types.def"
};

}  // namespace

double ExactIntegers(PrimitiveType type) {
  const double epsilon = EpsilonOf(type);
  if (!IsFloat(ComplexComponent(type)) || type == PrimitiveType::kF8E8M0FNU) return 0;
  // Narrow ranges end before the mantissa does.
  const double by_range = BitWidth(type) > 8 ? kNotSmall : type == PrimitiveType::kF4E2M1FN ? 4 : type == PrimitiveType::kF8E3M4 ? 15 : 16;
  return std::min(by_range, 2 / epsilon);
}

Attributes With(Attr attr, AttrValue value) {
  Attributes attrs;
  attrs.set(attr, std::move(value));
  return attrs;
}

std::vector<int64_t> Shuffled(Random& random, int64_t n) {
  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = n - 1; i > 0; --i) std::swap(order[i], order[random.Below(i + 1)]);
  return order;
}

std::vector<int64_t> Subset(Random& random, int64_t n, int64_t count) {
  std::vector<int64_t> all = Shuffled(random, n);
  all.resize(std::min(n, count));
  std::sort(all.begin(), all.end());
  return all;
}

Instruction* Part(Scope& s, Instruction* tuple, int64_t index) { return s.b().GetTupleElement(tuple, index); }

void Scope::Grow(int64_t rows) {
  const int64_t tries = 4 * rows;
  for (int64_t done = 0, tried = 0; done < rows && tried < tries; ++tried) {
    const Row& row = random().Pick(g_.menu);
    if (row.make(*this, row.opcode)) ++done;
  }
}

Value Scope::Add(Instruction* op, bool exact, double small, bool moved) {
  // What is not a float has exact integers anyway; a claim that outgrows the type is none.
  if (small > ExactIntegers(op->shape().element_type())) small = kNotSmall;
  bool bounded = false;
  for (int64_t d = 0; d < op->shape().rank(); ++d) bounded = bounded || op->shape().is_dynamic(d);
  if (g_.options.layouts && op->shape().is_array() && op->shape().rank() > 1 && !bounded && !op->shape().has_layout() &&
      op->opcode() != Opcode::kParameter && random().OneIn(g_.layout_every)) {
    const std::vector<int64_t> order = Shuffled(random(), op->shape().rank());
    op->mutable_shape().set_layout(order);
  }
  values_.push_back({op, exact, small, moved});
  return values_.back();
}

Instruction* Scope::Try(Opcode opcode, absl::Span<Instruction* const> operands, Attributes attrs, std::optional<Shape> declared) {
  absl::StatusOr<Shape> shape = InferShape(opcode, operands, attrs, declared.has_value() ? &*declared : nullptr);
  if (!shape.ok()) return nullptr;
  for (const Shape& leaf : FlattenShape(*shape)) {
    if (leaf.is_array() && (!Fits(leaf.dims()) || !DimsAreSizes(leaf))) return nullptr;
  }
  return b_.Make(opcode, operands, std::move(attrs), declared);
}

double Scope::Most(Dim d) const {
  if (d.is_constant()) return static_cast<double>(d.constant());
  double most = 0;
  for (const Sizes& sizes : g_.probes) {
    // What no number can say is too much for every purpose.
    const absl::StatusOr<int64_t> size = SizeOf(d, sizes);
    most = std::max(most, size.ok() ? static_cast<double>(*size) : static_cast<double>(kTooMany));
  }
  return most;
}

double Scope::Most(absl::Span<const Dim> dims) const { return Most(Product(dims)); }

bool Scope::Fits(absl::Span<const Dim> dims) const {
  const bool numbers = std::all_of(dims.begin(), dims.end(), [](Dim d) { return d.is_constant(); });
  // One large size among small ones is what symbols are run with, and more than a module of numbers has.
  const int64_t times = numbers ? 1 : 8;
  return Most(dims) <= static_cast<double>(times * g_.options.max_elements);
}

bool Scope::WouldBeRefused(absl::Span<const Dim> dims) {
  const bool numbers = std::all_of(dims.begin(), dims.end(), [](Dim d) { return d.is_constant(); });
  return !numbers && !random().OneIn(16);
}

Dim Scope::SizeOr(int64_t number, int64_t least) {
  if (g_.symbols.empty() || random().OneIn(2)) return number;
  const Dim d = Size();
  return Least(d) < least ? Dim(number) : d;
}

PrimitiveType Scope::Type(const TypePredicate& fits) {
  std::vector<PrimitiveType> choices;
  for (PrimitiveType t : g_.types) {
    if (fits(t)) choices.push_back(t);
  }
  if (!choices.empty() && (!g_.options.types.empty() || !random().OneIn(16))) return random().Pick(choices);
  choices.clear();
  for (PrimitiveType t : kAllTypes) {
    if (IsArrayType(t) && fits(t)) choices.push_back(t);
  }
  TENON_CHECK(!choices.empty(), "no type fits");
  return random().Pick(choices);
}

std::vector<Dim> Scope::Dims(int64_t low_rank, int64_t high_rank) {
  const int64_t rank = random().Between(low_rank, high_rank);
  std::vector<Dim> dims(random().OneIn(2) ? rank : random().Between(low_rank, rank));
  for (Dim& d : dims) d = Size();
  while (!Fits(dims)) {
    Dim& largest = *std::max_element(dims.begin(), dims.end(), [&](Dim a, Dim b) { return Most(a) < Most(b); });
    largest = is_large() && largest.is_constant() ? Dim(largest.constant() / random().Between(2, 9)) : Dim(random().Between(1, 4));
  }
  return dims;
}

std::optional<Value> Scope::Find(const std::function<bool(const Value&)>& fits) {
  std::vector<const Value*> found;
  for (const Value& v : values_) {
    if (fits(v)) found.push_back(&v);
  }
  if (found.empty()) return std::nullopt;
  // Newer ones twice as often: chains get long.
  const int64_t n = static_cast<int64_t>(found.size());
  return *found[random().OneIn(2) ? n - 1 - random().Below((n + 1) / 2) : random().Below(n)];
}

// The order of a call's arguments is the compiler's choice, so no call here draws twice.
Value Scope::RandomLeaf() {
  const PrimitiveType type = Type();
  return Leaf(type, Dims());
}

Value Scope::Any() {
  if (std::optional<Value> v = Find([](const Value&) { return true; })) return *v;
  return RandomLeaf();
}

Value Scope::Exact() {
  if (std::optional<Value> v = Find([](const Value& x) { return x.exact; })) return *v;
  return RandomLeaf();
}

Value Scope::OfType(const TypePredicate& fits) {
  if (std::optional<Value> v = Find([&](const Value& x) { return x.exact && fits(x.type()); })) return *v;
  const PrimitiveType type = Type(fits);
  if (random().OneIn(2)) return Leaf(type, Dims());
  const Value x = Exact();
  return Add(b_.Convert(WithinHalf(x.op, type), type));
}

Value Scope::OfRank(int64_t low, int64_t high, const TypePredicate& fits) {
  if (std::optional<Value> v =
          Find([&](const Value& x) { return x.exact && x.rank() >= low && x.rank() <= high && fits(x.type()); })) {
    return *v;
  }
  const PrimitiveType type = Type(fits);
  return Shaped(type, Dims(low, high));
}

Value Scope::Constant(PrimitiveType type, const std::vector<Dim>& dims) {
  const Shape shape(type, dims);
  constexpr Style kStyles[] = {Style::kSpecial, Style::kSmallIntegers, Style::kSmallIntegers, Style::kUnit, Style::kPowers, Style::kBits};
  const Style style = random().Pick(kStyles);
  if (shape.is_static() && (dims.empty() || !random().OneIn(3))) {
    const Literal literal = RandomArray(shape, style, random());
    return Add(b_.Constant(literal), true, style == Style::kSmallIntegers && IsFloat(type) ? 4 : kNotSmall, true);
  }
  const Literal one = RandomArray(Shape::Array(type, {}), style, random());
  return Add(b_.Broadcast(b_.Constant(one), dims, {}), true, style == Style::kSmallIntegers && IsFloat(type) ? 4 : kNotSmall, true);
}

Value Scope::Leaf(PrimitiveType type, const std::vector<Dim>& dims) {
  const int64_t parameters = static_cast<int64_t>(b_.computation()->parameters().size());
  if (is_entry() && parameters < 8 && !random().OneIn(4)) {
    Shape shape(type, dims);
    if (g_.options.layouts && dims.size() > 1 && random().OneIn(4)) shape.set_layout(Shuffled(random(), dims.size()));
    return Add(b_.Parameter(parameters, shape), true, kNotSmall, true);
  }
  if (!dims.empty() && type != PrimitiveType::kPred && random().OneIn(4)) {
    const int64_t dim = random().Below(dims.size());
    const double most = std::max(Most(dims[dim]) - 1, 0.0);
    if (!CountsTo(type, most)) return Constant(type, dims);
    return Add(b_.Iota(Shape(type, dims), dim), true, IsFloat(type) ? most : kNotSmall, true);
  }
  return Constant(type, dims);
}

// x brought to dims of the same rank, of which some differ by more than a number: slices what is surely larger, adds to what is surely
// smaller, repeats the first of the others. nullptr: there may be none.
Instruction* Scope::Resized(Instruction* x, const std::vector<Dim>& dims) {
  std::vector<int64_t> kept;
  std::vector<Dim> ones;
  for (int64_t d = 0; d < x->shape().rank(); ++d) {
    const Dim from = x->shape().dim(d), to = dims[static_cast<size_t>(d)];
    if (LowerBound(from - to) >= 0) {
      const Dim start = random().OneIn(2) ? Dim(0) : from - to;
      x = b_.SliceDim(x, d, start, start + to);
    } else if (LowerBound(to - from) >= 0 && random().OneIn(2)) {
      std::vector<Dim> rest(x->shape().dims().begin(), x->shape().dims().end());
      rest[static_cast<size_t>(d)] = to - from;
      if (!Fits(rest)) return nullptr;
      Instruction* more = b_.Broadcast(Constant(x->shape().element_type(), {}).op, rest, {});
      x = random().OneIn(2) ? b_.Concatenate({x, more}, d) : b_.Concatenate({more, x}, d);
    } else if (Least(from) > 0) {
      x = b_.SliceDim(x, d, 0, 1);
      continue;
    } else {
      return nullptr;
    }
    kept.push_back(d);
    ones.push_back(to);
  }
  if (kept.size() == dims.size()) return x;
  return b_.Broadcast(b_.Reshape(x, ones), dims, kept);
}

Value Scope::Shaped(PrimitiveType type, const std::vector<Dim>& dims) {
  const auto same_dims = [&](const Value& x) { return x.exact && x.dims() == dims; };
  if (!random().OneIn(12)) {
    if (auto v = Find([&](const Value& x) { return same_dims(x) && x.type() == type; })) return *v;
  }
  const Dim n = Product(dims);
  // Something of another shape, brought to this one.
  for (int attempt = 0; attempt < 3; ++attempt) {
    const Value x = Exact();
    Value y = x;
    if (x.dims() == dims) {
    } else if (Product(x.dims()) == n && random().OneIn(2)) {
      y = Moved(b_.Reshape(x.op, dims), x);
    } else if (x.rank() == 0) {
      y = Moved(b_.Broadcast(x.op, dims, {}), x);
    } else if (x.rank() == 1 && std::find(dims.begin(), dims.end(), x.dim(0)) != dims.end()) {
      const int64_t at = std::find(dims.begin(), dims.end(), x.dim(0)) - dims.begin();
      y = Moved(b_.Broadcast(x.op, dims, {at}), x);
    } else if (x.rank() == static_cast<int64_t>(dims.size())) {
      // Slices what is larger, pads what is smaller.
      PaddingConfig padding;
      bool by_numbers = true;
      for (size_t d = 0; d < dims.size(); ++d) {
        const Dim difference = dims[d] - x.dim(static_cast<int64_t>(d));
        by_numbers = by_numbers && difference.is_constant();
        const int64_t grow = difference.constant_or(0);
        const int64_t low = grow > 0 ? random().Between(0, grow) : grow < 0 ? -random().Between(0, -grow) : 0;
        padding.dims.push_back({low, grow - low, 0});
      }
      if (by_numbers) {
        const Value fill = Constant(x.type(), {});
        y = Add(b_.Pad(x.op, fill.op, padding), true, std::max(x.small, fill.small), x.moved);
      } else if (Instruction* resized = Resized(x.op, dims)) {
        y = Add(resized);
      } else {
        continue;
      }
    } else {
      continue;
    }
    if (y.type() == type) return y;
    const bool small = IsFloat(type) && y.small <= ExactIntegers(type);
    return Add(b_.Convert(WithinHalf(y.op, type), type), true, small ? y.small : kNotSmall);
  }
  return Leaf(type, dims);
}

Instruction* Scope::WithinHalf(Instruction* x, PrimitiveType half) {
  const PrimitiveType from = x->shape().element_type();
  const double bound = half == PrimitiveType::kF16 ? 1000 : 1e30;
  if (!IsHalfType(half) || random().OneIn(4)) return x;
  if (IsIntegral(from) && BitWidth(from) >= 16 && half == PrimitiveType::kF16) {
    return b_.Binary(Opcode::kRemainder, x, b_.FullLike(x, bound));
  }
  if (!IsFloat(from) || LargestFinite(from) <= LargestFinite(half)) return x;
  return b_.Make(Opcode::kClamp, {b_.ScalarConstant(from, -bound), x, b_.ScalarConstant(from, bound)}, {});
}

Value Scope::Small(const Value& x) {
  if (!IsFloat(x.type())) return x;
  if (x.exact && x.small <= 4) return x;
  Instruction* narrow = b_.Convert(x.op, PrimitiveType::kS4);
  Instruction* four = b_.FullLike(narrow, 4);
  narrow = b_.Binary(Opcode::kRemainder, narrow, four);  // -3 .. 3
  return Add(b_.Convert(narrow, x.type()), true, 3, true);
}

Value Scope::WithDefinedNans(const Value& x) {
  if (x.moved || !IsFloat(ComplexComponent(x.type()))) return x;
  Instruction* number = b_.Compare(x.op, x.op, "EQ");
  return Add(b_.Select(number, x.op, b_.FullLike(x.op, 1)), x.exact, kNotSmall, true);
}

Value Scope::Spread(const Value& x) {
  if (!IsFloat(x.type())) return x;
  Instruction* sum = b_.Convert(Small(x).op, PrimitiveType::kS32);
  for (int64_t d = 0; d < x.rank(); ++d) {
    Instruction* at = b_.Iota(Shape(PrimitiveType::kS32, x.dims()), d);
    sum = b_.Binary(Opcode::kAdd, sum, b_.Binary(Opcode::kRemainder, at, b_.FullLike(at, 3)));
  }
  return Add(b_.Convert(sum, x.type()), true, 3 + 2.0 * static_cast<double>(x.rank()));
}

std::vector<Row> AllRows() {
  std::vector<Row> rows;
  for (absl::Span<const Row> family : {ElementwiseRows(), MovementRows(), ReductionRows(), ContractionRows(), IndexingRows(),
                                       ControlRows(), RandomRows(), LinalgRows(), CollectiveRows()}) {
    rows.insert(rows.end(), family.begin(), family.end());
  }
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.opcode < b.opcode; });
  return rows;
}

}  // namespace tenon::lab
