// Errors of sums and products: reductions and scatters by a region, contractions. Each is compared with what it is in f64.
//
// A sum is exact in every order if no partial sum needs more bits than the type has: the terms are multiples of a power of two q,
// and their magnitudes add up to at most 2^digits * q. Both are found from the data, by the same op over |x| and over quanta.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "hlo/builder.h"
#include "hlo/tolerance.h"
#include "tools/lab/judge/error_rules.h"

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

// Of the arithmetic behind leaf k of a region; `type` and what it is computed in.
PrimitiveType Narrowest(const Computation& region, int64_t k, PrimitiveType type) {
  const Instruction* root = region.root();
  std::vector<const Instruction*> behind = {root->opcode() == Opcode::kTuple ? root->operand(k) : root};
  absl::flat_hash_set<const Instruction*> seen;
  while (!behind.empty()) {
    const Instruction* i = behind.back();
    behind.pop_back();
    if (!seen.insert(i).second) continue;
    const PrimitiveType t = i->shape().element_type();
    if (i->shape().is_array() && IsFloat(ComplexComponent(t)) && EpsilonOf(t) > EpsilonOf(type)) type = t;
    behind.insert(behind.end(), i->operands().begin(), i->operands().end());
  }
  return type;
}

bool IsNarrow(PrimitiveType type) { return IsFloat(type) && BitWidth(type) < 16; }

Literal Mapped(const Shadow& x, absl::FunctionRef<double(double value, double error)> f) {
  std::vector<double> out(x.value.num_elements());
  for (size_t n = 0; n < out.size(); ++n) {
    const int64_t at = static_cast<int64_t>(n);
    out[n] = f(x.value.GetAsDouble(at), x.known().At(at));
  }
  return AsDouble(x.value.shape(), std::move(out));
}

Literal Errors(const Shadow& x) {
  std::vector<double> e(x.value.num_elements());
  for (size_t n = 0; n < e.size(); ++n) e[n] = x.known().At(static_cast<int64_t>(n));
  return AsDouble(x.value.shape(), std::move(e));
}

Literal Filled(const Literal& like, double value) {
  return AsDouble(like.shape(), std::vector<double>(like.num_elements(), value));
}

// One accumulator: what goes into each sum, as f64 arrays of the result's dims.
struct Sums {
  Literal value;      // the sum in f64, infinities and NaNs included; none (a tuple) of complex numbers
  Literal magnitude;  // sum of the magnitudes of the finite terms
  Literal quantum;    // each finite term is a multiple of it
  Literal error, terms;
  Literal nans;       // terms that are NaN for certain
  Literal not_negative_zero;
};

// How a backend adds up.
struct Adding {
  PrimitiveType accumulation;  // each step is rounded to it
  bool excess = false;         // the result, a half, may keep what f32 holds
};

