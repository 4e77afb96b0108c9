#include "runtime/host/functions.h"

namespace tenon {

bool HostTakes(HostFunction function, PrimitiveType type) {
  // Of f16 by some processors only.
  if (function == HostFunction::kLinearPacked || function == HostFunction::kConvPacked) {
    return type == PrimitiveType::kBF16 || type == PrimitiveType::kF32;
  }
  switch (type) {
    case PrimitiveType::kF16:
    case PrimitiveType::kBF16:
    case PrimitiveType::kF32:
    case PrimitiveType::kF64: return true;
    case PrimitiveType::kC64:
    case PrimitiveType::kC128: return function == HostFunction::kMatmul;
    default: return false;
  }
}

}  // namespace tenon
