#include "passes/memory/in_place.h"

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "hlo/own_calls.h"
#include "passes/fusion/fused_form.h"
#include "passes/fusion/roles.h"

namespace tenon {
namespace {

bool SamePlaces(const Shape& a, const Shape& b) {
  if (ByteWidth(a.element_type()) != ByteWidth(b.element_type())) return false;
  if (Shape::SameDims(a, b)) {
    return Shape::SameWithLayout(Shape(PrimitiveType::kPred, a.dims(), a.minor_to_major()),
                                 Shape(PrimitiveType::kPred, b.dims(), b.minor_to_major()));
  }
  return IsRowMajor(a) && IsRowMajor(b) && KnownEqual(a.num_elements(), b.num_elements());
}

// The instructions that `parameter` flows into, operands first.
std::vector<const Instruction*> Below(const Instruction* parameter) {
  absl::flat_hash_set<const Instruction*> seen = {parameter};
  std::vector<const Instruction*> below;
  for (const Instruction* op : parameter->parent()->PostOrder()) {
    if (!absl::c_any_of(op->operands(), [&](const Instruction* o) { return seen.contains(o); })) continue;
    seen.insert(op);
    below.push_back(op);
  }
  return below;
}

bool LoopMayOverwrite(const Instruction* parameter, const Instruction& result) {
  bool reshaped = false;
  for (const Instruction* op : Below(parameter)) {
    if (op->opcode() == Opcode::kTuple) continue;
    reshaped |= op->opcode() == Opcode::kReshape;
    if (!IsPointwise(*op) && op->opcode() != Opcode::kReshape) return false;
    if (!KnownEqual(op->shape().num_elements(), result.shape().num_elements())) return false;
  }
  return !reshaped || (IsRowMajor(parameter->shape()) && IsRowMajor(result.shape()));
}

bool RowMayOverwrite(const Instruction* parameter, const Instruction& result) {
  const Computation& fused = *parameter->parent();
  if (fused.root() != &result || !IsRowMajor(parameter->shape()) || !IsRowMajor(result.shape())) return false;
  const Instruction* reduce = nullptr;
  for (const Instruction* op : fused.instructions()) {
    if (op->opcode() == Opcode::kReduce) reduce = op;
  }
  if (reduce == nullptr || KindOfReduce(*reduce) != ReduceKind::kRow) return false;
  const RowDomain domain = DomainOfReduce(*reduce);
  if (RoleOf(parameter->shape(), domain) != RowRole::kFull || RoleOf(result.shape(), domain) != RowRole::kFull) return false;
  return absl::c_all_of(Below(parameter), [&](const Instruction* op) { return KeepsRows(*op, domain); });
}

// What the result is scattered into: of a scatter of several operands, each result has its own.
bool ScatterMayOverwrite(const Instruction* parameter, const Instruction& result) {
  const bool element = result.opcode() == Opcode::kGetTupleElement;
  const Instruction& op = element ? *result.operand(0) : result;
  const bool into = op.opcode() == Opcode::kScatter || op.opcode() == Opcode::kDynamicUpdateSlice;
  return into && op.operand(element ? result.tuple_index() : 0) == parameter && parameter->user_count() == 1 &&
         absl::c_count(op.operands(), parameter) == 1;
}

// A row is read whole before it is written, and nobody else reads it.
bool SortMayOverwrite(const Instruction* parameter, const Instruction& result) {
  const Instruction& op = result.opcode() == Opcode::kGetTupleElement ? *result.operand(0) : result;
  return op.opcode() == Opcode::kSort && Shape::SameDims(parameter->shape(), result.shape()) &&
         absl::c_all_of(parameter->users(), [&](const Instruction* u) { return u == &op; });
}

}  // namespace

bool IsRowMajor(const Shape& shape) {
  return Shape::SameWithLayout(shape, Shape(shape.element_type(), shape.dims(), RowMajor(shape.rank())));
}

bool MayOverwrite(const Instruction& fusion, int64_t operand, const Instruction& result, const WorksByRows& works_by_rows) {
  if (fusion.opcode() != Opcode::kFusion || !result.shape().is_array()) return false;
  const absl::StatusOr<FusionForm> form = FusionFormOf(fusion);
  const Instruction* parameter = fusion.fused_computation()->parameter(operand);
  if (!form.ok() || !SamePlaces(parameter->shape(), result.shape())) return false;
  switch (*form) {
    case FusionForm::kLoop:
      return LoopMayOverwrite(parameter, result);
    case FusionForm::kRow:
      return works_by_rows && RowMayOverwrite(parameter, result) && works_by_rows(fusion);
    case FusionForm::kScatter:
      return ScatterMayOverwrite(parameter, result);
    case FusionForm::kSort:
      return SortMayOverwrite(parameter, result);
    default:
      return false;
  }
}

}  // namespace tenon
