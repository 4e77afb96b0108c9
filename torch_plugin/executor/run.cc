#include "torch_plugin/executor/run.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ops/as_strided.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/object_ptr.h>
#include <torch/csrc/utils/python_arg_parser.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string_view>

#include "torch_plugin/executor/gil.h"
#include "torch_plugin/executor/host.h"
#include "torch_plugin/executor/op.h"
#include "torch_plugin/executor/tensor.h"

namespace tenon::torch_host {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

// Bytes from which giving an input's memory back before the run's end is worth taking the GIL
// there.
constexpr size_t kMovableBytes = 64 * 1024;

// Tensors that aren't plain memory with plain numbers in it.
bool IsPlain(const c10::TensorImpl* impl) {
  static constexpr DispatchKeySet kForeign =
      DispatchKeySet(DispatchKey::Python) | DispatchKeySet(DispatchKey::Conjugate) |
      DispatchKeySet(DispatchKey::Negative) | DispatchKeySet(DispatchKey::Functionalize) |
      DispatchKeySet(DispatchKey::ZeroTensor);
  return impl->is_cpu() && impl->layout() == c10::kStrided && !impl->key_set().has_any(kForeign);
}

std::string WhatItIs(const c10::TensorImpl* impl) {
  if (impl->is_conj()) return "a conjugated view";
  if (impl->is_neg()) return "a negated view";
  if (impl->key_set().has(DispatchKey::Python)) return "a tensor subclass or a fake tensor";
  if (impl->layout() != c10::kStrided) return "a tensor of layout " + c10::str(impl->layout());
  return "a tensor on device " + impl->device().str();
}

class Run {
 public:
  explicit Run(Callee& callee)
      : callee_(callee),
        careful_(callee.rerun != nullptr && !callee.proven.load(std::memory_order_relaxed)) {}
  ~Run() {
    for (PyObject* object : objects_) Py_XDECREF(object);
    for (size_t i = 0; i < held_.size(); ++i) {
      if (held_[i] != nullptr) ReleaseTensor(nullptr, held_[i]);
    }
  }

  PyObject* operator()(PyObject* list) {
    if (!Take(list)) return nullptr;
    if (callee_.given_up.load(std::memory_order_relaxed)) return Rerun(nullptr);
    if (careful_ && callee_.random) random_state_ = RandomState();
    inputs_.resize(objects_.size());
    owned_.resize(objects_.size());
    for (size_t i = 0; i < objects_.size(); ++i) Read(i);
    int code;
    char* error = nullptr;
    {
      NoGil no_gil;
      Allocate();
      // Below autograd and autocast, as AOTAutograd's graphs are meant to run.
      c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                               c10::autocast_dispatch_keyset);
      c10::AutoGradMode no_grad(false);
      std::shared_ptr<const FrozenValues::Set> frozen;
      code = callee_.frozen == nullptr ? TENON_OK : callee_.frozen->Get(inputs_.data(), &frozen, &error);
      if (frozen != nullptr) {
        inputs_.append(frozen->tensors.begin(), frozen->tensors.end());
        owned_.resize(inputs_.size());
      }
      if (code == TENON_OK) code = tenon_run_owned(callee_.executable, inputs_.data(), owned_.data(), results_.data(), &error);
    }
    if (code != TENON_OK) return Fail(code, error);
    if (careful_) callee_.proven.store(true, std::memory_order_relaxed);
    PyObject* outputs = Outputs();
    return outputs == nullptr || callee_.recipes.empty() ? outputs : Assemble(outputs);
  }

 private:
  // The list's references become ours, and the list empty: no caller's frame keeps an input alive
  // then.
  bool Take(PyObject* list) {
    const bool is_list = PyList_Check(list);
    if (!is_list && !PyTuple_Check(list)) {
      PyErr_Format(PyExc_TypeError, "%s: wanted a list of inputs, got %s", callee_.name.c_str(),
                   Py_TYPE(list)->tp_name);
      return false;
    }
    const Py_ssize_t n = is_list ? PyList_GET_SIZE(list) : PyTuple_GET_SIZE(list);
    if (static_cast<size_t>(n) != callee_.inputs.size()) {
      PyErr_Format(PyExc_RuntimeError, "%s: wanted %zu inputs, got %zd", callee_.name.c_str(),
                   callee_.inputs.size(), n);
      return false;
    }
    objects_.resize(n);
    for (Py_ssize_t i = 0; i < n; ++i) {
      objects_[i] = Py_NewRef(is_list ? PyList_GET_ITEM(list, i) : PyTuple_GET_ITEM(list, i));
    }
    return !is_list || PyList_SetSlice(list, 0, n, nullptr) == 0;
  }

