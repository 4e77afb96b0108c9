// The plain host's matrix products against three loops: sizes around its tiles, any strides, each type, with and without a bias. Values
// are small integers, so that every order of summing gives the same.
#include "runtime/host/functions.h"
#include "runtime/host/plain_matmul.h"

#include <gtest/gtest.h>

#include <complex>
#include <random>

#include "hlo/literal.h"
#include "runtime/host/plain_host.h"

namespace tenon {
namespace {

// A matrix (or a batch of them) with gaps between its elements, rows or columns first.
struct Strided {
  std::vector<int64_t> sizes, strides;
  Literal memory;

  Strided(PrimitiveType type, std::vector<int64_t> dims, bool columns_first, int64_t gap) : sizes(dims), strides(dims.size()) {
    std::vector<size_t> order;
    for (size_t d = 0; d < dims.size(); ++d) order.push_back(d);
    if (columns_first && dims.size() >= 2) std::swap(order[dims.size() - 2], order[dims.size() - 1]);
    int64_t stride = gap;
    for (size_t i = order.size(); i-- > 0;) {
      strides[order[i]] = stride;
      stride *= dims[order[i]] + 1;
    }
    memory = Literal(Shape::Array(type, {stride + 1}));
  }
  int64_t At(std::initializer_list<int64_t> index) const {
    int64_t at = 0;
    size_t d = 0;
    for (int64_t i : index) at += i * strides[d++];
    return at;
  }
  void Set(int64_t at, std::complex<double> v) {
    if (memory.type() == PrimitiveType::kC64) memory.mutable_data<std::complex<float>>()[at] = std::complex<float>(v);
    else if (memory.type() == PrimitiveType::kC128) memory.mutable_data<std::complex<double>>()[at] = v;
    else memory.SetFromDouble(at, v.real());
  }
  void Fill(std::mt19937_64& random) {
    for (int64_t i = 0; i < memory.num_elements(); ++i) {
      Set(i, {static_cast<double>(static_cast<int64_t>(random() % 5) - 2), static_cast<double>(static_cast<int64_t>(random() % 5) - 2)});
    }
  }
  TenonTensor Tensor() {
    TenonTensor t = {};
    t.data = memory.mutable_bytes();
    t.sizes = sizes.data();
    t.strides = strides.data();
    t.dtype = static_cast<int32_t>(memory.type());
    t.ndim = static_cast<int32_t>(sizes.size());
    return t;
  }
};

void Check(PrimitiveType type, int64_t m, int64_t k, int64_t n, int layout, bool with_bias) {
  SCOPED_TRACE(testing::Message() << PrimitiveTypeName(type) << " " << m << "x" << k << "x" << n << " layout " << layout << " bias "
                                  << with_bias);
  constexpr int64_t kBatch = 2;
  std::mt19937_64 random(static_cast<uint64_t>(m * 10007 + k * 101 + n));
  Strided lhs(type, {kBatch, m, k}, layout & 1, 1), rhs(type, {kBatch, k, n}, layout & 2, 2), out(type, {kBatch, m, n}, layout & 4, 1);
  Strided bias(type, {n}, false, 3);
  for (Strided* s : {&lhs, &rhs, &out, &bias}) s->Fill(random);
  Strided want = out;
  for (int64_t b = 0; b < kBatch; ++b) {
    for (int64_t r = 0; r < m; ++r) {
      for (int64_t c = 0; c < n; ++c) {
        std::complex<double> sum = with_bias ? bias.memory.GetAsComplex(bias.At({c})) : 0;
        for (int64_t i = 0; i < k; ++i) sum += lhs.memory.GetAsComplex(lhs.At({b, r, i})) * rhs.memory.GetAsComplex(rhs.At({b, i, c}));
        want.Set(want.At({b, r, c}), sum);
      }
    }
  }
  const TenonTensor added = bias.Tensor();
  PlainMatmul(lhs.Tensor(), rhs.Tensor(), with_bias ? &added : nullptr, out.Tensor());
  EXPECT_TRUE(out.memory == want.memory);  // what lies between the elements is untouched, too
}

TEST(PlainMatmul, EqualsThreeLoops) {
  for (PrimitiveType type : {PrimitiveType::kF32, PrimitiveType::kF64, PrimitiveType::kF16, PrimitiveType::kBF16, PrimitiveType::kC64,
                             PrimitiveType::kC128}) {
    int layout = 0;
    for (auto [m, k, n] : std::vector<std::array<int64_t, 3>>{{1, 1, 1},
                                                              {6, 5, 16},
                                                              {7, 3, 17},
                                                              {5, 0, 9},
                                                              {49, 20, 33},
                                                              {100, 7, 1},
                                                              {1, 9, 70},
                                                              {97, 11, 5},
                                                              {0, 4, 3},
                                                              {3, 4, 0},
                                                              {13, 64, 47}}) {
      for (bool bias : {false, true}) Check(type, m, k, n, layout++ % 8, bias);
    }
  }
}

TEST(PlainHost, MultipliesTheTypesOfTheTableOnly) {
  for (int t = 0; t <= static_cast<int>(PrimitiveType::kC128); ++t) {
    TenonTensor result = {};
    result.dtype = t;
    TenonOpSpec spec = {};
    spec.overload = "host.matmul";
    spec.results = &result;
    char* error = nullptr;
    void* op = PlainHost()->op_prepare(nullptr, &spec, &error);
    EXPECT_EQ(op != nullptr, HostTakes(HostFunction::kMatmul, static_cast<PrimitiveType>(t))) << t;
    free(error);
  }
}

}  // namespace
}  // namespace tenon
