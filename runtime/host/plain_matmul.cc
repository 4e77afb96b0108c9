#include "runtime/host/plain_matmul.h"

#include <algorithm>
#include <complex>
#include <vector>

#include "hlo/check.h"
#include "hlo/numeric_types.h"
#include "runtime/host/thread_pool.h"

namespace tenon {
namespace {

// A tensor as [batch, rows, cols]; a matrix is a batch of one.
struct Block {
  char* data;
  int64_t batch, rows, cols, batch_step, row_step, col_step;

  explicit Block(const TenonTensor& t) : data(static_cast<char*>(t.data)) {
    const bool batched = t.ndim == 3;
    batch = batched ? t.sizes[0] : 1;
    batch_step = batched ? t.strides[0] : 0;
    rows = t.sizes[t.ndim - 2], row_step = t.strides[t.ndim - 2];
    cols = t.sizes[t.ndim - 1], col_step = t.strides[t.ndim - 1];
  }
  Block Transposed() const {
    Block t = *this;
    std::swap(t.rows, t.cols);
    std::swap(t.row_step, t.col_step);
    return t;
  }
};

// The tile of results that one pass over k keeps in registers: kRows rows of kTileBytes.
constexpr int64_t kRows = 6, kTileBytes = 64, kRowsPerTask = 48;

// sums[r][.] = sum over k of a[k][r] * b[k][.]; both packed.
template <typename T>
inline __attribute__((always_inline)) void Tile(const T* a, const T* b, int64_t terms, T* sums) {
  typedef T Vector __attribute__((vector_size(kTileBytes), aligned(alignof(T)), may_alias));
  constexpr int64_t kLanes = kTileBytes / sizeof(T);
  Vector sum[kRows] = {};
  for (int64_t k = 0; k < terms; ++k) {
    const Vector row = *reinterpret_cast<const Vector*>(b + k * kLanes);
    for (int64_t r = 0; r < kRows; ++r) sum[r] += a[k * kRows + r] * row;
  }
  for (int64_t r = 0; r < kRows; ++r) *reinterpret_cast<Vector*>(sums + r * kLanes) = sum[r];
}

template <typename T>
using TileFn = void (*)(const T* a, const T* b, int64_t terms, T* sums);

template <typename T>
void PlainTile(const T* a, const T* b, int64_t terms, T* sums) {
  Tile(a, b, terms, sums);
}
template <typename T>
TileFn<T> TileOfThisMachine();

#if defined(__x86_64__)
#define TENON_TILES(T)                                                                                      \
  __attribute__((target("avx2"))) void Avx2Tile(const T* a, const T* b, int64_t n, T* s) { Tile(a, b, n, s); } \
  __attribute__((target("avx512f"))) void Avx512Tile(const T* a, const T* b, int64_t n, T* s) { Tile(a, b, n, s); } \
  template <>                                                                                               \
  TileFn<T> TileOfThisMachine<T>() {                                                                        \
    if (__builtin_cpu_supports("avx512f")) return Avx512Tile;                                               \
    return __builtin_cpu_supports("avx2") ? static_cast<TileFn<T>>(Avx2Tile) : PlainTile<T>;                \
  }
TENON_TILES(float)
TENON_TILES(double)
#undef TENON_TILES
#else
template <typename T>
TileFn<T> TileOfThisMachine() {
  return PlainTile<T>;
}
#endif

// T in memory, sums in S. Panels of rhs are packed once, rows of lhs by each task.
template <typename T, typename S>
class Product {
 public:
  Product(const Block& lhs, const Block& rhs, const Block& out, const T* row_bias, const T* col_bias, int64_t bias_step)
      : lhs_(lhs), rhs_(rhs), out_(out), row_bias_(row_bias), col_bias_(col_bias), bias_step_(bias_step), terms_(lhs.cols) {}

  void Run() {
    panels_ = (out_.cols + kLanes - 1) / kLanes;
    packed_.resize(static_cast<size_t>(out_.batch * panels_ * terms_ * kLanes));
    Parallel(out_.batch * panels_, kLanes * terms_, [](void* p, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) static_cast<Product*>(p)->PackPanel(i);
    });
    tasks_ = (out_.rows + kRowsPerTask - 1) / kRowsPerTask;
    Parallel(out_.batch * tasks_, kRowsPerTask * terms_ * out_.cols, [](void* p, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) static_cast<Product*>(p)->RowsOfTask(i);
    });
  }

 private:
  static constexpr int64_t kLanes = kTileBytes / static_cast<int64_t>(sizeof(S));

  void Parallel(int64_t n, int64_t work, void (*fn)(void*, int64_t, int64_t)) {
    PoolParallelFor(0, n, 1 + 65536 / (work + 1), fn, this);
  }
  static const T& At(const Block& b, int64_t batch, int64_t row, int64_t col) {
    return reinterpret_cast<const T*>(b.data)[batch * b.batch_step + row * b.row_step + col * b.col_step];
  }

  void PackPanel(int64_t i) {
    const int64_t batch = i / panels_, first = i % panels_ * kLanes, n = std::min(kLanes, out_.cols - first);
    S* to = packed_.data() + i * terms_ * kLanes;
    for (int64_t k = 0; k < terms_; ++k, to += kLanes) {
      for (int64_t c = 0; c < n; ++c) to[c] = static_cast<S>(At(rhs_, batch, k, first + c));
      std::fill(to + n, to + kLanes, S{});
    }
  }