  void Read(size_t i) {
    const Callee::Input& want = callee_.inputs[i];
    PyObject* object = objects_[i];
    TenonTensor& in = inputs_[i];
    in = {};
    in.ndim = -1;
    if (want.symint) {
      in.data = reinterpret_cast<void*>(ToInt(i));
      return;
    }
    if (!want.tensor && !want.other) return;
    TORCH_CHECK_TYPE(THPVariable_Check(object), callee_.name, ": input ", i,
                     ": wanted a tensor, got ", Py_TYPE(object)->tp_name);
    c10::TensorImpl* impl = THPVariable_Unpack(object).unsafeGetTensorImpl();
    if (want.other) {
      in.tensor = impl;
      Hold(i, impl);
      return;
    }
    if ((impl->is_conj() || impl->is_neg()) && !want.mutated) {
      impl = Resolve(i);
      object = objects_[i];
    }
    TORCH_CHECK(IsPlain(impl), callee_.name, ": input ", i,
                ": compiled for a dense CPU tensor, got ", WhatItIs(impl));
    in = Describe(impl);
    if (want.mutated) in.data = impl->mutable_data();  // a copy-on-write storage separates here
    if (want.movable && !careful_ && Py_REFCNT(object) == 1 && impl->storage().nbytes() >= kMovableBytes) {
      Own(i, impl);
    } else if (want.framework) {
      Hold(i, impl);
    }
  }

  // The graph was compiled for what is read through the bits, in memory of the same strides.
  c10::TensorImpl* Resolve(size_t i) {
    c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    at::Tensor bits = THPVariable_Unpack(objects_[i]), plain = bits;
    if (bits.is_neg()) plain = plain._neg_view();
    if (bits.is_conj()) plain = plain.conj();
    at::Tensor copy = Separate(plain);
    // Elements that lie on one another are changed once.
    at::Tensor flat = copy.as_strided({static_cast<int64_t>(copy.storage().nbytes() / copy.element_size())}, {1}, 0);
    if (bits.is_conj()) flat.conj_physical_();
    if (bits.is_neg()) flat.neg_();
    PyObject* object = THPVariable_Wrap(copy);
    if (object == nullptr) throw python_error();
    Py_SETREF(objects_[i], object);
    return THPVariable_Unpack(object).unsafeGetTensorImpl();
  }

  // While C++ has the only other reference, every count up and down of it would take the GIL: so
  // one is held throughout.
  void Hold(size_t i, c10::TensorImpl* impl) {
    if (held_.empty()) held_.resize(objects_.size());
    RetainTensor(nullptr, impl);
    held_[i] = impl;
  }
  // Nobody but this call has the tensor: libtenon may free it at its last use.
  void Own(size_t i, c10::TensorImpl* impl) {
    RetainTensor(nullptr, impl);
    owned_[i] = 1;
    Py_CLEAR(objects_[i]);
  }

  int64_t ToInt(size_t i) {
    const int64_t value = THPUtils_unpackIndex(objects_[i]);
    return value;
  }

  void Allocate() {
    const size_t n = callee_.outputs.size();
    results_.resize(n);
    fresh_.resize(n);
    for (size_t k = 0; k < n; ++k) {
      const Callee::Output& out = callee_.outputs[k];
      results_[k] = {};
      if (out.kind != 0) continue;
      if (out.sized) {
        fresh_[k] = at::detail::empty_strided_cpu(out.sizes, out.strides, out.dtype);
      } else {
        fresh_[k] = AllocateSymbolic(k, out);
      }
      results_[k] = Describe(fresh_[k].unsafeGetTensorImpl());
    }
  }
  at::Tensor AllocateSymbolic(size_t k, const Callee::Output& out) {
    std::vector<int64_t> sizes(out.sizes.size()), strides(out.sizes.size());
    char* error = nullptr;
    if (tenon_output_sizes(callee_.executable, inputs_.data(), static_cast<int64_t>(k),
                           sizes.data(), strides.data(), &error) != TENON_OK) {
      std::string message = error;
      tenon_string_free(error);
      TORCH_CHECK(false, callee_.name, ": ", message);
    }
    return at::detail::empty_strided_cpu(sizes, strides, out.dtype);
  }

  PyObject* Fail(int code, char* error) {
    const std::string message = error != nullptr ? error : "unknown error";
    tenon_string_free(error);
    if (code == TENON_HOST_ERROR || code == TENON_HOST_ERROR_AFTER_WRITES) {
      if (std::exception_ptr exception = TakeException()) {
        if (code == TENON_HOST_ERROR_AFTER_WRITES) std::rethrow_exception(exception);
        return FailedInHost(exception);
      }
    }
    if (code == TENON_ERROR && callee_.backward && CanRerun()) return GiveUp(message);
    if (code == TENON_CHECK_ERROR) {  // "IndexError: index out of range ..."
      if (CanRerun()) {
        PyObject* outputs = Rerun(nullptr);
        if (outputs == nullptr || !callee_.random || random_state_.defined()) return outputs;
        Py_DECREF(outputs);  // drawn from a generator that this run had moved already
      }
      const size_t colon = message.find(": ");
      const std::string name = message.substr(0, colon);
      PyObject* type = name == "IndexError"          ? PyExc_IndexError
                       : name == "ValueError"        ? PyExc_ValueError
                       : name == "ZeroDivisionError" ? PyExc_ZeroDivisionError
                       : name == "AssertionError"    ? PyExc_AssertionError
                                                     : PyExc_RuntimeError;
      PyErr_SetString(type,
                      colon == std::string::npos ? message.c_str() : message.c_str() + colon + 2);
      return nullptr;
    }
    PyErr_Format(PyExc_RuntimeError, "%s: %s", callee_.name.c_str(), message.c_str());
    return nullptr;
  }

