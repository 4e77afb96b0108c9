#include "backends/codegen/fused/region.h"

#include "backends/codegen/emit/elementwise.h"
#include "hlo/own_calls.h"

namespace tenon {
namespace {

// Scalars, and arrays of `slab`'s dims if there is one.
bool Fits(const Shape& shape, const Shape* slab) {
  if (!shape.is_array() || !IsGeneratedType(shape.element_type())) return false;
  return shape.is_scalar() || (slab != nullptr && Shape::SameDims(shape, *slab));
}

bool IsFlat(const Instruction& op, const Shape* slab) {
  switch (op.opcode()) {
    case Opcode::kParameter:
      return Fits(op.shape(), slab);
    case Opcode::kConstant:
      return Fits(op.shape(), slab) && (op.shape().is_scalar() || op.literal().IsSplat());
    case Opcode::kTuple:
      return &op == op.parent()->root();
    case Opcode::kMap:
      return Fits(op.shape(), slab) && IsFlatRegion(*op.to_apply());
    default:
      break;
  }
  if (!Fits(op.shape(), slab)) return false;
  if (KeepsScalar(op.opcode())) {
    // Between slabs only what keeps each element in its place.
    const Shape& from = op.operand(0)->shape();
    if (from.is_scalar()) return op.opcode() != Opcode::kBitcast || BitWidth(from.element_type()) == BitWidth(op.shape().element_type());
    return op.opcode() == Opcode::kCopy || op.opcode() == Opcode::kOptBarrier ||
           (op.opcode() == Opcode::kReshape && Shape::SameDims(from, op.shape()));
  }
  return IsPointwise(op) && HasElementwiseBody(op);
}

}  // namespace

bool KeepsScalar(Opcode opcode) {
  return opcode == Opcode::kBitcast || opcode == Opcode::kReshape ||
         opcode == Opcode::kBroadcast || opcode == Opcode::kOptBarrier ||
         opcode == Opcode::kTranspose || opcode == Opcode::kCopy;
}

bool IsFlatRegion(const Computation& region, bool slabs) {
  const Shape* slab = nullptr;
  for (const Instruction* p : region.parameters()) {
    if (slabs && p->shape().is_array() && !p->shape().is_scalar()) slab = &p->shape();
  }
  for (const Instruction* op : region.PostOrder()) {
    if (!IsFlat(*op, slab)) return false;
  }
  const Shape& root = region.root()->shape();
  if (slab == nullptr) return true;
  // A slab is made of slabs: a scalar carry would depend on which element of the slab comes last.
  for (const Instruction* p : region.parameters()) {
    if (!Shape::SameDims(p->shape(), *slab)) return false;
  }
  for (const Shape& leaf : FlattenShape(root)) {
    if (!Shape::SameDims(leaf, *slab)) return false;
  }
  return true;
}

std::vector<const Computation*> RegionsOf(const Instruction& op) {
  switch (op.opcode()) {
    case Opcode::kReduce:
    case Opcode::kReduceWindow:
    case Opcode::kMap:
    case Opcode::kSort:
    case Opcode::kScan:
    case Opcode::kScatter:
      return {op.to_apply()};
    case Opcode::kSelectAndScatter:
      return {op.attrs().get<Computation*>(Attr::kSelect),
              op.attrs().get<Computation*>(Attr::kScatter)};
    default:
      return {};
  }
}

bool HasGeneralRegion(const Instruction& op) {
  for (const Computation* region : RegionsOf(op)) {
    if (!IsFlatRegion(*region, /*slabs=*/op.opcode() == Opcode::kScan)) return true;
  }
  return false;
}

}  // namespace tenon
