#include "tools/lab/judge/error_bound.h"

#include <algorithm>
#include <cmath>

#include "absl/functional/function_ref.h"
#include "hlo/builder.h"
#include "hlo/check.h"
#include "hlo/own_calls.h"
#include "hlo/tolerance.h"
#include "tools/lab/judge/error_rules.h"

namespace tenon::lab {
namespace {

bool IsInexact(Opcode opcode, PrimitiveType type) {
  if (!IsFloat(type) && !IsComplex(type)) return false;
  switch (opcode) {
    case Opcode::kReduce: case Opcode::kReduceWindow: case Opcode::kScatter: case Opcode::kSelectAndScatter:
    case Opcode::kDot: case Opcode::kConvolution: case Opcode::kRaggedDot: case Opcode::kScaledDot:
    case Opcode::kBatchNormTraining: case Opcode::kBatchNormInference: case Opcode::kBatchNormGrad:
    case Opcode::kCholesky: case Opcode::kFft: case Opcode::kTriangularSolve: case Opcode::kCustomCall: case Opcode::kRng:
      return true;
    case Opcode::kMultiply: case Opcode::kDivide: case Opcode::kAbs: case Opcode::kSqrt: case Opcode::kSign: case Opcode::kRemainder:
      return IsComplex(type);
    default:
      return IsTranscendental(opcode);
  }
}

// With excess precision: may the value of a half instruction have more bits than its type? Not one that is picked or moved.
bool KeepsExcess(const Instruction& i) {
  if (!i.shape().is_array() || !IsHalfType(i.shape().element_type()) || i.family() == Family::kMovement) return i.opcode() == Opcode::kIota;
  switch (i.opcode()) {
    case Opcode::kParameter: case Opcode::kConstant: case Opcode::kGetTupleElement: case Opcode::kCopy: case Opcode::kNegate:
    case Opcode::kAbs: case Opcode::kMaximum: case Opcode::kMinimum: case Opcode::kClamp: case Opcode::kSelect:
      return false;
    default:
      return true;
  }
}

bool LooksAtNanBits(const Instruction& i) {
  if (i.opcode() == Opcode::kBitcastConvert) return IsFloat(ComplexComponent(i.operand(0)->shape().element_type()));
  return i.opcode() == Opcode::kCompare && i.attrs().get_or<std::string>(Attr::kComparisonType, "") == "TOTALORDER";
}

bool AnyOf(const Computation& c, absl::FunctionRef<bool(const Instruction&)> holds) {
  for (const Instruction* i : c.instructions()) {
    if (holds(*i)) return true;
    for (const Computation* callee : i->called_computations()) {
      if (AnyOf(*callee, holds)) return true;
    }
  }
  return false;
}

// Does `i` make a size of what is not known, or compute of what has such a size? Then nothing is said of its results and their sizes.
bool HasOpenSize(const Instruction& i, Shadows operands) {
  const bool sets = i.opcode() == Opcode::kSetDimensionSize || i.opcode() == Opcode::kDynamicReshape;
  for (size_t k = 0; k < operands.size(); ++k) {
    if (sets && k > 0 && !operands[k]->exact()) return true;
    for (const Known& known : operands[k]->leaves) {
      if (known.open_size) return true;
    }
  }
  return false;
}

int64_t LeafCount(const Shape& shape) { return static_cast<int64_t>(FlattenShape(shape).size()); }

std::vector<const Literal*> Leaves(const Literal& l) {
  if (!l.shape().is_tuple()) return {&l};
  std::vector<const Literal*> leaves;
  for (const Literal& e : l.elements()) {
    for (const Literal* leaf : Leaves(e)) leaves.push_back(leaf);
  }
  return leaves;
}

// Ops whose result is elements of their operands, by exact indices; index operands from `first_index` on.
std::optional<int64_t> MovementIndices(Opcode opcode) {
  switch (opcode) {
    case Opcode::kBroadcast: case Opcode::kConcatenate: case Opcode::kReshape: case Opcode::kBitcast: case Opcode::kReverse:
    case Opcode::kSlice: case Opcode::kTranspose: case Opcode::kPad:
      return 1000;
    case Opcode::kDynamicReshape: case Opcode::kDynamicSlice: case Opcode::kGather: case Opcode::kSetDimensionSize:
      return 1;
    case Opcode::kDynamicUpdateSlice: case Opcode::kRaggedAllToAll:
      return 2;
    default:
      return std::nullopt;
  }
}

// A scan of one input that adds floats to what is carried: they may be grouped in any way.
bool IsSumAlong(const Instruction& scan) {
  if (scan.opcode() != Opcode::kScan || scan.operand_count() != 2 || scan.attrs().get_or<int64_t>(Attr::kNumCarries, 1) != 1) return false;
  const Computation& body = *scan.to_apply();
  const Instruction* root = body.root();
  if (root->opcode() == Opcode::kTuple) root = root->operand(root->operand_count() - 1);
  if (root->opcode() != Opcode::kAdd || !IsFloat(root->shape().element_type())) return false;
  const Instruction *x = body.parameter(0), *carry = body.parameter(1);
  return (root->operand(0) == x && root->operand(1) == carry) || (root->operand(0) == carry && root->operand(1) == x);
}

class BoundEvaluator {
 public:
  explicit BoundEvaluator(bool excess) : excess_(excess) {}