  void RowsOfTask(int64_t i) {
    const int64_t batch = i / tasks_, first = i % tasks_ * kRowsPerTask, end = std::min(first + kRowsPerTask, out_.rows);
    std::vector<S> rows(static_cast<size_t>((end - first + kRows - 1) / kRows * kRows * terms_), S{});
    for (int64_t r = first; r < end; ++r) {
      S* to = rows.data() + (r - first) / kRows * kRows * terms_ + (r - first) % kRows;
      for (int64_t k = 0; k < terms_; ++k) to[k * kRows] = static_cast<S>(At(lhs_, batch, r, k));
    }
    S sums[kRows * kLanes];
    for (int64_t p = 0; p < panels_; ++p) {
      const S* panel = packed_.data() + (batch * panels_ + p) * terms_ * kLanes;
      for (int64_t r = first; r < end; r += kRows) {
        tile_(rows.data() + (r - first) * terms_, panel, terms_, sums);
        Store(sums, batch, r, std::min(end, r + kRows), p * kLanes);
      }
    }
  }

  void Store(const S* sums, int64_t batch, int64_t row, int64_t end, int64_t first) {
    T* to = reinterpret_cast<T*>(out_.data) + batch * out_.batch_step;
    const int64_t n = std::min(kLanes, out_.cols - first);
    for (; row < end; ++row, sums += kLanes) {
      for (int64_t c = 0; c < n; ++c) {
        S sum = sums[c];
        if (row_bias_ != nullptr) sum += static_cast<S>(row_bias_[row * bias_step_]);
        if (col_bias_ != nullptr) sum += static_cast<S>(col_bias_[(first + c) * bias_step_]);
        to[row * out_.row_step + (first + c) * out_.col_step] = static_cast<T>(sum);
      }
    }
  }

  const Block lhs_, rhs_, out_;
  const T *row_bias_, *col_bias_;
  const int64_t bias_step_, terms_;
  const TileFn<S> tile_ = TileOfThisMachine<S>();
  int64_t panels_ = 0, tasks_ = 0;
  std::vector<S> packed_;
};

template <typename T, typename S>
void Blocked(const Block& lhs, const Block& rhs, const TenonTensor* bias, const Block& out) {
  const T* added = bias == nullptr ? nullptr : static_cast<const T*>(bias->data);
  const int64_t step = bias == nullptr ? 0 : bias->strides[0];
  // The side with more vectors goes along them: a matrix times a vector is a row times a matrix, turned.
  if (out.cols < out.rows && out.cols < kTileBytes / static_cast<int64_t>(sizeof(S))) {
    Product<T, S>(rhs.Transposed(), lhs.Transposed(), out.Transposed(), added, nullptr, step).Run();
  } else {
    Product<T, S>(lhs, rhs, out, nullptr, added, step).Run();
  }
}

// Row by row; T is std::complex<float> or std::complex<double>.
template <typename T>
void Complex(const Block& lhs, const Block& rhs, const TenonTensor* bias, const Block& out) {
  struct Job {
    const Block &lhs, &rhs, &out;
    const TenonTensor* bias;
  } job{lhs, rhs, out, bias};
  auto rows = [](void* p, int64_t begin, int64_t end) {
    const Job& j = *static_cast<const Job*>(p);
    auto at = [](const Block& b, int64_t batch, int64_t row, int64_t col) -> T& {
      return reinterpret_cast<T*>(b.data)[batch * b.batch_step + row * b.row_step + col * b.col_step];
    };
    std::vector<std::complex<double>> sum(static_cast<size_t>(j.out.cols));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t batch = i / j.out.rows, row = i % j.out.rows;
      std::fill(sum.begin(), sum.end(), 0);
      for (int64_t k = 0; k < j.lhs.cols; ++k) {
        const std::complex<double> x = at(j.lhs, batch, row, k);
        for (int64_t c = 0; c < j.out.cols; ++c) sum[c] += x * std::complex<double>(at(j.rhs, batch, k, c));
      }
      for (int64_t c = 0; c < j.out.cols; ++c) {
        if (j.bias != nullptr) sum[c] += static_cast<const T*>(j.bias->data)[c * j.bias->strides[0]];
        at(j.out, batch, row, c) = T(sum[c]);
      }
    }
  };
  PoolParallelFor(0, out.batch * out.rows, 1 + 65536 / (out.cols * lhs.cols + 1), rows, &job);
}

}  // namespace

void PlainMatmul(const TenonTensor& lhs_tensor, const TenonTensor& rhs_tensor, const TenonTensor* bias,
                 const TenonTensor& out_tensor) {
  const Block lhs(lhs_tensor), rhs(rhs_tensor), out(out_tensor);
  if (out.batch == 0 || out.rows == 0 || out.cols == 0) return;
  switch (static_cast<PrimitiveType>(out_tensor.dtype)) {
    case PrimitiveType::kF16: return Blocked<F16, float>(lhs, rhs, bias, out);
    case PrimitiveType::kBF16: return Blocked<BF16, float>(lhs, rhs, bias, out);
    case PrimitiveType::kF32: return Blocked<float, float>(lhs, rhs, bias, out);
    case PrimitiveType::kF64: return Blocked<double, double>(lhs, rhs, bias, out);
    case PrimitiveType::kC64: return Complex<std::complex<float>>(lhs, rhs, bias, out);
    case PrimitiveType::kC128: return Complex<std::complex<double>>(lhs, rhs, bias, out);
    default: TENON_CHECK(false, "a matmul of a type that the plain host doesn't multiply");
  }
}

}  // namespace tenon
