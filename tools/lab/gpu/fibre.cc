#include "tools/lab/gpu/fibre.h"

#include <sys/mman.h>

#include "hlo/check.h"

#if defined(__SANITIZE_ADDRESS__)
#include <pthread.h>
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

extern "C" void tenon_emulator_switch(void** save, void* to);
extern "C" void tenon_emulator_begin();

// rdi: where the old stack pointer goes; rsi: the new one.
asm(R"(
.text
.p2align 4
.type tenon_emulator_switch, @function
tenon_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  subq $8, %rsp
  stmxcsr (%rsp)
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  ldmxcsr (%rsp)
  addq $8, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size tenon_emulator_switch, .-tenon_emulator_switch
.p2align 4
.type tenon_emulator_begin, @function
tenon_emulator_begin:
  xorl %ebp, %ebp
  subq $8, %rsp
  callq *%rbx
  ud2
.size tenon_emulator_begin, .-tenon_emulator_begin
)");

namespace tenon::gpu {
namespace {

constexpr size_t kPage = 4096;
constexpr uint64_t kMxcsr = 0x1f80;  // round to nearest, denormals as they are, nothing traps

}  // namespace

void SwitchContext(Context& from, Context& to) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.fake_stack, to.bottom, to.size);
  tenon_emulator_switch(&from.stack_pointer, to.stack_pointer);
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#else
  tenon_emulator_switch(&from.stack_pointer, to.stack_pointer);
#endif
}

void BeginOnFibre() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

Context OwnContext() {
  Context own;
#if defined(__SANITIZE_ADDRESS__)
  pthread_attr_t attributes;
  void* bottom = nullptr;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &bottom, &own.size);
  pthread_attr_destroy(&attributes);
  own.bottom = static_cast<const char*>(bottom);
#endif
  return own;
}

Stacks::~Stacks() {
  for (char* stack : stacks_) munmap(stack - kPage, kSize + kPage);
}

void Stacks::Prepare(size_t k, void (*entry)(), Context* context) {
  while (stacks_.size() <= k) {
    void* memory = mmap(nullptr, kSize + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TENON_CHECK(memory != MAP_FAILED, "no memory for the stack of a fibre");
    TENON_CHECK(mprotect(memory, kPage, PROT_NONE) == 0, "no guard page below the stack of a fibre");
    stacks_.push_back(static_cast<char*>(memory) + kPage);
  }
  char* bottom = stacks_[k];
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(bottom, kSize);  // what the stack's last user left when it was given up
#endif
  // Tops at different offsets of their pages: the threads of a block would else meet in the same few lines of the cache.
  auto* top = reinterpret_cast<uint64_t*>(bottom + kSize - k % 32 * 128);
  *--top = 0;
  *--top = reinterpret_cast<uint64_t>(&tenon_emulator_begin);
  *--top = 0;                                  // rbp
  *--top = reinterpret_cast<uint64_t>(entry);  // rbx
  for (int r = 12; r <= 15; ++r) *--top = 0;
  *--top = kMxcsr;
  *context = {top, bottom, kSize, nullptr};
}

}  // namespace tenon::gpu
