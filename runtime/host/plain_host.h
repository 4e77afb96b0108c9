// PlainHost: DefaultHost plus the operators that the compiler turns dots into, aten.mm.out, aten.bmm.out and aten.addmm.out (with a
// bias), for the types of HostMultiplies. For tools and for HLO run without a framework.
#pragma once

#include "runtime/host/host.h"

namespace tenon {

// Process-wide, never destroyed.
const TenonHost* PlainHost();

}  // namespace tenon
