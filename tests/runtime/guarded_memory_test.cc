#include "runtime/guarded_memory.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

namespace tenon {
namespace {

class GuardedDeathTest : public testing::TestWithParam<MemoryGuard> {
 protected:
  static constexpr size_t kSizes[] = {1, 4, 12, 64, 4095, 4096, 4097, 10000};
};

void Touch(const char* p) { static_cast<void>(*const_cast<const volatile char*>(p)); }

TEST_P(GuardedDeathTest, FaultsOutsideAndNowhereElse) {
  for (const size_t bytes : kSizes) {
    auto* memory = static_cast<char*>(GuardedAllocate(bytes, GetParam()));
    ASSERT_NE(memory, nullptr);
    Touch(memory);
    Touch(memory + bytes - 1);
    EXPECT_DEATH(Touch(GetParam() == MemoryGuard::kEnd ? memory + bytes : memory - 1), "") << bytes;
    GuardedFree(memory);
  }
}

TEST_P(GuardedDeathTest, NothingIsNowhere) {
  auto* memory = static_cast<char*>(GuardedAllocate(0, GetParam()));
  EXPECT_DEATH(Touch(memory), "");
  EXPECT_DEATH(Touch(memory - 1), "");
  GuardedFree(memory);
  GuardedFree(nullptr);
}

TEST_P(GuardedDeathTest, AlignedToElements) {
  for (const size_t width : {1, 2, 4, 8, 16}) {
    void* memory = GuardedAllocate(width * 3, GetParam());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % width, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % (2 * width) != 0, GetParam() == MemoryGuard::kEnd) << "no better at an end";
    GuardedFree(memory);
  }
}

TEST_P(GuardedDeathTest, ContentsArePoison) {
  auto* memory = static_cast<float*>(GuardedAllocate(40, GetParam()));
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(std::isnan(memory[i]));
  GuardedFree(memory);
}

TEST_P(GuardedDeathTest, AWriteOnTheOtherSideIsFound) {
  EXPECT_DEATH(
      {
        auto* memory = static_cast<char*>(GuardedAllocate(100, GetParam()));
        memory[GetParam() == MemoryGuard::kEnd ? -1 : 100] = 0;
        GuardedFree(memory);
      },
      "was written: allocation .* of 100 bytes");
}

INSTANTIATE_TEST_SUITE_P(Modes, GuardedDeathTest, testing::Values(MemoryGuard::kEnd, MemoryGuard::kBegin),
                         [](const auto& info) { return info.param == MemoryGuard::kEnd ? "end" : "begin"; });

}  // namespace
}  // namespace tenon
