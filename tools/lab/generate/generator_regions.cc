// Regions of scalars: combiners of reductions and scatters, comparators of sorts.
#include "tools/lab/generate/generator.h"

namespace tenon::lab {
namespace {

std::vector<Opcode> CombinersOf(PrimitiveType type) {
  if (type == PrimitiveType::kPred) return {Opcode::kAnd, Opcode::kOr, Opcode::kXor, Opcode::kMaximum, Opcode::kMinimum};
  if (IsComplex(type)) return {Opcode::kAdd};
  if (IsFloat(type))
    return {Opcode::kAdd, Opcode::kAdd, Opcode::kAdd, Opcode::kMaximum, Opcode::kMinimum, Opcode::kMultiply, Opcode::kMultiply};
  return {Opcode::kAdd, Opcode::kMultiply, Opcode::kMaximum, Opcode::kMinimum, Opcode::kAnd, Opcode::kOr, Opcode::kXor};
}

Instruction* IsNan(Builder& b, Instruction* x) { return b.Compare(x, x, "NE"); }
Instruction* And(Builder& b, Instruction* x, Instruction* y) { return b.Binary(Opcode::kAnd, x, y); }
Instruction* Or(Builder& b, Instruction* x, Instruction* y) { return b.Binary(Opcode::kOr, x, y); }

// a stands before b, and a and b stand at one place; NaNs stand last, all at one place.
struct Order {
  Instruction *before, *tie;
};
Order OrderOf(Builder& b, Instruction* x, Instruction* y, bool descending) {
  Instruction* before = b.Compare(x, y, descending ? "GT" : "LT");
  Instruction* tie = b.Compare(x, y, "EQ");
  if (!IsFloat(x->shape().element_type())) return {before, tie};
  Instruction *x_nan = IsNan(b, x), *y_nan = IsNan(b, y);
  before = Or(b, before, And(b, y_nan, b.Unary(Opcode::kNot, x_nan)));
  return {before, Or(b, tie, And(b, x_nan, y_nan))};
}

}  // namespace

Combiner RandomCombiner(Scope& s, PrimitiveType type) {
  Combiner c;
  c.opcode = s.random().Pick(CombinersOf(type));
  c.sums = (c.opcode == Opcode::kAdd && (IsFloat(type) || IsComplex(type))) || (c.opcode == Opcode::kMultiply && IsFloat(type));
  if (!s.random().OneIn(3)) {
    c.computation = s.module()->ScalarComputation(c.opcode, type);
    return c;
  }
  c.computation = s.module()->AddComputation("combine");
  Builder b(c.computation);
  Instruction* x = b.Parameter(0, Shape::Scalar(type));
  Instruction* y = b.Parameter(1, Shape::Scalar(type));
  const bool widen = IsFloat(type) && BitWidth(type) < 32 && s.random().OneIn(2);
  if (widen) {
    x = b.Convert(x, PrimitiveType::kF32);
    y = b.Convert(y, PrimitiveType::kF32);
  }
  Instruction* z = b.Binary(c.opcode, y, x);
  c.computation->set_root(b.Convert(z, type));
  return c;
}

// a*2 + b, a - b, the last that isn't 0, ...: what order decides, with constants of its own.
Computation* OrderedCombiner(Scope& s, PrimitiveType type) {
  Computation* c = s.module()->AddComputation("ordered");
  Builder b(c);
  Instruction* x = b.Parameter(0, Shape::Scalar(type));
  Instruction* y = b.Parameter(1, Shape::Scalar(type));
  const double literal = static_cast<double>(s.random().Between(2, 3)) / (IsFloat(type) ? 4 : 1);
  Instruction* k = b.ScalarConstant(type, literal);
  const auto binary = [&](Opcode op, Instruction* l, Instruction* r) { return b.Binary(op, l, r); };
  Instruction* z = nullptr;
  switch (s.random().Below(5)) {
    case 0: z = binary(Opcode::kAdd, binary(Opcode::kMultiply, x, k), y); break;
    case 1: z = binary(Opcode::kSubtract, x, y); break;
    case 2: z = b.Select(b.Compare(y, b.ScalarConstant(type, 0), "NE"), y, x); break;
    case 3: z = binary(Opcode::kMaximum, binary(Opcode::kSubtract, x, k), y); break;
    default: z = binary(Opcode::kSubtract, y, binary(Opcode::kMultiply, x, k)); break;
  }
  c->set_root(z);
  return c;
}

Comparator RandomComparator(Scope& s, const std::vector<PrimitiveType>& types) {
  Comparator c{s.module()->AddComputation("compare")};
  Builder b(c.computation);
  std::vector<Instruction*> p;
  for (PrimitiveType type : types) {
    for (int side = 0; side < 2; ++side) p.push_back(b.Parameter(static_cast<int64_t>(p.size()), Shape::Scalar(type)));
  }
  const bool descending = s.random().OneIn(2);
  Order order = OrderOf(b, p[0], p[1], descending);
  Instruction* less = order.before;
  if (types.size() > 1 && s.random().OneIn(2)) {  // a second key
    const bool second_descending = s.random().OneIn(2);
    less = Or(b, less, And(b, order.tie, OrderOf(b, p[2], p[3], second_descending).before));
  } else if (types.size() == 1 && IsFloat(types[0]) && s.random().OneIn(2)) {
    less = b.Make(Opcode::kCompare, {p[0], p[1]}, [&] {
      Attributes attrs = With(Attr::kDirection, std::string(descending ? "GT" : "LT"));
      attrs.set(Attr::kComparisonType, std::string("TOTALORDER"));
      return attrs;
    }());
    c.total = true;
  }
  c.total = c.total || (types.size() == 1 && !IsFloat(types[0]));
  c.computation->set_root(less);
  return c;
}

// (value, index) pairs: the largest value, NaN above all, of equal ones the lowest index.
Computation* ArgMax(Scope& s, PrimitiveType type, PrimitiveType index) {
  Computation* c = s.module()->AddComputation("argmax");
  Builder b(c);
  Instruction* x = b.Parameter(0, Shape::Scalar(type));
  Instruction* i = b.Parameter(1, Shape::Scalar(index));
  Instruction* y = b.Parameter(2, Shape::Scalar(type));
  Instruction* j = b.Parameter(3, Shape::Scalar(index));
  Instruction* before = b.Compare(x, y, "GT");
  Instruction* tie = b.Compare(x, y, "EQ");
  if (IsFloat(type)) {
    Instruction *x_nan = IsNan(b, x), *y_nan = IsNan(b, y);
    before = Or(b, before, And(b, x_nan, b.Unary(Opcode::kNot, y_nan)));
    tie = Or(b, tie, And(b, x_nan, y_nan));
  }
  Instruction* take = Or(b, before, And(b, tie, b.Compare(i, j, "LT")));
  c->set_root(b.Tuple({b.Select(take, x, y), b.Select(take, i, j)}));
  return c;
}

}  // namespace tenon::lab
