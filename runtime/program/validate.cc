// Program::Validate. What it guarantees, so that the executor need not look twice:
//   - every index (value, slot, input, constant, kernel, region, dim slot, tensor argument) is in
//   range;
//   - the dim program refers backwards only; regions call each other without cycles;
//   - static views of the arena, of fresh outputs, of literals and of the error word lie inside
//   them;
//   - library steps name a function that is known and takes their attributes and dense views;
//   - nothing touches memory of another space than its own: kernels and launches their target's, all else the host's, copies that of one
//   device and the host's (docs/architecture/targets.md);
//   - inputs are updated in place only by kernels of the main region after which nothing can fail (but for want of memory), and the
//   commit region copies each update home;
//   - values that each call places have lives, and those in use at once are alive together (value_lives.h);
//   - in a region no slot or input is used after its release, and none is released twice.
#include <algorithm>
#include <functional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "hlo/check.h"
#include "runtime/execute/library_step.h"
#include "runtime/program/dim_program.h"
#include "runtime/program/kernel_operands.h"
#include "runtime/program/program.h"
#include "runtime/program/value_lives.h"

namespace tenon {
namespace {

class Validator {
 public:
  explicit Validator(const Program& program) : p_(program) {}

  absl::Status Run() {
    TENON_RETURN_IF_ERROR(DimProgram());
    TENON_RETURN_IF_ERROR(Code());
    TENON_RETURN_IF_ERROR(Signature());
    TENON_RETURN_IF_ERROR(Guards());
    TENON_RETURN_IF_ERROR(Values());
    if (p_.regions.empty()) return Error("no region");
    if (p_.commit_region >= Count(p_.regions) || p_.commit_region < -1 || p_.commit_region == 0) {
      return Error("commit region ", p_.commit_region, " of ", p_.regions.size());
    }
    state_.assign(p_.regions.size(), 0);
    for (int32_t r = 0; r < Count(p_.regions); ++r) TENON_RETURN_IF_ERROR(VisitRegion(r));
    TENON_RETURN_IF_ERROR(Updates());
    return CheckLives(p_);
  }

 private:
  template <typename... T>
  absl::Status Error(const T&... parts) const {
    return absl::InvalidArgumentError(absl::StrCat(Where(), parts...));
  }
  std::string Where() const { return absl::StrCat("program ", p_.name, ": ", where_); }
  template <typename V>
  static int64_t Count(const V& v) {
    return static_cast<int64_t>(v.size());
  }
  absl::Status Index(std::string_view what, int64_t index, int64_t count) const {
    if (index >= 0 && index < count) return absl::OkStatus();
    return Error(std::string(what), " ", index, " of ", count);
  }
  absl::Status Ref(SizeRef ref, int64_t slots) const {
    if (ref >= 0 || ~ref < slots) return absl::OkStatus();
    return Error("dim slot ", ~ref, " of ", slots);
  }
  absl::Status Refs(const std::vector<SizeRef>& refs) const {
    for (SizeRef r : refs) TENON_RETURN_IF_ERROR(Ref(r, Count(p_.dim_program)));
    return absl::OkStatus();
  }

  absl::Status Guards() {
    for (const Guard& guard : p_.guards) {
      where_ = absl::StrCat("guard ", guard.ToString(), ": ");
      TENON_RETURN_IF_ERROR(Refs({guard.size}));
      if (guard.divisor < 1) return Error("divisor ", guard.divisor);
      if (guard.kind == Guard::Kind::kRange) continue;
      TENON_RETURN_IF_ERROR(Index("input", guard.input, Count(p_.inputs)));
      const InputSpec& input = p_.inputs[guard.input];
      const bool number = guard.kind == Guard::Kind::kNumber;
      const InputSpec::Kind wanted = number ? InputSpec::Kind::kSymInt : InputSpec::Kind::kTensor;
      if (input.kind != wanted) return Error("input ", guard.input, " is of another kind");
      if (!number) TENON_RETURN_IF_ERROR(Index("axis", guard.axis, Count(input.dims)));
    }
    return absl::OkStatus();
  }

