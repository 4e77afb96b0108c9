// The linker's build id: a hash of everything in a library or program, so another build of other sources has another.
#pragma once

#include <string>

namespace tenon {

// Of the loaded object that contains `address`: hex digits; "unknown" if it was linked without one.
std::string BuildIdOf(const void* address);

}  // namespace tenon
