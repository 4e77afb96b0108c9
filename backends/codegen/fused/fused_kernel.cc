#include "backends/codegen/fused/fused_kernel.h"

#include <bit>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "backends/codegen/emit/elementwise.h"
#include "backends/codegen/fused/region.h"
#include "hlo/check.h"
#include "hlo/order_free.h"
#include "hlo/own_calls.h"

namespace tenon {
namespace {

// Users that need the number itself at compile time: strength-reduced divisions, shifts, indices.
bool WantsImmediate(const Instruction& user) {
  switch (user.opcode()) {
    case Opcode::kDivide:
    case Opcode::kRemainder:
    case Opcode::kPower:
    case Opcode::kShiftLeft:
    case Opcode::kShiftRightArithmetic:
    case Opcode::kShiftRightLogical:
    case Opcode::kGather:
    case Opcode::kDynamicSlice:
    case Opcode::kDynamicUpdateSlice:
    case Opcode::kReduce:
    case Opcode::kReduceWindow:
    case Opcode::kScatter:
      return true;
    case Opcode::kBroadcast:
    case Opcode::kReshape:
    case Opcode::kConvert: {
      for (const Instruction* u : user.users()) {
        if (WantsImmediate(*u)) return true;
      }
      return false;
    }
    default:
      return false;
  }
}

bool IsHoistable(const Instruction& constant) {
  if (!constant.shape().is_scalar() || constant.user_count() == 0) return false;
  const PrimitiveType type = constant.shape().element_type();
  if (type == PrimitiveType::kPred) return false;
  if (IsComplex(type)) {  // two floats fit one argument
    const std::complex<double> c = constant.literal().GetAsComplex(0);
    return type == PrimitiveType::kC64 && std::isfinite(c.real()) && std::isfinite(c.imag());
  }
  const double value = constant.literal().GetAsDouble(0);
  if (IsFloat(type)) {
    if (value == 0 || value == 1 || !std::isfinite(value)) return false;
    for (const Instruction* u : constant.users()) {
      if (u->opcode() == Opcode::kReduce || u->opcode() == Opcode::kReduceWindow || IsPowerOfTwo(*u)) return false;
      const auto is_base = [](const Instruction* p) { return IsPowerOfTwo(*p); };
      if (u->opcode() == Opcode::kBroadcast && absl::c_any_of(u->users(), is_base)) return false;
    }
    return true;
  }
  if (value >= -1 && value <= 2) return false;
  for (const Instruction* u : constant.users()) {
    if (WantsImmediate(*u)) return false;
  }
  return true;
}

// The bits of the register type that a kernel reads; integers sign- or zero-extended.
uint64_t LiteralBits(const Literal& literal) {
  const PrimitiveType type = literal.type();
  auto f32 = [](double v) { return uint64_t{std::bit_cast<uint32_t>(static_cast<float>(v))}; };
  if (type == PrimitiveType::kC64) {
    const std::complex<double> c = literal.GetAsComplex(0);
    return f32(c.real()) | f32(c.imag()) << 32;
  }
  if (!IsFloat(type)) return static_cast<uint64_t>(literal.GetAsInt64(0));
  const double value = literal.GetAsDouble(0);
  return StorageBytes(type) == 8 ? std::bit_cast<uint64_t>(value) : f32(value);
}

class SymbolCollector {
 public:
  explicit SymbolCollector(std::vector<Dim>* out) : out_(out) {}
  void Visit(Dim d) {
    if (d.is_constant()) return;
    const DimExpr* e = d.expr();
    if (e->kind == DimExpr::Kind::kSymbol) {
      if (std::find(out_->begin(), out_->end(), d) == out_->end()) out_->push_back(d);
      return;
    }
    for (Dim o : e->operands) Visit(o);
  }
  void Visit(const Shape& shape) {
    for (Dim d : shape.dims()) Visit(d);
    for (const Shape& e : shape.elements()) Visit(e);
  }

