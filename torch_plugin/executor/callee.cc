#include "torch_plugin/executor/callee.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ops/as_strided.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <mutex>

#include "runtime/float_mode.h"
#include "torch_plugin/executor/host.h"
#include "torch_plugin/executor/op.h"
#include "torch_plugin/executor/size_programs.h"
#include "torch_plugin/executor/tensor.h"

namespace tenon::torch_host {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

std::string WhatItIs(const c10::TensorImpl* impl) {
  if (impl->is_conj()) return "a conjugated view";
  if (impl->is_neg()) return "a negated view";
  if (impl->key_set().has(DispatchKey::Python)) return "a tensor subclass or a fake tensor";
  if (impl->layout() != c10::kStrided) return "a tensor of layout " + c10::str(impl->layout());
  if (impl->is_cpu()) return "a tensor of a transform, dispatched by " + c10::str(impl->key_set());
  return "a tensor on device " + impl->device().str();
}

bool HasTangent(c10::TensorImpl* impl) {
  if (impl->autograd_meta() == nullptr) return false;
  return at::Tensor(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim_copy(impl))._fw_grad(0).defined();
}

constexpr char kFlushing[] = "the calling thread takes subnormal numbers for zeros (torch.set_flush_denormal)";

class Call {
 public:
  // declines: a call that the program does not take goes nowhere.
  Call(Callee& callee, std::span<Argument> arguments, bool declines = false)
      : callee_(callee),
        arguments_(arguments),
        declines_(declines),
        careful_(callee.rerun != nullptr && !callee.proven.load(std::memory_order_relaxed)) {}

  Results operator()() {
    TORCH_CHECK(arguments_.size() == callee_.inputs.size(), callee_.name, ": wanted ", callee_.inputs.size(), " inputs, got ",
                arguments_.size());
    if (callee_.given_up.load(std::memory_order_relaxed)) return declines_ ? Decline() : Rerun(nullptr);
    if (callee_.native && callee_.rerun != nullptr && FlushesSubnormals()) return Rerun(kFlushing);
    if (careful_ && callee_.random) random_state_ = RandomState();
    inputs_.resize(arguments_.size());
    owned_.resize(arguments_.size());
    for (size_t i = 0; i < arguments_.size(); ++i) Read(i);
    if (foreign_) return Rerun(nullptr);
    if (callee_.refused != nullptr || declines_) {
      char* why = nullptr;
      if (tenon_check_inputs(callee_.executable.get(), inputs_.data(), &why) != TENON_OK) {
        const std::unique_ptr<char, decltype(&tenon_string_free)> owned(why, tenon_string_free);
        return declines_ ? Decline() : callee_.refused(arguments_, why);
      }
    }
    c10::AutoGradMode no_grad(false);
    int code;
    char* error = nullptr;
    {
      // Below autograd and autocast, as AOTAutograd's graphs are meant to run.
      c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset);
      Allocate();
      std::shared_ptr<const FrozenValues::Set> frozen;
      code = callee_.frozen == nullptr ? TENON_OK : callee_.frozen->Get(inputs_.data(), &frozen, &error);
      if (frozen != nullptr) {
        inputs_.append(frozen->tensors.begin(), frozen->tensors.end());
        owned_.resize(inputs_.size());
      }
      if (code == TENON_OK) {
        for (size_t i = 0; i < arguments_.size(); ++i) {
          if (owned_[i] != 0) arguments_[i].Release(), gave_ = true;
        }
        code = tenon_run_owned(callee_.executable.get(), inputs_.data(), owned_.data(), written_.data(), &error);
      }
      if (code == TENON_OK) {
        for (const auto& [i, k] : written_through_) arguments_[i].Share().copy_(resolved_[k]);
      }
    }
    if (code != TENON_OK) return Fail(code, error);
    if (careful_) callee_.proven.store(true, std::memory_order_relaxed);
    return callee_.recipes.empty() ? Outputs() : Assemble(Outputs());
  }

  bool declined() const { return declined_; }

