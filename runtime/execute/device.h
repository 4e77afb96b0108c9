// Device: what copies a target's data, for memory that is not the host's. Implemented by the target, one for the whole process.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace tenon {

// Two strided views of the same dims, none of which is 0, `width` bytes an element. Strides count elements; 0 repeats (of `from` only).
// Spaces: the device's own or 0, one of them at least its own. The views may overlap where both lie in its memory; then as if `from` was
// read whole before.
struct DeviceCopy {
  void* to = nullptr;
  const void* from = nullptr;
  int32_t to_space = 0, from_space = 0;
  const int64_t *to_strides = nullptr, *from_strides = nullptr, *dims = nullptr;
  int32_t ndim = 0;
  int64_t width = 1;
  void* stream = nullptr;  // TenonHost::stream's
};

class Device {
 public:
  virtual ~Device() = default;
  // Ordered behind what the stream was given before. On return the host's end has been read, or is written; a copy within the device's
  // memory may be still to come. Thread-safe.
  virtual absl::Status Copy(const DeviceCopy& copy) = 0;
};

}  // namespace tenon
