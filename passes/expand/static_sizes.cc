// StaticSizes: bounded dimensions whose sizes the program itself fixes become static ones.
//
//   set-dimension-size by a constant         the operand, or its first elements; what reads it is of that size from then on
//   dynamic-reshape to constant sizes        reshape
//   get-dimension-size of another dimension  its size; of a symbol the number that it is in the run (Builder::SizeValue)
//
// All of a computation or nothing: a size that is known at run time only (a bounded parameter, a computed size), or an op whose
// shape does not follow from its operands' (broadcast, reshape), leaves it as it was (backends/driver/run_time_sizes.h).
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_set.h"
#include "hlo/builder.h"
#include "hlo/infer/infer.h"
#include "passes/pass.h"

namespace tenon {
namespace {

std::optional<int64_t> ConstantSize(const Instruction& op) {
  if (op.opcode() != Opcode::kConstant || !op.shape().is_scalar()) return std::nullopt;
  return op.literal().GetAsInt64(0);
}

bool IsBounded(const Shape& shape) {
  for (int64_t d = 0; d < shape.rank(); ++d) {
    if (shape.is_dynamic(d)) return true;
  }
  return absl::c_any_of(shape.elements(), IsBounded);
}

class Resolver {
 public:
  explicit Resolver(Computation* c) : c_(c) {}

  bool Run() {
    const std::vector<Instruction*> order = c_->PostOrder();
    absl::Cleanup restore = [&] {
      for (const auto& [op, shape] : before_) op->mutable_shape() = shape;
    };
    for (Instruction* op : order) {
      if (!Resolve(op)) return false;
    }
    std::move(restore).Cancel();
    bool changed = !before_.empty();
    for (Instruction* op : order) changed |= Replace(op);
    return changed;
  }

 private:
  void SetShape(Instruction* op, Shape shape) {
    if (op->shape().is_array() && op->shape().has_layout()) shape.set_layout(op->shape().minor_to_major());
    before_.emplace_back(op, op->shape());
    moved_.insert(op);
    op->mutable_shape() = std::move(shape);
  }

  // Gives `op` the shape that its operands' new shapes ask for. False: there is none.
  bool Resolve(Instruction* op) {
    if (op->opcode() == Opcode::kSetDimensionSize) return ResolveSet(op);
    if (op->opcode() == Opcode::kDynamicReshape) return ResolveReshape(op);
    bool moved = false;
    for (const Instruction* o : op->operands()) moved |= moved_.contains(o);
    const bool bounded = IsBounded(op->shape());
    if (!bounded && !moved) return true;
    absl::StatusOr<Shape> shape = InferShape(op->opcode(), op->operands(), op->attrs(), bounded ? nullptr : &op->shape());
    if (!shape.ok() || IsBounded(*shape)) return false;
    if (Shape::Compatible(*shape, op->shape()) && !bounded) return true;
    if (op == c_->root() && c_ != c_->module()->entry()) return false;  // its callers count on the shape
    SetShape(op, *std::move(shape));
    return true;
  }

  bool ResolveSet(Instruction* op) {
    const Shape& x = op->operand(0)->shape();
    const int64_t dim = op->dimensions()[0];
    const std::optional<int64_t> size = ConstantSize(*op->operand(1));
    if (!size || !x.is_static() || *size < 0 || *size > x.constant_dim(dim)) return false;
    const bool whole = *size == x.constant_dim(dim);
    if (!whole && (!op->shape().is_dynamic(dim) || (op == c_->root() && c_ != c_->module()->entry()))) return false;
    Shape shape(x.element_type(), x.dims());
    shape.set_dim(dim, *size);
    if (!op->shape().is_static() || !Shape::Compatible(shape, op->shape())) SetShape(op, std::move(shape));
    return true;
  }

  bool ResolveReshape(Instruction* op) {
    Shape shape(op->shape().element_type(), op->shape().dims());
    for (int64_t d = 0; d < shape.rank(); ++d) {
      const std::optional<int64_t> size = ConstantSize(*op->operand(d + 1));
      if (!size || *size < 0 || *size > shape.constant_dim(d)) return false;
      shape.set_dim(d, *size);
    }
    const Shape& x = op->operand(0)->shape();
    if (!x.is_static() || x.num_elements() != shape.num_elements()) return false;
    if (op == c_->root() && c_ != c_->module()->entry()) return false;
    if (!op->shape().is_static() || !Shape::Compatible(shape, op->shape())) SetShape(op, std::move(shape));
    return true;
  }

  bool Replace(Instruction* op) {
    Builder b(c_);
    b.set_metadata(op->metadata());
    Instruction* with = nullptr;
    switch (op->opcode()) {
      case Opcode::kGetDimensionSize:
        with = b.SizeValue(op->operand(0)->shape().dim(op->dimensions()[0]), op->shape().element_type());
        break;
      case Opcode::kSetDimensionSize: {
        const int64_t dim = op->dimensions()[0];
        with = op->operand(0);
        if (with->shape().dim(dim) != op->shape().dim(dim)) with = b.SliceDim(with, dim, 0, op->shape().dim(dim));
        break;
      }
      case Opcode::kDynamicReshape: with = b.Reshape(op->operand(0), op->shape().dims()); break;
      default: return false;
    }
    if (op->shape().has_layout() && with != op->operand(0)) with->mutable_shape().set_layout(op->shape().minor_to_major());
    c_->ReplaceAndRemove(op, with);
    return true;
  }

  Computation* c_;
  std::vector<std::pair<Instruction*, Shape>> before_;
  absl::flat_hash_set<const Instruction*> moved_;
};

bool HasSizes(const Computation& c) {
  for (const Instruction* op : c.instructions()) {
    if (op->opcode() == Opcode::kSetDimensionSize || op->opcode() == Opcode::kGetDimensionSize ||
        op->opcode() == Opcode::kDynamicReshape) {
      return true;
    }
  }
  return false;
}

}  // namespace

absl::StatusOr<bool> StaticSizes(Module& module, PassContext&) {
  bool changed = false;
  for (Computation* c : module.computations()) {
    if (HasSizes(*c)) changed |= Resolver(c).Run();
  }
  return changed;
}

}  // namespace tenon