// Sums that went through no rounding but the last have `value`'s bits from f64; see error_bound.h.
Known SumBound(const Adding& adding, const Sums& s, Literal* value) {
  const PrimitiveType type = value->type(), part = ComplexComponent(type);
  const double largest = LargestFinite(adding.accumulation), exact_up_to = 2 / EpsilonOf(adding.accumulation);
  const bool is_complex = IsComplex(type), wider = EpsilonOf(adding.accumulation) < EpsilonOf(part);
  const size_t n = static_cast<size_t>(value->num_elements());
  std::vector<double> errors(n), off(n), sum(n), low(n), high(n);
  for (size_t k = 0; k < n; ++k) {
    const int64_t at = static_cast<int64_t>(k);
    const double m = s.magnitude.GetAsDouble(at), q = s.quantum.GetAsDouble(at), e = s.error.GetAsDouble(at);
    const double terms = s.terms.GetAsDouble(at);
    sum[k] = is_complex ? 0 : s.value.GetAsDouble(at);
    if (!is_complex && s.nans.GetAsDouble(at) > 0) {
      sum[k] = std::numeric_limits<double>::quiet_NaN();
    } else if (!std::isfinite(e) || !(m < largest / 2) || (is_complex && !std::isfinite(std::abs(value->GetAsComplex(at))))) {
      off[k] = kUnknown;  // which partial sum overflows is a matter of order
    } else if (!is_complex && !std::isfinite(sum[k])) {
      off[k] = 0;  // an infinity among the terms, or two that meet
    } else if (e == 0 && m <= exact_up_to * q && q >= Spacing(adding.accumulation, 0)) {
      off[k] = is_complex ? kZeroSign : 0;
    } else if (is_complex) {
      // A product below the normal numbers is off by half the smallest one, on either side, whatever its size (Higham, "Accuracy
      // and stability of numerical algorithms", 2.1).
      const double underflow = terms * Spacing(adding.accumulation, 0) + Spacing(type, 0);
      off[k] = e + AccumulationBound(adding.accumulation, part, static_cast<int64_t>(terms), m + e) + underflow;
    } else {
      // Higham, 4.2, for any order: n - 1 additions, one product, each off by half a unit, and the f64 sum itself.
      const double unit = EpsilonOf(adding.accumulation) / 2, steps = terms + 1;
      off[k] = e + 1.01 * steps * (unit + 0x1p-53) * (m + e) + steps * Spacing(adding.accumulation, 0);
    }
    low[k] = sum[k] - off[k], high[k] = sum[k] + off[k];
  }
  if (is_complex) return FromErrors(std::move(off));
  const std::vector<double> nearest = RoundedTo(type, sum), lowest = RoundedTo(type, low), highest = RoundedTo(type, high);
  for (size_t k = 0; k < n; ++k) {
    const int64_t at = static_cast<int64_t>(k);
    const double v = nearest[k];
    value->SetFromDouble(at, v);
    if (std::isinf(off[k])) {  // also where the evaluator's infinities meet: with excess precision a backend may have none
      errors[k] = kUnknown;
    } else if (std::isnan(v)) {
      errors[k] = 0;
    } else if (off[k] == 0 || wider) {
      errors[k] = v == lowest[k] && v == highest[k] ? 0 : std::max(std::fabs(lowest[k] - v), std::fabs(highest[k] - v));
      if (adding.excess) errors[k] = std::max(errors[k], std::fabs(v - sum[k]) + off[k]);
    } else {
      errors[k] = std::max(std::fabs(low[k] - v), std::fabs(high[k] - v)) + Spacing(type, 0);
    }
    if (errors[k] > 0 && std::isinf(v)) errors[k] = kUnknown;
    if (v != 0 || (off[k] == 0 && sum[k] != 0)) continue;  // what underflows keeps its sign
    // Zeros of which one is positive, and terms that cancel, make a positive zero in every order.
    if (off[k] > 0) errors[k] = std::max(errors[k], kZeroSign);
    else value->SetFromDouble(at, s.not_negative_zero.GetAsDouble(at) > 0 ? 0.0 : -0.0);
  }
  return FromErrors(std::move(errors));
}

// The region of a select-and-scatter that chooses, in f64; null: it is more than one comparison.
Computation* ChoiceInDouble(const Computation& select, Module* scratch) {
  const Instruction* root = select.root();
  const bool compares =
      root->opcode() == Opcode::kCompare && root->operand(0) == select.parameter(0) && root->operand(1) == select.parameter(1);
  if (!compares || !IsFloat(select.parameter(0)->shape().element_type())) return nullptr;
  if (root->attrs().get_or<std::string>(Attr::kComparisonType, "FLOAT") == "TOTALORDER") return nullptr;
  Computation* c = scratch->AddComputation("select");
  Builder b(c);
  const Shape scalar = Shape::Scalar(PrimitiveType::kF64);
  Instruction* x = b.Parameter(0, scalar);
  Instruction* y = b.Parameter(1, scalar);
  c->set_root(b.Compare(x, y, root->attrs().get<std::string>(Attr::kDirection)));
  return c;
}

// The op on f64 arrays made from the operands that leaf k is made of: array and initial value; operand, indices and updates;
// source and initial value.
class Terms {
 public:
  using Of = absl::FunctionRef<Literal(const Shadow&)>;

  Terms(const Instruction& i, Shadows operands, int64_t k, int64_t n) : i_(i), operands_(operands), k_(k), n_(n) {
    if (selects()) choice_ = ChoiceInDouble(*i.attrs().get<Computation*>(Attr::kSelect), &scratch_);
  }

  absl::StatusOr<Literal> Over(Opcode by, Of of) {
    if (selects()) return OverSources(by, of);
    std::vector<Literal> in;
    if (i_.opcode() == Opcode::kScatter) {
      in = {of(*operands_[k_]), operands_[n_]->value, of(*operands_[n_ + 1 + k_])};
    } else {
      in = {of(*operands_[k_]), of(*operands_[n_ + k_])};
    }
    TENON_ASSIGN_OR_RETURN(Literal result, InDouble(i_, in, by));
    return result.shape().is_tuple() ? result.elements()[0] : result;
  }

