#include "hlo/tolerance.h"

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "hlo/numeric_types.h"

namespace tenon {
namespace {

// Position of a value on the type's number line: neighbours differ by one, -0 and +0 are both 0.
template <typename T>
int64_t LinePosition(double value) {
  T t(value);
  int64_t magnitude;
  if constexpr (std::is_same_v<T, double>) {
    magnitude = std::bit_cast<int64_t>(std::fabs(t));
  } else if constexpr (std::is_same_v<T, float>) {
    magnitude = std::bit_cast<int32_t>(std::fabs(t));
  } else {
    magnitude = T(std::fabs(static_cast<double>(t))).bits();
  }
  return std::signbit(value) ? -magnitude : magnitude;
}

int64_t Distance(int64_t a, int64_t b) {
  __int128 d = static_cast<__int128>(a) - b;
  if (d < 0) d = -d;
  return d > INT64_MAX ? INT64_MAX : static_cast<int64_t>(d);
}

class Comparer {
 public:
  Comparer(const ToleranceRule& rule, LiteralDifference* difference)
      : rule_(rule), d_(difference) {}

  void Compare(const Literal& got, const Literal& want) {
    if (!Shape::Compatible(got.shape(), want.shape())) {
      d_->within = false;
      d_->what = absl::StrCat("shapes differ: got ", got.shape().ToString(), ", wanted ",
                              want.shape().ToString());
      return;
    }
    for (size_t i = 0; i < got.elements().size(); ++i) {
      path_.push_back(i);
      Compare(got.elements()[i], want.elements()[i]);
      path_.pop_back();
    }
    if (got.shape().is_array()) CompareArrays(got, want);
  }

 private:
  void CompareArrays(const Literal& got, const Literal& want) {
    const int64_t n = got.num_elements();
    d_->elements += n;
    if (std::memcmp(got.bytes(), want.bytes(), got.size_bytes()) == 0) return;
    const PrimitiveType part = ComplexComponent(got.type());
    for (int64_t i = 0; i < n; ++i) {
      if (IsComplex(got.type())) {
        std::complex<double> g = got.GetAsComplex(i), w = want.GetAsComplex(i);
        bool real = Within(part, i, g.real(), w.real());
        bool imag = Within(part, i, g.imag(), w.imag());
        Note(got, part, i, real ? g.imag() : g.real(), real ? w.imag() : w.real(), real && imag);
      } else if (IsFloat(got.type())) {
        double g = got.GetAsDouble(i), w = want.GetAsDouble(i);
        Note(got, part, i, g, w, Within(part, i, g, w));
      } else {
        // Integers compare as such: a double could not tell large ones apart.
        int64_t g = got.GetAsInt64(i), w = want.GetAsInt64(i);
        bool within = g == w || (rule_.kind == ToleranceRule::Kind::kAbsoluteRelative &&
                                 Within(part, i, got.GetAsDouble(i), want.GetAsDouble(i)));
        Note(got, part, i, got.GetAsDouble(i), want.GetAsDouble(i), within);
      }
    }
  }

  bool Within(PrimitiveType type, int64_t i, double got, double want) const {
    if (std::isnan(got) || std::isnan(want)) return std::isnan(got) && std::isnan(want);
    if (got == want) return !rule_.zero_signs || std::signbit(got) == std::signbit(want);
    if (std::isinf(want) && rule_.kind != ToleranceRule::Kind::kUlps) return false;
    switch (rule_.kind) {
      case ToleranceRule::Kind::kExact:
        return false;
      case ToleranceRule::Kind::kUlps:
        return UlpDistance(type, got, want) <= rule_.ulps;
      case ToleranceRule::Kind::kAccumulated:
        return std::fabs(got - want) <=
               AccumulationBound(rule_.accumulation, type, rule_.terms,
                                 rule_.magnitude->GetAsDouble(i));
      case ToleranceRule::Kind::kAbsoluteRelative:
        return std::fabs(got - want) <= rule_.atol + rule_.rtol * std::fabs(want);
    }
    return false;
  }

