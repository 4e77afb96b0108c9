#include "runtime/execute/step_loop.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/clock.h"
#include "runtime/execute/shares.h"
#include "runtime/host/host.h"
#include "runtime/host/pace.h"

namespace tenon {
namespace {

// One kernel over several threads: piece k computes its share of the range with its own scratch, and what it gets of open ones.
struct Pieces {
  KernelFn function;
  void* const* pointers;
  const int64_t* args;
  int64_t begin, size, count;
  char* scratch;
  int64_t scratch_bytes;
  PieceTime* times;             // null: nobody asks
  OpenShare* shares = nullptr;  // one per piece; null: none is open

  int64_t BeginOf(int64_t k) const { return begin + size * k / count; }

  void OpenShares(OpenShare* all, int64_t grain) {
    shares = all;
    for (int64_t k = 0; k < count; ++k) shares[k].Open(BeginOf(k), BeginOf(k + 1), grain);
  }

  static void Run(void* self, int64_t first, int64_t last) {
    const Pieces& p = *static_cast<const Pieces*>(self);
    for (int64_t k = first; k < last; ++k) {
      const uint64_t began = p.times == nullptr ? 0 : Ticks();
      const auto units = [&](int64_t b, int64_t e) { p.function(p.pointers, p.args, b, e, p.scratch + k * p.scratch_bytes); };
      units(p.BeginOf(k), p.shares == nullptr ? p.BeginOf(k + 1) : p.shares[k].begin);
      for (int64_t i = 0; i < p.count && p.shares != nullptr; ++i) p.shares[(k + i) % p.count].Take(units);
      if (p.times != nullptr) p.times[k] = {ThreadNumber(), 0, began, Ticks()};
    }
  }
};

struct GroupPieces {
  absl::Span<const GroupedKernel> kernels;
  absl::Span<const int64_t> work_ends;
  int64_t count;
  char* scratch;
  int64_t scratch_bytes;
  PieceTime* times;

  static void Run(void* self, int64_t first, int64_t last) {
    const GroupPieces& p = *static_cast<const GroupPieces*>(self);
    for (int64_t k = first; k < last; ++k) RunPiece(p.kernels, p.work_ends, k, p.count, p.scratch + k * p.scratch_bytes, p.times);
  }
};

class Loop {
 public:
  Loop(Frame& frame, RunCounters& counters, Watch watch)
      : f_(frame),
        b_(frame.bound),
        host_(*frame.bound.host),
        counters_(counters),
        profile_(watch.profiling),
        watched_(watch.profiling || watch.recording || watch.ranges),
        ranges_(watch.ranges ? frame.bound.host : nullptr),
        trace_(watch.profiling || watch.recording ? &frame.trace : nullptr) {}

  RunResult Run() {
    if (trace_ != nullptr) trace_->Begin(static_cast<size_t>(b_.num_steps), b_.regions.size());
    if (!RunRegion(0) || !CheckErrorWord()) return Failure();
    if (b_.program.commit_region >= 0) {
      f_.wrote_inputs = true;
      if (!RunRegion(b_.program.commit_region) || !CheckErrorWord()) return Failure();
    }
    if (!FinishOutputs()) return Failure();
    f_.proven = true;
    if (profile_) counters_.SetTrace(trace_->events);
    return {};
  }

 private:
  bool Fail(int code, std::string message = "") {
    code_ = code;
    error_ = std::move(message);
    return false;
  }
  RunResult Failure() { return {code_, std::move(error_), kind_}; }

