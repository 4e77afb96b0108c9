#include "runtime/profile/run_trace.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace tenon {

void RunTrace::Begin(size_t num_steps, size_t num_regions) {
  events.clear();
  dropped = 0;
  steps.assign(num_steps, {});
  regions.assign(num_regions, 0);
}

void RunTrace::AddStep(int32_t step, uint64_t begin, uint64_t end) {
  StepTotals& totals = steps[step];
  ++totals.count;
  totals.ticks += end - begin;
  Add(TraceEvent::Kind::kStep, step, ThreadNumber(), begin, end);
}

PieceTime* RunTrace::Pieces(int64_t count) {
  pieces.assign(static_cast<size_t>(count), {});
  return pieces.data();
}

uint64_t RunTrace::AddPieces(int32_t first) {
  uint64_t busy = 0;
  for (const PieceTime& p : pieces) {
    if (p.end == 0) continue;
    StepTotals& totals = steps[first + p.member];
    ++totals.pieces;
    totals.busy += p.end - p.begin;
    busy += p.end - p.begin;
    Add(TraceEvent::Kind::kPiece, first + p.member, p.thread, p.begin, p.end);
  }
  return busy;
}

void RunTrace::AddLaunch(int32_t first, int32_t count, uint64_t begin, uint64_t end) {
  const double busy = static_cast<double>(std::max<uint64_t>(AddPieces(first), 1)), wall = static_cast<double>(end - begin);
  for (const PieceTime& p : pieces) {
    if (p.end == 0) continue;
    steps[first + p.member].ticks += static_cast<uint64_t>(wall * static_cast<double>(p.end - p.begin) / busy);
  }
  for (int32_t step = first; step < first + count; ++step) ++steps[step].count;
  Add(TraceEvent::Kind::kLaunch, first, ThreadNumber(), begin, end);
}

int32_t ThreadNumber() {
  thread_local const auto number = static_cast<int32_t>(syscall(SYS_gettid));
  return number;
}

}  // namespace tenon