  void Note(const Literal& array, PrimitiveType part, int64_t i, double got, double want,
            bool within) {
    const int64_t ulp = IsFloat(part) ? UlpDistance(part, got, want) : 0;
    d_->ulp = std::max(d_->ulp, ulp);
    if (within) return;
    d_->within = false;
    ++d_->differing;
    double abs = std::isnan(got) != std::isnan(want) ? INFINITY : std::fabs(got - want);
    if (d_->differing > 1 && !(abs > d_->abs)) return;
    d_->tuple_index = path_;
    d_->index.assign(array.shape().rank(), 0);
    int64_t rest = i;
    for (int64_t k = array.shape().rank() - 1; k >= 0; --k) {
      d_->index[k] = rest % array.shape().constant_dim(k);
      rest /= array.shape().constant_dim(k);
    }
    d_->got = got;
    d_->want = want;
    d_->abs = abs;
    d_->rel = want == 0 ? INFINITY : abs / std::fabs(want);
    d_->what = absl::StrFormat("%s[%s]: got %.17g, wanted %.17g (abs %.3g, rel %.3g, %d ulp)",
                               path_.empty() ? "" : absl::StrCat("{", absl::StrJoin(path_, ","), "}"),
                               absl::StrJoin(d_->index, ","), got, want, abs, d_->rel, ulp);
  }

  const ToleranceRule& rule_;
  LiteralDifference* d_;
  std::vector<int64_t> path_;
};

}  // namespace

double EpsilonOf(PrimitiveType type) {
  if (!IsFloat(ComplexComponent(type))) return 0;
  return DispatchType(ComplexComponent(type), []<typename T>(TypeTag<T>) -> double {
    if constexpr (std::is_floating_point_v<T>) {
      return std::numeric_limits<T>::epsilon();
    } else if constexpr (requires { T::digits; }) {
      return std::ldexp(1.0, 1 - T::digits);
    } else {
      return 0;
    }
  });
}

double AccumulationBound(PrimitiveType accumulation, PrimitiveType result, int64_t terms,
                         double magnitude) {
  double bound = kAccumulationConstant * static_cast<double>(std::max<int64_t>(terms, 1)) *
                 EpsilonOf(accumulation) * magnitude;
  if (result != accumulation) bound += EpsilonOf(result) * magnitude;
  return bound;
}

int64_t UlpDistance(PrimitiveType type, double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b) ? 0 : INT64_MAX;
  return DispatchType(type, [&]<typename T>(TypeTag<T>) -> int64_t {
    if constexpr (std::is_floating_point_v<T> || requires { T::digits; }) {
      return Distance(LinePosition<T>(a), LinePosition<T>(b));
    } else {
      return a == b ? 0 : INT64_MAX;
    }
  });
}

ToleranceRule ToleranceRule::Ulps(int64_t n) {
  ToleranceRule rule;
  rule.kind = Kind::kUlps;
  rule.ulps = n;
  return rule;
}

ToleranceRule ToleranceRule::AbsRel(double atol, double rtol) {
  ToleranceRule rule;
  rule.kind = Kind::kAbsoluteRelative;
  rule.atol = atol;
  rule.rtol = rtol;
  return rule;
}

ToleranceRule ToleranceRule::Accumulated(PrimitiveType accumulation, int64_t terms,
                                         const Literal* magnitude) {
  ToleranceRule rule;
  rule.kind = Kind::kAccumulated;
  rule.accumulation = accumulation;
  rule.terms = terms;
  rule.magnitude = magnitude;
  return rule;
}

LiteralDifference CompareLiterals(const Literal& got, const Literal& want,
                                  const ToleranceRule& rule) {
  LiteralDifference difference;
  Comparer(rule, &difference).Compare(got, want);
  return difference;
}

}  // namespace tenon
