#include "runtime/profile/recorder.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#include "runtime/clock.h"
#include "runtime/execute/step_work.h"
#include "runtime/fork.h"

namespace tenon {
namespace {

// Of the recording under way. Never destroyed.
struct State {
  std::mutex mutex;
  std::unique_ptr<Profile> profile;
  std::map<uint64_t, int32_t> programs;  // RunCounters::id -> index in Profile::programs
  size_t max_events = 0;
  int64_t active = 0;  // runs under way
  uint64_t busy_since = 0;  // while there are any
  uint64_t counted_until = 0;  // the end of the time that is in Profile::inside, or the recording's beginning
  uint64_t last = 0;  // number of the newest recording
};
State& TheState() {
  static State* state = new State;
  return *state;
}

bool IsControl(const BoundStep& step) { return step.kind == BoundStep::Kind::kWhile || step.kind == BoundStep::Kind::kConditional; }

ProfiledProgram Describe(const BoundProgram& bound, const RunCounters& counters) {
  ProfiledProgram program{.name = counters.name.empty() ? bound.program.name : counters.name, .commit_region = bound.program.commit_region};
  for (const Region& region : bound.program.regions) program.region_names.push_back(region.name);
  program.regions.resize(bound.regions.size());
  for (size_t r = 0; r < bound.regions.size(); ++r) {
    for (const BoundStep& step : bound.regions[r]) {
      const StepWork work = WorkOf(*step.step);
      ProfiledStep row{.described = DescribeStep(bound, step), .region = static_cast<int32_t>(r), .bytes = work.bytes, .flops = work.flops,
                       .f64 = work.f64, .control = IsControl(step)};
      const auto* kernel = std::get_if<KernelStep>(&step.step->body);
      if (kernel != nullptr) row.described["op"] = bound.program.kernels[kernel->kernel].symbol;
      program.steps.push_back(std::move(row));
    }
  }
  return program;
}

void Merge(State& state, const BoundProgram& bound, const RunCounters& counters, const RunTrace* trace, uint64_t begin, uint64_t end) {
  Profile& profile = *state.profile;
  auto known = state.programs.find(counters.id);
  if (known == state.programs.end()) {
    ProfiledProgram described = Describe(bound, counters);
    profile.programs.reserve(profile.programs.size() + 1);  // from here on nothing fails by halves
    known = state.programs.emplace(counters.id, static_cast<int32_t>(profile.programs.size())).first;
    profile.programs.push_back(std::move(described));
  }
  ProfiledProgram& program = profile.programs[known->second];
  ++program.calls;
  program.ticks += end - begin;
  const auto add = [&](const TraceEvent& event) {
    if (profile.events.size() < state.max_events) {
      profile.events.push_back({known->second, event});
    } else {
      ++profile.dropped;
    }
  };
  add({TraceEvent::Kind::kCall, -1, ThreadNumber(), begin, end});
  if (trace == nullptr) return;
  profile.dropped += trace->dropped;
  for (size_t r = 0; r < trace->regions.size(); ++r) program.regions[r] += trace->regions[r];
  for (size_t k = 0; k < trace->steps.size(); ++k) {
    const StepTotals& from = trace->steps[k];
    StepTotals& to = program.steps[k].totals;
    to.count += from.count, to.ticks += from.ticks, to.pieces += from.pieces, to.busy += from.busy;
  }
  for (const TraceEvent& event : trace->events) add(event);
}

}  // namespace

std::atomic<uint64_t> Recorder::current{0};

absl::Status Recorder::Start(int64_t max_events) {
  if (max_events < 0) return absl::InvalidArgumentError("a profile keeps 0 events or more");
  InstallForkHandlers();
  auto profile = std::make_unique<Profile>();
  profile->events.reserve(static_cast<size_t>(max_events));
  State& state = TheState();
  std::lock_guard lock(state.mutex);
  if (state.profile != nullptr) {
    return absl::FailedPreconditionError("a profile is being recorded already; there is one at a time in a process");
  }
  state.programs.clear();
  state.max_events = static_cast<size_t>(max_events);
  state.active = 0;
  profile->begin = state.counted_until = Ticks();
  state.profile = std::move(profile);
  current.store(++state.last, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Profile>> Recorder::Stop() {
  State& state = TheState();
  std::lock_guard lock(state.mutex);
  if (state.profile == nullptr) return absl::FailedPreconditionError("no profile is being recorded");
  current.store(0, std::memory_order_relaxed);
  Profile& profile = *state.profile;
  profile.end = Ticks();
  profile.ns_per_tick = TicksToNs(uint64_t{1} << 32) / 0x1p32;
  profile.unfinished = state.active;
  if (state.active > 0) profile.inside += profile.end - state.busy_since;
  return std::move(state.profile);
}

uint64_t Recorder::BeginRecordedCall(uint64_t now) {
  State& state = TheState();
  std::lock_guard lock(state.mutex);
  if (state.profile == nullptr) return 0;
  // A call may have waited for the lock while others came and went, whose time has been counted.
  if (state.active++ == 0) state.busy_since = std::max(now, state.counted_until);
  return state.last;
}

void Recorder::EndCall(uint64_t recording, const BoundProgram& bound, const RunCounters& counters, const RunTrace* trace, uint64_t begin,
                       uint64_t end) noexcept {
  State& state = TheState();
  std::lock_guard lock(state.mutex);
  if (state.profile == nullptr || state.last != recording) return;
  if (--state.active == 0) {
    state.profile->inside += end - std::min(end, state.busy_since);
    state.counted_until = std::max(end, state.busy_since);
  }
  try {
    Merge(state, bound, counters, trace, begin, end);
  } catch (const std::bad_alloc&) {
    state.profile->dropped += 1 + (trace == nullptr ? 0 : trace->events.size());
  }
}

void Recorder::Lock() { TheState().mutex.lock(); }
void Recorder::Unlock(bool in_child) {
  State& state = TheState();
  if (in_child) {
    current.store(0, std::memory_order_relaxed);
    state.profile.reset();
  }
  state.mutex.unlock();
}

}  // namespace tenon
