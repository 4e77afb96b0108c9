// PlainHost: DefaultHost plus host.matmul (functions.h). For tools and for HLO run without a framework.
#pragma once

#include "runtime/host/host.h"

namespace tenon {

// Process-wide, never destroyed.
const TenonHost* PlainHost();

}  // namespace tenon