 private:
  std::vector<Dim>* out_;
};

void CollectSizes(FusedKernel& f) {
  SymbolCollector collect(&f.size_args);
  for (const Instruction* op : f.order) {
    collect.Visit(op->shape());
    if (op->opcode() != Opcode::kSlice) continue;
    for (Dim d : op->attrs().get<SliceSpec>(Attr::kSlice).starts) collect.Visit(d);
  }
  for (const auto& layouts : {f.operands, f.results}) {
    for (const OperandLayout& l : layouts) {
      for (Dim d : l.strides) collect.Visit(d);
    }
  }
}

Dim Product(absl::Span<const Dim> dims) {
  Dim p = 1;
  for (Dim d : dims) p *= d;
  return p;
}

// Every reduce must run over the same iteration space: seen from the first one's operand, its dims
// split into kept and reduced ones the same way.
bool ChooseReductionSpace(FusedKernel& f, const std::vector<const Instruction*>& reduces) {
  const Instruction& first = *reduces[0];
  const Shape& space_shape = first.operand(0)->shape();
  std::vector<bool> reduced(space_shape.rank(), false);
  for (int64_t d : first.dimensions()) reduced[d] = true;
  std::vector<PlanLoop> loops;
  uint64_t reduced_vars = 0;
  for (int64_t d = 0; d < space_shape.rank(); ++d) {
    if (KnownOne(space_shape.dim(d))) continue;
    if (reduced[d]) reduced_vars |= uint64_t{1} << loops.size();
    loops.push_back({.dims = {d}, .extent = space_shape.dim(d), .reduced = reduced[d]});
  }
  if (reduced_vars == 0 || loops.size() > 16) return false;
  FusedKernel trial;
  trial.dims.assign(space_shape.dims().begin(), space_shape.dims().end());
  trial.reduced = reduced;
  IndexSpace space;
  Iteration iteration(space, trial, loops);
  for (const Instruction* r : reduces) {
    if (!CombineOf(*r)) return false;
    const Shape& s = r->operand(0)->shape();
    if (!KnownEqual(s.num_elements(), space_shape.num_elements())) return false;
    IndexTuple index = space.Reshape(iteration.full, trial.dims, s.dims());
    std::vector<bool> is_reduced(s.rank(), false);
    for (int64_t d : r->dimensions()) is_reduced[d] = true;
    for (int64_t d = 0; d < s.rank(); ++d) {
      const uint64_t wrong = is_reduced[d] ? ~reduced_vars : reduced_vars;
      if (index[d]->deps & wrong) return false;
    }
  }
  f.dims = std::move(trial.dims);
  f.reduced = std::move(reduced);
  f.reduces = reduces;
  return true;
}

// Is all that is made of the scan's elements made of each by itself, and nothing of what it carries?
bool GoesOnElementwise(const Instruction& scan) {
  const int64_t carries = scan.attrs().get_or<int64_t>(Attr::kNumCarries, scan.operand_count() / 2);
  absl::flat_hash_set<const Instruction*> seen;
  std::vector<const Instruction*> work;
  for (const Instruction* element : scan.users()) {
    if (element->opcode() != Opcode::kGetTupleElement) continue;  // the root
    const bool carried = element->tuple_index() >= static_cast<int64_t>(scan.shape().elements().size()) - carries;
    if (!carried) work.push_back(element);
    else if (absl::c_any_of(element->users(), [](const Instruction* u) { return u->opcode() != Opcode::kTuple; })) return false;
  }
  while (!work.empty()) {
    const Instruction* op = work.back();
    work.pop_back();
    for (const Instruction* user : op->users()) {
      if (user->opcode() == Opcode::kTuple || !seen.insert(user).second) continue;
      if (!IsPointwise(*user) || !Shape::SameDims(user->shape(), scan.operand(0)->shape())) return false;
      work.push_back(user);
    }
  }
  return true;
}

// The serial op behind the roots, if there is one: it must be behind all of them.
absl::Status FindSerial(FusedKernel& f) {
  const auto scan = absl::c_find_if(f.order, [](const Instruction* op) { return op->opcode() == Opcode::kScan; });
  if (scan != f.order.end() && GoesOnElementwise(**scan)) f.serial = *scan;
  for (size_t i = 0; i < f.roots.size(); ++i) {
    const bool element = f.roots[i]->opcode() == Opcode::kGetTupleElement;
    const Instruction* op = element ? f.roots[i]->operand(0) : f.roots[i];
    if (i == 0 && IsSerialOp(op->opcode())) f.serial = op;
    const bool full = f.roots[i]->shape().is_array() && f.serial != nullptr && f.serial->opcode() == Opcode::kScan &&
                      Shape::SameDims(f.roots[i]->shape(), f.serial->operand(0)->shape());
    if (op != f.serial && full && IsPointwise(*op)) {
      f.components.push_back(-1);
    } else if (op == f.serial) {
      f.components.push_back(element                  ? f.roots[i]->tuple_index()
                             : op->shape().is_tuple() ? static_cast<int64_t>(i)
                                                      : 0);
    }
  }
  for (const Instruction* op : f.order) {
    const bool misplaced =
        IsSerialOp(op->opcode()) && (op != f.serial || f.components.size() != f.roots.size());
    if (misplaced) {
      return absl::UnimplementedError(
          absl::StrCat(std::string(OpcodeName(op->opcode())), " ", op->name(),
                       " is not all that its kernel makes: ", op->ToString()));
    }
  }
  return absl::OkStatus();
}

// The iteration space of a serial op.
void ChooseSerialSpace(FusedKernel& f) {
  const Instruction& op = *f.serial;
  const bool along = op.opcode() == Opcode::kSort || op.opcode() == Opcode::kTopk ||
                     op.opcode() == Opcode::kScan;
  const Shape& shape = op.operand(0)->shape();
  f.dims.assign(shape.dims().begin(), shape.dims().end());
  f.reduced.assign(f.dims.size(), false);
  if (!along) return;
  const int64_t dim = op.opcode() == Opcode::kTopk ? shape.rank() - 1 : op.dimensions()[0];
  f.reduced[static_cast<size_t>(dim)] = true;
}

}  // namespace

bool IsSerialOp(Opcode opcode) {
  switch (opcode) {
    case Opcode::kSort:
    case Opcode::kTopk:
    case Opcode::kScan:
    case Opcode::kScatter:
    case Opcode::kSelectAndScatter:
      return true;
    default:
      return false;
  }
}

std::optional<Combine> CombineOf(const Instruction& reduce) {
  const Computation& c = *reduce.to_apply();
  const Instruction& root = *c.root();
  if (root.opcode() != Opcode::kTuple && root.operand_count() == 2 &&
      root.operand(0)->opcode() == Opcode::kParameter &&
      root.operand(1)->opcode() == Opcode::kParameter && root.operand(0) != root.operand(1)) {
    // Rounded to two or three bits after every step, a sum is what its order makes it. Of complex
    // factors 1 is not neutral: (inf, 0) times (1, 0) is (inf, NaN).
    const PrimitiveType type = root.shape().element_type();
    const bool rounded = root.opcode() == Opcode::kAdd || root.opcode() == Opcode::kMultiply;
    if ((IsNarrowFloat(type) && rounded) ||
        (IsComplex(type) && root.opcode() != Opcode::kAdd))
      return std::nullopt;
    switch (root.opcode()) {
      case Opcode::kAdd:
      case Opcode::kMultiply:
      case Opcode::kMaximum:
      case Opcode::kMinimum:
      case Opcode::kAnd:
      case Opcode::kOr:
      case Opcode::kXor:
        return Combine::kIdentity;
      default:
        break;
    }
  }
  if (!IsOrderFree(c)) return std::nullopt;
  return Combine::kSelection;
}

Opcode CombineOpcode(const Instruction& reduce) { return reduce.to_apply()->root()->opcode(); }

std::vector<Dim> FusedKernel::KeptDims() const {
  std::vector<Dim> kept;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (!reduced[d]) kept.push_back(dims[d]);
  }
  return kept;
}

