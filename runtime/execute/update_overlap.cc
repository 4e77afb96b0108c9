#include "runtime/execute/update_overlap.h"

#include <algorithm>

namespace tenon {
namespace {

// Of the bytes from the tensor's first element; negative strides do not come (PyTorch has none).
int64_t ExtentBytes(const TenonTensor& t) {
  int64_t last = 0;
  for (int d = 0; d < t.ndim; ++d) {
    if (t.sizes[d] == 0) return 0;
    last += (t.sizes[d] - 1) * t.strides[d];
  }
  return (last + 1) * ByteWidth(static_cast<PrimitiveType>(t.dtype));
}

}  // namespace

UpdateOverlap::UpdateOverlap(const BoundProgram& bound) : static_sizes_(!bound.has_dims) {
  for (const BoundProgram::Source& update : bound.update_values) items_.push_back({.input = update.index, .updated = true});
  for (int32_t input : bound.late_inputs) items_.push_back({.input = input});
  for (int32_t constant : bound.late_constants) {
    const TenonTensor& t = bound.framework_constants[constant];
    const char* data = static_cast<const char*>(t.data);
    items_.push_back({.begin = data, .end = data + ExtentBytes(t)});
  }
}

// False: all is as it was.
bool UpdateOverlap::Refresh(const TenonTensor* inputs) {
  bool changed = !known_ || !static_sizes_;
  for (Item& item : items_) {
    if (item.input < 0) continue;
    const TenonTensor& t = inputs[item.input];
    const char* data = static_cast<const char*>(t.data);
    if (data == item.data && static_sizes_ && known_) continue;
    changed = true;
    item.data = item.begin = data;
    item.end = data + (data == nullptr ? 0 : ExtentBytes(t));
  }
  return changed;
}

bool UpdateOverlap::Find() {
  // From one call to the next the order seldom changes: insertion, not a sort.
  for (size_t i = 1; i < items_.size(); ++i) {
    if (items_[i - 1].begin <= items_[i].begin) continue;
    const Item item = items_[i];
    size_t at = i;
    for (; at > 0 && items_[at - 1].begin > item.begin; --at) items_[at] = items_[at - 1];
    items_[at] = item;
  }
  const char *any_end = nullptr, *updated_end = nullptr;
  for (const Item& item : items_) {
    if (item.begin == item.end) continue;
    if (item.begin < updated_end || (item.updated && item.begin < any_end)) return true;
    any_end = std::max(any_end, item.end);
    if (item.updated) updated_end = std::max(updated_end, item.end);
  }
  return false;
}

bool UpdateOverlap::Overlaps(const TenonTensor* inputs) {
  if (!Refresh(inputs)) return overlaps_;
  if (!known_) std::sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) { return a.begin < b.begin; });
  known_ = true;
  overlaps_ = Find();
  return overlaps_;
}

}  // namespace tenon
