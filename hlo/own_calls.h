// Pointwise custom calls of tenon's own: elementwise operations for which HLO has no opcode. They are inferred, evaluated, fused,
// folded and compiled like an opcode of the elementwise family.
//
//   custom-call "tenon.fma"(a, b, c)   a * b + c, rounded once; three arrays of one float type, f32 or f64, and equal dimensions
//
// One that claims a side effect is none of them: it is a call of an unknown target.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tenon {

class Attributes;
class Instruction;

inline constexpr std::string_view kFmaTarget = "tenon.fma";

// The attributes of a custom-call say that it is one of the above.
bool NamesPointwiseCall(const Attributes& attrs);
bool IsPointwiseCall(const Instruction& op);

// A call of an operator of the framework that a graph came from: backend_config gives its arguments, {"args":"(%0, 1)", ...}, by which such
// calls are known, whatever the operator's name is (backends/program/framework_config.h).
bool IsFrameworkCall(const Instruction& op);

// Of a framework call that writes operands ("writes":[[leaf, operand]] in its config): the leaf of its result that is what the operand
// holds when it is done. The call is a function all the same: it is run on a copy, or where the operand's old value dies.
struct WrittenOperand {
  int64_t leaf = 0, operand = 0;
};
std::vector<WrittenOperand> WrittenOperands(const Instruction& op);

// Each element from the operands' at its own index: Instruction::IsElementwise() and the calls above.
bool IsPointwise(const Instruction& op);

}  // namespace tenon
