#include "backends/program/releases.h"

#include <functional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "runtime/program/step_views.h"

namespace tenon {

namespace {

void KeepUntilEnd(Program* program, int32_t index, bool slot) {
  for (Region& region : program->regions) {
    for (Step& step : region.steps) std::erase(slot ? step.release_slots : step.release_inputs, index);
  }
}

// The region in which each slot is filled: a loop's body fills and releases its slots in every round.
absl::flat_hash_map<int64_t, int32_t> HomesOfSlots(const Program& program) {
  absl::flat_hash_map<int64_t, int32_t> homes;
  for (size_t r = 0; r < program.regions.size(); ++r) {
    for (const Step& step : program.regions[r].steps) {
      const auto* call = std::get_if<FrameworkStep>(&step.body);
      if (call == nullptr) continue;
      for (const View& v : call->results) {
        if (v.value >= 0 && program.values[v.value].kind == ValueKind::kSlot) {
          homes[program.values[v.value].index] = static_cast<int32_t>(r);
        }
      }
    }
  }
  return homes;
}

}  // namespace

void FindReleases(Program* program) {
  absl::flat_hash_set<int64_t> kept_slots, kept_inputs, seen_slots, seen_inputs;
  for (const OutputSpec& out : program->outputs) {
    if (out.kind == OutputKind::kSlot) kept_slots.insert(out.index);
    if (out.kind == OutputKind::kInput) kept_inputs.insert(out.index);
  }
  const absl::flat_hash_map<int64_t, int32_t> homes = HomesOfSlots(*program);
  // What runs once runs main, then commit: inputs and main's slots go at their last use there, by a step or the regions it runs.
  std::vector<int32_t> order = {0};
  if (program->commit_region >= 0) order.insert(order.begin(), program->commit_region);
  for (int32_t r = 1; r < static_cast<int32_t>(program->regions.size()); ++r) {
    if (r != program->commit_region) order.push_back(r);
  }
  for (const int32_t r : order) {
    const bool once = r == 0 || r == program->commit_region;
    std::vector<Step>& region = program->regions[r].steps;
    for (auto step = region.rbegin(); step != region.rend(); ++step) {
      ForEachViewInside(*program, *step, [&](const View& view) {
        if (view.value < 0) return;
        const Value& value = program->values[view.value];
        if (value.kind == ValueKind::kSlot && !kept_slots.contains(value.index)) {
          auto home = homes.find(value.index);
          const bool ours = home == homes.end() || home->second == 0 ? once : home->second == r;
          if (ours && seen_slots.insert(value.index).second) step->release_slots.push_back(static_cast<int32_t>(value.index));
        }
        if (once && value.kind == ValueKind::kInput && !kept_inputs.contains(value.index) && seen_inputs.insert(value.index).second) {
          step->release_inputs.push_back(static_cast<int32_t>(value.index));
        }
      });
    }
  }
  // A result of rule `view` may share an operand's memory: then its operands stay until the run ends.
  for (const Region& region : program->regions) {
    for (const Step& step : region.steps) {
      const auto* call = std::get_if<FrameworkStep>(&step.body);
      if (call == nullptr || call->rule != ResultRule::kView) continue;
      for (const View& operand : call->operands) {
        if (operand.value < 0) continue;
        const Value& value = program->values[operand.value];
        if (value.kind == ValueKind::kSlot) KeepUntilEnd(program, static_cast<int32_t>(value.index), /*slot=*/true);
        if (value.kind == ValueKind::kInput) KeepUntilEnd(program, static_cast<int32_t>(value.index), /*slot=*/false);
      }
    }
  }
}

}  // namespace tenon
