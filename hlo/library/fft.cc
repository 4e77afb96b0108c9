// Fourier transforms of any length, in complex<double>.
//
// A length whose prime factors are small is done by Stockham's autosort algorithm, one pass a factor (Van Loan,
// "Computational Frameworks for the Fast Fourier Transform", 1.7); another length n by Bluestein's: the transform is a
// convolution with a chirp, made with transforms of a power of two of at least 2n - 1. Twiddle factors are sines and cosines
// of angles reduced to an eighth of a turn, so that their error doesn't grow with the index.
#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

#include "hlo/library/call.h"
#include "hlo/library/wide.h"

namespace tenon::library {
namespace {

using C = std::complex<double>;

constexpr int64_t kLargestRadix = 31;

// exp(-2 pi i k / n), 0 <= k < n.
C Root(int64_t k, int64_t n) {
  // Eighths of a turn: 8k = octant * n + rest.
  const int64_t octant = 8 * k / n, rest = 8 * k - octant * n;
  const bool odd = octant % 2 != 0;
  const double angle = std::numbers::pi / 4 * static_cast<double>(odd ? n - rest : rest) / static_cast<double>(n);
  double c = std::cos(angle), s = std::sin(angle);  // of the angle from the nearest axis
  if (((octant + 1) / 2) % 2 != 0) std::swap(c, s);
  // Signs by quarter of a turn.
  const int64_t quarter = octant / 2;
  return {quarter == 1 || quarter == 2 ? -c : c, quarter < 2 ? -s : s};
}

int64_t SmallestFactor(int64_t n) {
  if (n % 4 == 0) return 4;
  for (int64_t f = 2; f * f <= n; ++f) {
    if (n % f == 0) return f;
  }
  return n;
}

bool Smooth(int64_t n) {
  while (n > 1) {
    const int64_t f = SmallestFactor(n);
    if (f > kLargestRadix) return false;
    n /= f;
  }
  return true;
}

int64_t ConvolutionLength(int64_t n) {
  int64_t m = 1;
  while (m < 2 * n - 1) m *= 2;
  return m;
}

// Transforms of one smooth length, forward.
class SmoothPlan {
 public:
  static int64_t Bytes(int64_t n) { return 2 * Scratch::Bytes<C>(n); }
  SmoothPlan(int64_t n, Scratch* scratch) : n_(n), roots_(scratch->Take<C>(n)), other_(scratch->Take<C>(n)) {
    for (int64_t k = 0; k < n; ++k) roots_[k] = Root(k, n);
  }

  void Forward(C* line) const {
    C *from = line, *to = other_;
    int64_t stride = 1;
    for (int64_t n = n_; n > 1;) {
      const int64_t radix = SmallestFactor(n);
      Pass(from, to, n, radix, stride);
      std::swap(from, to);
      n /= radix;
      stride *= radix;
    }
    if (from != line) std::copy_n(from, n_, line);
  }

 private:
  // to[q + s (r p + k)] = w_n^(p k) sum_j w_r^(j k) from[q + s (p + m j)], with n = r m.
  void Pass(const C* from, C* to, int64_t n, int64_t radix, int64_t stride) const {
    const int64_t m = n / radix, turn = n_ / n;
    for (int64_t p = 0; p < m; ++p) {
      const C* x = from + stride * p;
      C* y = to + stride * radix * p;
      const int64_t step = stride * m;
      if (radix == 2) {
        Two(x, x + step, y, stride, roots_[p * turn]);
      } else if (radix == 4) {
        Four(x, step, y, stride, p * turn);
      } else {
        Any(x, step, y, stride, radix, p * turn);
      }
    }
  }

  static void Two(const C* a, const C* b, C* y, int64_t stride, C w) {
    for (int64_t q = 0; q < stride; ++q) {
      y[q] = a[q] + b[q];
      y[q + stride] = Times(a[q] - b[q], w);
    }
  }

  void Four(const C* x, int64_t step, C* y, int64_t stride, int64_t root) const {
    const C w1 = roots_[root], w2 = roots_[2 * root], w3 = roots_[3 * root];
    for (int64_t q = 0; q < stride; ++q) {
      const C a = x[q], b = x[q + step], c = x[q + 2 * step], d = x[q + 3 * step];
      const C even = a + c, odd = b + d, difference = a - c;
      const C turned(b.imag() - d.imag(), d.real() - b.real());  // -i (b - d)
      y[q] = even + odd;
      y[q + stride] = Times(difference + turned, w1);
      y[q + 2 * stride] = Times(even - odd, w2);
      y[q + 3 * stride] = Times(difference - turned, w3);
    }
  }

