// Digest: what stands for something long where two are compared by it alone: the graph's, the module's and the kernels' keys
// (docs/architecture/seam.md).
#pragma once

#include <string>
#include <string_view>

namespace tenon {

// 256 bits (BLAKE3), as 32 bytes: that two texts share one by accident is not to be reckoned with.
std::string Digest(std::string_view bytes);
// In 64 hex digits, for people.
std::string HexDigest(std::string_view bytes);

}  // namespace tenon
