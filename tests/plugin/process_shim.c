// What tests of a process need and Python can't do: preloaded, or loaded with ctypes.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

// ---- threads that can't be had (preloaded): of the calls that pass first, `count` fail from number `first` on.
static atomic_long calls, fail_from = -1, fail_to = -1;
void shim_refuse_threads(long first, long count) {
  calls = 0;
  fail_from = first;
  fail_to = first + count;
}
long shim_thread_calls(void) { return calls; }

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*), void* arg) {
  static int (*real)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  if (real == NULL) real = (int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*))dlsym(RTLD_NEXT, "pthread_create");
  const long call = atomic_fetch_add(&calls, 1);
  if (fail_from >= 0 && call >= fail_from && call < fail_to) return EAGAIN;
  return real(thread, attributes, start, arg);
}

// ---- a program that lives with page faults of its own, as collectors and databases do.
static char* page;
static atomic_long faults;
static void OnFault(int signal, siginfo_t* info, void* context) {
  (void)context;
  if (signal == SIGSEGV && (char*)info->si_addr == page && info->si_code == SEGV_ACCERR) {
    atomic_fetch_add(&faults, 1);
    mprotect(page, 4096, PROT_READ | PROT_WRITE);  // and the access is made again
  } else {
    struct sigaction standard;
    memset(&standard, 0, sizeof standard);
    standard.sa_handler = SIG_DFL;
    sigaction(signal, &standard, NULL);
  }
}
// Faults `count` times; returns how many of them the handler saw.
long shim_fault(long count) {
  if (page == NULL) {
    page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = OnFault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, NULL);
  }
  const long before = faults;
  for (long k = 0; k < count; ++k) {
    mprotect(page, 4096, PROT_NONE);
    *(volatile char*)page = 1;
  }
  return faults - before;
}
// 1: SIGSEGV's handler is still ours.
int shim_handler_is_ours(void) {
  struct sigaction now;
  sigaction(SIGSEGV, NULL, &now);
  return (now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == OnFault;
}
