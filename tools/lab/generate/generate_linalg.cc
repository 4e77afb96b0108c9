// Linear algebra on matrices that are well conditioned by construction: entries are integers, diagonals powers of two, so that
// every step of a factorisation is exact.
#include <algorithm>

#include "tools/lab/generate/generator.h"

namespace tenon::lab {
namespace {

bool IsField(PrimitiveType t) { return (IsFloat(t) && BitWidth(t) >= 32) || IsComplex(t); }

std::vector<int64_t> MatrixDims(Scope& s, int64_t rows, int64_t columns) {
  std::vector<int64_t> dims = {rows, columns};
  for (int64_t n = s.random().Below(3); n > 0; --n) dims.insert(dims.begin(), s.random().Between(1, 4));
  return dims;
}

// Triangular: small integers below the diagonal, 1, 2 or 4 on it.
Literal Triangle(Scope& s, PrimitiveType type, const std::vector<int64_t>& dims, bool lower, bool fill_other) {
  Random& random = s.random();
  const int64_t n = dims.back();
  Literal l(Shape::Array(type, dims));
  Literal parts(Shape::Array(ComplexComponent(type), {l.num_elements() * (IsComplex(type) ? 2 : 1)}));
  for (int64_t e = 0; e < l.num_elements(); ++e) {
    const int64_t r = e / n % n, c = e % n;
    const bool inside = lower ? c < r : c > r;
    const double value = r == c                 ? static_cast<double>(1 << random.Below(3))
                         : inside || fill_other ? static_cast<double>(random.Between(-2, 2))
                                                : 0;
    parts.SetFromDouble(IsComplex(type) ? 2 * e : e, value);
  }
  if (l.num_elements() > 0) std::copy_n(parts.bytes(), l.size_bytes(), l.mutable_bytes());
  return l;
}

bool TriangularSolve(Scope& s, Opcode opcode) {
  Random& random = s.random();
  const PrimitiveType type = s.Type(IsField);
  const int64_t n = random.Between(1, 5), m = random.Between(1, 5);
  const bool left = random.OneIn(2), lower = random.OneIn(2);
  const std::vector<int64_t> a_dims = MatrixDims(s, n, n);
  std::vector<int64_t> b_dims = a_dims;
  b_dims[a_dims.size() - (left ? 1 : 2)] = m;
  Instruction* a = s.b().Constant(Triangle(s, type, a_dims, lower, /*fill_other=*/true));
  const Value b = s.Small(s.Shaped(type, std::vector<Dim>(b_dims.begin(), b_dims.end())));
  constexpr std::string_view kTranspose[] = {"NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"};
  Attributes attrs = With(Attr::kLeftSide, left);
  attrs.set(Attr::kLower, lower);
  attrs.set(Attr::kUnitDiagonal, random.OneIn(2));
  attrs.set(Attr::kTransposeA, std::string(random.Pick(kTranspose)));
  Instruction* y = s.Try(opcode, {a, b.op}, attrs);
  return y != nullptr && (s.Add(y, false), true);
}

// Of l * l^T.
bool Cholesky(Scope& s, Opcode opcode) {
  Random& random = s.random();
  const PrimitiveType type = s.Type(IsField);
  const int64_t n = random.Between(1, 5);
  const std::vector<int64_t> dims = MatrixDims(s, n, n);
  Instruction* l = s.b().Constant(Triangle(s, type, dims, /*lower=*/true, /*fill_other=*/false));
  std::vector<int64_t> batch(dims.size() - 2);
  for (size_t d = 0; d < batch.size(); ++d) batch[d] = static_cast<int64_t>(d);
  const int64_t last = static_cast<int64_t>(dims.size()) - 1;
  Instruction* a = s.b().Dot(l, l, batch, batch, {last}, {last});
  Instruction* y = s.Try(opcode, {a}, With(Attr::kLower, random.OneIn(2)));
  return y != nullptr && (s.Add(y, false), true);
}

bool Fft(Scope& s, Opcode opcode) {
  Random& random = s.random();
  constexpr std::string_view kTypes[] = {"FFT", "IFFT", "RFFT", "IRFFT"};
  const std::string type(random.Pick(kTypes));
  const PrimitiveType element = s.Type([&](PrimitiveType t) {
    return type == "RFFT" ? t == PrimitiveType::kF32 || t == PrimitiveType::kF64 : IsComplex(t);
  });
  const int64_t rank = random.Between(1, 4), count = random.Between(1, std::min<int64_t>(3, rank));
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < rank; ++d) dims.push_back(random.OneIn(3) ? random.Between(1, 16) : random.Between(1, 5));
  std::vector<int64_t> lengths(dims.end() - count, dims.end());
  if (type == "IRFFT") dims.back() = lengths.back() / 2 + 1;
  std::vector<Dim> sizes(dims.begin(), dims.end());
  for (int64_t d = 0; d < rank - count; ++d) sizes[d] = s.SizeOr(dims[d]);
  if (!s.Fits(sizes) || s.WouldBeRefused(sizes)) return false;
  const Value x = s.Shaped(element, sizes);
  Attributes attrs = With(Attr::kFftType, type);
  attrs.set(Attr::kFftLength, lengths);
  Instruction* y = s.Try(opcode, {x.op}, attrs);
  return y != nullptr && (s.Add(y, false), true);
}

constexpr Row kRows[] = {
    {Opcode::kCholesky, Cholesky},
    {Opcode::kFft, Fft},
    {Opcode::kTriangularSolve, TriangularSolve},
};

}  // namespace

absl::Span<const Row> LinalgRows() { return kRows; }

}  // namespace tenon::lab
