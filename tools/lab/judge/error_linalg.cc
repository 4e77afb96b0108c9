// Errors of Fourier transforms, triangular systems and batch normalisation, for exact operands; unknown for others.
//
// Fourier transform: each result is a sum of N products with numbers of magnitude 1. Substitution: Higham, "Accuracy and Stability of
// Numerical Algorithms", 2nd ed., theorem 8.7: |x' - x| <= (n^2 + n + 1) u M(T)^-1 |b| with the comparison matrix M(T). Cholesky:
// section 10.1, with the condition number of the factor. Normalisation: the formulas, each sum with the bound of a sum.
#include <algorithm>
#include <cmath>

#include "hlo/tolerance.h"
#include "tools/lab/judge/error_rules.h"

namespace tenon::lab {
namespace {

using eval::Index;

std::vector<double> Values(const Literal& l) {
  std::vector<double> v(l.num_elements());
  for (size_t n = 0; n < v.size(); ++n) v[n] = l.GetAsDouble(static_cast<int64_t>(n));
  return v;
}

std::vector<double> Magnitude(const Literal& l) { return Values(Magnitudes(l)); }

Known Fft(const Instruction& i, const Literal& x, const Literal& value) {
  const auto& lengths = i.attrs().get<std::vector<int64_t>>(Attr::kFftLength);
  const std::string& type = i.attrs().get<std::string>(Attr::kFftType);
  int64_t in = 1, out = 1, points = 1;
  for (size_t d = 0; d < lengths.size(); ++d) {
    in *= x.shape().constant_dim(x.shape().rank() - 1 - static_cast<int64_t>(d));
    out *= value.shape().constant_dim(value.shape().rank() - 1 - static_cast<int64_t>(d));
    points *= lengths[d];
  }
  std::vector<double> errors(value.num_elements());
  const std::vector<double> magnitudes = Magnitude(x);
  for (size_t n = 0; n < errors.size(); ++n) {
    const int64_t batch = static_cast<int64_t>(n) / out;
    double sum = 0;
    for (int64_t k = 0; k < in; ++k) sum += magnitudes[batch * in + k];
    if (type == "IRFFT") sum *= 2;
    if (type == "IFFT" || type == "IRFFT") sum /= static_cast<double>(points);
    const PrimitiveType part = ComplexComponent(value.type());
    errors[n] = sum < LargestFinite(part) / 4 ? AccumulationBound(part, part, points, sum) + Spacing(part, 0) : kUnknown;
  }
  return FromErrors(std::move(errors));
}

// M(T)^-1 |b| by the same op: the diagonal's magnitude, minus the magnitude of the rest.
absl::StatusOr<Known> TriangularSolve(const Instruction& i, const Literal& a, const Literal& b, const Literal& value) {
  const int64_t n = a.shape().constant_dim(a.shape().rank() - 1);
  std::vector<double> comparison = Magnitude(a);
  for (size_t e = 0; e < comparison.size(); ++e) {
    const int64_t at = static_cast<int64_t>(e);
    if (at / n % n != at % n) comparison[e] = -comparison[e];
  }
  TENON_ASSIGN_OR_RETURN(const Literal most, InDouble(i, {AsDouble(a.shape(), comparison), AsDouble(b.shape(), Magnitude(b))}));
  std::vector<double> errors = Values(most);
  const double factor = 2 * static_cast<double>(n * n + n + 1) * EpsilonOf(value.type());
  const double largest = LargestFinite(value.type()) / 4;
  for (double& e : errors) e = e < largest ? factor * e + Spacing(value.type(), 0) : kUnknown;
  return FromErrors(std::move(errors));
}

// Relative to the largest entry: n^2 u times the condition number of A, bounded by Frobenius norms of the factor and its inverse.
Known Cholesky(const Instruction& i, const Literal& value) {
  const bool lower = i.attrs().get_or<bool>(Attr::kLower, false);
  const int64_t n = value.shape().constant_dim(value.shape().rank() - 1);
  const std::vector<double> m = Magnitude(value);
  std::vector<double> errors(m.size());
  for (size_t first = 0; n > 0 && first < m.size(); first += static_cast<size_t>(n * n)) {
    const auto l = [&](int64_t r, int64_t c) { return m[first + static_cast<size_t>(lower ? r * n + c : c * n + r)]; };
    double norm = 0, inverse_norm = 0, largest = 0;
    for (int64_t column = 0; column < n; ++column) {
      std::vector<double> x(n);  // of M(L)^-1
      for (int64_t r = column; r < n; ++r) {
        double sum = r == column ? 1 : 0;
        for (int64_t c = column; c < r; ++c) sum += l(r, c) * x[c];
        x[r] = sum / l(r, r);
        inverse_norm += x[r] * x[r];
        norm += l(r, column) * l(r, column);
        largest = std::max(largest, l(r, column));
      }
    }
    const double error = 4 * static_cast<double>(n * n + 1) * EpsilonOf(value.type()) * largest * norm * inverse_norm;
    // The other triangle is zero.
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t c = 0; c <= r; ++c)
        errors[first + static_cast<size_t>(lower ? r * n + c : c * n + r)] = std::isfinite(error) ? error : kUnknown;
    }
  }
  return FromErrors(std::move(errors));
}

