#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "runtime/execute/step_loop.h"

namespace tenon {
namespace {

constexpr int64_t kPieceBytes = 256 << 10;  // that are worth a thread
constexpr int64_t kTile = 16;               // rows and columns of a transpose that are moved together

struct Axis {
  int64_t size, to, from;
};  // strides in bytes
using Axes = absl::InlinedVector<Axis, 6>;

// Drops axes of size 1 and joins neighbours that both sides walk as one.
Axes Coalesce(const int64_t* to_strides, const int64_t* from_strides, const int64_t* dims, int ndim, int64_t width) {
  Axes axes;
  for (int d = 0; d < ndim; ++d) {
    if (dims[d] == 1) continue;
    const Axis axis{dims[d], to_strides[d] * width, from_strides[d] * width};
    if (!axes.empty() && axes.back().to == axis.to * axis.size && axes.back().from == axis.from * axis.size) {
      axes.back() = {axes.back().size * axis.size, axis.to, axis.from};
    } else {
      axes.push_back(axis);
    }
  }
  return axes;
}

// The bytes that a side touches, relative to its start.
std::pair<int64_t, int64_t> Span(const Axes& axes, int64_t Axis::* stride, int64_t width) {
  int64_t low = 0, high = width;
  for (const Axis& a : axes) (a.*stride < 0 ? low : high) += (a.size - 1) * (a.*stride);
  return {low, high};
}

bool Overlap(const char* to, const char* from, const Axes& axes, int64_t width) {
  const auto [to_low, to_high] = Span(axes, &Axis::to, width);
  const auto [from_low, from_high] = Span(axes, &Axis::from, width);
  return to + to_low < from + from_high && from + from_low < to + to_high;
}

// Two rows do not share elements: what one thread writes no other one does.
bool WritesApart(const Axes& axes, int64_t width) {
  Axes sorted = axes;
  std::sort(sorted.begin(), sorted.end(), [](const Axis& a, const Axis& b) { return std::abs(a.to) < std::abs(b.to); });
  int64_t reach = width;
  for (const Axis& a : sorted) {
    if (std::abs(a.to) < reach) return false;
    reach = std::abs(a.to) * (a.size - 1) + reach;
  }
  return true;
}

// Writing goes along memory: the axis with the smallest stride of `to` last, before it the one along which reading does.
void Order(Axes& axes) {
  std::stable_sort(axes.begin(), axes.end(), [](const Axis& a, const Axis& b) { return std::abs(a.to) > std::abs(b.to); });
  if (axes.size() < 3) return;
  const auto read = std::min_element(axes.begin(), axes.end(),
                                     [](const Axis& a, const Axis& b) { return std::abs(a.from) < std::abs(b.from); });
  if (read->from != 0 && read < axes.end() - 2) std::rotate(read, read + 1, axes.end() - 1);
}

template <typename T>
void CopyRow(char* to, const char* from, const Axis& axis) {
  if (axis.to == sizeof(T)) {  // a constant stride makes stores that need no shuffling
    for (int64_t k = 0; k < axis.size; ++k) std::memcpy(to + k * static_cast<int64_t>(sizeof(T)), from + k * axis.from, sizeof(T));
    return;
  }
  for (int64_t k = 0; k < axis.size; ++k) std::memcpy(to + k * axis.to, from + k * axis.from, sizeof(T));
}

// N rows of N elements side by side become columns, in log2 N rounds that interleave row i and row i + N / 2.
template <typename T, int N>
struct Square {
  typedef T Row __attribute__((vector_size(N * sizeof(T))));
  template <size_t... k>
  static Row Low(Row a, Row b, std::index_sequence<k...>) {
    return __builtin_shufflevector(a, b, (k / 2 + k % 2 * N)...);
  }
  template <size_t... k>
  static Row High(Row a, Row b, std::index_sequence<k...>) {
    return __builtin_shufflevector(a, b, (N / 2 + k / 2 + k % 2 * N)...);
  }
  static void Turn(char* to, int64_t to_row, const char* from, int64_t from_row) {
    Row rows[N], next[N];
    for (int i = 0; i < N; ++i) std::memcpy(&rows[i], from + i * from_row, sizeof(Row));
    for (int round = 1; round < N; round *= 2) {
      for (int i = 0; i < N / 2; ++i) {
        next[2 * i] = Low(rows[i], rows[i + N / 2], std::make_index_sequence<N>());
        next[2 * i + 1] = High(rows[i], rows[i + N / 2], std::make_index_sequence<N>());
      }
      std::memcpy(rows, next, sizeof rows);
    }
    for (int i = 0; i < N; ++i) std::memcpy(to + i * to_row, &rows[i], sizeof(Row));
  }
};

template <typename T>
void CopyPlane(char* to, const char* from, const Axis& outer, const Axis& inner) {
  const bool turned = std::abs(outer.from) < std::abs(inner.from);
  const int64_t rows = turned ? kTile : outer.size, columns = turned ? kTile : inner.size;
  constexpr int64_t kWidth = sizeof(T), kSide = 16 / kWidth;
  // Of narrow elements, one after the other, moving is what takes time, not memory.
  const bool squares = turned && kWidth <= 2 && outer.from == kWidth && inner.to == kWidth;
  for (int64_t r = 0; r < outer.size; r += rows) {
    for (int64_t c = 0; c < inner.size; c += columns) {
      const Axis part{std::min(columns, inner.size - c), inner.to, inner.from};
      if constexpr (kWidth <= 2) {
        if (squares && part.size == kTile && r + kTile <= outer.size) {
          for (int64_t i = 0; i < kTile; i += kSide) {
            for (int64_t k = 0; k < kTile; k += kSide) {
              Square<T, kSide>::Turn(to + (r + i) * outer.to + (c + k) * kWidth, outer.to,
                                     from + (r + i) * kWidth + (c + k) * inner.from, inner.from);
            }
          }
          continue;
        }
      }
      for (int64_t k = r; k < std::min(r + rows, outer.size); ++k)
        CopyRow<T>(to + k * outer.to + c * inner.to, from + k * outer.from + c * inner.from, part);
    }
  }
}

struct Pair16 {
  uint64_t a, b;
};

// f(T{}) with an element of this width.
template <typename F>
void OfWidth(int64_t width, F&& f) {
  switch (width) {
    case 1: return f(uint8_t{});
    case 2: return f(uint16_t{});
    case 4: return f(uint32_t{});
    case 8: return f(uint64_t{});
    case 16: return f(Pair16{});
    default: TENON_CHECK(false, "no element of this width");
  }
}

void CopyAxes(char* to, const char* from, const Axis* axis, size_t left, int64_t width) {
  const Axis& inner = axis[left - 1];
  const bool whole_rows = inner.to == width && inner.from == width;
  if (left == 1) {
    if (whole_rows) {
      std::memmove(to, from, static_cast<size_t>(inner.size * width));
      return;
    }
    return OfWidth(width, [&]<typename T>(T) { CopyRow<T>(to, from, inner); });
  }
  if (left == 2 && !whole_rows) {
    return OfWidth(width, [&]<typename T>(T) { CopyPlane<T>(to, from, axis[0], inner); });
  }
  for (int64_t k = 0; k < axis->size; ++k) CopyAxes(to + k * axis->to, from + k * axis->from, axis + 1, left - 1, width);
}

}  // namespace

void StridedCopy(char* to, const int64_t* to_strides, const char* from, const int64_t* from_strides, const int64_t* dims, int ndim,
                 int64_t width, const library::Parallel& parallel) {
  int64_t bytes = width;
  for (int d = 0; d < ndim; ++d) bytes *= dims[d];
  if (bytes == 0) return;
  if (to == from && std::equal(to_strides, to_strides + ndim, from_strides)) return;
  Axes axes = Coalesce(to_strides, from_strides, dims, ndim, width);
  if (axes.empty()) axes.push_back({1, width, width});
  const bool free = !Overlap(to, from, axes, width) && WritesApart(axes, width);
  if (!free) return CopyAxes(to, from, axes.data(), axes.size(), width);
  Order(axes);
  // The longest axis but those of a plane, if there are others, is what threads share.
  size_t shared = 0;
  for (size_t k = 1; k + 2 < axes.size(); ++k) {
    if (axes[k].size > axes[shared].size) shared = k;
  }
  const int64_t each = bytes / axes[shared].size;  // bytes of a step along it
  parallel.Pieces(axes[shared].size, std::max<int64_t>(1, kPieceBytes / each), [&](int64_t begin, int64_t end) {
    Axes part = axes;
    part[shared].size = end - begin;
    CopyAxes(to + begin * part[shared].to, from + begin * part[shared].from, part.data(), part.size(), width);
  });
}

}  // namespace tenon