 private:
  bool selects() const { return i_.opcode() == Opcode::kSelectAndScatter; }

  absl::StatusOr<Literal> OverSources(Opcode by, Of of) {
    if (choice_ == nullptr) return absl::UnimplementedError("a choice that isn't one comparison");
    Shape shape = i_.shape();
    shape.set_element_type(PrimitiveType::kF64);
    const std::unique_ptr<Instruction> clone = i_.CloneWithShape(shape, i_.operands());
    clone->mutable_attrs().set(Attr::kScatter, scratch_.ScalarComputation(by, PrimitiveType::kF64));
    clone->mutable_attrs().set(Attr::kSelect, choice_);
    const EvalOptions options;
    eval::Context context(options);
    const Literal x = Mapped(*operands_[0], [](double v, double) { return v; });
    return eval::HandlerOf(i_.opcode())(context, *clone, {x, of(*operands_[1]), of(*operands_[2])});
  }

  const Instruction& i_;
  Shadows operands_;
  const int64_t k_, n_;
  Module scratch_;
  Computation* choice_ = nullptr;
};

absl::StatusOr<Sums> SumsOf(Terms& terms, bool is_complex) {
  Sums s;
  TENON_ASSIGN_OR_RETURN(s.magnitude, terms.Over(Opcode::kAdd, [](const Shadow& x) { return Magnitudes(x.value); }));
  TENON_ASSIGN_OR_RETURN(s.quantum, terms.Over(Opcode::kMinimum, [](const Shadow& x) { return Quanta(x.value); }));
  TENON_ASSIGN_OR_RETURN(s.error, terms.Over(Opcode::kAdd, [](const Shadow& x) { return Errors(x); }));
  TENON_ASSIGN_OR_RETURN(s.terms, terms.Over(Opcode::kAdd, [](const Shadow& x) { return Filled(x.value, 1); }));
  if (is_complex) return s;
  TENON_ASSIGN_OR_RETURN(s.value, terms.Over(Opcode::kAdd, [](const Shadow& x) { return Mapped(x, [](double v, double) { return v; }); }));
  TENON_ASSIGN_OR_RETURN(s.nans, terms.Over(Opcode::kAdd, [](const Shadow& x) {
    return Mapped(x, [](double v, double e) { return std::isnan(v) && std::isfinite(e) ? 1.0 : 0.0; });
  }));
  TENON_ASSIGN_OR_RETURN(s.not_negative_zero, terms.Over(Opcode::kAdd, [](const Shadow& x) {
    return Mapped(x, [](double v, double) { return v == 0 && std::signbit(v) ? 0.0 : 1.0; });
  }));
  return s;
}

double FiniteLog(double x) { return x == 0 || !std::isfinite(x) ? 0 : std::log2(std::fabs(x)); }

