// LAPACK's unblocked algorithms (LAPACK Users' Guide; dpotf2, dgetf2, dgeqr2 and dorg2r of the reference sources), with
// its sign and pivot conventions, so that factors and not only their products agree with LAPACK's.
#include "hlo/eval/lapack.h"

#include <cmath>
#include <complex>

#include "absl/strings/str_cat.h"
#include "hlo/eval/convert.h"
#include "hlo/eval/custom_calls.h"
#include "hlo/eval/internal.h"

namespace tenon {
namespace {

using C = std::complex<double>;
using Operands = absl::Span<const Literal>;

// A batch of row-major matrices.
struct Matrices {
  int64_t count = 1, rows = 0, cols = 0;
  std::vector<C> values;

  C* matrix(int64_t m) { return values.data() + m * rows * cols; }
};

// One matrix that is looked at as itself, its transpose or its conjugate transpose.
struct View {
  C* data;
  int64_t row_step, col_step;
  C& operator()(int64_t r, int64_t c) const { return data[r * row_step + c * col_step]; }
};

absl::StatusOr<Matrices> MatricesOf(const Instruction& call, const Literal& l) {
  const int64_t rank = l.shape().rank();
  if (!l.shape().is_array() || rank < 2) return eval::Invalid(call, "wanted matrices");
  Matrices m;
  for (int64_t d = 0; d < rank - 2; ++d) m.count *= l.shape().constant_dim(d);
  m.rows = l.shape().constant_dim(rank - 2);
  m.cols = l.shape().constant_dim(rank - 1);
  m.values.resize(l.num_elements());
  for (size_t e = 0; e < m.values.size(); ++e) m.values[e] = l.GetAsComplex(static_cast<int64_t>(e));
  return m;
}

Literal LiteralOf(const Shape& shape, const std::vector<C>& values) {
  Literal l(Shape::Array(shape.element_type(), shape.constant_dims()));
  if (values.empty()) return l;
  std::vector<std::byte> wide(values.size() * eval::kDomainBytes);
  eval::DomainConverter(PrimitiveType::kC128, shape.element_type())(values.data(), wide.data(), values.size());
  eval::StorerOf(shape.element_type())(wide.data(), l.mutable_bytes(), values.size());
  return l;
}

Literal LiteralOf(const Shape& shape, const std::vector<int64_t>& values) {
  Literal l(Shape::Array(shape.element_type(), shape.constant_dims()));
  for (size_t e = 0; e < values.size(); ++e) l.SetFromInt64(static_cast<int64_t>(e), values[e]);
  return l;
}

// The call's results: `shapes` arrays, each of as many elements as `sizes` says.
absl::Status WantResults(const Instruction& call, const std::vector<int64_t>& sizes) {
  const std::vector<Shape> leaves = FlattenShape(call.shape());
  bool fits = leaves.size() == sizes.size();
  for (size_t k = 0; fits && k < sizes.size(); ++k) {
    fits = leaves[k].is_array() && leaves[k].num_elements_constant() == sizes[k];
  }
  return fits ? absl::OkStatus() : eval::Invalid(call, absl::StrCat("result ", call.shape().ToString()));
}

absl::Status WantOperands(const Instruction& call, Operands operands, size_t count) {
  if (operands.size() == count) return absl::OkStatus();
  return eval::Invalid(call, absl::StrCat("wanted ", count, " operands, got ", operands.size()));
}

char Letter(const Instruction& call, std::string_view name, char otherwise) {
  return static_cast<char>(CustomCallAttribute(call, name).value_or(otherwise));
}

// (matrix, info). What lies in the other triangle stays. info: the order of the first minor that isn't positive.
absl::StatusOr<Literal> Potrf(const Instruction& call, Operands operands) {
  TENON_RETURN_IF_ERROR(WantOperands(call, operands, 1));
  TENON_ASSIGN_OR_RETURN(Matrices a, MatricesOf(call, operands[0]));
  if (a.rows != a.cols) return eval::Invalid(call, "wanted square matrices");
  TENON_RETURN_IF_ERROR(WantResults(call, {operands[0].num_elements(), a.count}));
  const int64_t n = a.rows;
  const bool lower = Letter(call, "uplo", 'L') == 'L';
  std::vector<int64_t> info(a.count, 0);
  for (int64_t m = 0; m < a.count; ++m) {
    // U's conjugate transpose is computed in place of L: U = L^H reads and writes the transposed places, conjugated.
    const View l = lower ? View{a.matrix(m), n, 1} : View{a.matrix(m), 1, n};
    auto get = [&](int64_t r, int64_t c) { return lower ? l(r, c) : std::conj(l(r, c)); };
    for (int64_t c = 0; c < n && info[m] == 0; ++c) {
      double pivot = get(c, c).real();
      for (int64_t k = 0; k < c; ++k) pivot -= std::norm(get(c, k));
      if (!(pivot > 0)) {
        info[m] = c + 1;
        l(c, c) = pivot;
        break;
      }
      l(c, c) = std::sqrt(pivot);
      for (int64_t r = c + 1; r < n; ++r) {
        C sum = get(r, c);
        for (int64_t k = 0; k < c; ++k) sum -= get(r, k) * std::conj(get(c, k));
        sum /= std::sqrt(pivot);
        l(r, c) = lower ? sum : std::conj(sum);
      }
    }
  }
  return Literal::Tuple({LiteralOf(call.shape().element(0), a.values), LiteralOf(call.shape().element(1), info)});
}

// (factors, pivots from 1, info). The pivot is the first of largest |re| + |im|.
absl::StatusOr<Literal> Getrf(const Instruction& call, Operands operands) {
  TENON_RETURN_IF_ERROR(WantOperands(call, operands, 1));
  TENON_ASSIGN_OR_RETURN(Matrices a, MatricesOf(call, operands[0]));
  const int64_t steps = std::min(a.rows, a.cols);
  TENON_RETURN_IF_ERROR(WantResults(call, {operands[0].num_elements(), a.count * steps, a.count}));
  std::vector<int64_t> pivots, info(a.count, 0);
  auto size = [](C x) { return std::abs(x.real()) + std::abs(x.imag()); };
  for (int64_t m = 0; m < a.count; ++m) {
    const View x{a.matrix(m), a.cols, 1};
    for (int64_t k = 0; k < steps; ++k) {
      int64_t pivot = k;
      for (int64_t r = k + 1; r < a.rows; ++r) {
        if (size(x(r, k)) > size(x(pivot, k))) pivot = r;
      }
      pivots.push_back(pivot + 1);
      if (x(pivot, k) == C(0)) {
        if (info[m] == 0) info[m] = k + 1;
        continue;
      }
      for (int64_t c = 0; c < a.cols && pivot != k; ++c) std::swap(x(k, c), x(pivot, c));
      for (int64_t r = k + 1; r < a.rows; ++r) {
        x(r, k) /= x(k, k);
        for (int64_t c = k + 1; c < a.cols; ++c) x(r, c) -= x(r, k) * x(k, c);
      }
    }
  }
  return Literal::Tuple({LiteralOf(call.shape().element(0), a.values), LiteralOf(call.shape().element(1), pivots),
                         LiteralOf(call.shape().element(2), info)});
}

// op(a) x = b or x op(a) = b by substitution.
absl::StatusOr<Literal> Trsm(const Instruction& call, Operands operands) {
  TENON_RETURN_IF_ERROR(WantOperands(call, operands, 2));
  TENON_ASSIGN_OR_RETURN(Matrices a, MatricesOf(call, operands[0]));
  TENON_ASSIGN_OR_RETURN(Matrices b, MatricesOf(call, operands[1]));
  const bool left = Letter(call, "side", 'L') == 'L', unit = Letter(call, "diag", 'N') == 'U';
  const char op = Letter(call, "trans_x", 'N');
  bool lower = Letter(call, "uplo", 'L') == 'L';
  const int64_t n = a.rows, others = left ? b.cols : b.rows;
  if (a.rows != a.cols || a.count != b.count || n != (left ? b.rows : b.cols)) {
    return eval::Invalid(call, "sizes of the operands disagree");
  }
  TENON_RETURN_IF_ERROR(WantResults(call, {operands[1].num_elements()}));
  // Solved from the left as T x = b; from the right the whole equation is transposed.
  const bool transposed = (op != 'N') == left;
  lower = lower != transposed;
  for (int64_t m = 0; m < a.count; ++m) {
    const View t = transposed ? View{a.matrix(m), 1, n} : View{a.matrix(m), n, 1};
    const View x = left ? View{b.matrix(m), b.cols, 1} : View{b.matrix(m), 1, b.cols};
    for (int64_t column = 0; column < others; ++column) {
      for (int64_t step = 0; step < n; ++step) {
        const int64_t r = lower ? step : n - 1 - step;
        C sum = x(r, column);
        for (int64_t k = lower ? 0 : r + 1; k < (lower ? r : n); ++k) {
          sum -= (op == 'C' ? std::conj(t(r, k)) : t(r, k)) * x(k, column);
        }
        x(r, column) = unit ? sum : sum / (op == 'C' ? std::conj(t(r, r)) : t(r, r));
      }
    }
  }
  return LiteralOf(call.shape(), b.values);
}

// zlarfg: H = I - tau (1, v)(1, v)^H with H^H x = (beta, 0). Overwrites x below `k` with v, x(k) with beta.
C Reflector(const View& x, int64_t k, int64_t rows) {
  double tail = 0;
  for (int64_t r = k + 1; r < rows; ++r) tail += std::norm(x(r, k));
  const C alpha = x(k, k);
  if (tail == 0 && alpha.imag() == 0) return 0;
  const double norm = std::sqrt(std::norm(alpha) + tail);
  const double beta = alpha.real() >= 0 ? -norm : norm;
  for (int64_t r = k + 1; r < rows; ++r) x(r, k) /= alpha - beta;
  x(k, k) = beta;
  return C((beta - alpha.real()) / beta, -alpha.imag() / beta);
}

// x(k.., c) -= tau * v * (v^H x(k.., c)) with v = (1, v(k+1.., k)).
void Reflect(const View& v, const View& x, int64_t k, int64_t rows, int64_t c, C tau) {
  C dot = x(k, c);
  for (int64_t r = k + 1; r < rows; ++r) dot += std::conj(v(r, k)) * x(r, c);
  x(k, c) -= tau * dot;
  for (int64_t r = k + 1; r < rows; ++r) x(r, c) -= tau * dot * v(r, k);
}

// (r above, reflectors below the diagonal; tau).
absl::StatusOr<Literal> Geqrf(const Instruction& call, Operands operands) {
  TENON_RETURN_IF_ERROR(WantOperands(call, operands, 1));
  TENON_ASSIGN_OR_RETURN(Matrices a, MatricesOf(call, operands[0]));
  const int64_t steps = std::min(a.rows, a.cols);
  TENON_RETURN_IF_ERROR(WantResults(call, {operands[0].num_elements(), a.count * steps}));
  std::vector<C> taus;
  for (int64_t m = 0; m < a.count; ++m) {
    const View x{a.matrix(m), a.cols, 1};
    for (int64_t k = 0; k < steps; ++k) {
      taus.push_back(Reflector(x, k, a.rows));
      for (int64_t c = k + 1; c < a.cols; ++c) Reflect(x, x, k, a.rows, c, std::conj(taus.back()));
    }
  }
  return Literal::Tuple({LiteralOf(call.shape().element(0), a.values), LiteralOf(call.shape().element(1), taus)});
}

// The first columns of H_1 H_2 ... H_k.
absl::StatusOr<Literal> Orgqr(const Instruction& call, Operands operands) {
  TENON_RETURN_IF_ERROR(WantOperands(call, operands, 2));
  TENON_ASSIGN_OR_RETURN(Matrices a, MatricesOf(call, operands[0]));
  TENON_RETURN_IF_ERROR(WantResults(call, {operands[0].num_elements()}));
  const int64_t k = operands[1].shape().rank() < 1 ? -1 : operands[1].shape().constant_dims().back();
  if (k < 0 || k > a.cols || a.cols > a.rows || operands[1].num_elements() != k * a.count) {
    return eval::Invalid(call, "sizes of the operands disagree");
  }
  std::vector<C> q(a.values.size());
  for (int64_t m = 0; m < a.count; ++m) {
    const View v{a.matrix(m), a.cols, 1}, x{q.data() + m * a.rows * a.cols, a.cols, 1};
    for (int64_t c = 0; c < a.cols; ++c) x(c, c) = 1;
    for (int64_t step = k - 1; step >= 0; --step) {
      const C tau = operands[1].GetAsComplex(m * k + step);
      for (int64_t c = 0; c < a.cols; ++c) Reflect(v, x, step, a.rows, c, tau);
    }
  }
  return LiteralOf(call.shape(), q);
}

// (values, positions) of the k first by the comparison that the call names; the greater ones without one.
absl::StatusOr<Literal> TopK(const Instruction& call, Operands operands) {
  TENON_RETURN_IF_ERROR(WantOperands(call, operands, 1));
  const Shape& x = operands[0].shape();
  if (!call.shape().is_tuple() || call.shape().elements().size() != 2 || x.rank() < 1) {
    return eval::Invalid(call, "wanted one array and (values, positions)");
  }
  const Shape& values = call.shape().element(0);
  if (values.rank() != x.rank() || values.dims().back().constant() > x.dims().back().constant() ||
      !Shape::SameDims(values, call.shape().element(1))) {
    return eval::Invalid(call, absl::StrCat("result ", call.shape().ToString()));
  }
  bool largest = true;
  for (const Computation* comparison : call.called_computations()) {
    const Instruction* root = comparison->root();
    if (root->opcode() == Opcode::kCompare) largest = root->comparison_direction().starts_with("G");
  }
  return eval::TopKOf(operands[0], values.dims().back().constant(), largest, call.shape());
}

}  // namespace

std::map<std::string, EvalOptions::CustomCall, std::less<>> LapackCustomCalls() {
  std::map<std::string, EvalOptions::CustomCall, std::less<>> calls = {{"TopK", TopK}};
  for (const char* type : {"s", "d", "c", "z"}) {
    const std::string prefix = absl::StrCat("lapack_", type);
    const bool real = *type == 's' || *type == 'd';
    calls[prefix + "potrf_ffi"] = Potrf;
    calls[prefix + "getrf_ffi"] = Getrf;
    calls[prefix + "geqrf_ffi"] = Geqrf;
    calls[prefix + "trsm_ffi"] = Trsm;
    calls[prefix + (real ? "orgqr_ffi" : "ungqr_ffi")] = Orgqr;
  }
  return calls;
}

}  // namespace tenon
