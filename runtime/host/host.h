// Host: the framework as the runtime sees it; a thin C++ view of TenonHost, and a framework-free
// default.
#pragma once

#include "runtime/tenon_c.h"

namespace tenon {

// malloc (under TENON_GUARD guarded memory, aligned to an array's elements only: guarded_memory.h), a small thread pool (or
// serial), no framework operators: for tests and tools.
// Process-wide, never destroyed.
const TenonHost* DefaultHost();

}  // namespace tenon