  absl::Status DimProgram() {
    where_ = "dim program: ";
    for (int64_t k = 0; k < Count(p_.dim_program); ++k) {
      const DimOp& op = p_.dim_program[k];
      switch (op.kind) {
        case DimOp::Kind::kConstant:
          break;
        case DimOp::Kind::kInputDim:
        case DimOp::Kind::kInputStride:
          TENON_RETURN_IF_ERROR(Index("input", op.a, Count(p_.inputs)));
          TENON_RETURN_IF_ERROR(Index("axis", op.b, Count(p_.inputs[op.a].dims)));
          break;
        case DimOp::Kind::kInputScalar:
          TENON_RETURN_IF_ERROR(Index("input", op.a, Count(p_.inputs)));
          if (p_.inputs[op.a].kind != InputSpec::Kind::kSymInt)
            return Error("input ", op.a, " is no number");
          break;
        default:
          TENON_RETURN_IF_ERROR(Ref(op.a, k));
          TENON_RETURN_IF_ERROR(Ref(op.b, k));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Code() {
    where_ = "code: ";
    std::vector<int64_t> kernels(p_.code.size(), 0);
    for (const KernelSpec& k : p_.kernels) {
      TENON_RETURN_IF_ERROR(Index("image", k.code, Count(p_.code)));
      ++kernels[static_cast<size_t>(k.code)];
    }
    absl::flat_hash_set<std::string> targets;
    for (size_t i = 0; i < p_.code.size(); ++i) {
      const CodeImage& image = p_.code[i];
      const bool none = image.space != 0 && kernels[i] == 0 && image.object.empty();  // a device of values alone
      if (!none && (kernels[i] == 0 || image.object.empty())) {
        return Error(kernels[i], " kernels with ", image.object.size(), " bytes of code");
      }
      if (image.space < 0 || image.space >= kMaxSpaces) return Error("target ", image.target, " in memory space ", image.space);
      if (!targets.insert(image.target).second) return Error("target ", image.target, " twice");
      if (!spaces_.insert(image.space).second) return Error("two targets in memory space ", image.space);
    }
    where_ = "arenas: ";
    spaces_.insert(0);
    absl::flat_hash_set<int32_t> arenas;
    for (const Program::DeviceArena& a : p_.device_arenas) {
      TENON_RETURN_IF_ERROR(Refs({a.bytes}));
      if (a.space == 0 || !spaces_.contains(a.space)) return Error("memory space ", a.space, " is no device's");
      if (!arenas.insert(a.space).second) return Error("memory space ", a.space, " twice");
    }
    where_.clear();
    return absl::OkStatus();
  }
  absl::Status Space(std::string_view what, int32_t space) const {
    if (spaces_.contains(space)) return absl::OkStatus();
    return Error(std::string(what), " in memory space ", space, ", which no target of the program has");
  }

  absl::Status Signature() {
    where_ = "inputs: ";
    for (const InputSpec& in : p_.inputs) {
      TENON_RETURN_IF_ERROR(Space(in.name, in.space));
      TENON_RETURN_IF_ERROR(Refs(in.dims));
      TENON_RETURN_IF_ERROR(Refs(in.strides));
      if (in.dims.size() != in.strides.size())
        return Error(in.name, ": dims and strides differ in number");
    }
    where_ = "outputs: ";
    for (const OutputSpec& out : p_.outputs) {
      TENON_RETURN_IF_ERROR(Space("an output", out.space));
      if (out.space != 0 && out.kind != OutputKind::kFresh) return Error("an output in memory space ", out.space, " that is not fresh");
      TENON_RETURN_IF_ERROR(Refs(out.dims));
      TENON_RETURN_IF_ERROR(Refs(out.strides));
      TENON_RETURN_IF_ERROR(Ref(out.size, Count(p_.dim_program)));
      if (out.kind == OutputKind::kFresh && out.dims.size() != out.strides.size()) {
        return Error("dims and strides differ in number");
      }
      if (out.kind == OutputKind::kSlot)
        TENON_RETURN_IF_ERROR(Index("slot", out.index, p_.num_slots));
      if (out.kind == OutputKind::kInput)
        TENON_RETURN_IF_ERROR(Index("input", out.index, Count(p_.inputs)));
      if (out.kind == OutputKind::kConstant && out.index < 0) return Error("constant ", out.index);
    }
    return absl::OkStatus();
  }

  absl::Status Values() {
    for (int64_t v = 0; v < Count(p_.values); ++v) {
      where_ = absl::StrCat("value ", v, ": ");
      const Value& value = p_.values[v];
      TENON_RETURN_IF_ERROR(Refs({value.offset, value.bytes}));
      TENON_RETURN_IF_ERROR(Space("it is", value.space));
      int32_t space = 0;  // that it must have
      switch (value.kind) {
        case ValueKind::kInput:
          TENON_RETURN_IF_ERROR(Index("input", value.index, Count(p_.inputs)));
          space = p_.inputs[value.index].space;
          break;
        case ValueKind::kConstant:
          TENON_RETURN_IF_ERROR(Index("constant", value.index, Count(p_.constants)));
          break;
        case ValueKind::kArena: {
          space = value.space;
          if (value.life.last < value.life.first) return Error("a life from ", value.life.first, " to ", value.life.last);
          if (value.is_placed_per_call()) {
            if (value.offset != 0) return Error("an offset of a value that each call places");
            break;
          }
          const SizeRef arena = ArenaBytes(space);
          if (value.offset >= 0 && value.bytes >= 0 && arena >= 0 && (value.offset > arena || value.bytes > arena - value.offset)) {
            return Error("[", value.offset, ", +", value.bytes, ") of an arena of ", arena, " bytes");
          }
          if (value.offset > 0 && value.offset % 64 != 0)
            return Error("offset ", value.offset, " is not aligned to 64");
          break;
        }
        case ValueKind::kOutput:
          TENON_RETURN_IF_ERROR(Index("output", value.index, Count(p_.outputs)));
          if (p_.outputs[value.index].kind != OutputKind::kFresh)
            return Error("output ", value.index, " has no memory");
          if (value.life.last < value.life.first) return Error("a life from ", value.life.first, " to ", value.life.last);
          space = p_.outputs[value.index].space;
          break;
        case ValueKind::kLent: {
          TENON_RETURN_IF_ERROR(Index("output", value.index, Count(p_.outputs)));
          const OutputSpec& out = p_.outputs[value.index];
          if (out.kind != OutputKind::kFresh) return Error("output ", value.index, " has no memory to lend");
          const int64_t there = KnownBytes(out);
          if (there < 0 || value.offset < 0 || value.bytes < 0 || value.offset > there || value.bytes > there - value.offset) {
            return Error("[", value.offset, ", +", value.bytes, ") of an output of ", there, " bytes");
          }
          if (value.offset % 64 != 0) return Error("offset ", value.offset, " is not aligned to 64");
          space = out.space;
          break;
        }
        case ValueKind::kSlot:
          TENON_RETURN_IF_ERROR(Index("slot", value.index, p_.num_slots));
          break;
        case ValueKind::kErrorWord:
          break;
        case ValueKind::kUpdate:
          TENON_RETURN_IF_ERROR(Index("input", value.index, Count(p_.inputs)));
          if (p_.inputs[value.index].kind != InputSpec::Kind::kTensor) return Error("input ", value.index, " is no tensor");
          if (p_.inputs[value.index].space != 0) return Error("an update of an input in memory space ", p_.inputs[value.index].space);
          break;
      }
      if (value.space != space) return Error("it is in memory space ", value.space, ", and what it stands for in ", space);
    }
    where_.clear();
    return absl::OkStatus();
  }

  SizeRef ArenaBytes(int32_t space) const {
    if (space == 0) return p_.arena_bytes;
    for (const Program::DeviceArena& a : p_.device_arenas) {
      if (a.space == space) return a.bytes;
    }
    return 0;
  }

  // Bytes of the memory behind a value where the program knows them; -1: it does not.
  int64_t KnownBytes(const Value& value) const {
    switch (value.kind) {
      case ValueKind::kErrorWord:
        return 8;
      case ValueKind::kArena:
      case ValueKind::kLent:
        return value.bytes >= 0 ? value.bytes : -1;
      case ValueKind::kConstant: {
        const ConstantSpec& c = p_.constants[value.index];
        return c.kind == ConstantSpec::Kind::kLiteral ? c.literal.size_bytes() : -1;
      }
      case ValueKind::kOutput:
        return KnownBytes(p_.outputs[value.index]);
      default:
        return -1;
    }
  }
  // Where a dim is 1 its stride may be an expression.
  static int64_t KnownBytes(const OutputSpec& out) {
    bool known = IsStatic(out.dims);
    for (size_t d = 0; d < out.strides.size(); ++d) known = known && (out.dims[d] == 1 || out.strides[d] >= 0);
    return known ? Extent(out.dims, out.strides, out.dtype) : -1;
  }
  static int64_t Extent(const std::vector<SizeRef>& dims, const std::vector<SizeRef>& strides,
                        PrimitiveType dtype) {
    int64_t last = 0;
    for (size_t d = 0; d < dims.size(); ++d) {
      if (dims[d] == 0) return 0;
      last += (dims[d] - 1) * strides[d];
    }
    return (last + 1) * ByteWidth(dtype);
  }

  absl::Status CheckView(const View& view) {
    if (view.value == -1) return absl::OkStatus();
    TENON_RETURN_IF_ERROR(Index("value", view.value, Count(p_.values)));
    TENON_RETURN_IF_ERROR(Refs(view.dims));
    TENON_RETURN_IF_ERROR(Refs(view.strides));
    TENON_RETURN_IF_ERROR(Ref(view.byte_offset, Count(p_.dim_program)));
    if (view.dims.size() != view.strides.size())
      return Error("a view's dims and strides differ in number");
    const Value& value = p_.values[view.value];
    const int64_t bytes = KnownBytes(value);
    if (bytes >= 0 && view.byte_offset >= 0 && IsStatic(view.dims) && IsStatic(view.strides)) {
      const int64_t extent = Extent(view.dims, view.strides, view.dtype);
      if (extent > 0 && (view.byte_offset > bytes || extent > bytes - view.byte_offset)) {
        return Error("a view of [", view.byte_offset, ", +", extent, ") of value ", view.value,
                     ", which has ", bytes, " bytes");
      }
    }
    if (value.kind == ValueKind::kSlot && released_slots_.contains(value.index)) {
      return Error("slot ", value.index, " is used after its release");
    }
    if (value.kind == ValueKind::kInput) TENON_RETURN_IF_ERROR(CheckPacked(view, p_.inputs[value.index]));
    if (value.kind == ValueKind::kInput && released_inputs_.contains(value.index)) {
      return Error("input ", value.index, " is used after its release");
    }
    return absl::OkStatus();
  }
  // What the host keeps in a form of its own is nothing that others could read.
  absl::Status CheckPacked(const View& view, const InputSpec& in) const {
    if (in.packed_by.empty()) return absl::OkStatus();
    const bool whole = view.byte_offset == 0 && view.dims == in.dims && view.strides == in.strides && view.dtype == in.dtype;
    if (whole && function_ == in.packed_by) return absl::OkStatus();
    return Error("an input that is packed for ", in.packed_by, " is read ", whole ? "by something else" : "otherwise than as a whole");
  }
  absl::Status CheckViews(const std::vector<View>& views) {
    for (const View& v : views) TENON_RETURN_IF_ERROR(CheckView(v));
    return absl::OkStatus();
  }

  int32_t SpaceOf(const View& view) const { return view.value < 0 ? 0 : p_.values[view.value].space; }
  // What works on one space touches values of that space alone.
  absl::Status CheckSpaces(const std::vector<View>& views, int32_t space) const {
    for (const View& v : views) {
      if (v.value < 0 || SpaceOf(v) == space) continue;
      return Error("value ", v.value, " lies in memory space ", SpaceOf(v), ", and the step works on ", space);
    }
    return absl::OkStatus();
  }

  absl::Status CheckArgs(const std::vector<FrameworkArg>& args, int64_t operands, int64_t numbers) const {
    for (const FrameworkArg& arg : args) {
      if (arg.is_tensor()) TENON_RETURN_IF_ERROR(Index("tensor argument", arg.i, operands));
      if (arg.kind == FrameworkArg::Kind::kSymInt) TENON_RETURN_IF_ERROR(Index("number", arg.i, numbers));
      TENON_RETURN_IF_ERROR(CheckArgs(arg.list, operands, numbers));
    }
    return absl::OkStatus();
  }

  absl::Status Body(const KernelStep& step) {
    TENON_RETURN_IF_ERROR(Index("kernel", step.kernel, Count(p_.kernels)));
    TENON_RETURN_IF_ERROR(CheckViews(step.operands));
    TENON_RETURN_IF_ERROR(Refs(step.args));
    TENON_RETURN_IF_ERROR(Refs({step.begin, step.end, step.grain}));
    if (step.num_results < 0 || step.num_results > Count(step.operands))
      return Error(step.num_results, " results");
    if (step.grain == 0) return Error("grain ", step.grain);
    const CodeImage& image = p_.code[p_.kernels[step.kernel].code];
    TENON_RETURN_IF_ERROR(CheckSpaces(step.operands, image.space));
    if (step.launch.has_value() != (image.space != 0)) {
      return Error(step.launch ? "a launch of a kernel of the host" : "a device's kernel without a launch");
    }
    return step.launch ? Launch(*step.launch) : Room(step);
  }
  // Inside memory whose size is known, and apart from what the step reads and writes.
  absl::Status Room(const KernelStep& step) const {
    const auto& [output, offset, bytes] = step.room;
    if (bytes == 0) return absl::OkStatus();
    if (output >= 0) TENON_RETURN_IF_ERROR(Index("output", output, Count(p_.outputs)));
    const bool fresh = output < 0 || (p_.outputs[output].kind == OutputKind::kFresh && p_.outputs[output].space == 0);
    const int64_t size = output < 0 ? static_cast<int64_t>(p_.arena_bytes) : fresh ? KnownBytes(p_.outputs[output]) : 0;
    if (offset < 0 || offset % kArenaAlignment != 0 || bytes < 0 || offset > size || bytes > size - offset) {
      const std::string where = output < 0 ? "the arena" : absl::StrCat("output ", output);
      return Error("scratch in [", offset, ", +", bytes, ") of ", where, ", which has ", size, " bytes");
    }
    for (const View& view : step.operands) {
      if (view.value < 0) continue;
      const Value& value = p_.values[view.value];
      const bool there = output < 0 ? value.kind == ValueKind::kArena && value.space == 0
                                    : (value.kind == ValueKind::kLent || value.kind == ValueKind::kOutput) && value.index == output;
      if (!there) continue;
      const int64_t begin = value.kind == ValueKind::kOutput ? 0 : static_cast<int64_t>(value.offset), length = KnownBytes(value);
      if (value.is_placed_per_call() || begin < 0 || length < 0 || (begin < offset + bytes && offset < begin + length)) {
        return Error("scratch where value ", view.value, " of the step lies");
      }
    }
    return absl::OkStatus();
  }
  absl::Status Launch(const LaunchShape& launch) const {
    TENON_RETURN_IF_ERROR(Refs({launch.grid[0], launch.grid[1], launch.grid[2]}));
    for (int32_t threads : launch.block) {
      if (threads < 1) return Error("blocks of ", threads, " threads along a side");
    }
    if (launch.shared_bytes < 0) return Error(launch.shared_bytes, " bytes of shared memory");
    if (launch.stream != 0) return Error("stream ", launch.stream, ": there is only the host's current one, 0");
    return absl::OkStatus();
  }
  absl::Status Body(const FrameworkStep& step) {
    function_ = step.overload;
    const absl::Status operands = CheckViews(step.operands);
    function_ = {};
    TENON_RETURN_IF_ERROR(operands);
    TENON_RETURN_IF_ERROR(CheckSpaces(step.operands, 0));
    TENON_RETURN_IF_ERROR(Refs(step.numbers));
    TENON_RETURN_IF_ERROR(CheckArgs(step.args, Count(step.operands), Count(step.numbers)));
    for (const View& result : step.results) {
      if (result.value == -1) continue;
      TENON_RETURN_IF_ERROR(Index("value", result.value, Count(p_.values)));
      const Value& value = p_.values[result.value];
      const bool slot = value.kind == ValueKind::kSlot;
      // A view result may also be named as the memory it is: an in-place operator's result is its
      // operand.
      if (step.rule == ResultRule::kOwned && !slot)
        return Error("an owned result outside of a slot");
      if (step.rule == ResultRule::kOut && slot) return Error("an out= result in a slot");
      if (slot) released_slots_.erase(value.index);
    }
    TENON_RETURN_IF_ERROR(CheckViews(step.results));
    return CheckSpaces(step.results, 0);
  }
  absl::Status Body(const CopyStep& step) {
    TENON_RETURN_IF_ERROR(CheckViews({step.from, step.to}));
    if (step.from.value < 0 || step.to.value < 0) return Error("a copy of nothing");
    if (step.from.dims != step.to.dims || step.from.dtype != step.to.dtype)
      return Error("a copy between different shapes or dtypes");
    const int32_t from = SpaceOf(step.from), to = SpaceOf(step.to);
    if (from != 0 && to != 0 && from != to) return Error("a copy from memory space ", from, " to ", to, ", not by way of the host's");
    return absl::OkStatus();
  }
  absl::Status Body(const LibraryStep& step) {
    TENON_RETURN_IF_ERROR(CheckViews(step.operands));
    TENON_RETURN_IF_ERROR(CheckViews(step.results));
    TENON_RETURN_IF_ERROR(CheckSpaces(step.operands, 0));
    TENON_RETURN_IF_ERROR(CheckSpaces(step.results, 0));
    if (absl::Status s = CheckLibraryStep(step); !s.ok()) return absl::Status(s.code(), absl::StrCat(Where(), s.message()));
    for (const View& v : step.results) {
      const ValueKind kind = p_.values[v.value].kind;
      if (kind != ValueKind::kArena && kind != ValueKind::kOutput && kind != ValueKind::kLent) {
        return Error("a library result outside of the arena and the outputs");
      }
    }
    return absl::OkStatus();
  }
  absl::Status Body(const WhileStep& step) {
    TENON_RETURN_IF_ERROR(Index("region", step.condition, Count(p_.regions)));
    TENON_RETURN_IF_ERROR(Index("region", step.body, Count(p_.regions)));
    if (step.predicate.value < 0 || step.predicate.dtype != PrimitiveType::kPred)
      return Error("a loop needs a predicate");
    TENON_RETURN_IF_ERROR(CheckView(step.predicate));
    TENON_RETURN_IF_ERROR(CheckSpaces({step.predicate}, 0));
    callees_ = {step.condition, step.body};
    return absl::OkStatus();
  }
  absl::Status Body(const ConditionalStep& step) {
    for (int32_t r : step.branches) TENON_RETURN_IF_ERROR(Index("region", r, Count(p_.regions)));
    const bool pred = step.index.dtype == PrimitiveType::kPred;
    if (step.branches.empty() || (pred && step.branches.size() != 2))
      return Error(step.branches.size(), " branches");
    if (step.index.value < 0 || (!pred && step.index.dtype != PrimitiveType::kS32))
      return Error("a branch needs a pred or s32");
    TENON_RETURN_IF_ERROR(CheckView(step.index));
    TENON_RETURN_IF_ERROR(CheckSpaces({step.index}, 0));
    callees_ = step.branches;
    return absl::OkStatus();
  }

  absl::Status Releases(const Step& step) {
    for (int32_t slot : step.release_slots) {
      TENON_RETURN_IF_ERROR(Index("slot", slot, p_.num_slots));
      if (!released_slots_.insert(slot).second) return Error("slot ", slot, " is released twice");
    }
    for (int32_t input : step.release_inputs) {
      TENON_RETURN_IF_ERROR(Index("input", input, Count(p_.inputs)));
      if (!released_inputs_.insert(input).second)
        return Error("input ", input, " is released twice");
    }
    return absl::OkStatus();
  }

  absl::Status VisitRegion(int32_t index) {
    if (state_[index] == 2) return absl::OkStatus();
    if (state_[index] == 1) return Error("region ", index, " runs itself");
    state_[index] = 1;
    const auto slots = std::exchange(released_slots_, {});
    const auto inputs = std::exchange(released_inputs_, {});
    std::vector<int32_t> callees;
    for (const Step& step : p_.regions[index].steps) {
      where_ = absl::StrCat("region ", index, ", step ", step.name, ": ");
      callees_.clear();
      TENON_RETURN_IF_ERROR(std::visit([&](const auto& body) { return Body(body); }, step.body));
      TENON_RETURN_IF_ERROR(Releases(step));
      callees.insert(callees.end(), callees_.begin(), callees_.end());
    }
    released_slots_ = slots;
    released_inputs_ = inputs;
    for (int32_t callee : callees) TENON_RETURN_IF_ERROR(VisitRegion(callee));
    state_[index] = 2;
    return absl::OkStatus();
  }

  bool IsOf(ValueKind kind, const View& view) const { return view.value >= 0 && p_.values[view.value].kind == kind; }

  bool WritesUpdate(const KernelStep& kernel) const {
    const auto results = OperandsOf(p_, kernel).results;
    return std::any_of(results.begin(), results.end(), [&](const View& v) { return IsOf(ValueKind::kUpdate, v); });
  }

  absl::Status Updates() {
    absl::flat_hash_set<int64_t> copied_home, updated;
    if (p_.commit_region >= 0) {
      for (const Step& step : p_.regions[p_.commit_region].steps) {
        const auto* copy = std::get_if<CopyStep>(&step.body);
        if (copy == nullptr || !IsOf(ValueKind::kUpdate, copy->from) || !IsOf(ValueKind::kInput, copy->to)) continue;
        const int64_t input = p_.values[copy->from.value].index;
        if (p_.values[copy->to.value].index == input) copied_home.insert(input);
      }
    }
    for (int32_t v = 0; v < Count(p_.values); ++v) {
      where_ = absl::StrCat("value ", v, ": ");
      if (p_.values[v].kind != ValueKind::kUpdate) continue;
      if (!copied_home.contains(p_.values[v].index)) return Error("the update of input ", p_.values[v].index, " is not copied home");
      if (!updated.insert(p_.values[v].index).second) return Error("input ", p_.values[v].index, " is updated twice");
    }
    bool writing = false;
    for (const Step& step : p_.regions[0].steps) {
      where_ = absl::StrCat("region 0, step ", step.name, ": ");
      const auto* kernel = std::get_if<KernelStep>(&step.body);
      if (kernel != nullptr && WritesUpdate(*kernel)) {
        writing = true;
        if (step.effect != Effect::kMutates) return Error("updates an input and does not say so");
      }
      const auto* copy = std::get_if<CopyStep>(&step.body);
      if (!writing || (copy != nullptr && SpaceOf(copy->from) == 0 && SpaceOf(copy->to) == 0)) continue;
      if (const auto* call = std::get_if<FrameworkStep>(&step.body); call != nullptr && call->total) continue;
      if (kernel == nullptr || kernel->launch) return Error("may fail after an input was updated");
      for (const View& view : kernel->operands) {
        if (IsOf(ValueKind::kErrorWord, view)) return Error("checks something after an input was updated");
      }
    }
    return absl::OkStatus();
  }

  const Program& p_;
  std::string where_;
  std::string_view function_;  // whose operands are looked at
  std::vector<int> state_;  // per region: 0 new, 1 being visited, 2 done
  std::vector<int32_t> callees_;
  absl::flat_hash_set<int32_t> released_slots_, released_inputs_;
  absl::flat_hash_set<int32_t> spaces_;  // of the program's targets, and the host's
};

}  // namespace

absl::Status Program::Validate() const { return Validator(*this).Run(); }

}  // namespace tenon
