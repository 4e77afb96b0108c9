// Runs the regions of a bound program in a frame.
#pragma once

#include "runtime/execute/executable.h"
#include "runtime/execute/frame.h"
#include "runtime/execute/stats.h"

namespace tenon {

// Who looks on. Read once a run, so that nobody costs the steps nothing.
struct Watch {
  bool profiling = false;  // tenon::profiling
  bool recording = false;  // a Recorder is at work
  bool ranges = false;     // the host traces
};

// Frame::Begin must have succeeded. If profiling or recording, Frame::trace is of this run afterwards. On return outputs of kind kSlot
// hold their tensors (references of the caller's), and on an error none does. Call Frame::End afterwards in any case.
RunResult RunProgram(Frame& frame, RunCounters& counters, Watch watch);

// A copy between two strided views of the same sizes, elements of `width` bytes. Threads share it; views that overlap are copied
// element by element in row-major order, on one.
void StridedCopy(char* to, const int64_t* to_strides, const char* from, const int64_t* from_strides, const int64_t* dims, int ndim,
                 int64_t width, const library::Parallel& parallel = {});

}  // namespace tenon