Role FusedKernel::RoleOf(const Shape& shape) const {
  if (!shape.is_array()) return Role::kOther;
  const Dim n = shape.num_elements();
  if (KnownEqual(n, Product(dims))) return Role::kFull;
  return !reduces.empty() && KnownEqual(n, Product(KeptDims())) ? Role::kKept : Role::kOther;
}

namespace {

// Only the update of a dynamic-update-slice has to be written: the rest is there already.
void TakeUpdateAlone(FusedKernel& f) {
  if (f.roots.size() != 1 || f.roots[0]->opcode() != Opcode::kDynamicUpdateSlice) return;
  const Instruction* into = f.roots[0]->operand(0);
  if (into->opcode() != Opcode::kParameter) return;
  f.copies.push_back({into->parameter_number(), 0});
  f.updated = f.roots[0];
  f.roots[0] = f.updated->operand(1);
}

// What a scatter writes into is there already where it is no value of the fusion's own.
void TakeOperandsAsCopies(FusedKernel& f) {
  for (size_t i = 0; i < f.roots.size(); ++i) {
    const Instruction* into = f.serial->operand(f.components[i]);
    if (into->opcode() == Opcode::kParameter) f.copies.push_back({into->parameter_number(), static_cast<int64_t>(i)});
  }
}

// Nothing is computed but checks: what they look at is walked, as vectors and in pieces, like a result.
bool ChecksAlone(const FusedKernel& f) {
  return !f.checks.empty() && absl::c_all_of(f.roots, [&](const Instruction* r) { return absl::c_linear_search(f.checks, r); });
}

}  // namespace

const Shape& RootShape(const FusedKernel& fused, size_t root) {
  const Shape& s = fused.roots[root]->shape();
  return s.is_tuple() ? s.element(static_cast<int64_t>(root)) : s;
}

