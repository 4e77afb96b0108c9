// PrimitiveType: the element type of an array, or the kind of a structured value. The rows are in types.def.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tenon {

enum class PrimitiveType : uint8_t {
#define TENON_TYPE(e, ...) e,
#include "hlo/types.def"
};

enum class TypeClass : uint8_t { kBool, kSigned, kUnsigned, kFloat, kComplex, kStructure };

// The HLO text name ("f32").
std::string_view PrimitiveTypeName(PrimitiveType type);
// nullopt: no such type.
std::optional<PrimitiveType> ParsePrimitiveType(std::string_view name);

TypeClass ClassOf(PrimitiveType type);
int BitWidth(PrimitiveType type);        // bits of the type itself: 4 for s4
int64_t ByteWidth(PrimitiveType type);   // bytes of an element in memory: 1 for s4, 0 for structures

inline bool IsArrayType(PrimitiveType t) { return ClassOf(t) != TypeClass::kStructure; }
inline bool IsFloat(PrimitiveType t) { return ClassOf(t) == TypeClass::kFloat; }
inline bool IsComplex(PrimitiveType t) { return ClassOf(t) == TypeClass::kComplex; }
inline bool IsSigned(PrimitiveType t) { return ClassOf(t) == TypeClass::kSigned; }
inline bool IsUnsigned(PrimitiveType t) { return ClassOf(t) == TypeClass::kUnsigned; }
inline bool IsIntegral(PrimitiveType t) { return IsSigned(t) || IsUnsigned(t); }

// c64 -> f32, c128 -> f64, else the type itself.
PrimitiveType ComplexComponent(PrimitiveType type);

}  // namespace tenon
