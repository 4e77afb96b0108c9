// The calling convention of generated kernels.
#pragma once

#include <cstdint>

namespace tenon {

// pointers: one per operand view, base + byte offset already added; element-aligned only, operands
// may overlap each
//   other except results (results never overlap anything the kernel reads unless the plan made them
//   alias elementwise).
// args: KernelStep::args (sizes), then KernelStep::literals (bits).
// [begin, end): the piece of the outer range to compute. scratch: KernelSpec::scratch_bytes,
// 64-byte aligned, per call. A kernel never throws, never allocates, and calls only symbols of
// runtime/imports.def.
using KernelFn = void (*)(void* const* pointers, const int64_t* args, int64_t begin, int64_t end,
                          void* scratch);

}  // namespace tenon
