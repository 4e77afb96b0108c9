// A host of one thread's loops and malloc's memory, without operators.
#pragma once

#include "runtime/tenon_c.h"

namespace seam {

// One per process. Any thread.
const TenonHost* PlainHost();

}  // namespace seam
