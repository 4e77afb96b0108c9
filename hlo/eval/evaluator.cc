#include "hlo/eval/evaluator.h"

#include <array>
#include <cstring>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "hlo/devices.h"
#include "hlo/eval/internal.h"
#include "hlo/infer/infer.h"
#include "hlo/precision.h"

namespace tenon::eval {

// The order of evaluation, and after which step each value is dead.
struct Plan {
  struct Step {
    const Instruction* instruction;
    std::vector<int> operands;
    std::vector<int> dead_after;
  };
  const Computation* computation;
  std::vector<Step> steps;
  int root = -1;
};

namespace {

constexpr int kMaxDepth = 150;

bool SharesItsOperand(Opcode opcode) {
  return opcode == Opcode::kParameter || opcode == Opcode::kConstant || opcode == Opcode::kTuple ||
         opcode == Opcode::kGetTupleElement || opcode == Opcode::kReshape ||
         opcode == Opcode::kBitcast || opcode == Opcode::kOptBarrier;
}

// -1: too large to say.
int64_t BytesOf(const Shape& shape) {
  __int128 bytes = 0;
  for (const Shape& leaf : FlattenShape(shape)) {
    if (!leaf.is_array()) continue;
    __int128 n = ByteWidth(leaf.element_type());
    for (Dim d : leaf.dims()) {
      if (!d.is_constant() || d.constant() < 0) return -1;
      n *= d.constant();
      if (n > INT64_MAX) return -1;
    }
    bytes += n;
  }
  return bytes > INT64_MAX ? -1 : static_cast<int64_t>(bytes);
}

bool AllConstant(const Shape& shape) {
  for (const Shape& leaf : FlattenShape(shape)) {
    for (Dim d : leaf.dims()) {
      if (!d.is_constant()) return false;
    }
  }
  return true;
}

// Argument and parameter agree; a bounded dimension takes any size up to its bound.
bool Fits(const Shape& arg, const Shape& parameter) {
  if (arg.element_type() != parameter.element_type() || arg.rank() != parameter.rank() ||
      arg.elements().size() != parameter.elements().size()) {
    return false;
  }
  for (int64_t i = 0; i < arg.rank(); ++i) {
    bool smaller = parameter.is_dynamic(i) && arg.dim(i).is_constant() &&
                   arg.dim(i).constant() <= parameter.dim(i).constant();
    if (arg.dim(i) != parameter.dim(i) && !smaller) return false;
  }
  for (size_t i = 0; i < arg.elements().size(); ++i) {
    if (!Fits(arg.elements()[i], parameter.elements()[i])) return false;
  }
  return true;
}

absl::Status CheckArguments(const Computation& c, absl::Span<const Literal> args) {
  if (args.size() != c.parameters().size()) {
    return absl::InvalidArgumentError(absl::StrCat(c.name(), " wants ", c.parameters().size(),
                                                   " arguments, got ", args.size()));
  }
  for (size_t i = 0; i < args.size(); ++i) {
    if (!Fits(args[i].shape(), c.parameter(i)->shape())) {
      return absl::InvalidArgumentError(absl::StrCat("argument ", i, " of ", c.name(), ": wanted ",
                                                     c.parameter(i)->shape().ToString(), ", got ",
                                                     args[i].shape().ToString()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string Describe(const Instruction& i) {
  return absl::StrCat(std::string(OpcodeName(i.opcode())), " ", i.name());
}

absl::Status Unimplemented(const Instruction& i, std::string_view what) {
  return absl::UnimplementedError(absl::StrCat(Describe(i), ": ", std::string(what)));
}

absl::Status Invalid(const Instruction& i, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(Describe(i), ": ", std::string(what)));
}

// Refuses what an instruction asks for and no handler gives.
absl::Status CheckMeaning(const Instruction& i) {
  TENON_RETURN_IF_ERROR(CheckOneDevice(i));
  return CheckPrecision(i);
}

Handler HandlerOf(Opcode opcode) {
  static const auto* table = [] {
    auto* handlers = new std::array<Handler, kNumOpcodes>{};
    for (absl::Span<const HandlerRow> family :
         {ElementwiseHandlers(), MovementHandlers(), ReductionHandlers(), ContractionHandlers(),
          IndexingHandlers(), ControlHandlers(), LibraryHandlers(),
          CollectiveHandlers()}) {
      for (const HandlerRow& row : family) {
        Handler& slot = (*handlers)[static_cast<int>(row.opcode)];
        TENON_CHECK(slot == nullptr, std::string(OpcodeName(row.opcode)));
        slot = row.handler;
      }
    }
    return handlers;
  }();
  return (*table)[static_cast<int>(opcode)];
}

Context::Context(const EvalOptions& options) : options_(options) {}
Context::~Context() = default;

absl::Status Context::Reserve(const Instruction& i) {
  if (SharesItsOperand(i.opcode())) return absl::OkStatus();
  int64_t bytes = BytesOf(i.shape());
  if (bytes < 0 || bytes > options_.max_bytes - live_bytes_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(Describe(i), " = ", i.shape().ToString(), " exceeds the limit of ",
                     options_.max_bytes, " bytes (", live_bytes_, " in use)"));
  }
  live_bytes_ += bytes;
  return absl::OkStatus();
}

absl::StatusOr<const Plan*> Context::PlanOf(const Computation& computation) {
  std::unique_ptr<Plan>& plan = plans_[&computation];
  if (plan != nullptr) return plan.get();
  if (computation.root() == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("computation ", computation.name(), " has no root"));
  }
  auto made = std::make_unique<Plan>();
  made->computation = &computation;
  absl::flat_hash_map<const Instruction*, int> number;
  std::vector<int> last_use;
  for (const Instruction* i : computation.PostOrder()) {
    if (!AllConstant(i->shape())) {
      return absl::InvalidArgumentError(absl::StrCat(
          Describe(*i), " = ", i->shape().ToString(), ": the evaluator needs static dimensions"));
    }
    Plan::Step step{i, {}, {}};
    int n = static_cast<int>(made->steps.size());
    for (const Instruction* operand : i->operands()) {
      auto it = number.find(operand);
      if (it == number.end()) {
        return absl::InvalidArgumentError(absl::StrCat(Describe(*i), " depends on itself"));
      }
      step.operands.push_back(it->second);
      last_use[it->second] = n;
    }
    number[i] = n;
    last_use.push_back(n);
    made->steps.push_back(std::move(step));
  }
  made->root = number.at(computation.root());
  for (size_t v = 0; v < last_use.size(); ++v) {
    if (static_cast<int>(v) != made->root) made->steps[last_use[v]].dead_after.push_back(v);
  }
  plan = std::move(made);
  return plan.get();
}

namespace {

// Ops whose handlers read sizes from instructions. The others' look at the literals, or take any.
bool TrustsShapes(Opcode opcode) {
  using enum Opcode;
  switch (opcode) {
    case kConcatenate: case kPad: case kReverse: case kTranspose: case kDynamicSlice: case kDynamicUpdateSlice: case kGather:
    case kScatter: case kSort: case kReduce: case kReduceWindow: case kSelectAndScatter: case kDot: case kConvolution:
    case kBatchNormTraining: case kBatchNormInference: case kBatchNormGrad: case kCholesky: case kTriangularSolve: case kFft:
      return true;
    default:
      return false;
  }
}

// An operand is smaller than its bound.
bool IsCut(const Instruction& i, Operands operands) {
  for (int64_t k = 0; k < i.operand_count(); ++k) {
    const Shape& bound = i.operand(k)->shape();
    if (bound.is_array() && !absl::c_equal(bound.dims(), operands[k].shape().dims(), KnownEqual)) return true;
  }
  return false;
}

}  // namespace

// The same op on arrays of the sizes that there are.
absl::StatusOr<Literal> Context::RunCut(const Instruction& i, Operands operands) {
  Module module("cut");
  Computation* computation = module.AddComputation("main");
  std::vector<Instruction*> parameters;
  for (const Literal& operand : operands) {
    const Shape shape(operand.shape().element_type(), operand.shape().dims());
    parameters.push_back(computation->AddParameter(static_cast<int64_t>(parameters.size()), shape));
  }
  const absl::StatusOr<Shape> shape = InferShape(i.opcode(), parameters, i.attrs());
  if (!shape.ok()) return Invalid(i, absl::StrCat("of sizes below the bounds: ", shape.status().message()));
  Instruction* cut = computation->Add(i.opcode(), *shape, parameters, std::string(i.name()));
  cut->mutable_attrs() = i.attrs();
  TENON_RETURN_IF_ERROR(CheckMeaning(*cut));
  return HandlerOf(i.opcode())(*this, *cut, operands);
}

absl::StatusOr<Literal> Context::Run(const Plan& plan, absl::Span<const Literal> args) {
  std::vector<Literal> values(plan.steps.size());
  std::vector<Literal> operands;
  int64_t reserved = 0;
  for (size_t n = 0; n < plan.steps.size(); ++n) {
    const Plan::Step& step = plan.steps[n];
    const Instruction& i = *step.instruction;
    if (i.opcode() == Opcode::kParameter) {
      values[n] = args[i.parameter_number()];
    } else if (i.opcode() == Opcode::kConstant) {
      values[n] = i.literal();
    } else {
      Handler handler = HandlerOf(i.opcode());
      if (handler == nullptr) return Unimplemented(i, "has no meaning on one device");
      int64_t before = live_bytes_;
      TENON_RETURN_IF_ERROR(CheckMeaning(i));
      TENON_RETURN_IF_ERROR(Reserve(i));
      reserved += live_bytes_ - before;
      operands.clear();
      for (int v : step.operands) operands.push_back(values[v]);
      const bool cut = TrustsShapes(i.opcode()) && IsCut(i, operands);
      absl::StatusOr<Literal> result = cut ? RunCut(i, operands) : handler(*this, i, operands);
      if (!result.ok()) return result.status();
      values[n] = *std::move(result);
    }
    for (int v : step.dead_after) {
      const Instruction& dead = *plan.steps[v].instruction;
      if (!SharesItsOperand(dead.opcode())) {
        int64_t bytes = BytesOf(dead.shape());
        live_bytes_ -= bytes;
        reserved -= bytes;
      }
      values[v] = Literal();
    }
  }
  Literal result = std::move(values[plan.root]);
  live_bytes_ -= reserved;  // the result is the caller's instruction's, which has reserved it
  return result;
}

absl::StatusOr<Literal> Context::Call(const Computation& computation,
                                      absl::Span<const Literal> args) {
  if (depth_ >= kMaxDepth) {
    return absl::ResourceExhaustedError(
        absl::StrCat("calls nest deeper than ", kMaxDepth, " at ", computation.name()));
  }
  TENON_ASSIGN_OR_RETURN(const Plan* plan, PlanOf(computation));
  TENON_RETURN_IF_ERROR(CheckArguments(computation, args));
  ++depth_;
  absl::StatusOr<Literal> result = Run(*plan, args);
  --depth_;
  return result;
}

void CopyStrided(int64_t width, absl::Span<const int64_t> dims, const std::byte* from,
                 absl::Span<const int64_t> from_strides, std::byte* to,
                 absl::Span<const int64_t> to_strides) {
  const size_t rank = dims.size();
  if (Product(dims) == 0) return;
  if (rank == 0) {
    std::memcpy(to, from, width);
    return;
  }
  const int64_t n = dims[rank - 1];
  const int64_t from_step = from_strides[rank - 1] * width, to_step = to_strides[rank - 1] * width;
  const bool dense = from_step == width && to_step == width;
  auto line = [&]<int64_t kWidth>(const std::byte* a, std::byte* b) {
    for (int64_t i = 0; i < n; ++i) std::memcpy(b + i * to_step, a + i * from_step, kWidth);
  };
  auto outer = dims.subspan(0, rank - 1);
  Index index(rank - 1, 0);
  do {
    const std::byte* a = from + Offset(index, from_strides.subspan(0, rank - 1)) * width;
    std::byte* b = to + Offset(index, to_strides.subspan(0, rank - 1)) * width;
    if (dense) {
      std::memcpy(b, a, n * width);
      continue;
    }
    switch (width) {
      case 1:
        line.operator()<1>(a, b);
        break;
      case 2:
        line.operator()<2>(a, b);
        break;
      case 4:
        line.operator()<4>(a, b);
        break;
      case 8:
        line.operator()<8>(a, b);
        break;
      default:
        line.operator()<16>(a, b);
        break;
    }
  } while (Next(outer, &index));
}

namespace {

// A check that fails inside a handler means that the module was not verified.
template <typename F>
absl::StatusOr<Literal> Guard(F&& f) {
  try {
    return f();
  } catch (const InternalError& e) {
    return absl::InternalError(e.what());
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory");
  }
}

}  // namespace
}  // namespace tenon::eval

namespace tenon {

absl::StatusOr<Literal> Evaluate(const Module& module, absl::Span<const Literal> args,
                                 const EvalOptions& options) {
  if (module.entry() == nullptr) return absl::InvalidArgumentError("the module has no entry");
  return Evaluate(*module.entry(), args, options);
}

absl::StatusOr<Literal> Evaluate(const Computation& computation, absl::Span<const Literal> args,
                                 const EvalOptions& options) {
  eval::Context context(options);
  return eval::Guard([&] { return context.Call(computation, args); });
}

absl::StatusOr<Literal> EvaluateInstruction(const Instruction& i,
                                            absl::Span<const Literal> operands,
                                            const EvalOptions& options) {
  eval::Context context(options);
  return eval::Guard([&]() -> absl::StatusOr<Literal> {
    if (i.opcode() == Opcode::kConstant) return i.literal();
    if (!eval::AllConstant(i.shape())) {
      return eval::Invalid(i, "the evaluator needs static dimensions");
    }
    if (static_cast<int64_t>(operands.size()) != i.operand_count()) {
      return eval::Invalid(i, "wrong number of operands");
    }
    eval::Handler handler = eval::HandlerOf(i.opcode());
    if (handler == nullptr) return eval::Unimplemented(i, "has no meaning on one device");
    TENON_RETURN_IF_ERROR(eval::CheckMeaning(i));
    TENON_RETURN_IF_ERROR(context.Reserve(i));
    return handler(context, i, operands);
  });
}

}  // namespace tenon
