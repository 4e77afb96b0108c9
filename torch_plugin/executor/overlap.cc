#include "torch_plugin/executor/overlap.h"

#include <ATen/core/Tensor.h>
#include <c10/util/hash.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/object_ptr.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace tenon::torch_host {
namespace {

struct Span {
  const char *begin, *end;  // of the tensor's elements
  c10::TensorImpl* tensor;
  bool written;
};

// Elements that both have, by the rule for slices of one array: equal strides, and along the dim with the largest, s, each takes the same
// part of every s elements. Other tensors whose ends cross count as overlapping.
bool MayShare(const Span& a, const Span& b) {
  const c10::IntArrayRef strides = a.tensor->strides();
  if (a.tensor->itemsize() != b.tensor->itemsize() || strides != b.tensor->strides() || strides.empty()) return true;
  const auto widest = std::max_element(strides.begin(), strides.end()) - strides.begin();
  const auto width = [&](const c10::TensorImpl* t) {  // bytes that it takes of every s
    int64_t last = 0;
    for (int64_t d = 0; d < t->dim(); ++d) last += d == widest ? 0 : (t->sizes()[d] - 1) * strides[d];
    return (last + 1) * static_cast<int64_t>(t->itemsize());
  };
  const int64_t s = strides[widest] * static_cast<int64_t>(a.tensor->itemsize());
  const int64_t apart = b.begin - a.begin;  // not negative: sorted
  return s == 0 || apart % s < width(a.tensor) || apart % s + width(b.tensor) > s;
}

class OverlapCheck {
 public:
  explicit OverlapCheck(std::vector<bool> written) : written_(std::move(written)) {}

  // What the last call found, if it brought the same memory.
  bool operator()(PyObject* const* inputs, Py_ssize_t count) {
    bool fresh = static_cast<size_t>(count) != seen_.size();
    seen_.resize(count);
    for (Py_ssize_t i = 0; i < count; ++i) {
      Seen now;
      if (THPVariable_Check(inputs[i])) {
        const at::Tensor& tensor = THPVariable_Unpack(inputs[i]);
        if (tensor.layout() == c10::kStrided && tensor.has_storage() && tensor.numel() != 0) now = Look(tensor.unsafeGetTensorImpl());
      }
      fresh |= !(now == seen_[i]);
      seen_[i] = now;
    }
    if (fresh) found_ = Find();
    return found_;
  }

 private:
  struct Seen {
    const char *begin = nullptr, *end = nullptr;
    c10::TensorImpl* tensor = nullptr;
    size_t geometry = 0;  // a hash of sizes and strides
    bool operator==(const Seen&) const = default;
  };

  static Seen Look(c10::TensorImpl* t) {
    int64_t last = 0;
    for (int64_t d = 0; d < t->dim(); ++d) last += (t->sizes()[d] - 1) * t->strides()[d];
    const auto* begin = static_cast<const char*>(t->data());
    const size_t geometry = c10::get_hash(t->sizes(), t->strides());
    return {begin, begin == nullptr ? nullptr : begin + (last + 1) * static_cast<int64_t>(t->itemsize()), t, geometry};
  }

  bool Find() {
    spans_.clear();
    for (size_t i = 0; i < seen_.size(); ++i) {
      const Seen& in = seen_[i];
      if (in.begin != nullptr) spans_.push_back({in.begin, in.end, in.tensor, i < written_.size() && written_[i]});
    }
    std::sort(spans_.begin(), spans_.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
    for (size_t i = 0; i < spans_.size(); ++i) {
      for (size_t j = i + 1; j < spans_.size() && spans_[j].begin < spans_[i].end; ++j) {
        if ((spans_[i].written || spans_[j].written) && MayShare(spans_[i], spans_[j])) return true;
      }
    }
    return false;
  }

  const std::vector<bool> written_;
  std::vector<Seen> seen_;
  std::vector<Span> spans_;
  bool found_ = false;
};

constexpr const char* kName = "torch_tenon overlap check";

// Holds the GIL throughout, which guards the check's notes.
PyObject* Check(PyObject* self, PyObject* const* inputs, Py_ssize_t count) {
  auto* check = static_cast<OverlapCheck*>(PyCapsule_GetPointer(self, kName));
  if (check == nullptr) return nullptr;
  try {
    return PyBool_FromLong((*check)(inputs, count));
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
    return nullptr;
  }
}
PyMethodDef kCheck = {"overlaps", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(Check)), METH_FASTCALL,
                      "overlaps(*inputs) -> bool: a written one has elements that another has too."};

PyObject* Make(PyObject*, PyObject* positions) {
  THPObjectPtr items(PySequence_Fast(positions, "wanted positions of inputs"));
  if (!items) return nullptr;
  std::vector<bool> written;
  for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(items.get()); ++k) {
    const Py_ssize_t at = PyNumber_AsSsize_t(PySequence_Fast_GET_ITEM(items.get(), k), PyExc_OverflowError);
    if (at == -1 && PyErr_Occurred() != nullptr) return nullptr;
    if (at < 0) return PyErr_Format(PyExc_ValueError, "wanted positions of inputs, got %zd", at);
    if (written.size() <= static_cast<size_t>(at)) written.resize(at + 1);
    written[at] = true;
  }
  auto check = std::make_unique<OverlapCheck>(std::move(written));
  THPObjectPtr capsule(PyCapsule_New(check.get(), kName, [](PyObject* self) {
    delete static_cast<OverlapCheck*>(PyCapsule_GetPointer(self, kName));
  }));
  if (!capsule) return nullptr;
  (void)check.release();
  return PyCFunction_New(&kCheck, capsule.get());
}
PyMethodDef kMake = {"overlap_check", Make, METH_O, "overlap_check(positions of written inputs) -> overlaps(*inputs) -> bool"};

}  // namespace

int AddOverlapCheck(PyObject* module) {
  THPObjectPtr make(PyCFunction_New(&kMake, nullptr));
  return make ? PyModule_AddObjectRef(module, "overlap_check", make.get()) : -1;
}

}  // namespace tenon::torch_host
