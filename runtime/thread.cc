#include "runtime/thread.h"

#include <pthread.h>
#include <signal.h>

#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tenon {
namespace {

void* Enter(void* body) {
  (*std::unique_ptr<std::function<void()>>(static_cast<std::function<void()>*>(body)))();
  return nullptr;
}

sigset_t AllButFaults() {
  sigset_t set;
  sigfillset(&set);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&set, fault);
  return set;
}

}  // namespace

absl::Status StartThread(std::function<void()> body, size_t stack_bytes) {
  auto owned = std::make_unique<std::function<void()>>(std::move(body));
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  if (stack_bytes != 0) pthread_attr_setstacksize(&attributes, stack_bytes);
  // A thread inherits its maker's mask.
  const sigset_t masked = AllButFaults();
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, &masked, &before);
  pthread_t thread;
  const int error = pthread_create(&thread, &attributes, Enter, owned.get());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (error != 0) return absl::ResourceExhaustedError(absl::StrCat("no thread to be had: ", strerror(error)));
  (void)owned.release();  // the thread's now
  return absl::OkStatus();
}

}  // namespace tenon
