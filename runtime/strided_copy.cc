#include <cstring>

#include "absl/container/inlined_vector.h"
#include "runtime/step_loop.h"

namespace tenon {
namespace {

struct Axis {
  int64_t size, to, from;
};  // strides in bytes
using Axes = absl::InlinedVector<Axis, 6>;

// Drops axes of size 1 and joins neighbours that both sides walk as one.
Axes Coalesce(const int64_t* to_strides, const int64_t* from_strides, const int64_t* dims, int ndim,
              int64_t width) {
  Axes axes;
  for (int d = 0; d < ndim; ++d) {
    if (dims[d] == 1) continue;
    const Axis axis{dims[d], to_strides[d] * width, from_strides[d] * width};
    if (!axes.empty() && axes.back().to == axis.to * axis.size &&
        axes.back().from == axis.from * axis.size) {
      axes.back() = {axes.back().size * axis.size, axis.to, axis.from};
    } else {
      axes.push_back(axis);
    }
  }
  return axes;
}

template <typename T>
void CopyRow(char* to, const char* from, const Axis& axis) {
  for (int64_t k = 0; k < axis.size; ++k) {
    T element;
    std::memcpy(&element, from + k * axis.from, sizeof(T));
    std::memcpy(to + k * axis.to, &element, sizeof(T));
  }
}

struct Pair16 {
  uint64_t a, b;
};

void CopyInner(char* to, const char* from, const Axis& axis, int64_t width) {
  if (axis.to == width && axis.from == width) {
    std::memmove(to, from, static_cast<size_t>(axis.size * width));
    return;
  }
  switch (width) {
    case 1:
      return CopyRow<uint8_t>(to, from, axis);
    case 2:
      return CopyRow<uint16_t>(to, from, axis);
    case 4:
      return CopyRow<uint32_t>(to, from, axis);
    case 8:
      return CopyRow<uint64_t>(to, from, axis);
    case 16:
      return CopyRow<Pair16>(to, from, axis);
    default:
      TENON_CHECK(false, "no element of this width");
  }
}

void CopyAxes(char* to, const char* from, const Axis* axis, size_t left, int64_t width) {
  if (left == 1) return CopyInner(to, from, *axis, width);
  for (int64_t k = 0; k < axis->size; ++k) {
    CopyAxes(to + k * axis->to, from + k * axis->from, axis + 1, left - 1, width);
  }
}

}  // namespace

void StridedCopy(char* to, const int64_t* to_strides, const char* from, const int64_t* from_strides,
                 const int64_t* dims, int ndim, int64_t width) {
  for (int d = 0; d < ndim; ++d) {
    if (dims[d] == 0) return;
  }
  if (to == from && std::equal(to_strides, to_strides + ndim, from_strides)) return;
  Axes axes = Coalesce(to_strides, from_strides, dims, ndim, width);
  if (axes.empty()) axes.push_back({1, width, width});
  CopyAxes(to, from, axes.data(), axes.size(), width);
}

}  // namespace tenon
