// The fake libcuda.so.1 (fake/fake_libcuda.cc) for tests: what it is told, and what it tells.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "hlo/check.h"

namespace tenon::gpu {

// Set while it lives; then not set.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
  ~Environment() { unsetenv(name_); }
  Environment(const Environment&) = delete;

 private:
  const char* name_;
};

// "cuMemAlloc_v2:2", see the library.
class Fail : public Environment {
 public:
  explicit Fail(const std::string& what) : Environment("TENON_FAKE_CUDA_FAIL", what) {}
};

template <typename Function>
Function FakeFunction(const char* name) {
  void* library = dlopen(TENON_FAKE_LIBCUDA, RTLD_NOW | RTLD_LOCAL);
  TENON_CHECK(library != nullptr, dlerror());
  return reinterpret_cast<Function>(dlsym(library, name));
}

// A device that has failed works again.
inline void ResetFake() { FakeFunction<int (*)()>("FakeCudaReset")(); }

struct Live {
  int64_t allocations = 0, modules = 0, events = 0;
  bool operator==(const Live&) const = default;
};
inline Live LiveOfFake() {
  Live live;
  FakeFunction<int (*)(int64_t*, int64_t*, int64_t*)>("FakeCudaLive")(&live.allocations, &live.modules, &live.events);
  return live;
}

}  // namespace tenon::gpu
