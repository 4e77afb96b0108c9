// Opcode, Attr and their tables (ops.def, attrs.def).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/types/span.h"

namespace tenon {

enum class Attr : uint8_t {
#define TENON_ATTR(e, ...) e,
#include "hlo/attrs.def"
};
enum class AttrKind : uint8_t {
  kInt, kBool, kIntList, kDimList, kIdent, kQuoted, kDouble, kSlice, kWindow, kDimLabels, kPadding, kComp, kCompList, kRaw
};
std::string_view AttrName(Attr attr);
AttrKind KindOf(Attr attr);

enum class Opcode : uint8_t {
#define TENON_OP(e, ...) e,
#include "hlo/ops.def"
};
inline constexpr int kNumOpcodes = 0
#define TENON_OP(...) +1
#include "hlo/ops.def"
    ;

enum class Family : uint8_t {
  kElementwise, kMovement, kReduction, kContraction, kIndexing, kControl, kRandom, kLinalg, kCollective
};
enum Trait : uint8_t { kCommutative = 1, kStateful = 2, kMayHaveSideEffect = 4 };

struct OpInfo {
  Opcode opcode;
  std::string_view name;
  int min_operands, max_operands;  // max -1: any number
  Family family;
  uint8_t traits;
  absl::Span<const Attr> required, optional;
  bool allows(Attr attr) const;  // required, optional or universal (metadata, sharding, ...)
};
const OpInfo& InfoOf(Opcode opcode);
inline std::string_view OpcodeName(Opcode opcode) { return InfoOf(opcode).name; }
std::optional<Opcode> ParseOpcode(std::string_view name);

// The attribute that `key` names on `opcode` ("algorithm" differs by opcode). nullopt: unknown, kept verbatim.
std::optional<Attr> ParseAttr(Opcode opcode, std::string_view key);

}  // namespace tenon
