// Shape inference of linear algebra and Fourier transforms.
#include "hlo/infer/context.h"

namespace tenon::infer {
namespace {

bool IsSquare(const Shape& s) {
  return s.is_array() && s.rank() >= 2 && KnownEqual(s.dim(s.rank() - 1), s.dim(s.rank() - 2));
}

bool IsFloatOrComplex(const Shape& s) { return IsFloat(s.element_type()) || IsComplex(s.element_type()); }

}  // namespace

TENON_INFER(kCholesky) {
  TENON_WANT(IsFloatOrComplex(in.shape(0)) && IsSquare(in.shape(0)), "cholesky_c1",
             "square float or complex matrices", in.shape(0).ToString());
  return WithType(in.shape(0), in.shape(0).element_type());
}

TENON_INFER(kTriangularSolve) {
  const Shape &a = in.shape(0), &b = in.shape(1);
  TENON_WANT(IsFloatOrComplex(a) && IsSquare(a), "triangular_solve_c1", "square float or complex matrices",
             a.ToString());
  TENON_WANT(b.element_type() == a.element_type() && b.rank() == a.rank(), "triangular_solve_c2",
             "two operands of one type and rank", OperandShapes(in));
  const int64_t rank = a.rank();
  for (int64_t i = 0; i < rank - 2; ++i) {
    TENON_WANT(KnownEqual(a.dim(i), b.dim(i)), "triangular_solve_c3", "equal batch sizes", OperandShapes(in));
  }
  const bool left = in.attrs.get_or<bool>(Attr::kLeftSide, false);
  TENON_WANT(KnownEqual(b.dim(left ? rank - 2 : rank - 1), a.dim(rank - 1)), "triangular_solve_c4",
             left ? "as many rows of b as of a" : "as many columns of b as of a", OperandShapes(in));
  const std::string transpose = in.ident(Attr::kTransposeA);
  TENON_WANT(transpose.empty() || transpose == "NO_TRANSPOSE" || transpose == "TRANSPOSE" || transpose == "ADJOINT",
             "triangular_solve_c5", "transpose_a NO_TRANSPOSE, TRANSPOSE or ADJOINT", transpose);
  return WithType(b, b.element_type());
}

TENON_INFER(kFft) {
  const Shape& x = in.shape(0);
  const std::string type = in.ident(Attr::kFftType);
  const std::vector<int64_t> length = in.ints(Attr::kFftLength);
  const int64_t n = static_cast<int64_t>(length.size());
  TENON_WANT(type == "FFT" || type == "IFFT" || type == "RFFT" || type == "IRFFT", "fft_c1",
             "fft_type FFT, IFFT, RFFT or IRFFT", type);
  TENON_WANT(n >= 1 && n <= 3 && n <= x.rank(), "fft_c2", "fft_length of 1 to 3 trailing dimensions", Ints(length),
             " on ", x.ToString());
  const bool real_in = type == "RFFT", real_out = type == "IRFFT";
  const PrimitiveType t = x.element_type();
  TENON_WANT(real_in ? t == PrimitiveType::kF32 || t == PrimitiveType::kF64 : IsComplex(t), "fft_c3",
             real_in ? "an f32 or f64 operand" : "a complex operand", x.ToString());
  const PrimitiveType wide = t == PrimitiveType::kF64 ? PrimitiveType::kC128 : PrimitiveType::kC64;
  Shape result = WithType(x, real_in ? wide : real_out ? ComplexComponent(t) : t);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t d = x.rank() - n + i;
    TENON_WANT(length[i] >= 0 && length[i] <= kMaxDim, "fft_c4", "lengths from 0 to 2^48", Ints(length));
    const bool last = i == n - 1;
    // Half of a real signal's spectrum is stored: length/2 + 1 of the last dimension.
    const int64_t half = length[i] == 0 ? 0 : length[i] / 2 + 1;
    TENON_WANT(KnownEqual(x.dim(d), last && real_out ? half : length[i]), "fft_c5",
               absl::StrCat("size ", last && real_out ? half : length[i], " in dimension ", d), x.ToString());
    if (last && real_in) result.set_dim(d, half);
    if (last && real_out) result.set_dim(d, length[i]);
  }
  return result;
}

}  // namespace tenon::infer
