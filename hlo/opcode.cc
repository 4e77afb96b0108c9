#include "hlo/opcode.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace tenon {
namespace {

struct AttrRow {
  std::string_view name;
  AttrKind kind;
};
constexpr AttrRow kAttrRows[] = {
#define TENON_ATTR(e, name, kind) {name, AttrKind::kind},
#include "hlo/attrs.def"
};

template <Attr... attrs>
struct AttrList {
  // One more than needed: an array of no elements is not C++.
  static constexpr Attr values[sizeof...(attrs) + 1] = {attrs..., Attr{}};
  static constexpr absl::Span<const Attr> span() { return {values, sizeof...(attrs)}; }
};

constexpr bool IsUniversal(Attr attr) {
  switch (attr) {
    case Attr::kMetadata:
    case Attr::kSharding:
    case Attr::kFrontendAttributes:
    case Attr::kBackendConfig:
    case Attr::kStatistics:
    case Attr::kOrigin:
    case Attr::kControlPredecessors:
      return true;
    default:
      return false;
  }
}

const OpInfo* OpTable() {
  using enum Attr;
  static constexpr OpInfo rows[] = {
#define TENON_UNPAREN(...) __VA_ARGS__
#define TENON_OP(e, name, min, max, family, traits, required, optional)     \
  {Opcode::e,                                                               \
   name,                                                                    \
   min,                                                                     \
   max,                                                                     \
   Family::family,                                                          \
   traits,                                                                  \
   AttrList<TENON_UNPAREN required>::span(),                                \
   AttrList<TENON_UNPAREN optional>::span()},
#include "hlo/ops.def"
#undef TENON_UNPAREN
  };
  return rows;
}

template <typename Value>
using NameMap = absl::flat_hash_map<absl::string_view, Value>;

absl::string_view Key(std::string_view s) { return {s.data(), s.size()}; }

}  // namespace

std::string_view AttrName(Attr attr) { return kAttrRows[static_cast<int>(attr)].name; }
AttrKind KindOf(Attr attr) { return kAttrRows[static_cast<int>(attr)].kind; }

bool OpInfo::allows(Attr attr) const {
  return IsUniversal(attr) || std::find(required.begin(), required.end(), attr) != required.end() ||
         std::find(optional.begin(), optional.end(), attr) != optional.end();
}

const OpInfo& InfoOf(Opcode opcode) {
  static const OpInfo* const table = OpTable();
  return table[static_cast<int>(opcode)];
}

std::optional<Opcode> ParseOpcode(std::string_view name) {
  static const auto* opcodes = [] {
    auto* map = new NameMap<Opcode>;
    for (int i = 0; i < kNumOpcodes; ++i) (*map)[Key(OpTable()[i].name)] = static_cast<Opcode>(i);
    return map;
  }();
  auto it = opcodes->find(Key(name));
  if (it == opcodes->end()) return std::nullopt;
  return it->second;
}

std::optional<Attr> ParseAttr(Opcode opcode, std::string_view key) {
  static const auto* attrs = [] {
    auto* map = new NameMap<Attr>;
    for (size_t i = 0; i < std::size(kAttrRows); ++i) {
      (*map)[Key(kAttrRows[i].name)] = static_cast<Attr>(i);
    }
    return map;
  }();
  if (opcode == Opcode::kRngBitGenerator && key == "algorithm") return Attr::kRngAlgorithm;
  auto it = attrs->find(Key(key));
  if (it == attrs->end() || !InfoOf(opcode).allows(it->second)) return std::nullopt;
  return it->second;
}

}  // namespace tenon