  bool RunRegion(int32_t region) {
    if (profile_) counters_.regions[region].fetch_add(1, std::memory_order_relaxed);
    if (trace_ != nullptr) ++trace_->regions[region];
    const std::vector<BoundStep>& steps = b_.regions[region];
    for (size_t i = 0; i < steps.size(); ++i) {
      const BoundStep& step = steps[i];
      if (region == 0 && b_.arena_step != 0 && static_cast<int64_t>(i) == b_.arena_step && !PlaceArena()) return false;
      // Calls of the framework and of library functions are always timed: they are few and dear.
      const bool timed = watched_ || step.kind == BoundStep::Kind::kCall || step.kind == BoundStep::Kind::kLibrary;
      // What has an effect is not begun where a check has failed: the run may be done again.
      if (step.step->effect == Effect::kMutates && !(mutates_ ? CheckErrorWord() : BeforeWrites())) return false;
      if (step.step->effect == Effect::kRandom && !CheckErrorWord()) return false;
      if (step.group >= 0 && !profile_ && NumThreads() > 1) {
        const LaunchGroup& group = b_.groups[step.group];
        if (!Group(group, &step)) return false;
        const size_t next = i + static_cast<size_t>(group.count);
        while (i < next) Release(*steps[i++].step);
        --i;
        continue;
      }
      if (!(timed ? TimedStep(step) : RunStep(step))) return false;
      Release(*step.step);
    }
    return true;
  }

  bool PlaceArena() {
    const absl::Status s = f_.PlaceArena();
    return s.ok() || Fail(TENON_ERROR, std::string(s.message()));
  }

  // What `step` was the last to need.
  void Release(const Step& step) {
    for (int32_t slot : step.release_slots) f_.ReleaseSlot(slot);
    if (f_.owned == nullptr) return;
    for (int32_t input : step.release_inputs) {
      if (std::exchange(f_.owned[input], 0)) host_.tensor_release(host_.context, f_.inputs[input].tensor);
    }
  }

  // The caller's memory is about to change: what could fail from here on must have failed.
  bool BeforeWrites() {
    if (!b_.update_values.empty()) {
      if (!CheckErrorWord()) return false;
      for (int32_t slot : b_.late_slots) {
        if (f_.slots[slot].tensor == nullptr) return EmptySlot("a kernel");
      }
      const int64_t scratch = b_.ScratchBeyondRooms(CountPieces(INT64_MAX));
      const absl::Status s = scratch == 0 ? absl::OkStatus() : f_.ReserveScratch(scratch);
      if (!s.ok()) return Fail(TENON_ERROR, std::string(s.message()));
      f_.Shares(CountPieces(INT64_MAX));
    }
    mutates_ = true;
    f_.wrote_inputs |= !f_.updates_apart;
    return true;
  }

  bool RunStep(const BoundStep& step) {
    switch (step.kind) {
      case BoundStep::Kind::kCall:
        return Call(b_.calls[step.index]);
      case BoundStep::Kind::kKernel:
        return Kernel(b_.kernels[step.index], step.counter);
      case BoundStep::Kind::kCopy:
        return Copy(b_.copies[step.index]);
      case BoundStep::Kind::kLibrary:
        return Library(b_.libraries[step.index], *step.step);
      case BoundStep::Kind::kWhile:
        return While(std::get<WhileStep>(step.step->body), b_.predicates[step.index]);
      case BoundStep::Kind::kConditional:
        return Conditional(std::get<ConditionalStep>(step.step->body), b_.predicates[step.index]);
      case BoundStep::Kind::kLaunch:
        return Launch(b_.launches[step.index], *step.step);
      case BoundStep::Kind::kTransfer:
        return Transfer(b_.transfers[step.index], *step.step);
    }
    return true;
  }

  bool TimedStep(const BoundStep& step) {
    const HostRange range(ranges_, step.step->name);
    const uint64_t begin = Ticks();
    const bool ok = RunStep(step);
    const uint64_t end = Ticks();
    const bool counts = profile_ || step.kind == BoundStep::Kind::kCall || step.kind == BoundStep::Kind::kLibrary;
    if (counts) counters_.steps[step.counter].Add(end - begin);
    if (trace_ != nullptr) trace_->AddStep(step.counter, begin, end);
    return ok;
  }

