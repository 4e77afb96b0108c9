// Errors through elementwise ops: what a transcendental function adds, how simple arithmetic carries what is there.
#include <algorithm>
#include <cmath>

#include "hlo/builder.h"
#include "hlo/eval/evaluator.h"
#include "hlo/eval/scalar_op.h"
#include "hlo/own_calls.h"
#include "hlo/tolerance.h"
#include "tools/lab/judge/error_rules.h"

namespace tenon::lab {
namespace {

// Units in the last place by which a right transcendental function may be off the exact value (docs/accuracy.md: below one in f32,
// which narrower types are computed in; f64 is libm's, some by formula, or our own within two units).
double UlpsOf(PrimitiveType type) { return type == PrimitiveType::kF64 ? 4 : 1; }

bool IsWide(PrimitiveType type) { return type == PrimitiveType::kF64 || type == PrimitiveType::kF8E8M0FNU; }

using Doubles = std::vector<double>;

// `i` on doubles, element by element.
absl::StatusOr<Doubles> OnDoubles(const Instruction& i, const std::vector<Doubles>& operands, size_t n) {
  if (i.opcode() == Opcode::kConvert) return operands[0];
  Instruction x(Opcode::kParameter, Shape::Scalar(PrimitiveType::kF64), {});
  const std::vector<Instruction*> of(operands.size(), &x);
  const std::unique_ptr<Instruction> in_double = i.CloneWithShape(Shape::Scalar(PrimitiveType::kF64), of);
  TENON_ASSIGN_OR_RETURN(const eval::ScalarOp op, eval::ScalarOp::Resolve(*in_double));
  std::vector<eval::ScalarOp::Operand> in;
  for (const Doubles& o : operands) in.push_back({reinterpret_cast<const std::byte*>(o.data())});
  Doubles out(n);
  op.Run(in, reinterpret_cast<std::byte*>(out.data()), static_cast<int64_t>(n));
  return out;
}

// Never kZeroSign, which is the smallest double and says that only a sign is open.
double Distance(double a, double v) {
  if (a == v || (std::isnan(a) && std::isnan(v))) return 0;
  return std::isnan(a) || std::isnan(v) ? kUnknown : std::max(std::fabs(a - v), 2 * kZeroSign);
}

// Where one elementwise result lies before it is rounded to its type: between the results at the corners of what the operands may be.
struct Range {
  double low = kUnknown, high = -kUnknown;
  bool nan = false, number = false;

  void Add(double x) {
    (std::isnan(x) ? nan : number) = true;
    if (std::isnan(x)) return;
    low = std::min(low, x), high = std::max(high, x);
  }
};

// Between the corners there is no larger and no smaller result: true of what is monotone in each operand, which these need a reason for.
bool CornersSuffice(Opcode opcode, const double* low, const double* high) {
  const bool spans = low[0] <= 0 && high[0] >= 0;
  switch (opcode) {
    case Opcode::kDivide: return low[1] > 0 || high[1] < 0 || (low[1] == high[1] && std::signbit(low[1]) == std::signbit(high[1]));
    case Opcode::kRemainder:
      return (low[1] > 0 || high[1] < 0) && std::trunc(low[0] / low[1]) == std::trunc(high[0] / high[1]) &&
             std::trunc(low[0] / high[1]) == std::trunc(high[0] / low[1]) && std::trunc(low[0] / low[1]) == std::trunc(low[0] / high[1]);
    case Opcode::kPower: return low[0] > 0;
    case Opcode::kAtan2: return low[1] > 0 || !spans;
    case Opcode::kTan: return high[0] - low[0] < 1 && std::cos(low[0]) * std::cos(high[0]) > 0;
    case Opcode::kRsqrt: return low[0] > 0;
    case Opcode::kAsin: case Opcode::kAcos: case Opcode::kAtanh: return low[0] >= -1 || high[0] <= 1;  // else numbers lie between two NaNs
    default: return true;
  }
}

// Elementwise ops of floats with a float result. With `excess`, half results may keep what f32 holds.
class FloatRule {
 public:
  FloatRule(const Instruction& i, Shadows operands, const Literal& value, bool excess)
      : i_(i), operands_(operands), value_(value), n_(static_cast<size_t>(value.num_elements())), type_(value.type()),
        excess_(excess && IsHalfType(type_)), transcendental_(IsTranscendental(i.opcode())) {}

