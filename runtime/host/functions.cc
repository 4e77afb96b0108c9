#include "runtime/host/functions.h"

namespace tenon {

bool HostTakes(HostFunction function, PrimitiveType type) {
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
