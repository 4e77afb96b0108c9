// Shape inference of elementwise ops: one shape in, the same shape out, element types by the op's class.
#include "hlo/infer/context.h"

namespace tenon::infer {
namespace {

// Which element types an op takes.
enum Accepts : int { kBool = 1, kInt = 2, kSignedInt = 4, kReal = 8, kCplx = 16 };

bool Takes(int accepts, PrimitiveType type) {
  if (type == PrimitiveType::kPred) return (accepts & kBool) != 0;
  if (IsFloat(type)) return (accepts & kReal) != 0;
  if (IsComplex(type)) return (accepts & kCplx) != 0;
  if (IsSigned(type)) return (accepts & (kInt | kSignedInt)) != 0;
  return IsUnsigned(type) && (accepts & kInt) != 0;
}

std::string Describe(int accepts) {
  std::vector<std::string> names;
  if (accepts & kBool) names.push_back("pred");
  if (accepts & kInt) names.push_back("integer");
  if (accepts & kSignedInt) names.push_back("signed integer");
  if (accepts & kReal) names.push_back("float");
  if (accepts & kCplx) names.push_back("complex");
  return absl::StrCat("an array of ", absl::StrJoin(names, " or "));
}

absl::StatusOr<Shape> Unary(const Inference& in, int accepts) {
  TENON_WANT(Takes(accepts, in.shape(0).element_type()), "unary_c1", Describe(accepts), in.shape(0).ToString());
  return WithType(in.shape(0), in.shape(0).element_type());
}

// All operands of one shape; a dimension is dynamic when any operand says so.
absl::StatusOr<Shape> SameShapes(const Inference& in, absl::Span<const Shape* const> shapes) {
  Shape result = WithType(*shapes[0], shapes[0]->element_type());
  for (const Shape* s : shapes) {
    TENON_WANT(s->is_array() && s->element_type() == result.element_type(), "elementwise_c1",
               "operands of one element type", OperandShapes(in));
    TENON_WANT(KnownSameDims(*s, result), "elementwise_c2", "operands of equal dimensions", OperandShapes(in));
    for (int64_t i = 0; i < s->rank(); ++i) {
      if (s->is_dynamic(i)) result.set_dynamic(i, true);
    }
  }
  return result;
}

absl::StatusOr<Shape> Binary(const Inference& in, int accepts) {
  TENON_WANT(Takes(accepts, in.shape(0).element_type()), "binary_c1", Describe(accepts), OperandShapes(in));
  return SameShapes(in, {&in.shape(0), &in.shape(1)});
}

}  // namespace

#define TENON_UNARY(e, accepts) \
  TENON_INFER(e) { return Unary(in, accepts); }
#define TENON_BINARY(e, accepts) \
  TENON_INFER(e) { return Binary(in, accepts); }

TENON_UNARY(kAcos, kReal | kCplx)
TENON_UNARY(kAcosh, kReal | kCplx)
TENON_UNARY(kAsin, kReal | kCplx)
TENON_UNARY(kAsinh, kReal | kCplx)
TENON_UNARY(kAtan, kReal | kCplx)
TENON_UNARY(kAtanh, kReal | kCplx)
TENON_UNARY(kCbrt, kReal | kCplx)
TENON_UNARY(kCeil, kReal)
TENON_UNARY(kCountLeadingZeros, kInt)
TENON_UNARY(kCosine, kReal | kCplx)
TENON_UNARY(kCosh, kReal | kCplx)
TENON_UNARY(kErf, kReal)
TENON_UNARY(kExponential, kReal | kCplx)
TENON_UNARY(kExponentialMinusOne, kReal | kCplx)
TENON_UNARY(kFloor, kReal)
TENON_UNARY(kLog, kReal | kCplx)
TENON_UNARY(kLogPlusOne, kReal | kCplx)
TENON_UNARY(kLogistic, kReal | kCplx)
TENON_UNARY(kNegate, kInt | kReal | kCplx)
TENON_UNARY(kNot, kBool | kInt)
TENON_UNARY(kPopcnt, kInt)
TENON_UNARY(kRoundNearestAfz, kReal)
TENON_UNARY(kRoundNearestEven, kReal)
TENON_UNARY(kRsqrt, kReal | kCplx)
TENON_UNARY(kSign, kSignedInt | kReal | kCplx)
TENON_UNARY(kSine, kReal | kCplx)
TENON_UNARY(kSinh, kReal | kCplx)
TENON_UNARY(kSqrt, kReal | kCplx)
TENON_UNARY(kTan, kReal | kCplx)
TENON_UNARY(kTanh, kReal | kCplx)

TENON_BINARY(kAdd, kBool | kInt | kReal | kCplx)
TENON_BINARY(kAnd, kBool | kInt)
TENON_BINARY(kAtan2, kReal | kCplx)
TENON_BINARY(kDivide, kInt | kReal | kCplx)
TENON_BINARY(kMaximum, kBool | kInt | kReal | kCplx)
TENON_BINARY(kMinimum, kBool | kInt | kReal | kCplx)
TENON_BINARY(kMulhi, kInt)
TENON_BINARY(kMultiply, kBool | kInt | kReal | kCplx)
TENON_BINARY(kOr, kBool | kInt)
TENON_BINARY(kPower, kInt | kReal | kCplx)
TENON_BINARY(kRemainder, kInt | kReal | kCplx)
TENON_BINARY(kShiftLeft, kInt)
TENON_BINARY(kShiftRightArithmetic, kInt)
TENON_BINARY(kShiftRightLogical, kInt)
TENON_BINARY(kSubtract, kInt | kReal | kCplx)
TENON_BINARY(kXor, kBool | kInt)

TENON_INFER(kAbs) {
  TENON_ASSIGN_OR_RETURN(Shape same, Unary(in, kSignedInt | kReal | kCplx));
  return WithType(same, ComplexComponent(same.element_type()));
}

TENON_INFER(kReal) {
  TENON_ASSIGN_OR_RETURN(Shape same, Unary(in, Accepts::kReal | kCplx));
  return WithType(same, ComplexComponent(same.element_type()));
}

TENON_INFER(kImag) { return Infer<Opcode::kReal>(in); }

TENON_INFER(kIsFinite) {
  TENON_ASSIGN_OR_RETURN(Shape same, Unary(in, Accepts::kReal));
  return WithType(same, PrimitiveType::kPred);
}

TENON_INFER(kConvert) {
  TENON_WANT(in.shape(0).is_array(), "convert_c1", "an array", in.shape(0).ToString());
  TENON_WANT(in.declared != nullptr && in.declared->is_array(), "convert_c2", "a declared array type",
             in.declared == nullptr ? "none" : in.declared->ToString());
  return WithType(in.shape(0), in.declared->element_type());
}

// Widths (powers of two) may differ: the wider type's last dimension is split into, or joined from, that many narrower elements.
TENON_INFER(kBitcastConvert) {
  const Shape& from = in.shape(0);
  TENON_WANT(from.is_array(), "bitcast_convert_c1", "an array", from.ToString());
  TENON_WANT(in.declared != nullptr && in.declared->is_array(), "bitcast_convert_c2", "a declared array type",
             in.declared == nullptr ? "none" : in.declared->ToString());
  const PrimitiveType to = in.declared->element_type();
  const int a = StoredBits(from.element_type()), b = StoredBits(to);
  if (a == b) return WithType(from, to);
  DimVector dims(from.dims().begin(), from.dims().end());
  if (a > b) {
    dims.push_back(a / b);
  } else {
    TENON_WANT(from.rank() > 0 && KnownEqual(dims.back(), b / a), "bitcast_convert_c3",
               absl::StrCat("a last dimension of ", b / a), from.ToString());
    dims.pop_back();
  }
  return Shape(to, dims);
}

TENON_INFER(kReducePrecision) {
  TENON_ASSIGN_OR_RETURN(Shape same, Unary(in, Accepts::kReal));
  const int64_t e = in.integer(Attr::kExponentBits, 0), m = in.integer(Attr::kMantissaBits, 0);
  TENON_WANT(e >= 1 && e <= 64, "reduce_precision_c1", "exponent_bits from 1 to 64", e);
  TENON_WANT(m >= 0 && m <= 64, "reduce_precision_c2", "mantissa_bits from 0 to 64", m);
  return same;
}

TENON_INFER(kStochasticConvert) {
  TENON_WANT(IsFloat(in.shape(0).element_type()), "stochastic_convert_c1", "a float operand", OperandShapes(in));
  TENON_WANT(IsUnsigned(in.shape(1).element_type()) &&
                 BitWidth(in.shape(0).element_type()) == BitWidth(in.shape(1).element_type()) &&
                 KnownSameDims(in.shape(0), in.shape(1)),
             "stochastic_convert_c2", "random bits of the operand's dimensions and width", OperandShapes(in));
  TENON_WANT(in.declared != nullptr && in.declared->is_array(), "stochastic_convert_c3", "a declared array type",
             in.declared == nullptr ? "none" : in.declared->ToString());
  return WithType(in.shape(0), in.declared->element_type());
}

TENON_INFER(kComplex) {
  const PrimitiveType part = in.shape(0).element_type();
  TENON_WANT(part == PrimitiveType::kF32 || part == PrimitiveType::kF64, "complex_c1", "operands of f32 or f64",
             OperandShapes(in));
  TENON_ASSIGN_OR_RETURN(Shape same, SameShapes(in, {&in.shape(0), &in.shape(1)}));
  return WithType(same, part == PrimitiveType::kF32 ? PrimitiveType::kC64 : PrimitiveType::kC128);
}

TENON_INFER(kCompare) {
  TENON_ASSIGN_OR_RETURN(Shape same, SameShapes(in, {&in.shape(0), &in.shape(1)}));
  const std::string direction = in.ident(Attr::kDirection), type = in.ident(Attr::kComparisonType);
  const bool equality = direction == "EQ" || direction == "NE";
  TENON_WANT(equality || direction == "LT" || direction == "LE" || direction == "GT" || direction == "GE",
             "compare_c1", "direction EQ, NE, LT, LE, GT or GE", direction);
  TENON_WANT(type.empty() || type == "FLOAT" || type == "TOTALORDER" || type == "SIGNED" || type == "UNSIGNED",
             "compare_c2", "type FLOAT, TOTALORDER, SIGNED or UNSIGNED", type);
  TENON_WANT(equality || !IsComplex(same.element_type()), "compare_c3", "EQ or NE on complex operands", direction);
  return WithType(same, PrimitiveType::kPred);
}

TENON_INFER(kClamp) {
  const Shape& x = in.shape(1);
  TENON_WANT(x.is_array(), "clamp_c1", "an array", x.ToString());
  for (int64_t i : {0, 2}) {
    const Shape& bound = in.shape(i);
    TENON_WANT(bound.element_type() == x.element_type(), "clamp_c2", "bounds of the operand's type", OperandShapes(in));
    TENON_WANT(bound.is_scalar() || KnownSameDims(bound, x), "clamp_c3", "scalar bounds or the operand's dimensions",
               OperandShapes(in));
  }
  return WithType(x, x.element_type());
}

TENON_INFER(kSelect) {
  TENON_WANT(in.shape(0).element_type() == PrimitiveType::kPred, "select_c1", "a pred first operand",
             OperandShapes(in));
  TENON_ASSIGN_OR_RETURN(Shape same, SameShapes(in, {&in.shape(1), &in.shape(2)}));
  TENON_WANT(in.shape(0).is_scalar() || KnownSameDims(in.shape(0), same), "select_c2",
             "a scalar pred or the other operands' dimensions", OperandShapes(in));
  return same;
}

absl::StatusOr<Shape> PointwiseCall(const Inference& in) {
  TENON_WANT(in.count() == 3, "fma_c1", "three operands", in.count());
  const PrimitiveType type = in.shape(0).is_array() ? in.shape(0).element_type() : PrimitiveType::kPred;
  TENON_WANT(type == PrimitiveType::kF32 || type == PrimitiveType::kF64, "fma_c2", "operands of f32 or f64", OperandShapes(in));
  return SameShapes(in, {&in.shape(0), &in.shape(1), &in.shape(2)});
}

TENON_INFER(kMap) {
  std::vector<Shape> args;
  for (int64_t i = 0; i < in.count(); ++i) {
    TENON_WANT(in.shape(i).is_array() && KnownSameDims(in.shape(i), in.shape(0)), "map_c1",
               "arrays of equal dimensions", OperandShapes(in));
    args.push_back(Shape::Scalar(in.shape(i).element_type()));
  }
  const std::vector<int64_t> dims = in.ints(Attr::kDimensions);
  bool iota = static_cast<int64_t>(dims.size()) == in.shape(0).rank();
  for (size_t i = 0; iota && i < dims.size(); ++i) iota = dims[i] == static_cast<int64_t>(i);
  TENON_WANT(iota, "map_c2", "dimensions {0,1,...} of the operands", Ints(dims));
  const Computation* body = in.comp(Attr::kToApply);
  TENON_RETURN_IF_ERROR(CheckCallee(body, args, "to_apply"));
  TENON_WANT(body->root()->shape().is_scalar(), "map_c3", "to_apply to return a scalar",
             body->root()->shape().ToString());
  return WithType(in.shape(0), body->root()->shape().element_type());
}

}  // namespace tenon::infer
