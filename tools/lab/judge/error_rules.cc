#include "tools/lab/judge/error_rules.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "hlo/numeric_types.h"
#include "hlo/tolerance.h"

namespace tenon::lab {
namespace {

template <typename F>
Literal MapParts(const Literal& x, F&& f) {
  std::vector<double> out(x.num_elements());
  for (size_t i = 0; i < out.size(); ++i) {
    if (IsComplex(x.type())) {
      const std::complex<double> c = x.GetAsComplex(static_cast<int64_t>(i));
      out[i] = f(c.real(), c.imag());
    } else {
      out[i] = f(x.GetAsDouble(static_cast<int64_t>(i)), 0.0);
    }
  }
  return AsDouble(x.shape(), std::move(out));
}

double Quantum(double x) {
  if (x == 0 || !std::isfinite(x)) return kUnknown;
  int exponent;
  const double fraction = std::frexp(std::fabs(x), &exponent);
  const uint64_t mantissa = static_cast<uint64_t>(std::ldexp(fraction, 53));
  return std::ldexp(1.0, exponent - 53 + std::countr_zero(mantissa));
}

}  // namespace

Known Unknown(const Literal& value) {
  if (!value.shape().is_array()) return {};
  return FromErrors(std::vector<double>(value.num_elements(), kUnknown));
}

Known FromErrors(std::vector<double> errors, bool moved) {
  const bool exact = std::all_of(errors.begin(), errors.end(), [](double e) { return e == 0; });
  if (exact) return {std::nullopt, moved};
  for (double& e : errors) {
    if (std::isnan(e)) e = kUnknown;
  }
  return {std::move(errors), moved};
}

double LargestFinite(PrimitiveType type) {
  switch (ComplexComponent(type)) {
    case PrimitiveType::kF64: return std::numeric_limits<double>::max();
    case PrimitiveType::kF32: return std::numeric_limits<float>::max();
    case PrimitiveType::kBF16: return 0x1.fep127;
    case PrimitiveType::kF16: return 65504;
    case PrimitiveType::kF8E5M2: case PrimitiveType::kF8E5M2FNUZ: return 57344;
    case PrimitiveType::kF8E4M3: case PrimitiveType::kF8E4M3FNUZ: return 240;
    case PrimitiveType::kF8E4M3FN: return 448;
    case PrimitiveType::kF8E4M3B11FNUZ: return 30;
    case PrimitiveType::kF8E3M4: return 15.5;
    case PrimitiveType::kF4E2M1FN: return 6;
    case PrimitiveType::kF8E8M0FNU: return 0x1p127;
    default: return kUnknown;
  }
}

double Spacing(PrimitiveType type, double x) {
  type = ComplexComponent(type);
  if (!std::isfinite(x)) x = LargestFinite(type);
  const double smallest = DispatchType(type, []<typename T>(TypeTag<T>) -> double {
    if constexpr (std::is_floating_point_v<T>) return std::numeric_limits<T>::denorm_min();
    if constexpr (requires { T::FromBits(1); }) return static_cast<double>(T::FromBits(1));
    return 1;
  });
  if (x == 0) return smallest;
  return std::max(smallest, std::ldexp(EpsilonOf(type), std::ilogb(std::fabs(x))));
}

Literal AsDouble(const Shape& shape, std::vector<double> values) {
  return Literal::FromSpan<double>(PrimitiveType::kF64, shape.constant_dims(), values);
}

bool IsHalfType(PrimitiveType type) { return type == PrimitiveType::kF16 || type == PrimitiveType::kBF16; }

std::vector<double> RoundedTo(PrimitiveType type, const std::vector<double>& x) {
  if (type == PrimitiveType::kF64) return x;
  Literal l(Shape::Array(type, {static_cast<int64_t>(x.size())}));
  std::vector<double> rounded(x.size());
  for (size_t n = 0; n < x.size(); ++n) {
    l.SetFromDouble(static_cast<int64_t>(n), x[n]);
    rounded[n] = l.GetAsDouble(static_cast<int64_t>(n));
  }
  return rounded;
}

Literal Magnitudes(const Literal& x) {
  return MapParts(x, [](double re, double im) {
    const double m = std::fabs(re) + std::fabs(im);
    return std::isfinite(m) ? m : 0;
  });
}

Literal Quanta(const Literal& x) {
  return MapParts(x, [](double re, double im) { return std::min(Quantum(re), Quantum(im)); });
}

double SmallestQuantum(const Literal& x) {
  double smallest = kUnknown;
  const Literal quanta = Quanta(x);
  for (double q : quanta.data<double>()) smallest = std::min(smallest, q);
  return smallest;
}

bool HasNan(const Literal& x) {
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    if (IsComplex(x.type())) {
      const std::complex<double> c = x.GetAsComplex(i);
      if (std::isnan(c.real()) || std::isnan(c.imag())) return true;
    } else if (IsFloat(x.type()) && std::isnan(x.GetAsDouble(i))) {
      return true;
    }
  }
  return false;
}

absl::StatusOr<Literal> InDouble(const Instruction& i, absl::Span<const Literal> operands, std::optional<Opcode> region) {
  const auto widened = [](const Shape& from) {
    Shape shape = from;
    if (shape.is_array()) shape.set_element_type(PrimitiveType::kF64);
    for (size_t k = 0; k < shape.elements().size(); ++k) shape.mutable_element(k).set_element_type(PrimitiveType::kF64);
    return shape;
  };
  const std::unique_ptr<Instruction> clone = i.CloneWithShape(widened(i.shape()), i.operands());
  Module scratch;
  if (region.has_value()) {
    const Attr attr = i.opcode() == Opcode::kSelectAndScatter ? Attr::kScatter : Attr::kToApply;
    clone->mutable_attrs().set(attr, scratch.ScalarComputation(*region, PrimitiveType::kF64));
  }
  const EvalOptions options;
  eval::Context context(options);
  return eval::HandlerOf(i.opcode())(context, *clone, operands);
}

}  // namespace tenon::lab
