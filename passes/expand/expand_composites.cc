// ExpandComposites: composite instructions become the elementwise ops and reductions that they are defined by, which fuse.
//
//   batch-norm-inference, batch-norm-training, batch-norm-grad   (statistics of low-precision types in f32)
//
// Early, before simplify and fusion. What the backend generates itself (PassContext::can_generate) stays.
#include "hlo/builder.h"
#include "passes/pass.h"

namespace tenon {
namespace {

class BatchNorm {
 public:
  explicit BatchNorm(Instruction* op)
      : op_(op), b_(op->parent()), x_(Wide(op->operand(0))), feature_(op->attrs().get<int64_t>(Attr::kFeatureIndex)) {
    b_.set_metadata(op->metadata());
    for (int64_t i = 0; i < x_->shape().rank(); ++i) {
      if (i != feature_) others_.push_back(i);
    }
  }

  Instruction* Inference() {
    Instruction *scale = Wide(op_->operand(1)), *offset = Wide(op_->operand(2));
    return Narrow(Normalized(scale, offset, Wide(op_->operand(3)), Wide(op_->operand(4))), op_->shape());
  }

  Instruction* Training() {
    Instruction* n = Count();
    Instruction* mean = b_.Binary(Opcode::kDivide, Sum(x_), n);
    Instruction* centred = b_.Binary(Opcode::kSubtract, x_, Spread(mean));
    Instruction* variance = b_.Binary(Opcode::kDivide, Sum(Times(centred, centred)), n);
    Instruction* y = Normalized(Wide(op_->operand(1)), Wide(op_->operand(2)), mean, variance);
    return Results({y, mean, variance});
  }

  // dx = scale * rstd / n * (n dy - sum(dy) - xhat * sum(dy * xhat))
  Instruction* Grad() {
    Instruction *scale = Wide(op_->operand(1)), *mean = Wide(op_->operand(2)), *dy = Wide(op_->operand(4));
    Instruction* rstd = Rstd(Wide(op_->operand(3)));
    Instruction* normal = Times(b_.Binary(Opcode::kSubtract, x_, Spread(mean)), Spread(rstd));
    Instruction *d_offset = Sum(dy), *d_scale = Sum(Times(dy, normal));
    Instruction* n = Count();
    Instruction* inner = b_.Binary(Opcode::kSubtract, Times(dy, Spread(n)), Spread(d_offset));
    inner = b_.Binary(Opcode::kSubtract, inner, Times(normal, Spread(d_scale)));
    Instruction* dx = Times(inner, Spread(b_.Binary(Opcode::kDivide, Times(scale, rstd), n)));
    return Results({dx, d_scale, d_offset});
  }

 private:
  Instruction* Wide(Instruction* x) {
    const PrimitiveType type = x->shape().element_type();
    return type == PrimitiveType::kF64 ? x : b_.Convert(x, PrimitiveType::kF32);
  }
  Instruction* Narrow(Instruction* x, const Shape& like) { return b_.Convert(x, like.element_type()); }
  Instruction* Results(std::vector<Instruction*> values) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = Narrow(values[i], op_->shape().element(static_cast<int64_t>(i)));
    return b_.Tuple(values);
  }
  Instruction* Times(Instruction* a, Instruction* b) { return b_.Binary(Opcode::kMultiply, a, b); }
  Instruction* Spread(Instruction* per_feature) { return b_.Broadcast(per_feature, x_->shape().dims(), {feature_}); }
  Instruction* Sum(Instruction* x) {
    return b_.Reduce(x, b_.ScalarConstant(x->shape().element_type(), 0), others_, Opcode::kAdd);
  }
  // The number of elements per feature, one per feature.
  Instruction* Count() {
    Dim n = 1;
    for (int64_t i : others_) n *= x_->shape().dim(i);
    return b_.Broadcast(b_.SizeValue(n, x_->shape().element_type()), {x_->shape().dim(feature_)}, {});
  }
  Instruction* Rstd(Instruction* variance) {
    Instruction* epsilon = b_.FullLike(variance, op_->attrs().get<double>(Attr::kEpsilon));
    return b_.Unary(Opcode::kRsqrt, b_.Binary(Opcode::kAdd, variance, epsilon));
  }
  Instruction* Normalized(Instruction* scale, Instruction* offset, Instruction* mean, Instruction* variance) {
    Instruction* centred = b_.Binary(Opcode::kSubtract, x_, Spread(mean));
    Instruction* normal = Times(centred, Spread(Times(Rstd(variance), scale)));
    return b_.Binary(Opcode::kAdd, normal, Spread(offset));
  }

  Instruction* op_;
  Builder b_;
  Instruction* x_;
  int64_t feature_;
  std::vector<int64_t> others_;
};

// Of a bounded dimension no more is there than the run says.
bool IsBounded(const Shape& shape) {
  for (int64_t d = 0; d < shape.rank(); ++d) {
    if (shape.is_dynamic(d)) return true;
  }
  return false;
}

Instruction* Expanded(Instruction* op) {
  switch (op->opcode()) {
    case Opcode::kBatchNormInference:
      return BatchNorm(op).Inference();
    case Opcode::kBatchNormTraining:
      return IsBounded(op->operand(0)->shape()) ? nullptr : BatchNorm(op).Training();
    case Opcode::kBatchNormGrad:
      return IsBounded(op->operand(0)->shape()) ? nullptr : BatchNorm(op).Grad();
    default:
      return nullptr;
  }
}

}  // namespace

absl::StatusOr<bool> ExpandComposites(Module& module, PassContext& context) {
  bool changed = false;
  for (Computation* c : module.computations()) {
    for (Instruction* op : c->PostOrder()) {
      if (context.can_generate && op->family() == Family::kReduction && context.can_generate(*op)) continue;
      Instruction* with = Expanded(op);
      if (with == nullptr) continue;
      c->ReplaceAndRemove(op, with);
      changed = true;
    }
  }
  return changed;
}

}  // namespace tenon