// Batch normalisation: each formula over magnitudes, feature by feature.
class Normalisation {
 public:
  Normalisation(const Instruction& i, Shadows operands, PrimitiveType type)
      : opcode_(i.opcode()), eps_(EpsilonOf(type)), tiny_(Spacing(type, 0)), epsilon_(i.attrs().get<double>(Attr::kEpsilon)),
        type_(type) {
    const Shape& shape = operands[0]->value.shape();
    const int64_t feature = i.attrs().get<int64_t>(Attr::kFeatureIndex);
    features_ = shape.constant_dim(feature);
    for (int64_t d = feature + 1; d < shape.rank(); ++d) inner_ *= shape.constant_dim(d);
    for (const Shadow* o : operands) in_.push_back(Values(o->value));
    count_ = features_ > 0 ? static_cast<double>(in_[0].size()) / static_cast<double>(features_) : 0;
    FindSpecials();
  }

  // A bound says nothing of a feature with a value that is no number, or too large for sums of it to stay finite: `errors` of leaf k,
  // without it. But what comes of a NaN among its terms is one, whatever their order.
  Known Sane(size_t k, std::vector<double> errors, const Literal& value) const {
    for (size_t e = 0; e < errors.size(); ++e) {
      const size_t f = k == 0 ? FeatureOf(e) : e;
      if (!open_[f]) continue;
      errors[e] = std::isnan(value.GetAsDouble(static_cast<int64_t>(e))) && IsNanForCertain(k, e, f) ? 0 : kUnknown;
    }
    return FromErrors(std::move(errors));
  }

  std::vector<double> Inference() const {
    std::vector<double> errors = Each([&](double x, size_t f) {
      const double k = std::fabs(in_[1][f]) / std::sqrt(in_[4][f] + epsilon_);
      const double size = std::fabs(x) + std::fabs(in_[3][f]);
      return 8 * eps_ * (size * k + std::fabs(in_[2][f])) + 4 * tiny_ * (1 + size + k);
    });
    return OrOffset(std::move(errors), [&](size_t f) { return in_[4][f] + epsilon_ > 0; });
  }

