// Dense linear algebra and Fourier transforms, all in complex<double>.
#include <cmath>
#include <complex>
#include <limits>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "hlo/eval/convert.h"
#include "hlo/eval/internal.h"

namespace tenon::eval {
namespace {

using C = std::complex<double>;

std::vector<C> ToComplex(const Literal& l) {
  std::vector<C> values(l.num_elements());
  for (size_t e = 0; e < values.size(); ++e) values[e] = l.GetAsComplex(e);
  return values;
}

Literal FromComplex(const Shape& shape, const std::vector<C>& values) {
  Literal l(shape);
  std::vector<std::byte> wide(values.size() * kDomainBytes);
  DomainConverter(PrimitiveType::kC128, shape.element_type())(values.data(), wide.data(),
                                                              values.size());
  StorerOf(shape.element_type())(wide.data(), l.mutable_bytes(), values.size());
  return l;
}

// a = L L^H (lower) or U^H U; the other triangle is zero. A matrix that is not positive definite gives NaNs.
absl::StatusOr<Literal> Cholesky(Context&, const Instruction& i, Operands operands) {
  const Literal& a = operands[0];
  const bool lower = i.attrs().get_or<bool>(Attr::kLower, false);
  const int64_t rank = a.shape().rank();
  if (rank < 2) return Invalid(i, "wanted matrices");
  const int64_t n = a.shape().constant_dim(rank - 1);
  std::vector<C> in = ToComplex(a), out(in.size());
  const int64_t count = n == 0 ? 0 : static_cast<int64_t>(in.size()) / (n * n);
  for (int64_t m = 0; m < count; ++m) {
    const C* x = in.data() + m * n * n;
    C* l = out.data() + m * n * n;
    // U is L^H of the matrix read from its upper triangle.
    auto at = [&](int64_t r, int64_t c) { return lower ? x[r * n + c] : std::conj(x[c * n + r]); };
    std::vector<C> factor(n * n);
    for (int64_t c = 0; c < n; ++c) {
      for (int64_t r = c; r < n; ++r) {
        C sum = r == c ? C(at(r, c).real()) : at(r, c);
        for (int64_t k = 0; k < c; ++k) sum -= factor[r * n + k] * std::conj(factor[c * n + k]);
        factor[r * n + c] = r == c ? C(std::sqrt(sum.real())) : sum / factor[c * n + c];
      }
    }
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t c = 0; c <= r; ++c) {
        (lower ? l[r * n + c] : l[c * n + r]) =
            lower ? factor[r * n + c] : std::conj(factor[r * n + c]);
      }
    }
  }
  return FromComplex(i.shape(), out);
}

// op(a) x = b, or x op(a) = b, by substitution.
absl::StatusOr<Literal> TriangularSolve(Context&, const Instruction& i, Operands operands) {
  const bool left = i.attrs().get_or<bool>(Attr::kLeftSide, false);
  const bool unit = i.attrs().get_or<bool>(Attr::kUnitDiagonal, false);
  const bool stored_lower = i.attrs().get_or<bool>(Attr::kLower, false);
  const std::string op = i.attrs().get_or<std::string>(Attr::kTransposeA, "NO_TRANSPOSE");
  const bool transpose = op == "TRANSPOSE" || op == "ADJOINT", conjugate = op == "ADJOINT";
  const Shape& b_shape = operands[1].shape();
  const int64_t rank = b_shape.rank();
  if (rank < 2) return Invalid(i, "wanted matrices");
  const int64_t n = operands[0].shape().constant_dim(rank - 1);
  const int64_t rows = b_shape.constant_dim(rank - 2), columns = b_shape.constant_dim(rank - 1);
  std::vector<C> a = ToComplex(operands[0]), x = ToComplex(operands[1]);
  const int64_t count = x.empty() ? 0 : static_cast<int64_t>(x.size()) / (rows * columns);
  // With the matrix on the right, solve the transposed system.
  const bool flip = transpose == left;  // whether the solved matrix is the stored one transposed
  const bool lower = stored_lower != flip;
  for (int64_t m = 0; m < count; ++m) {
    const C* matrix = a.data() + m * n * n;
    C* b = x.data() + m * rows * columns;
    auto coefficient = [&](int64_t r, int64_t c) {
      C v = flip ? matrix[c * n + r] : matrix[r * n + c];
      return conjugate ? std::conj(v) : v;
    };
    const int64_t vectors = left ? columns : rows;
    for (int64_t v = 0; v < vectors; ++v) {
      auto element = [&](int64_t k) -> C& { return left ? b[k * columns + v] : b[v * columns + k]; };
      for (int64_t step = 0; step < n; ++step) {
        const int64_t r = lower ? step : n - 1 - step;
        C sum = element(r);
        for (int64_t s = 0; s < step; ++s) {
          const int64_t c = lower ? s : n - 1 - s;
          sum -= coefficient(r, c) * element(c);
        }
        element(r) = unit ? sum : sum / coefficient(r, r);
      }
    }
  }
  return FromComplex(i.shape(), x);
}

