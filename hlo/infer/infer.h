// Shape inference: the result shape (without layout) of an opcode from operands and attributes.
//
// One function per opcode in <family>.cc, found through a table; an opcode whose shape cannot be inferred (parameter,
// constant, iota, custom-call, rng, fusion via its root, ...) takes `declared` and checks it. An error names the
// constraint by its label ("reduce_c2", docs/hlo.md), what was wanted and what came.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "hlo/instruction.h"

namespace tenon {

absl::StatusOr<Shape> InferShape(Opcode opcode, absl::Span<Instruction* const> operands, const Attributes& attrs,
                                 const Shape* declared = nullptr);

}  // namespace tenon
