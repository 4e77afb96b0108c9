// Planted bugs: ten known miscompiles, one at a time, to prove that the lab finds and cuts what the compiler gets wrong.
//
// `Planted(Plant::kX)` stands at the place in the compiler where such a bug would live. It is a compile-time false with
// TENON_NO_PLANTS, which the CMake option TENON_PLANTS=OFF defines: the default wherever tests aren't built, so what ships has none of
// this (tests/architecture/test_plants.py). One plant at a time, for the whole process; set it before compiling.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#ifndef TENON_NO_PLANTS
#include <atomic>
#endif

namespace tenon {

// TENON_PLANT(enumerator, number, name, what is wrong)
#define TENON_PLANTED_BUGS(TENON_PLANT)                                                                              \
  TENON_PLANT(kTailMask, 1, "tail-mask", "lanes beyond the end count in a row reduction")                            \
  TENON_PLANT(kReduceInit, 2, "reduce-init", "a float maximum starts at the smallest positive number")               \
  TENON_PLANT(kBroadcastDim, 3, "broadcast-dim", "the minor dims of a square broadcast are swapped")                 \
  TENON_PLANT(kAliasHazard, 4, "alias-hazard", "a result takes the buffer of a value that the next step still reads") \
  TENON_PLANT(kNanMax, 5, "nan-max", "a maximum reduction drops NaN")                                                \
  TENON_PLANT(kPadOffByOne, 6, "pad-off-by-one", "a pad with a negative high end is off by one at its low end")      \
  TENON_PLANT(kUnsignedCompare, 7, "unsigned-compare", "unsigned integers are compared as signed ones")              \
  TENON_PLANT(kGatherClamp, 8, "gather-clamp", "a gather's indices are clamped one before the last")                 \
  TENON_PLANT(kCseRng, 9, "cse-rng", "equal random draws are merged")                                                \
  TENON_PLANT(kStaleLayout, 10, "stale-layout", "a kernel takes a square column-major operand for a row-major one")

enum class Plant : uint8_t {
  kNone = 0,
#define TENON_PLANT(enumerator, number, name, what) enumerator = number,
  TENON_PLANTED_BUGS(TENON_PLANT)
#undef TENON_PLANT
};

#ifdef TENON_NO_PLANTS
constexpr bool Planted(Plant) { return false; }
constexpr bool kPlantsBuilt = false;
#else
namespace internal {
extern std::atomic<Plant> planted_bug;
}
inline bool Planted(Plant plant) { return internal::planted_bug.load(std::memory_order_relaxed) == plant; }
constexpr bool kPlantsBuilt = true;
#endif

// False: this build has no plants (kNone is always fine).
bool SetPlant(Plant plant);
// By number ("4") or name ("alias-hazard"). nullopt: no such plant.
std::optional<Plant> ParsePlant(std::string_view text);
std::string_view PlantName(Plant plant);   // "none"
std::string_view PlantDoc(Plant plant);
constexpr int kNumPlants = 10;

}  // namespace tenon
