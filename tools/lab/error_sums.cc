// Errors of sums: reductions and scatters by a region, contractions.
//
// A sum is exact in every order if no partial sum needs more bits than the type has: the terms are multiples of a power of two q,
// and their magnitudes add up to at most 2^digits * q. Both are found from the data, by the same op over |x| and over quanta.
#include <algorithm>
#include <cmath>

#include "hlo/tolerance.h"
#include "tools/lab/error_rules.h"

namespace tenon::lab {
namespace {

// Follows converts.
const Instruction* Behind(const Instruction* i) {
  while (i->opcode() == Opcode::kConvert) i = i->operand(0);
  return i;
}

// The op that leaf k of a region of 2n scalars applies to its parameters k and n + k; nullopt: something else.
std::optional<Opcode> CombinerOf(const Computation& region, int64_t k) {
  const int64_t n = static_cast<int64_t>(region.parameters().size()) / 2;
  const Instruction* root = region.root();
  if (root->opcode() == Opcode::kTuple) root = root->operand(k);
  root = Behind(root);
  if (root->operand_count() != 2) return std::nullopt;
  const Instruction *a = Behind(root->operand(0)), *b = Behind(root->operand(1)), *x = region.parameter(k), *y = region.parameter(n + k);
  return (a == x && b == y) || (a == y && b == x) ? std::optional<Opcode>(root->opcode()) : std::nullopt;
}

// One accumulator: what goes into the sums, as f64 arrays in the op's operand order.
struct Sums {
  Literal magnitude, quantum, error, terms;
};

PrimitiveType Narrowest(const Computation& region, PrimitiveType type) {
  for (const Instruction* i : region.instructions()) {
    const PrimitiveType t = i->shape().element_type();
    if (i->shape().is_array() && IsFloat(ComplexComponent(t)) && EpsilonOf(t) > EpsilonOf(type)) type = t;
  }
  return type;
}

Known SumBound(const Literal& value, PrimitiveType accumulation, const Sums& s) {
  const double largest = LargestFinite(accumulation), exact_up_to = 2 / EpsilonOf(accumulation);
  std::vector<double> errors(value.num_elements());
  for (size_t n = 0; n < errors.size(); ++n) {
    const int64_t at = static_cast<int64_t>(n);
    const double m = s.magnitude.GetAsDouble(at), q = s.quantum.GetAsDouble(at), e = s.error.GetAsDouble(at);
    const bool is_complex = IsComplex(value.type());
    const double v = is_complex ? std::abs(value.GetAsComplex(at)) : value.GetAsDouble(at);
    if (std::isnan(m) && !is_complex) {
      errors[n] = 0;  // a NaN among the terms
    } else if (!(m < largest / 2) || !std::isfinite(e)) {
      errors[n] = kUnknown;  // which partial sum overflows, or where an infinity meets another, is a matter of order
    } else if (e == 0 && m <= exact_up_to * q) {
      errors[n] = v == 0 || is_complex ? kZeroSign : 0;
    } else {
      const int64_t terms = static_cast<int64_t>(s.terms.GetAsDouble(at));
      // A product below the normal numbers is off by half the smallest one, on either side, whatever its size (Higham, "Accuracy
      // and stability of numerical algorithms", 2.1).
      const double underflow = static_cast<double>(terms) * Spacing(accumulation, 0);
      errors[n] = e + AccumulationBound(accumulation, value.type(), terms, m + e) + underflow + Spacing(value.type(), 0);
    }
  }
  return FromErrors(std::move(errors));
}

Literal Errors(const Shadow& x) {
  std::vector<double> e(x.value.num_elements());
  for (size_t n = 0; n < e.size(); ++n) e[n] = x.known().At(static_cast<int64_t>(n));
  return AsDouble(x.value.shape(), std::move(e));
}

Literal Filled(const Literal& like, double value) {
  return AsDouble(like.shape(), std::vector<double>(like.num_elements(), value));
}

// The operands that leaf k is made of: array and initial value; operand, indices and updates; x, source and initial value.
absl::StatusOr<Sums> SumsOf(const Instruction& i, Shadows operands, int64_t k, int64_t n) {
  const auto over = [&](Opcode by, auto&& of) -> absl::StatusOr<Literal> {
    std::vector<Literal> in;
    if (i.opcode() == Opcode::kScatter) {
      in = {of(*operands[k]), operands[n]->value, of(*operands[n + 1 + k])};
    } else if (i.opcode() == Opcode::kSelectAndScatter) {
      return absl::UnimplementedError("the window's choice is made on the values");
    } else {
      in = {of(*operands[k]), of(*operands[n + k])};
    }
    TENON_ASSIGN_OR_RETURN(Literal result, InDouble(i, in, by));
    return result.shape().is_tuple() ? result.elements()[0] : result;
  };
  Sums s;
  TENON_ASSIGN_OR_RETURN(s.magnitude, over(Opcode::kAdd, [](const Shadow& x) { return Magnitudes(x.value); }));
  TENON_ASSIGN_OR_RETURN(s.quantum, over(Opcode::kMinimum, [](const Shadow& x) { return Quanta(x.value); }));
  TENON_ASSIGN_OR_RETURN(s.error, over(Opcode::kAdd, [](const Shadow& x) { return Errors(x); }));
  TENON_ASSIGN_OR_RETURN(s.terms, over(Opcode::kAdd, [](const Shadow& x) { return Filled(x.value, 1); }));
  return s;
}

// Every source may meet every place: bounds of the whole, for select-and-scatter.
Sums Whole(const Literal& value, const Shadow& source, const Shadow& init) {
  double magnitude = Magnitudes(init.value).GetAsDouble(0), error = init.known().At(0);
  const Literal magnitudes = Magnitudes(source.value);
  for (int64_t n = 0; n < magnitudes.num_elements(); ++n) magnitude += magnitudes.GetAsDouble(n), error += source.known().At(n);
  const double quantum = std::min(SmallestQuantum(source.value), SmallestQuantum(init.value));
  return {Filled(value, magnitude), Filled(value, quantum), Filled(value, error), Filled(value, static_cast<double>(magnitudes.num_elements() + 1))};
}

// Which of two zeros an extremum keeps is a matter of order, in a reduction of its own as in an argmax.
Known OpenZeros(const Literal& value) {
  std::vector<double> errors(value.num_elements());
  for (size_t n = 0; n < errors.size(); ++n) errors[n] = value.GetAsDouble(static_cast<int64_t>(n)) == 0 ? kZeroSign : 0;
  return FromErrors(std::move(errors));
}

// Several results of which some choose among the operands.
bool Selects(const Computation& region) {
  return region.root()->shape().is_tuple() && !HasInexact(region) && !LooksAtNanBits(region);
}

const Literal& LeafOf(const Literal& value, int64_t k) { return value.shape().is_tuple() ? value.elements()[k] : value; }

}  // namespace

absl::StatusOr<std::vector<Known>> RegionRule(const Instruction& i, Shadows operands, const Literal& value) {
  const bool selects = i.opcode() == Opcode::kSelectAndScatter;
  const Computation& region = *i.attrs().get<Computation*>(selects ? Attr::kScatter : Attr::kToApply);
  const int64_t n = static_cast<int64_t>(region.parameters().size()) / 2;
  std::vector<Known> all;
  bool exact = true;
  for (const Shadow* o : operands) exact = exact && o->exact();
  const bool indices_open = (i.opcode() == Opcode::kScatter && !operands[n]->exact()) || (selects && !operands[0]->exact());
  for (int64_t k = 0; k < n; ++k) {
    const Literal& leaf = LeafOf(value, k);
    const std::optional<Opcode> by = CombinerOf(region, k);
    const bool floats = IsFloat(ComplexComponent(leaf.type()));
    if (indices_open) {
      all.push_back(Unknown(leaf));
    } else if (by == Opcode::kAdd && floats) {
      const PrimitiveType accumulation = Narrowest(region, leaf.type());
      if (selects) {
        all.push_back(SumBound(leaf, accumulation, Whole(leaf, *operands[1], *operands[2])));
      } else {
        TENON_ASSIGN_OR_RETURN(const Sums sums, SumsOf(i, operands, k, n));
        all.push_back(SumBound(leaf, accumulation, sums));
      }
    } else if (exact && floats && (by == Opcode::kMaximum || by == Opcode::kMinimum || Selects(region))) {
      all.push_back(OpenZeros(leaf));
    } else if (exact && (!floats || (!by.has_value() && !HasInexact(region) && !LooksAtNanBits(region)))) {
      all.push_back({});
    } else if ((by == Opcode::kMaximum || by == Opcode::kMinimum) && floats && i.opcode() == Opcode::kReduce) {
      // The largest error of what is compared.
      TENON_ASSIGN_OR_RETURN(const Literal errors, InDouble(i, {Errors(*operands[k]), Errors(*operands[n + k])}, Opcode::kMaximum));
      const Literal& e = LeafOf(errors, 0);
      all.push_back(FromErrors({e.data<double>().begin(), e.data<double>().end()}));
    } else {
      all.push_back(Unknown(leaf));
    }
  }
  return all;
}

absl::StatusOr<Known> ContractionRule(const Instruction& i, Shadows operands, const Literal& value) {
  const PrimitiveType type = value.type();
  bool exact = true, floats = IsFloat(ComplexComponent(type));
  for (const Shadow* o : operands) exact = exact && o->exact(), floats = floats || IsFloat(ComplexComponent(o->value.type()));
  if (!floats) return exact ? Known{} : Unknown(value);
  const size_t data = i.opcode() == Opcode::kScaledDot ? 4 : 2;
  std::vector<Literal> magnitudes, upper, ones;
  double quantum = 1;
  for (size_t k = 0; k < operands.size(); ++k) {
    const Shadow& o = *operands[k];
    if (k >= data) {  // group sizes
      if (!o.exact()) return Unknown(value);
      magnitudes.push_back(o.value), upper.push_back(o.value), ones.push_back(o.value);
      continue;
    }
    quantum *= std::min(SmallestQuantum(o.value), 0x1p200);
    magnitudes.push_back(Magnitudes(o.value));
    ones.push_back(Filled(o.value, 1));
    std::vector<double> with_error(o.value.num_elements());
    for (size_t n = 0; n < with_error.size(); ++n) {
      with_error[n] = magnitudes.back().GetAsDouble(static_cast<int64_t>(n)) + o.known().At(static_cast<int64_t>(n));
    }
    upper.push_back(AsDouble(o.value.shape(), std::move(with_error)));
  }
  Sums s;
  TENON_ASSIGN_OR_RETURN(s.magnitude, InDouble(i, magnitudes));
  TENON_ASSIGN_OR_RETURN(s.terms, InDouble(i, ones));
  s.quantum = Filled(s.magnitude, quantum);
  if (exact) {
    s.error = Filled(s.magnitude, 0);
  } else {
    TENON_ASSIGN_OR_RETURN(const Literal most, InDouble(i, upper));
    std::vector<double> e(most.num_elements());
    for (size_t n = 0; n < e.size(); ++n) {
      const double m = s.magnitude.GetAsDouble(static_cast<int64_t>(n));
      e[n] = most.GetAsDouble(static_cast<int64_t>(n)) - m + 4e-16 * m;
    }
    s.error = AsDouble(most.shape(), std::move(e));
  }
  // Narrow types are summed up in f32.
  const PrimitiveType part = ComplexComponent(type);
  return SumBound(value, part == PrimitiveType::kF64 || part == PrimitiveType::kF32 ? part : PrimitiveType::kF32, s);
}

}  // namespace tenon::lab
