// RunTrace: what one run did, for profiles. It lies in the run's frame, so from the second profiled run on its memory is there. The thread
// that calls writes it; threads that compute pieces write into places of their own, which it reads once they are done.
// All times are ticks of runtime/clock.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tenon {

struct TraceEvent {
  enum class Kind : int32_t {
    kCall,    // a whole run
    kStep,    // what a region waited for a step
    kLaunch,  // of a launch group; `step` is its first
    kPiece,   // a part of a kernel; one that is in one piece has none
  } kind;
  int32_t step;    // BoundStep::counter; -1 of a call
  int32_t thread;  // ThreadNumber()
  uint64_t begin, end;
};
inline constexpr size_t kMaxTraceEvents = 20000;  // of one run: loops may make any number

// Of one step of a program. `busy`: the time of its pieces on all threads together.
struct StepTotals {
  uint64_t count = 0, ticks = 0, pieces = 0, busy = 0;
};

// A piece where it ran. end 0: there was none.
struct PieceTime {
  int32_t thread, member;  // member: of a launch group, else 0
  uint64_t begin, end;
};

struct RunTrace {
  std::vector<TraceEvent> events;  // at most kMaxTraceEvents
  uint64_t dropped = 0;            // events beyond them; totals know all
  std::vector<StepTotals> steps;   // by BoundStep::counter
  std::vector<uint64_t> regions;   // how often each ran
  std::vector<PieceTime> pieces;   // of the launch under way

  void Begin(size_t num_steps, size_t num_regions);
  void Add(TraceEvent::Kind kind, int32_t step, int32_t thread, uint64_t begin, uint64_t end) {
    if (events.size() < kMaxTraceEvents) {
      events.push_back({kind, step, thread, begin, end});
    } else {
      ++dropped;
    }
  }
  void AddStep(int32_t step, uint64_t begin, uint64_t end);
  // A kernel in one piece, which is the step itself.
  void AddOnlyPiece(int32_t step, uint64_t ticks) {
    ++steps[step].pieces;
    steps[step].busy += ticks;
  }
  // Places for the pieces of the next launch.
  PieceTime* Pieces(int64_t count);
  // What is in `pieces`, of the kernel `first` or of the launch group that begins with it. Returns the ticks of all together.
  uint64_t AddPieces(int32_t first);
  // A launch group of `count` steps from `first` on. Its time is shared out as its members had its threads.
  void AddLaunch(int32_t first, int32_t count, uint64_t begin, uint64_t end);
};

// Of the calling thread, as the operating system counts threads.
int32_t ThreadNumber();

}  // namespace tenon