  absl::StatusOr<Shadow> Run(const Computation& c, std::vector<const Shadow*> args) {
    absl::flat_hash_map<const Instruction*, Shadow> values;
    for (const Instruction* i : c.PostOrder()) {
      if (i->opcode() == Opcode::kParameter) {
        values[i] = *args[i->parameter_number()];
        continue;
      }
      std::vector<const Shadow*> operands;
      for (const Instruction* o : i->operands()) operands.push_back(&values.at(o));
      TENON_ASSIGN_OR_RETURN(Shadow made, Step(*i, operands));
      values[i] = std::move(made);
    }
    return std::move(values.at(c.root()));
  }

 private:
  absl::StatusOr<Shadow> Step(const Instruction& i, Shadows operands) {
    switch (i.opcode()) {
      case Opcode::kConstant: {
        Shadow s{i.literal(), std::vector<Known>(LeafCount(i.shape()))};
        for (Known& k : s.leaves) k.moved = true;
        return s;
      }
      case Opcode::kCall: return Run(*i.to_apply(), {operands.begin(), operands.end()});
      case Opcode::kFusion: return Run(*i.fused_computation(), {operands.begin(), operands.end()});
      case Opcode::kMap: if (IsPointwiseRegion(*i.to_apply())) return Map(i, operands); break;
      case Opcode::kWhile: return While(i, *operands[0]);
      case Opcode::kScan: return Scan(i, operands);
      case Opcode::kConditional: return Conditional(i, operands);
      case Opcode::kAsyncStart: return AsyncStart(i, operands);
      case Opcode::kTuple: return Tuple(operands);
      case Opcode::kGetTupleElement: return Element(*operands[0], i.tuple_index());
      case Opcode::kCopyDone: return Element(*operands[0], 0);
      case Opcode::kAsyncDone: case Opcode::kAllGatherDone: case Opcode::kCollectivePermuteDone: return Element(*operands[0], 1);
      case Opcode::kCopy: case Opcode::kOptBarrier: case Opcode::kDomain: case Opcode::kAddDependency: case Opcode::kAsyncUpdate:
        return *operands[0];
      default: break;
    }
    const eval::Handler handler = eval::HandlerOf(i.opcode());
    if (handler == nullptr) return eval::Unimplemented(i, "has no meaning on one device");
    std::vector<Literal> literals;
    for (const Shadow* o : operands) literals.push_back(o->value);
    TENON_ASSIGN_OR_RETURN(Literal value, handler(context_, i, literals));
    Shadow s{std::move(value), {}};
    if (HasOpenSize(i, operands)) {
      for (const Literal* leaf : Leaves(s.value)) {
        s.leaves.push_back(Unknown(*leaf));
        s.leaves.back().open_size = leaf->shape().is_array();
      }
      return s;
    }
    switch (i.opcode()) {
      case Opcode::kReduce: case Opcode::kReduceWindow: case Opcode::kScatter: case Opcode::kSelectAndScatter: {
        TENON_ASSIGN_OR_RETURN(s.leaves, RegionRule(i, operands, excess_, &s.value));
        return s;
      }
      case Opcode::kDot: case Opcode::kConvolution: case Opcode::kRaggedDot: case Opcode::kScaledDot: {
        TENON_ASSIGN_OR_RETURN(Known known, ContractionRule(i, operands, excess_, &s.value));
        s.leaves.push_back(std::move(known));
        return s;
      }
      default: break;
    }
    TENON_ASSIGN_OR_RETURN(s.leaves, Rule(i, operands, s.value));
    return s;
  }

