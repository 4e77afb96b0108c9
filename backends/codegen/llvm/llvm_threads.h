// The threads on which LLVM compiles. It ends the process where it meets what it cannot do (report_fatal_error) and must not return
// from that, and unwinding through it would leave its state half changed. So LLVM never compiles on a thread of the program that we
// live in: a fatal error ends the task, and its thread is parked for ever, with all that it had on its stack.
//
// No signal handler is installed. A fault inside LLVM (SIGSEGV) is a fault of the process, as it would be anywhere else.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/status.h"

namespace tenon {

// Runs the tasks on at most `threads` threads, or on fewer where no more can be had, each of which takes the next one when it is done, and
// waits for all of them.
// One status per task:
//   what the task returned; a thrown exception is kInternal;
//   kInternal with LLVM's message, where LLVM gave up;
//   kResourceExhausted: there was no thread at all, or too many are parked already (kMostParked), or this process was forked at a bad
//   moment (ForkedInsideSection). Nothing ran then.
// Each task runs inside a ForkSection of its thread; the caller must have none open. `while_waiting` is called on the calling thread,
// some twenty times a second.
std::vector<absl::Status> RunOnLlvmThreads(std::vector<std::function<absl::Status()>> tasks, int threads,
                                           const std::function<void()>& while_waiting = nullptr);

constexpr int kMostParked = 3;
int ParkedLlvmThreads();

}  // namespace tenon
