// What a TenonHost says that has the host's memory alone (docs/architecture/targets.md): space 0, no device, no stream, no event. Programs
// that want another space are refused before any of the functions is called. In a header: a host is linked with nothing else of the
// runtime.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/tenon_c.h"

namespace tenon::host_space {

inline constexpr uint64_t kSpaces = 1;
inline int Device(void*, int32_t) { return -1; }
inline void* Allocate(void*, int32_t, void*, size_t) { return nullptr; }
inline void Deallocate(void*, int32_t, void*, void*, size_t) {}
inline void* Stream(void*, int32_t) { return nullptr; }
inline void* Record(void*, int32_t, void*) { return nullptr; }
inline void Wait(void*, int32_t, void*, void*) {}
inline void Release(void*, int32_t, void*) {}

}  // namespace tenon::host_space
