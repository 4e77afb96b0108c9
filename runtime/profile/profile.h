// Profile: what was recorded of programs' runs, and how it reads: JSON, a table, a timeline.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hlo/json.h"
#include "runtime/profile/machine_roof.h"
#include "runtime/profile/run_trace.h"

namespace tenon {

struct ProfiledStep {
  Json described;  // DescribeStep's
  int32_t region = 0;
  int64_t bytes = 0, flops = 0;  // of one execution; 0: unknown
  bool f64 = false;              // computes in it, as far as its arrays tell
  bool control = false;          // runs regions, whose steps its time holds
  StepTotals totals;
};
struct ProfiledProgram {
  std::string name;
  uint64_t calls = 0, ticks = 0;  // whole runs
  int32_t commit_region = -1;
  std::vector<std::string> region_names;
  std::vector<uint64_t> regions;    // how often each ran
  std::vector<ProfiledStep> steps;  // by TraceEvent::step
};
struct ProfiledEvent {
  int32_t program;
  TraceEvent event;
};

struct Profile {
  uint64_t begin = 0, end = 0;  // of the recording
  double ns_per_tick = 1;
  uint64_t inside = 0;          // of them, ticks in which at least one program ran
  int64_t unfinished = 0;       // runs that went on after the end: not in here
  uint64_t dropped = 0;         // events for which there was no room; totals have them
  std::vector<ProfiledProgram> programs;
  std::vector<ProfiledEvent> events;

  double Ns(uint64_t ticks) const { return static_cast<double>(ticks) * ns_per_tick; }
  // {"wall_ns","inside_ns","unfinished","events","dropped","threads","roof":{"threads","f32_gflop_per_s","levels":[{"name","bytes",
  // "gb_per_s"}]},"programs":[{"name","calls","ns","regions":[{"name","runs"}],"steps":[DescribeStep's and {"region","step","count",
  // "ns","us","executions","pieces","busy_ns","share","gb_per_s","gflop_per_s","roof"}]}]}. Steps by region; `step` counts them in
  // theirs. us, executions: per call of the program; pieces: per execution; share: of the time in all programs, null of steps that run
  // regions; roof: share of what the machine could do, null where neither bytes nor flops are known.
  std::string JsonText(const MachineRoof& roof) const;
  // The dearest `rows` steps of each program (0: all), and the sum of the rest.
  std::string Table(const MachineRoof& roof, int64_t rows) const;
  // Chrome's trace events ("Trace Event Format"): calls, launches and steps on the threads that called, pieces on those that ran them.
  // Times in µs from the begin of the recording.
  std::string ChromeTrace() const;
};

}  // namespace tenon