// Products of floats: each of n factors and n - 1 products is off by half a unit at most, where no partial product leaves the normal
// numbers. Exact where the factors' odd parts have no more bits together than the type.
absl::StatusOr<Known> ProductBound(Terms& terms, const Adding& adding, Literal* value) {
  const auto each = [&](Opcode by, double (*f)(double, double)) {
    return terms.Over(by, [&](const Shadow& x) { return Mapped(x, f); });
  };
  TENON_ASSIGN_OR_RETURN(const Literal product, each(Opcode::kMultiply, [](double x, double) { return x; }));
  TENON_ASSIGN_OR_RETURN(const Literal above, each(Opcode::kAdd, [](double x, double) { return std::max(0.0, FiniteLog(x)); }));
  TENON_ASSIGN_OR_RETURN(const Literal below, each(Opcode::kAdd, [](double x, double) { return std::max(0.0, -FiniteLog(x)); }));
  TENON_ASSIGN_OR_RETURN(const Literal relative, each(Opcode::kAdd, [](double x, double e) {
    return e == 0 ? 0 : x == 0 || std::isinf(e) || !std::isfinite(x) ? kUnknown : e / std::fabs(x);
  }));
  TENON_ASSIGN_OR_RETURN(const Literal count, each(Opcode::kAdd, [](double, double) { return 1.0; }));
  TENON_ASSIGN_OR_RETURN(const Literal odd_bits, each(Opcode::kAdd, [](double x, double) {
    if (x == 0 || !std::isfinite(x)) return 0.0;
    int exponent;
    const auto mantissa = static_cast<uint64_t>(std::ldexp(std::frexp(std::fabs(x), &exponent), 53));
    return static_cast<double>(53 - std::countr_zero(mantissa) - 1) + (std::has_single_bit(mantissa) ? 0 : 1);
  }));
  const double top = std::log2(LargestFinite(adding.accumulation)) - 1;
  const double bottom = -std::log2(Spacing(adding.accumulation, 0) / EpsilonOf(adding.accumulation)) - 1;
  const double digits = 1 - std::log2(EpsilonOf(adding.accumulation)), unit = EpsilonOf(adding.accumulation) / 2;
  std::vector<double> exactly(value->num_elements()), errors(exactly.size());
  for (size_t n = 0; n < exactly.size(); ++n) exactly[n] = product.GetAsDouble(static_cast<int64_t>(n));
  const std::vector<double> nearest = RoundedTo(value->type(), exactly);
  std::vector<double> low(exactly), high(exactly);  // what may be rounded to the type
  for (size_t n = 0; n < errors.size(); ++n) {
    const int64_t at = static_cast<int64_t>(n);
    const double p = exactly[n], r = relative.GetAsDouble(at);
    value->SetFromDouble(at, nearest[n]);
    if (above.GetAsDouble(at) >= top || below.GetAsDouble(at) >= std::min(bottom, 1000.0) || !(r < 0.1)) {
      errors[n] = kUnknown;
      continue;
    }
    if (!std::isfinite(p) || p == 0) continue;  // of the specials alone
    const double rounds = odd_bits.GetAsDouble(at) + 1 <= digits && r == 0 ? 0 : 1.01 * (count.GetAsDouble(at) + 1) * unit;
    const double off = std::fabs(p) * (1.2 * r + rounds);
    low[n] = p - off, high[n] = p + off;
    errors[n] = off + (adding.excess || rounds > 0 ? std::fabs(nearest[n] - p) : 0);
  }
  low = RoundedTo(value->type(), std::move(low)), high = RoundedTo(value->type(), std::move(high));
  for (size_t n = 0; n < errors.size(); ++n) {
    if (errors[n] == 0 || errors[n] == kUnknown) continue;
    errors[n] = std::max({errors[n], std::fabs(low[n] - nearest[n]), std::fabs(high[n] - nearest[n])});
    if (!std::isfinite(errors[n]) || std::isinf(nearest[n])) errors[n] = kUnknown;
  }
  return FromErrors(std::move(errors));
}

// Which of two zeros an extremum keeps is a matter of order, where there are both; in an argmax as in a reduction of its own.
absl::StatusOr<Known> OpenZeros(Terms& terms, const Literal& value) {
  const auto any = [&](bool negative) {
    return terms.Over(Opcode::kMaximum, [&](const Shadow& x) {
      return Mapped(x, [&](double v, double) { return v == 0 && std::signbit(v) == negative ? 1.0 : 0.0; });
    });
  };
  TENON_ASSIGN_OR_RETURN(const Literal negative, any(true));
  TENON_ASSIGN_OR_RETURN(const Literal positive, any(false));
  std::vector<double> errors(value.num_elements());
  for (size_t n = 0; n < errors.size(); ++n) {
    const int64_t at = static_cast<int64_t>(n);
    const bool both = negative.GetAsDouble(at) > 0 && positive.GetAsDouble(at) > 0;
    errors[n] = value.GetAsDouble(at) == 0 && both ? kZeroSign : 0;
  }
  return FromErrors(std::move(errors));
}

// Several results of which some choose among the operands.
bool Selects(const Computation& region, bool excess) {
  return region.root()->shape().is_tuple() && !HasInexact(region, excess) && !LooksAtNanBits(region);
}

// Of a choice among operands, which zero it is.
Known AnyZeros(const Literal& value) {
  std::vector<double> errors(value.num_elements());
  for (size_t n = 0; n < errors.size(); ++n) errors[n] = value.GetAsDouble(static_cast<int64_t>(n)) == 0 ? kZeroSign : 0;
  return FromErrors(std::move(errors));
}

