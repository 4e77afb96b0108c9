// torch's dtypes and tenon's, one table.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

namespace tenon::torch_host {

// -1: tenon has no such type (quantised, bits, complex half).
int32_t FromTorch(c10::ScalarType type);
std::optional<c10::ScalarType> ToTorch(int32_t dtype);

}  // namespace tenon::torch_host
