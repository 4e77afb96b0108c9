// Threads that may be refused: std::thread throws where the system has none to give, and a joinable one that an exception passes
// ends the process.
#pragma once

#include <cstddef>
#include <functional>

#include "absl/status/status.h"

namespace tenon {

// Runs `body` on a new detached thread. The thread takes no signals but those of its own faults (the handlers of the program that we
// live in run on the threads that it made). `stack_bytes` 0: the system's default. `body` must not throw.
// kResourceExhausted: there is no thread to be had; `body` did not run and never will.
absl::Status StartThread(std::function<void()> body, size_t stack_bytes = 0);

}  // namespace tenon
