// Host: the framework as the runtime sees it; a thin C++ view of TenonHost, and a framework-free
// default.
#pragma once

#include "hlo/primitive_type.h"
#include "runtime/tenon_c.h"

namespace tenon {

// Element types in which a host that has operators offers aten.mm.out, aten.bmm.out and aten.addmm.out. Dots of other types
// are generated code or converted to one of these first.
bool HostMultiplies(PrimitiveType type);

// malloc (under TENON_GUARD guarded memory, aligned to an array's elements only: guarded_memory.h), a small thread pool (or
// serial), no framework operators: for tests and tools.
// Process-wide, never destroyed.
const TenonHost* DefaultHost();

}  // namespace tenon
