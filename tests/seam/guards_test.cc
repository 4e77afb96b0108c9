// What a program of symbolic sizes takes for granted of a call, at the seam: a call that does otherwise gives an error that says what was
// wanted and what came, reads and writes nothing outside, and leaves results as they were; the next right call is right. Each array ends
// at memory that may not be touched, or begins behind it: kernels are compiled at run time, so no sanitizer watches them.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "runtime/tenon_c.h"
#include "tests/seam/handles.h"
#include "tests/seam/plain_host.h"

namespace {

using seam::Taken;

bool SameBits(const std::vector<float>& was, const float* now) {
  return was.empty() || std::memcmp(was.data(), now, was.size() * sizeof(float)) == 0;
}

// f32 elements between pages that may not be touched: against the one behind, or against the one before.
class Guarded {
 public:
  explicit Guarded(int64_t count, bool at_end) : count_(count) {
    const size_t page = static_cast<size_t>(getpagesize()), bytes = static_cast<size_t>(count) * sizeof(float);
    inner_ = (bytes + page - 1) / page * page + page;
    base_ = static_cast<char*>(mmap(nullptr, inner_ + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (mprotect(base_ + page, inner_, PROT_READ | PROT_WRITE) != 0) std::abort();
    data_ = reinterpret_cast<float*>(at_end ? base_ + page + inner_ - bytes : base_ + page);
  }
  Guarded(Guarded&& other) noexcept
      : count_(other.count_), inner_(other.inner_), base_(std::exchange(other.base_, nullptr)), data_(other.data_) {}
  ~Guarded() {
    if (base_ != nullptr) munmap(base_, inner_ + 2 * static_cast<size_t>(getpagesize()));
  }
  float* data() const { return data_; }
  int64_t count() const { return count_; }

 private:
  int64_t count_;
  size_t inner_ = 0;
  char* base_;
  float* data_;
};

// An argument of a call: an array, or the number of a SymInt.
struct Argument {
  std::vector<int64_t> sizes, strides;
  std::shared_ptr<Guarded> memory;
  int64_t offset = 0;  // elements
  int64_t number = -1;

  TenonTensor tensor() const {
    if (number >= 0) return {nullptr, reinterpret_cast<void*>(number), nullptr, nullptr, 0, -1};
    const auto rank = static_cast<int32_t>(sizes.size());
    return {nullptr, memory->data() + offset, sizes.data(), strides.data(), tenon_dtype_from_name("f32"), rank};
  }
};

int64_t Extent(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  int64_t last = 0;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) return 0;
    last += (sizes[d] - 1) * strides[d];
  }
  return last + 1;
}
Argument Array(std::vector<int64_t> sizes, std::vector<int64_t> strides, bool at_end) {
  Argument a{.sizes = std::move(sizes), .strides = std::move(strides)};
  a.memory = std::make_shared<Guarded>(Extent(a.sizes, a.strides), at_end);
  for (int64_t k = 0; k < a.memory->count(); ++k) a.memory->data()[k] = static_cast<float>(k % 97 + 1);
  return a;
}
Argument Vector(int64_t size, bool at_end) { return Array({size}, {1}, at_end); }
Argument Number(int64_t n) { return {.number = n}; }

class Program {
 public:
  explicit Program(const char* text) {
    char* error = nullptr;
    TenonGraph* graph = tenon_graph_parse(text, std::strlen(text), &error);
    if (graph != nullptr) {
      const TenonOption alone = {"cache", {.kind = 4, .i = 0}};
      executable_ = tenon_compile(graph, &alone, 1, nullptr, 0, seam::PlainHost(), &error);
    }
    tenon_graph_release(graph);
    EXPECT_NE(executable_, nullptr) << Taken(error);
    if (executable_ != nullptr) {
      const TenonSignature* signature = tenon_signature(executable_);
      EXPECT_NE(signature->native, 0) << signature->reason;
    }
  }
  ~Program() { tenon_executable_release(executable_); }

