// The rows of aten.def: what is known of each ATen overload. Both consumers of a graph read them: Lower takes `lower`,
// EagerProgram (and every framework step) takes the result rule and the effect.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/program/program.h"

namespace tenon {
class Instruction;
}

namespace tenon::aten {

class OpContext;

// The dtype in which a lowering computes, before widening f16/bf16 to f32.
enum class Promotion : uint8_t {
  kDefault,   // ATen's result_type of the tensor and number arguments
  kIntToFloat,  // the same, but integers and booleans become f32 (the default dtype)
  kBool,      // operands promote as kDefault, the result is pred
  kKeep,      // the first tensor's dtype (or the op's own rule)
};

enum class RowKind : uint8_t {
  kLowered,  // `lower` makes HLO
  kLibrary,  // a framework step by choice: ATen's kernel is the implementation
  kStep,     // a framework step: no lowering (yet, or in principle: random bits)
};

// Makes the HLO values of the node's results. kUnimplemented: this dtype, layout or argument has no lowering; the message
// becomes the reason of the framework step that takes its place.
using LowerFunction = absl::StatusOr<std::vector<Instruction*>> (*)(OpContext&);

struct OpRow {
  std::string_view overload;
  RowKind kind;
  LowerFunction lower;
  Promotion promotion;
  ResultRule rule;
  Effect effect;
  std::string_view element = {};  // of an ATEN_FOREACH: the overload that each element of its lists is lowered by
  bool complex = false;  // `lower` takes and gives complex tensors too
};

absl::Span<const OpRow> Rows();                // in the order of aten.def
const OpRow* FindRow(std::string_view overload);  // nullptr: no row

// "python.7.higher_order.scan": callable 7 of the host, which stands for that operator.
bool IsPythonCall(std::string_view overload);
// Communicates with other processes; may read its operands until its result was waited for.
bool IsCollective(std::string_view overload);
// No operator of PyTorch's own tensor library: of a user's, of another library, a Python callable.
bool IsForeign(std::string_view overload);

// For an overload without a row: one of ATen's may return an alias of an operand, and if its name ends with '_' it mutates.
ResultRule RuleOf(std::string_view overload);
Effect EffectOf(std::string_view overload);
bool IsInPlace(std::string_view overload);

}  // namespace tenon::aten
