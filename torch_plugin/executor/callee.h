// A compiled graph as C++ calls it: tensors in, tensors out, no Python. Python's lists (run.h) and autograd's node (autograd_node.h)
// call it, and C++ programs (torch_plugin/executor/tensor_function.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/tenon_c.h"
#include "torch_plugin/executor/frozen.h"

namespace tenon::torch_host {

// One input of a call: a tensor, the number of a SymInt, or nothing. Move only.
class Argument {
 public:
  enum class Kind : uint8_t { kNone, kTensor, kNumber };

  Argument() = default;
  explicit Argument(int64_t number) : kind_(Kind::kNumber), number_(number) {}
  // Whoever calls keeps the tensor alive until the call returns.
  static Argument Borrow(c10::TensorImpl* tensor) { return {tensor, false, false}; }
  // The reference goes over to the call. `sole`: nobody else has the tensor, so its memory may be freed at the input's last use.
  static Argument Give(at::Tensor tensor, bool sole) { return {tensor.unsafeReleaseTensorImpl(), true, sole}; }
  Argument(Argument&& other) noexcept { *this = std::move(other); }
  Argument& operator=(Argument&& other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(owned_, other.owned_);
    std::swap(sole_, other.sole_);
    std::swap(number_, other.number_);
    std::swap(tensor_, other.tensor_);
    return *this;
  }
  ~Argument() {
    if (owned_) c10::raw::intrusive_ptr::decref(tensor_);
  }

  Kind kind() const { return kind_; }
  int64_t number() const { return number_; }
  c10::TensorImpl* tensor() const { return tensor_; }  // NULL: none, or it was passed on
  bool sole() const { return sole_; }
  // Passes the reference on, if there is one.
  void Release() { tensor_ = nullptr, owned_ = sole_ = false; }
  // Another reference to the tensor.
  at::Tensor Share() const { return at::Tensor(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim_copy(tensor_)); }
  // The tensor, and the reference if it is owned.
  at::Tensor Take() {
    if (!owned_) return Share();
    owned_ = sole_ = false;
    return at::Tensor(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim(std::exchange(tensor_, nullptr)));
  }

 private:
  Argument(c10::TensorImpl* tensor, bool owned, bool sole) : kind_(Kind::kTensor), owned_(owned), sole_(sole), tensor_(tensor) {}

  Kind kind_ = Kind::kNone;
  bool owned_ = false, sole_ = false;
  int64_t number_ = 0;
  c10::TensorImpl* tensor_ = nullptr;
};
using Arguments = c10::SmallVector<Argument, 32>;

// One output of a call.
struct Result {
  enum class Kind : uint8_t { kNone, kTensor, kNumber, kArgument };
  Kind kind = Kind::kNone;
  int64_t number = 0;  // kNumber; kArgument: the argument that is the output
  at::Tensor tensor;   // kTensor
};
using Results = c10::SmallVector<Result, 8>;

// A check of the graph failed ("IndexError: index out of range ..."): exception_name() is the first word, a Python exception's name; the
// message is the rest.
class CheckFailed : public c10::Error {
 public:
  CheckFailed(std::string exception_name, std::string message)
      : c10::Error({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, std::move(message)), exception_name_(std::move(exception_name)) {}
  const std::string& exception_name() const { return exception_name_; }

 private:
  std::string exception_name_;
};

// Tensors that are dense memory of the CPU with plain numbers in it, and no transform's wrapper: what kernels can read.
bool IsPlain(const c10::TensorImpl* impl);

class SizePrograms;

// What a call needs to know of an executable. Doesn't change once it can be called, but for the two notes at its end.
struct Callee {
  struct Input {
    bool tensor = true;  // else SymInt, None or something the program passes on
    bool symint = false;
    bool other = false;  // any tensor whatsoever
    bool mutated = false;
    bool framework = false;  // an operand of framework steps, so C++ will count references
    bool returned = false;   // is an output too
    bool movable = false;    // its memory may be freed before the run ends
  };
  struct Output {
    int32_t kind = 0;
    int64_t index = 0;
    c10::ScalarType dtype = c10::ScalarType::Float;
    bool sized = true;
    std::vector<int64_t> sizes, strides;
  };
  // How a view reads its base's memory, where it does not as the base itself does.
  struct Reading {
    c10::ScalarType dtype;
    bool conj, neg;  // its bits
  };
  // How an output of the graph comes from the program's: output `index` itself, or a view of that
  // output or input.
  struct Recipe {
    bool view = false, of_input = false;
    int64_t index = 0;
    std::vector<int64_t> sizes, strides;
    int64_t offset = 0;  // elements (the view's) beyond the base's own storage offset
    std::optional<Reading> reading;
    // Which of sizes, strides and the offset, in this order, are the program's outputs of these numbers (SymInts); else numbers.
    std::vector<bool> outputs;
  };
  // Runs the graph by ATen alone, for a reason (NULL: a check failed). It has the last word when a compiled check fails (so the error
  // is eager's), a word where the calling thread computes otherwise than the program was made for, and, `lasting`, every word from the
  // run in which an operator's results turned out not to be what its fake kernel had said.
  using Rerun = std::function<Results(std::span<const Argument>, const char* reason, bool lasting)>;

  // Takes the calls whose inputs the executable refuses, of sizes, say, that its guards exclude; `why`: what was wanted and what came.
  using Refused = std::function<Results(std::span<const Argument>, const char* why)>;

  // Bytes from which giving an input's memory back before the run's end is worth counting references there.
  static constexpr size_t kMovableBytes = 64 * 1024;

  Callee() = default;
  // A copy to be changed before it takes this one's place. Its notes start anew.
  Callee(const Callee& other)
      : executable(other.executable),
        native(other.native),
        name(other.name),
        inputs(other.inputs),
        outputs(other.outputs),
        recipes(other.recipes),
        constants(other.constants),
        frozen(other.frozen),
        rerun(other.rerun),
        refused(other.refused),
        sizes(other.sizes),
        random(other.random),
        backward(other.backward) {}
  Callee& operator=(const Callee&) = delete;

  // arguments: one per input. Any thread, without the GIL (operators and `rerun` take it where they must). Throws c10::Error naming
  // what was wanted and what came, CheckFailed, or what an operator threw.
  Results Run(std::span<Argument> arguments);
  // By this program, whatever others there are for the call's sizes.
  Results RunThis(std::span<Argument> arguments);
  // Nothing, and the arguments as they were, if the program's checks refuse them or it runs by ATen now.
  std::optional<Results> RunIfTaken(std::span<Argument> arguments);
  // Run() for graphs of nothing but tensors.
  std::vector<at::Tensor> Run(std::span<const at::Tensor> inputs);

  std::shared_ptr<TenonExecutable> executable;
  bool native = false;
  std::string name;
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  std::vector<Recipe> recipes;  // empty: the program's outputs as they are
  std::vector<at::Tensor> constants;
  std::shared_ptr<FrozenValues> frozen;  // NULL: none
  Rerun rerun;
  Refused refused;                      // null: such a call is an error
  std::shared_ptr<SizePrograms> sizes;  // of a program for many sizes: those for some of them; NULL: none
  bool random = false;                  // draws numbers of ATen's generator
  bool backward = false;                // its inputs are what a forward saved, maybe not as the fake kernels had it

  std::atomic<bool> proven = false;    // a run went through, so operators return what was compiled for
  std::atomic<bool> given_up = false;  // `rerun` takes every call
};

// Where callers find the callee: it is replaced as a whole, and a call that has begun ends with the one that it began with.
using CalleeCell = std::atomic<std::shared_ptr<Callee>>;

}  // namespace tenon::torch_host
