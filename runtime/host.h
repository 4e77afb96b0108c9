// Host: the framework as the runtime sees it; a thin C++ view of TenonHost, and a framework-free
// default.
#pragma once

#include "runtime/tenon_c.h"

namespace tenon {

// malloc, a small thread pool (or serial), no framework operators: for tests and tools.
// Process-wide, never destroyed.
const TenonHost* DefaultHost();

}  // namespace tenon
