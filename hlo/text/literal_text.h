// Numbers of every element type as text, exactly: what is written reads back as the same bits.
#pragma once

#include <string>
#include <string_view>

#include "hlo/literal.h"

namespace tenon::text {

// Reads one number (not complex) of `type` from its whole text into the bytes at `to` (element `index` of `whole`).
// False if it isn't one or doesn't fit.
bool ParseNumber(PrimitiveType type, std::string_view text, Literal* whole, int64_t index);

// Appends HLO's literal text: 3, -inf, (1, 2), {{1, 2}, {3, 4}}, tuples as ( 1, {2, 3} ).
void AppendLiteral(const Literal& literal, std::string* out);

// Values that depend on `name` and the shape only: small integers, floats in (-1, 1).
void FillDeterministic(std::string_view name, Literal* out);

}  // namespace tenon::text
