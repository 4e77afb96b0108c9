// Launch groups: consecutive kernels of a region that pass nothing to each other, each too small for a launch of its own, run in one
// launch of the host's threads. An optimizer step over many small parameters is what they are for: its kernels have one piece each, so
// alone they would use one thread, and no barrier between them is needed.
//
// The work of a group is that of its kernels in a row, counted in parts of their grains. It is cut evenly, wherever that falls: a kernel's
// result does not depend on where its range is cut (runtime/kernel_abi.h). Sizes that are expressions are known in each call: a kernel
// that is large then has a launch of its own, between those of the kernels before and behind it. So have kernels with scratch, where only
// then there is room for it and it is much beside the arena.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "runtime/kernel_abi.h"
#include "runtime/profile/run_trace.h"
#include "runtime/program/program.h"

namespace tenon {

inline constexpr int64_t kWorkPerGrain = 256;
inline constexpr int64_t kMuchScratch = 64;  // the part of the arena that is worth a launch
inline constexpr int64_t kLargestMember = 32 * kWorkPerGrain;  // beyond it, a launch of its own costs nothing beside the work

// Of a range of `size`, 0 and more: 0 of nothing. More than kLargestMember is kLargestMember + 1.
int64_t WorkOf(int64_t size, int64_t grain);

struct LaunchGroup {
  static constexpr int64_t kOfSizes = -1;
  // Values of the kernels `earlier` and `later`, one of which writes its value, that calls place (Value::life) and that may share memory
  // then, as they are not alive together. Where they do, another launch begins with `later`.
  struct MayMeet {
    int32_t earlier, later, of_earlier, of_later;
  };
  int32_t first = 0, count = 0;    // steps of the region
  std::vector<int64_t> work;       // per kernel; kOfSizes: its range or its grain is an expression
  std::vector<MayMeet> may_meet;   // in the order of `later`
  FreeMemory room;                 // for the scratch of all of them side by side
  int64_t scratch_bytes = 0;       // for each thread, of any of them
  int32_t threads_apart = 0;       // at most, for whose scratch each kernel's own room would do, if those with scratch ran one by one
};

// The groups of `region`, in order and disjoint: at least two steps each, with work for two threads as far as it is known.
std::vector<LaunchGroup> FindLaunchGroups(const Program& program, const Region& region);

// A kernel of a group as it is about to run.
struct GroupedKernel {
  KernelFn function;
  void* const* pointers;
  const int64_t* args;
  int64_t begin, end;
};
// Piece `piece` of `pieces` of the kernels' work. `work_ends`, per kernel: its work and that of those before it. `times`, if not null:
// TimesOf(kernels.size(), pieces) places, the same for all pieces; each writes to its own.
void RunPiece(absl::Span<const GroupedKernel> kernels, absl::Span<const int64_t> work_ends, int64_t piece, int64_t pieces, char* scratch,
              PieceTime* times = nullptr);
// Piece k writes what it did of kernel j to place j + k: pieces go on where the one before ended, so no two meet.
inline int64_t TimesOf(size_t kernels, int64_t pieces) { return static_cast<int64_t>(kernels) + pieces; }

}  // namespace tenon
