// A training graph's backward as a node of autograd, in the place of AOTAutograd's wrapper: docs/architecture/autograd.md.
#pragma once

#include "torch_plugin/executor/node_version.h"

#if TENON_AUTOGRAD_NODE

#include <c10/core/SafePyObject.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "torch_plugin/executor/callee.h"

namespace tenon::torch_host {

// How often a graph ran, and what ran it. Outlives the graph.
struct TrainingCounts {
  std::atomic<int64_t> forwards = 0, backwards = 0;  // by this node
  std::atomic<int64_t> by_aten = 0;      // of the backwards: tangents were no plain tensors
  std::atomic<int64_t> stock_calls = 0;  // calls that went to AOTAutograd's wrapper after all
  std::atomic<int64_t> accumulated = 0;  // gradients that the node itself added to a leaf's
};

// What runs a graph: an executable, or a boxed callable of Python's. Copies share it. Any thread.
class Program {
 public:
  Program() = default;
  // `callable`: an Executable or any boxed callable. With the GIL.
  explicit Program(PyObject* callable);

  explicit operator bool() const { return callable_ != nullptr; }
  // As Callee::Run, without the GIL, which a callable takes. A check that fails is thrown as Python's exception.
  Results Run(std::span<Argument> arguments) const;

 private:
  std::shared_ptr<c10::SafePyObject> callable_;
  const CalleeCell* cell_ = nullptr;  // in callable_
};

// A training graph as AOTAutograd traced and cut it. What it says of tensors holds for every call.
struct TrainingPlan {
  struct Input {
    bool number = false;          // a SymInt; else a tensor
    bool differentiable = false;  // has an edge, if the argument requires a gradient
    bool written = false;         // by the forward, for autograd to see: its version goes up
    bool accumulates = false;     // its gradient has its size and dtype, so a leaf's may be added by the node
  };
  struct Output {
    int64_t argument = -1;        // it is that argument, which is returned; -1: the forward's
    bool differentiable = false;  // gets the node as history; these are the node's inputs, in order
    std::shared_ptr<c10::SafePyObject> dynamic;  // callable(tensor): tells Dynamo which of its sizes change; NULL: none
  };
  struct Tangent {
    c10::ScalarType dtype = c10::ScalarType::Float;
    std::vector<int64_t> sizes, strides;  // what the backward was compiled for
    bool dynamic = false;                 // sizes are the output's; dense, with its dims in this order from the outermost:
    std::vector<int64_t> order;
  };
  std::vector<Input> inputs;
  std::vector<Output> outputs;    // of the caller; the forward's further outputs are saved
  int64_t saved = 0;              // so many tensors
  int64_t saved_numbers = 0;      // and behind them so many sizes
  int64_t saved_unchecked = 0;    // the last of these may be written before the backward reads them
  std::vector<Tangent> tangents;  // per differentiable output. Backward's inputs: numbers, saved, tangents; outputs: a gradient per input
  bool nondeterministic = false;  // traced while deterministic algorithms weren't asked for
  Program forward;
  std::shared_ptr<c10::SafePyObject> make_backward;  // callable() -> the backward, compiled once
  std::shared_ptr<c10::SafePyObject> aten_backward;  // boxed callable: the backward node by node, for tensors of any kind
  std::shared_ptr<TrainingCounts> counts = std::make_shared<TrainingCounts>();

  const uint64_t id = NextId();  // unique in the process

  // The backward, compiled if need be. Without the GIL. Throws python_error.
  Program Backward();

 private:
  static uint64_t NextId();

  std::atomic<std::shared_ptr<const Program>> backward_;
};

// One call's backward.
class TrainingNode : public torch::autograd::Node {
 public:
  explicit TrainingNode(std::shared_ptr<TrainingPlan> plan) : plan_(std::move(plan)) {}

  // The forward's outputs behind the caller's, once those have their history. With the GIL.
  void Save(std::span<at::Tensor> tensors, std::vector<int64_t> numbers);

  // "TenonBackward".
  std::string name() const override;
  void release_variables() override;
  void release_resources() override;
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs& args) const override;
  torch::autograd::variable_list apply_with_saved(const torch::autograd::variable_list& inputs,
                                                  torch::dynamo::autograd::SwapSavedVariables& saved) override;

 protected:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override;

 private:
  struct Saved {
    at::Tensor tensor;
    uint32_t version = 0;
  };
  void Unpack(bool keep, Arguments* arguments);
  void CheckVersion(const Saved& saved) const;
  void Accumulate(torch::autograd::variable_list* grads);
  void ForbidDoubleBackward(const torch::autograd::variable_list& tangents, torch::autograd::variable_list* grads);

  // The sizes of the outputs that tangents are of, where the plan doesn't know them; else nothing.
  std::vector<c10::DimVector> DynamicSizes() const;

  const std::shared_ptr<TrainingPlan> plan_;
  std::vector<int64_t> numbers_;
  std::vector<Saved> saved_;
  std::vector<torch::autograd::SavedVariable> packed_;  // in saved_'s place, of those that are checked, under saved_tensors_hooks
  bool released_ = false;
};

}  // namespace tenon::torch_host

#endif  // TENON_AUTOGRAD_NODE
