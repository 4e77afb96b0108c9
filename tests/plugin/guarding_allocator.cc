// Under PyTorch's CPU tensors in tests: memory that faults when it is touched outside (runtime/guarded_memory.h). A library of its
// own, loaded by tests/conftest.py where TENON_GUARD asks for it; nothing that ships has any of this.
#include <c10/core/CPUAllocator.h>

#include "runtime/guarded_memory.h"

namespace {

using tenon::GuardOfEnvironment;

void Delete(void* memory) { tenon::GuardedFree(memory); }

struct GuardingAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = bytes == 0 ? nullptr : tenon::GuardedAllocate(bytes, GuardOfEnvironment());
    TORCH_CHECK(bytes == 0 || memory != nullptr, "out of guarded memory: wanted ", bytes, " bytes");
    return {memory, memory, &Delete, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Delete; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

}  // namespace

// Every CPU tensor made from here on. Before tenon has allocated anything: what it gets it gives back to the allocator of the day.
extern "C" __attribute__((visibility("default"))) void tenon_guard_tensors() {
  static GuardingAllocator allocator;
  if (GuardOfEnvironment() != tenon::MemoryGuard::kOff) c10::SetCPUAllocator(&allocator, /*priority=*/100);
}