  // Only a run that still has all its inputs, and that left them as they were, can be done again.
  bool CanRerun() const {
    return callee_.rerun != nullptr &&
           std::none_of(objects_.begin(), objects_.end(), [](PyObject* o) { return o == nullptr; });
  }
  PyObject* FailedInHost(const std::exception_ptr& exception) {
    try {
      std::rethrow_exception(exception);
    } catch (const ResultMismatch& mismatch) {
      if (!CanRerun() || (callee_.random && !random_state_.defined())) throw;
      return GiveUp(mismatch.what_without_backtrace());
    }
  }
  PyObject* GiveUp(const std::string& reason) {
    callee_.given_up.store(true, std::memory_order_relaxed);
    return Rerun(reason.c_str());
  }
  PyObject* Rerun(const char* reason) {
    if (random_state_.defined()) {
      at::Generator generator = at::detail::getDefaultCPUGenerator();
      std::lock_guard<std::mutex> lock(generator.mutex());
      generator.set_state(random_state_);
    }
    THPObjectPtr list(PyList_New(static_cast<Py_ssize_t>(objects_.size())));
    if (!list) return nullptr;
    for (size_t i = 0; i < objects_.size(); ++i)
      PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), Py_NewRef(objects_[i]));
    return PyObject_CallFunction(callee_.rerun, "Oz", list.get(), reason);
  }
  static at::Tensor RandomState() {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    std::lock_guard<std::mutex> lock(generator.mutex());
    return generator.get_state();
  }

  PyObject* Outputs() {
    const size_t n = callee_.outputs.size();
    PyObject* list = PyList_New(static_cast<Py_ssize_t>(n));
    for (size_t k = 0; k < n; ++k) {
      PyObject* item = list != nullptr ? Output(k) : nullptr;
      if (item == nullptr) {  // out of memory: what slots gave us must not leak
        for (; k < n; ++k) {
          if (callee_.outputs[k].kind == 1 && results_[k].tensor != nullptr)
            ReleaseTensor(nullptr, results_[k].tensor);
        }
        Py_XDECREF(list);
        return nullptr;
      }
      PyList_SET_ITEM(list, static_cast<Py_ssize_t>(k), item);
    }
    return list;
  }

  // The graph's outputs from the program's, whose list is consumed.
  PyObject* Assemble(PyObject* direct) {
    THPObjectPtr made(direct);
    THPObjectPtr list(PyList_New(static_cast<Py_ssize_t>(callee_.recipes.size())));
    if (!list) return nullptr;
    for (size_t k = 0; k < callee_.recipes.size(); ++k) {
      const Callee::Recipe& r = callee_.recipes[k];
      PyObject* base = r.of_input ? objects_[r.index] : PyList_GET_ITEM(made.get(), r.index);
      PyObject* item =
          r.view ? THPVariable_Wrap(ViewOf(THPVariable_Unpack(base), r)) : Py_NewRef(base);
      if (item == nullptr) return nullptr;
      PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(k), item);
    }
    return list.release();
  }
  // Through the dispatcher, so that the view has eager's base and shares its version counter.
  static at::Tensor ViewOf(const at::Tensor& base, const Callee::Recipe& r) {
    return at::as_strided(base, r.sizes, r.strides, base.storage_offset() + r.offset);
  }

  // By tenon::OutputKind.
  PyObject* Output(size_t k) {
    const Callee::Output& out = callee_.outputs[k];
    switch (out.kind) {
      case 0:
        return THPVariable_Wrap(std::move(fresh_[k]));
      case 1: {
        auto* impl = static_cast<c10::TensorImpl*>(results_[k].tensor);
        results_[k].tensor = nullptr;
        return THPVariable_Wrap(at::Tensor(
            c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim(impl)));
      }
      case 2:
        return Py_NewRef(objects_[out.index]);
      case 3:
        return Py_NewRef(PyTuple_GET_ITEM(callee_.constants, out.index));
      case 5:
        return PyLong_FromLongLong(reinterpret_cast<int64_t>(results_[k].data));
      default:
        return Py_NewRef(Py_None);
    }
  }

  Callee& callee_;
  const bool careful_;  // the run may have to be done again, so nothing is given away in it
  at::Tensor random_state_;  // of ATen's generator before a careful run that draws from it
  c10::SmallVector<PyObject*, 32> objects_;  // NULL: owned by libtenon
  c10::SmallVector<c10::TensorImpl*, 32> held_;
  c10::SmallVector<TenonTensor, 32> inputs_;
  c10::SmallVector<uint8_t, 32> owned_;
  c10::SmallVector<TenonTensor, 8> results_;
  c10::SmallVector<at::Tensor, 8> fresh_;
};

}  // namespace

PyObject* RunExecutable(Callee& callee, PyObject* list) {
  HANDLE_TH_ERRORS
  return Run(callee)(list);
  END_HANDLE_TH_ERRORS
}

}  // namespace tenon::torch_host
