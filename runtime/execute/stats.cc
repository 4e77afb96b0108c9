#include "runtime/execute/stats.h"

#include <algorithm>

#include "runtime/clock.h"
#include "runtime/execute/step_work.h"

namespace tenon {
namespace {

uint64_t Read(Counter& counter, bool reset, double* ns) {
  const uint64_t count = counter.count.load(std::memory_order_relaxed);
  *ns = TicksToNs(counter.ticks.load(std::memory_order_relaxed));
  if (reset) counter.Reset();
  return count;
}

Json Row(const Step& step, Counter& counter, bool reset) {
  double ns = 0;
  const uint64_t count = Read(counter, reset, &ns);
  return {{"name", step.name},
          {"source", step.source},
          {"count", count},
          {"ns", static_cast<int64_t>(ns)}};
}

Json Meta(PrimitiveType dtype, const std::vector<SizeRef>& dims,
          const std::vector<SizeRef>& strides) {
  return {{"dtype", PrimitiveTypeName(dtype)}, {"dims", dims}, {"strides", strides}};
}

int64_t OutputBytes(const Program& p) {
  int64_t bytes = 0;
  for (const OutputSpec& out : p.outputs) {
    if (out.kind != OutputKind::kFresh || !IsStatic(out.dims)) continue;
    int64_t elements = 1;
    for (int64_t d : out.dims) elements *= d;
    bytes += elements * ByteWidth(out.dtype);
  }
  return bytes;
}

int64_t ConstantBytes(const Program& p) {
  int64_t bytes = 0;
  for (const ConstantSpec& c : p.constants) {
    if (c.kind == ConstantSpec::Kind::kLiteral) bytes += c.literal.size_bytes();
  }
  return bytes;
}

Json Steps(const BoundProgram& bound) {
  Json steps = Json::array();
  for (size_t r = 0; r < bound.regions.size(); ++r) {
    for (const BoundStep& s : bound.regions[r]) {
      steps.push_back(DescribeStep(bound, s));
      steps.back()["region"] = r;
    }
  }
  return steps;
}

}  // namespace

std::atomic<bool> profiling{false};

Json DescribeStep(const BoundProgram& bound, const BoundStep& s) {
  static constexpr const char* kKinds[] = {"kernel", "call", "copy", "library", "while", "conditional", "launch", "transfer"};
  const StepWork work = WorkOf(*s.step);
  Json row = {{"kind", kKinds[static_cast<int>(s.kind)]}, {"name", s.step->name},
              {"source", s.step->source},                 {"bytes", work.bytes},
              {"flops", work.flops},                      {"estimated_ns", s.step->estimated_ns}};
  if (s.kind == BoundStep::Kind::kCall) {
    const FrameworkStep& call = *bound.calls[s.index].step;
    row["op"] = call.overload;
    row["reason"] = call.reason;
    row["rule"] = call.rule == ResultRule::kOut     ? "out"
                  : call.rule == ResultRule::kOwned ? "owned"
                                                    : "view";
  } else if (const auto* kernel = std::get_if<KernelStep>(&s.step->body)) {
    row["kernel"] = kernel->kernel;
  } else if (s.kind == BoundStep::Kind::kLibrary) {
    row["op"] = bound.libraries[s.index].signature.function;
  }
  return row;
}

RunCounters::RunCounters(const BoundProgram& bound)
    : id([] {
        static std::atomic<uint64_t> last{0};
        return ++last;
      }()),
      steps(bound.num_steps),
      regions(bound.regions.size()) {}

std::string RunCounters::Json(const BoundProgram& bound, bool reset) {
  tenon::Json out, step_rows = tenon::Json::array(), kernel_rows = tenon::Json::array(),
                   copy_rows = tenon::Json::array(), library_rows = tenon::Json::array();
  for (const auto& region : bound.regions) {
    for (const BoundStep& s : region) {
      tenon::Json row = Row(*s.step, steps[s.counter], reset);
      if (s.kind == BoundStep::Kind::kCall) {
        const FrameworkStep& call = *bound.calls[s.index].step;
        row["op"] = call.overload;
        row["reason"] = call.reason;
        step_rows.push_back(std::move(row));
      } else if (const auto* kernel = std::get_if<KernelStep>(&s.step->body)) {
        row["kernel"] = kernel->kernel;
        kernel_rows.push_back(std::move(row));
      } else if (std::holds_alternative<CopyStep>(s.step->body)) {
        copy_rows.push_back(std::move(row));
      } else if (s.kind == BoundStep::Kind::kLibrary) {
        row["op"] = bound.libraries[s.index].signature.function;
        library_rows.push_back(std::move(row));
      }
    }
  }
  double ns = 0;
  out["calls"] = Read(runs, reset, &ns);
  out["run_ns"] = static_cast<int64_t>(ns);
  out["arena_bytes"] = arena_bytes.load(std::memory_order_relaxed);
  out["steps"] = std::move(step_rows);
  out["kernels"] = std::move(kernel_rows);
  out["copies"] = std::move(copy_rows);
  out["library"] = std::move(library_rows);
  if (reset) {
    for (auto& count : regions) count.store(0, std::memory_order_relaxed);
    SetTrace(std::vector<TraceEvent>());
  }
  return out.dump();
}

void RunCounters::SetTrace(const std::vector<TraceEvent>& trace) {
  absl::MutexLock lock(&trace_mutex_);
  trace_ = trace;
}

std::string RunCounters::ProfileJson(const BoundProgram& bound) {
  tenon::Json out, rows = tenon::Json::array(), runs_of = tenon::Json::array(), events = tenon::Json::array(),
                   pieces = tenon::Json::array();
  double ns = 0;
  out["calls"] = Read(runs, false, &ns);
  out["run_ns"] = ns;
  out["threads"] = bound.host->num_threads(bound.host->context);
  for (const auto& count : regions) runs_of.push_back(count.load(std::memory_order_relaxed));
  for (size_t r = 0; r < bound.regions.size(); ++r) {
    for (size_t k = 0; k < bound.regions[r].size(); ++k) {
      const BoundStep& s = bound.regions[r][k];
      tenon::Json row = DescribeStep(bound, s);
      row["region"] = r;
      row["step"] = k;
      row["count"] = Read(steps[s.counter], false, &ns);
      row["ns"] = ns;
      rows.push_back(std::move(row));
    }
  }
  {
    absl::MutexLock lock(&trace_mutex_);
    uint64_t start = ~uint64_t{0};  // of the first step; those inside of a loop end before it, so they come first
    for (const TraceEvent& e : trace_) start = std::min(start, e.begin);
    std::vector<int32_t> threads;
    for (const TraceEvent& e : trace_) {
      if (e.kind != TraceEvent::Kind::kPiece && threads.empty()) threads.push_back(e.thread);
    }
    for (const TraceEvent& e : trace_) {
      const double begin = TicksToNs(e.begin - start), end = TicksToNs(e.end - start);
      if (e.kind == TraceEvent::Kind::kStep) events.push_back({e.step, begin, end});
      if (e.kind != TraceEvent::Kind::kPiece) continue;
      const auto at = std::find(threads.begin(), threads.end(), e.thread);
      pieces.push_back({e.step, at - threads.begin(), begin, end});
      if (at == threads.end()) threads.push_back(e.thread);
    }
  }
  out["regions"] = std::move(runs_of);
  out["steps"] = std::move(rows);
  out["trace"] = std::move(events);
  out["pieces"] = std::move(pieces);
  return out.dump();
}

MemoryPlan PlannedBytes(const Program& p) {
  return {.arena = p.arena_bytes >= 0 ? p.arena_bytes : 0, .outputs = OutputBytes(p), .constants = ConstantBytes(p)};
}

std::string InfoJson(const BoundProgram& bound) {
  const Program& p = bound.program;
  Json out;
  out["name"] = p.name;
  out["tier"] = p.tier == Program::Tier::kNative ? "native" : "eager_program";
  out["reason"] = p.tier_reason;
  out["inputs"] = Json::array();
  size_t row_index = 0;
  for (const InputSpec& in : p.inputs) {
    Json row = Meta(in.dtype, in.dims, in.strides);
    row["kind"] = static_cast<int>(in.kind);
    row["name"] = in.name;
    row["mutated"] = in.mutated;
    row["framework"] = bound.framework_inputs[row_index++] != 0;
    out["inputs"].push_back(std::move(row));
  }
  out["outputs"] = Json::array();
  for (const OutputSpec& o : p.outputs) {
    Json row = Meta(o.dtype, o.dims, o.strides);
    row["kind"] = static_cast<int>(o.kind);
    row["index"] = o.index;
    out["outputs"].push_back(std::move(row));
  }
  out["kernels"] = Json::array();
  for (const KernelSpec& k : p.kernels) {
    out["kernels"].push_back({{"symbol", k.symbol},
                              {"plan", k.plan},
                              {"scratch_bytes", k.scratch_bytes},
                              {"fingerprint", k.fingerprint}});
    if (p.code[k.code].space != 0) out["kernels"].back()["target"] = p.code[k.code].target;
  }
  out["steps"] = Steps(bound);
  out["launch_groups"] = Json::array();
  for (const LaunchGroup& group : bound.groups) out["launch_groups"].push_back(group.count);
  const MemoryPlan plan = PlannedBytes(p);
  out["memory"] = {{"arena", plan.arena}, {"outputs", plan.outputs}, {"constants", plan.constants}, {"planned", plan.total()}};
  for (const Program::DeviceArena& a : p.device_arenas) {
    out["memory"]["devices"].push_back({{"space", a.space}, {"arena", a.bytes >= 0 ? Json(a.bytes) : Json(nullptr)}});
  }
  out["code_bytes"] = p.code_bytes();
  out["compile_ms"] = Json::object();
  for (const auto& [phase, ms] : p.compile_ms)
    out["compile_ms"][phase] = out["compile_ms"].value(phase, 0.0) + ms;
  out["remarks"] = Json::array();
  for (const std::string& remark : p.remarks) {
    out["remarks"].push_back(Json::Parse(remark).value_or(Json(remark)));
  }
  return out.dump();
}

}  // namespace tenon