  PieceTime* Times(int64_t pieces) { return trace_ == nullptr ? nullptr : trace_->Pieces(pieces); }

  struct Range {
    int64_t begin, end, grain;
  };
  Range RangeOf(const BoundKernel& k) {
    if (k.static_args) return {k.begin, k.end, k.step->grain};
    return {Resolve(k.step->begin, f_.dims), Resolve(k.step->end, f_.dims), std::max<int64_t>(1, Resolve(k.step->grain, f_.dims))};
  }

  // Of this call; `at`: room in the frame for them, of which they take what they need.
  const int64_t* ArgsOf(const BoundKernel& k, int64_t** at) {
    if (k.static_args) return k.args.data();
    int64_t* args = *at;
    *at = std::copy(k.args.begin(), k.args.end(), args);
    for (size_t i = 0; i < k.step->args.size(); ++i) args[i] = Resolve(k.step->args[i], f_.dims);
    return args;
  }

  bool Kernel(const BoundKernel& k, int32_t counter) {
    void** pointers = f_.pointers.data();
    for (size_t i = 0; i < k.operands.size(); ++i) {
      const BoundView& v = k.operands[i];
      if (IsEmptySlot(v)) return EmptySlot("a kernel");
      pointers[i] = v.value < 0 ? nullptr : f_.Address(v);
    }
    int64_t* room = f_.args.data();
    const int64_t* args = ArgsOf(k, &room);
    const auto [begin, end, grain] = RangeOf(k);
    if (begin >= end) return true;
    const int64_t pieces = CountPieces((end - begin) / grain);
    char* scratch = nullptr;
    if (k.scratch_bytes != 0 && !Scratch(k.room, pieces * k.scratch_bytes, &scratch)) return false;
    if (pieces == 1) {
      const uint64_t began = trace_ == nullptr ? 0 : Ticks();
      k.function(pointers, args, begin, end, scratch);
      if (trace_ != nullptr) trace_->AddOnlyPiece(counter, Ticks() - began);
      return true;
    }
    Pieces work{k.function, pointers, args, begin, end - begin, pieces, scratch, k.scratch_bytes, Times(pieces)};
    if (!k.step->joins_units && end - begin >= kGrainsOfOpenShare * grain * pieces) work.OpenShares(f_.Shares(pieces), grain);
    host_.parallel_for(host_.context, 0, pieces, 1, Pieces::Run, &work);
    if (trace_ != nullptr) trace_->AddPieces(counter);
    return true;
  }

  bool Launch(const BoundLaunch& l, const Step& step) {
    const BoundKernel& k = b_.kernels[l.kernel];
    void** pointers = f_.pointers.data();
    for (size_t i = 0; i < k.operands.size(); ++i) pointers[i] = k.operands[i].value < 0 ? nullptr : f_.Address(k.operands[i]);
    std::copy(k.args.begin(), k.args.end(), f_.args.begin());
    for (size_t i = 0; i < k.step->args.size(); ++i) f_.args[i] = Resolve(k.step->args[i], f_.dims);
    const LaunchShape& shape = *k.step->launch;
    KernelLaunch launch{.kernel = l.symbol, .pointers = pointers, .args = f_.args.data(), .block = shape.block,
                        .shared_bytes = shape.shared_bytes, .stream = f_.devices[l.device]->stream};
    for (size_t d = 0; d < launch.grid.size(); ++d) launch.grid[d] = Resolve(shape.grid[d], f_.dims);
    if (launch.grid[0] <= 0 || launch.grid[1] <= 0 || launch.grid[2] <= 0) return true;
    return Done(l.code->Launch(launch), step);
  }