 private:
  Results Decline() {
    declined_ = true;
    return {};
  }
  void Read(size_t i) {
    const Callee::Input& want = callee_.inputs[i];
    const Argument& argument = arguments_[i];
    TenonTensor& in = inputs_[i];
    in = {};
    in.ndim = -1;
    if (want.symint) {
      in.data = reinterpret_cast<void*>(argument.number());
      return;
    }
    if (!want.tensor && !want.other) return;
    c10::TensorImpl* impl = argument.tensor();
    TORCH_CHECK_TYPE(impl != nullptr, callee_.name, ": input ", i, ": wanted a tensor, got none");
    if (want.other) {
      in.tensor = impl;
      return;
    }
    const bool resolved = impl->is_conj() || impl->is_neg();
    if (resolved && want.mutated) written_through_.emplace_back(i, resolved_.size());
    if (resolved) impl = Resolve(argument.Share());
    if (!IsPlain(impl)) {  // a backward's gradients may be a transform's (vmap's): those ATen knows what to do with
      TORCH_CHECK(callee_.backward && callee_.rerun != nullptr, callee_.name, ": input ", i, ": compiled for a dense CPU tensor, got ",
                  WhatItIs(impl));
      foreign_ = true;
      return;
    }
    TORCH_CHECK_NOT_IMPLEMENTED(!HasTangent(impl), callee_.name, ": input ", i,
                                " has a tangent of forward-mode AD, for which programs have no rule; call the function uncompiled");
    in = Describe(impl);
    if (want.mutated) in.data = impl->mutable_data();  // a copy-on-write storage separates here
    owned_[i] = argument.sole() && want.movable && !careful_ && !resolved && impl->storage().nbytes() >= Callee::kMovableBytes;
  }

  // The graph was compiled for what is read through the bits, in memory of the same strides.
  c10::TensorImpl* Resolve(at::Tensor bits) {
    c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    at::Tensor plain = bits;
    if (bits.is_neg()) plain = plain._neg_view();
    if (bits.is_conj()) plain = plain.conj();
    at::Tensor copy = Separate(plain);
    // Elements that lie on one another are changed once.
    at::Tensor flat = copy.as_strided({static_cast<int64_t>(copy.storage().nbytes() / copy.element_size())}, {1}, 0);
    if (bits.is_conj()) flat.conj_physical_();
    if (bits.is_neg()) flat.neg_();
    resolved_.push_back(std::move(copy));
    return resolved_.back().unsafeGetTensorImpl();
  }

  void Allocate() {
    const size_t n = callee_.outputs.size();
    written_.resize(n);
    results_.resize(n);
    for (size_t k = 0; k < n; ++k) {
      const Callee::Output& out = callee_.outputs[k];
      written_[k] = {};
      if (out.kind != 0) continue;
      results_[k].tensor =
          out.sized ? at::Tensor(at::detail::empty_strided_cpu(out.sizes, out.strides, out.dtype)) : AllocateSymbolic(k, out);
      written_[k] = Describe(results_[k].tensor.unsafeGetTensorImpl());
    }
  }
  at::Tensor AllocateSymbolic(size_t k, const Callee::Output& out) {
    std::vector<int64_t> sizes(out.sizes.size()), strides(out.sizes.size());
    char* error = nullptr;
    if (tenon_output_sizes(callee_.executable.get(), inputs_.data(), static_cast<int64_t>(k), sizes.data(), strides.data(), &error) !=
        TENON_OK) {
      std::string message = error;
      tenon_string_free(error);
      TORCH_CHECK(false, callee_.name, ": ", message);
    }
    return at::detail::empty_strided_cpu(sizes, strides, out.dtype);
  }

