// ulp-sweep --f64.
#pragma once

#include <cstdint>
#include <span>

#include "backends/codegen/math/math.h"

namespace tenon::ulp_sweep {

// Prints a row a function, and writes the table into the document `docs`. The exit status of the tool.
int MeasureF64(std::span<const math::Fn> functions, int64_t inputs, bool write_docs, const char* docs);

}  // namespace tenon::ulp_sweep