  absl::StatusOr<std::vector<Known>> Rule(const Instruction& i, Shadows operands, const Literal& value) {
    const std::vector<const Literal*> leaves = Leaves(value);
    std::vector<Known> all(leaves.size());
    if (const std::optional<int64_t> indices = MovementIndices(i.opcode())) {
      TENON_ASSIGN_OR_RETURN(all[0], Moved(i, operands, *indices, value));
      return all;
    }
    switch (i.opcode()) {
      case Opcode::kFft: case Opcode::kCholesky: case Opcode::kTriangularSolve: case Opcode::kBatchNormTraining:
      case Opcode::kBatchNormInference: case Opcode::kBatchNormGrad:
        return LinalgRule(i, operands, value);
      case Opcode::kRng: return std::vector<Known>{Drawn(i, operands, value)};
      case Opcode::kGetDimensionSize: return all;
      case Opcode::kIota: return std::vector<Known>{excess_ && IsHalfType(value.type()) ? Counted(i, value) : Known{}};
      default: break;
    }
    const bool passes = i.opcode() == Opcode::kCustomCall && operands.size() == 1 && value == operands[0]->value;
    if (i.family() == Family::kCollective || i.opcode() == Opcode::kCopyStart || passes) return Passed(operands, leaves);
    if ((i.family() == Family::kElementwise && i.opcode() != Opcode::kMap) || IsPointwiseCall(i)) {
      TENON_ASSIGN_OR_RETURN(all[0], ElementwiseRule(i, operands, value, excess_));
      return all;
    }
    // Sorts, maps, ...: exact from exact, if no region of theirs looks deeper.
    bool exact = i.opcode() != Opcode::kCustomCall || !IsFloat(ComplexComponent(leaves[0]->type()));
    bool moved = true, nan = false;
    for (const Shadow* o : operands) {
      exact = exact && o->exact();
      for (size_t k = 0; k < o->leaves.size(); ++k) {
        moved = moved && o->leaves[k].moved;
        if (!o->leaves[k].moved && o->value.shape().is_array()) nan = nan || HasNan(o->value);
      }
    }
    for (const Computation* c : i.called_computations()) {
      exact = exact && !lab::HasInexact(*c, excess_) && !(nan && lab::LooksAtNanBits(*c));
    }
    for (size_t k = 0; k < leaves.size(); ++k) {
      if (!exact) all[k] = Unknown(*leaves[k]);
      all[k].moved = moved && (i.opcode() == Opcode::kSort || i.opcode() == Opcode::kTopk);
    }
    return all;
  }

  // The same movement of the errors.
  absl::StatusOr<Known> Moved(const Instruction& i, Shadows operands, int64_t first_index, const Literal& value) {
    bool exact = true, indices_exact = true, moved = true;
    for (int64_t k = 0; k < static_cast<int64_t>(operands.size()); ++k) {
      (k < first_index ? exact : indices_exact) &= operands[k]->exact();
      if (k < first_index) moved = moved && operands[k]->known().moved;
    }
    if (!indices_exact) return Unknown(value);
    const bool retyped = i.opcode() == Opcode::kBitcast && value.type() != operands[0]->value.type();
    if (retyped && !(exact && moved)) return Unknown(value);
    if (exact) return Known{std::nullopt, moved};
    std::vector<Literal> errors;
    for (int64_t k = 0; k < static_cast<int64_t>(operands.size()); ++k) {
      const Literal& x = operands[k]->value;
      if (k >= first_index) {
        errors.push_back(x);
        continue;
      }
      std::vector<double> e(x.num_elements());
      for (size_t n = 0; n < e.size(); ++n) e[n] = operands[k]->known().At(static_cast<int64_t>(n));
      errors.push_back(AsDouble(x.shape(), std::move(e)));
    }
    const std::unique_ptr<Instruction> in_double = [&] {
      Shape shape = i.shape();
      shape.set_element_type(PrimitiveType::kF64);
      return i.CloneWithShape(shape, i.operands());
    }();
    TENON_ASSIGN_OR_RETURN(const Literal result, eval::HandlerOf(i.opcode())(context_, *in_double, errors));
    const auto data = result.data<double>();
    return FromErrors({data.begin(), data.end()}, moved);
  }

