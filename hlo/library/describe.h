// Which instructions are calls of a library function, and the signature of the call.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "hlo/instruction.h"
#include "hlo/library/call.h"

namespace tenon::library {

// An opcode that is a library call (fft, cholesky, rng, ...), or a custom-call whose target is registered or our own. Not
// framework calls ("aten.*", "prims.*"), nor "tenon.check", nor tenon's own pointwise calls (hlo/own_calls.h).
bool IsLibraryCall(const Instruction& op);
// Of a library call, with the instruction's own shapes; checked. Unimplemented: sizes that aren't static for a function that doesn't take
// symbols, operands or results that aren't arrays.
absl::StatusOr<Signature> Describe(const Instruction& op);
// The same with other operand shapes (the evaluator's, which may be smaller than their bounds), unchecked.
absl::StatusOr<Signature> DescribeWith(const Instruction& op, absl::Span<const Shape> operands);

// A custom call that says something of devices or memories only: on one device its operand is its value ("Sharding", ...).
bool IsMarker(const Instruction& op);
// custom-call "TopK": the opcode topk by another name. `largest`: what its comparison says.
bool IsTopKCall(const Instruction& op);
bool TopKLargest(const Instruction& op);

// The custom-call targets that need no registration, sorted.
std::vector<std::string> OwnTargets();

}  // namespace tenon::library
