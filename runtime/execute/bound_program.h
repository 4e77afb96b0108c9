// BoundProgram: a Program resolved against a host and loaded code, as the flat tables the step loop
// walks. Immutable and shared by every frame. What is static is computed here, once: a kernel step
// then costs a load and an add per operand.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/execute/arena_places.h"
#include "runtime/execute/code_loader.h"
#include "runtime/execute/launch_group.h"
#include "runtime/program/dim_program.h"
#include "runtime/program/program.h"
#include "runtime/tenon_c.h"

namespace tenon {

struct BoundView {
  int32_t value = -1;  // -1: absent
  int32_t slot = -1;  // the framework slot it lies in
  int32_t meta = -1;   // symbolic sizes: where this view's dims and strides begin in Frame::metas
  int64_t byte_offset = 0;  // if static
  const View* view = nullptr;
  // The operand is exactly the framework tensor behind its value, so the host gets that object and
  // needs no wrapper.
  bool whole = false;
  bool is_static = true;
};

struct BoundKernel {
  KernelFn function = nullptr;
  const KernelStep* step = nullptr;
  std::vector<BoundView> operands;
  std::vector<int64_t>
      args;  // args then literals; the first step->args.size() are resolved per call if symbolic
  bool static_args = true;
  int64_t begin = 0, end = 0;  // if static_args
  int64_t scratch_bytes = 0;   // per thread, a multiple of 64
  FreeMemory room;             // the step's; none under TENON_GUARD, so that scratch is always memory of its own
};

struct BoundCall {
  void* op = nullptr;  // from TenonHost::op_prepare
  const FrameworkStep* step = nullptr;
  std::vector<BoundView> operands, results;
  std::vector<int32_t> result_slots;  // -1: no slot
  int32_t cache = 0;  // first of operands.size() (+ results.size()) pointers in Frame::caches
};

struct BoundCopy {
  BoundView from, to;
  bool update = false;  // `from` is an update, of which nothing is to be copied if it was made in the input's memory
};

// A launch: a BoundKernel's operands and args, and where it goes.
struct BoundLaunch {
  const LoadedCode* code = nullptr;
  int32_t symbol = 0;  // KernelLaunch::kernel
  int32_t device = 0;  // index into BoundProgram::devices
  int32_t kernel = 0;  // index into BoundProgram::kernels
};

// A copy within a device's memory, or between that and the host's.
struct BoundTransfer {
  BoundCopy copy;
  int32_t device = 0;
  int32_t from_space = 0, to_space = 0;
};

// An intermediate result in an output's memory.
struct LentValue {
  int32_t value, output;
  int64_t offset;
};

// The intermediate results in one memory.
struct BoundArena {
  SizeRef bytes = 0;            // of the fixed part
  std::vector<int32_t> values;  // of the fixed part
  bool is_static = true;        // its size and offsets are numbers
  PlacedValues placed;          // behind it
  std::vector<LentValue> lent;  // of the program, in every call
};

struct BoundDevice {
  int32_t space = 0;
  Device* device = nullptr;
  BoundArena arena;
};

struct BoundLibrary {
  const library::Function* function = nullptr;
  library::Signature signature;
  std::vector<BoundView> views;  // operands, then results
  int64_t scratch_bytes = 0;
  int32_t sizes = -1;  // index into Frame::library_sizes, of symbolic ones; `signature` and `scratch_bytes` say nothing then
};

// The nth step of a region, by kind; `index` into the array of that kind.
struct BoundStep {
  enum class Kind : uint8_t { kKernel, kCall, kCopy, kLibrary, kWhile, kConditional, kLaunch, kTransfer } kind;
  int32_t index = 0;
  int32_t counter = 0;  // number of the step among all regions' in order: index into RunCounters::steps
  const Step* step = nullptr;
  int32_t group = -1;  // index into BoundProgram::groups, of the one that it is the first step of
};

class BoundProgram {
 public:
  // `host` must outlive the result. Errors: an operator that the host doesn't know, code that
  // doesn't load.
  static absl::StatusOr<std::unique_ptr<BoundProgram>> Create(
      Program program, const CodeLoaders& loaders, const TenonHost* host,
      std::vector<TenonTensor> framework_constants);
  ~BoundProgram();
  BoundProgram(const BoundProgram&) = delete;