  // Operands that come out as they went in, leaf by leaf, or several times.
  static std::vector<Known> Passed(Shadows operands, const std::vector<const Literal*>& leaves) {
    std::vector<Known> from;
    for (const Shadow* o : operands) from.insert(from.end(), o->leaves.begin(), o->leaves.end());
    std::vector<Known> all(leaves.size());
    bool exact = true;
    for (const Known& k : from) exact = exact && k.exact();
    for (size_t k = 0; k < leaves.size() && !exact; ++k) {
      const bool fits = from.size() == 1 && from[0].error.has_value() && leaves[k]->shape().is_array() &&
                        static_cast<int64_t>(from[0].error->size()) == leaves[k]->num_elements();
      all[k] = fits ? from[0] : Unknown(*leaves[k]);
    }
    return all;
  }

  // Uniform draws go through one product and sum; normal ones through log and cos.
  static Known Drawn(const Instruction& i, Shadows operands, const Literal& value) {
    if (!operands[0]->exact() || !operands[1]->exact()) return Unknown(value);
    if (i.attrs().get<std::string>(Attr::kDistribution) != "rng_normal") return {};
    const double size = std::fabs(operands[0]->value.GetAsDouble(0)) + 8 * std::fabs(operands[1]->value.GetAsDouble(0));
    return FromErrors(std::vector<double>(value.num_elements(), 8 * Spacing(value.type(), size)));
  }

  // An iota of halves that may be whole numbers of f32.
  static Known Counted(const Instruction& i, const Literal& value) {
    int64_t stride = 1;
    const int64_t dim = i.attrs().get<int64_t>(Attr::kIotaDimension), size = value.shape().constant_dim(dim);
    for (int64_t d = dim + 1; d < value.shape().rank(); ++d) stride *= value.shape().constant_dim(d);
    std::vector<double> errors(value.num_elements());
    for (size_t n = 0; n < errors.size(); ++n) {
      const int64_t at = static_cast<int64_t>(n), count = at / stride % size;
      errors[n] = std::isfinite(value.GetAsDouble(at)) ? std::fabs(static_cast<double>(count) - value.GetAsDouble(at)) : kUnknown;
    }
    return FromErrors(std::move(errors), true);
  }

  static bool IsPointwiseRegion(const Computation& region) {
    for (const Instruction* op : region.instructions()) {
      const bool leaf = op->opcode() == Opcode::kParameter || op->opcode() == Opcode::kConstant;
      if (!op->shape().is_scalar() || (!leaf && (op->family() != Family::kElementwise || op->opcode() == Opcode::kMap))) return false;
    }
    return true;
  }

  // The region's instructions on whole arrays.
  absl::StatusOr<Shadow> Map(const Instruction& i, Shadows operands) {
    const std::vector<int64_t> dims = i.shape().constant_dims();
    absl::flat_hash_map<const Instruction*, Shadow> values;
    for (const Instruction* op : i.to_apply()->PostOrder()) {
      if (op->opcode() == Opcode::kParameter) {
        values[op] = *operands[op->parameter_number()];
        continue;
      }
      const Shape shape = Shape::Array(op->shape().element_type(), dims);
      if (op->opcode() == Opcode::kConstant) {
        Module scratch;
        Builder b(scratch.AddComputation("constant"));
        const Instruction* spread = b.Broadcast(b.Parameter(0, op->shape()), shape.dims(), {});
        TENON_ASSIGN_OR_RETURN(Literal all, EvaluateInstruction(*spread, {op->literal()}));
        values[op] = Shadow{std::move(all), std::vector<Known>(1)};
        continue;
      }
      std::vector<const Shadow*> from;
      for (const Instruction* o : op->operands()) from.push_back(&values.at(o));
      const std::unique_ptr<Instruction> whole = op->CloneWithShape(shape, op->operands());
      TENON_ASSIGN_OR_RETURN(Shadow made, Step(*whole, from));
      values[op] = std::move(made);
    }
    return std::move(values.at(i.to_apply()->root()));
  }

