// Cholesky factors and triangular systems, by substitution in double or complex<double>, one rounding at the end.
#include <cmath>

#include "hlo/library/call.h"
#include "hlo/library/wide.h"

namespace tenon::library {
namespace {

bool IsFloatOrComplex(const Shape& s) { return IsFloat(s.element_type()) || IsComplex(s.element_type()); }

// f(double{}) or f(std::complex<double>{}).
template <typename F>
void InDomain(const Shape& s, F&& f) {
  if (IsComplex(s.element_type())) return f(std::complex<double>{});
  f(double{});
}

int64_t CopyBytes(const Shape& s) {
  return IsComplex(s.element_type()) ? Scratch::Bytes<std::complex<double>>(s.num_elements_constant())
                                     : Scratch::Bytes<double>(s.num_elements_constant());
}

// ---- cholesky ------------------------------------------------------------------------------------------------------------
// a = L L^H (lower) or U^H U; the other triangle is zero. A matrix that is not positive definite gives NaNs.

absl::Status CheckCholesky(const Signature& s) {
  if (s.operands.size() != 1 || s.results.size() != 1) return Invalid(s, "wanted one array each");
  const Shape& a = s.operands[0];
  const int64_t rank = a.rank();
  if (!IsFloatOrComplex(a) || !Shape::Compatible(a, s.results[0])) return Invalid(s, "wanted float or complex arrays of one shape");
  if (rank < 2 || a.constant_dim(rank - 1) != a.constant_dim(rank - 2)) return Invalid(s, "wanted square matrices");
  if (s.attributes.Int("lower") == nullptr) return Invalid(s, "wanted lower");
  return absl::OkStatus();
}

int64_t CholeskyScratch(const Signature& s) { return 2 * CopyBytes(s.operands[0]); }

template <typename T>
void Factor(const T* x, int64_t n, bool lower, T* out) {
  // U is L^H of the matrix read from its upper triangle; L itself is made in the lower triangle of `out`.
  auto at = [&](int64_t r, int64_t c) { return lower ? x[r * n + c] : Conj(x[c * n + r]); };
  for (int64_t c = 0; c < n; ++c) {
    for (int64_t r = c; r < n; ++r) {
      T sum = r == c ? T(Real(at(r, c))) : at(r, c);
      for (int64_t k = 0; k < c; ++k) sum -= Times(out[r * n + k], Conj(out[c * n + k]));
      out[r * n + c] = r == c ? T(std::sqrt(Real(sum))) : sum / out[c * n + c];
    }
  }
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t c = r + 1; c < n; ++c) {
      out[r * n + c] = lower ? T(0) : Conj(out[c * n + r]);
      if (!lower) out[c * n + r] = T(0);
    }
    if (!lower) out[r * n + r] = Conj(out[r * n + r]);
  }
}

absl::Status RunCholesky(const Call& call) {
  const Shape& a = call.signature.operands[0];
  const bool lower = *call.signature.attributes.Int("lower") != 0;
  const int64_t n = a.constant_dim(a.rank() - 1), elements = a.num_elements_constant();
  InDomain(a, [&]<typename T>(T) {
    Scratch scratch(call);
    T *in = scratch.Take<T>(elements), *out = scratch.Take<T>(elements);
    Widen(a.element_type(), call.operands[0], elements, in);
    for (int64_t m = 0; m < elements; m += n * n) Factor(in + m, n, lower, out + m);
    Narrow(out, elements, a.element_type(), call.results[0]);
  });
  return absl::OkStatus();
}

// ---- triangular-solve ----------------------------------------------------------------------------------------------------
// op(a) x = b, or x op(a) = b.