absl::StatusOr<FusedKernel> AnalyzeFusion(const KernelRequest& request) {
  FusedKernel f;
  f.computation = request.fusion->fused_computation();
  if (f.computation->instruction_count() > kMaxFusedInstructions) {
    return absl::ResourceExhaustedError(absl::StrCat("fusion ", request.fusion->name(), " has ", f.computation->instruction_count(),
                                                     " instructions; at most ", kMaxFusedInstructions, " make a kernel"));
  }
  f.operands = request.operands;
  f.results = request.results;
  std::vector<const Instruction*> reduces;
  for (const Instruction* op : f.computation->PostOrder()) {
    f.number[op] = static_cast<int64_t>(f.order.size());
    f.order.push_back(op);
    if (op->opcode() == Opcode::kCustomCall && !IsPointwiseCall(*op)) f.checks.push_back(op);
    if (op->opcode() == Opcode::kReduce) reduces.push_back(op);
    if (op->opcode() == Opcode::kConstant && IsHoistable(*op)) {
      f.literal_of[op] = static_cast<int64_t>(f.literals.size());
      f.literals.push_back(LiteralBits(op->literal()));
    }
  }
  const Instruction* root = f.computation->root();
  if (root->opcode() == Opcode::kTuple) {
    f.roots.assign(root->operands().begin(), root->operands().end());
  } else if (root->shape()
                 .is_tuple()) {  // a variadic reduce: its components, told apart by position
    for (size_t i = 0; i < root->shape().elements().size(); ++i) f.roots.push_back(root);
  } else {
    f.roots.push_back(root);
  }
  if (f.roots.size() != f.results.size() ||
      f.operands.size() != static_cast<size_t>(request.fusion->operand_count())) {
    return absl::InvalidArgumentError(
        absl::StrCat("fusion ", request.fusion->name(), ": ", f.roots.size(), " results and ",
                     request.fusion->operand_count(), " operands, layouts given for ",
                     f.results.size(), " and ", f.operands.size()));
  }
  TENON_RETURN_IF_ERROR(FindSerial(f));
  if (f.serial == nullptr && reduces.empty()) TakeUpdateAlone(f);
  if (f.serial != nullptr && f.serial->opcode() == Opcode::kScatter) TakeOperandsAsCopies(f);
  if (f.serial != nullptr) {
    ChooseSerialSpace(f);
  } else if (reduces.empty() || !ChooseReductionSpace(f, reduces)) {
    const Shape& shape = ChecksAlone(f) ? f.checks[0]->operand(0)->shape() : f.roots[0]->shape();
    const Shape& array = shape.is_tuple() ? shape.element(0) : shape;
    f.dims.assign(array.dims().begin(), array.dims().end());
    f.reduced.assign(f.dims.size(), false);
  }
  CollectSizes(f);
  return f;
}

Iteration::Iteration(IndexSpace& space, const FusedKernel& fused,
                     const std::vector<PlanLoop>& loops) {
  for (const PlanLoop& loop : loops) vars.push_back(space.Var(loop.extent));
  SetIndices(space, fused, loops);
}

Iteration::Iteration(IndexSpace& space, const FusedKernel& fused,
                     const std::vector<PlanLoop>& loops, absl::Span<const Index> v)
    : vars(v.begin(), v.end()) {
  SetIndices(space, fused, loops);
}

void Iteration::SetIndices(IndexSpace& space, const FusedKernel& fused,
                           const std::vector<PlanLoop>& loops) {
  full.assign(fused.dims.size(), space.Constant(0));
  for (size_t l = 0; l < loops.size(); ++l) {
    std::vector<Dim> dims;
    for (int64_t d : loops[l].dims) dims.push_back(fused.dims[static_cast<size_t>(d)]);
    IndexTuple index = space.Delinearize(vars[l], dims);
    for (size_t i = 0; i < dims.size(); ++i) full[static_cast<size_t>(loops[l].dims[i])] = index[i];
  }
  for (size_t d = 0; d < fused.dims.size(); ++d) {
    if (!fused.reduced[d]) kept.push_back(full[d]);
  }
}

IndexTuple Iteration::IndexOf(IndexSpace& space, const FusedKernel& fused,
                              const Shape& shape) const {
  if (fused.RoleOf(shape) == Role::kFull) return space.Reshape(full, fused.dims, shape.dims());
  return space.Reshape(kept, fused.KeptDims(), shape.dims());
}

std::vector<Dim> DenseStrides(absl::Span<const Dim> dims) {
  std::vector<Dim> strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

}  // namespace tenon
