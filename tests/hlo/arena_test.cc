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
    for (int64_t bytes : d.bytes) sum += AlignedUp(bytes);
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

// Long-lived buffers of a model's trunk take turns at both ends; by size alone they would lie behind the large ones.
TEST(Arena, WhatSticksOutGoesFirst) {
  std::vector<BufferLife> lives;
  std::vector<int64_t> bytes;
  for (int32_t layer = 0; layer < 4; ++layer) {
    const int32_t at = 20 * layer;
    lives.insert(lives.end(), {{at, at + 20}, {at + 3, at + 10}, {at + 14, at + 18}});
    bytes.insert(bytes.end(), {2 << 10, 3 << 10, 4 << 10});
  }
  EXPECT_EQ(MostAlive(lives, bytes), 6 << 10);
  EXPECT_EQ(PlaceBuffers(lives, bytes).bytes, 8 << 10);
  EXPECT_EQ(PlaceBuffers(lives, bytes, {}, /*again=*/8).bytes, 6 << 10);
}

// Hidden values of 1, 4 and 1 KiB, then the result of 64 KiB that the last of them is read for.
TEST(Arena, ResultsLendTheirMemory) {
  const std::vector<BufferLife> lives = {{0, 1}, {1, 2}, {2, 3}};
  const std::vector<int64_t> bytes = {1 << 10, 4 << 10, 1 << 10};
  EXPECT_EQ(PlaceBuffers(lives, bytes).bytes, 5 << 10);
  const std::vector<LentMemory> lent = {{64 << 10, 3}};
  const ArenaPlaces places = PlaceBuffers(lives, bytes, lent);
  EXPECT_EQ(places.bytes, 1 << 10) << "the one that is read when the result is written";
  EXPECT_EQ(places.lent, (std::vector<int32_t>{0, 0, -1})) << "where the first lies the third could not";
  EXPECT_TRUE(LieApart(lives, bytes, places, lent));
  // Too late, too small, not worth it.
  EXPECT_EQ(PlaceBuffers(lives, bytes, std::vector<LentMemory>{{64 << 10, 1}}).bytes, 5 << 10);
  EXPECT_EQ(PlaceBuffers(lives, bytes, std::vector<LentMemory>{{1 << 9, 3}}).bytes, 5 << 10);
  const ArenaPlaces alone = PlaceBuffers(std::vector<BufferLife>{{0, 3}, {1, 1}}, std::vector<int64_t>{64, 0}, lent);
  EXPECT_TRUE(alone.lent.empty()) << "the arena would be as large";
}

TEST(Arena, DrawnBuffersLieApartInLentMemory) {
  int64_t lent_somewhere = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const Drawn d = Draw(seed, 2 + static_cast<int32_t>(seed));
    std::mt19937 random(seed + 1000);
    std::vector<LentMemory> lent(1 + random() % 20);
    for (LentMemory& m : lent) {
      m = {static_cast<int64_t>(random() % (1 << (random() % 22))), static_cast<int32_t>(random() % static_cast<uint32_t>(seed + 8))};
    }
    const ArenaPlaces without = PlaceBuffers(d.lives, d.bytes), places = PlaceBuffers(d.lives, d.bytes, lent, seed % 2 == 0 ? 0 : 8);
    EXPECT_TRUE(LieApart(d.lives, d.bytes, places, lent)) << seed;
    EXPECT_LE(places.bytes, without.bytes) << seed;
    lent_somewhere += places.bytes < without.bytes ? 1 : 0;
  }
  EXPECT_GT(lent_somewhere, 100);
}

TEST(Arena, WhatMeetsInLentMemoryIsSeen) {
  const std::vector<BufferLife> lives = {{0, 1}, {1, 2}, {2, 3}};
  const std::vector<int64_t> bytes = {100, 100, 100};
  const std::vector<LentMemory> lent = {{256, 3}, {256, 4}};
  const ArenaPlaces good = {.offsets = {0, 128, 0}, .bytes = 0, .lent = {0, 0, 1}};
  EXPECT_TRUE(LieApart(lives, bytes, good, lent));
  for (const auto& spoil : std::vector<void (*)(ArenaPlaces&)>{
           [](ArenaPlaces& p) { p.offsets[1] = 64; },    // meets the first
           [](ArenaPlaces& p) { p.offsets[1] = 192; },   // ends behind the memory
           [](ArenaPlaces& p) { p.lent[2] = 0; },        // alive when its lender's value is written
           [](ArenaPlaces& p) { p.lent[2] = -1; }}) {    // in an arena of no bytes
    ArenaPlaces bad = good;
    spoil(bad);
    EXPECT_FALSE(LieApart(lives, bytes, bad, lent));
  }
}

}  // namespace
}  // namespace tenon