absl::Status CheckSolve(const Signature& s) {
  if (s.operands.size() != 2 || s.results.size() != 1) return Invalid(s, "wanted two arrays and one");
  const Shape &a = s.operands[0], &b = s.operands[1];
  const int64_t rank = a.rank();
  const AttributeList& attrs = s.attributes;
  const std::string* op = attrs.String("transpose_a");
  if (attrs.Int("left_side") == nullptr || attrs.Int("lower") == nullptr || attrs.Int("unit_diagonal") == nullptr ||
      op == nullptr || (*op != "NO_TRANSPOSE" && *op != "TRANSPOSE" && *op != "ADJOINT")) {
    return Invalid(s, "wanted left_side, lower, unit_diagonal and transpose_a");
  }
  if (!IsFloatOrComplex(a) || a.element_type() != b.element_type() || !Shape::Compatible(b, s.results[0])) {
    return Invalid(s, "wanted float or complex arrays of one type");
  }
  bool fits = rank >= 2 && b.rank() == rank && a.constant_dim(rank - 1) == a.constant_dim(rank - 2);
  for (int64_t d = 0; fits && d < rank - 2; ++d) fits = a.constant_dim(d) == b.constant_dim(d);
  fits = fits && b.constant_dim(*attrs.Int("left_side") != 0 ? rank - 2 : rank - 1) == a.constant_dim(rank - 1);
  return fits ? absl::OkStatus() : Invalid(s, "sizes of the matrices");
}

int64_t SolveScratch(const Signature& s) { return CopyBytes(s.operands[0]) + CopyBytes(s.operands[1]); }

struct SolveOptions {
  bool left, lower, unit, transpose, adjoint;
};

template <typename T>
void Solve(const T* matrix, int64_t n, const SolveOptions& o, T* b, int64_t rows, int64_t columns) {
  // With the matrix on the right, solve the transposed system: `flip` says whether what is solved is the stored matrix transposed.
  const bool flip = o.transpose == o.left, lower = o.lower != flip;
  auto coefficient = [&](int64_t r, int64_t c) {
    const T v = flip ? matrix[c * n + r] : matrix[r * n + c];
    return o.adjoint ? Conj(v) : v;
  };
  const int64_t vectors = o.left ? columns : rows, step_of_k = o.left ? columns : 1, step_of_v = o.left ? 1 : columns;
  for (int64_t v = 0; v < vectors; ++v) {
    T* x = b + v * step_of_v;
    for (int64_t step = 0; step < n; ++step) {
      const int64_t r = lower ? step : n - 1 - step;
      T sum = x[r * step_of_k];
      for (int64_t done = 0; done < step; ++done) {
        const int64_t c = lower ? done : n - 1 - done;
        sum -= Times(coefficient(r, c), x[c * step_of_k]);
      }
      x[r * step_of_k] = o.unit ? sum : sum / coefficient(r, r);
    }
  }
}

absl::Status RunSolve(const Call& call) {
  const Shape &a = call.signature.operands[0], &b = call.signature.operands[1];
  const AttributeList& attrs = call.signature.attributes;
  const std::string& op = *attrs.String("transpose_a");
  const SolveOptions options{*attrs.Int("left_side") != 0, *attrs.Int("lower") != 0, *attrs.Int("unit_diagonal") != 0,
                             op != "NO_TRANSPOSE", op == "ADJOINT"};
  const int64_t n = a.constant_dim(a.rank() - 1), rows = b.constant_dim(b.rank() - 2), columns = b.constant_dim(b.rank() - 1);
  const int64_t elements = b.num_elements_constant();
  InDomain(a, [&]<typename T>(T) {
    Scratch scratch(call);
    T *matrix = scratch.Take<T>(a.num_elements_constant()), *x = scratch.Take<T>(elements);
    Widen(a.element_type(), call.operands[0], a.num_elements_constant(), matrix);
    Widen(b.element_type(), call.operands[1], elements, x);
    for (int64_t m = 0; m * rows * columns < elements; ++m) {
      Solve(matrix + m * n * n, n, options, x + m * rows * columns, rows, columns);
    }
    Narrow(x, elements, b.element_type(), call.results[0]);
  });
  return absl::OkStatus();
}

constexpr Function kFunctions[] = {{"cholesky", CheckCholesky, CholeskyScratch, RunCholesky},
                                   {"triangular-solve", CheckSolve, SolveScratch, RunSolve}};

}  // namespace

absl::Span<const Function> LinalgFunctions() { return kFunctions; }

}  // namespace tenon::library