  Results Fail(int code, char* error) {
    const std::string message = error != nullptr ? error : "unknown error";
    tenon_string_free(error);
    const bool written = (code & TENON_AFTER_WRITES) != 0;
    code &= ~TENON_AFTER_WRITES;
    if (code == TENON_HOST_ERROR) {
      if (std::exception_ptr exception = TakeException()) {
        if (written) std::rethrow_exception(exception);
        return FailedInHost(exception);
      }
    }
    if (code == TENON_ERROR && callee_.backward && !written && CanRerun()) return GiveUp(message);
    TORCH_CHECK(code == TENON_CHECK_ERROR, callee_.name, ": ", message);
    if (!written && CanRerun()) {
      Results results = Rerun(nullptr);
      if (!callee_.random || random_state_.defined()) return results;  // else drawn from a generator that this run had moved already
    }
    const size_t colon = message.find(": ");  // "IndexError: index out of range ..."
    throw CheckFailed(message.substr(0, colon), colon == std::string::npos ? message : message.substr(colon + 2));
  }

  // Only a run that still has all its inputs, and that left them as they were, can be done again.
  bool CanRerun() const { return callee_.rerun != nullptr && !gave_; }
  Results FailedInHost(const std::exception_ptr& exception) {
    try {
      std::rethrow_exception(exception);
    } catch (const ResultMismatch& mismatch) {
      if (!CanRerun() || (callee_.random && !random_state_.defined())) throw;
      return GiveUp(mismatch.what_without_backtrace());
    }
  }
  Results GiveUp(const std::string& reason) {
    callee_.given_up.store(true, std::memory_order_relaxed);
    return Rerun(reason.c_str(), /*lasting=*/true);
  }
  Results Rerun(const char* reason, bool lasting = false) {
    if (random_state_.defined()) {
      at::Generator generator = at::detail::getDefaultCPUGenerator();
      std::lock_guard<std::mutex> lock(generator.mutex());
      generator.set_state(random_state_);
    }
    return callee_.rerun(arguments_, reason, lasting);
  }
  static at::Tensor RandomState() {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    std::lock_guard<std::mutex> lock(generator.mutex());
    return generator.get_state();
  }

  // By tenon::OutputKind.
  Results Outputs() {
    for (size_t k = 0; k < results_.size(); ++k) {
      const Callee::Output& out = callee_.outputs[k];
      Result& result = results_[k];
      switch (out.kind) {
        case 0:
          result.kind = Result::Kind::kTensor;
          break;
        case 1:
          result.kind = Result::Kind::kTensor;
          result.tensor = at::Tensor(
              c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim(static_cast<c10::TensorImpl*>(written_[k].tensor)));
          break;
        case 2:
          result.kind = Result::Kind::kArgument;
          result.number = out.index;
          break;
        case 3:
          result.kind = Result::Kind::kTensor;
          result.tensor = callee_.constants[out.index];
          break;
        case 5:
          result.kind = Result::Kind::kNumber;
          result.number = reinterpret_cast<int64_t>(written_[k].data);
          break;
        default:
          break;
      }
    }
    return std::move(results_);
  }

