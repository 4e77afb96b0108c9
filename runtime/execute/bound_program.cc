#include "runtime/execute/bound_program.h"

#include <algorithm>
#include <cstdlib>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "hlo/check.h"
#include "runtime/execute/library_step.h"
#include "runtime/guarded_memory.h"
#include "runtime/program/op_spec.h"

namespace tenon {
namespace {

bool SameMeta(const View& view, PrimitiveType dtype, const std::vector<SizeRef>& dims,
              const std::vector<SizeRef>& strides) {
  return view.byte_offset == 0 && view.dtype == dtype && view.dims == dims &&
         view.strides == strides;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BoundProgram>> BoundProgram::Create(
    Program program, const CodeLoaders& loaders, const TenonHost* host,
    std::vector<TenonTensor> framework_constants) {
  TENON_RETURN_IF_ERROR(program.Validate());
  std::unique_ptr<BoundProgram> bound(new BoundProgram(std::move(program), host));
  bound->framework_constants = std::move(framework_constants);
  const int64_t given = static_cast<int64_t>(bound->framework_constants.size());
  for (const ConstantSpec& c : bound->program.constants) {
    if (c.kind == ConstantSpec::Kind::kFramework && (c.index < 0 || c.index >= given)) {
      return absl::InvalidArgumentError(
          absl::StrCat("program ", bound->program.name, ": constant ", c.index, " of ", given));
    }
  }
  for (const OutputSpec& out : bound->program.outputs) {
    if (out.kind == OutputKind::kConstant && out.index >= given) {
      return absl::InvalidArgumentError(absl::StrCat(
          "program ", bound->program.name, ": an output is constant ", out.index, " of ", given));
    }
  }
  TENON_RETURN_IF_ERROR(bound->Bind(loaders));
  return bound;
}

BoundProgram::~BoundProgram() {
  for (const BoundCall& call : calls) {
    if (call.op != nullptr) host->op_release(host->context, call.op);
  }
}

absl::Status BoundProgram::Bind(const CodeLoaders& loaders) {
  TENON_RETURN_IF_ERROR(LoadCode(loaders));
  TENON_RETURN_IF_ERROR(BindDevices());
  BindValues();
  framework_inputs.resize(program.inputs.size());
  FindSlotMetas();
  FindLateReads();
  regions.resize(program.regions.size());
  for (size_t r = 0; r < program.regions.size(); ++r) {
    for (const Step& step : program.regions[r].steps)
      TENON_RETURN_IF_ERROR(BindStep(step, &regions[r]));
    BindGroups(r);
  }
  FindArenaStep();
  for (const OutputSpec& out : program.outputs) {
    escaping_slots |= out.kind == OutputKind::kSlot && program.tier == Program::Tier::kNative;
  }
  return absl::OkStatus();
}

absl::Status BoundProgram::LoadCode(const CodeLoaders& loaders) {
  std::vector<std::vector<std::string>> symbols(program.code.size());
  for (const KernelSpec& k : program.kernels) {
    symbol_.push_back(static_cast<int32_t>(symbols[k.code].size()));
    symbols[k.code].push_back(k.symbol);
  }
  for (size_t i = 0; i < program.code.size(); ++i) {
    const CodeImage& image = program.code[i];
    CodeLoader* loader = loaders.Find(image.target);
    if (loader == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("program ", program.name, " has code of target ", image.target, ", of which there is no code loader"));
    }
    code_.emplace_back();
    if (!symbols[i].empty()) {
      TENON_ASSIGN_OR_RETURN(code_.back(), loader->Load(image.object, symbols[i]));
      TENON_CHECK(image.space != 0 || code_.back()->functions().size() == symbols[i].size(), "the loader lost a kernel");
    }
    if (image.space != 0) devices.push_back({.space = image.space, .device = loader->device()});
  }
  return absl::OkStatus();
}

absl::Status BoundProgram::BindDevices() {
  for (BoundDevice& d : devices) {
    if ((host->spaces >> d.space & 1) == 0) {
      return absl::FailedPreconditionError(absl::StrCat("program ", program.name, " wants memory space ", d.space,
                                                        ", which this host does not have (its spaces, a bit each: ", host->spaces, ")"));
    }
    if (d.device == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("program ", program.name, ": nothing copies to and from memory space ", d.space));
    }
    if (host->device(host->context, d.space) < 0) {
      return absl::UnavailableError(absl::StrCat("program ", program.name, ": the host has no device of memory space ", d.space, " now"));
    }
    for (const Program::DeviceArena& arena : program.device_arenas) {
      if (arena.space == d.space) d.arena.bytes = arena.bytes;
    }
  }
  return absl::OkStatus();
}

// Validate has seen that there is one.
int32_t BoundProgram::DeviceOf(int32_t space) const {
  for (size_t d = 0; d < devices.size(); ++d) {
    if (devices[d].space == space) return static_cast<int32_t>(d);
  }
  TENON_CHECK(false, absl::StrCat("memory space ", space));
}

void BoundProgram::BindValues() {
  slot_values.resize(program.num_slots);
  has_dims = !program.dim_program.empty();
  arena.bytes = program.arena_bytes;
  for (int32_t v = 0; v < static_cast<int32_t>(program.values.size()); ++v) {
    const Value& value = program.values[v];
    const int32_t index = static_cast<int32_t>(value.index);
    switch (value.kind) {
      case ValueKind::kInput:
        input_values.push_back({v, index});
        break;
      case ValueKind::kOutput:
        output_values.push_back({v, index});
        if (value.has_life()) arena.placed.AddLender(value);
        break;
      case ValueKind::kLent:
        if (GuardOfEnvironment() == MemoryGuard::kOff) {
          arena.lent.push_back({v, index, value.offset});
        } else {
          arena.values.push_back(v);  // a block of its own, as the arena's
        }
        break;
      case ValueKind::kSlot:
        slot_values[index].push_back(v);
        break;
      case ValueKind::kErrorWord:
        break;  // by the frame
      case ValueKind::kUpdate:
        update_values.push_back({v, index});
        break;
      case ValueKind::kArena:
        BindArenaValue(v, value.space == 0 ? &arena : &devices[DeviceOf(value.space)].arena);
        break;
      case ValueKind::kConstant: {
        const ConstantSpec& c = program.constants[index];
        const void* data = c.kind == ConstantSpec::Kind::kLiteral
                               ? c.literal.bytes()
                               : framework_constants[c.index].data;
        fixed_values.emplace_back(v, const_cast<void*>(data));
      }
    }
  }
}

void BoundProgram::BindArenaValue(int32_t v, BoundArena* in) {
  const Value& value = program.values[v];
  if (value.is_placed_per_call()) return in->placed.Add(v, value);
  in->is_static &= in->bytes >= 0 && value.offset >= 0;
  in->values.push_back(v);
}

void BoundProgram::FindSlotMetas() {
  slot_meta_.resize(program.num_slots);
  std::vector<bool> reused(program.num_slots);
  for (const Region& region : program.regions) {
    for (const Step& step : region.steps) {
      const auto* call = std::get_if<FrameworkStep>(&step.body);
      if (call == nullptr) continue;
      for (const View& result : call->results) {
        if (result.value < 0 || program.values[result.value].kind != ValueKind::kSlot) continue;
        const int64_t slot = program.values[result.value].index;
        reused[slot] = reused[slot] || slot_meta_[slot] != nullptr;
        // Which of two steps filled a slot is known at run time only: then its tensor is never
        // taken as "whole".
        slot_meta_[slot] = reused[slot] ? nullptr : &result;
      }
    }
  }
}

// Validate has seen that only kernels, copies and calls follow. What those calls make cannot be looked at before.
void BoundProgram::FindLateReads() {
  if (update_values.empty()) return;
  absl::flat_hash_set<int64_t> inputs, constants, slots;
  auto note = [&](const View& view) {
    if (view.value < 0) return;
    const Value& value = program.values[view.value];
    if (value.kind == ValueKind::kInput) inputs.insert(value.index);
    if (value.kind == ValueKind::kSlot) slots.insert(value.index);
    if (value.kind != ValueKind::kConstant) return;
    const ConstantSpec& c = program.constants[value.index];
    if (c.kind == ConstantSpec::Kind::kFramework) constants.insert(c.index);
  };
  bool late = false;
  absl::flat_hash_set<int64_t> made_late;
  for (const Step& step : program.regions[0].steps) {
    late |= step.effect == Effect::kMutates;
    if (!late) continue;
    if (const auto* call = std::get_if<FrameworkStep>(&step.body)) {
      calls_after_updates = true;
      std::for_each(call->operands.begin(), call->operands.end(), note);
      for (const View& result : call->results) {
        const Value* value = result.value < 0 ? nullptr : &program.values[result.value];
        if (value != nullptr && value->kind == ValueKind::kSlot) made_late.insert(value->index);
      }
    }
    if (const auto* kernel = std::get_if<KernelStep>(&step.body)) std::for_each(kernel->operands.begin(), kernel->operands.end(), note);
    if (const auto* copy = std::get_if<CopyStep>(&step.body)) note(copy->from), note(copy->to);
  }
  for (const Step& step : program.regions[program.commit_region].steps) {
    if (const auto* copy = std::get_if<CopyStep>(&step.body)) note(copy->from);
  }
  for (const Source& update : update_values) inputs.erase(update.index);
  for (int64_t slot : made_late) slots.erase(slot);
  auto sorted = [](const absl::flat_hash_set<int64_t>& set, std::vector<int32_t>* out) {
    out->assign(set.begin(), set.end());
    std::sort(out->begin(), out->end());
  };
  sorted(inputs, &late_inputs), sorted(constants, &late_constants), sorted(slots, &late_slots);
}

bool BoundProgram::IsWhole(const View& view) const {
  const Value& value = program.values[view.value];
  const bool eager = program.tier == Program::Tier::kEagerProgram;
  switch (value.kind) {
    case ValueKind::kInput: {
      const InputSpec& in = program.inputs[value.index];
      return eager || SameMeta(view, in.dtype, in.dims, in.strides);
    }
    case ValueKind::kConstant: {
      const ConstantSpec& c = program.constants[value.index];
      return c.kind == ConstantSpec::Kind::kFramework &&
             (eager || SameMeta(view, c.dtype, c.dims, c.strides));
    }
    case ValueKind::kSlot: {
      const View* promised = slot_meta_[value.index];
      return eager || (promised != nullptr &&
                       SameMeta(view, promised->dtype, promised->dims, promised->strides));
    }
    default:
      return false;
  }
}

BoundView BoundProgram::Bind(const View& view) {
  BoundView bound;
  bound.view = &view;
  if (view.value < 0) return bound;
  bound.value = view.value;
  bound.byte_offset = view.byte_offset;
  bound.is_static = view.byte_offset >= 0 && IsStatic(view.dims) && IsStatic(view.strides);
  if (!bound.is_static) {
    bound.meta = static_cast<int32_t>(num_metas);
    num_metas += 2 * static_cast<int64_t>(view.dims.size());
  }
  bound.whole = IsWhole(view);
  const Value& value = program.values[view.value];
  if (value.kind == ValueKind::kSlot) bound.slot = static_cast<int32_t>(value.index);
  if (bound.whole && value.kind == ValueKind::kInput) framework_inputs[value.index] = 1;
  return bound;
}

absl::Status BoundProgram::BindStep(const Step& step, std::vector<BoundStep>* out) {
  BoundStep bound{BoundStep::Kind::kKernel, 0, static_cast<int32_t>(num_steps++), &step};
  if (const auto* kernel = std::get_if<KernelStep>(&step.body)) {
    bound.index = static_cast<int32_t>(kernels.size());
    BindKernel(*kernel);
    if (kernel->launch) {
      const int32_t code = program.kernels[kernel->kernel].code;
      bound.kind = BoundStep::Kind::kLaunch;
      launches.push_back({code_[code].get(), symbol_[kernel->kernel], DeviceOf(program.code[code].space), bound.index});
      bound.index = static_cast<int32_t>(launches.size()) - 1;
    }
  } else if (const auto* call = std::get_if<FrameworkStep>(&step.body)) {
    bound.kind = BoundStep::Kind::kCall;
    bound.index = static_cast<int32_t>(calls.size());
    TENON_RETURN_IF_ERROR(BindCall(step, *call));
  } else if (const auto* copy = std::get_if<CopyStep>(&step.body)) {
    const int32_t from = program.values[copy->from.value].space, to = program.values[copy->to.value].space;
    const bool update = program.values[copy->from.value].kind == ValueKind::kUpdate;
    if (from == 0 && to == 0) {
      bound.kind = BoundStep::Kind::kCopy;
      bound.index = static_cast<int32_t>(copies.size());
      copies.push_back({Bind(copy->from), Bind(copy->to), update});
    } else {
      bound.kind = BoundStep::Kind::kTransfer;
      bound.index = static_cast<int32_t>(transfers.size());
      transfers.push_back({{Bind(copy->from), Bind(copy->to), update}, DeviceOf(std::max(from, to)), from, to});
    }
  } else if (const auto* library = std::get_if<LibraryStep>(&step.body)) {
    bound.kind = BoundStep::Kind::kLibrary;
    bound.index = static_cast<int32_t>(libraries.size());
    BindLibrary(*library);
  } else {
    const auto* loop = std::get_if<WhileStep>(&step.body);
    bound.kind = loop != nullptr ? BoundStep::Kind::kWhile : BoundStep::Kind::kConditional;
    bound.index = static_cast<int32_t>(predicates.size());
    predicates.push_back(
        Bind(loop != nullptr ? loop->predicate : std::get<ConditionalStep>(step.body).index));
  }
  out->push_back(bound);
  return absl::OkStatus();
}

void BoundProgram::BindGroups(size_t region) {
  for (LaunchGroup& group : FindLaunchGroups(program, program.regions[region])) {
    BoundStep* steps = &regions[region][static_cast<size_t>(group.first)];
    int64_t operands = 0, args = 0, apart = INT32_MAX;
    for (int32_t i = 0; i < group.count; ++i) {
      const BoundKernel& k = kernels[steps[i].index];
      group.scratch_bytes = std::max(group.scratch_bytes, k.scratch_bytes);
      if (k.scratch_bytes != 0) apart = std::min(apart, k.room.bytes / k.scratch_bytes);
      operands += static_cast<int64_t>(k.operands.size());
      args += static_cast<int64_t>(k.args.size());
    }
    max_operands = std::max(max_operands, operands);
    max_args = std::max(max_args, args);
    max_group = std::max<int64_t>(max_group, group.count);
    if (GuardOfEnvironment() != MemoryGuard::kOff) group.room = {};
    if (group.scratch_bytes != 0) group.threads_apart = static_cast<int32_t>(apart);
    AddScratchNeed(group.scratch_bytes, group.room);
    steps->group = static_cast<int32_t>(groups.size());
    groups.push_back(std::move(group));
  }
}

// In loops and branches it counts as needed. A program that updates inputs must not lack memory any more once it has begun to.
void BoundProgram::FindArenaStep() {
  if (GuardOfEnvironment() != MemoryGuard::kOff || !arena.is_static || !arena.placed.values.empty() || arena.values.empty()) return;
  if (!update_values.empty() || program.commit_region >= 0) return;
  // A small one beside what lies in outputs: new memory of each call is memory that the system may have to clear.
  constexpr int64_t kPart = 4;
  int64_t lent = 0;
  for (const LentValue& v : arena.lent) lent = std::max(lent, v.offset + program.values[v.value].bytes);
  if (arena.bytes > lent / kPart) return;
  auto in_arena = [&](const BoundView& v) {
    return v.value >= 0 && program.values[v.value].kind == ValueKind::kArena && program.values[v.value].space == 0;
  };
  auto needs = [&](const BoundStep& step) {
    switch (step.kind) {
      case BoundStep::Kind::kKernel: {
        const BoundKernel& k = kernels[step.index];
        return (k.room.output < 0 && k.room.bytes > 0) || absl::c_any_of(k.operands, in_arena);
      }
      case BoundStep::Kind::kCall: return absl::c_any_of(calls[step.index].operands, in_arena) ||
                                          absl::c_any_of(calls[step.index].results, in_arena);
      case BoundStep::Kind::kCopy: return in_arena(copies[step.index].from) || in_arena(copies[step.index].to);
      case BoundStep::Kind::kLibrary: return absl::c_any_of(libraries[step.index].views, in_arena);
      default: return true;
    }
  };
  const std::vector<BoundStep>& steps = regions[0];
  const auto first = absl::c_find_if(steps, needs);
  const auto is_call = [](const BoundStep& step) { return step.kind == BoundStep::Kind::kCall; };
  if (first == steps.end() || std::none_of(steps.begin(), first, is_call)) return;
  arena_step = first - steps.begin();
  for (int64_t i = 0; i < arena_step; ++i) {  // not within a group of launches
    if (steps[static_cast<size_t>(i)].group >= 0 && arena_step < i + groups[steps[static_cast<size_t>(i)].group].count) arena_step = i;
  }
}

void BoundProgram::BindKernel(const KernelStep& step) {
  BoundKernel k;
  if (!step.launch) k.function = code_[program.kernels[step.kernel].code]->functions()[symbol_[step.kernel]];
  k.step = &step;
  for (const View& v : step.operands) k.operands.push_back(Bind(v));
  k.args.assign(step.args.begin(), step.args.end());
  for (uint64_t bits : step.literals) k.args.push_back(static_cast<int64_t>(bits));
  k.static_args = IsStatic(step.args) && step.begin >= 0 && step.end >= 0 && step.grain > 0;
  k.begin = step.begin;
  k.end = step.end;
  k.scratch_bytes = AlignedUp(program.kernels[step.kernel].scratch_bytes);
  max_operands = std::max<int64_t>(max_operands, k.operands.size());
  max_args = std::max<int64_t>(max_args, k.args.size());
  if (GuardOfEnvironment() == MemoryGuard::kOff) k.room = step.room;
  if (!step.launch) AddScratchNeed(k.scratch_bytes, k.room);
  kernels.push_back(std::move(k));
}

void BoundProgram::AddScratchNeed(int64_t bytes, const FreeMemory& room) {
  const ScratchNeed need{bytes, room.bytes};
  if (bytes > 0 && !absl::c_linear_search(scratch_needs, need)) scratch_needs.push_back(need);
}

int64_t BoundProgram::ScratchBeyondRooms(int64_t threads) const {
  int64_t most = 0;
  for (const ScratchNeed& need : scratch_needs) {
    if (threads * need.bytes > need.room) most = std::max(most, threads * need.bytes);
  }
  return most;
}

void BoundProgram::BindLibrary(const LibraryStep& step) {
  BoundLibrary l{.function = library::FindFunction(step.function), .scratch_bytes = step.scratch_bytes};
  if (IsStatic(step)) {
    l.signature = SignatureOf(step);
  } else {
    l.signature.function = step.function;
    l.sizes = static_cast<int32_t>(symbolic_libraries.size());
    symbolic_libraries.push_back(&step);
  }
  for (const View& v : step.operands) l.views.push_back(Bind(v));
  for (const View& v : step.results) l.views.push_back(Bind(v));
  max_operands = std::max<int64_t>(max_operands, l.views.size());
  libraries.push_back(std::move(l));
}

absl::Status BoundProgram::BindCall(const Step& owner, const FrameworkStep& step) {
  BoundCall call;
  call.step = &step;
  for (const View& v : step.operands) call.operands.push_back(Bind(v));
  for (const View& v : step.results) {
    call.results.push_back(Bind(v));
    const bool slot = v.value >= 0 && program.values[v.value].kind == ValueKind::kSlot;
    call.result_slots.push_back(slot ? static_cast<int32_t>(program.values[v.value].index) : -1);
  }
  call.cache = static_cast<int32_t>(num_caches);
  num_caches += static_cast<int64_t>(call.operands.size() + call.results.size());
  max_operands = std::max<int64_t>(max_operands, call.operands.size());
  max_results = std::max<int64_t>(max_results, call.results.size());
  max_numbers = std::max<int64_t>(max_numbers, step.numbers.size());
  calls.push_back(std::move(call));  // first: what is prepared has an owner then, whatever fails
  absl::StatusOr<void*> op = PrepareOp(step);
  if (!op.ok()) {
    return absl::Status(
        op.status().code(),
        absl::StrCat(owner.name, owner.source.empty() ? "" : absl::StrCat(" (", owner.source, ")"),
                     ": ", op.status().message()));
  }
  calls.back().op = *op;
  return absl::OkStatus();
}

absl::StatusOr<void*> BoundProgram::PrepareOp(const FrameworkStep& step) {
  const OpSpec spec(step, program.tier == Program::Tier::kNative);
  char* error = nullptr;
  void* op = host->op_prepare(host->context, spec.get(), &error);
  if (op != nullptr) return op;
  std::string message = error != nullptr ? error : "no reason given";
  std::free(error);
  return absl::NotFoundError(absl::StrCat(step.overload, ": ", message));
}

}  // namespace tenon