// Infinities, NaNs and the signs of zeros among the products of a contraction.
template <typename Over>
absl::Status Specials(Shadows operands, bool exact, Over&& over, Sums* s) {
  const auto values = [](const Shadow& x, size_t) { return Mapped(x, [](double v, double) { return v; }); };
  TENON_ASSIGN_OR_RETURN(s->value, over(values));
  s->nans = Filled(s->magnitude, 0);
  s->not_negative_zero = Filled(s->magnitude, 1);  // a sum starts at 0
  for (size_t side = 0; side < 2 && operands.size() >= 2; ++side) {
    TENON_ASSIGN_OR_RETURN(const Literal nans, over([&](const Shadow& x, size_t k) {
      return Mapped(x, [&](double v, double e) { return k != side || (std::isnan(v) && std::isfinite(e)) ? 1.0 : 0.0; });
    }));
    for (int64_t n = 0; n < nans.num_elements(); ++n) s->nans.SetFromDouble(n, s->nans.GetAsDouble(n) + nans.GetAsDouble(n));
    if (exact) continue;
    // An infinity times what may be zero or of either sign.
    TENON_ASSIGN_OR_RETURN(const Literal open, over([&](const Shadow& x, size_t k) {
      return Mapped(x, [&](double v, double e) {
        const bool may_be_zero = e > 0 && e >= std::fabs(v);
        return (k == side ? std::isinf(v) : may_be_zero) ? 1.0 : 0.0;
      });
    }));
    for (int64_t n = 0; n < open.num_elements(); ++n) {
      if (open.GetAsDouble(n) > 0) s->error.SetFromDouble(n, kUnknown);
    }
  }
  return absl::OkStatus();
}

// A scatter that replaces elements moves errors with them.
absl::StatusOr<Known> Assigned(const Instruction& i, Shadows operands) {
  Module scratch;
  Computation* region = scratch.AddComputation("assign");
  Builder b(region);
  b.Parameter(0, Shape::Scalar(PrimitiveType::kF64));
  region->set_root(b.Parameter(1, Shape::Scalar(PrimitiveType::kF64)));
  const std::unique_ptr<Instruction> assign = i.CloneWithShape(i.shape(), i.operands());
  assign->mutable_attrs().set(Attr::kToApply, region);
  TENON_ASSIGN_OR_RETURN(const Literal errors,
                         InDouble(*assign, {Errors(*operands[0]), operands[1]->value, Errors(*operands[2])}));
  const auto data = errors.data<double>();
  return FromErrors({data.begin(), data.end()});
}

// One leaf of a reduction or scatter.
absl::StatusOr<Known> LeafRule(const Instruction& i, Shadows operands, const Computation& region, int64_t k, int64_t n, bool excess,
                               Literal* leaf) {
  const bool selects = i.opcode() == Opcode::kSelectAndScatter, scatters = selects || i.opcode() == Opcode::kScatter;
  const std::optional<Opcode> by = CombinerOf(region, k);
  const PrimitiveType type = leaf->type();
  const bool floats = IsFloat(ComplexComponent(type)), extremum = by == Opcode::kMaximum || by == Opcode::kMinimum;
  bool exact = true;
  for (const Shadow* o : operands) exact = exact && o->exact();
  if ((i.opcode() == Opcode::kScatter && !operands[n]->exact()) || (selects && !operands[0]->exact())) return Unknown(*leaf);
  // Rounded to so few bits that order would be everything: they go one by one, in the evaluator's order. What is chosen is not rounded.
  const PrimitiveType stepwise = floats ? Narrowest(region, k, type) : type;
  const bool chooses = exact && IsFloat(type) && Selects(region, excess);
  if (exact && i.opcode() != Opcode::kScatter && IsNarrow(stepwise) && !extremum && !chooses) return Known{};
  // With excess precision halves are added up in registers, as f32; a scatter adds to memory.
  const bool keeps = excess && !scatters && IsHalfType(stepwise);
  const Adding adding{keeps ? PrimitiveType::kF32 : stepwise, excess && IsHalfType(type)};
  if (floats && (by == Opcode::kAdd || (by == Opcode::kMultiply && !IsComplex(type)))) {
    Terms terms(i, operands, selects ? 1 : k, n);
    if (by == Opcode::kMultiply) return ProductBound(terms, adding, leaf);
    absl::StatusOr<Sums> sums = SumsOf(terms, IsComplex(type));
    if (absl::IsUnimplemented(sums.status())) return Unknown(*leaf);
    TENON_RETURN_IF_ERROR(sums.status());
    return SumBound(adding, *sums, leaf);
  }
  if (exact && IsFloat(type) && extremum) {
    Terms terms(i, operands, selects ? 1 : k, n);
    const absl::StatusOr<Known> zeros = OpenZeros(terms, *leaf);
    return absl::IsUnimplemented(zeros.status()) ? Unknown(*leaf) : zeros;
  }
  if (chooses) return AnyZeros(*leaf);
  if (exact && (!floats || (!by.has_value() && !HasInexact(region, excess) && !LooksAtNanBits(region)))) return Known{};
  if (extremum && IsFloat(type) && !selects) {
    // The largest error of what is compared.
    Terms terms(i, operands, k, n);
    TENON_ASSIGN_OR_RETURN(const Literal largest, terms.Over(Opcode::kMaximum, [](const Shadow& x) { return Errors(x); }));
    std::vector<double> errors(largest.data<double>().begin(), largest.data<double>().end());
    for (size_t e = 0; e < errors.size(); ++e) {
      const double v = leaf->GetAsDouble(static_cast<int64_t>(e));
      if (std::isfinite(errors[e])) errors[e] = std::isfinite(v) ? (v == 0 ? std::max(errors[e], kZeroSign) : errors[e]) : 0;
    }
    return FromErrors(std::move(errors));
  }
  if (i.opcode() == Opcode::kScatter && n == 1 && region.root() == region.parameter(1)) return Assigned(i, operands);
  return Unknown(*leaf);
}

}  // namespace

