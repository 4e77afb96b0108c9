#include "hlo/library/lapack_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <complex>
#include <cstdlib>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "hlo/library/call.h"

namespace tenon {
namespace {

struct Library {
  absl::Mutex mutex;
  std::string path;
  std::vector<void*> handles;
  bool searched = false;
};
Library& Global() {
  static auto* library = new Library;
  return *library;
}

void* Symbol(const std::string& name) {
  Library& library = Global();
  absl::MutexLock lock(&library.mutex);
  if (!library.searched) {
    library.searched = true;
    const char* named = std::getenv("TENON_LAPACK");
    for (const std::string& path : {library.path, std::string(named == nullptr ? "" : named),
                                    std::string("liblapack.so.3"), std::string("libopenblas.so.0")}) {
      void* handle = path.empty() ? nullptr : dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle != nullptr) library.handles.push_back(handle);
    }
    if (void* torch = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD)) library.handles.push_back(torch);
    library.handles.push_back(RTLD_DEFAULT);
  }
  for (void* handle : library.handles) {
    for (const char* prefix : {"", "scipy_"}) {
      if (void* found = dlsym(handle, absl::StrCat(prefix, name, "_").c_str())) return found;
    }
  }
  return nullptr;
}

}  // namespace

void SetLapackLibrary(std::string path) {
  Library& library = Global();
  absl::MutexLock lock(&library.mutex);
  library.path = std::move(path);
}

namespace library {
namespace {

absl::StatusOr<void*> Routine(const Signature& s, const std::string& name) {
  if (void* found = Symbol(name)) return found;
  return absl::UnimplementedError(
      absl::StrCat(ToString(s), ": ", name, " of a LAPACK library, and none was found: TENON_LAPACK names one"));
}

template <typename T>
struct RealOf { using type = T; };
template <typename T>
struct RealOf<std::complex<T>> { using type = T; };

// "ssyevd", "cheevd", "sgesdd".
template <typename T>
std::string RoutineName(bool eigen) {
  constexpr bool kSingle = sizeof(typename RealOf<T>::type) == 4, kReal = std::is_floating_point_v<T>;
  const char* letter = kReal ? (kSingle ? "s" : "d") : kSingle ? "c" : "z";
  return absl::StrCat(letter, eigen ? (kReal ? "syevd" : "heevd") : "gesdd");
}

// LAPACK's matrices are column-major: one matrix of the batch, there and back.
template <typename T>
void ColumnMajor(const void* array, int64_t matrix, int64_t rows, int64_t cols, T* to) {
  const T* from = static_cast<const T*>(array) + matrix * rows * cols;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) to[c * rows + r] = from[r * cols + c];
  }
}
template <typename T>
void PutBack(const T* from, int64_t matrix, int64_t rows, int64_t cols, void* array) {
  T* to = static_cast<T*>(array) + matrix * rows * cols;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) to[r * cols + c] = from[c * rows + r];
  }
}

struct Sizes {
  int64_t count = 1;
  int rows = 0, cols = 0;
};
Sizes SizesOf(const Shape& s) {
  Sizes b{1, static_cast<int>(s.constant_dim(s.rank() - 2)), static_cast<int>(s.constant_dim(s.rank() - 1))};
  for (int64_t d = 0; d < s.rank() - 2; ++d) b.count *= s.constant_dim(d);
  return b;
}

// One operand of f32, f64, c64 or c128 matrices; results of the kinds ('t' its type, 'r' its real part's, 'i' s32) and sizes.
absl::Status Want(const Signature& s, std::string_view kinds, const std::vector<int64_t>& sizes) {
  const PrimitiveType type = s.operands[0].element_type();
  bool fits = s.results.size() == kinds.size();
  for (size_t k = 0; fits && k < kinds.size(); ++k) {
    const PrimitiveType wanted = kinds[k] == 't' ? type : kinds[k] == 'r' ? ComplexComponent(type) : PrimitiveType::kS32;
    fits = s.results[k].element_type() == wanted && s.results[k].num_elements_constant() == sizes[k];
  }
  return fits ? absl::OkStatus() : Invalid(s, "types or sizes of the results");
}

