#include "tools/lab/judge/plant.h"

#include <string>

#include "tools/lab/judge/plants.h"

namespace tenon::lab {
namespace {

std::vector<PlantInfo> MakePlants() {
  std::vector<PlantInfo> all;
  for (const ModulePlant& p : FirstPlants()) all.push_back({p.name, p.doc, p.apply, nullptr});
  for (const ModulePlant& p : MorePlants()) all.push_back({p.name, p.doc, p.apply, nullptr});
  for (const ProgramPlant& p : ProgramPlants()) all.push_back({p.name, p.doc, nullptr, p.apply});
  for (const ProgramPlant& p : SizePlants()) all.push_back({p.name, p.doc, nullptr, p.apply, /*sizes=*/true});
  return all;
}

Plant planted = kNoPlant;

}  // namespace

absl::Span<const PlantInfo> AllPlants() {
  static const auto* all = new std::vector<PlantInfo>(MakePlants());
  return *all;
}

std::optional<Plant> ParsePlant(std::string_view text) {
  const absl::Span<const PlantInfo> all = AllPlants();
  for (size_t k = 0; k < all.size(); ++k) {
    if (text == all[k].name || text == std::to_string(k + 1)) return static_cast<Plant>(k) + 1;
  }
  return std::nullopt;
}

std::string_view PlantName(Plant plant) { return plant == kNoPlant ? "none" : AllPlants()[plant - 1].name; }

void SetPlant(Plant plant) { planted = plant; }

CompileOptions::Sabotage PlantedBug() {
  CompileOptions::Sabotage sabotage;
  if (planted == kNoPlant) return sabotage;
  const PlantInfo& info = AllPlants()[planted - 1];
  if (info.module != nullptr) sabotage.module = [apply = info.module](Module& m) { apply(m); };
  if (info.program != nullptr) sabotage.program = [apply = info.program](Program& p) { apply(p); };
  return sabotage;
}

CompileOptions::Sabotage FindPlaces(absl::flat_hash_set<Plant>* places, bool sizes) {
  CompileOptions::Sabotage sabotage;
  sabotage.module = [places, sizes](Module& module) {
    for (size_t k = 0; k < AllPlants().size(); ++k) {
      const PlantInfo& info = AllPlants()[k];
      if (info.sizes == sizes && info.module != nullptr && info.module(*module.Clone())) places->insert(static_cast<Plant>(k) + 1);
    }
  };
  sabotage.program = [places, sizes](Program& program) {
    for (size_t k = 0; k < AllPlants().size(); ++k) {
      if (AllPlants()[k].sizes != sizes) continue;
      Program copy = program;
      if (AllPlants()[k].program != nullptr && AllPlants()[k].program(copy)) places->insert(static_cast<Plant>(k) + 1);
    }
  };
  return sabotage;
}

}  // namespace tenon::lab
