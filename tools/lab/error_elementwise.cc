// Errors through elementwise ops: what a transcendental function adds, how simple arithmetic carries what is there.
#include <algorithm>
#include <cmath>

#include "hlo/builder.h"
#include "hlo/eval/evaluator.h"
#include "hlo/tolerance.h"
#include "tools/lab/error_rules.h"

namespace tenon::lab {
namespace {

// Units in the last place by which a right transcendental function may be off the evaluator's (docs/accuracy.md: below one from
// the exact value in f32; narrower types round that; f64 is libm's on both sides, some by formula).
double UlpsOf(PrimitiveType type) { return type == PrimitiveType::kF64 ? 4 : 1; }
constexpr double kComplexUlps = 32;

bool IsMonotone(Opcode opcode) {
  switch (opcode) {
    case Opcode::kExponential: case Opcode::kExponentialMinusOne: case Opcode::kLog: case Opcode::kLogPlusOne: case Opcode::kLogistic:
    case Opcode::kTanh: case Opcode::kErf: case Opcode::kSqrt: case Opcode::kRsqrt: case Opcode::kCbrt: case Opcode::kAtan:
    case Opcode::kAsinh: case Opcode::kAcosh: case Opcode::kAsin: case Opcode::kAcos: case Opcode::kAtanh: case Opcode::kSinh:
      return true;
    default:
      return false;
  }
}

// One element: operand values and their errors in, the error of the result `v` out.
struct Element {
  Opcode opcode;
  PrimitiveType type;  // of the result
  double x[3], e[3];
  double v;
};

double Rounding(const Element& p, double error) { return error + Spacing(p.type, std::fabs(p.v) + error); }

double Propagated(const Element& p) {
  const auto& [opcode, type, x, e, v] = p;
  switch (opcode) {
    case Opcode::kNegate: case Opcode::kAbs: return e[0];
    case Opcode::kMaximum: case Opcode::kMinimum: return std::max(e[0], e[1]);
    case Opcode::kClamp: return std::max({e[0], e[1], e[2]});
    case Opcode::kConvert: return Rounding(p, e[0]);
    case Opcode::kAdd: case Opcode::kSubtract:
      return (e[0] == kZeroSign && x[1] != 0) || (e[1] == kZeroSign && x[0] != 0) ? std::max(e[0], e[1]) - kZeroSign
                                                                                  : Rounding(p, e[0] + e[1]);
    case Opcode::kMultiply: return Rounding(p, std::fabs(x[0]) * e[1] + std::fabs(x[1]) * e[0] + e[0] * e[1]);
    case Opcode::kDivide: return e[1] == 0 && x[1] != 0 ? Rounding(p, e[0] / std::fabs(x[1])) : kUnknown;
    case Opcode::kSine: case Opcode::kCosine: return Rounding(p, e[0]);
    default: return kUnknown;
  }
}

double FloatError(const Element& p, int operands) {
  bool exact = true;
  for (int k = 0; k < operands; ++k) {
    exact = exact && p.e[k] == 0;
    // A NaN is a NaN; an infinity that a right backend may not have reached is anything.
    if (p.e[k] > 0 && !std::isfinite(p.x[k])) return kUnknown;
  }
  if (exact) return IsTranscendental(p.opcode) && std::isfinite(p.v) && p.v != 0 ? UlpsOf(p.type) * Spacing(p.type, p.v) : 0;
  if (std::isnan(p.v)) return kUnknown;
  return Propagated(p);
}

// Results that may overflow on the way, or that the C standard leaves open, are not judged.
double ComplexError(Opcode opcode, PrimitiveType type, const std::complex<double>* x, std::complex<double> v) {
  const bool wide = ComplexComponent(type) == PrimitiveType::kF64;
  const double large = wide ? 0x1p500 : 0x1p60, small = wide ? 0x1p-500 : 0x1p-60;
  const int operands = opcode == Opcode::kMultiply || opcode == Opcode::kDivide ? 2 : 1;
  for (int k = 0; k < operands; ++k) {
    const double r = std::abs(x[k]);
    if (!std::isfinite(x[k].real()) || !std::isfinite(x[k].imag()) || r > large || (r < small && r != 0)) return kUnknown;
  }
  if (!std::isfinite(v.real()) || !std::isfinite(v.imag())) return kUnknown;
  if (IsTranscendental(opcode) && std::abs(x[0]) > 0x1p10) return kUnknown;
  const double size = std::max(std::abs(v), IsTranscendental(opcode) ? 1.0 : 0.0);
  return kComplexUlps * Spacing(type, size);
}

bool IsComplexInexact(Opcode opcode) {
  return opcode == Opcode::kMultiply || opcode == Opcode::kDivide || opcode == Opcode::kAbs || opcode == Opcode::kSqrt ||
         opcode == Opcode::kSign || opcode == Opcode::kRemainder || IsTranscendental(opcode);
}

Known ComplexRule(const Instruction& i, Shadows operands, const Literal& value) {
  std::vector<double> errors(value.num_elements());
  for (size_t n = 0; n < errors.size(); ++n) {
    const int64_t at = static_cast<int64_t>(n);
    std::complex<double> x[2];
    bool exact = true;
    for (size_t k = 0; k < operands.size() && k < 2; ++k) {
      x[k] = operands[k]->value.GetAsComplex(at);
      exact = exact && operands[k]->known().At(at) == 0;
    }
    const std::complex<double> v = IsComplex(value.type()) ? value.GetAsComplex(at) : value.GetAsDouble(at);
    const bool moves = i.opcode() == Opcode::kNegate || i.opcode() == Opcode::kReal || i.opcode() == Opcode::kImag;
    errors[n] = !exact ? (moves ? operands[0]->known().At(at) : kUnknown) : IsComplexInexact(i.opcode()) ? ComplexError(i.opcode(), value.type(), x, v) : 0;
    if (i.opcode() == Opcode::kPower || i.opcode() == Opcode::kAtan2) errors[n] = kUnknown;
  }
  return FromErrors(std::move(errors));
}

// f at x - e and x + e, in double.
absl::StatusOr<Known> MonotoneRule(const Instruction& i, const Shadow& x, const Literal& value) {
  std::vector<double> low(value.num_elements()), high(low.size()), errors(low.size());
  for (size_t n = 0; n < low.size(); ++n) {
    const double v = x.value.GetAsDouble(static_cast<int64_t>(n)), e = x.known().At(static_cast<int64_t>(n));
    low[n] = v - e, high[n] = v + e;
  }
  Module scratch;
  Builder b(scratch.AddComputation("double"));
  const Instruction* in_double = b.Unary(i.opcode(), b.Parameter(0, Shape::Array(PrimitiveType::kF64, value.shape().constant_dims())));
  TENON_ASSIGN_OR_RETURN(const Literal below, EvaluateInstruction(*in_double, {AsDouble(value.shape(), low)}));
  TENON_ASSIGN_OR_RETURN(const Literal above, EvaluateInstruction(*in_double, {AsDouble(value.shape(), high)}));
  for (size_t n = 0; n < low.size(); ++n) {
    const int64_t at = static_cast<int64_t>(n);
    const double v = value.GetAsDouble(at);
    const double spread = std::max(std::fabs(below.GetAsDouble(at) - v), std::fabs(above.GetAsDouble(at) - v));
    const bool known = x.known().At(at) == 0;
    if (known && (!std::isfinite(v) || v == 0)) continue;
    errors[n] = known ? UlpsOf(value.type()) * Spacing(value.type(), v) : spread + (1 + UlpsOf(value.type())) * Spacing(value.type(), v);
  }
  return FromErrors(std::move(errors));
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

absl::StatusOr<Known> ElementwiseRule(const Instruction& i, Shadows operands, const Literal& value) {
  const Opcode opcode = i.opcode();
  const Literal& x = operands[0]->value;
  bool exact = true, moved = true;
  for (const Shadow* o : operands) exact = exact && o->exact(), moved = moved && o->known().moved;
  const bool bits = opcode == Opcode::kBitcastConvert ||
                    (opcode == Opcode::kCompare && i.attrs().get_or<std::string>(Attr::kComparisonType, "") == "TOTALORDER");
  const bool open_nans = bits && !moved && std::any_of(operands.begin(), operands.end(), [](const Shadow* o) { return HasNan(o->value); });
  if (opcode == Opcode::kBitcastConvert && (open_nans || !exact)) return Unknown(value);
  const bool is_complex = IsComplex(x.type()) || IsComplex(value.type());
  const bool keeps = opcode == Opcode::kSelect ? operands[1]->known().moved && operands[2]->known().moved : opcode == Opcode::kComplex && moved;
  const bool inexact = (IsFloat(x.type()) && IsTranscendental(opcode)) || (is_complex && IsComplexInexact(opcode));
  if (exact && !inexact && !open_nans) return Known{std::nullopt, keeps};
  if (is_complex && opcode != Opcode::kSelect && opcode != Opcode::kComplex) return ComplexRule(i, operands, value);
  if (IsMonotone(opcode) && IsFloat(x.type()) && !exact) return MonotoneRule(i, *operands[0], value);
  std::vector<double> errors(value.num_elements());
  for (size_t n = 0; n < errors.size(); ++n) {
    Element p{opcode, value.type(), {}, {}, is_complex ? 0 : value.GetAsDouble(static_cast<int64_t>(n))};
    bool known = true;
    for (size_t k = 0; k < operands.size() && k < 3; ++k) {
      const int64_t at = operands[k]->value.shape().is_scalar() ? 0 : static_cast<int64_t>(n);
      p.x[k] = is_complex ? 0 : operands[k]->value.GetAsDouble(at);
      p.e[k] = operands[k]->known().At(at);
      known = known && p.e[k] == 0;
    }
    if (opcode == Opcode::kSelect) {
      const int64_t at = operands[0]->value.shape().is_scalar() ? 0 : static_cast<int64_t>(n);
      errors[n] = p.e[0] > 0 ? kUnknown : operands[0]->value.GetAsInt64(at) != 0 ? p.e[1] : p.e[2];
    } else if (opcode == Opcode::kComplex) {
      errors[n] = std::max(p.e[0], p.e[1]);
    } else if (opcode == Opcode::kCompare) {
      const bool nan = std::isnan(p.x[0]) || std::isnan(p.x[1]);
      const bool apart = p.e[0] == kZeroSign || p.e[1] == kZeroSign ? !bits : std::fabs(p.x[0] - p.x[1]) > p.e[0] + p.e[1];
      errors[n] = (open_nans && nan) || (!known && !apart) ? kUnknown : 0;
    } else if (IsFloat(value.type()) && IsFloat(x.type())) {
      errors[n] = FloatError(p, static_cast<int>(operands.size()));
    } else {
      const bool sign_only = opcode == Opcode::kConvert && p.e[0] == kZeroSign;
      errors[n] = known || sign_only ? 0 : kUnknown;
    }
  }
  return FromErrors(std::move(errors), keeps);
}

}  // namespace tenon::lab
