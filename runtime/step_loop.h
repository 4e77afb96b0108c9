// Runs the regions of a bound program in a frame.
#pragma once

#include "runtime/executable.h"
#include "runtime/frame.h"
#include "runtime/stats.h"

namespace tenon {

// Frame::Begin must have succeeded. On return outputs of kind kSlot hold their tensors (references
// of the caller's), and on an error none does. Call Frame::End afterwards in any case.
RunResult RunProgram(Frame& frame, RunCounters& counters);

// A copy between two strided views of the same sizes, element by element of `width` bytes; runs
// contiguous pieces at once.
void StridedCopy(char* to, const int64_t* to_strides, const char* from, const int64_t* from_strides,
                 const int64_t* dims, int ndim, int64_t width);

}  // namespace tenon
