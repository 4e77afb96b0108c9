// fork(): the child must be able to compile and run, whatever other threads of the parent were
// doing.
#pragma once

#include <cstdint>
#include <functional>

namespace tenon {

// Once per process, cheap to repeat: pthread_atfork handlers that hold this library's locks (frame
// pools, caches, the thread pool) across the fork, so that the child finds them free, and forget
// the workers it doesn't have. First they wait until no other thread is inside a ForkSection, at
// most five seconds.
//
// These locks are std::mutex, which is a word of memory to a child. An absl::Mutex has a queue of those who wait; a child would wake
// threads that it doesn't have, on stacks that it has given to others, or wait for one of them to wake its own.
void InstallForkHandlers();

// A stretch of work that a fork of another thread must not cut: it holds locks that no handler can
// take, LLVM's own above all, and what another thread holds at the fork stays locked in the child
// for ever. While a fork waits, opening a section waits for that fork. Sections of one thread nest;
// one must not be kept open while waiting for another thread's section, nor for Python's lock.
class ForkSection {
 public:
  ForkSection();
  ~ForkSection();
  ForkSection(const ForkSection&) = delete;

  // Lets a waiting fork go first. To be called where nothing is locked, every second or so.
  // `meanwhile` runs outside of the section.
  void Yield(const std::function<void()>& meanwhile = nullptr);

  // The sections of this thread, which never comes back to close them, count no more.
  static void Abandon();
};

// How many forks lie between this process and the one that loaded the library: a thread that
// another process started isn't to be waited for.
int64_t ForkGeneration();

// This process or one before it was forked while another thread's section stayed open for longer
// than the fork waited: what that thread had locked may be locked for ever.
bool ForkedInsideSection();

}  // namespace tenon
