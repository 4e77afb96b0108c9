#include "runtime/execute/executable.h"

#include <new>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "hlo/check.h"
#include "runtime/clock.h"
#include "runtime/execute/frame.h"
#include "runtime/execute/input_check.h"
#include "runtime/execute/stats.h"
#include "runtime/execute/step_loop.h"
#include "runtime/profile/recorder.h"

namespace tenon {

struct Executable::Impl {
  explicit Impl(std::unique_ptr<BoundProgram> b)
      : bound(std::move(b)), counters(std::make_shared<RunCounters>(*bound)), pool(bound.get()) {}
  std::unique_ptr<BoundProgram> bound;
  std::shared_ptr<RunCounters> counters;
  FramePool pool;  // last: frames go before what they refer to
};

Executable::Executable(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Executable::~Executable() = default;

absl::StatusOr<std::shared_ptr<Executable>> Executable::Create(
    Program program, const CodeLoaders& loaders, const TenonHost* host,
    std::vector<TenonTensor> framework_constants) {
  TENON_ASSIGN_OR_RETURN(
      std::unique_ptr<BoundProgram> bound,
      BoundProgram::Create(std::move(program), loaders, host, std::move(framework_constants)));
  return std::shared_ptr<Executable>(new Executable(std::make_unique<Impl>(std::move(bound))));
}

const Program& Executable::program() const { return impl_->bound->program; }
bool Executable::takes_framework_input(int64_t input) const { return impl_->bound->framework_inputs.at(input) != 0; }
int64_t Executable::planned_bytes() const { return PlannedBytes(program()).total(); }
std::shared_ptr<RunCounters> Executable::NewCounters() const {
  return std::make_shared<RunCounters>(*impl_->bound);
}
std::string Executable::InfoJson() const { return tenon::InfoJson(*impl_->bound); }
int64_t Executable::idle_frames() const { return impl_->pool.idle_frames(); }
void Executable::SetProfiling(bool on) { profiling.store(on, std::memory_order_relaxed); }

std::string Executable::StatsJson(bool reset, RunCounters* counters) {
  return (counters != nullptr ? counters : impl_->counters.get())->Json(*impl_->bound, reset);
}

std::string Executable::ProfileJson(RunCounters* counters) const {
  return (counters != nullptr ? counters : impl_->counters.get())->ProfileJson(*impl_->bound);
}

RunResult Executable::Run(const TenonTensor* inputs, TenonTensor* outputs, uint8_t* owned,
                          RunCounters* counters) {
  const uint64_t begin = Ticks();
  const uint64_t recording = Recorder::BeginCall(begin);
  const TenonHost& host = *impl_->bound->host;
  if (counters == nullptr) counters = impl_->counters.get();
  RunResult result;
  std::unique_ptr<Frame> frame;
  // Nothing thrown may reach the C seam; what a run can throw is a lack of memory for its own few
  // tables.
  try {
    std::optional<HostRange> range;
    if (host.tracing(host.context) != 0) range.emplace(&host, counters->name.empty() ? program().name : counters->name);
    frame = impl_->pool.Take();
    frame->inputs = inputs;  // End() gives owned inputs back whatever happens next
    frame->owned = owned;
    absl::Status status = CheckInputs(impl_->bound->program, inputs);
    if (status.ok()) status = frame->Begin(inputs, outputs);
    const Watch watch{profiling.load(std::memory_order_relaxed), recording != 0, range.has_value()};
    if (recording != 0) frame->trace.Begin(0, 0);  // nothing yet, of this run
    result = status.ok() ? RunProgram(*frame, *counters, watch)
                         : RunResult{TENON_ERROR, std::string(status.message())};
    if (status.ok()) counters->arena_bytes.store(frame->arena.used(), std::memory_order_relaxed);
  } catch (const std::bad_alloc&) {
    result = {TENON_ERROR, "out of memory"};
  } catch (const std::exception& e) {
    result.code = TENON_ERROR;
    try {
      result.error = e.what();
    } catch (const std::bad_alloc&) {
    }
  }
  if (frame != nullptr) {
    if (result.code != TENON_OK && frame->wrote_inputs) result.code |= TENON_AFTER_WRITES;
    frame->End();
  } else if (owned != nullptr) {
    for (size_t i = 0; i < program().inputs.size(); ++i) {
      if (std::exchange(owned[i], 0)) host.tensor_release(host.context, inputs[i].tensor);
    }
  }
  const uint64_t end = Ticks();
  if (recording != 0) Recorder::EndCall(recording, *impl_->bound, *counters, frame == nullptr ? nullptr : &frame->trace, begin, end);
  if (frame != nullptr) impl_->pool.Give(std::move(frame));
  counters->runs.Add(end - begin);
  return result;
}

absl::Status Executable::Dims(const TenonTensor* inputs, std::vector<int64_t>* dims) const {
  const Program& p = program();
  TENON_RETURN_IF_ERROR(CheckInputs(p, inputs));
  return EvaluateGuarded(p, inputs, dims);
}

absl::Status Executable::Check(const TenonTensor* inputs) const {
  std::vector<int64_t> dims;
  return Dims(inputs, &dims);
}

absl::Status Executable::OutputSizes(const TenonTensor* inputs, int64_t k,
                                     std::vector<int64_t>* sizes,
                                     std::vector<int64_t>* strides) const {
  const Program& p = program();
  if (k < 0 || k >= static_cast<int64_t>(p.outputs.size())) {
    return absl::InvalidArgumentError(absl::StrCat("output ", k, " of ", p.outputs.size()));
  }
  std::vector<int64_t> dims;
  TENON_RETURN_IF_ERROR(Dims(inputs, &dims));
  sizes->clear();
  strides->clear();
  for (SizeRef d : p.outputs[k].dims) sizes->push_back(Resolve(d, dims));
  for (SizeRef s : p.outputs[k].strides) strides->push_back(Resolve(s, dims));
  return absl::OkStatus();
}

}  // namespace tenon
