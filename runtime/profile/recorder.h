// Recorder: collects what all threads run between Start and Stop. There is one in the process. Without it a run costs one load; with it a
// lock at its begin and its end. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "runtime/execute/bound_program.h"
#include "runtime/execute/stats.h"
#include "runtime/profile/profile.h"

namespace tenon {

class Recorder {
 public:
  // Errors: one is being recorded (kFailedPrecondition); room for less than no events.
  static absl::Status Start(int64_t max_events);
  // Error: none is being recorded.
  static absl::StatusOr<std::unique_ptr<Profile>> Stop();

  // Around a run. 0: nobody records, and EndCall need not be called.
  static uint64_t BeginCall(uint64_t now) { return current.load(std::memory_order_relaxed) == 0 ? 0 : BeginRecordedCall(now); }
  // `recording`: what BeginCall said. The run counts if that is still going on. trace: null if there was no frame to run in.
  // Where memory lacks, the run is missing in the profile, as events that were dropped.
  static void EndCall(uint64_t recording, const BoundProgram& bound, const RunCounters& counters, const RunTrace* trace, uint64_t begin,
                      uint64_t end) noexcept;

  // Around fork(). A child records nothing.
  static void Lock();
  static void Unlock(bool in_child);

 private:
  static uint64_t BeginRecordedCall(uint64_t now);
  static std::atomic<uint64_t> current;  // number of the recording; 0: none
};

}  // namespace tenon
