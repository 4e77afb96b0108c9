#include "hlo/plant.h"

#include <string>

namespace tenon {
namespace {

struct Row {
  Plant plant;
  int number;
  std::string_view name, doc;
};
constexpr Row kRows[] = {
#define TENON_PLANT(enumerator, number, name, what) {Plant::enumerator, number, name, what},
    TENON_PLANTED_BUGS(TENON_PLANT)
#undef TENON_PLANT
};
static_assert(std::size(kRows) == kNumPlants);

}  // namespace

#ifdef TENON_NO_PLANTS
bool SetPlant(Plant plant) { return plant == Plant::kNone; }
#else
namespace internal {
std::atomic<Plant> planted_bug = Plant::kNone;
}
bool SetPlant(Plant plant) {
  internal::planted_bug.store(plant, std::memory_order_relaxed);
  return true;
}
#endif

std::optional<Plant> ParsePlant(std::string_view text) {
  for (const Row& row : kRows) {
    if (text == row.name || text == std::to_string(row.number)) return row.plant;
  }
  return std::nullopt;
}

std::string_view PlantName(Plant plant) { return plant == Plant::kNone ? "none" : kRows[static_cast<int>(plant) - 1].name; }
std::string_view PlantDoc(Plant plant) { return plant == Plant::kNone ? "no bug is planted" : kRows[static_cast<int>(plant) - 1].doc; }

}  // namespace tenon
