// Operators called through the dispatcher, boxed.

#include <string>
#include <string_view>

#include "torch_plugin/executor/op_impl.h"
#include "torch_plugin/executor/tensor.h"

namespace tenon::torch_host {
namespace {

struct QualifiedName {
  std::string name, overload;  // "aten::add", "Tensor"
};

// "aten.add.Tensor", "aten.relu.default"; a namespace never has a dot, an overload neither.
QualifiedName Split(const std::string& text) {
  const size_t first = text.find('.'), last = text.rfind('.');
  TORCH_CHECK(first != std::string::npos && first < last, "not an operator's name: ", text);
  std::string overload = text.substr(last + 1);
  if (overload == "default") overload.clear();
  return {text.substr(0, first) + "::" + text.substr(first + 1, last - first - 1), overload};
}

class DispatchedOp final : public Op {
 public:
  DispatchedOp(c10::OperatorHandle handle, const TenonOpSpec& spec)
      : handle_(std::move(handle)),
        args_(handle_.schema(), spec.args, spec.num_args),
        asynchronous_(std::string_view(spec.overload).starts_with("_c10d_functional")) {}

  void Call(TenonOpCall* call) override {
    const Parting parting{*this, *call};  // ends behind the stack
    torch::jit::Stack stack;
    stack.reserve(args_.size() + 2);
    args_.Push(&stack, call->numbers, [&](int32_t operand) { return asynchronous_ ? Own(*call, operand) : Operand(*call, operand); });
    if (rule == 0) return CallOut(call, &stack);
    handle_.callBoxed(&stack);
    try {
      TakeResults(call, stack);
    } catch (...) {
      ReleaseResults(call);
      throw;
    }
  }

 private:
  struct Parting {
    const DispatchedOp& op;
    const TenonOpCall& call;
    ~Parting() { op.PartWithKept(call); }
  };

  // The memory is given: what the operator did elsewhere (it may have resized a wrapper) is copied
  // there.
  void CallOut(TenonOpCall* call, torch::jit::Stack* stack) {
    std::vector<at::Tensor> outs;
    for (size_t k = 0; k < expected.size(); ++k) {
      if (call->results[k].ndim < 0) continue;
      outs.push_back(Wrapper(call->results[k], &call->cache[num_operands + k]));
      if (args_.size() + outs.size() <= handle_.schema().arguments().size())
        stack->emplace_back(outs.back());
    }
    handle_.callBoxed(stack);
    size_t out = 0;
    for (size_t k = 0; k < expected.size(); ++k) {
      const TenonTensor& memory = call->results[k];
      if (memory.ndim < 0) continue;
      const at::Tensor& written = outs[out++];
      const c10::IntArrayRef sizes(memory.sizes, memory.ndim), strides(memory.strides, memory.ndim);
      TORCH_CHECK(written.sizes() == sizes, name, ": result ", k, " was planned as ", sizes,
                  ", the operator made ", written.sizes());
      if (written.data_ptr() == memory.data && written.strides() == strides) continue;
      const at::Tensor result = written.clone();
      ReleaseTensor(nullptr, call->cache[num_operands + k]);
      call->cache[num_operands + k] = nullptr;
      WrapMemory(memory).copy_(result);
    }
  }

  void TakeResults(TenonOpCall* call, torch::jit::Stack& stack) {
    size_t index = 0;
    for (c10::IValue& value : stack) {
      if (value.isTensor()) {
        Give(call, index++, std::move(value).toTensor());
      } else if (value.isTensorList()) {
        for (const at::Tensor& t : value.toTensorVector()) Give(call, index++, t);
      } else {
        ++index;  // a number: known at compile time
      }
    }
    for (; index < expected.size(); ++index) Give(call, index, {});
  }

  // Planned memory serves others as soon as the call is back.
  at::Tensor Own(const TenonOpCall& call, int32_t operand) const {
    at::Tensor t = Operand(call, operand);
    return t.defined() && call.operands[operand].tensor == nullptr ? Separate(t) : t;
  }

  c10::OperatorHandle handle_;
  ArgTemplate args_;
  const bool asynchronous_;  // reads its operands after it has returned: a collective
};

}  // namespace

std::unique_ptr<Op> PrepareDispatchedOp(const TenonOpSpec& spec) {
  const QualifiedName name = Split(spec.overload);
  const auto handle = c10::Dispatcher::singleton().findSchema({name.name, name.overload});
  TORCH_CHECK(handle.has_value(), "torch has no operator ", name.name,
              name.overload.empty() ? "" : ".", name.overload);
  return std::make_unique<DispatchedOp>(*handle, spec);
}

}  // namespace tenon::torch_host
