// Memory for tests that faults when it is touched outside, and whose contents are poison until something is stored: for hosts
// (runtime/host/host.h), frames and the test-only allocator under PyTorch's tensors. Never used unless the environment asks for it.
//
// TENON_GUARD=1: each allocation ends where a page begins that may not be touched; TENON_GUARD=2: it begins behind such a page.
// What lies between it and the page border on its other side is checked for writes when it is freed. Every byte is 0xff at first:
// a NaN in each floating type, -1 in each signed one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tenon {

enum class MemoryGuard : uint8_t { kOff, kEnd, kBegin };

// TENON_GUARD when first asked: "", "0": kOff; "1": kEnd; "2": kBegin. Anything else ends the process with a message.
MemoryGuard GuardOfEnvironment();

// `guard` is not kOff. kEnd: aligned to the largest power of two that divides `bytes`, up to a page: an array's elements are
// aligned, no more. kBegin: to a page. nullptr: no memory. Thread-safe, without a lock.
void* GuardedAllocate(size_t bytes, MemoryGuard guard);
// Ends the process with a message if memory beside the allocation was written. `bytes` as allocated are not needed. Null: nothing.
void GuardedFree(void* memory);

}  // namespace tenon
