// Allocations that fail, of the thread that calls: a compile's own threads are LLVM's. This program's operator new is the process's.
// Two libraries know no exceptions, and what they allocate is left alone (docs/architecture/process.md): LLVM, and Abseil's hash tables.
#pragma once

#include <cstdint>

namespace seam {

// Of this thread's allocations from now on, the one of this number (from 1) fails, or all from it on.
void FailAllocation(int64_t number, bool and_all_later);
// No more. How many allocations there were.
int64_t StopFailing();

// To be called once before: it allocates.
void FindForeignCode();
// False where LLVM is linked statically, or symbols are stripped.
bool KnowsWhoAllocates();

// Nothing fails while it lives.
class Disarmed {
 public:
  Disarmed();
  ~Disarmed();
  Disarmed(const Disarmed&) = delete;
  Disarmed& operator=(const Disarmed&) = delete;

 private:
  const bool before_;
};

}  // namespace seam
