// TenonHost for PyTorch: its allocator, its thread pool, its operators.
#pragma once

#include <exception>

#include "runtime/tenon_c.h"

namespace tenon::torch_host {

// One per process, never destroyed.
const TenonHost* Host();

// What an operator threw on this thread, or a signal handler (Ctrl-C), until the caller of tenon_run
// (which then returned TENON_HOST_ERROR) or of tenon_compile takes it.
void KeepException(std::exception_ptr exception);
std::exception_ptr TakeException();

}  // namespace tenon::torch_host