  bool Transfer(const BoundTransfer& t, const Step& step) {
    const BoundView &from = t.copy.from, &to = t.copy.to;
    if (t.copy.update && f_.Address(from) == f_.Address(to)) return true;
    if (IsEmptySlot(from)) return EmptySlot("a copy");
    if (std::find(Dims(to), Dims(to) + to.view->dims.size(), 0) != Dims(to) + to.view->dims.size()) return true;  // of nothing
    return Done(b_.devices[t.device].device->Copy({.to = f_.Address(to), .from = f_.Address(from), .to_space = t.to_space,
                                                   .from_space = t.from_space, .to_strides = Strides(to), .from_strides = Strides(from),
                                                   .dims = Dims(to), .ndim = static_cast<int32_t>(to.view->dims.size()),
                                                   .width = ByteWidth(to.view->dtype), .stream = f_.devices[t.device]->stream}),
                step);
  }

  bool Done(const absl::Status& status, const Step& step) {
    if (status.ok()) return true;
    kind_ = status.code();
    return Fail(TENON_ERROR, absl::StrCat(step.name, ": ", status.message()));
  }

  bool Group(const LaunchGroup& group, const BoundStep* steps) {
    const bool apart = ScratchApart(group);
    int32_t first = 0;
    auto pair = group.may_meet.begin();
    for (int32_t i = 0; i < group.count; ++i) {
      bool part = false;
      for (; pair != group.may_meet.end() && pair->later == i; ++pair) {
        part |= pair->earlier >= first && Meet(pair->of_earlier, pair->of_later);
      }
      if (part) {
        if (!Members(group, steps, first, i)) return false;
        first = i;
      }
      const BoundKernel& k = b_.kernels[steps[i].index];
      if (!(apart && k.scratch_bytes != 0)) {
        if (group.work[i] != LaunchGroup::kOfSizes) continue;
        const Range range = RangeOf(k);
        if (WorkOf(range.end - range.begin, range.grain) <= kLargestMember) continue;
      }
      if (!Members(group, steps, first, i) || !Alone(steps[i])) return false;
      first = i + 1;
    }
    return Members(group, steps, first, group.count);
  }

  // Whether kernels with scratch run one by one, as there is room for it then and more memory is wanted else.
  bool ScratchApart(const LaunchGroup& group) {
    const int64_t bytes = NumThreads() * group.scratch_bytes;
    return NumThreads() <= group.threads_apart && bytes > std::max(group.room.bytes, f_.scratch.size()) &&
           bytes * kMuchScratch > f_.arena.size();
  }

  // Whether values that lie in memory of the frame share some.
  bool Meet(int32_t a, int32_t b) const {
    const char *at = f_.base[a], *bt = f_.base[b];
    return at < bt + Resolve(b_.program.values[b].bytes, f_.dims) && bt < at + Resolve(b_.program.values[a].bytes, f_.dims);
  }

  bool Alone(const BoundStep& step) { return watched_ ? TimedStep(step) : RunStep(step); }

  // Those of a group from `first` to `end`, of which none is large.
  bool Members(const LaunchGroup& group, const BoundStep* steps, int32_t first, int32_t end) {
    if (end - first < 2) return first == end || Alone(steps[first]);
    std::optional<HostRange> named;
    if (ranges_ != nullptr) named.emplace(ranges_, absl::StrCat(steps[first].step->name, " and ", end - first - 1, " more"));
    const uint64_t began = trace_ == nullptr ? 0 : Ticks();
    f_.grouped.clear();
    f_.work_ends.clear();
    void** pointers = f_.pointers.data();
    int64_t *args = f_.args.data(), scratch_bytes = 0, all = 0;
    for (int32_t i = first; i < end; ++i) {
      const BoundKernel& k = b_.kernels[steps[i].index];
      const Range range = RangeOf(k);
      all += group.work[i] != LaunchGroup::kOfSizes ? group.work[i] : WorkOf(range.end - range.begin, range.grain);
      f_.work_ends.push_back(all);
      f_.grouped.push_back({k.function, pointers, ArgsOf(k, &args), range.begin, range.end});
      for (const BoundView& v : k.operands) *pointers++ = v.value < 0 ? nullptr : f_.Address(v);
      scratch_bytes = std::max(scratch_bytes, k.scratch_bytes);
    }
    GroupPieces work{f_.grouped, f_.work_ends, CountPieces(all / kWorkPerGrain), nullptr, scratch_bytes, nullptr};
    if (scratch_bytes != 0 && !Scratch(group.room, work.count * scratch_bytes, &work.scratch)) return false;
    work.times = Times(TimesOf(f_.grouped.size(), work.count));
    if (work.count == 1) GroupPieces::Run(&work, 0, 1);
    else host_.parallel_for(host_.context, 0, work.count, 1, GroupPieces::Run, &work);
    if (trace_ != nullptr) trace_->AddLaunch(steps[first].counter, end - first, began, Ticks());
    return true;
  }

