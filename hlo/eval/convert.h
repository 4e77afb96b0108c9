// Bulk conversion between an element type and the wide type the evaluator computes in.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>

#include "hlo/primitive_type.h"

namespace tenon::eval {

// What an element is while it is computed on: int64_t, uint64_t (pred too), double, std::complex<double>.
enum class Domain : uint8_t { kSigned, kUnsigned, kFloat, kComplex };
Domain DomainOf(PrimitiveType type);
inline constexpr int64_t kDomainBytes = 16;  // the largest

using Converter = void (*)(const void* from, void* to, int64_t n);
// Exact. `stride` 0 of the caller's making: see Load.
Converter LoaderOf(PrimitiveType type);
// Rounds once to nearest even; integers wrap.
Converter StorerOf(PrimitiveType type);
// Between domains by HLO's convert rule for a result of type `to` (saturation to its range, pred is x != 0).
Converter DomainConverter(PrimitiveType from, PrimitiveType to);

}  // namespace tenon::eval