  // The graph's outputs from the program's.
  Results Assemble(Results direct) {
    Results results(callee_.recipes.size());
    for (size_t k = 0; k < results.size(); ++k) {
      const Callee::Recipe& r = callee_.recipes[k];
      if (!r.view) {
        results[k] = direct[r.index];
        continue;
      }
      const bool argument = r.of_input || direct[r.index].kind == Result::Kind::kArgument;
      const int64_t number = r.of_input ? r.index : direct[r.index].number;
      results[k].kind = Result::Kind::kTensor;
      const at::Tensor base = argument ? arguments_[number].Share() : direct[r.index].tensor;
      results[k].tensor = ViewOf(base, r.outputs.empty() ? r : Resolved(r, direct));
    }
    return results;
  }
  // With the numbers that this call has.
  static Callee::Recipe Resolved(Callee::Recipe r, const Results& direct) {
    const size_t rank = r.sizes.size();
    for (size_t k = 0; k < r.outputs.size(); ++k) {
      int64_t& number = k < rank ? r.sizes[k] : k < 2 * rank ? r.strides[k - rank] : r.offset;
      if (r.outputs[k]) number = direct[number].number;
    }
    return r;
  }
  // Through the dispatcher, so that the view has eager's base and shares its version counter.
  static at::Tensor ViewOf(const at::Tensor& base, const Callee::Recipe& r) {
    if (!r.reading) return at::as_strided(base, r.sizes, r.strides, base.storage_offset() + r.offset);
    const at::Tensor memory = MemoryOf(base, r.reading->dtype);
    at::Tensor view = at::as_strided(memory, r.sizes, r.strides, memory.storage_offset() + r.offset);
    if (r.reading->conj) view = at::_conj(view);
    return r.reading->neg ? at::_neg_view(view) : view;
  }
  // From its first element on, without its bits, in one dimension of elements of this type.
  static at::Tensor MemoryOf(at::Tensor base, c10::ScalarType dtype) {
    if (base.is_conj()) base = at::_conj(base);
    if (base.is_neg()) base = at::_neg_view(base);
    const int64_t size = base.element_size(), ratio = std::max<int64_t>(static_cast<int64_t>(c10::elementSize(dtype)) / size, 1);
    const int64_t count = std::max<int64_t>(static_cast<int64_t>(base.storage().nbytes()) / size - base.storage_offset(), 0);
    base = at::as_strided(base, {count / ratio * ratio}, {1}, base.storage_offset());
    return dtype == base.scalar_type() ? base : base.view(dtype);
  }

  Callee& callee_;
  const std::span<Argument> arguments_;
  const bool declines_;
  bool declined_ = false;
  bool foreign_ = false;     // an input that no kernel can read
  const bool careful_;       // the run may have to be done again, so nothing is given away in it
  at::Tensor random_state_;  // of ATen's generator before a careful run that draws from it
  c10::SmallVector<at::Tensor, 1> resolved_;
  c10::SmallVector<std::pair<size_t, size_t>, 1> written_through_;  // inputs with a bit -> in resolved_, where the program writes
  c10::SmallVector<TenonTensor, 32> inputs_;
  c10::SmallVector<uint8_t, 32> owned_;  // the reference goes to libtenon
  bool gave_ = false;                    // some went, so the arguments are not all there
  c10::SmallVector<TenonTensor, 8> written_;
  Results results_;
};

}  // namespace

bool IsPlain(const c10::TensorImpl* impl) {
  static constexpr DispatchKeySet kForeign = DispatchKeySet(
      {DispatchKey::Python, DispatchKey::Conjugate, DispatchKey::Negative, DispatchKey::Functionalize, DispatchKey::ZeroTensor,
       DispatchKey::Batched, DispatchKey::BatchedNestedTensor, DispatchKey::FuncTorchBatched, DispatchKey::FuncTorchGradWrapper});
  return impl->is_cpu() && impl->layout() == c10::kStrided && !impl->is_nested() && !impl->key_set().has_any(kForeign);
}

Results Callee::Run(std::span<Argument> arguments) { return sizes == nullptr ? RunThis(arguments) : sizes->Run(*this, arguments); }

Results Callee::RunThis(std::span<Argument> arguments) { return Call(*this, arguments)(); }

std::optional<Results> Callee::RunIfTaken(std::span<Argument> arguments) {
  Call call(*this, arguments, /*declines=*/true);
  Results results = call();
  if (call.declined()) return std::nullopt;
  return results;
}

std::vector<at::Tensor> Callee::Run(std::span<const at::Tensor> tensors) {
  Arguments arguments;
  for (const at::Tensor& t : tensors) arguments.push_back(Argument::Borrow(t.unsafeGetTensorImpl()));
  std::vector<at::Tensor> outputs;
  for (Result& result : Run(std::span<Argument>(arguments))) {
    TORCH_CHECK(result.kind != Result::Kind::kNumber, name, ": output ", outputs.size(), " is a number, no tensor");
    outputs.push_back(result.kind == Result::Kind::kArgument ? arguments[result.number].Share() : std::move(result.tensor));
  }
  return outputs;
}

}  // namespace tenon::torch_host
