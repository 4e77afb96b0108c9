#include "backends/codegen/fused/generate.h"

#include <algorithm>

#include "backends/codegen/emit/elementwise.h"
#include "backends/codegen/fused/fused_kernel.h"
#include "backends/codegen/fused/region.h"
#include "backends/codegen/index/contraction_index.h"
#include "hlo/own_calls.h"
#include "passes/expand/control_flow.h"

namespace tenon {
namespace {

// Wide enough for one sum: integers wrap in any width, floats narrower than f32 would round each step.
bool SumsInRegisters(PrimitiveType type) {
  if (IsFloat(type)) return type == PrimitiveType::kF32 || type == PrimitiveType::kF64;
  return type != PrimitiveType::kPred && (IsComplex(type) || BitWidth(type) >= 8);
}

// One type throughout that sums may be kept in: expand-contractions sees to that.
bool CanGenerateContraction(const Instruction& op) {
  return IsContraction(op) && SumsInRegisters(op.shape().element_type()) && !op.attrs().has(Attr::kAlgorithm) && OfOneType(op);
}

bool HasGeneratedTypes(const Instruction& op) {
  for (const Shape& s : FlattenShape(op.shape())) {
    if (!s.is_array() || !IsGeneratedType(s.element_type())) return false;
    for (int64_t d = 0; d < s.rank(); ++d) {
      if (s.is_dynamic(d)) return false;
    }
  }
  return true;
}

constexpr int64_t kMaxTable = 1 << 16;  // elements of a constant in a region

bool IsGeneralRegion(const Computation& region);

// Can this be part of a region that is evaluated on scalars? Loops carry scalars.
bool FitsRegion(const Instruction& op) {
  switch (op.opcode()) {
    case Opcode::kParameter:
    case Opcode::kTuple:
    case Opcode::kGetTupleElement:
      return true;
    case Opcode::kConstant:
      return HasGeneratedTypes(op) && op.literal().num_elements() <= kMaxTable;
    case Opcode::kWhile:
      return IsGeneralRegion(*op.attrs().get<Computation*>(Attr::kCondition)) &&
             IsGeneralRegion(*op.attrs().get<Computation*>(Attr::kBody));
    case Opcode::kConditional: {
      const std::vector<Computation*> branches = BranchesOf(op);
      return std::all_of(branches.begin(), branches.end(),
                         [](const Computation* c) { return IsGeneralRegion(*c); });
    }
    default:
      return !IsSerialOp(op.opcode()) && (op.opcode() != Opcode::kCustomCall || IsPointwise(op)) && CanGenerate(op);
  }
}

// Parameters and results of scalars, perhaps in one tuple, and between them what can be read by index.
bool IsGeneralRegion(const Computation& region) {
  auto scalars = [](const Shape& shape) {
    for (const Shape& leaf : shape.is_tuple() ? shape.elements() : absl::MakeConstSpan(&shape, 1)) {
      if (!leaf.is_array() || !leaf.is_scalar() || !IsGeneratedType(leaf.element_type())) return false;
    }
    return true;
  };
  for (const Instruction* p : region.parameters()) {
    if (!scalars(p->shape())) return false;
  }
  if (!scalars(region.root()->shape())) return false;
  for (const Instruction* op : region.PostOrder()) {
    if (!FitsRegion(*op)) return false;
    // Tuples hold scalars, but for a reduce of several operands, whose elements are read one by one.
    const bool reduces = op->opcode() == Opcode::kReduce || op->opcode() == Opcode::kReduceWindow;
    if (op->shape().is_tuple() && !reduces && !scalars(op->shape())) return false;
  }
  return true;
}

}  // namespace

bool CanGenerate(const Instruction& op) {
  if (op.opcode() == Opcode::kTuple) return true;
  if (!HasGeneratedTypes(op)) return false;
  for (const Instruction* o : op.operands()) {
    if (!o->shape().is_tuple() && !HasGeneratedTypes(*o)) return false;
  }
  switch (op.opcode()) {
    case Opcode::kParameter:
    case Opcode::kGetTupleElement:
    case Opcode::kIota:
    case Opcode::kBroadcast:
    case Opcode::kReshape:
    case Opcode::kTranspose:
    case Opcode::kSlice:
    case Opcode::kPad:
    case Opcode::kConcatenate:
    case Opcode::kReverse:
    case Opcode::kCopy:
    case Opcode::kGather:
    case Opcode::kDynamicSlice:
    case Opcode::kDynamicUpdateSlice:
      return true;
    case Opcode::kBitcast:
      return BitWidth(op.shape().element_type()) ==
             BitWidth(op.operand(0)->shape().element_type());
    case Opcode::kBitcastConvert:
      return ChangesWidth(op) || HasElementwiseBody(op);
    case Opcode::kConstant:
      return op.shape().rank() == 0 || op.literal().IsSplat() || op.literal().num_elements() <= 16;
    case Opcode::kDot:
    case Opcode::kConvolution:
      return CanGenerateContraction(op);
    case Opcode::kReduce:
    case Opcode::kReduceWindow:
    case Opcode::kScatter:
    case Opcode::kMap:
    case Opcode::kSort:
    case Opcode::kSelectAndScatter: {
      const std::vector<const Computation*> regions = RegionsOf(op);
      return std::all_of(regions.begin(), regions.end(),
                         [](const Computation* r) { return IsFlatRegion(*r) || IsGeneralRegion(*r); });
    }
    case Opcode::kTopk:
      return !IsComplex(op.operand(0)->shape().element_type());
    case Opcode::kScan:
      return IsFlatRegion(*op.to_apply(), /*slabs=*/true);
    case Opcode::kCustomCall:
      return op.custom_call_target() == "tenon.check" || (IsPointwise(op) && HasElementwiseBody(op));
    default:
      return IsPointwise(op) && HasElementwiseBody(op);
  }
}

}  // namespace tenon