  void Any(const C* x, int64_t step, C* y, int64_t stride, int64_t radix, int64_t root) const {
    const int64_t part = n_ / radix;
    for (int64_t k = 0; k < radix; ++k) {
      const C w = roots_[root * k];
      for (int64_t q = 0; q < stride; ++q) {
        C sum = x[q];
        for (int64_t j = 1; j < radix; ++j) sum += Times(x[q + j * step], roots_[j * k % radix * part]);
        y[q + k * stride] = Times(sum, w);
      }
    }
  }

  int64_t n_;
  C *roots_, *other_;
};

// Transforms of one length, in place on a contiguous line.
class Plan {
 public:
  static int64_t Bytes(int64_t n) {
    if (Smooth(n)) return SmoothPlan::Bytes(n);
    const int64_t m = ConvolutionLength(n);
    return SmoothPlan::Bytes(m) + Scratch::Bytes<C>(n) + 2 * Scratch::Bytes<C>(m);
  }
  Plan(int64_t n, Scratch* scratch) : n_(n), m_(Smooth(n) ? n : ConvolutionLength(n)), smooth_(m_, scratch) {
    if (m_ == n_) return;
    chirp_ = scratch->Take<C>(n_);
    filter_ = scratch->Take<C>(m_);
    work_ = scratch->Take<C>(m_);
    for (int64_t k = 0; k < n_; ++k) {  // exp(-pi i k^2 / n); k^2 modulo 2n, exact
      chirp_[k] = Root(static_cast<int64_t>(static_cast<__int128>(k) * k % (2 * n_)), 2 * n_);
    }
    std::fill_n(filter_, m_, C(0));
    for (int64_t k = 0; k < n_; ++k) filter_[k] = filter_[k == 0 ? 0 : m_ - k] = std::conj(chirp_[k]);
    smooth_.Forward(filter_);
  }

  void Run(C* line, bool inverse) const {
    if (inverse) {
      for (int64_t k = 0; k < n_; ++k) line[k] = std::conj(line[k]);
    }
    m_ == n_ ? smooth_.Forward(line) : Bluestein(line);
    if (inverse) {
      for (int64_t k = 0; k < n_; ++k) line[k] = std::conj(line[k]) / static_cast<double>(n_);
    }
  }

 private:
  void Bluestein(C* line) const {
    for (int64_t k = 0; k < n_; ++k) work_[k] = Times(line[k], chirp_[k]);
    std::fill(work_ + n_, work_ + m_, C(0));
    smooth_.Forward(work_);
    for (int64_t k = 0; k < m_; ++k) work_[k] = std::conj(Times(work_[k], filter_[k]));  // and back: an inverse transform
    smooth_.Forward(work_);
    for (int64_t k = 0; k < n_; ++k) line[k] = Times(std::conj(work_[k]) / static_cast<double>(m_), chirp_[k]);
  }

  int64_t n_, m_;
  SmoothPlan smooth_;
  C *chirp_ = nullptr, *filter_ = nullptr, *work_ = nullptr;
};

// Along dimension d of a row-major array, in place.
void TransformDim(C* data, const std::vector<int64_t>& dims, size_t d, bool inverse, Scratch scratch) {
  int64_t outer = 1, inner = 1;
  for (size_t k = 0; k < d; ++k) outer *= dims[k];
  for (size_t k = d + 1; k < dims.size(); ++k) inner *= dims[k];
  const int64_t n = dims[d];
  if (n <= 1) return;
  const Plan plan(n, &scratch);
  C* line = scratch.Take<C>(n);
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      C* first = data + o * n * inner + i;
      if (inner == 1) {
        plan.Run(first, inverse);
        continue;
      }
      for (int64_t k = 0; k < n; ++k) line[k] = first[k * inner];
      plan.Run(line, inverse);
      for (int64_t k = 0; k < n; ++k) first[k * inner] = line[k];
    }
  }
}

// The last dimension from `size` to `wanted`: of a real signal's spectrum one half is kept, and comes back by symmetry.
void ResizeLast(const C* from, int64_t rows, int64_t size, int64_t wanted, bool mirror, C* to) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < wanted; ++k) {
      const bool mirrored = mirror && k >= wanted / 2 + 1;
      const int64_t source = mirrored ? wanted - k : k;
      const C v = source < size ? from[r * size + source] : C(0);
      to[r * wanted + k] = mirrored ? std::conj(v) : v;
    }
  }
}

