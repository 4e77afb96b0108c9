#include "backends/program/releases.h"

#include "absl/container/flat_hash_set.h"

namespace tenon {

void ForEachView(const Step& step, const std::function<void(const View&)>& fn) {
  if (const auto* k = std::get_if<KernelStep>(&step.body)) {
    for (const View& v : k->operands) fn(v);
  } else if (const auto* f = std::get_if<FrameworkStep>(&step.body)) {
    for (const View& v : f->operands) fn(v);
    for (const View& v : f->results) fn(v);
  } else if (const auto* l = std::get_if<LibraryStep>(&step.body)) {
    for (const View& v : l->operands) fn(v);
    for (const View& v : l->results) fn(v);
  } else if (const auto* c = std::get_if<CopyStep>(&step.body)) {
    fn(c->from);
    fn(c->to);
  }
}

namespace {

void KeepUntilEnd(Program* program, int32_t index, bool slot) {
  for (Region& region : program->regions) {
    for (Step& step : region.steps) std::erase(slot ? step.release_slots : step.release_inputs, index);
  }
}

}  // namespace

void FindReleases(Program* program) {
  absl::flat_hash_set<int64_t> kept_slots, kept_inputs, seen_slots, seen_inputs;
  for (const OutputSpec& out : program->outputs) {
    if (out.kind == OutputKind::kSlot) kept_slots.insert(out.index);
    if (out.kind == OutputKind::kInput) kept_inputs.insert(out.index);
  }
  for (int64_t r = static_cast<int64_t>(program->regions.size()) - 1; r >= 0; --r) {
    std::vector<Step>& region = program->regions[r].steps;
    for (auto step = region.rbegin(); step != region.rend(); ++step) {
      // A result of rule `view` may share an operand's memory: then neither operands nor slots go before the run ends.
      ForEachView(*step, [&](const View& view) {
        if (view.value < 0) return;
        const Value& value = program->values[view.value];
        if (value.kind == ValueKind::kSlot && !kept_slots.contains(value.index) && seen_slots.insert(value.index).second) {
          step->release_slots.push_back(static_cast<int32_t>(value.index));
        }
        if (value.kind == ValueKind::kInput && !kept_inputs.contains(value.index) && seen_inputs.insert(value.index).second) {
          step->release_inputs.push_back(static_cast<int32_t>(value.index));
        }
      });
      if (const auto* call = std::get_if<FrameworkStep>(&step->body); call != nullptr && call->rule == ResultRule::kView) {
        for (const View& operand : call->operands) {
          if (operand.value < 0) continue;
          const Value& value = program->values[operand.value];
          if (value.kind == ValueKind::kSlot) KeepUntilEnd(program, static_cast<int32_t>(value.index), /*slot=*/true);
          if (value.kind == ValueKind::kInput) KeepUntilEnd(program, static_cast<int32_t>(value.index), /*slot=*/false);
        }
      }
    }
  }
}

}  // namespace tenon
