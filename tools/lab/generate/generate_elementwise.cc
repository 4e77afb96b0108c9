// Elementwise rows. An op is made for the types that inference accepts and the evaluator has a kernel for.
#include <algorithm>
#include <cmath>

#include "hlo/eval/scalar_kernels.h"
#include "hlo/infer/infer.h"
#include "tools/lab/generate/generator.h"

namespace tenon::lab {
namespace {

bool IsTranscendental(Opcode opcode) {
  switch (opcode) {
    case Opcode::kAcos: case Opcode::kAcosh: case Opcode::kAsin: case Opcode::kAsinh: case Opcode::kAtan: case Opcode::kAtanh:
    case Opcode::kAtan2: case Opcode::kCbrt: case Opcode::kCosine: case Opcode::kCosh: case Opcode::kErf:
    case Opcode::kExponential: case Opcode::kExponentialMinusOne: case Opcode::kLog: case Opcode::kLogPlusOne:
    case Opcode::kLogistic: case Opcode::kPower: case Opcode::kRsqrt: case Opcode::kSine: case Opcode::kSinh:
    case Opcode::kTan: case Opcode::kTanh:
      return true;
    default:
      return false;
  }
}

// Bit-equal on every backend, given exact operands.
bool IsExact(Opcode opcode, PrimitiveType type) {
  if (IsFloat(type)) return !IsTranscendental(opcode);
  if (!IsComplex(type)) return true;
  return opcode == Opcode::kAdd || opcode == Opcode::kSubtract || opcode == Opcode::kNegate || opcode == Opcode::kReal ||
         opcode == Opcode::kImag;
}

// What carries a bound from its operands to its result (error_bound.h).
bool TakesInexact(Opcode opcode, PrimitiveType type) {
  if (!IsFloat(type)) return opcode == Opcode::kNegate && IsComplex(type);
  return BitWidth(type) >= 16 && opcode != Opcode::kRemainder;
}

// Whether the evaluator computes `opcode` on n arrays of the type.
bool Defined(Opcode opcode, PrimitiveType type, int n) {
  const Instruction x(Opcode::kParameter, Shape::Scalar(type), {});
  Instruction* operand = const_cast<Instruction*>(&x);
  const std::vector<Instruction*> operands(n, operand);
  const absl::StatusOr<Shape> shape = InferShape(opcode, operands, {});
  return shape.ok() && eval::KernelOf(opcode, type, shape->element_type()) != nullptr;
}

double SmallResult(Opcode opcode, double a, double b) {
  switch (opcode) {
    case Opcode::kAbs: case Opcode::kNegate: case Opcode::kFloor: case Opcode::kCeil: case Opcode::kRoundNearestAfz:
    case Opcode::kRoundNearestEven: case Opcode::kReal:
      return a;
    case Opcode::kSign: return 1;
    case Opcode::kAdd: case Opcode::kSubtract: return a + b;
    case Opcode::kMultiply: return a == kNotSmall || b == kNotSmall ? kNotSmall : a * b;
    case Opcode::kMaximum: case Opcode::kMinimum: return std::max(a, b);
    default: return kNotSmall;
  }
}

bool Unary(Scope& s, Opcode opcode) {
  // Of few values one that lies between two of them is all of a broadcast.
  const bool wide = s.is_large() && IsTranscendental(opcode);
  const auto defined = [&](PrimitiveType t) { return Defined(opcode, t, 1) && (!wide || !IsFloat(t) || BitWidth(t) >= 16); };
  Value x = s.OfType(defined);
  if (s.random().OneIn(4)) {  // carry an inexact value on
    if (auto v = s.Find([&](const Value& v) { return !v.exact && defined(v.type()) && TakesInexact(opcode, v.type()); })) x = *v;
  }
  Instruction* y = s.Try(opcode, {x.op});
  if (y == nullptr) return false;
  // Signs of NaN are ours to give: negate and abs of one.
  s.Add(y, x.exact && IsExact(opcode, x.type()), SmallResult(opcode, x.small, 0));
  return true;
}

bool Binary(Scope& s, Opcode opcode) {
  const bool wide = s.is_large() && IsTranscendental(opcode);
  const auto defined = [&](PrimitiveType t) { return Defined(opcode, t, 2) && (!wide || !IsFloat(t) || BitWidth(t) >= 16); };
  Value x = s.OfType(defined);
  Value y = s.Shaped(x.type(), x.dims());
  if (s.random().OneIn(4) && !wide) {
    const auto inexact = [&](const Value& v) { return !v.exact && defined(v.type()) && TakesInexact(opcode, v.type()); };
    if (auto v = s.Find(inexact)) {
      x = *v;
      y = s.Shaped(x.type(), x.dims());
      if (s.random().OneIn(2)) std::swap(x, y);
    }
  }
  Instruction* z = s.Try(opcode, {x.op, y.op});
  if (z == nullptr) return false;
  const double small = SmallResult(opcode, x.small, y.small);
  s.Add(z, x.exact && y.exact && IsExact(opcode, x.type()), small);
  return true;
}

bool Compare(Scope& s, Opcode) {
  constexpr std::string_view kDirections[] = {"LT", "LE", "GT", "GE", "EQ", "NE"};
  Value x = s.Exact();
  Value y = s.Shaped(x.type(), x.dims());
  std::string direction(kDirections[s.random().Below(6)]);
  if (IsComplex(x.type())) direction = s.random().OneIn(2) ? "EQ" : "NE";
  Attributes attrs = With(Attr::kDirection, direction);
  if (IsFloat(x.type()) && s.random().OneIn(3)) {
    attrs.set(Attr::kComparisonType, std::string("TOTALORDER"));
    x = s.WithDefinedNans(x), y = s.WithDefinedNans(y);
  } else if (s.random().OneIn(4)) {
    const bool is_signed = IsSigned(x.type());
    attrs.set(Attr::kComparisonType, std::string(IsIntegral(x.type()) ? (is_signed ? "SIGNED" : "UNSIGNED")
                                                 : x.type() == PrimitiveType::kPred ? "UNSIGNED" : "FLOAT"));
  }
  Instruction* z = s.Try(Opcode::kCompare, {x.op, y.op}, attrs);
  return z != nullptr && (s.Add(z), true);
}

bool Select(Scope& s, Opcode) {
  const Value a = s.Any();
  const Value b = s.Shaped(a.type(), a.dims());
  const bool scalar = s.random().OneIn(4);
  const Value p = s.Shaped(PrimitiveType::kPred, scalar ? std::vector<Dim>{} : a.dims());
  Instruction* y = s.Try(Opcode::kSelect, {p.op, a.op, b.op});
  if (y == nullptr) return false;
  s.Add(y, a.exact && b.exact, std::max(a.small, b.small), a.moved && b.moved);
  return true;
}

bool Clamp(Scope& s, Opcode) {
  const Value x = s.OfType([](PrimitiveType t) { return Defined(Opcode::kClamp, t, 3); });
  const bool low_scalar = s.random().OneIn(2), high_scalar = s.random().OneIn(2);
  const Value low = s.Shaped(x.type(), low_scalar ? std::vector<Dim>{} : x.dims());
  const Value high = s.Shaped(x.type(), high_scalar ? std::vector<Dim>{} : x.dims());
  Instruction* y = s.Try(Opcode::kClamp, {low.op, x.op, high.op});
  if (y == nullptr) return false;
  s.Add(y, true, std::max({x.small, low.small, high.small}));
  return true;
}

bool Convert(Scope& s, Opcode) {
  Value x = s.Any();
  const PrimitiveType to = s.Type();
  // A bounded value may be narrowed to another float, nothing else.
  if (!x.exact && !(IsFloat(x.type()) && IsFloat(to) && BitWidth(to) >= 16)) x = s.Exact();
  if (x.type() == to) return false;
  if (x.exact && IsFloat(x.type()) && BitWidth(x.type()) > 16 && s.random().OneIn(3)) {  // to a narrower type and back
    const int bits = BitWidth(x.type());
    const PrimitiveType via = s.Type([&](PrimitiveType t) { return IsFloat(t) && BitWidth(t) < bits && t != PrimitiveType::kF8E8M0FNU; });
    s.Add(s.b().Convert(s.b().Convert(x.op, via), x.type()));
    return true;
  }
  Instruction* y = s.Try(Opcode::kConvert, {s.WithinHalf(x.op, to)}, {}, Shape(to, x.dims()));
  if (y == nullptr) return false;
  s.Add(y, x.exact, IsFloat(to) && IsFloat(x.type()) ? x.small : kNotSmall);
  return true;
}

bool BitcastConvert(Scope& s, Opcode) {
  Value x = s.Exact();
  const auto stored = [](PrimitiveType t) { return t == PrimitiveType::kPred ? 8 : BitWidth(t); };
  const PrimitiveType from = x.type();
  // To pred only from pred: other bits than 0 and 1 are none of its values.
  const PrimitiveType to = s.Type([&](PrimitiveType t) { return t != PrimitiveType::kPred && stored(t) != 1; });
  if (to == from || stored(from) == 1) return false;
  x = s.WithDefinedNans(x);
  std::vector<Dim> dims = x.dims();
  const int a = stored(from), b = stored(to);
  if (a > b) dims.push_back(a / b);
  if (a < b) {
    if (dims.empty() || dims.back() != Dim(b / a)) return false;
    dims.pop_back();
  }
  Instruction* y = s.Try(Opcode::kBitcastConvert, {x.op}, {}, Shape(to, dims));
  return y != nullptr && (s.Add(y), true);
}

bool ReducePrecision(Scope& s, Opcode) {
  const Value x = s.OfType([](PrimitiveType t) { return eval::KernelOf(Opcode::kReducePrecision, t, t) != nullptr && IsFloat(t); });
  Attributes attrs = With(Attr::kExponentBits, s.random().Between(2, 11));
  // Of no mantissa a NaN becomes an infinity of its sign, which nothing defines (tests/backends runs that with NaNs of known bits).
  attrs.set(Attr::kMantissaBits, s.random().Between(1, 24));
  Instruction* y = s.Try(Opcode::kReducePrecision, {x.op}, attrs);
  return y != nullptr && (s.Add(y), true);
}

bool StochasticConvert(Scope& s, Opcode) {
  const auto bits_of = [](PrimitiveType t) {
    switch (BitWidth(t)) {
      case 8: return PrimitiveType::kU8;
      case 16: return PrimitiveType::kU16;
      case 32: return PrimitiveType::kU32;
      default: return PrimitiveType::kU64;
    }
  };
  const Value x = s.OfType([](PrimitiveType t) { return IsFloat(t) && BitWidth(t) >= 8; });
  const Value random = s.Shaped(bits_of(x.type()), x.dims());
  const PrimitiveType to = s.Type([](PrimitiveType t) { return IsSigned(t); });
  Instruction* y = s.Try(Opcode::kStochasticConvert, {x.op, random.op}, {}, Shape(to, x.dims()));
  return y != nullptr && (s.Add(y), true);
}

bool Complex(Scope& s, Opcode) {
  const Value re = s.OfType([](PrimitiveType t) { return t == PrimitiveType::kF32 || t == PrimitiveType::kF64; });
  const Value im = s.Shaped(re.type(), re.dims());
  Instruction* y = s.Try(Opcode::kComplex, {re.op, im.op});
  return y != nullptr && (s.Add(y, true, kNotSmall, re.moved && im.moved), true);
}

// A region of a few exact scalar ops on one to three arrays.
bool Map(Scope& s, Opcode) {
  const Value x = s.Exact();
  const int64_t count = s.random().Between(1, 3);
  Computation* region = s.module()->AddComputation("map");
  Scope body(s.g(), region, s.depth() + 1);
  std::vector<Instruction*> operands;
  for (int64_t k = 0; k < count; ++k) {
    const Value operand = k == 0 ? x : s.Shaped(s.Type(), x.dims());
    operands.push_back(operand.op);
    body.Add(body.b().Parameter(k, Shape::Scalar(operand.type())), true, kNotSmall, operand.moved);
  }
  const Value first = body.values()[s.random().Below(count)];
  Value result = first;
  for (int64_t n = s.random().Between(1, 4); n > 0; --n) {
    const std::vector<Opcode> ops = {Opcode::kAdd, Opcode::kMaximum, Opcode::kMinimum, Opcode::kMultiply, Opcode::kSubtract,
                                     Opcode::kXor, Opcode::kAnd,     Opcode::kNegate,  Opcode::kCompare,  Opcode::kConvert};
    const Opcode op = s.random().Pick(ops);
    const Value a = body.Exact();
    const Value b = body.Shaped(a.type(), {});
    Instruction* made = nullptr;
    if (op == Opcode::kConvert) {
      const PrimitiveType to = body.Type();
      if (to != a.type()) made = body.b().Convert(a.op, to);
    } else if (op == Opcode::kCompare) {
      made = body.b().Compare(a.op, b.op, "NE");
    } else if (Defined(op, a.type(), InfoOf(op).max_operands) && IsExact(op, a.type())) {
      made = InfoOf(op).max_operands == 1 ? body.b().Unary(op, a.op) : body.b().Binary(op, a.op, b.op);
    }
    if (made != nullptr) result = body.Add(made);
  }
  region->set_root(result.op);
  std::vector<int64_t> dimensions(x.rank());
  for (int64_t d = 0; d < x.rank(); ++d) dimensions[d] = d;
  Attributes attrs = With(Attr::kDimensions, dimensions);
  attrs.set(Attr::kToApply, region);
  Instruction* y = s.Try(Opcode::kMap, operands, attrs);
  return y != nullptr && (s.Add(y), true);
}

bool BatchNormInference(Scope& s, Opcode) {
  const int bits = s.is_large() ? 32 : 16;
  const Value any = s.OfRank(1, 4, [&](PrimitiveType t) { return IsFloat(t) && BitWidth(t) >= bits; });
  const bool spread = s.is_large() || s.random().OneIn(2);
  const Value x = spread ? s.Spread(any) : any;
  const int64_t feature = s.random().Below(x.rank());
  std::vector<Instruction*> operands = {x.op};
  for (int k = 0; k < 3; ++k) {
    const Value v = s.Shaped(x.type(), {x.dim(feature)});
    operands.push_back(spread ? s.Small(v).op : v.op);
  }
  const Value given = s.Shaped(x.type(), {x.dim(feature)}), variance = spread ? s.Small(given) : given;
  operands.push_back(s.Add(s.b().Unary(Opcode::kAbs, variance.op)).op);
  Attributes attrs = With(Attr::kEpsilon, s.random().OneIn(2) ? 1e-3 : 1.0);
  attrs.set(Attr::kFeatureIndex, feature);
  Instruction* y = s.Try(Opcode::kBatchNormInference, operands, attrs);
  return y != nullptr && (s.Add(y, false), true);
}

std::vector<Row> MakeRows() {
  std::vector<Row> rows = {{Opcode::kCompare, Compare},
                           {Opcode::kSelect, Select},
                           {Opcode::kClamp, Clamp},
                           {Opcode::kConvert, Convert},
                           {Opcode::kBitcastConvert, BitcastConvert},
                           {Opcode::kReducePrecision, ReducePrecision},
                           {Opcode::kStochasticConvert, StochasticConvert},
                           {Opcode::kComplex, Complex},
                           {Opcode::kMap, Map},
                           {Opcode::kBatchNormInference, BatchNormInference}};
  for (int n = 0; n < kNumOpcodes; ++n) {
    const auto opcode = static_cast<Opcode>(n);
    const OpInfo& info = InfoOf(opcode);
    const bool has_row = std::any_of(rows.begin(), rows.end(), [&](const Row& r) { return r.opcode == opcode; });
    if (info.family != Family::kElementwise || has_row || !info.required.empty()) continue;
    if (info.max_operands == 1) rows.push_back({opcode, Unary});
    if (info.max_operands == 2) rows.push_back({opcode, Binary});
  }
  return rows;
}

}  // namespace

absl::Span<const Row> ElementwiseRows() {
  static const auto* rows = new std::vector<Row>(MakeRows());
  return *rows;
}

}  // namespace tenon::lab