  absl::StatusOr<Shadow> While(const Instruction& i, Shadow state) {
    bool open = false;  // how often it runs is not certain
    for (int64_t n = 0;; ++n) {
      TENON_ASSIGN_OR_RETURN(const Shadow go_on, Run(*i.attrs().get<Computation*>(Attr::kCondition), {&state}));
      open = open || !go_on.exact();
      if (go_on.value.GetAsInt64(0) == 0) break;
      if (n == context_.options().max_while_iterations) return absl::ResourceExhaustedError("while: too many iterations");
      TENON_ASSIGN_OR_RETURN(state, Run(*i.attrs().get<Computation*>(Attr::kBody), {&state}));
    }
    if (open) Forget(&state);
    return state;
  }

  // How far sums along a scan are off however they are grouped, per element of a slab, with each term that comes: 0 while all that may be
  // summed up is exact (Higham, "Accuracy and stability of numerical algorithms", 4.2).
  class RunningSums {
   public:
    explicit RunningSums(const Literal& start) : magnitude_(start.num_elements(), 0), quantum_(magnitude_.size(), kUnknown) { Add(start); }
    void Add(const Literal& terms) {
      ++terms_;
      const Literal sizes = Magnitudes(terms), quanta = Quanta(terms);
      for (size_t k = 0; k < magnitude_.size(); ++k) {
        magnitude_[k] += sizes.GetAsDouble(static_cast<int64_t>(k));
        quantum_[k] = std::min(quantum_[k], quanta.GetAsDouble(static_cast<int64_t>(k)));
      }
    }
    double ErrorOf(PrimitiveType type, size_t k) const {
      if (!(magnitude_[k] < LargestFinite(type) / 2)) return kUnknown;
      if (magnitude_[k] <= 2 / EpsilonOf(type) * quantum_[k] && quantum_[k] >= Spacing(type, 0)) return 0;
      return 1.01 * terms_ * (EpsilonOf(type) * magnitude_[k] + Spacing(type, 0));
    }

   private:
    std::vector<double> magnitude_, quantum_;
    double terms_ = 0;
  };

