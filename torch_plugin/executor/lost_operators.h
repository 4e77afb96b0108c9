// Operators whose library has gone, as it does with a torch.library.Library that is destroyed.
#pragma once

#include <cstdint>

namespace tenon::torch_host {

// How many have gone since the first call of this. Executables keep handles of the operators that they call, which the dispatcher frees
// then: the number is part of their keys in the cache. Thread-safe.
int64_t LostOperators();

}  // namespace tenon::torch_host
