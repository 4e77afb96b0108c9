// Planted bugs: known miscompiles, one at a time, to prove that the lab finds and cuts what the compiler gets wrong.
//
// A plant changes the module after the passes, in what the backend is about to generate code for, or the program, into what a wrong
// pass or backend would have made of it (CompileOptions::sabotage). The compiler itself knows of none. One plant at a time, for the
// whole process; set it before compiling.
#pragma once

#include <optional>
#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "backends/driver/compile.h"

namespace tenon::lab {

// A number from 1 on; 0: none.
using Plant = int;
inline constexpr Plant kNoPlant = 0;

struct PlantInfo {
  std::string_view name;  // "alias-hazard"
  std::string_view doc;   // what is wrong
  // One of them is null. Whether it found a place and changed it.
  bool (*module)(Module&);
  bool (*program)(Program&);
  bool sizes = false;  // of programs of symbolic sizes, and no others
};
absl::Span<const PlantInfo> AllPlants();  // plant k is element k - 1

// By number ("4") or name ("alias-hazard"). nullopt: no such plant.
std::optional<Plant> ParsePlant(std::string_view text);
std::string_view PlantName(Plant plant);  // "none"

void SetPlant(Plant plant);
// For CompileOptions::sabotage: empty if none is set.
CompileOptions::Sabotage PlantedBug();
// Plants nothing, and adds to `places` those plants that would change what is compiled: a module with symbols (`sizes`), or one of numbers.
CompileOptions::Sabotage FindPlaces(absl::flat_hash_set<Plant>* places, bool sizes = false);

}  // namespace tenon::lab