  // y, mean, variance.
  std::vector<std::vector<double>> Training(const std::vector<double>& mean, const std::vector<double>& variance) const {
    std::vector<double> absolute(features_), square(features_);
    Sum([&](size_t e, size_t f) { absolute[f] += std::fabs(in_[0][e]) / count_, square[f] += in_[0][e] * in_[0][e] / count_; });
    std::vector<double> mean_error(features_), variance_error(features_);
    for (size_t f = 0; f < features_; ++f) {
      if (count_ == 1) continue;  // a number is its own mean, and does not deviate from it
      mean_error[f] = 2 * (count_ + 2) * eps_ * absolute[f] + Spacing(type_, 0);
      variance_error[f] = 6 * (count_ + 2) * eps_ * square[f] + Spacing(type_, 0);
    }
    std::vector<double> y = Each([&](double x, size_t f) {
      const double v = variance[f] + epsilon_, relative = variance_error[f] / v + 8 * eps_;
      if (relative > 0.5) return kUnknown;
      const double k = std::fabs(in_[1][f]) / std::sqrt(v);
      return 2 * k * (mean_error[f] + (std::fabs(x - mean[f]) + mean_error[f]) * relative) +
             8 * eps_ * (k * (std::fabs(x) + absolute[f]) + std::fabs(in_[2][f])) + 4 * tiny_ * (1 + k + std::fabs(x) + absolute[f]);
    });
    y = OrOffset(std::move(y), [&](size_t f) { return variance[f] + epsilon_ > 4 * variance_error[f]; });
    return {std::move(y), std::move(mean_error), std::move(variance_error)};
  }

  // dx, d_scale, d_offset.
  std::vector<std::vector<double>> Gradient() const {
    std::vector<double> offset(features_), scale(features_), rstd(features_);
    for (size_t f = 0; f < features_; ++f) rstd[f] = 1 / std::sqrt(in_[3][f] + epsilon_);
    const auto normal = [&](double x, size_t f) { return (std::fabs(x) + std::fabs(in_[2][f])) * rstd[f]; };
    Sum([&](size_t e, size_t f) {
      offset[f] += std::fabs(in_[4][e]);
      scale[f] += std::fabs(in_[4][e]) * normal(in_[0][e], f);
    });
    const double factor = 8 * (count_ + 8) * eps_, largest = LargestFinite(type_) / 64;
    size_t at = 0;
    std::vector<double> dx = Each([&](double x, size_t f) {
      const double dy = std::fabs(in_[4][at++]);
      const double size = count_ * dy + offset[f] + normal(x, f) * scale[f], k = std::fabs(in_[1][f]) * rstd[f];
      // Where the deviation is not divided by its spread first, a product on the way may overflow though the result does not.
      const double spread = std::max(1 / rstd[f], 1.0);
      if (size * spread * spread * std::max(k, 1.0) > largest) return kUnknown;
      const double underflow = 8 * tiny_ * (1 + size) * (1 + k) * (1 + rstd[f]) * (1 + normal(x, f));
      return factor * k * size / count_ + underflow;
    });
    for (size_t e = 0; e < dx.size(); ++e) {
      if (in_[1][FeatureOf(e)] == 0 && std::isfinite(dx[e])) dx[e] = kZeroSign;  // times a scale of zero
    }
    for (size_t f = 0; f < features_; ++f) {
      scale[f] = factor * scale[f] + 4 * tiny_ * (1 + count_) * (1 + rstd[f]) * (1 + offset[f]);
      offset[f] = factor * offset[f] + tiny_;
    }
    return {std::move(dx), std::move(scale), std::move(offset)};
  }

 private:
  // By feature, what operand o holds of it: a NaN, and nothing that is not finite.
  void FindSpecials() {
    const double largest = std::sqrt(LargestFinite(type_)) / 64;
    open_.assign(features_, false);
    nan_.assign(in_.size(), std::vector<bool>(features_, false));
    finite_.assign(in_.size(), std::vector<bool>(features_, true));
    for (size_t o = 0; o < in_.size(); ++o) {
      const bool whole = o == 0 || (o == 4 && opcode_ == Opcode::kBatchNormGrad);
      for (size_t e = 0; e < in_[o].size(); ++e) {
        const size_t f = whole ? FeatureOf(e) : e;
        if (!(std::fabs(in_[o][e]) < largest)) open_[f] = true;
        if (std::isnan(in_[o][e])) nan_[o][f] = true;
        if (!std::isfinite(in_[o][e])) finite_[o][f] = false;
      }
    }
  }

