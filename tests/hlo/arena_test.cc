// Buffers that are alive together lie apart, in arenas that are not much larger than what is alive at once.
#include "hlo/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace tenon {
namespace {

struct Drawn {
  std::vector<BufferLife> lives;
  std::vector<int64_t> bytes;
};

// As of a deep model: most are read soon, some at the end.
Drawn Draw(uint32_t seed, int32_t buffers) {
  std::mt19937 random(seed);
  Drawn d;
  for (int32_t b = 0; b < buffers; ++b) {
    const auto span = static_cast<int32_t>(random() % 8 == 0 ? random() % static_cast<uint32_t>(buffers + 1) : 1 + random() % 6);
    d.lives.push_back({b, b + span});
    d.bytes.push_back(static_cast<int64_t>(random() % 5 == 0 ? random() % 3 : random() % (1 << (random() % 20))));
  }
  return d;
}

TEST(Arena, DrawnBuffersLieApart) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const Drawn d = Draw(seed, 1 + static_cast<int32_t>(seed));
    const ArenaPlaces places = PlaceBuffers(d.lives, d.bytes);
    EXPECT_TRUE(LieApart(d.lives, d.bytes, places)) << seed;
    EXPECT_GE(places.bytes, MostAlive(d.lives, d.bytes)) << seed;
    int64_t sum = 0;
    for (int64_t bytes : d.bytes) sum += (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
    EXPECT_LE(places.bytes, sum) << seed;
  }
}

// The check sees two that meet, one outside, and one that is not aligned.
TEST(Arena, WhatMeetsIsSeen) {
  const std::vector<BufferLife> lives = {{0, 2}, {2, 3}, {3, 4}};
  const std::vector<int64_t> bytes = {100, 100, 100};
  const ArenaPlaces good = PlaceBuffers(lives, bytes);
  EXPECT_EQ(good.bytes, 256);
  EXPECT_TRUE(LieApart(lives, bytes, good));
  for (const auto& spoil : std::vector<void (*)(ArenaPlaces&)>{[](ArenaPlaces& p) { p.offsets[1] = p.offsets[0]; },
                                                               [](ArenaPlaces& p) { p.offsets[1] = p.offsets[0] + 64; },
                                                               [](ArenaPlaces& p) { p.offsets[2] += 32; },
                                                               [](ArenaPlaces& p) { p.bytes = 192; },
                                                               [](ArenaPlaces& p) { p.offsets[0] = -64; }}) {
    ArenaPlaces bad = good;
    spoil(bad);
    EXPECT_FALSE(LieApart(lives, bytes, bad));
  }
}

TEST(Arena, WhatIsAliveAtOnce) {
  EXPECT_EQ(MostAlive({}, {}), 0);
  EXPECT_EQ(MostAlive(std::vector<BufferLife>{{0, 1}, {2, 3}, {1, 2}}, std::vector<int64_t>{10, 20, 5}), 25);
  EXPECT_EQ(PlaceBuffers({}, {}).bytes, 0);
}

}  // namespace
}  // namespace tenon
