// Tells ThreadSanitizer about absl::Mutex. Debian's libabsl_synchronization is not instrumented, so
// without this every value guarded by a Mutex looks like a race. Defined in the test binary, or in a library that is preloaded, these
// functions come before the library's in symbol lookup, libtenon.so's too; each calls the real one.

#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <cstdio>
#include <cstdlib>

#pragma GCC visibility push(default)
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#pragma GCC visibility pop

namespace absl {
ABSL_NAMESPACE_BEGIN
namespace {

// `name` is what follows the namespace in the mangled symbol, `qualifier` is K for a const
// function.
void* Real(const char* name, const char* qualifier = "") {
  constexpr char kInline[] = ABSL_INTERNAL_INLINE_NAMESPACE_STR;  // "debian3"
  char symbol[128];
  snprintf(symbol, sizeof(symbol), "_ZN%s4absl%zu%s%s", qualifier, sizeof(kInline) - 1, kInline,
           name);
  void* function = dlsym(RTLD_NEXT, symbol);
  if (function == nullptr) {
    fprintf(stderr, "tsan_mutex.cc: no %s in this Abseil\n", symbol);
    abort();
  }
  return function;
}

template <typename Result, typename... Args>
Result Call(void* function, Args... args) {
  return reinterpret_cast<Result (*)(Args...)>(function)(args...);
}

}  // namespace

void Mutex::Lock() {
  static void* const real = Real("5Mutex4LockEv");
  Call<void>(real, this);
  __tsan_acquire(this);
}

void Mutex::Unlock() {
  static void* const real = Real("5Mutex6UnlockEv");
  __tsan_release(this);
  Call<void>(real, this);
}

bool Mutex::TryLock() {
  static void* const real = Real("5Mutex7TryLockEv");
  const bool locked = Call<bool>(real, this);
  if (locked) __tsan_acquire(this);
  return locked;
}

void Mutex::ReaderLock() {
  static void* const real = Real("5Mutex10ReaderLockEv");
  Call<void>(real, this);
  __tsan_acquire(this);
}

void Mutex::ReaderUnlock() {
  static void* const real = Real("5Mutex12ReaderUnlockEv");
  __tsan_release(this);
  Call<void>(real, this);
}

void Mutex::LockWhen(const Condition& condition) {
  static void* const real = Real("5Mutex8LockWhenERKNS0_9ConditionE");
  Call<void>(real, this, &condition);
  __tsan_acquire(this);
}

void Mutex::Await(const Condition& condition) {
  static void* const real = Real("5Mutex5AwaitERKNS0_9ConditionE");
  __tsan_release(this);
  Call<void>(real, this, &condition);
  __tsan_acquire(this);
}

void CondVar::Wait(Mutex* mutex) {
  static void* const real = Real("7CondVar4WaitEPNS0_5MutexE");
  __tsan_release(mutex);
  Call<void>(real, this, mutex);
  __tsan_acquire(mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  static void* const real = Real("7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE");
  __tsan_release(mutex);
  const bool timed_out = Call<bool>(real, this, mutex, timeout);
  __tsan_acquire(mutex);
  return timed_out;
}

// These two look at an atomic of their own before they take their mutex.
void Notification::Notify() {
  static void* const real = Real("12Notification6NotifyEv");
  __tsan_release(this);
  Call<void>(real, this);
}

void Notification::WaitForNotification() const {
  static void* const real = Real("12Notification19WaitForNotificationEv", "K");
  Call<void>(real, this);
  __tsan_acquire(const_cast<Notification*>(this));
}

bool BlockingCounter::DecrementCount() {
  static void* const real = Real("15BlockingCounter14DecrementCountEv");
  __tsan_release(this);
  return Call<bool>(real, this);
}

void BlockingCounter::Wait() {
  static void* const real = Real("15BlockingCounter4WaitEv");
  Call<void>(real, this);
  __tsan_acquire(this);
}

ABSL_NAMESPACE_END
}  // namespace absl
