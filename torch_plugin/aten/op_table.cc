#include "torch_plugin/aten/op_table.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>

#include "torch_plugin/aten/lower/lowerings.h"

namespace tenon::aten {
namespace {

constexpr std::string_view kComplexRows[] = {
#define ATEN_OP(overload, function, promotion, rule)
#define ATEN_LIBRARY(overload, rule, effect)
#define ATEN_STEP(overload, rule, effect)
#define ATEN_FOREACH(overload, element, function)
#define ATEN_COMPLEX(overload) overload,
#include "torch_plugin/aten/aten.def"
};

constexpr bool TakesComplex(std::string_view overload) {
  return std::find(std::begin(kComplexRows), std::end(kComplexRows), overload) != std::end(kComplexRows);
}

constexpr OpRow kRows[] = {
#define ATEN_OP(overload, function, promotion, rule) \
  {overload, RowKind::kLowered, &Lower##function, Promotion::promotion, ResultRule::rule, Effect::kPure, {}, \
   TakesComplex(overload)},
#define ATEN_LIBRARY(overload, rule, effect) \
  {overload, RowKind::kLibrary, nullptr, Promotion::kKeep, ResultRule::rule, Effect::effect},
#define ATEN_STEP(overload, rule, effect) \
  {overload, RowKind::kStep, nullptr, Promotion::kKeep, ResultRule::rule, Effect::effect},
#define ATEN_FOREACH(overload, element, function) \
  {overload, RowKind::kLowered, &Lower##function, Promotion::kKeep, ResultRule::kOwned, Effect::kPure, element},
#include "torch_plugin/aten/aten.def"
};
static_assert(std::count_if(std::begin(kRows), std::end(kRows), [](const OpRow& row) { return row.complex; }) ==
                  static_cast<std::ptrdiff_t>(std::size(kComplexRows)),
              "an ATEN_COMPLEX that is no ATEN_OP, or stands twice");

}  // namespace

absl::Span<const OpRow> Rows() { return kRows; }

const OpRow* FindRow(std::string_view overload) {
  static const auto* const index = [] {
    auto* map = new std::unordered_map<std::string_view, const OpRow*>;
    for (const OpRow& row : kRows) map->emplace(row.overload, &row);
    return map;
  }();
  auto it = index->find(overload);
  return it == index->end() ? nullptr : it->second;
}

bool IsPythonCall(std::string_view overload) { return overload.starts_with("python."); }
bool IsCollective(std::string_view overload) { return overload.starts_with("_c10d_functional"); }

bool IsInPlace(std::string_view overload) {
  size_t last = overload.rfind('.');
  if (last == std::string_view::npos) return false;
  std::string_view name = overload.substr(0, last);
  name = name.substr(name.rfind('.') + 1);
  if (name.starts_with("__")) return name.starts_with("__i") && name != "__invert__";
  return name.ends_with('_');
}

bool IsForeign(std::string_view overload) { return !overload.starts_with("aten.") && !overload.starts_with("prims."); }

ResultRule RuleOf(std::string_view overload) {
  if (const OpRow* row = FindRow(overload)) return row->rule;
  // Operators of other libraries return memory of their own, or their schema says that they don't; but collectives return what they
  // were given once it is there (wait_tensor), and a Python callable returns what it likes.
  return IsForeign(overload) && !IsPythonCall(overload) && !IsCollective(overload) ? ResultRule::kOwned : ResultRule::kView;
}

Effect EffectOf(std::string_view overload) {
  if (const OpRow* row = FindRow(overload)) return row->effect;
  if (IsInPlace(overload)) return Effect::kMutates;
  // PyTorch's primitives without a row are pure, or draws of random numbers; a Python callable or an operator of another library may do
  // anything but write its operands. As draws none is merged, dropped or reordered.
  if (overload.starts_with("prims.") || IsForeign(overload)) return Effect::kRandom;
  return Effect::kPure;
}

}  // namespace tenon::aten