absl::Status WantMatrix(const Signature& s) {
  if (s.operands.size() != 1 || s.operands[0].rank() < 2) return Invalid(s, "wanted one operand of matrices");
  switch (s.operands[0].element_type()) {
    case PrimitiveType::kF32:
    case PrimitiveType::kF64:
    case PrimitiveType::kC64:
    case PrimitiveType::kC128: break;
    default: return Invalid(s, "operands or results of another kind than LAPACK's");
  }
  for (int64_t d = 0; d < s.operands[0].rank(); ++d) {
    if (s.operands[0].constant_dim(d) > 46340) return Invalid(s, "larger than LAPACK's integers");
  }
  return absl::OkStatus();
}

template <typename F>
absl::Status WithType(const Signature& s, F&& f) {
  switch (s.operands[0].element_type()) {
    case PrimitiveType::kF32: return f(float{});
    case PrimitiveType::kF64: return f(double{});
    case PrimitiveType::kC64: return f(std::complex<float>{});
    default: return f(std::complex<double>{});
  }
}

// ---- (eigenvectors, eigenvalues, info) of symmetric or Hermitian matrices ---------------------------------------------------

absl::Status CheckEigen(const Signature& s) {
  TENON_RETURN_IF_ERROR(WantMatrix(s));
  const Sizes b = SizesOf(s.operands[0]);
  if (b.rows != b.cols) return Invalid(s, "wanted square matrices");
  return Want(s, "tri", {b.count * b.rows * b.rows, b.count * b.rows, b.count});
}

template <typename T>
absl::Status Eigen(const Call& call) {
  using R = typename RealOf<T>::type;
  const Signature& s = call.signature;
  const Sizes b = SizesOf(s.operands[0]);
  TENON_ASSIGN_OR_RETURN(void* routine, Routine(s, RoutineName<T>(/*eigen=*/true)));
  const char mode = static_cast<char>(s.attributes.IntOr("mode", 'V')), uplo = static_cast<char>(s.attributes.IntOr("uplo", 'L'));
  const int n = b.rows;
  // What each routine's page asks for at most.
  const int lwork = std::is_same_v<T, R> ? 1 + 6 * n + 2 * n * n + 64 * n : 2 * n + n * n + 64 * n + 1;
  const int lrwork = 1 + 5 * n + 2 * n * n, liwork = 3 + 5 * n, lda = std::max(n, 1);
  std::vector<T> work(lwork), a(static_cast<size_t>(n) * n);
  std::vector<R> rwork(lrwork), w(lda);
  std::vector<int> iwork(liwork);
  for (int64_t m = 0; m < b.count; ++m) {
    ColumnMajor<T>(call.operands[0], m, n, n, a.data());
    int info = 0;
    if constexpr (std::is_same_v<T, R>) {
      reinterpret_cast<void (*)(const char*, const char*, const int*, T*, const int*, R*, T*, const int*, int*, const int*,
                                int*, size_t, size_t)>(routine)(&mode, &uplo, &n, a.data(), &lda, w.data(), work.data(),
                                                                &lwork, iwork.data(), &liwork, &info, 1, 1);
    } else {
      reinterpret_cast<void (*)(const char*, const char*, const int*, T*, const int*, R*, T*, const int*, R*, const int*,
                                int*, const int*, int*, size_t, size_t)>(routine)(
          &mode, &uplo, &n, a.data(), &lda, w.data(), work.data(), &lwork, rwork.data(), &lrwork, iwork.data(), &liwork,
          &info, 1, 1);
    }
    PutBack(a.data(), m, n, n, call.results[0]);
    std::copy_n(w.data(), n, static_cast<R*>(call.results[1]) + m * n);
    static_cast<int32_t*>(call.results[2])[m] = info;
  }
  return absl::OkStatus();
}

absl::Status RunEigen(const Call& call) {
  return WithType(call.signature, [&]<typename T>(T) { return Eigen<T>(call); });
}

