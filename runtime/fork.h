// fork(): the child must be able to compile and run, whatever other threads of the parent were
// doing.
#pragma once

namespace tenon {

// Once per process, cheap to repeat: pthread_atfork handlers that hold this library's locks (frame
// pools, caches, the thread pool) across the fork, so that the child finds them free, and forget
// the workers it doesn't have.
void InstallForkHandlers();

}  // namespace tenon