  Program program;
  const TenonHost* host;
  std::vector<TenonTensor> framework_constants;
  std::vector<std::vector<BoundStep>> regions;
  std::vector<BoundKernel> kernels;
  std::vector<BoundCall> calls;
  std::vector<BoundCopy> copies;
  std::vector<BoundLibrary> libraries;
  std::vector<const LibraryStep*> symbolic_libraries;  // by BoundLibrary::sizes
  std::vector<BoundLaunch> launches;
  std::vector<BoundTransfer> transfers;
  std::vector<BoundDevice> devices;
  std::vector<LaunchGroup> groups;
  std::vector<BoundView> predicates;  // of While and Conditional steps, by BoundStep::index
  // Values by where their address comes from.
  struct Source {
    int32_t value, index;
  };
  std::vector<Source> input_values, output_values, update_values;
  // From the main region's first step on that updates an input in place: the other inputs and the framework constants that are
  // read, and the slots.
  std::vector<int32_t> late_inputs, late_constants, late_slots;
  bool calls_after_updates = false;
  BoundArena arena;  // of the host's memory
  // The main region's step from which on there is an arena, if calls of the framework, which bring memory of their own, come before it:
  // until then values lie in outputs alone, and between runs the frame keeps no memory. 0: it is the frame's, and stays. So does one that
  // is no small part of what lies in outputs.
  int64_t arena_step = 0;
  std::vector<std::vector<int32_t>> slot_values;        // per slot
  std::vector<std::pair<int32_t, void*>> fixed_values;  // constants
  int64_t num_steps = 0, num_caches = 0, num_metas = 0, max_operands = 0, max_results = 0, max_numbers = 0, max_args = 0,
          max_group = 0;
  // Of the kernels and groups that need scratch: bytes for each thread, and of their room. Each pair once.
  struct ScratchNeed {
    int64_t bytes, room;
    bool operator==(const ScratchNeed&) const = default;
  };
  std::vector<ScratchNeed> scratch_needs;
  int64_t ScratchBeyondRooms(int64_t threads) const;  // the most bytes that so many threads need and a room has not
  std::vector<uint8_t> framework_inputs;  // per input: the host gets the caller's own tensor
  bool has_dims = false;                  // the dim program must run
  // An output slot may hold memory that it doesn't own (a view of the arena or of an input): looked
  // at by address, always.
  bool escaping_slots = false;

 private:
  BoundProgram(Program p, const TenonHost* h) : program(std::move(p)), host(h) {}
  absl::Status Bind(const CodeLoaders& loaders);
  absl::Status LoadCode(const CodeLoaders& loaders);
  absl::Status BindDevices();
  void BindValues();
  void BindArenaValue(int32_t v, BoundArena* in);
  void FindSlotMetas();
  void FindLateReads();
  void FindArenaStep();
  BoundView Bind(const View& view);
  bool IsWhole(const View& view) const;
  void BindGroups(size_t region);
  absl::Status BindStep(const Step& step, std::vector<BoundStep>* out);
  void BindKernel(const KernelStep& step);
  void AddScratchNeed(int64_t bytes, const FreeMemory& room);
  int32_t DeviceOf(int32_t space) const;  // index into devices
  void BindLibrary(const LibraryStep& step);
  absl::Status BindCall(const Step& owner, const FrameworkStep& step);
  absl::StatusOr<void*> PrepareOp(const FrameworkStep& step);

  std::vector<std::unique_ptr<LoadedCode>> code_;  // by Program::code; null: without kernels
  std::vector<int32_t> symbol_;                     // by kernel: its place among those of its image
  std::vector<const View*> slot_meta_;  // per slot: what the only step that fills it promised
};

}  // namespace tenon
