// PlainHost: DefaultHost plus the two operators that the compiler turns dots into, aten.mm.out and aten.bmm.out, as plain
// loops accumulating in double, complex<double> or wrapping 64-bit integers. For tools and for HLO run without a framework:
// every dot is right, none is fast.
#pragma once

#include "runtime/host.h"

namespace tenon {

// Process-wide, never destroyed.
const TenonHost* PlainHost();

}  // namespace tenon
