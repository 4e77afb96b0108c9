// Fibres: stacks that one thread of the host switches between. x86-64 (System V) only. Of the emulator's own files only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tenon::gpu {

// Where something stopped: a fibre, or the code that started the first one.
struct Context {
  void* stack_pointer = nullptr;
  const char* bottom = nullptr;  // the stack's lowest byte; of the host's own stacks known to AddressSanitizer's builds only
  size_t size = 0;
  void* fake_stack = nullptr;  // AddressSanitizer's
};

// Saves what the caller must find again (callee-saved registers, mxcsr) in `from`, goes on where `to` stopped.
void SwitchContext(Context& from, Context& to);
// Of the calling thread of the host, before it switches to its first fibre.
Context OwnContext();
// The first thing that a fibre does.
void BeginOnFibre();

// Stacks of kSize bytes above a page that faults. They are made once and kept. One user at a time.
class Stacks {
 public:
  static constexpr size_t kSize = size_t{128} << 10;

  Stacks() = default;
  ~Stacks();
  Stacks(const Stacks&) = delete;
  // The k-th stack's context, which begins in `entry` when it is switched to. `entry` never returns.
  void Prepare(size_t k, void (*entry)(), Context* context);

 private:
  std::vector<char*> stacks_;  // lowest byte of each, above its guard page
};

}  // namespace tenon::gpu
