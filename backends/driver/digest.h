// Digest: what stands for a long text or a literal where two are compared by it alone (cache keys).
#pragma once

#include <string>
#include <string_view>

namespace tenon {

// SHA-256, 64 hex digits: that two texts share one by accident is not to be reckoned with.
std::string Digest(std::string_view bytes);

}  // namespace tenon