  bool Scratch(const FreeMemory& room, int64_t bytes, char** scratch) {
    const absl::StatusOr<char*> found = f_.ScratchFor(room, bytes);
    if (!found.ok()) return Fail(TENON_ERROR, std::string(found.status().message()));
    *scratch = *found;
    return true;
  }

  int64_t CountPieces(int64_t possible) {
    return possible <= 1 ? 1 : std::min<int64_t>(possible, NumThreads());
  }

  library::Parallel Threads() { return {NumThreads(), host_.context, host_.parallel_for}; }

  int NumThreads() {
    if (f_.num_threads == 0) f_.num_threads = std::max(1, host_.num_threads(host_.context));
    return static_cast<int>(f_.num_threads);
  }

  const int64_t* Dims(const BoundView& v) const {
    return v.meta >= 0 ? f_.metas.data() + v.meta : v.view->dims.data();
  }
  const int64_t* Strides(const BoundView& v) const {
    return v.meta >= 0 ? f_.metas.data() + v.meta + v.view->dims.size() : v.view->strides.data();
  }

  TenonTensor Operand(const BoundView& v) const {
    TenonTensor t = {};
    if (v.value < 0) {
      t.ndim = -1;
      t.dtype = -1;
      return t;
    }
    const Value& value = b_.program.values[v.value];
    if (v.whole) {
      switch (value.kind) {
        case ValueKind::kInput:
          return f_.inputs[value.index];
        case ValueKind::kSlot:
          return f_.slots[value.index];
        case ValueKind::kConstant:
          return b_.framework_constants[b_.program.constants[value.index].index];
        default:
          break;
      }
    }
    t.data = f_.Address(v);
    t.sizes = Dims(v);
    t.strides = Strides(v);
    t.dtype = static_cast<int32_t>(v.view->dtype);
    t.ndim = static_cast<int32_t>(v.view->dims.size());
    return t;
  }

  // What readers of a result take for granted, where that is known only now.
  TenonTensor Expected(const BoundView& v) const {
    TenonTensor t = {};
    if (v.value < 0 || v.meta < 0) return t;
    t.sizes = Dims(v);
    t.strides = Strides(v);
    t.ndim = static_cast<int32_t>(v.view->dims.size());
    return t;
  }

  bool Call(const BoundCall& c) {
    for (size_t i = 0; i < c.operands.size(); ++i) {
      if (IsEmptySlot(c.operands[i])) return EmptySlot(c.step->overload);
      f_.operands[i] = Operand(c.operands[i]);
    }
    const bool out = c.step->rule == ResultRule::kOut;
    for (size_t i = 0; i < c.results.size(); ++i)
      f_.results[i] = out ? Operand(c.results[i]) : Expected(c.results[i]);
    for (size_t i = 0; i < c.step->numbers.size(); ++i) f_.numbers[i] = Resolve(c.step->numbers[i], f_.dims);
    TenonOpCall call{c.op, f_.operands.data(), f_.results.data(), f_.caches.data() + c.cache, f_.numbers.data()};
    if (host_.op_call(host_.context, &call) != 0) {
      return Fail(TENON_HOST_ERROR);
    }
    if (out) return true;
    for (size_t i = 0; i < c.results.size(); ++i) {
      const TenonTensor& result = f_.results[i];
      if (result.tensor == nullptr) continue;
      if (c.result_slots[i] >= 0) {
        f_.SetSlot(c.result_slots[i], result);
      } else {
        host_.tensor_release(host_.context, result.tensor);
      }
    }
    return true;
  }

