// A host with counted, failing allocations and a few operators; a loader of C++ kernels; shorthand
// for programs built by hand.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/execute/executable.h"

namespace tenon::testing {

// A framework tensor of f32, as the operators below make them.
struct FakeTensor {
  std::atomic<int> references{1};
  std::vector<int64_t> sizes, strides;
  std::vector<float> storage;
  float* data = nullptr;  // into storage, or elsewhere for views
};

// Operators: "test.add" (a + b; owned or out), "test.view" (aliases its operand's memory),
// "test.fail", "test.unknown" (not resolved).
class FakeHost {
 public:
  FakeHost();
  const TenonHost* get() const { return &host_; }

  // The n-th allocation from now (0: the next) fails; -1: none.
  void FailAllocation(int64_t n) { fail_in_ = n; }
  void ThrowInCall(int64_t n) { throws_in_ = n; }  // std::bad_alloc, in the n-th call of an op from now; -1: in none
  void FailNextClone() { clone_fails_ = true; }
  int64_t live_bytes() const { return live_bytes_; }
  int64_t allocations() const { return allocations_; }
  int64_t live_tensors() const { return live_tensors_; }
  int64_t live_ops() const { return live_ops_; }
  int64_t live_wrappers() const { return live_wrappers_; }
  int64_t whole_operands() const {
    return whole_operands_;
  }  // operands that came as framework tensors
  int64_t clones() const { return clones_; }
  bool clean() const {
    return live_bytes_ == 0 && live_tensors_ == 0 && live_ops_ == 0 && live_wrappers_ == 0;
  }

  FakeTensor* NewTensor(std::vector<int64_t> sizes, float value);
  TenonTensor Handle(FakeTensor* tensor);  // does not count a reference

 private:
  struct Op {
    std::string name;
    int32_t rule, operands;
  };
  static FakeHost& Self(void* context) { return *static_cast<FakeHost*>(context); }
  static void* Allocate(void* context, size_t bytes);
  static void Deallocate(void* context, void* memory, size_t bytes);
  static void* Prepare(void* context, const TenonOpSpec* spec, char** error);
  static void ReleaseOp(void* context, void* op);
  static int Call(void* context, TenonOpCall* call);
  static void Release(void* context, void* tensor);
  static void Retain(void* context, void* tensor);
  static int Clone(void* context, TenonTensor* tensor);
  static void ReleaseWrapper(void* context, void* wrapper);
  bool Fails() { return fail_in_ >= 0 && fail_in_-- == 0; }

  TenonHost host_;
  bool clone_fails_ = false;
  int64_t throws_in_ = -1;
  std::atomic<int64_t> fail_in_{-1}, live_bytes_{0}, allocations_{0}, live_tensors_{0},
      live_ops_{0}, live_wrappers_{0}, whole_operands_{0}, clones_{0};
};

// Kernels by symbol: add_one (out = in + 1), scale (out = in * literal), row_sum (scratch user),
// check_negative (pointers: in, error word; check id in the first literal), decrement (s32 in
// place), positive (pred = s32 > 0).
CodeLoader* FakeLoader();

// The default host with so many threads, each of which runs a piece. One number of threads in the process.
TenonHost ThreadedHost(int threads);

// Building programs.
View MakeView(int32_t value, PrimitiveType dtype, std::vector<int64_t> dims,
              int64_t byte_offset = 0);
int32_t AddValue(Program& p, ValueKind kind, int64_t index, int64_t bytes, int64_t offset = 0);
int32_t AddInput(Program& p, PrimitiveType dtype, std::vector<int64_t> dims);   // -> value
int32_t AddOutput(Program& p, PrimitiveType dtype, std::vector<int64_t> dims);  // fresh -> value
int32_t AddKernel(Program& p, const std::string& symbol, int64_t scratch_bytes = 0);
Step KernelCall(int32_t kernel, std::vector<View> operands, int64_t range, int64_t grain = 1 << 30);
Step FrameworkCall(const std::string& op, std::vector<View> operands, View result, ResultRule rule);

// Caller's memory.
struct Array {
  explicit Array(std::vector<int64_t> dims, float value = 0);
  TenonTensor tensor();
  std::vector<int64_t> sizes, strides;
  std::vector<float> data;
};

}  // namespace tenon::testing
