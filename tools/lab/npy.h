// NumPy files as literals: .npy, and .npz (a zip of them, stored or deflated).
//
// An HLO type that NumPy lacks travels as raw bits of its width (bf16 as uint16 or void, f8 as uint8), sub-byte integers
// as one element a byte. Errors are Status: these are users' files.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "hlo/literal.h"

namespace tenon {

// The bytes of one .npy file as a literal of `shape`.
absl::StatusOr<Literal> ParseNpy(std::string_view bytes, const Shape& shape);
std::string WriteNpy(const Literal& literal);

// Members of a zip in file order: (name without ".npy", bytes).
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ReadZip(std::string_view bytes);
std::string WriteZip(const std::vector<std::pair<std::string, std::string>>& members);

}  // namespace tenon
