// Kernels as text, and arrays in the emulated memory, for the tests of this folder.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "hlo/check.h"
#include "tools/lab/gpu/emulated_memory.h"
#include "tools/lab/gpu/emulator.h"

namespace tenon::gpu {

// A module of these functions and globals, with the intrinsics that the tests use declared.
std::string ModuleOf(const std::string& text);
std::shared_ptr<EmulatedModule> MustLoad(const std::string& text);

// Seeds that every right kernel must give its result under.
inline constexpr uint64_t kSeeds[] = {0, 1, 2, 3};

template <typename T>
class Array {
 public:
  // Uninitialised.
  explicit Array(size_t n) : n_(n), data_(TheEmulatedMemory().Allocate(n * sizeof(T))) { TENON_CHECK(data_ != nullptr); }
  explicit Array(const std::vector<T>& values) : Array(values.size()) { Set(values); }
  ~Array() { Free(); }
  Array(const Array&) = delete;

  void Set(const std::vector<T>& values) {
    const absl::Status s = TheEmulatedMemory().Write(data_, values.data(), values.size() * sizeof(T));
    TENON_CHECK(s.ok(), s.ToString());
  }
  std::vector<T> Get() const {
    std::vector<T> values(n_);
    const absl::Status s = TheEmulatedMemory().Read(values.data(), data_, n_ * sizeof(T));
    TENON_CHECK(s.ok(), s.ToString());
    return values;
  }
  void Free() {
    if (!freed_) TheEmulatedMemory().Free(data_);
    freed_ = true;
  }
  void* data() const { return data_; }

 private:
  size_t n_;
  void* data_;
  bool freed_ = false;
};

// Parameters by value: pointers and integers.
class Params {
 public:
  template <typename... T>
  explicit Params(T... values) {
    (Add(values), ...);
  }
  std::vector<void*> pointers() {
    std::vector<void*> p;
    for (uint64_t& v : values_) p.push_back(&v);
    return p;
  }

 private:
  template <typename T>
  void Add(T value) {
    values_.push_back(0);
    static_assert(sizeof value <= 8);
    std::memcpy(&values_.back(), &value, sizeof value);
  }
  std::vector<uint64_t> values_;
};

template <typename... T>
absl::Status LaunchKernel(const EmulatedModule& module, const std::string& kernel, const LaunchConfig& config,
                          const EmulatorOptions& options, LaunchCounts* counts, T... values) {
  Params params(values...);
  return module.Launch(kernel, config, params.pointers(), options, counts);
}

testing::Matcher<absl::Status> Ok();
// The code, and what the message says.
testing::Matcher<absl::Status> Fails(absl::StatusCode code, const std::vector<std::string>& parts);

}  // namespace tenon::gpu
