#include "hlo/eval/lapack_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "hlo/eval/custom_calls.h"
#include "hlo/eval/internal.h"

namespace tenon {
namespace {

using Operands = absl::Span<const Literal>;

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

absl::StatusOr<void*> Routine(const Instruction& call, const std::string& name) {
  if (void* found = Symbol(name)) return found;
  return eval::Unimplemented(call, absl::StrCat(name, " of a LAPACK library, and none was found: TENON_LAPACK names one"));
}

// LAPACK's matrices are column-major: one matrix of the batch, there and back.
template <typename T>
std::vector<T> ColumnMajor(const Literal& l, int64_t matrix, int64_t rows, int64_t cols) {
  const T* from = reinterpret_cast<const T*>(l.bytes()) + matrix * rows * cols;
  std::vector<T> to(rows * cols);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) to[c * rows + r] = from[r * cols + c];
  }
  return to;
}
template <typename T>
void PutBack(const std::vector<T>& from, int64_t matrix, int64_t rows, int64_t cols, Literal* l) {
  T* to = reinterpret_cast<T*>(l->mutable_bytes()) + matrix * rows * cols;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) to[r * cols + c] = from[c * rows + r];
  }
}

template <typename T>
struct RealOf { using type = T; };
template <typename T>
struct RealOf<std::complex<T>> { using type = T; };

std::vector<Literal> Results(const Instruction& call) {
  std::vector<Literal> results;
  for (const Shape& leaf : FlattenShape(call.shape())) {
    results.emplace_back(Shape::Array(leaf.element_type(), leaf.constant_dims()));
  }
  return results;
}

struct Batch {
  int64_t count = 1, rows = 0, cols = 0;
};
absl::StatusOr<Batch> BatchOf(const Instruction& call, Operands operands, std::vector<PrimitiveType> types) {
  const std::vector<Shape> leaves = FlattenShape(call.shape());
  bool fits = operands.size() == 1 && operands[0].shape().rank() >= 2 && leaves.size() == types.size();
  for (size_t k = 0; fits && k < types.size(); ++k) fits = leaves[k].element_type() == types[k];
  if (!fits || operands[0].type() != types[0]) return eval::Invalid(call, "operands or results of another kind than LAPACK's");
  const std::vector<int64_t> dims = operands[0].shape().constant_dims();
  Batch b{1, dims[dims.size() - 2], dims.back()};
  for (size_t d = 0; d + 2 < dims.size(); ++d) b.count *= dims[d];
  return b;
}

absl::Status WantSizes(const Instruction& call, const std::vector<Literal>& results, const std::vector<int64_t>& sizes) {
  for (size_t k = 0; k < sizes.size(); ++k) {
    if (results[k].num_elements() != sizes[k]) return eval::Invalid(call, absl::StrCat("result ", call.shape().ToString()));
  }
  return absl::OkStatus();
}

// (eigenvectors, eigenvalues, info) of symmetric or Hermitian matrices.
template <typename T, PrimitiveType kType>
absl::StatusOr<Literal> Eigen(const Instruction& call, Operands operands, const std::string& name) {
  using R = typename RealOf<T>::type;
  TENON_ASSIGN_OR_RETURN(const Batch b, BatchOf(call, operands, {kType, ComplexComponent(kType), PrimitiveType::kS32}));
  if (b.rows != b.cols) return eval::Invalid(call, "wanted square matrices");
  std::vector<Literal> out = Results(call);
  TENON_RETURN_IF_ERROR(WantSizes(call, out, {b.count * b.rows * b.rows, b.count * b.rows, b.count}));
  TENON_ASSIGN_OR_RETURN(void* routine, Routine(call, name));
  const char mode = static_cast<char>(CustomCallAttribute(call, "mode").value_or('V'));
  const char uplo = static_cast<char>(CustomCallAttribute(call, "uplo").value_or('L'));
  const int n = static_cast<int>(b.rows);
  // What each routine's page asks for at most.
  const int lwork = std::is_same_v<T, R> ? 1 + 6 * n + 2 * n * n + 64 * n : 2 * n + n * n + 64 * n + 1;
  const int lrwork = 1 + 5 * n + 2 * n * n, liwork = 3 + 5 * n, lda = std::max(n, 1);
  std::vector<T> work(lwork);
  std::vector<R> rwork(lrwork), w(lda);
  std::vector<int> iwork(liwork);
  for (int64_t m = 0; m < b.count; ++m) {
    std::vector<T> a = ColumnMajor<T>(operands[0], m, n, n);
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
    PutBack(a, m, n, n, &out[0]);
    if (n > 0) std::copy_n(w.data(), n, reinterpret_cast<R*>(out[1].mutable_bytes()) + m * n);
    out[2].SetFromInt64(m, info);
  }
  return Literal::Tuple(std::move(out));
}

