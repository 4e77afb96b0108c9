// TenonArg trees -> IValue stack templates, by the schema's types.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <vector>

#include "runtime/tenon_c.h"

namespace tenon::torch_host {

// Built once per call site: every argument converted, tensors left open.
class ArgTemplate {
 public:
  // `args` may be shorter than the schema's list only by its out= arguments, which stay open for
  // AppendOut. Throws c10::Error naming the argument, what was wanted and what came.
  ArgTemplate(const c10::FunctionSchema& schema, const TenonArg* args, int64_t num_args);

  // Pushes the arguments. tensor(operand) gives the tensors; `numbers`: TenonOpCall's.
  template <typename F>
  void Push(torch::jit::Stack* stack, const int64_t* numbers, const F& tensor) const {
    const size_t first = stack->size();
    PushTensors(stack, tensor);
    for (const NumberHole& hole : number_holes_) Fill(hole, numbers[hole.number], &(*stack)[first + hole.arg]);
  }
  size_t size() const { return values_.size(); }

 private:
  template <typename F>
  void PushTensors(torch::jit::Stack* stack, const F& tensor) const {
    size_t hole = 0;
    for (size_t k = 0; k < values_.size(); ++k) {
      if (hole == holes_.size() || holes_[hole].arg != k) {
        stack->push_back(values_[k]);
        continue;
      }
      if (holes_[hole].element < 0) {
        const Window& window = holes_[hole].window;
        at::Tensor t = Through(holes_[hole], tensor(holes_[hole].operand));
        if (window.real) stack->emplace_back(t.item().toDouble());
        else if (window.number) stack->emplace_back(t.item());
        else stack->emplace_back(std::move(t));
        ++hole;
        continue;
      }
      PushList(stack, k, &hole, tensor);
    }
  }

  // How the operator sees an operand: in these strides (`sizes` empty, `exact`), or through a view of it.
  struct Window {
    bool exact = false, view = false;
    bool number = false, real = false;  // a tensor of one element where the schema has a number, or a float
    std::vector<int64_t> sizes, strides;
    int64_t offset = 0;  // elements from the operand's first
  };
  struct Hole {
    size_t arg;
    int64_t element;  // -1: the argument itself
    int32_t operand;
    Window window;
  };
  // A number that each call brings: an argument, or an element of a list of ints.
  struct NumberHole {
    enum class As : uint8_t { kInt, kDouble, kTensor, kElement } as;
    size_t arg;
    int64_t element;
    int64_t number;
  };
  static void Fill(const NumberHole& hole, int64_t number, c10::IValue* value);
  c10::IValue LeaveOpen(NumberHole::As as, const TenonArg& arg, int64_t element = -1);
  c10::IValue NumberOf(const TenonArg& arg, bool real);
  static Window WindowOf(const TenonArg& arg);
  static at::Tensor Through(const Hole& hole, at::Tensor operand);
  template <typename F>
  void PushList(torch::jit::Stack* stack, size_t arg, size_t* hole, const F& tensor) const {
    if (values_[arg].isTensorList()) {
      c10::List<at::Tensor> list = values_[arg].toTensorList().copy();
      for (; *hole < holes_.size() && holes_[*hole].arg == arg; ++*hole)
        list[holes_[*hole].element] = Through(holes_[*hole], tensor(holes_[*hole].operand));
      stack->emplace_back(std::move(list));
    } else {
      c10::List<std::optional<at::Tensor>> list = values_[arg].toOptionalTensorList().copy();
      for (; *hole < holes_.size() && holes_[*hole].arg == arg; ++*hole) {
        at::Tensor t = Through(holes_[*hole], tensor(holes_[*hole].operand));
        if (t.defined()) list[holes_[*hole].element] = std::move(t);
      }
      stack->emplace_back(std::move(list));
    }
  }
  c10::IValue Convert(const TenonArg& arg, const c10::Type& type,
                      const std::optional<int32_t>& count);
  c10::IValue ConvertList(const TenonArg& arg, const c10::ListType& type,
                          const std::optional<int32_t>& count);

  std::vector<c10::IValue> values_;
  std::vector<Hole> holes_;  // ordered by arg
  std::vector<NumberHole> number_holes_;
};

}  // namespace tenon::torch_host
