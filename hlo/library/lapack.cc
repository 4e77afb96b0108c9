// LAPACK's unblocked algorithms (LAPACK Users' Guide; dpotf2, dgetf2, dgeqr2 and dorg2r of the reference sources), with
// its sign and pivot conventions, so that factors and not only their products agree with LAPACK's. What JAX's custom calls
// "lapack_<s|d|c|z><routine>_ffi" mean: batched over leading dimensions, letters as character codes.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "hlo/library/call.h"
#include "hlo/library/wide.h"

namespace tenon::library {
namespace {

// A batch of row-major matrices.
struct Batch {
  int64_t count = 1, rows = 0, cols = 0;
  int64_t elements() const { return count * rows * cols; }
};

Batch BatchOf(const Shape& s) {
  Batch b;
  for (int64_t d = 0; d < s.rank() - 2; ++d) b.count *= s.constant_dim(d);
  b.rows = s.constant_dim(s.rank() - 2);
  b.cols = s.constant_dim(s.rank() - 1);
  return b;
}

// One matrix that is looked at as itself or as its transpose.
template <typename T>
struct Matrix {
  T* data;
  int64_t row_step, col_step;
  T& operator()(int64_t r, int64_t c) const { return data[r * row_step + c * col_step]; }
};

char Letter(const Signature& s, std::string_view name, char otherwise) {
  return static_cast<char>(s.attributes.IntOr(name, otherwise));
}

absl::Status WantMatrices(const Signature& s, size_t count) {
  if (s.operands.size() != count) return Invalid(s, absl::StrCat("wanted ", count, " operands, got ", s.operands.size()));
  for (const Shape& operand : s.operands) {
    const bool numbers = IsFloat(operand.element_type()) || IsComplex(operand.element_type());
    if (!numbers || operand.element_type() != s.operands[0].element_type()) return Invalid(s, "wanted matrices of one type");
  }
  return s.operands[0].rank() < 2 ? Invalid(s, "wanted matrices") : absl::OkStatus();
}

// Results of as many elements as `sizes` says; `numbers` of them of the operand's type, the others integers.
absl::Status WantResults(const Signature& s, const std::vector<int64_t>& sizes, size_t numbers) {
  bool fits = s.results.size() == sizes.size();
  for (size_t k = 0; fits && k < sizes.size(); ++k) {
    const PrimitiveType type = s.results[k].element_type();
    fits = s.results[k].num_elements_constant() == sizes[k] &&
           (k < numbers ? type == s.operands[0].element_type() : IsIntegral(type));
  }
  return fits ? absl::OkStatus() : Invalid(s, "sizes of the results");
}

void StoreInts(const int64_t* values, int64_t count, const Shape& shape, void* to) {
  DispatchType(shape.element_type(), [&]<typename T>(TypeTag<T>) {
    if constexpr (std::is_integral_v<T>) {
      for (int64_t k = 0; k < count; ++k) static_cast<T*>(to)[k] = static_cast<T>(values[k]);
    } else {
      TENON_CHECK(false, shape.ToString());
    }
  });
}

template <typename F>
void InDomain(const Signature& s, F&& f) {
  if (IsComplex(s.operands[0].element_type())) return f(std::complex<double>{});
  f(double{});
}

int64_t Wide(const Signature& s, int64_t count) {
  return IsComplex(s.operands[0].element_type()) ? Scratch::Bytes<std::complex<double>>(count) : Scratch::Bytes<double>(count);
}

// ---- potrf: (matrix, info) -----------------------------------------------------------------------------------------------
// What lies in the other triangle stays. info: the order of the first minor that isn't positive.

absl::Status CheckPotrf(const Signature& s) {
  TENON_RETURN_IF_ERROR(WantMatrices(s, 1));
  const Batch a = BatchOf(s.operands[0]);
  if (a.rows != a.cols) return Invalid(s, "wanted square matrices");
  return WantResults(s, {a.elements(), a.count}, 1);
}

int64_t PotrfScratch(const Signature& s) {
  const Batch a = BatchOf(s.operands[0]);
  return Wide(s, a.elements()) + Scratch::Bytes<int64_t>(a.count);
}

template <typename T>
int64_t FactorPositive(T* matrix, int64_t n, bool lower) {
  // U's conjugate transpose is computed in place of L: U = L^H reads and writes the transposed places, conjugated.
  const Matrix<T> l = lower ? Matrix<T>{matrix, n, 1} : Matrix<T>{matrix, 1, n};
  auto get = [&](int64_t r, int64_t c) { return lower ? l(r, c) : Conj(l(r, c)); };
  for (int64_t c = 0; c < n; ++c) {
    double pivot = Real(get(c, c));
    for (int64_t k = 0; k < c; ++k) pivot -= Norm(get(c, k));
    if (!(pivot > 0)) {
      l(c, c) = pivot;
      return c + 1;
    }
    l(c, c) = std::sqrt(pivot);
    for (int64_t r = c + 1; r < n; ++r) {
      T sum = get(r, c);
      for (int64_t k = 0; k < c; ++k) sum -= Times(get(r, k), Conj(get(c, k)));
      sum /= std::sqrt(pivot);
      l(r, c) = lower ? sum : Conj(sum);
    }
  }
  return 0;
}

absl::Status RunPotrf(const Call& call) {
  const Signature& s = call.signature;
  const Batch a = BatchOf(s.operands[0]);
  const bool lower = Letter(s, "uplo", 'L') == 'L';
  InDomain(s, [&]<typename T>(T) {
    Scratch scratch(call);
    T* x = scratch.Take<T>(a.elements());
    int64_t* info = scratch.Take<int64_t>(a.count);
    Widen(s.operands[0].element_type(), call.operands[0], a.elements(), x);
    for (int64_t m = 0; m < a.count; ++m) info[m] = FactorPositive(x + m * a.rows * a.cols, a.rows, lower);
    Narrow(x, a.elements(), s.results[0].element_type(), call.results[0]);
    StoreInts(info, a.count, s.results[1], call.results[1]);
  });
  return absl::OkStatus();
}

// ---- getrf: (factors, pivots from 1, info) -------------------------------------------------------------------------------
// The pivot is the first of largest |re| + |im|.

absl::Status CheckGetrf(const Signature& s) {
  TENON_RETURN_IF_ERROR(WantMatrices(s, 1));
  const Batch a = BatchOf(s.operands[0]);
  return WantResults(s, {a.elements(), a.count * std::min(a.rows, a.cols), a.count}, 1);
}

int64_t GetrfScratch(const Signature& s) {
  const Batch a = BatchOf(s.operands[0]);
  return Wide(s, a.elements()) + Scratch::Bytes<int64_t>(a.count * std::min(a.rows, a.cols)) + Scratch::Bytes<int64_t>(a.count);
}

template <typename T>
int64_t FactorPivoted(const Matrix<T>& x, int64_t rows, int64_t cols, int64_t* pivots) {
  auto size = [](T v) { return std::abs(Real(v)) + std::abs(Imag(v)); };
  int64_t info = 0;
  for (int64_t k = 0; k < std::min(rows, cols); ++k) {
    int64_t pivot = k;
    for (int64_t r = k + 1; r < rows; ++r) {
      if (size(x(r, k)) > size(x(pivot, k))) pivot = r;
    }
    pivots[k] = pivot + 1;
    if (x(pivot, k) == T(0)) {
      if (info == 0) info = k + 1;
      continue;
    }
    for (int64_t c = 0; c < cols && pivot != k; ++c) std::swap(x(k, c), x(pivot, c));
    for (int64_t r = k + 1; r < rows; ++r) {
      x(r, k) /= x(k, k);
      for (int64_t c = k + 1; c < cols; ++c) x(r, c) -= Times(x(r, k), x(k, c));
    }
  }
  return info;
}

absl::Status RunGetrf(const Call& call) {
  const Signature& s = call.signature;
  const Batch a = BatchOf(s.operands[0]);
  const int64_t steps = std::min(a.rows, a.cols);
  InDomain(s, [&]<typename T>(T) {
    Scratch scratch(call);
    T* x = scratch.Take<T>(a.elements());
    int64_t *pivots = scratch.Take<int64_t>(a.count * steps), *info = scratch.Take<int64_t>(a.count);
    Widen(s.operands[0].element_type(), call.operands[0], a.elements(), x);
    for (int64_t m = 0; m < a.count; ++m) {
      info[m] = FactorPivoted(Matrix<T>{x + m * a.rows * a.cols, a.cols, 1}, a.rows, a.cols, pivots + m * steps);
    }
    Narrow(x, a.elements(), s.results[0].element_type(), call.results[0]);
    StoreInts(pivots, a.count * steps, s.results[1], call.results[1]);
    StoreInts(info, a.count, s.results[2], call.results[2]);
  });
  return absl::OkStatus();
}

// ---- trsm: op(a) x = b or x op(a) = b by substitution --------------------------------------------------------------------

absl::Status CheckTrsm(const Signature& s) {
  TENON_RETURN_IF_ERROR(WantMatrices(s, 2));
  if (s.operands[1].rank() < 2) return Invalid(s, "wanted matrices");
  const Batch a = BatchOf(s.operands[0]), b = BatchOf(s.operands[1]);
  const bool left = Letter(s, "side", 'L') == 'L';
  if (a.rows != a.cols || a.count != b.count || a.rows != (left ? b.rows : b.cols)) {
    return Invalid(s, "sizes of the operands disagree");
  }
  return WantResults(s, {b.elements()}, 1);
}

int64_t TrsmScratch(const Signature& s) {
  return Wide(s, BatchOf(s.operands[0]).elements()) + Wide(s, BatchOf(s.operands[1]).elements());
}

template <typename T>
void Substitute(const Matrix<T>& t, int64_t n, bool lower, bool unit, bool conjugate, const Matrix<T>& x, int64_t columns) {
  auto at = [&](int64_t r, int64_t c) { return conjugate ? Conj(t(r, c)) : t(r, c); };
  for (int64_t column = 0; column < columns; ++column) {
    for (int64_t step = 0; step < n; ++step) {
      const int64_t r = lower ? step : n - 1 - step;
      T sum = x(r, column);
      for (int64_t k = lower ? 0 : r + 1; k < (lower ? r : n); ++k) sum -= Times(at(r, k), x(k, column));
      x(r, column) = unit ? sum : sum / at(r, r);
    }
  }
}

absl::Status RunTrsm(const Call& call) {
  const Signature& s = call.signature;
  const Batch a = BatchOf(s.operands[0]), b = BatchOf(s.operands[1]);
  const bool left = Letter(s, "side", 'L') == 'L', unit = Letter(s, "diag", 'N') == 'U';
  const char op = Letter(s, "trans_x", 'N');
  // Solved from the left as T x = b; from the right the whole equation is transposed.
  const bool transposed = (op != 'N') == left, lower = (Letter(s, "uplo", 'L') == 'L') != transposed;
  const int64_t n = a.rows, others = left ? b.cols : b.rows;
  InDomain(s, [&]<typename T>(T) {
    Scratch scratch(call);
    T *matrices = scratch.Take<T>(a.elements()), *values = scratch.Take<T>(b.elements());
    Widen(s.operands[0].element_type(), call.operands[0], a.elements(), matrices);
    Widen(s.operands[1].element_type(), call.operands[1], b.elements(), values);
    for (int64_t m = 0; m < a.count; ++m) {
      T *matrix = matrices + m * n * n, *value = values + m * b.rows * b.cols;
      const Matrix<T> t = transposed ? Matrix<T>{matrix, 1, n} : Matrix<T>{matrix, n, 1};
      const Matrix<T> x = left ? Matrix<T>{value, b.cols, 1} : Matrix<T>{value, 1, b.cols};
      Substitute(t, n, lower, unit, op == 'C', x, others);
    }
    Narrow(values, b.elements(), s.results[0].element_type(), call.results[0]);
  });
  return absl::OkStatus();
}

// ---- reflectors ----------------------------------------------------------------------------------------------------------

template <typename T>
T ScalarOf(double re, double im) {
  if constexpr (kIsComplex<T>) {
    return T(re, im);
  } else {
    return re;
  }
}

// zlarfg: H = I - tau (1, v)(1, v)^H with H^H x = (beta, 0). Overwrites x below `k` with v, x(k) with beta.
template <typename T>
T Reflector(const Matrix<T>& x, int64_t k, int64_t rows) {
  double tail = 0;
  for (int64_t r = k + 1; r < rows; ++r) tail += Norm(x(r, k));
  const T alpha = x(k, k);
  if (tail == 0 && Imag(alpha) == 0) return 0;
  const double norm = std::sqrt(Norm(alpha) + tail);
  const double beta = Real(alpha) >= 0 ? -norm : norm;
  for (int64_t r = k + 1; r < rows; ++r) x(r, k) /= alpha - beta;
  x(k, k) = beta;
  return ScalarOf<T>((beta - Real(alpha)) / beta, -Imag(alpha) / beta);
}

// x(k.., c) -= tau * v * (v^H x(k.., c)) with v = (1, v(k+1.., k)).
template <typename T>
void Reflect(const Matrix<T>& v, const Matrix<T>& x, int64_t k, int64_t rows, int64_t c, T tau) {
  T dot = x(k, c);
  for (int64_t r = k + 1; r < rows; ++r) dot += Times(Conj(v(r, k)), x(r, c));
  x(k, c) -= Times(tau, dot);
  for (int64_t r = k + 1; r < rows; ++r) x(r, c) -= Times(Times(tau, dot), v(r, k));
}

// ---- geqrf: (r above, reflectors below the diagonal; tau) ----------------------------------------------------------------

absl::Status CheckGeqrf(const Signature& s) {
  TENON_RETURN_IF_ERROR(WantMatrices(s, 1));
  const Batch a = BatchOf(s.operands[0]);
  return WantResults(s, {a.elements(), a.count * std::min(a.rows, a.cols)}, 2);
}

int64_t GeqrfScratch(const Signature& s) {
  const Batch a = BatchOf(s.operands[0]);
  return Wide(s, a.elements()) + Wide(s, a.count * std::min(a.rows, a.cols));
}

absl::Status RunGeqrf(const Call& call) {
  const Signature& s = call.signature;
  const Batch a = BatchOf(s.operands[0]);
  const int64_t steps = std::min(a.rows, a.cols);
  InDomain(s, [&]<typename T>(T) {
    Scratch scratch(call);
    T *values = scratch.Take<T>(a.elements()), *taus = scratch.Take<T>(a.count * steps);
    Widen(s.operands[0].element_type(), call.operands[0], a.elements(), values);
    for (int64_t m = 0; m < a.count; ++m) {
      const Matrix<T> x{values + m * a.rows * a.cols, a.cols, 1};
      for (int64_t k = 0; k < steps; ++k) {
        const T tau = taus[m * steps + k] = Reflector(x, k, a.rows);
        for (int64_t c = k + 1; c < a.cols; ++c) Reflect(x, x, k, a.rows, c, Conj(tau));
      }
    }
    Narrow(values, a.elements(), s.results[0].element_type(), call.results[0]);
    Narrow(taus, a.count * steps, s.results[1].element_type(), call.results[1]);
  });
  return absl::OkStatus();
}

// ---- orgqr: the first columns of H_1 H_2 ... H_k -------------------------------------------------------------------------

absl::Status CheckOrgqr(const Signature& s) {
  TENON_RETURN_IF_ERROR(WantMatrices(s, 2));
  const Batch a = BatchOf(s.operands[0]);
  const Shape& taus = s.operands[1];
  const int64_t k = taus.rank() < 1 ? -1 : taus.constant_dim(taus.rank() - 1);
  if (k < 0 || k > a.cols || a.cols > a.rows || taus.num_elements_constant() != k * a.count) {
    return Invalid(s, "sizes of the operands disagree");
  }
  return WantResults(s, {a.elements()}, 1);
}

int64_t OrgqrScratch(const Signature& s) {
  return 2 * Wide(s, BatchOf(s.operands[0]).elements()) + Wide(s, s.operands[1].num_elements_constant());
}

absl::Status RunOrgqr(const Call& call) {
  const Signature& s = call.signature;
  const Batch a = BatchOf(s.operands[0]);
  const int64_t count = s.operands[1].num_elements_constant(), k = s.operands[1].constant_dim(s.operands[1].rank() - 1);
  InDomain(s, [&]<typename T>(T) {
    Scratch scratch(call);
    T *reflectors = scratch.Take<T>(a.elements()), *q = scratch.Take<T>(a.elements()), *taus = scratch.Take<T>(count);
    Widen(s.operands[0].element_type(), call.operands[0], a.elements(), reflectors);
    Widen(s.operands[1].element_type(), call.operands[1], count, taus);
    std::fill_n(q, a.elements(), T(0));
    for (int64_t m = 0; m < a.count; ++m) {
      const int64_t at = m * a.rows * a.cols;
      const Matrix<T> v{reflectors + at, a.cols, 1}, x{q + at, a.cols, 1};
      for (int64_t c = 0; c < a.cols; ++c) x(c, c) = 1;
      for (int64_t step = k - 1; step >= 0; --step) {
        for (int64_t c = 0; c < a.cols; ++c) Reflect(v, x, step, a.rows, c, taus[m * k + step]);
      }
    }
    Narrow(q, a.elements(), s.results[0].element_type(), call.results[0]);
  });
  return absl::OkStatus();
}

constexpr Function kFunctions[] = {
    {"potrf", CheckPotrf, PotrfScratch, RunPotrf}, {"getrf", CheckGetrf, GetrfScratch, RunGetrf},
    {"trsm", CheckTrsm, TrsmScratch, RunTrsm},     {"geqrf", CheckGeqrf, GeqrfScratch, RunGeqrf},
    {"orgqr", CheckOrgqr, OrgqrScratch, RunOrgqr},
};

}  // namespace

absl::Span<const Function> LapackFunctions() { return kFunctions; }

}  // namespace tenon::library
