// IsOrderFree: a reducer whose elements may come in any order and however often.
#pragma once

#include "hlo/computation.h"

namespace tenon {

// `body` is a reducer (2n scalar parameters, n results) that only chooses among its arguments: commutative, associative, idempotent.
// Pieces may be reduced apart, each from the start again. (Not so: an argmax that keeps the left one of two NaNs.)
bool IsOrderFree(const Computation& body);

}  // namespace tenon
