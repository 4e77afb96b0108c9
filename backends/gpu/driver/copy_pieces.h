// A copy of strided views, cut into pieces that a driver copies at once: rows of bytes at two pitches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/execute/device.h"

namespace tenon::gpu {

// `height` rows of `width` bytes; bytes from the views' beginnings. No pitch is less than the width.
struct CopyPiece {
  int64_t to = 0, from = 0;
  int64_t width = 0, height = 1, to_pitch = 0, from_pitch = 0;
  bool operator==(const CopyPiece&) const = default;
};

// What of the copy is one piece after another. Views that lie dense are one piece of one row.
std::vector<CopyPiece> CutCopy(const DeviceCopy& copy);

// Bytes that a view touches: [begin, end) from where it begins.
struct Extent {
  int64_t begin = 0, end = 0;
};
Extent ExtentOf(const int64_t* strides, const DeviceCopy& copy);

}  // namespace tenon::gpu
