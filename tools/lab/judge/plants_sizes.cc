// Planted bugs of programs for many sizes: what the dim program and the guards could get wrong.
#include <algorithm>

#include "runtime/program/step_views.h"
#include "tools/lab/judge/plants.h"

namespace tenon::lab {
namespace {

using Kind = DimOp::Kind;

// The slot that reads a symbol's size becomes what the first symbol's reads.
bool EqualSymbols(Program& program) {
  DimOp* first = nullptr;
  for (DimOp& op : program.dim_program) {
    if (op.kind != Kind::kInputDim) continue;
    if (first != nullptr) return op = *first, true;
    first = &op;
  }
  return false;
}

bool DropGuard(Program& program, bool (*which)(Guard::Kind)) {
  auto it = std::find_if(program.guards.rbegin(), program.guards.rend(), [&](const Guard& g) { return which(g.kind); });
  if (it == program.guards.rend()) return false;
  program.guards.erase(std::next(it).base());
  return true;
}

// A slot that is `size`, but no more than `most`.
SizeRef AtMost(Program& program, SizeRef size, int64_t most) {
  program.dim_program.push_back({.kind = Kind::kMin, .a = size, .b = most});
  return ~static_cast<SizeRef>(program.dim_program.size() - 1);
}

SizeRef Larger(Program& program, SizeRef a, SizeRef b) {
  program.dim_program.push_back({.kind = Kind::kMax, .a = a, .b = b});
  return ~static_cast<SizeRef>(program.dim_program.size() - 1);
}

constexpr int64_t kTypical = 5;

bool TypicalArgument(Program& program) {
  for (Region& region : program.regions) {
    for (Step& step : region.steps) {
      auto* kernel = std::get_if<KernelStep>(&step.body);
      if (kernel == nullptr || kernel->args.empty() || kernel->args[0] >= 0) continue;
      kernel->args[0] = AtMost(program, kernel->args[0], kTypical);
      return true;
    }
  }
  return false;
}

bool TypicalPieces(Program& program) {
  for (Region& region : program.regions) {
    for (Step& step : region.steps) {
      auto* kernel = std::get_if<KernelStep>(&step.body);
      if (kernel == nullptr || kernel->end >= 0) continue;
      kernel->end = AtMost(program, kernel->end, kTypical);
      return true;
    }
  }
  return false;
}

// The views of `from` become views of `to`.
void Replace(Program& program, int32_t from, int32_t to) {
  for (Region& region : program.regions) {
    for (Step& step : region.steps) {
      ForEachView(step, [&](const View& view) {
        if (view.value == from) const_cast<View&>(view).value = to;
      });
    }
  }
}

// Two arrays of the arena, of which one step reads or writes both.
bool SharedPlace(Program& program) {
  for (Region& region : program.regions) {
    for (Step& step : region.steps) {
      const auto* kernel = std::get_if<KernelStep>(&step.body);
      if (kernel == nullptr) continue;
      std::vector<int32_t> places;
      for (const View& view : kernel->operands) {
        const bool symbolic = view.value >= 0 && program.values[static_cast<size_t>(view.value)].is_placed_per_call();
        if (symbolic && std::find(places.begin(), places.end(), view.value) == places.end()) places.push_back(view.value);
      }
      if (places.size() < 2) continue;
      Value &to = program.values[static_cast<size_t>(places[0])], &from = program.values[static_cast<size_t>(places[1])];
      to.bytes = Larger(program, to.bytes, from.bytes);
      to.life = {std::min(to.life.first, from.life.first), std::max(to.life.last, from.life.last)};
      Replace(program, places[1], places[0]);
      return true;
    }
  }
  return false;
}

constexpr ProgramPlant kPlants[] = {
    {"equal-symbols", "two symbols are taken for one: the second has the first one's size", EqualSymbols},
    {"dropped-guard", "nobody looks whether a size that repeats, or a stride, is what it has to be",
     [](Program& p) { return DropGuard(p, [](Guard::Kind k) { return k != Guard::Kind::kRange; }); }},
    {"dropped-range", "nobody looks whether a symbol lies in its range",
     [](Program& p) { return DropGuard(p, [](Guard::Kind k) { return k == Guard::Kind::kRange; }); }},
    {"typical-argument", "a kernel is told of no larger a size than the one it was planned for", TypicalArgument},
    {"typical-pieces", "a kernel's work is cut into no more pieces than the typical size has", TypicalPieces},
    {"shared-place", "two buffers of symbolic sizes share a place while both are in use", SharedPlace},
};

}  // namespace

absl::Span<const ProgramPlant> SizePlants() { return kPlants; }

}  // namespace tenon::lab
