#include "runtime/plain_host.h"

#include <complex>
#include <cstring>
#include <string>
#include <type_traits>

#include "hlo/literal.h"
#include "runtime/thread_pool.h"

namespace tenon {
namespace {

// The operand as [batch, rows, cols]; a matrix is a batch of one.
struct Block {
  PrimitiveType type;
  const TenonTensor& tensor;
  int64_t batch, rows, cols, batch_step, row_step, col_step;

  explicit Block(const TenonTensor& t) : type(static_cast<PrimitiveType>(t.dtype)), tensor(t) {
    const bool batched = t.ndim == 3;
    batch = batched ? t.sizes[0] : 1;
    batch_step = batched ? t.strides[0] : 0;
    rows = t.sizes[t.ndim - 2], row_step = t.strides[t.ndim - 2];
    cols = t.sizes[t.ndim - 1], col_step = t.strides[t.ndim - 1];
  }
  bool empty() const { return batch == 0 || rows == 0 || cols == 0; }
  int64_t Offset(int64_t b, int64_t r, int64_t c) const { return b * batch_step + r * row_step + c * col_step; }
};

template <typename T>
T Get(const Literal& l, int64_t i) {
  if constexpr (std::is_same_v<T, uint64_t>) {
    return static_cast<uint64_t>(l.GetAsInt64(i));
  } else if constexpr (std::is_same_v<T, double>) {
    return l.GetAsDouble(i);
  } else {
    return l.GetAsComplex(i);
  }
}

template <typename T>
std::vector<T> Packed(const Block& x) {
  std::vector<T> out(x.batch * x.rows * x.cols);
  if (out.empty()) return out;
  const int64_t extent = x.Offset(x.batch - 1, x.rows - 1, x.cols - 1) + 1;
  const Literal memory(Shape::Array(x.type, {extent}), nullptr, x.tensor.data);
  int64_t at = 0;
  for (int64_t b = 0; b < x.batch; ++b) {
    for (int64_t r = 0; r < x.rows; ++r) {
      for (int64_t c = 0; c < x.cols; ++c) out[at++] = Get<T>(memory, x.Offset(b, r, c));
    }
  }
  return out;
}

template <typename T>
void Put(const Block& out, int64_t offset, T value) {
  const int64_t width = ByteWidth(out.type);
  Literal one(Shape::Array(out.type, {1}));
  if constexpr (std::is_same_v<T, uint64_t>) {
    one.SetFromInt64(0, static_cast<int64_t>(value));
  } else if constexpr (std::is_same_v<T, double>) {
    one.SetFromDouble(0, value);
  } else {
    Literal parts(Shape::Array(ComplexComponent(out.type), {2}));
    parts.SetFromDouble(0, value.real());
    parts.SetFromDouble(1, value.imag());
    std::memcpy(one.mutable_bytes(), parts.bytes(), width);
  }
  std::memcpy(static_cast<char*>(out.tensor.data) + offset * width, one.bytes(), width);
}

template <typename T>
struct Product {
  const Block& out;
  int64_t terms;
  std::vector<T> lhs, rhs;

  // Rows [begin, end) of all batches together.
  void Rows(int64_t begin, int64_t end) const {
    std::vector<T> sum(out.cols);
    for (int64_t row = begin; row < end; ++row) {
      const int64_t b = row / out.rows;
      std::fill(sum.begin(), sum.end(), T{});
      for (int64_t k = 0; k < terms; ++k) {
        const T x = lhs[row * terms + k];
        const T* y = rhs.data() + (b * terms + k) * out.cols;
        for (int64_t c = 0; c < out.cols; ++c) sum[c] += x * y[c];
      }
      for (int64_t c = 0; c < out.cols; ++c) Put(out, out.Offset(b, row % out.rows, c), sum[c]);
    }
  }
};

template <typename T>
void Multiply(const Block& lhs, const Block& rhs, const Block& out) {
  if (out.empty()) return;
  const Product<T> product{out, lhs.cols, Packed<T>(lhs), Packed<T>(rhs)};
  PoolParallelFor(
      0, out.batch * out.rows, 1 + 65536 / (out.cols * lhs.cols + 1),
      [](void* p, int64_t begin, int64_t end) { static_cast<const Product<T>*>(p)->Rows(begin, end); },
      const_cast<Product<T>*>(&product));
}

void* Prepare(void*, const TenonOpSpec* spec, char** error) {
  static int matmul;  // its address is the handle
  const std::string op = spec->overload;
  if (op == "aten.mm.out" || op == "aten.bmm.out") return &matmul;
  *error = strdup("a framework operator; without a framework only dots can be run");
  return nullptr;
}

int Call(void*, TenonOpCall* call) {
  const Block lhs(call->operands[0]), rhs(call->operands[1]), out(call->results[0]);
  if (IsComplex(out.type)) {
    Multiply<std::complex<double>>(lhs, rhs, out);
  } else if (IsFloat(out.type)) {
    Multiply<double>(lhs, rhs, out);
  } else {
    Multiply<uint64_t>(lhs, rhs, out);
  }
  return 0;
}

}  // namespace

const TenonHost* PlainHost() {
  static const TenonHost host = [] {
    TenonHost h = *DefaultHost();
    h.op_prepare = Prepare;
    h.op_call = Call;
    return h;
  }();
  return &host;
}

}  // namespace tenon
