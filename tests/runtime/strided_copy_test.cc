// Strided copies of random views against one element after the other, on one, two and three threads.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "runtime/execute/step_loop.h"

namespace tenon {
namespace {

void OnThreads(void*, int64_t begin, int64_t end, int64_t, void (*fn)(void*, int64_t, int64_t), void* arg) {
  std::vector<std::thread> threads;
  for (int64_t k = end; k-- > begin;) threads.emplace_back([=] { fn(arg, k, k + 1); });
  for (std::thread& t : threads) t.join();
}

struct Copied {
  std::vector<int64_t> dims, to, from;  // strides in elements
  int64_t to_start = 0, from_start = 0, to_size = 0, from_size = 0;
};

// Strides of a dense array whose dims lie in a random order, some reversed, with gaps; `repeats`: some strides are 0.
void Lay(std::mt19937_64& random, const std::vector<int64_t>& dims, bool repeats, std::vector<int64_t>* strides, int64_t* start,
         int64_t* size) {
  std::vector<size_t> order(dims.size());
  std::iota(order.begin(), order.end(), 0);
  if (random() % 3 != 0) std::shuffle(order.begin(), order.end(), random);
  strides->assign(dims.size(), 0);
  int64_t stride = random() % 3 == 0 ? 2 : 1, low = 0, high = 1;
  for (size_t k = order.size(); k-- > 0;) {
    const size_t d = order[k];
    if (repeats && random() % 4 == 0) continue;
    (*strides)[d] = random() % 5 == 0 ? -stride : stride;
    ((*strides)[d] < 0 ? low : high) += (dims[d] - 1) * (*strides)[d];
    stride *= dims[d] + (random() % 4 == 0 ? 1 : 0);
  }
  *start = -low;
  *size = high - low;
}

Copied RandomCopy(uint64_t seed) {
  std::mt19937_64 random(seed);
  Copied c;
  const std::vector<int64_t> sizes = {1, 2, 3, 5, 17, 40, 129};
  int64_t elements = 1;
  for (uint64_t d = random() % 5; d-- > 0;) {
    c.dims.push_back(sizes[random() % sizes.size()]);
    if (elements * c.dims.back() > 600'000) c.dims.back() = 1;
    elements *= c.dims.back();
  }
  if (seed % 4 == 0) c.dims = {3, 300 + static_cast<int64_t>(random() % 50), 257};  // enough for several threads
  if (seed % 16 == 15 && !c.dims.empty()) c.dims[0] = 0;
  Lay(random, c.dims, false, &c.to, &c.to_start, &c.to_size);
  Lay(random, c.dims, seed % 3 == 0, &c.from, &c.from_start, &c.from_size);
  return c;
}

void OneByOne(const Copied& c, int64_t width, std::vector<char>& to, const std::vector<char>& from) {
  std::vector<int64_t> at(c.dims.size(), 0);
  for (int64_t d : c.dims) {
    if (d == 0) return;
  }
  while (true) {
    int64_t i = c.to_start, j = c.from_start;
    for (size_t d = 0; d < at.size(); ++d) {
      i += at[d] * c.to[d];
      j += at[d] * c.from[d];
    }
    std::memcpy(to.data() + i * width, from.data() + j * width, static_cast<size_t>(width));
    size_t d = at.size();
    while (d > 0 && ++at[d - 1] == c.dims[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}

TEST(StridedCopy, IsOneElementAfterTheOther) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Copied c = RandomCopy(seed);
    for (const int64_t width : {1, 2, 4, 8, 16}) {
      if (width != 4 && seed % 5 != static_cast<uint64_t>(width) % 5) continue;
      std::vector<char> from(static_cast<size_t>(std::max<int64_t>(c.from_size, 1) * width));
      std::vector<char> want(static_cast<size_t>(std::max<int64_t>(c.to_size, 1) * width), 'x');
      std::mt19937_64 random(seed);
      for (char& b : from) b = static_cast<char>(random());
      const std::vector<char> before = want;
      OneByOne(c, width, want, from);
      for (const int threads : {1, 2, 3}) {
        std::vector<char> got = before;
        StridedCopy(got.data() + c.to_start * width, c.to.data(), from.data() + c.from_start * width, c.from.data(), c.dims.data(),
                    static_cast<int>(c.dims.size()), width, {threads, nullptr, OnThreads});
        ASSERT_TRUE(got == want) << "seed " << seed << ", width " << width << ", " << threads << " threads";
      }
    }
  }
}

// Columns that become rows: narrow elements by squares, what is left over one by one.
TEST(StridedCopy, TurnsSquares) {
  for (const int64_t width : {1, 2, 4}) {
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{16, 16}, {15, 40}, {50, 37}, {129, 64}}) {
      const Copied c{.dims = {rows, columns}, .to = {columns, 1}, .from = {1, rows}};
      std::vector<char> from(static_cast<size_t>(rows * columns * width)), want(from.size()), got(from.size());
      std::iota(from.begin(), from.end(), 0);
      OneByOne(c, width, want, from);
      StridedCopy(got.data(), c.to.data(), from.data(), c.from.data(), c.dims.data(), 2, width, {1, nullptr, OnThreads});
      EXPECT_EQ(got, want) << rows << " " << columns << " " << width;
      const Copied repeated{.dims = {rows, columns}, .to = {columns, 1}, .from = {1, 0}};  // no square
      OneByOne(repeated, width, want, from);
      StridedCopy(got.data(), repeated.to.data(), from.data(), repeated.from.data(), c.dims.data(), 2, width, {1, nullptr, OnThreads});
      EXPECT_EQ(got, want) << rows << " " << columns << " " << width;
    }
  }
}

// In row-major order, as documented: each element may be read after an earlier one was written over it.
TEST(StridedCopy, OfOverlappingViewsGoesInOrder) {
  std::vector<int32_t> x(1 << 18), want;
  std::iota(x.begin(), x.end(), 0);
  want = x;
  const int64_t n = (1 << 17) - 1, to_stride = 1, from_stride = 2;
  for (int64_t k = 0; k < n; ++k) want[static_cast<size_t>(1 + k)] = want[static_cast<size_t>(2 * k)];
  StridedCopy(reinterpret_cast<char*>(x.data() + 1), &to_stride, reinterpret_cast<char*>(x.data()), &from_stride, &n, 1, 4,
              {3, nullptr, OnThreads});
  EXPECT_TRUE(x == want);
}

}  // namespace
}  // namespace tenon
