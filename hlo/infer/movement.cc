// Shape inference of ops that move data without computing on it.
#include "hlo/infer/context.h"

namespace tenon::infer {
namespace {

Shape WithoutLayout(const Shape& s) {
  if (s.is_array()) return WithType(s, s.element_type());
  Shape copy = s;
  copy.clear_layout();
  for (size_t i = 0; i < s.elements().size(); ++i) copy.mutable_element(i) = WithoutLayout(s.element(i));
  return copy;
}

absl::StatusOr<int64_t> OneDimension(const Inference& in, int64_t rank) {
  const std::vector<int64_t> dims = in.ints(Attr::kDimensions);
  TENON_WANT(dims.size() == 1 && dims[0] >= 0 && dims[0] < rank, "dimension_c1",
             absl::StrCat("one dimension in [0, ", rank, ")"), Ints(dims));
  return dims[0];
}

std::string DimText(Dim d) { return d.ToString(); }

}  // namespace

// A bitcast keeps the bytes and may change type, dims and layout.
TENON_INFER(kBitcast) {
  TENON_ASSIGN_OR_RETURN(const Shape declared, Declared(in));
  TENON_WANT(in.shape(0).is_array() && declared.is_array(), "bitcast_c1", "an array operand and result",
             in.shape(0).ToString(), " to ", declared.ToString());
  TENON_WANT(KnownEqual(in.shape(0).num_elements() * StoredBits(in.shape(0).element_type()),
                        declared.num_elements() * StoredBits(declared.element_type())),
             "bitcast_c2", "operand and result of the same size", in.shape(0).ToString(), " to ",
             declared.ToString());
  return WithoutLayout(declared);
}

TENON_INFER(kBroadcast) {
  TENON_ASSIGN_OR_RETURN(const Shape declared, Declared(in));
  const Shape& x = in.shape(0);
  const std::vector<int64_t> dims = in.ints(Attr::kDimensions);
  TENON_WANT(x.is_array() && declared.is_array() && x.element_type() == declared.element_type(), "broadcast_c1",
             "an array operand of the result's type", x.ToString(), " to ", declared.ToString());
  TENON_WANT(static_cast<int64_t>(dims.size()) == x.rank(), "broadcast_c2",
             absl::StrCat(x.rank(), " entries in dimensions"), Ints(dims));
  TENON_WANT(InRangeAndUnique(dims, declared.rank()), "broadcast_c3",
             absl::StrCat("different dimensions in [0, ", declared.rank(), ")"), Ints(dims));
  for (int64_t i = 0; i < x.rank(); ++i) {
    TENON_WANT(KnownEqual(x.dim(i), declared.dim(dims[i])), "broadcast_c4",
               absl::StrCat("result dimension ", dims[i], " to be ", x.dim(i).ToString()),
               DimText(declared.dim(dims[i])));
  }
  return WithoutLayout(declared);
}

TENON_INFER(kConcatenate) {
  const Shape& first = in.shape(0);
  TENON_WANT(first.is_array(), "concatenate_c1", "arrays of one type and rank", OperandShapes(in));
  TENON_ASSIGN_OR_RETURN(const int64_t dim, OneDimension(in, first.rank()));
  Shape result = WithType(first, first.element_type());
  Dim total = 0;
  for (int64_t i = 0; i < in.count(); ++i) {
    const Shape& s = in.shape(i);
    TENON_WANT(s.element_type() == first.element_type() && s.rank() == first.rank(), "concatenate_c1",
               "arrays of one type and rank", OperandShapes(in));
    for (int64_t d = 0; d < s.rank(); ++d) {
      TENON_WANT(d == dim || KnownEqual(s.dim(d), first.dim(d)), "concatenate_c2",
                 absl::StrCat("equal sizes in dimension ", d), OperandShapes(in));
      if (s.is_dynamic(d)) result.set_dynamic(d, true);
    }
    total += s.dim(dim);
    TENON_WANT(total.constant_or(0) <= kMaxDim, "concatenate_c3", "a result dimension up to 2^48", DimText(total));
  }
  result.set_dim(dim, total);
  return result;
}

TENON_INFER(kConstant) {
  TENON_ASSIGN_OR_RETURN(const Shape declared, Declared(in));
  return WithoutLayout(declared);
}

TENON_INFER(kCopy) { return WithoutLayout(in.shape(0)); }

TENON_INFER(kDynamicReshape) {
  TENON_ASSIGN_OR_RETURN(const Shape declared, Declared(in));
  TENON_WANT(in.shape(0).is_array() && declared.is_array() &&
                 in.shape(0).element_type() == declared.element_type(),
             "dynamic_reshape_c1", "an array operand of the result's type", in.shape(0).ToString(), " to ",
             declared.ToString());
  TENON_WANT(in.count() - 1 == declared.rank(), "dynamic_reshape_c2",
             absl::StrCat(declared.rank(), " size operands"), in.count() - 1);
  for (int64_t i = 1; i < in.count(); ++i) {
    TENON_WANT(IsIntegralScalar(in.shape(i)), "dynamic_reshape_c3", "integer scalars as sizes", OperandShapes(in));
  }
  TENON_WANT(KnownEqual(in.shape(0).num_elements(), declared.num_elements()), "dynamic_reshape_c4",
             "the operand's number of elements", in.shape(0).ToString(), " to ", declared.ToString());
  return WithoutLayout(declared);
}

TENON_INFER(kGetDimensionSize) {
  TENON_WANT(in.shape(0).is_array(), "get_dimension_size_c1", "an array", in.shape(0).ToString());
  TENON_ASSIGN_OR_RETURN(const int64_t dim, OneDimension(in, in.shape(0).rank()));
  static_cast<void>(dim);
  return Shape::Scalar(PrimitiveType::kS32);
}

TENON_INFER(kSetDimensionSize) {
  const Shape& x = in.shape(0);
  TENON_WANT(x.is_array(), "set_dimension_size_c1", "an array", x.ToString());
  TENON_ASSIGN_OR_RETURN(const int64_t dim, OneDimension(in, x.rank()));
  TENON_WANT(in.shape(1).is_scalar() && in.shape(1).element_type() == PrimitiveType::kS32, "set_dimension_size_c2",
             "a size of s32[]", in.shape(1).ToString());
  Shape result = WithType(x, x.element_type());
  // A constant full size makes the dimension static again, so the text may say either.
  const bool full = in.operands[1]->opcode() == Opcode::kConstant &&
                    KnownEqual(x.dim(dim), in.operands[1]->literal().GetAsInt64(0));
  const bool declared_static = in.declared != nullptr && in.declared->is_array() &&
                               in.declared->rank() == x.rank() && !in.declared->is_dynamic(dim);
  result.set_dynamic(dim, !full && !declared_static);
  return result;
}

TENON_INFER(kIota) {
  TENON_ASSIGN_OR_RETURN(const Shape declared, Declared(in));
  TENON_WANT(declared.is_array() && declared.rank() > 0 && declared.element_type() != PrimitiveType::kPred,
             "iota_c1", "a numeric array of rank 1 or more", declared.ToString());
  const int64_t dim = in.integer(Attr::kIotaDimension, -1);
  TENON_WANT(dim >= 0 && dim < declared.rank(), "iota_c2",
             absl::StrCat("iota_dimension in [0, ", declared.rank(), ")"), dim);
  return WithoutLayout(declared);
}

TENON_INFER(kPad) {
  const Shape& x = in.shape(0);
  const PaddingConfig& padding = in.attrs.get<PaddingConfig>(Attr::kPadding);
  TENON_WANT(x.is_array() && in.shape(1).is_scalar() && in.shape(1).element_type() == x.element_type(), "pad_c1",
             "an array and a scalar of its type", OperandShapes(in));
  TENON_WANT(static_cast<int64_t>(padding.dims.size()) == x.rank(), "pad_c2",
             absl::StrCat("padding of ", x.rank(), " dimensions"), padding.dims.size());
  Shape result = WithType(x, x.element_type());
  for (int64_t i = 0; i < x.rank(); ++i) {
    const PaddingDim& p = padding.dims[i];
    constexpr int64_t kLimit = int64_t{1} << 48;
    TENON_WANT(p.interior >= 0 && p.interior <= (1 << 13) && std::abs(p.low) <= kLimit && std::abs(p.high) <= kLimit,
               "pad_c3", "interior from 0 to 2^13, edges within 2^48", p.low, "_", p.high, "_", p.interior);
    const Dim n = x.dim(i);
    const Dim dilated = p.interior == 0 ? n : n + Max(0, n - 1) * p.interior;
    const Dim size = dilated + p.low + p.high;
    TENON_WANT(Less(size, 0) != Ternary::kYes, "pad_c4", absl::StrCat("a size of at least 0 in dimension ", i),
               DimText(size));
    result.set_dim(i, size);
  }
  return result;
}

TENON_INFER(kReshape) {
  TENON_ASSIGN_OR_RETURN(const Shape declared, Declared(in));
  TENON_WANT(in.shape(0).is_array() && declared.is_array() &&
                 in.shape(0).element_type() == declared.element_type(),
             "reshape_c1", "an array operand of the result's type", in.shape(0).ToString(), " to ",
             declared.ToString());
  TENON_WANT(KnownEqual(in.shape(0).num_elements(), declared.num_elements()), "reshape_c2",
             "the operand's number of elements", in.shape(0).ToString(), " to ", declared.ToString());
  return WithoutLayout(declared);
}

TENON_INFER(kReverse) {
  const std::vector<int64_t> dims = in.ints(Attr::kDimensions);
  TENON_WANT(in.shape(0).is_array(), "reverse_c1", "an array", in.shape(0).ToString());
  TENON_WANT(InRangeAndUnique(dims, in.shape(0).rank()), "reverse_c2",
             absl::StrCat("different dimensions in [0, ", in.shape(0).rank(), ")"), Ints(dims));
  return WithoutLayout(in.shape(0));
}

TENON_INFER(kShuffle) {
  const std::vector<int64_t> dims = in.ints(Attr::kDimensions);
  TENON_WANT(in.shape(0).is_array(), "shuffle_c1", "an array", in.shape(0).ToString());
  TENON_WANT(InRangeAndUnique(dims, in.shape(0).rank()), "shuffle_c2",
             absl::StrCat("different dimensions in [0, ", in.shape(0).rank(), ")"), Ints(dims));
  return WithoutLayout(in.shape(0));
}

TENON_INFER(kSlice) {
  const Shape& x = in.shape(0);
  const SliceSpec& spec = in.attrs.get<SliceSpec>(Attr::kSlice);
  const int64_t rank = x.rank();
  TENON_WANT(x.is_array(), "slice_c1", "an array", x.ToString());
  TENON_WANT(static_cast<int64_t>(spec.starts.size()) == rank && static_cast<int64_t>(spec.limits.size()) == rank &&
                 static_cast<int64_t>(spec.strides.size()) == rank,
             "slice_c2", absl::StrCat("slices of ", rank, " dimensions"), spec.starts.size());
  Shape result = WithType(x, x.element_type());
  for (int64_t i = 0; i < rank; ++i) {
    const Dim start = spec.starts[i], limit = spec.limits[i];
    const int64_t stride = spec.strides[i];
    TENON_WANT(stride >= 1, "slice_c3", "a stride of at least 1", stride);
    // What isn't known of symbolic bounds is the program's promise.
    TENON_WANT(Less(start, 0) != Ternary::kYes && Less(limit, start) != Ternary::kYes &&
                   Less(x.dim(i), limit) != Ternary::kYes,
               "slice_c4", absl::StrCat("0 <= start <= limit <= ", x.dim(i).ToString(), " in dimension ", i),
               DimText(start), ":", DimText(limit));
    result.set_dim(i, stride == 1 ? limit - start : CeilDiv(limit - start, stride));
    const bool whole = KnownEqual(start, 0) && KnownEqual(limit, x.dim(i)) && stride == 1;
    if (!whole && x.is_dynamic(i)) {
      result.set_dynamic(i, in.declared != nullptr && in.declared->rank() == rank && in.declared->is_dynamic(i));
    }
  }
  return result;
}

TENON_INFER(kTranspose) {
  const Shape& x = in.shape(0);
  const std::vector<int64_t> dims = in.ints(Attr::kDimensions);
  TENON_WANT(x.is_array(), "transpose_c1", "an array", x.ToString());
  TENON_WANT(static_cast<int64_t>(dims.size()) == x.rank() && InRangeAndUnique(dims, x.rank()), "transpose_c2",
             absl::StrCat("a permutation of ", x.rank(), " dimensions"), Ints(dims));
  Shape result = WithType(x, x.element_type());
  for (int64_t i = 0; i < x.rank(); ++i) {
    result.set_dim(i, x.dim(dims[i]));
    result.set_dynamic(i, x.is_dynamic(dims[i]));
  }
  return result;
}

}  // namespace tenon::infer