struct Kind {
  std::string_view name;
  bool real_in, real_out, inverse;
};
constexpr Kind kKinds[] = {
    {"FFT", false, false, false}, {"IFFT", false, false, true}, {"RFFT", true, false, false}, {"IRFFT", false, true, true}};

const Kind* KindOf(const Signature& s) {
  const std::string* type = s.attributes.String("fft_type");
  for (const Kind& kind : kKinds) {
    if (type != nullptr && kind.name == *type) return &kind;
  }
  return nullptr;
}

absl::Status Check(const Signature& s) {
  const Kind* kind = KindOf(s);
  const std::vector<int64_t>* lengths = s.attributes.Ints("fft_length");
  if (kind == nullptr || lengths == nullptr) return Invalid(s, "wanted fft_type and fft_length");
  if (s.operands.size() != 1 || s.results.size() != 1) return Invalid(s, "wanted one array each");
  const Shape &x = s.operands[0], &y = s.results[0];
  const int64_t rank = x.rank(), count = static_cast<int64_t>(lengths->size());
  auto fits = [](const Shape& shape, bool real) {
    const PrimitiveType t = shape.element_type();
    return real ? t == PrimitiveType::kF32 || t == PrimitiveType::kF64 : IsComplex(t);
  };
  if (!fits(x, kind->real_in) || !fits(y, kind->real_out)) return Invalid(s, "element types");
  if (count < 1 || count > rank || y.rank() != rank) return Invalid(s, "fft_length");
  for (int64_t d = 0; d < rank; ++d) {
    const bool last = d == rank - 1;
    const int64_t n = d < rank - count ? x.constant_dim(d) : (*lengths)[d - (rank - count)];
    const int64_t half = n == 0 ? 0 : n / 2 + 1;
    if (x.constant_dim(d) != (last && kind->real_out ? half : n) || y.constant_dim(d) != (last && kind->real_in ? half : n)) {
      return Invalid(s, "sizes");
    }
  }
  return absl::OkStatus();
}

int64_t LargestElements(const Signature& s) {
  const int64_t rows = s.operands[0].constant_dim(s.operands[0].rank() - 1) == 0
                           ? 0
                           : s.operands[0].num_elements_constant() / s.operands[0].constant_dim(s.operands[0].rank() - 1);
  const int64_t full = rows * s.attributes.Ints("fft_length")->back();
  return std::max({s.operands[0].num_elements_constant(), s.results[0].num_elements_constant(), full});
}

int64_t ScratchOf(const Signature& s) {
  int64_t line = 0;
  for (int64_t n : *s.attributes.Ints("fft_length")) line = std::max(line, n < 1 ? 0 : Plan::Bytes(n) + Scratch::Bytes<C>(n));
  return 2 * Scratch::Bytes<C>(LargestElements(s)) + line;
}

absl::Status Run(const Call& call) {
  const Signature& s = call.signature;
  const Kind& kind = *KindOf(s);
  const Shape &x = s.operands[0], &y = s.results[0];
  std::vector<int64_t> dims = x.constant_dims();
  const size_t rank = dims.size(), count = s.attributes.Ints("fft_length")->size(), last = rank - 1;
  const int64_t elements = y.num_elements_constant(), largest = LargestElements(s);
  if (x.num_elements_constant() == 0 || elements == 0) {
    if (elements > 0) std::memset(call.results[0], 0, elements * ByteWidth(y.element_type()));
    return absl::OkStatus();
  }
  Scratch scratch(call);
  C *data = scratch.Take<C>(largest), *other = scratch.Take<C>(largest);
  Widen(x.element_type(), call.operands[0], x.num_elements_constant(), data);
  auto resize = [&](int64_t wanted, bool mirror) {
    int64_t rows = 1;
    for (size_t d = 0; d < last; ++d) rows *= dims[d];
    ResizeLast(data, rows, dims[last], wanted, mirror, other);
    std::swap(data, other);
    dims[last] = wanted;
  };
  if (!kind.real_out) TransformDim(data, dims, last, kind.inverse, scratch);
  if (kind.real_in) resize(y.constant_dim(last), false);
  for (size_t d = rank - count; d < last; ++d) TransformDim(data, dims, d, kind.inverse, scratch);
  if (kind.real_out) {
    resize(y.constant_dim(last), true);
    TransformDim(data, dims, last, kind.inverse, scratch);
  }
  Narrow(data, elements, y.element_type(), call.results[0]);
  return absl::OkStatus();
}

constexpr Function kFunctions[] = {{"fft", Check, ScratchOf, Run}};

}  // namespace

absl::Span<const Function> FftFunctions() { return kFunctions; }

}  // namespace tenon::library