  // A slot is empty if its operator didn't return that result.
  bool IsEmptySlot(const BoundView& v) const { return v.slot >= 0 && f_.slots[v.slot].tensor == nullptr; }
  bool EmptySlot(const std::string& reader) {
    return Fail(TENON_ERROR, absl::StrCat("program ", b_.program.name, ": ", reader,
                                          " reads a result that its operator did not return"));
  }

  bool Copy(const BoundCopy& c) {
    if (c.update && f_.Address(c.from) == f_.Address(c.to)) return true;
    if (IsEmptySlot(c.from)) return EmptySlot("a copy");
    StridedCopy(f_.Address(c.to), Strides(c.to), f_.Address(c.from), Strides(c.from), Dims(c.to),
                static_cast<int>(c.to.view->dims.size()), ByteWidth(c.to.view->dtype), Threads());
    return true;
  }

  bool Library(const BoundLibrary& l, const Step& step) {
    void** pointers = f_.pointers.data();
    for (size_t i = 0; i < l.views.size(); ++i) {
      if (IsEmptySlot(l.views[i])) return EmptySlot(l.signature.function);
      pointers[i] = f_.Address(l.views[i]);
    }
    const library::Signature* signature = &l.signature;
    int64_t scratch_bytes = l.scratch_bytes;
    absl::Status status;
    if (l.sizes >= 0) {
      LibrarySizes& sizes = f_.library_sizes[static_cast<size_t>(l.sizes)];
      for (size_t i = 0; i < l.views.size(); ++i) {
        const size_t rank = l.views[i].view->dims.size();
        sizes.Set(i, {Dims(l.views[i]), rank}, {Strides(l.views[i]), rank});
      }
      status = sizes.Check();
      signature = &sizes.signature();
      scratch_bytes = sizes.scratch_bytes();
    }
    if (status.ok() && scratch_bytes != 0) status = f_.ReserveScratch(scratch_bytes);
    if (status.ok()) {
      const size_t operands = signature->operands.size();
      status = l.function->run({*signature, {pointers, operands}, {pointers + operands, l.views.size() - operands},
                                f_.scratch.data(), f_.library_state, Threads()});
    }
    if (status.ok()) return true;
    kind_ = status.code();
    return Fail(TENON_ERROR, absl::StrCat(step.name, ": ", status.message()));
  }

  bool While(const WhileStep& loop, const BoundView& predicate) {
    Pace pace;
    while (true) {
      // What is half written must not be left so: an interrupt waits until all is.
      if (!mutates_ && pace.Due() && host_.interrupted(host_.context) != 0) {
        kind_ = absl::StatusCode::kCancelled;
        return Fail(TENON_HOST_ERROR, "interrupted");
      }
      if (!RunRegion(loop.condition)) return false;
      if (*f_.Address(predicate) == 0) return true;
      if (!CheckErrorWord()) return false;  // what the error made of the state may never end
      if (!RunRegion(loop.body)) return false;
    }
  }

  bool Conditional(const ConditionalStep& branch, const BoundView& index) {
    const int32_t last = static_cast<int32_t>(branch.branches.size()) - 1;
    int32_t chosen;
    if (index.view->dtype == PrimitiveType::kPred) {
      chosen = *f_.Address(index) != 0 ? 0 : 1;
    } else {
      chosen = *reinterpret_cast<const int32_t*>(f_.Address(index));
      if (chosen < 0 || chosen > last) chosen = last;
    }
    return RunRegion(branch.branches[chosen]);
  }