  absl::StatusOr<Known> Run() {
    FillOperands();
    TENON_RETURN_IF_ERROR(FillRanges());
    Doubles low(n_), high(n_);
    for (size_t n = 0; n < n_; ++n) low[n] = Widened(n, ranges_[n].low, -1), high[n] = Widened(n, ranges_[n].high, 1);
    const Doubles low_rounded = RoundedTo(type_, low), high_rounded = RoundedTo(type_, high);
    Doubles errors(n_);
    for (size_t n = 0; n < n_; ++n) {
      const double v = value_.GetAsDouble(static_cast<int64_t>(n));
      if (unknown_[n] || (ranges_[n].nan && ranges_[n].number)) {
        errors[n] = kUnknown;
      } else if (ranges_[n].nan) {
        errors[n] = std::isnan(v) ? 0 : kUnknown;
      } else if (exact_[n] && !excess_ && (!transcendental_ || !std::isfinite(v) || v == 0)) {
        errors[n] = 0;
      } else {
        errors[n] = std::max(Distance(low_rounded[n], v), Distance(high_rounded[n], v));
        if (excess_) errors[n] = std::max({errors[n], Distance(low[n], v), Distance(high[n], v)});
        if (errors[n] > 0 && !std::isfinite(v)) errors[n] = kUnknown;
        if (v == 0 && !exact_[n]) errors[n] = std::max(errors[n], kZeroSign);
      }
    }
    return FromErrors(std::move(errors));
  }

 private:
  void FillOperands() {
    exact_.assign(n_, true), but_for_zeros_.assign(n_, true), unknown_.assign(n_, false);
    for (const Shadow* o : operands_) {
      Doubles low(n_), high(n_);
      const bool scalar = o->value.shape().is_scalar();
      for (size_t n = 0; n < n_; ++n) {
        const int64_t at = scalar ? 0 : static_cast<int64_t>(n);
        const double x = o->value.GetAsDouble(at), e = o->known().At(at);
        const bool sign_only = e == kZeroSign && x == 0;
        low[n] = sign_only ? -0.0 : e == 0 ? x : Outward(x - e, -kUnknown);
        high[n] = sign_only ? 0.0 : e == 0 ? x : Outward(x + e, kUnknown);
        exact_[n] = exact_[n] && e == 0;
        but_for_zeros_[n] = but_for_zeros_[n] && (e == 0 || sign_only);
        unknown_[n] = unknown_[n] || std::isinf(e);
      }
      low_.push_back(std::move(low)), high_.push_back(std::move(high));
    }
  }

  // The subtraction rounded in f64, which only an f64 would notice.
  double Outward(double x, double to) const { return type_ == PrimitiveType::kF64 ? std::nextafter(x, to) : x; }

  absl::Status FillRanges() {
    ranges_.assign(n_, {});
    const size_t arity = operands_.size();
    for (unsigned corner = 0; corner < 1u << arity; ++corner) {
      std::vector<Doubles> at;
      bool needed = true;
      for (size_t k = 0; k < arity; ++k) {
        const bool high = (corner >> k) & 1;
        needed = needed && (!high || !operands_[k]->exact());
        at.push_back(high ? high_[k] : low_[k]);
      }
      if (!needed) continue;
      TENON_ASSIGN_OR_RETURN(const Doubles results, OnDoubles(i_, at, n_));
      for (size_t n = 0; n < n_; ++n) ranges_[n].Add(results[n]);
    }
    for (size_t n = 0; n < n_; ++n) Between(n, &ranges_[n]);
    return absl::OkStatus();
  }

  // What lies between the corners and beyond them.
  void Between(size_t n, Range* r) {
    if (exact_[n]) return;
    double low[3], high[3];
    for (size_t k = 0; k < operands_.size(); ++k) low[k] = low_[k][n], high[k] = high_[k][n];
    if (!CornersSuffice(i_.opcode(), low, high)) unknown_[n] = true;
    const bool spans = low[0] <= 0 && high[0] >= 0;
    if (i_.opcode() == Opcode::kAbs && spans) r->low = 0;
    if (i_.opcode() == Opcode::kCosh && spans) r->low = 1;
    if (i_.opcode() == Opcode::kSine || i_.opcode() == Opcode::kCosine) r->low -= high[0] - low[0], r->high += high[0] - low[0];
  }