// (what LAPACK leaves of the matrix, singular values, u, vt, info). mode 'A' all vectors, 'S' the first, 'N' none.
template <typename T, PrimitiveType kType>
absl::StatusOr<Literal> Singular(const Instruction& call, Operands operands, const std::string& name) {
  using R = typename RealOf<T>::type;
  TENON_ASSIGN_OR_RETURN(const Batch b, BatchOf(call, operands, {kType, ComplexComponent(kType), kType, kType, PrimitiveType::kS32}));
  const char mode = static_cast<char>(CustomCallAttribute(call, "mode").value_or('A'));
  const int rows = static_cast<int>(b.rows), cols = static_cast<int>(b.cols), k = std::min(rows, cols);
  const int long_side = std::max(rows, cols), u_cols = mode == 'S' ? k : rows, v_rows = mode == 'S' ? k : cols;
  std::vector<Literal> out = Results(call);
  TENON_RETURN_IF_ERROR(WantSizes(call, out, {b.count * rows * cols, b.count * k, b.count * rows * u_cols,
                                              b.count * v_rows * cols, b.count}));
  TENON_ASSIGN_OR_RETURN(void* routine, Routine(call, name));
  const int lwork = 5 * k * k + 10 * k + 5 * long_side + 64 * (rows + cols) + 1;
  std::vector<T> work(lwork);
  std::vector<R> rwork(std::max(5 * k * k + 7 * k, 2 * long_side * k + 2 * k * k + k) + 1), s(k + 1);
  std::vector<int> iwork(8 * k + 1);
  const int lda = std::max(rows, 1), ldu = lda, ldvt = std::max(v_rows, 1);
  for (int64_t m = 0; m < b.count; ++m) {
    std::vector<T> a = ColumnMajor<T>(operands[0], m, rows, cols), u(rows * u_cols + 1), vt(v_rows * cols + 1);
    int info = 0;
    if constexpr (std::is_same_v<T, R>) {
      reinterpret_cast<void (*)(const char*, const int*, const int*, T*, const int*, R*, T*, const int*, T*, const int*, T*,
                                const int*, int*, int*, size_t)>(routine)(&mode, &rows, &cols, a.data(), &lda, s.data(),
                                                                          u.data(), &ldu, vt.data(), &ldvt, work.data(),
                                                                          &lwork, iwork.data(), &info, 1);
    } else {
      reinterpret_cast<void (*)(const char*, const int*, const int*, T*, const int*, R*, T*, const int*, T*, const int*, T*,
                                const int*, R*, int*, int*, size_t)>(routine)(
          &mode, &rows, &cols, a.data(), &lda, s.data(), u.data(), &ldu, vt.data(), &ldvt, work.data(), &lwork,
          rwork.data(), iwork.data(), &info, 1);
    }
    PutBack(a, m, rows, cols, &out[0]);
    if (k > 0) std::copy_n(s.data(), k, reinterpret_cast<R*>(out[1].mutable_bytes()) + m * k);
    PutBack(u, m, rows, u_cols, &out[2]);
    PutBack(vt, m, v_rows, cols, &out[3]);
    out[4].SetFromInt64(m, info);
  }
  return Literal::Tuple(std::move(out));
}

template <typename F>
EvalOptions::CustomCall Named(F function, std::string name) {
  return [function, name = std::move(name)](const Instruction& call, Operands operands) {
    return function(call, operands, name);
  };
}

template <typename T, PrimitiveType kType>
void AddType(const std::string& letter, std::map<std::string, EvalOptions::CustomCall, std::less<>>* calls) {
  const std::string eigen = letter + (std::is_floating_point_v<T> ? "syevd" : "heevd"), singular = letter + "gesdd";
  (*calls)["lapack_" + eigen + "_ffi"] = Named(Eigen<T, kType>, eigen);
  (*calls)["lapack_" + singular + "_ffi"] = Named(Singular<T, kType>, singular);
}

}  // namespace

std::map<std::string, EvalOptions::CustomCall, std::less<>> LapackLibraryCalls() {
  std::map<std::string, EvalOptions::CustomCall, std::less<>> calls;
  AddType<float, PrimitiveType::kF32>("s", &calls);
  AddType<double, PrimitiveType::kF64>("d", &calls);
  AddType<std::complex<float>, PrimitiveType::kC64>("c", &calls);
  AddType<std::complex<double>, PrimitiveType::kC128>("z", &calls);
  return calls;
}

void SetLapackLibrary(std::string path) {
  Library& library = Global();
  absl::MutexLock lock(&library.mutex);
  library.path = std::move(path);
}

}  // namespace tenon
