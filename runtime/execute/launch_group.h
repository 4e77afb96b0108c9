// Launch groups: consecutive kernels of a region that pass nothing to each other, each too small for a launch of its own, run in one
// launch of the host's threads. An optimizer step over many small parameters is what they are for: its kernels have one piece each, so
// alone they would use one thread, and no barrier between them is needed.
//
// The work of a group is that of its kernels in a row, counted in parts of their grains. It is cut evenly, wherever that falls: a kernel's
// result does not depend on where its range is cut (runtime/kernel_abi.h).
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/kernel_abi.h"
#include "runtime/profile/run_trace.h"
#include "runtime/program/program.h"

namespace tenon {

inline constexpr int64_t kWorkPerGrain = 256;

struct LaunchGroup {
  int32_t first = 0, count = 0;    // steps of the region
  std::vector<int64_t> work_ends;  // per kernel: its work and that of those before it
  int64_t work() const { return work_ends.back(); }
};

// The groups of `region`, in order and disjoint: at least two steps each, with work for two threads. All sizes in them are static.
std::vector<LaunchGroup> FindLaunchGroups(const Program& program, const Region& region);

// A kernel of a group as it is about to run.
struct GroupedKernel {
  KernelFn function;
  void* const* pointers;
  const int64_t* args;
  int64_t begin, end;
};
// Piece `piece` of `pieces` of the group's work. `kernels`: as many as the group has. `times`, if not null: TimesOf(group, pieces) places,
// the same for all pieces; each writes to its own.
void RunPiece(const LaunchGroup& group, const GroupedKernel* kernels, int64_t piece, int64_t pieces, char* scratch,
              PieceTime* times = nullptr);
// Piece k writes what it did of kernel j to place j + k: pieces go on where the one before ended, so no two meet.
inline int64_t TimesOf(const LaunchGroup& group, int64_t pieces) { return group.count + pieces; }

}  // namespace tenon