  bool CheckErrorWord() {
    const int64_t word = f_.error_word.load(std::memory_order_relaxed);
    if (word == 0) return true;
    if (word < 0 || word > static_cast<int64_t>(b_.program.checks.size())) {
      return Fail(TENON_ERROR,
                  absl::StrCat("program ", b_.program.name, ": a kernel reported check ", word - 1,
                               " of ", b_.program.checks.size()));
    }
    const CheckSpec& check = b_.program.checks[word - 1];
    return Fail(TENON_CHECK_ERROR, absl::StrCat(check.exception, ": ", check.message));
  }

  // Memory that the run doesn't own beyond its end.
  bool IsBorrowed(const void* data) const {
    const char* p = static_cast<const char*>(data);
    if (f_.InArena(p)) return true;
    for (const LentValue& lent : f_.arena.lent()) {
      const char* begin = f_.base[lent.value];
      if (p >= begin && p < begin + Resolve(b_.program.values[lent.value].bytes, f_.dims)) return true;
    }
    for (size_t i = 0; i < b_.program.inputs.size(); ++i) {
      const TenonTensor& in = f_.inputs[i];
      if (b_.program.inputs[i].kind != InputSpec::Kind::kTensor || in.data == nullptr) continue;
      int64_t last = 0;
      for (int d = 0; d < in.ndim; ++d)
        last += in.sizes[d] == 0 ? 0 : (in.sizes[d] - 1) * in.strides[d];
      const char* begin = static_cast<const char*>(in.data);
      if (p >= begin && p <= begin + last * ByteWidth(static_cast<PrimitiveType>(in.dtype)))
        return true;
    }
    return false;
  }

  bool FinishOutputs() {
    const auto& outputs = b_.program.outputs;
    for (size_t k = 0; k < outputs.size(); ++k) {
      const OutputSpec& out = outputs[k];
      if (out.kind == OutputKind::kSymInt) {
        f_.outputs[k].data = reinterpret_cast<void*>(Resolve(out.size, f_.dims));
      } else if (out.kind == OutputKind::kSlot && !GiveSlot(k, out.index)) {
        for (size_t j = 0; j < k; ++j) {
          if (outputs[j].kind != OutputKind::kSlot) continue;
          host_.tensor_release(host_.context, std::exchange(f_.outputs[j].tensor, nullptr));
        }
        return false;
      }
    }
    return true;
  }

  // The slot keeps its own reference until Frame::End, so that one slot can be several outputs.
  bool GiveSlot(size_t output, int64_t slot) {
    TenonTensor tensor = f_.slots[slot];
    if (tensor.tensor == nullptr) {
      return Fail(TENON_ERROR, absl::StrCat("program ", b_.program.name, ": output ", output,
                                            " was not computed"));
    }
    host_.tensor_retain(host_.context, tensor.tensor);
    if (b_.escaping_slots && IsBorrowed(tensor.data) &&
        host_.tensor_clone(host_.context, &tensor) != 0) {
      host_.tensor_release(host_.context, tensor.tensor);
      return Fail(TENON_HOST_ERROR);
    }
    f_.outputs[output] = tensor;
    return true;
  }

  Frame& f_;
  const BoundProgram& b_;
  const TenonHost& host_;
  RunCounters& counters_;
  const bool profile_, watched_;
  const TenonHost* ranges_;  // null: nobody asks for them
  RunTrace* trace_;          // null: nor for a profile
  bool mutates_ = false;  // a step that writes to the caller's memory, or to what becomes it, was begun
  int code_ = TENON_OK;
  std::string error_;
  absl::StatusCode kind_ = absl::StatusCode::kInternal;
};

}  // namespace

RunResult RunProgram(Frame& frame, RunCounters& counters, Watch watch) { return Loop(frame, counters, watch).Run(); }

}  // namespace tenon
