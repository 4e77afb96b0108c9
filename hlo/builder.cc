#include "hlo/builder.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "hlo/infer/infer.h"

namespace tenon {
namespace {

std::vector<int64_t> List(absl::Span<const int64_t> values) { return {values.begin(), values.end()}; }

Attributes With(Attr attr, AttrValue value) {
  Attributes attrs;
  attrs.set(attr, std::move(value));
  return attrs;
}

bool SameSpan(absl::Span<const Dim> a, absl::Span<const Dim> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

Shape Declared(PrimitiveType type, absl::Span<const Dim> dims) { return Shape(type, dims); }

}  // namespace

Instruction* Builder::Finish(Instruction* made) {
  made->metadata() = metadata_;
  return made;
}

Instruction* Builder::Make(Opcode opcode, absl::Span<Instruction* const> operands, Attributes attrs,
                           std::optional<Shape> shape) {
  absl::StatusOr<Shape> inferred =
      InferShape(opcode, operands, attrs, shape.has_value() ? &*shape : nullptr);
  TENON_CHECK(inferred.ok(), std::string(inferred.status().message()));
  // A declared shape may say more than the inferred one (a layout).
  auto i = std::make_unique<Instruction>(opcode, shape.has_value() ? *shape : *std::move(inferred),
                                         operands);
  i->mutable_attrs() = std::move(attrs);
  return Finish(c_->Add(std::move(i)));
}

Instruction* Builder::Parameter(int64_t number, const Shape& shape, std::string name) {
  return Finish(c_->AddParameter(number, shape, std::move(name)));
}

Instruction* Builder::Constant(Literal literal) {
  return Finish(c_->AddConstant(std::move(literal)));
}

Instruction* Builder::ScalarConstant(PrimitiveType type, double value) {
  return Constant(Literal::Scalar(type, value));
}

Instruction* Builder::ScalarConstantInt(PrimitiveType type, int64_t value) {
  return Constant(Literal::ScalarInt(type, value));
}

Instruction* Builder::FullLike(Instruction* like, double value) {
  return Full(like->shape().element_type(), like->shape().dims(), value);
}

Instruction* Builder::Full(PrimitiveType type, absl::Span<const Dim> dims, double value) {
  Instruction* scalar = ScalarConstant(type, value);
  return dims.empty() ? scalar : Broadcast(scalar, dims, {});
}

Instruction* Builder::SizeValue(Dim size, PrimitiveType type) {
  if (size.is_constant()) return ScalarConstantInt(type, size.constant());
  if (LowerBound(size) < 0) return Binary(Opcode::kSubtract, SizeValue(Max(size, 0), type), SizeValue(Max(0 - size, 0), type));
  Instruction* counts = Iota(Shape(PrimitiveType::kS64, {size + 1}), 0);
  return Convert(Reshape(SliceDim(counts, 0, size, size + 1), {}), type);
}

std::optional<Dim> Builder::SizeOf(const Instruction* value) {
  while (value->opcode() == Opcode::kConvert && IsIntegral(value->operand(0)->shape().element_type())) value = value->operand(0);
  if (value->opcode() == Opcode::kConstant) return Dim(value->literal().GetAsInt64(0));
  if (value->opcode() != Opcode::kReshape || value->operand(0)->opcode() != Opcode::kSlice) return std::nullopt;
  const Instruction* slice = value->operand(0);
  const Instruction* counts = slice->operand(0);
  if (counts->opcode() != Opcode::kIota || counts->shape().rank() != 1 || !KnownEqual(slice->shape().dim(0), 1)) return std::nullopt;
  return slice->attrs().get<SliceSpec>(Attr::kSlice).starts[0];
}

Instruction* Builder::Unary(Opcode opcode, Instruction* x) { return Make(opcode, {x}, {}); }

Instruction* Builder::Binary(Opcode opcode, Instruction* a, Instruction* b) {
  return Make(opcode, {a, b}, {});
}

Instruction* Builder::Compare(Instruction* a, Instruction* b, std::string_view direction) {
  return Make(Opcode::kCompare, {a, b}, With(Attr::kDirection, std::string(direction)));
}

Instruction* Builder::Select(Instruction* pred, Instruction* on_true, Instruction* on_false) {
  return Make(Opcode::kSelect, {pred, on_true, on_false}, {});
}

Instruction* Builder::Clamp(Instruction* lo, Instruction* x, Instruction* hi) {
  return Make(Opcode::kClamp, {lo, x, hi}, {});
}

Instruction* Builder::Convert(Instruction* x, PrimitiveType type) {
  if (x->shape().element_type() == type) return x;
  return Make(Opcode::kConvert, {x}, {}, Declared(type, x->shape().dims()));
}

Instruction* Builder::BitcastConvert(Instruction* x, PrimitiveType type) {
  const Shape& from = x->shape();
  if (from.element_type() == type) return x;
  // Widths that differ split an element into a new minor dimension, or join one.
  DimVector dims(from.dims().begin(), from.dims().end());
  int from_bits = BitWidth(from.element_type()), to_bits = BitWidth(type);
  if (from_bits > to_bits) dims.push_back(from_bits / to_bits);
  if (from_bits < to_bits) dims.pop_back();
  return Make(Opcode::kBitcastConvert, {x}, {}, Declared(type, dims));
}

Instruction* Builder::Broadcast(Instruction* x, absl::Span<const Dim> dims,
                                absl::Span<const int64_t> dimensions) {
  return Make(Opcode::kBroadcast, {x}, With(Attr::kDimensions, List(dimensions)),
              Declared(x->shape().element_type(), dims));
}

Instruction* Builder::BroadcastTo(Instruction* x, absl::Span<const Dim> dims) {
  const Shape& from = x->shape();
  if (SameSpan(from.dims(), dims)) return x;
  int64_t lead = static_cast<int64_t>(dims.size()) - from.rank();
  TENON_CHECK(lead >= 0, absl::StrCat("broadcast of ", from.ToString(), " to fewer dims"));
  // Dims of size 1 that must repeat are dropped, then left out of the broadcast.
  DimVector kept;
  std::vector<int64_t> dimensions;
  for (int64_t i = 0; i < from.rank(); ++i) {
    bool same = from.dim(i) == dims[lead + i] || KnownEqual(from.dim(i), dims[lead + i]);
    TENON_CHECK(same || KnownOne(from.dim(i)),
                absl::StrCat("broadcast of ", from.ToString(), ": dim ", i, " to ",
                             dims[lead + i].ToString()));
    if (same) {
      kept.push_back(from.dim(i));
      dimensions.push_back(lead + i);
    }
  }
  return Broadcast(Reshape(x, kept), dims, dimensions);
}

Instruction* Builder::Reshape(Instruction* x, absl::Span<const Dim> dims) {
  if (SameSpan(x->shape().dims(), dims)) return x;
  return Make(Opcode::kReshape, {x}, {}, Declared(x->shape().element_type(), dims));
}

Instruction* Builder::Transpose(Instruction* x, absl::Span<const int64_t> permutation) {
  bool identity = true;
  for (size_t i = 0; i < permutation.size(); ++i) {
    identity = identity && permutation[i] == static_cast<int64_t>(i);
  }
  if (identity) return x;
  return Make(Opcode::kTranspose, {x}, With(Attr::kDimensions, List(permutation)));
}

Instruction* Builder::Slice(Instruction* x, absl::Span<const Dim> starts,
                            absl::Span<const Dim> limits, absl::Span<const int64_t> strides) {
  SliceSpec spec{{starts.begin(), starts.end()}, {limits.begin(), limits.end()}, List(strides)};
  return Make(Opcode::kSlice, {x}, With(Attr::kSlice, std::move(spec)));
}

Instruction* Builder::SliceDim(Instruction* x, int64_t dim, Dim start, Dim limit, int64_t stride) {
  absl::Span<const Dim> dims = x->shape().dims();
  if (start == Dim(0) && limit == dims[dim] && stride == 1) return x;
  std::vector<Dim> starts(dims.size(), 0), limits(dims.begin(), dims.end());
  std::vector<int64_t> strides(dims.size(), 1);
  starts[dim] = start;
  limits[dim] = limit;
  strides[dim] = stride;
  return Slice(x, starts, limits, strides);
}

Instruction* Builder::Concatenate(absl::Span<Instruction* const> xs, int64_t dim) {
  if (xs.size() == 1) return xs[0];
  return Make(Opcode::kConcatenate, xs, With(Attr::kDimensions, std::vector<int64_t>{dim}));
}

Instruction* Builder::Pad(Instruction* x, Instruction* value, PaddingConfig padding) {
  return Make(Opcode::kPad, {x, value}, With(Attr::kPadding, std::move(padding)));
}

Instruction* Builder::Reverse(Instruction* x, absl::Span<const int64_t> dims) {
  if (dims.empty()) return x;
  return Make(Opcode::kReverse, {x}, With(Attr::kDimensions, List(dims)));
}

Instruction* Builder::Iota(const Shape& shape, int64_t dim) {
  return Make(Opcode::kIota, {}, With(Attr::kIotaDimension, dim), shape);
}

Instruction* Builder::Copy(Instruction* x) { return Make(Opcode::kCopy, {x}, {}); }

Instruction* Builder::Reduce(Instruction* x, Instruction* init, absl::Span<const int64_t> dims,
                             Opcode opcode) {
  return Reduce(std::vector<Instruction*>{x}, std::vector<Instruction*>{init}, dims,
                ScalarComputation(opcode, x->shape().element_type()));
}

Instruction* Builder::Reduce(absl::Span<Instruction* const> xs, absl::Span<Instruction* const> inits,
                             absl::Span<const int64_t> dims, Computation* to_apply) {
  std::vector<Instruction*> operands(xs.begin(), xs.end());
  operands.insert(operands.end(), inits.begin(), inits.end());
  Attributes attrs = With(Attr::kDimensions, List(dims));
  attrs.set(Attr::kToApply, to_apply);
  return Make(Opcode::kReduce, operands, std::move(attrs));
}

Instruction* Builder::ReduceWindow(Instruction* x, Instruction* init, Window window,
                                   Opcode opcode) {
  Attributes attrs = With(Attr::kWindow, std::move(window));
  attrs.set(Attr::kToApply, ScalarComputation(opcode, x->shape().element_type()));
  return Make(Opcode::kReduceWindow, {x, init}, std::move(attrs));
}

Instruction* Builder::Dot(Instruction* lhs, Instruction* rhs, absl::Span<const int64_t> lhs_batch,
                          absl::Span<const int64_t> rhs_batch,
                          absl::Span<const int64_t> lhs_contracting,
                          absl::Span<const int64_t> rhs_contracting,
                          std::optional<PrimitiveType> result_type) {
  Attributes attrs;
  auto set = [&attrs](Attr a, absl::Span<const int64_t> dims) {
    if (!dims.empty()) attrs.set(a, List(dims));
  };
  set(Attr::kLhsBatchDims, lhs_batch);
  set(Attr::kRhsBatchDims, rhs_batch);
  set(Attr::kLhsContractingDims, lhs_contracting);
  set(Attr::kRhsContractingDims, rhs_contracting);
  std::optional<Shape> shape;
  if (result_type.has_value()) {
    absl::StatusOr<Shape> inferred = InferShape(Opcode::kDot, {lhs, rhs}, attrs);
    TENON_CHECK(inferred.ok(), std::string(inferred.status().message()));
    shape = *std::move(inferred);
    shape->set_element_type(*result_type);
  }
  return Make(Opcode::kDot, {lhs, rhs}, std::move(attrs), shape);
}

Instruction* Builder::Tuple(absl::Span<Instruction* const> xs) {
  return Make(Opcode::kTuple, xs, {});
}

Instruction* Builder::GetTupleElement(Instruction* x, int64_t index) {
  return Make(Opcode::kGetTupleElement, {x}, With(Attr::kTupleIndex, index));
}

Instruction* Builder::CustomCall(std::string_view target, const Shape& shape,
                                 absl::Span<Instruction* const> operands,
                                 std::string backend_config_json, bool side_effect) {
  Attributes attrs = With(Attr::kCustomCallTarget, std::string(target));
  if (side_effect) attrs.set(Attr::kCustomCallHasSideEffect, true);
  if (!backend_config_json.empty()) {
    attrs.set(Attr::kBackendConfig, std::move(backend_config_json));
    attrs.backend_config_is_json = true;
  }
  return Make(Opcode::kCustomCall, operands, std::move(attrs), shape);
}

Instruction* Builder::CustomCall(std::string_view target, const Shape& shape, absl::Span<Instruction* const> operands,
                                 FrameworkCallRef site, bool side_effect) {
  Attributes attrs = With(Attr::kCustomCallTarget, std::string(target));
  if (side_effect) attrs.set(Attr::kCustomCallHasSideEffect, true);
  attrs.set(Attr::kBackendConfig, std::move(site));
  attrs.backend_config_is_json = true;
  return Make(Opcode::kCustomCall, operands, std::move(attrs), shape);
}

Computation* Builder::ScalarComputation(Opcode opcode, PrimitiveType type) {
  return module()->ScalarComputation(opcode, type);
}

}  // namespace tenon
