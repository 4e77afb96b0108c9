// Program: what an executable runs. Plain data: no pointers, no framework types; the cache stores
// it, tools print it.
//
// A *value* is a flat leaf (tuples exist only in HLO). A *view* is a strided window on a value;
// every operand and result of a step is a view, so slices, expands, transposes and channels_last
// cost nothing. A *region* is a list of steps. Sizes are SizeRefs: a number >= 0, or ~slot of the
// dim program, which is evaluated once per call from the inputs' sizes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "hlo/arena.h"
#include "hlo/framework_call.h"
#include "hlo/library/call.h"
#include "hlo/literal.h"
#include "hlo/primitive_type.h"
#include "runtime/program/guard.h"

namespace tenon {

// ---- sizes
// -------------------------------------------------------------------------------------------------------
using SizeRef = int64_t;  // >= 0: the size itself. < 0: the value of dim slot ~ref.
struct DimOp {
  enum class Kind : uint8_t {
    kConstant,
    kInputDim,
    kInputStride,
    kInputScalar,
    kAdd,
    kSub,
    kMul,
    kFloorDiv,
    kMod,
    kMin,
    kMax
  };
  Kind kind = Kind::kConstant;
  int64_t a = 0,
          b = 0;  // kConstant: a. kInputDim/kInputStride: input a, axis b. kInputScalar: input a (a
                  // SymInt input). The others: SizeRefs of earlier slots or constants.
};

// ---- values and views
// --------------------------------------------------------------------------------------------
enum class ValueKind : uint8_t {
  kInput,     // index = graph input; memory of the caller
  kConstant,  // index into Program::constants
  kArena,     // [offset, offset + bytes) of the frame's arena, 64-byte aligned; or where the call's sizes place it (Value::life)
  kOutput,  // index = graph output with OutputKind::kFresh: memory allocated before the run by the
            // host
  kSlot,    // index = framework slot: memory owned by a framework tensor that a framework step
            // produced
  kErrorWord,  // one int64 of the frame, zeroed per run; a kernel stores check id + 1 into it
               // (relaxed atomic)
  kUpdate,     // index = graph input: where a kernel of the main region makes the input's new value. It is the input's own
               // memory, so that the commit region's copy finds nothing to do; memory of the frame where the caller's
               // inputs overlap (runtime/execute/update_overlap.h), and in a first run if calls follow (Frame::proven)
  kLent,       // [offset, offset + bytes) of the memory of graph output `index`, 64-byte aligned in it: an intermediate result that nobody
               // reads any more when the output's own value is written
};
// Memory spaces are 0 to 63: TenonHost::spaces has a bit for each.
inline constexpr int32_t kMaxSpaces = 64;
struct Value {
  ValueKind kind = ValueKind::kArena;
  int64_t index = 0;
  SizeRef offset = 0;  // bytes, kArena and kLent
  SizeRef bytes = 0;
  // kArena of an arena with buffers of symbolic sizes: when it is alive, in positions that ascend with the steps (a loop's are those of its
  // regions too). The frame places such values behind the arena's fixed part, anew for each set of sizes. {-1, -1}: it lies at `offset`.
  // kOutput: likewise; until then it lends its memory to such values.
  BufferLife life = {-1, -1};
  bool has_life() const { return life.first >= 0; }
  bool is_placed_per_call() const { return kind == ValueKind::kArena && has_life(); }
  int32_t space = 0;   // the memory it lies in: 0 the host's, else a device's (CodeImage::space); then of kind kInput, kArena or kOutput
};
struct View {
  int32_t value = -1;  // -1: absent (an optional operand that is None)
  PrimitiveType dtype = PrimitiveType::kF32;
  SizeRef byte_offset = 0;
  std::vector<SizeRef> dims, strides;  // elements; stride 0 repeats
};

// ---- steps
// -------------------------------------------------------------------------------------------------------
// How a device runs a kernel: grid blocks of block threads. What a block is to do with its index is the kernel's own business.
struct LaunchShape {
  std::array<SizeRef, 3> grid = {1, 1, 1};   // 0 blocks: nothing is launched
  std::array<int32_t, 3> block = {1, 1, 1};  // 1 or more each
  int64_t shared_bytes = 0;                  // of each block's threads
  int32_t stream = 0;                        // 0: the host's current one; there is no other yet
};
// Bytes [offset, offset + bytes) of the frame's arena or of the memory of fresh output `output`, the host's, 64-byte aligned in it, that
// hold nothing while a step runs.
struct FreeMemory {
  int32_t output = -1;  // -1: the arena
  int64_t offset = 0, bytes = 0;
};
// kernel(pointers, args, begin, end, scratch): see runtime/kernel_abi.h. Of a device (KernelSpec::code): a launch of it.
struct KernelStep {
  int32_t kernel = -1;  // index into Program::kernels
  std::vector<View>
      operands;  // one pointer each, in the kernel's order (inputs, then results, then extras)
  int32_t num_results = 0;         // the last num_results operands (before extras) are written
  std::vector<SizeRef> args;       // symbolic sizes the kernel asked for
  std::vector<uint64_t> literals;  // bits of scalar literals, appended to args
  SizeRef begin = 0, end = 1;      // the outer iteration range that may be split over threads
  SizeRef grain = 1;               // smallest piece of that range worth a thread
  bool joins_units = false;        // a call computes its part of that range together: more calls of less are slower
  FreeMemory room;                 // for its scratch, of as many threads as fit; else that is the frame's own
  std::optional<LaunchShape> launch;  // of a device's kernels, and of no other; begin, end, grain, joins_units and room mean nothing then
};
struct FrameworkStep {
  std::string overload;  // "aten.sort.default", "host.matmul" (runtime/host/functions.h)
  std::vector<FrameworkArg>
      args;  // the whole positional argument list of the schema; kTensor indexes `operands`, kSymInt `numbers`
  std::vector<SizeRef> numbers;
  std::vector<View> operands;
  ResultRule rule = ResultRule::kOwned;
  bool total = false;  // it gives a result whatever its operands' values are: it fails for want of memory only
  std::vector<View> results;  // kOut: the memory written. Otherwise the expected metas on the slots
                              // (checked by the host: dtype, sizes, strides; a mismatch is an error
                              // naming the op); value -1: not used
  std::string reason;  // why this is a framework step: "library: dot", "no lowering", ...
};
// Same dims and dtype. An end in a device's memory makes it that device's copy; the other is in the same memory or in the host's.
struct CopyStep {
  View from, to;
};
// A library function (hlo/library/call.h) on dense row-major views, of static sizes unless it takes symbols. Results overlap nothing else
// of the step.
struct LibraryStep {
  std::string function;
  library::AttributeList attributes;
  std::vector<View> operands, results;
  int64_t scratch_bytes = 0;  // what the function says it needs; -1: what it says of the sizes of a call
};
struct WhileStep {
  int32_t condition, body;
  View predicate;
};  // regions; predicate: pred[] after `condition`
struct ConditionalStep {
  View index;
  std::vector<int32_t> branches;
};  // pred[] (true -> 0) or s32[] (clamped to the last)

struct Step {
  std::variant<KernelStep, FrameworkStep, CopyStep, LibraryStep, WhileStep, ConditionalStep> body;
  std::string name;    // HLO instruction or ATen node
  std::string source;  // "model.layer.0 @ file.py:12"
  Effect effect = Effect::kPure;
  double estimated_ns = 0;              // one thread
  int64_t bytes = 0, flops = 0;         // estimated traffic and work (static sizes; 0 = unknown)
  std::vector<int32_t> release_slots;   // framework slots whose last use this step is
  std::vector<int32_t> release_inputs;  // inputs not used after this step
};
struct Region {
  std::string name;
  std::vector<Step> steps;
};

// ---- the whole
// ---------------------------------------------------------------------------------------------------
struct InputSpec {
  enum class Kind : uint8_t { kTensor, kSymInt, kNone, kOther } kind = Kind::kTensor;
  PrimitiveType dtype = PrimitiveType::kF32;
  std::vector<SizeRef> dims,
      strides;  // what was compiled for; symbolic dims are slots defined by this very input
  std::string name;
  bool mutated = false;
  int32_t space = 0;  // the memory that the caller's tensor lies in
  // Not empty: the host keeps it in a form of its own, as this function of its reads it (runtime/host/functions.h), and it has no memory
  // for anybody else: calls of that function alone have it as an operand, the whole of it. `packing`: what the host is told beside.
  //   host.linear_packed   rows of x
  //   host.conv_packed     groups, spatial dims; of each of these stride, padding, dilation; sizes of x
  std::string packed_by;
  std::vector<int64_t> packing;
};
enum class OutputKind : uint8_t {
  kFresh,     // allocated by the host before the run with dims and strides below
  kSlot,      // the framework tensor in slot `index` itself
  kInput,     // graph input `index` itself (same object)
  kConstant,  // framework constant `index` itself
  kNone,      // Python None
  kSymInt,    // the number `size`
};
struct OutputSpec {
  OutputKind kind = OutputKind::kFresh;
  int64_t index = 0;
  PrimitiveType dtype = PrimitiveType::kF32;
  std::vector<SizeRef> dims, strides;
  SizeRef size = 0;
  int32_t space = 0;  // kFresh: the memory that the caller allocates it in
};
struct ConstantSpec {
  enum class Kind : uint8_t { kLiteral, kFramework } kind = Kind::kLiteral;
  Literal literal;    // kLiteral
  int64_t index = 0;  // kFramework: the host's constant tensor number (get_attr)
  std::vector<int64_t> dims, strides;
  PrimitiveType dtype = PrimitiveType::kF32;
};
struct CheckSpec {        // data-dependent errors
  std::string exception;  // "IndexError", "RuntimeError", "ZeroDivisionError"
  std::string message;    // eager's text, plus the op and its source line
};
// The target whose code the host itself runs, on its own memory.
inline constexpr std::string_view kHostTarget = "cpu";
// What a target made of its kernels. A device that only has values of the program has one too, without kernels and empty.
struct CodeImage {
  std::string target{kHostTarget};  // CodeLoader::target
  int32_t space = 0;                // the memory that it works on
  std::vector<uint8_t> object;
};
struct KernelSpec {
  std::string symbol;         // in the code image
  std::string plan;           // printed KernelPlan
  int64_t scratch_bytes = 0;  // per thread
  std::string fingerprint;    // structural hash; equal kernels are emitted once
  int32_t code = 0;           // index into Program::code: whose it is
};

struct Program {
  std::string name;
  enum class Tier : uint8_t { kNative, kEagerProgram } tier = Tier::kNative;
  std::string tier_reason;  // why kEagerProgram
  std::vector<DimOp> dim_program;
  std::vector<Guard> guards;  // of symbolic sizes
  std::vector<InputSpec> inputs;
  std::vector<OutputSpec> outputs;
  std::vector<ConstantSpec> constants;
  std::vector<Value> values;
  int32_t num_slots = 0;
  SizeRef arena_bytes = 0;  // of the host's memory; of both, the fixed part
  struct DeviceArena {
    int32_t space = 0;
    SizeRef bytes = 0;
  };
  std::vector<DeviceArena> device_arenas;  // at most one a space
  std::vector<Region> regions;  // regions[0] is the main one
  int32_t commit_region = -1;   // runs after the error word was checked: writes to mutated inputs
  std::vector<CheckSpec> checks;
  std::vector<KernelSpec> kernels;
  std::vector<CodeImage> code;  // at most one a target, and one a space; empty: no kernels and no devices
  std::vector<std::pair<std::string, double>> compile_ms;  // by phase
  std::vector<std::string> remarks;  // one JSON object each (Remark of passes/pass.h)
  std::string report;  // JSON of backends/report/module_report.h; empty unless asked for

  // Every index in range, every view inside its value where static, slots released once, ...:
  // refuses corrupt cache entries and catches our own bugs.
  absl::Status Validate() const;
  int64_t code_bytes() const;
  std::string ToString() const;
};

// Builds SizeRefs and the dim program without duplicates.
class DimProgramBuilder {
 public:
  explicit DimProgramBuilder(Program* program) : program_(program) {}
  SizeRef Emit(DimOp op);  // folds constants
 private:
  Program* program_;
};

}  // namespace tenon
