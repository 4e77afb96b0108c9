// Values that a program takes as further inputs and that are computed once from inputs that stay as they are: the parameters of a model
// under the option "freeze".
//
// They are computed again for other tensors (modules that share a graph: each has its set) and for the same tensors once PyTorch has
// written to them, as their version counters tell. ATen's batch norm leaves those of its statistics alone: small vectors that need no
// gradient are compared by what is in them. What else is written behind PyTorch's back (.data, NumPy, other processes; tensors of
// inference mode have no counter) is not seen: Forget().
#pragma once

#include <ATen/core/Tensor.h>

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/tenon_c.h"

namespace tenon::torch_host {

class FrozenValues {
 public:
  struct Set {
    std::vector<TenonTensor> tensors;  // the values; of those that the host packs the tensor alone, without data

    struct Source {
      c10::Storage storage;  // kept, so that no other tensor comes to lie there
      const void* data;
      uint32_t version;
      std::string bytes;  // of a small vector without gradient
    };
    std::vector<Source> sources;  // per frozen input
    std::vector<at::Tensor> values;
  };

  // `once` is borrowed (tenon_executable_once), and so is `rows`, the signature's frozen ones. `inputs`: the frozen ones' numbers.
  FrozenValues(TenonExecutable* once, const TenonInput* rows, std::vector<size_t> inputs)
      : once_(once), rows_(rows), inputs_(std::move(inputs)) {}

  // The set for these inputs, computed if need be: once, whoever asks. TENON_OK, or tenon_run's code and *error. Without the GIL.
  int Get(const TenonTensor* inputs, std::shared_ptr<const Set>* set, char** error);
  // Computes everything again when next asked.
  void Forget();

  struct Account {
    int64_t values = 0, bytes = 0, sets = 0, computed = 0;  // per set, bytes of all sets' elements, sets at hand, runs so far
  };
  Account account();

 private:
  bool Fits(const Set& set, const TenonTensor* inputs) const;
  std::shared_ptr<const Set> Find(const TenonTensor* inputs);
  int Compute(const TenonTensor* inputs, Set* set, char** error) const;
  void Pack(size_t k, Set* set) const;  // a value that was computed, as the host keeps it

  TenonExecutable* once_;
  const TenonInput* rows_;
  const std::vector<size_t> inputs_;
  std::mutex mutex_, computing_;
  std::list<std::shared_ptr<const Set>> sets_;  // the last used first
  int64_t computed_ = 0;
};

}  // namespace tenon::torch_host