  // Step by step in the evaluator's order, which a backend keeps but for sums: the body on one slab of each operand and on what is carried.
  absl::StatusOr<Shadow> Scan(const Instruction& i, Shadows operands) {
    const Computation& body = *i.to_apply();
    const int64_t carries = i.attrs().get_or<int64_t>(Attr::kNumCarries, static_cast<int64_t>(operands.size()) / 2);
    const size_t inputs = operands.size() - carries, outputs = LeafCount(i.shape()) - carries;
    const int64_t dim = i.dimensions()[0], steps = operands[0]->value.shape().constant_dim(dim);
    // Runs of elements that lie together, in a slab and in the whole: their first places and their length.
    const auto each_run = [&](const Shape& whole, int64_t step, absl::FunctionRef<void(int64_t, int64_t, int64_t)> f) {
      int64_t before = 1, after = 1;
      for (int64_t d = 0; d < whole.rank(); ++d) {
        if (d != dim) (d < dim ? before : after) *= whole.constant_dim(d);
      }
      for (int64_t b = 0; b < before; ++b) f(b * after, (b * steps + step) * after, after);
    };
    const auto slab_of = [&](const Shadow& whole, const Shape& shape, int64_t step) {
      Shadow slab{Literal(shape), {}};
      const int64_t width = ByteWidth(shape.element_type());
      std::vector<double> errors(whole.exact() ? 0 : slab.value.num_elements());
      each_run(whole.value.shape(), step, [&](int64_t part, int64_t at, int64_t length) {
        std::copy_n(whole.value.bytes() + at * width, length * width, slab.value.mutable_bytes() + part * width);
        if (!whole.exact()) std::copy_n(whole.known().error->begin() + at, length, errors.begin() + part);
      });
      slab.leaves.push_back(whole.exact() ? Known{std::nullopt, whole.known().moved} : FromErrors(std::move(errors)));
      return slab;
    };
    std::vector<Literal> values;
    std::vector<std::vector<double>> errors;
    for (size_t k = 0; k < outputs; ++k) {
      values.emplace_back(i.shape().is_tuple() ? i.shape().element(k) : i.shape());
      errors.emplace_back(values[k].num_elements());
    }
    std::vector<Shadow> carried;
    for (const Shadow* o : operands.subspan(inputs)) carried.push_back(*o);
    std::optional<RunningSums> sums;
    if (IsSumAlong(i)) sums.emplace(carried[0].value);
    for (int64_t n = 0; n < steps; ++n) {
      const int64_t step = i.attrs().get_or<bool>(Attr::kReverse, false) ? steps - 1 - n : n;
      std::vector<Shadow> args;
      for (size_t k = 0; k < inputs; ++k) args.push_back(slab_of(*operands[k], body.parameter(k)->shape(), step));
      if (sums) sums->Add(args[0].value);
      std::move(carried.begin(), carried.end(), std::back_inserter(args));
      std::vector<const Shadow*> pointers;
      for (const Shadow& a : args) pointers.push_back(&a);
      TENON_ASSIGN_OR_RETURN(Shadow out, Run(body, pointers));
      if (!out.value.shape().is_tuple()) out.value = Literal::Tuple({std::move(out.value)});
      const auto grouped = [&](PrimitiveType type, size_t e) { return sums ? sums->ErrorOf(type, e) : 0; };
      for (size_t k = 0; k < outputs; ++k) {
        const Literal& part = out.value.elements()[k];
        const int64_t width = ByteWidth(part.type());
        each_run(values[k].shape(), step, [&](int64_t from, int64_t at, int64_t length) {
          std::copy_n(part.bytes() + from * width, length * width, values[k].mutable_bytes() + at * width);
          for (int64_t e = 0; e < length; ++e) {
            errors[k][at + e] = out.leaves[k].At(from + e) + grouped(part.type(), static_cast<size_t>(from + e));
          }
        });
      }
      carried.clear();
      for (int64_t c = 0; c < carries; ++c) carried.push_back({out.value.elements()[outputs + c], {out.leaves[outputs + c]}});
    }
    if (sums) {
      Known& last = carried[0].leaves[0];
      std::vector<double> e(carried[0].value.num_elements());
      for (size_t k = 0; k < e.size(); ++k) e[k] = last.At(static_cast<int64_t>(k)) + sums->ErrorOf(carried[0].value.type(), k);
      last = FromErrors(std::move(e));
    }
    Shadow result;
    for (std::vector<double>& e : errors) result.leaves.push_back(FromErrors(std::move(e)));
    for (int64_t c = 0; c < carries; ++c) {
      values.push_back(std::move(carried[c].value));
      result.leaves.push_back(std::move(carried[c].leaves[0]));
    }
    result.value = i.shape().is_tuple() ? Literal::Tuple(std::move(values)) : std::move(values[0]);
    return result;
  }

  absl::StatusOr<Shadow> Conditional(const Instruction& i, Shadows operands) {
    std::vector<Computation*> branches = i.attrs().get_or<std::vector<Computation*>>(Attr::kBranchComputations, {});
    if (branches.empty()) {
      branches = {i.attrs().get<Computation*>(Attr::kTrueComputation), i.attrs().get<Computation*>(Attr::kFalseComputation)};
    }
    int64_t chosen = operands[0]->value.GetAsInt64(0);
    const int64_t count = static_cast<int64_t>(branches.size());
    if (operands[0]->value.type() == PrimitiveType::kPred) chosen = chosen != 0 ? 0 : 1;
    if (chosen < 0 || chosen >= count) chosen = count - 1;
    TENON_ASSIGN_OR_RETURN(Shadow result, Run(*branches[chosen], {operands[chosen + 1]}));
    if (!operands[0]->exact()) Forget(&result);
    return result;
  }