// Mixed radix by the smallest prime factor; a prime size is done directly.
void Transform(C* data, int64_t n, int64_t stride, int sign, C* scratch) {
  if (n <= 1) return;
  int64_t factor = 2;
  while (factor * factor <= n && n % factor != 0) ++factor;
  if (n % factor != 0) factor = n;
  const int64_t part = n / factor;
  for (int64_t f = 0; f < factor; ++f) {
    Transform(data + f * stride, part, stride * factor, sign, scratch);
  }
  for (int64_t k = 0; k < n; ++k) {
    C sum = 0;
    for (int64_t f = 0; f < factor; ++f) {
      double angle = sign * 2 * std::numbers::pi * static_cast<double>(f * k % n) / n;
      sum += data[(f + k % part * factor) * stride] * C(std::cos(angle), std::sin(angle));
    }
    scratch[k] = sum;
  }
  for (int64_t k = 0; k < n; ++k) data[k * stride] = scratch[k];
}

// In place along dimension d.
void TransformDim(std::vector<C>& data, absl::Span<const int64_t> dims, int64_t d, int sign) {
  Index others(dims.begin(), dims.end());
  const int64_t n = dims[d];
  others[d] = 1;
  Index strides = StridesOf(dims);
  std::vector<C> scratch(n);
  ForEachIndex(others, [&](const Index& index) {
    C* line = data.data() + Offset(index, strides);
    Transform(line, n, strides[d], sign, scratch.data());
    if (sign > 0) {
      for (int64_t k = 0; k < n; ++k) line[k * strides[d]] /= static_cast<double>(n);
    }
  });
}

// Resizes the last dimension: of a real transform's two halves only one is kept, and comes back by symmetry.
std::vector<C> ResizeLast(const std::vector<C>& from, int64_t old_size, int64_t size, bool mirror) {
  const int64_t rows = old_size == 0 ? 0 : static_cast<int64_t>(from.size()) / old_size;
  std::vector<C> to(rows * size);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < size; ++k) {
      const bool mirrored = mirror && k >= size / 2 + 1;
      const int64_t source = mirrored ? size - k : k;
      C v = source < old_size ? from[r * old_size + source] : C(0);
      to[r * size + k] = mirrored ? std::conj(v) : v;
    }
  }
  return to;
}

absl::StatusOr<Literal> Fft(Context&, const Instruction& i, Operands operands) {
  const std::string& type = i.attrs().get<std::string>(Attr::kFftType);
  const auto& lengths = i.attrs().get<std::vector<int64_t>>(Attr::kFftLength);
  const Literal& x = operands[0];
  Index dims;
  for (int64_t d : x.shape().constant_dims()) dims.push_back(d);
  const int64_t rank = dims.size(), count = lengths.size();
  if (count < 1 || count > rank) return Invalid(i, "fft_length");
  std::vector<C> data = ToComplex(x);
  const bool inverse = type == "IFFT" || type == "IRFFT";
  const int sign = inverse ? 1 : -1;
  if (data.empty()) return Literal(i.shape());
  if (type == "IRFFT") {
    for (int64_t d = rank - count; d < rank - 1; ++d) TransformDim(data, dims, d, sign);
    const int64_t size = lengths.back();
    data = ResizeLast(data, dims.back(), size, true);
    dims.back() = size;
    if (!data.empty()) TransformDim(data, dims, rank - 1, sign);
  } else {
    TransformDim(data, dims, rank - 1, sign);
    if (type == "RFFT") {
      const int64_t size = dims.back() / 2 + 1;
      data = ResizeLast(data, dims.back(), size, false);
      dims.back() = size;
    }
    for (int64_t d = rank - count; d < rank - 1; ++d) TransformDim(data, dims, d, sign);
  }
  if (static_cast<int64_t>(data.size()) != i.shape().num_elements_constant()) {
    return Invalid(i, absl::StrCat("result ", i.shape().ToString()));
  }
  return FromComplex(i.shape(), data);
}

constexpr HandlerRow kRows[] = {
    {Opcode::kCholesky, Cholesky},
    {Opcode::kFft, Fft},
    {Opcode::kTriangularSolve, TriangularSolve},
};

}  // namespace

absl::Span<const HandlerRow> LinalgHandlers() { return kRows; }

}  // namespace tenon::eval
