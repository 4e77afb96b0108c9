// What a reducer's body says of the order of its elements.
#pragma once

#include <optional>

#include "hlo/computation.h"

namespace tenon {

// `body` is a reducer (2n scalar parameters, n results) that only chooses among its arguments: commutative, associative, idempotent.
// Pieces may be reduced apart, each from the start again. (Not so: an argmax that keeps the left one of two NaNs.)
bool IsOrderFree(const Computation& body);

// The opcode of a two-parameter computation that is one binary op of both, in either order, else nullopt.
std::optional<Opcode> SimpleOp(const Computation& body);

}  // namespace tenon