  // ((operands), result, contexts...)
  absl::StatusOr<Shadow> AsyncStart(const Instruction& i, Shadows operands) {
    TENON_ASSIGN_OR_RETURN(Shadow result, Run(*i.fused_computation(), {operands.begin(), operands.end()}));
    Shadow whole = Tuple(operands);
    whole.leaves.insert(whole.leaves.end(), result.leaves.begin(), result.leaves.end());
    std::vector<Literal> parts = {std::move(whole.value), std::move(result.value)};
    for (size_t k = 2; k < i.shape().elements().size(); ++k) {
      parts.emplace_back(i.shape().element(k));
      whole.leaves.resize(whole.leaves.size() + LeafCount(i.shape().element(k)));
    }
    whole.value = Literal::Tuple(std::move(parts));
    return whole;
  }

  static Shadow Tuple(Shadows operands) {
    std::vector<Literal> parts;
    Shadow s;
    for (const Shadow* o : operands) {
      parts.push_back(o->value);
      s.leaves.insert(s.leaves.end(), o->leaves.begin(), o->leaves.end());
    }
    s.value = Literal::Tuple(std::move(parts));
    return s;
  }

  static Shadow Element(const Shadow& tuple, int64_t index) {
    int64_t first = 0;
    for (int64_t k = 0; k < index; ++k) first += LeafCount(tuple.value.elements()[k].shape());
    const Literal& part = tuple.value.elements()[index];
    const auto begin = tuple.leaves.begin() + first;
    return {part, {begin, begin + LeafCount(part.shape())}};
  }

  static void Forget(Shadow* s) {
    const std::vector<const Literal*> leaves = Leaves(s->value);
    for (size_t k = 0; k < leaves.size(); ++k) s->leaves[k] = Unknown(*leaves[k]);
  }

  const bool excess_;
  EvalOptions options_;
  eval::Context context_{options_};
};

}  // namespace

bool Shadow::exact() const {
  return std::all_of(leaves.begin(), leaves.end(), [](const Known& k) { return k.exact(); });
}

bool HasInexact(const Computation& computation, bool excess) {
  return AnyOf(computation, [excess](const Instruction& i) {
    if ((excess && KeepsExcess(i)) || IsSumAlong(i)) return true;
    if (IsPointwiseCall(i)) return false;
    std::vector<Shape> shapes = FlattenShape(i.shape());
    for (const Instruction* o : i.operands()) {
      for (const Shape& leaf : FlattenShape(o->shape())) shapes.push_back(leaf);
    }
    return std::any_of(shapes.begin(), shapes.end(), [&](const Shape& s) { return IsInexact(i.opcode(), s.element_type()); });
  });
}

bool LooksAtNanBits(const Computation& computation) {
  return AnyOf(computation, [](const Instruction& i) { return LooksAtNanBits(i); });
}

bool HasInexact(const Module& module, bool excess_precision) {
  return HasInexact(*module.entry(), excess_precision) || LooksAtNanBits(*module.entry());
}

absl::StatusOr<Expectation> EvaluateWithBounds(const Module& module, absl::Span<const Literal> arguments, bool excess_precision) {
  std::vector<Shadow> shadows;
  for (const Literal& a : arguments) {
    shadows.push_back({a, std::vector<Known>(LeafCount(a.shape()))});
    for (Known& k : shadows.back().leaves) k.moved = true;
  }
  std::vector<const Shadow*> args;
  for (const Shadow& s : shadows) args.push_back(&s);
  TENON_ASSIGN_OR_RETURN(const Shadow result, BoundEvaluator(excess_precision).Run(*module.entry(), args));
  Expectation expected;
  const std::vector<const Literal*> leaves = Leaves(result.value);
  for (size_t k = 0; k < leaves.size(); ++k) {
    expected.values.push_back(*leaves[k]);
    const Known& known = result.leaves[k];
    expected.open_sizes.push_back(known.open_size);
    if (known.exact() || !leaves[k]->shape().is_array()) {
      expected.bounds.push_back(std::nullopt);
    } else {
      expected.bounds.push_back(AsDouble(leaves[k]->shape(), *known.error));
    }
  }
  return expected;
}

}  // namespace tenon::lab
