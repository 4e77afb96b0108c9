// What a prepared operator is.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <memory>
#include <string>
#include <vector>

#include "torch_plugin/executor/args.h"
#include "torch_plugin/executor/op.h"

namespace tenon::torch_host {

// What a result must look like; any() if the program promised nothing.
struct ExpectedResult {
  int32_t dtype = -1, ndim = -1;
  bool used = false, sized = false;
  std::vector<int64_t> sizes, strides;
};

class Op {
 public:
  virtual ~Op() = default;
  virtual void Call(TenonOpCall* call) = 0;

  std::string name;
  int32_t rule = 1;
  int32_t num_operands = 0;
  std::vector<ExpectedResult> expected;

 protected:
  // The operand as a tensor: the framework's own, or the frame's wrapper pointed at the memory.
  // Undefined if absent.
  at::Tensor Operand(const TenonOpCall& call, int32_t index) const;
  at::Tensor Wrapper(const TenonTensor& memory, void** cache) const;
  // Checks and hands over result `index`; anything but a tensor arrives undefined.
  void Give(TenonOpCall* call, size_t index, at::Tensor tensor) const;
  void ReleaseResults(TenonOpCall* call) const;
  // Behind a call, also one that failed: whoever kept an operand that is planned memory gets memory of its own. Ends the process where
  // there is none.
  void PartWithKept(const TenonOpCall& call) const noexcept;

 private:
  at::Tensor Fit(size_t index, at::Tensor tensor, const TenonTensor& now) const;  // now: as TenonOpCall::results says
  bool IsOnWrapper(const TenonOpCall& call, const at::Tensor& tensor) const;
};

std::unique_ptr<Op> PreparePythonOp(const TenonOpSpec& spec);  // throws c10::Error
std::unique_ptr<Op> PrepareRandomStateOp(const TenonOpSpec& spec);
std::unique_ptr<Op> PrepareDispatchedOp(const TenonOpSpec& spec);

}  // namespace tenon::torch_host