// ---- (what LAPACK leaves of the matrix, singular values, u, vt, info) -------------------------------------------------------
// mode 'A' all vectors, 'S' the first, 'N' none.

struct Vectors {
  char mode;
  int k, u_cols, v_rows;
};
Vectors VectorsOf(const Signature& s, const Sizes& b) {
  const char mode = static_cast<char>(s.attributes.IntOr("mode", 'A'));
  const int k = std::min(b.rows, b.cols);
  return {mode, k, mode == 'S' ? k : b.rows, mode == 'S' ? k : b.cols};
}

absl::Status CheckSingular(const Signature& s) {
  TENON_RETURN_IF_ERROR(WantMatrix(s));
  const Sizes b = SizesOf(s.operands[0]);
  const Vectors v = VectorsOf(s, b);
  return Want(s, "trtti", {b.count * b.rows * b.cols, b.count * v.k, b.count * b.rows * v.u_cols, b.count * v.v_rows * b.cols,
                           b.count});
}

template <typename T>
absl::Status Singular(const Call& call) {
  using R = typename RealOf<T>::type;
  const Signature& s = call.signature;
  const Sizes b = SizesOf(s.operands[0]);
  const auto [mode, k, u_cols, v_rows] = VectorsOf(s, b);
  const int rows = b.rows, cols = b.cols, long_side = std::max(rows, cols);
  TENON_ASSIGN_OR_RETURN(void* routine, Routine(s, RoutineName<T>(/*eigen=*/false)));
  const int lwork = 5 * k * k + 10 * k + 5 * long_side + 64 * (rows + cols) + 1;
  std::vector<T> work(lwork), a(static_cast<size_t>(rows) * cols), u(rows * u_cols + 1), vt(v_rows * cols + 1);
  std::vector<R> rwork(std::max(5 * k * k + 7 * k, 2 * long_side * k + 2 * k * k + k) + 1), values(k + 1);
  std::vector<int> iwork(8 * k + 1);
  const int lda = std::max(rows, 1), ldu = lda, ldvt = std::max(v_rows, 1);
  for (int64_t m = 0; m < b.count; ++m) {
    ColumnMajor<T>(call.operands[0], m, rows, cols, a.data());
    std::fill(u.begin(), u.end(), T(0));
    std::fill(vt.begin(), vt.end(), T(0));
    int info = 0;
    if constexpr (std::is_same_v<T, R>) {
      reinterpret_cast<void (*)(const char*, const int*, const int*, T*, const int*, R*, T*, const int*, T*, const int*, T*,
                                const int*, int*, int*, size_t)>(routine)(&mode, &rows, &cols, a.data(), &lda, values.data(),
                                                                          u.data(), &ldu, vt.data(), &ldvt, work.data(),
                                                                          &lwork, iwork.data(), &info, 1);
    } else {
      reinterpret_cast<void (*)(const char*, const int*, const int*, T*, const int*, R*, T*, const int*, T*, const int*, T*,
                                const int*, R*, int*, int*, size_t)>(routine)(
          &mode, &rows, &cols, a.data(), &lda, values.data(), u.data(), &ldu, vt.data(), &ldvt, work.data(), &lwork,
          rwork.data(), iwork.data(), &info, 1);
    }
    PutBack(a.data(), m, rows, cols, call.results[0]);
    std::copy_n(values.data(), k, static_cast<R*>(call.results[1]) + m * k);
    PutBack(u.data(), m, rows, u_cols, call.results[2]);
    PutBack(vt.data(), m, v_rows, cols, call.results[3]);
    static_cast<int32_t*>(call.results[4])[m] = info;
  }
  return absl::OkStatus();
}

absl::Status RunSingular(const Call& call) {
  return WithType(call.signature, [&]<typename T>(T) { return Singular<T>(call); });
}

constexpr Function kFunctions[] = {{"syevd", CheckEigen, nullptr, RunEigen}, {"gesdd", CheckSingular, nullptr, RunSingular}};

}  // namespace

absl::Span<const Function> LapackLibraryFunctions() { return kFunctions; }

}  // namespace library
}  // namespace tenon
