// A C++ program's calls of a compiled graph (torch_plugin/executor/tensor_function.h), for test_cpp_caller.py: several threads, no Python.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "torch_plugin/executor/tensor_function.h"

using tenon::torch_host::TensorFunction;

namespace {

// (x, w) -> tanh(x w), x + 1
std::string Check(const TensorFunction& function) {
  const std::vector<at::Tensor> inputs = {at::randn({8, 16}), at::randn({16, 4})};
  const std::vector<at::Tensor> outputs = function(inputs);
  if (outputs.size() != 2) return "wanted 2 outputs, got " + std::to_string(outputs.size());
  if (!at::allclose(outputs[0], at::tanh(at::mm(inputs[0], inputs[1])), 1e-4, 1e-5)) return "tanh(x w) is wrong";
  if (!at::equal(outputs[1], inputs[0] + 1)) return "x + 1 is wrong";
  if (outputs[0].requires_grad() || inputs[0].use_count() != 1) return "the call kept something";
  return "";
}

std::string CheckRefusals(const TensorFunction& function) {
  const std::vector<at::Tensor> few = {at::randn({8, 16})}, other = {at::randn({8, 16}), at::randn({16, 5})};
  for (const std::vector<at::Tensor>* inputs : {&few, &other}) {
    try {
      function(*inputs);
      return "wrong inputs were taken";
    } catch (const c10::Error& error) {
      if (std::strstr(error.what(), "wanted") == nullptr && std::strstr(error.what(), "compiled for") == nullptr) return error.what();
    }
  }
  return "";
}

}  // namespace

// What is wrong, into `said`, or "".
extern "C" __attribute__((visibility("default"))) void tenon_test_call(const TensorFunction* given, int threads, char* said, size_t room) {
  std::string problem;
  {
    const TensorFunction function = *given;  // ours now
    std::vector<std::string> problems(threads);
    std::vector<std::thread> running;
    for (int t = 0; t < threads; ++t) {
      running.emplace_back([&function, &mine = problems[t]] {
        for (int k = 0; k < 50 && mine.empty(); ++k) mine = Check(function);
      });
    }
    for (std::thread& thread : running) thread.join();
    for (const std::string& mine : problems) problem = problem.empty() ? mine : problem;
    if (problem.empty()) problem = CheckRefusals(function);
  }
  std::strncpy(said, problem.c_str(), room - 1);
}