  // "": it ran, and `result` is written. Else the error, and `result` is as it was.
  std::string Run(const std::vector<Argument>& arguments, const Argument& result) {
    if (executable_ == nullptr) return "there is no program";
    std::vector<TenonTensor> inputs;
    for (const Argument& a : arguments) inputs.push_back(a.tensor());
    TenonTensor output = result.tensor();
    const std::vector<float> before(result.memory->data(), result.memory->data() + result.memory->count());
    char* error = nullptr;
    const int code = tenon_run(executable_, inputs.data(), &output, &error);
    if (code == TENON_OK) return Taken(error);
    EXPECT_TRUE(SameBits(before, result.memory->data())) << "a refused call wrote its result";
    return Taken(error);
  }
 private:
  TenonExecutable* executable_ = nullptr;
};

class SeamGuards : public testing::TestWithParam<bool> {};  // arrays end at a guard page, or begin at one

constexpr char kTwoVectors[] = R"(graph "two" {
  symbols s0 in [2, 64]
  %x = input f32[s0]{1}
  %y = input f32[s0]{1}
  %z = aten.add.Tensor(%x, %y) -> f32[s0]{1}
  return (%z)
}
)";

TEST_P(SeamGuards, SizesThatRepeat) {
  Program program(kTwoVectors);
  for (const int64_t n : {2, 10, 64}) {
    const Argument x = Vector(n, GetParam()), y = Vector(n, GetParam()), z = Vector(n, GetParam());
    EXPECT_EQ(program.Run({x, y}, z), "");
    for (int64_t k = 0; k < n; ++k) EXPECT_EQ(z.memory->data()[k], 2 * x.memory->data()[k]);
    const std::string error = program.Run({Vector(10, GetParam()), Vector(5, GetParam())}, Vector(10, GetParam()));
    EXPECT_NE(error.find("10"), error.npos) << error;
    EXPECT_NE(error.find('5'), error.npos) << error;
  }
  EXPECT_NE(program.Run({Vector(5, GetParam()), Vector(10, GetParam())}, Vector(5, GetParam())), "");
}

TEST_P(SeamGuards, Ranges) {
  Program program(kTwoVectors);
  for (const int64_t n : {0, 1, 65, 1000}) {
    const std::string error = program.Run({Vector(n, GetParam()), Vector(n, GetParam())}, Vector(n, GetParam()));
    EXPECT_NE(error.find(std::to_string(n)), error.npos) << n << ": " << error;
  }
}

TEST_P(SeamGuards, Strides) {
  Program program(R"(graph "rows" {
  symbols s0 in [2, 64]
  %x = input f32[s0,4]{4,1}
  %y = input f32[3,s0]{s0,1}
  %n = aten.neg.default(%x) -> f32[s0,4]{4,1}
  %m = aten.sum.dim_IntList(%y, [1], false, none) -> f32[3]{1}
  %a = aten.sum.default(%m, none) -> f32[]{}
  %r = aten.add.Tensor(%n, %a) -> f32[s0,4]{4,1}
  return (%r)
}
)");
  const bool end = GetParam();
  const auto rows = [&](int64_t n) { return Array({n, 4}, {4, 1}, end); };
  const auto columns = [&](int64_t n) { return Array({3, n}, {n, 1}, end); };
  const Argument right = rows(5);
  EXPECT_EQ(program.Run({rows(5), columns(5)}, right), "");
  EXPECT_NE(program.Run({Array({5, 4}, {8, 1}, end), columns(5)}, rows(5)), "") << "a stride that is a number";
  EXPECT_NE(program.Run({Array({5, 4}, {1, 5}, end), columns(5)}, rows(5)), "") << "another order";
  EXPECT_NE(program.Run({rows(5), Array({3, 5}, {6, 1}, end)}, rows(5)), "") << "a stride that is a symbol";
  EXPECT_NE(program.Run({rows(5), columns(6)}, rows(5)), "") << "another symbol";
  EXPECT_NE(program.Run({rows(5), columns(4)}, rows(5)), "");
  const Argument again = rows(5);
  EXPECT_EQ(program.Run({rows(5), columns(5)}, again), "");
  EXPECT_EQ(std::memcmp(right.memory->data(), again.memory->data(), 20 * sizeof(float)), 0);
}