absl::StatusOr<std::vector<Known>> RegionRule(const Instruction& i, Shadows operands, bool excess, Literal* value) {
  const bool selects = i.opcode() == Opcode::kSelectAndScatter;
  const Computation& region = *i.attrs().get<Computation*>(selects ? Attr::kScatter : Attr::kToApply);
  const int64_t n = static_cast<int64_t>(region.parameters().size()) / 2;
  std::vector<Literal> leaves = value->shape().is_tuple() ? value->elements() : std::vector<Literal>{*value};
  std::vector<Known> all;
  for (int64_t k = 0; k < n; ++k) {
    TENON_ASSIGN_OR_RETURN(Known known, LeafRule(i, operands, region, k, n, excess, &leaves[k]));
    all.push_back(std::move(known));
  }
  *value = value->shape().is_tuple() ? Literal::Tuple(std::move(leaves)) : std::move(leaves[0]);
  return all;
}

absl::StatusOr<Known> ContractionRule(const Instruction& i, Shadows operands, bool excess, Literal* value) {
  const PrimitiveType type = value->type(), part = ComplexComponent(type);
  bool exact = true, floats = IsFloat(part);
  for (const Shadow* o : operands) exact = exact && o->exact(), floats = floats || IsFloat(ComplexComponent(o->value.type()));
  if (!floats) return exact ? Known{} : Unknown(*value);
  const size_t data = i.opcode() == Opcode::kScaledDot ? 4 : 2;
  for (size_t k = data; k < operands.size(); ++k) {
    if (!operands[k]->exact()) return Unknown(*value);  // group sizes
  }
  // The op on f64 arrays made from the operands.
  const auto over = [&](absl::FunctionRef<Literal(const Shadow&, size_t)> of) {
    std::vector<Literal> in;
    for (size_t k = 0; k < operands.size(); ++k) in.push_back(k < data ? of(*operands[k], k) : operands[k]->value);
    return InDouble(i, in);
  };
  double quantum = 1;
  for (size_t k = 0; k < data; ++k) quantum *= std::min(SmallestQuantum(operands[k]->value), 0x1p200);
  Sums s;
  TENON_ASSIGN_OR_RETURN(s.magnitude, over([](const Shadow& x, size_t) { return Magnitudes(x.value); }));
  TENON_ASSIGN_OR_RETURN(s.terms, over([](const Shadow& x, size_t) { return Filled(x.value, 1); }));
  s.quantum = Filled(s.magnitude, quantum);
  s.error = Filled(s.magnitude, 0);
  if (!exact) {
    TENON_ASSIGN_OR_RETURN(const Literal most, over([](const Shadow& x, size_t) {
      Literal m = Magnitudes(x.value);
      for (int64_t n = 0; n < m.num_elements(); ++n) m.SetFromDouble(n, m.GetAsDouble(n) + x.known().At(n));
      return m;
    }));
    for (int64_t n = 0; n < most.num_elements(); ++n) {
      const double m = s.magnitude.GetAsDouble(n), e = most.GetAsDouble(n) - m + 4e-16 * m;
      s.error.SetFromDouble(n, std::isnan(e) ? kUnknown : e);
    }
  }
  if (IsFloat(part) && !IsComplex(type)) TENON_RETURN_IF_ERROR(Specials(operands, exact, over, &s));
  // Narrow types are summed up in f32.
  const PrimitiveType accumulation = part == PrimitiveType::kF64 || part == PrimitiveType::kF32 ? part : PrimitiveType::kF32;
  return SumBound({accumulation, excess && IsHalfType(type)}, s, value);
}

}  // namespace tenon::lab