  // Element e of leaf k, of feature f.
  bool IsNanForCertain(size_t k, size_t e, size_t f) const {
    switch (opcode_) {
      case Opcode::kBatchNormInference:
        return std::isnan(in_[0][e]) || nan_[1][f] || nan_[2][f] || nan_[3][f] || nan_[4][f];
      case Opcode::kBatchNormTraining:
        if (k == 0) return !finite_[0][f] || nan_[1][f] || nan_[2][f];  // an infinity minus the mean that it makes
        return k == 1 ? nan_[0][f] : !finite_[0][f];
      default:  // the gradient: x, scale, mean, variance, dy
        if (k == 2) return nan_[4][f];
        return nan_[0][f] || nan_[2][f] || nan_[3][f] || nan_[4][f] || (k == 0 && nan_[1][f]);
    }
  }

  // A scale of zero leaves nothing but the offset, in every order, where the spread is a number above zero for certain.
  template <typename F>
  std::vector<double> OrOffset(std::vector<double> errors, F&& has_spread) const {
    for (size_t e = 0; e < errors.size(); ++e) {
      const size_t f = FeatureOf(e);
      if (in_[1][f] == 0 && has_spread(f)) errors[e] = in_[2][f] == 0 ? kZeroSign : 0;
    }
    return errors;
  }

  size_t FeatureOf(size_t e) const { return e / static_cast<size_t>(inner_) % static_cast<size_t>(features_); }
  template <typename F>
  void Sum(F&& f) const {
    for (size_t e = 0; e < in_[0].size(); ++e) f(e, FeatureOf(e));
  }
  // In the order of elements.
  template <typename F>
  std::vector<double> Each(F&& f) const {
    std::vector<double> out(in_[0].size());
    for (size_t e = 0; e < out.size(); ++e) out[e] = f(in_[0][e], FeatureOf(e)) + Spacing(type_, 0);
    return out;
  }

  Opcode opcode_;
  double eps_, tiny_, epsilon_, count_ = 0;  // tiny_: what a subnormal step may lose, times what it is multiplied by
  PrimitiveType type_;
  size_t features_ = 0;
  int64_t inner_ = 1;
  std::vector<std::vector<double>> in_;
  std::vector<bool> open_;                        // by feature
  std::vector<std::vector<bool>> nan_, finite_;   // by operand and feature
};

}  // namespace

absl::StatusOr<std::vector<Known>> LinalgRule(const Instruction& i, Shadows operands, const Literal& value) {
  bool exact = true;
  for (const Shadow* o : operands) exact = exact && o->exact();
  std::vector<const Literal*> leaves;
  if (!value.shape().is_tuple()) leaves.push_back(&value);
  for (const Literal& e : value.elements()) leaves.push_back(&e);
  std::vector<Known> all;
  if (!exact) {
    for (const Literal* leaf : leaves) all.push_back(Unknown(*leaf));
    return all;
  }
  switch (i.opcode()) {
    case Opcode::kFft: return std::vector<Known>{Fft(i, operands[0]->value, value)};
    case Opcode::kCholesky: return std::vector<Known>{Cholesky(i, value)};
    case Opcode::kTriangularSolve: {
      TENON_ASSIGN_OR_RETURN(Known k, TriangularSolve(i, operands[0]->value, operands[1]->value, value));
      return std::vector<Known>{std::move(k)};
    }
    case Opcode::kBatchNormInference: {
      const Normalisation n(i, operands, value.type());
      return std::vector<Known>{n.Sane(0, n.Inference(), value)};
    }
    default: break;
  }
  const Normalisation n(i, operands, leaves[0]->type());
  std::vector<std::vector<double>> errors =
      i.opcode() == Opcode::kBatchNormTraining ? n.Training(Values(*leaves[1]), Values(*leaves[2])) : n.Gradient();
  for (size_t k = 0; k < errors.size(); ++k) all.push_back(n.Sane(k, std::move(errors[k]), *leaves[k]));
  return all;
}

}  // namespace tenon::lab