// Sizes that are multiples of a symbol; divisors of symbols are guards of HLO's programs (tests/backends/guards_test.cc), a view of a size
// that may not be divisible is ATen's step.
TEST_P(SeamGuards, Expressions) {
  Program program(R"(graph "derived" {
  symbols s0 in [1, 100]
  %n = input symint s0
  %x = input f32[4*s0]{1}
  %y = input f32[2*s0+1]{1}
  %v = aten.view.default(%x, [sym(s0), 4]) -> f32[s0,4]{4,1}
  %t = aten.sum.default(%y, none) -> f32[]{}
  %r = aten.add.Tensor(%v, %t) -> f32[s0,4]{4,1}
  return (%r)
}
)");
  const bool end = GetParam();
  const auto result = [&](int64_t n) { return Array({n, 4}, {4, 1}, end); };
  const auto run = [&](int64_t n, int64_t x, int64_t y) {
    return program.Run({Number(n), Vector(x, end), Vector(y, end)}, result(n));
  };
  for (const int64_t n : {1, 3, 100}) EXPECT_EQ(run(n, 4 * n, 2 * n + 1), "") << n;
  for (const int64_t x : {0, 9, 10, 11, 13, 16}) EXPECT_NE(run(3, x, 7), "") << x;
  for (const int64_t y : {0, 6, 8}) EXPECT_NE(run(3, 12, y), "") << y;
  for (const int64_t n : {2, 4}) EXPECT_NE(run(n, 12, 7), "") << n;
  EXPECT_NE(run(101, 404, 203), "") << "out of range";
  EXPECT_NE(run(0, 0, 1), "") << "out of range";
}

TEST_P(SeamGuards, Numbers) {
  Program program(R"(graph "number" {
  symbols s0 in [2, 64]
  %n = input symint s0
  %x = input f32[s0]{1}
  %y = aten.mul.Tensor(%x, sym(s0)) -> f32[s0]{1}
  return (%y)
}
)");
  const Argument y = Vector(6, GetParam());
  EXPECT_EQ(program.Run({Number(6), Vector(6, GetParam())}, y), "");
  EXPECT_EQ(y.memory->data()[2], 18);
  for (const int64_t n : {0, 5, 7, 64, 1000}) EXPECT_NE(program.Run({Number(n), Vector(6, GetParam())}, Vector(6, GetParam())), "") << n;
}

// x += y, where y is a part of x's memory: as if y had been read before.
TEST_P(SeamGuards, AMutatedInputThatOverlapsAnother) {
  Program program(R"(graph "mutates" {
  symbols s0 in [2, 64]
  %x = input f32[s0]{1}
  %y = input f32[s0]{1}
  %a = aten.add.Tensor(%x, %y) -> f32[s0]{1}
  %b = aten.mul.Tensor(%a, %y) -> f32[s0]{1}
  aten.copy_.default(%x, %a, false) -> alias %x
  return (%b)
}
)");
  for (const int64_t shift : {-1, 0, 1, 7, 30}) {
    constexpr int64_t kSize = 30;
    Argument whole = Vector(2 * kSize, GetParam());
    Argument x{.sizes = {kSize}, .strides = {1}, .memory = whole.memory, .offset = 1}, y = x;
    y.offset = x.offset + shift;
    if (y.offset + kSize > 2 * kSize) y.offset = 2 * kSize - kSize;
    std::vector<float> was(whole.memory->data(), whole.memory->data() + 2 * kSize);
    const Argument result = Vector(kSize, GetParam());
    const std::string error = program.Run({x, y}, result);
    const float* now = whole.memory->data();
    if (!error.empty()) {
      EXPECT_TRUE(SameBits(was, now)) << "refused, and written";
      continue;
    }
    for (int64_t k = 0; k < kSize; ++k) {
      const float a = was[static_cast<size_t>(x.offset + k)] + was[static_cast<size_t>(y.offset + k)];
      EXPECT_EQ(now[x.offset + k], a) << "shift " << shift << ", element " << k;
      EXPECT_EQ(result.memory->data()[k], a * was[static_cast<size_t>(y.offset + k)]) << "shift " << shift << ", element " << k;
    }
  }
}

#if defined(__x86_64__)
TEST_P(SeamGuards, AThreadThatFlushesSubnormalNumbers) {
  Program program(kTwoVectors);
  const unsigned before = _mm_getcsr();
  for (const unsigned bit : {1U << 15, 1U << 6}) {
    _mm_setcsr(before | bit);
    const std::string error = program.Run({Vector(8, GetParam()), Vector(8, GetParam())}, Vector(8, GetParam()));
    _mm_setcsr(before);
    EXPECT_NE(error.find("subnormal"), error.npos) << error;
  }
  EXPECT_EQ(program.Run({Vector(8, GetParam()), Vector(8, GetParam())}, Vector(8, GetParam())), "");
}
#endif

INSTANTIATE_TEST_SUITE_P(Pages, SeamGuards, testing::Bool(), [](const auto& p) { return p.param ? "before_a_page" : "behind_a_page"; });

}  // namespace