  // By what the backend's own arithmetic may add: a transcendental function's error, f32 where the value isn't rounded to its type.
  double Widened(size_t n, double x, double sign) const {
    if (!std::isfinite(x) || (exact_[n] && !transcendental_ && !excess_)) return x;
    const PrimitiveType computed = IsWide(type_) ? PrimitiveType::kF64 : PrimitiveType::kF32;
    double slack = 0;
    if (transcendental_ && !(but_for_zeros_[n] && x == 0)) slack += UlpsOf(type_) * Spacing(computed, x);
    if (IsPointwiseCall(i_)) slack += Spacing(PrimitiveType::kF64, x);  // the corners are rounded to double, then to the type
    if (excess_ && static_cast<double>(static_cast<float>(x)) != x) slack += Spacing(PrimitiveType::kF32, x);
    if (i_.opcode() == Opcode::kReducePrecision && !IsWide(type_) && std::fabs(x) < 0x1p-126) {  // a denormal f32 has fewer bits
      slack += std::ldexp(0x1p-150, static_cast<int>(std::max<int64_t>(0, 23 - i_.attrs().get<int64_t>(Attr::kMantissaBits))));
    }
    return x + sign * slack;
  }

  const Instruction& i_;
  Shadows operands_;
  const Literal& value_;
  size_t n_;
  PrimitiveType type_;
  bool excess_, transcendental_;
  std::vector<Doubles> low_, high_;
  std::vector<bool> exact_, but_for_zeros_, unknown_;  // but_for_zeros_: exact, or a zero of which the sign is open
  std::vector<Range> ranges_;
};

bool IsComplexFunction(Opcode opcode) {
  return IsTranscendental(opcode) || opcode == Opcode::kAbs || opcode == Opcode::kSqrt || opcode == Opcode::kSign;
}

// Of exact operands. Where there is no C library, complex functions of f64 are our own, right to a few units of the larger part, and those
// of narrower types are these, rounded. Powers multiply the error of a logarithm, and of large angles nothing is left, not even the sign of
// an infinity; the square root of atan2's formula may lose all places. Beside a pole of logistic a unit of 1 + exp(-x) is as many more of
// its inverse as that is large.
double OwnComplexError(Opcode opcode, PrimitiveType type, const std::complex<double>* x, double v) {
  if (opcode == Opcode::kAtan2) return kUnknown;
  constexpr double kLargeAngle = 1024;
  if (opcode == Opcode::kPower && x[0] != 0.0 && std::abs(x[1]) * std::abs(std::log(x[0])) > kLargeAngle) return kUnknown;
  if (!std::isfinite(v)) return 0;  // an infinity without a part beside it; FinitePart
  const bool power = opcode == Opcode::kPower || opcode == Opcode::kCbrt;
  const double units = power ? 4096 : opcode == Opcode::kLogistic ? 8 * std::max(v, 1.0) : 8;
  return Spacing(type, v) * (BitWidth(ComplexComponent(type)) < 64 ? 1 : units);
}

// Complex arithmetic is done in f64 on both sides and rounded once: the same bits from exact operands. Each part of an inexact operand may
// be off by its error.
double ComplexError(Opcode opcode, PrimitiveType type, const std::complex<double>* x, const double* e, double v) {
  const double size[2] = {std::abs(x[0]), std::abs(x[1])}, rounding = 2 * Spacing(type, v + e[0] + e[1]);
  if (!std::isfinite(size[0]) || !std::isfinite(size[1]) || !std::isfinite(v)) return kUnknown;
  switch (opcode) {
    case Opcode::kNegate: case Opcode::kReal: case Opcode::kImag: return e[0];
    case Opcode::kAdd: case Opcode::kSubtract: return e[0] + e[1] + rounding;
    case Opcode::kAbs: return 1.5 * e[0] + rounding;
    case Opcode::kMultiply: return 1.5 * (size[0] * e[1] + size[1] * e[0] + e[0] * e[1]) + rounding;
    case Opcode::kDivide: return 2 * e[1] < size[1] ? 3 * (e[0] + v * e[1]) / size[1] + rounding : kUnknown;
    default: return kUnknown;
  }
}

// The magnitude that an error is a share of: of a number with an infinite part, that of the other part.
double FinitePart(std::complex<double> z) {
  if (!std::isfinite(z.real())) return std::fabs(z.imag());
  return std::isfinite(z.imag()) ? std::abs(z) : std::fabs(z.real());
}

Known ComplexRule(const Instruction& i, Shadows operands, const Literal& value, bool excess) {
  std::vector<double> errors(value.num_elements());
  for (size_t n = 0; n < errors.size(); ++n) {
    const int64_t at = static_cast<int64_t>(n);
    std::complex<double> x[2];
    double e[2] = {0, 0};
    for (size_t k = 0; k < operands.size() && k < 2; ++k) x[k] = operands[k]->value.GetAsComplex(at), e[k] = operands[k]->known().At(at);
    const double v = IsComplex(value.type()) ? std::abs(value.GetAsComplex(at)) : std::fabs(value.GetAsDouble(at));
    const double own = IsComplex(value.type()) ? FinitePart(value.GetAsComplex(at)) : v;
    const bool exact = e[0] == 0 && e[1] == 0, function = IsComplex(operands[0]->value.type()) && IsComplexFunction(i.opcode());
    // C leaves the sign of an infinity beside a NaN open (Annex G: casinh(NaN + i inf) is +-inf + i NaN), and a GPU has no sign of a NaN.
    if (function && std::isinf(v) && (std::isnan(x[0].real()) || std::isnan(x[0].imag()))) {
      errors[n] = kUnknown;
      continue;
    }
    errors[n] = !exact ? ComplexError(i.opcode(), value.type(), x, e, v) : function ? OwnComplexError(i.opcode(), value.type(), x, own) : 0;
    if (excess && IsHalfType(value.type())) {  // the real part, in a register: an f32, rounded in some way
      const double real = x[0].real();
      errors[n] += Distance(real, value.GetAsDouble(at));
      if (static_cast<double>(static_cast<float>(real)) != real) errors[n] += Spacing(PrimitiveType::kF32, real);
      if (errors[n] > 0 && !std::isfinite(v)) errors[n] = kUnknown;
    }
  }
  return FromErrors(std::move(errors));
}

// A float that becomes an integer: certain where both ends become the same.
absl::StatusOr<Known> ToIntegerRule(const Instruction& i, const Shadow& x, const Literal& value) {
  Module scratch;
  Builder b(scratch.AddComputation("double"));
  const Instruction* convert = b.Convert(b.Parameter(0, Shape::Array(PrimitiveType::kF64, value.shape().constant_dims())), value.type());
  std::vector<double> low(value.num_elements()), high(low.size()), errors(low.size());
  for (size_t n = 0; n < low.size(); ++n) {
    const double v = x.value.GetAsDouble(static_cast<int64_t>(n)), e = x.known().At(static_cast<int64_t>(n));
    low[n] = v - e, high[n] = v + e;
  }
  TENON_ASSIGN_OR_RETURN(const Literal below, EvaluateInstruction(*convert, {AsDouble(value.shape(), low)}));
  TENON_ASSIGN_OR_RETURN(const Literal above, EvaluateInstruction(*convert, {AsDouble(value.shape(), high)}));
  for (size_t n = 0; n < low.size(); ++n) {
    const int64_t at = static_cast<int64_t>(n);
    const double e = x.known().At(at);
    const bool to_pred = value.type() == PrimitiveType::kPred && low[n] <= 0 && high[n] >= 0 && e > kZeroSign;
    const bool same = below.GetAsInt64(at) == value.GetAsInt64(at) && above.GetAsInt64(at) == value.GetAsInt64(at);
    errors[n] = e == 0 || (same && !to_pred && std::isfinite(e)) ? 0 : kUnknown;
  }
  return FromErrors(std::move(errors));
}

// What a logical op gives whatever an unknown operand is.
bool Decided(Opcode opcode, const Literal& x, double e, int64_t at) {
  if (e > 0 || x.type() != PrimitiveType::kPred) return false;
  return (opcode == Opcode::kAnd && x.GetAsInt64(at) == 0) || (opcode == Opcode::kOr && x.GetAsInt64(at) != 0);
}

}  // namespace

bool IsTranscendental(Opcode opcode) {
  switch (opcode) {
    case Opcode::kAcos: case Opcode::kAcosh: case Opcode::kAsin: case Opcode::kAsinh: case Opcode::kAtan: case Opcode::kAtanh:
    case Opcode::kAtan2: case Opcode::kCbrt: case Opcode::kCosine: case Opcode::kCosh: case Opcode::kErf: case Opcode::kExponential:
    case Opcode::kExponentialMinusOne: case Opcode::kLog: case Opcode::kLogPlusOne: case Opcode::kLogistic: case Opcode::kPower:
    case Opcode::kRsqrt: case Opcode::kSine: case Opcode::kSinh: case Opcode::kTan: case Opcode::kTanh:
      return true;
    default:
      return false;
  }
}

absl::StatusOr<Known> ElementwiseRule(const Instruction& i, Shadows operands, const Literal& value, bool excess) {
  const Opcode opcode = i.opcode();
  const Literal& x = operands[0]->value;
  bool exact = true, moved = true;
  for (const Shadow* o : operands) exact = exact && o->exact(), moved = moved && o->known().moved;
  const bool bits = opcode == Opcode::kBitcastConvert ||
                    (opcode == Opcode::kCompare && i.attrs().get_or<std::string>(Attr::kComparisonType, "") == "TOTALORDER");
  const bool open_nans = bits && !moved && std::any_of(operands.begin(), operands.end(), [](const Shadow* o) { return HasNan(o->value); });
  if (opcode == Opcode::kBitcastConvert && (open_nans || !exact)) return Unknown(value);
  const bool is_complex = IsComplex(x.type()) || IsComplex(value.type());
  const bool selects_moved = opcode == Opcode::kSelect && operands[1]->known().moved && operands[2]->known().moved;
  const bool keeps = selects_moved || (opcode == Opcode::kComplex && moved);
  const bool float_result = !is_complex && IsFloat(value.type()) && (IsFloat(x.type()) || opcode == Opcode::kConvert) &&
                            opcode != Opcode::kSelect && opcode != Opcode::kStochasticConvert && opcode != Opcode::kBitcastConvert;
  const bool keeps_more = excess && IsHalfType(value.type()) && (float_result || is_complex);
  const bool inexact = keeps_more || (float_result && IsTranscendental(opcode)) || (IsComplex(x.type()) && IsComplexFunction(opcode));
  if (exact && !inexact && !open_nans) return Known{std::nullopt, keeps};
  if (is_complex && opcode != Opcode::kSelect && opcode != Opcode::kComplex) return ComplexRule(i, operands, value, excess);
  if (float_result) return FloatRule(i, operands, value, excess).Run();
  if (opcode == Opcode::kConvert && IsFloat(x.type())) return ToIntegerRule(i, *operands[0], value);
  std::vector<double> errors(value.num_elements());
  for (size_t n = 0; n < errors.size(); ++n) {
    double v[3] = {}, e[3] = {};
    bool known = true, decided = false;
    for (size_t k = 0; k < operands.size() && k < 3; ++k) {
      const Literal& o = operands[k]->value;
      const int64_t at = o.shape().is_scalar() ? 0 : static_cast<int64_t>(n);
      v[k] = is_complex ? 0 : o.GetAsDouble(at);
      e[k] = operands[k]->known().At(at);
      known = known && e[k] == 0;
      decided = decided || Decided(opcode, o, e[k], at);
    }
    if (opcode == Opcode::kSelect) {
      const int64_t at = operands[0]->value.shape().is_scalar() ? 0 : static_cast<int64_t>(n);
      const bool first = operands[0]->value.GetAsInt64(at) != 0;
      double other = is_complex || !IsFloat(value.type()) ? (v[1] == v[2] && !is_complex ? 0 : kUnknown) : Distance(v[1], v[2]);
      if (other == 0 && v[1] == 0 && std::signbit(v[1]) != std::signbit(v[2])) other = kZeroSign;
      errors[n] = first ? e[1] : e[2];
      if (e[0] > 0) errors[n] = std::max(errors[n], other + (first ? e[2] : e[1]));
    } else if (opcode == Opcode::kComplex) {
      errors[n] = std::max(e[0], e[1]);
    } else if (opcode == Opcode::kCompare) {
      const bool nan = std::isnan(v[0]) || std::isnan(v[1]);
      const bool zeros = e[0] <= kZeroSign && e[1] <= kZeroSign && !bits;  // -0 is 0
      const bool bounded = std::isfinite(e[0]) && std::isfinite(e[1]);
      const bool apart = zeros || (bounded && ((nan && !bits) || std::fabs(v[0] - v[1]) > e[0] + e[1]));
      errors[n] = (open_nans && nan) || (!known && !apart) ? kUnknown : 0;
    } else if (opcode == Opcode::kIsFinite && !known) {
      errors[n] = std::isfinite(e[0]) && (!std::isfinite(v[0]) || std::fabs(v[0]) + e[0] < LargestFinite(x.type())) ? 0 : kUnknown;
    } else {
      errors[n] = known || decided ? 0 : kUnknown;
    }
  }
  return FromErrors(std::move(errors), keeps);
}

}  // namespace tenon::lab
