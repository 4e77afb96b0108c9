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

#include "hlo/framework_call.h"

namespace tenon {

class Attributes;
class Instruction;

inline constexpr std::string_view kFmaTarget = "tenon.fma";

// The attributes of a custom-call say that it is one of the above.
bool NamesPointwiseCall(const Attributes& attrs);
bool IsPointwiseCall(const Instruction& op);

// A call of an operator of the framework that a graph came from, whatever its name is: one with a call site (hlo/framework_call.h), or with
// text in backend_config that means to be one.
bool IsFrameworkCall(const Instruction& op);

// The operands that a framework call writes; none that its shape and operands don't have.
std::vector<WrittenOperand> WrittenOperands(const Instruction& op);

// Each element from the operands' at its own index: Instruction::IsElementwise() and the calls above.
bool IsPointwise(const Instruction& op);

}  // namespace tenon
