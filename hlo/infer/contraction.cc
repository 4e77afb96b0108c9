// Shape inference of dot products and convolution.
#include <algorithm>

#include "hlo/infer/context.h"

namespace tenon::infer {
namespace {

struct DotDims {
  std::vector<int64_t> lhs_batch, rhs_batch, lhs_contracting, rhs_contracting;
};

bool Holds(const std::vector<int64_t>& list, int64_t d) {
  return std::find(list.begin(), list.end(), d) != list.end();
}

absl::StatusOr<DotDims> CheckDot(const Inference& in) {
  const DotDims d{in.ints(Attr::kLhsBatchDims), in.ints(Attr::kRhsBatchDims), in.ints(Attr::kLhsContractingDims),
                  in.ints(Attr::kRhsContractingDims)};
  const Shape &lhs = in.shape(0), &rhs = in.shape(1);
  TENON_WANT(lhs.is_array() && rhs.is_array(), "dot_c1", "two arrays", OperandShapes(in));
  auto both = [](const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
    std::vector<int64_t> all = a;
    all.insert(all.end(), b.begin(), b.end());
    return all;
  };
  TENON_WANT(InRangeAndUnique(both(d.lhs_batch, d.lhs_contracting), lhs.rank()), "dot_c2",
             absl::StrCat("different batch and contracting dimensions of lhs in [0, ", lhs.rank(), ")"),
             Ints(d.lhs_batch), " and ", Ints(d.lhs_contracting));
  TENON_WANT(InRangeAndUnique(both(d.rhs_batch, d.rhs_contracting), rhs.rank()), "dot_c3",
             absl::StrCat("different batch and contracting dimensions of rhs in [0, ", rhs.rank(), ")"),
             Ints(d.rhs_batch), " and ", Ints(d.rhs_contracting));
  TENON_WANT(d.lhs_batch.size() == d.rhs_batch.size(), "dot_c4", "as many batch dimensions of lhs as of rhs",
             Ints(d.lhs_batch), " and ", Ints(d.rhs_batch));
  for (size_t i = 0; i < d.lhs_batch.size(); ++i) {
    TENON_WANT(KnownEqual(lhs.dim(d.lhs_batch[i]), rhs.dim(d.rhs_batch[i])), "dot_c5", "equal batch sizes",
               OperandShapes(in));
  }
  return d;
}

absl::Status CheckContracting(const Inference& in, const DotDims& d) {
  TENON_WANT(d.lhs_contracting.size() == d.rhs_contracting.size(), "dot_c6",
             "as many contracting dimensions of lhs as of rhs", Ints(d.lhs_contracting), " and ",
             Ints(d.rhs_contracting));
  // A sparse operand (sparsity=L.0@2:4) stores half of its contracting dimension.
  if (in.attrs.has(Attr::kSparsity)) return absl::OkStatus();
  for (size_t i = 0; i < d.lhs_contracting.size(); ++i) {
    TENON_WANT(KnownEqual(in.shape(0).dim(d.lhs_contracting[i]), in.shape(1).dim(d.rhs_contracting[i])), "dot_c7",
               "equal contracting sizes", OperandShapes(in));
  }
  return absl::OkStatus();
}

// The text may ask for another result type than the operands' (preferred_element_type).
absl::StatusOr<PrimitiveType> ResultType(const Inference& in) {
  const PrimitiveType a = in.shape(0).element_type(), b = in.shape(1).element_type();
  if (in.declared == nullptr) {
    TENON_WANT(a == b, "result_type_c1", "a declared result type for operands of two types", OperandShapes(in));
    return a;
  }
  TENON_WANT(in.declared->is_array(), "result_type_c2", "an array result", in.declared->ToString());
  const PrimitiveType t = in.declared->element_type();
  TENON_WANT(IsComplex(t) || (!IsComplex(a) && !IsComplex(b)), "result_type_c3",
             "a complex result of complex operands", in.declared->ToString());
  return t;
}

void AppendFree(const Shape& s, const std::vector<int64_t>& batch, const std::vector<int64_t>& contracting,
                DimVector* dims, absl::InlinedVector<bool, 6>* dynamic) {
  for (int64_t i = 0; i < s.rank(); ++i) {
    if (Holds(batch, i) || Holds(contracting, i)) continue;
    dims->push_back(s.dim(i));
    dynamic->push_back(s.is_dynamic(i));
  }
}

Shape DotResult(const Inference& in, const DotDims& d, PrimitiveType type, const std::vector<int64_t>& rhs_group = {}) {
  DimVector dims;
  absl::InlinedVector<bool, 6> dynamic;
  for (int64_t b : d.lhs_batch) {
    dims.push_back(in.shape(0).dim(b));
    dynamic.push_back(in.shape(0).is_dynamic(b));
  }
  AppendFree(in.shape(0), d.lhs_batch, d.lhs_contracting, &dims, &dynamic);
  std::vector<int64_t> rhs_gone = d.rhs_contracting;
  rhs_gone.insert(rhs_gone.end(), rhs_group.begin(), rhs_group.end());
  AppendFree(in.shape(1), d.rhs_batch, rhs_gone, &dims, &dynamic);
  return MakeArray(type, dims, dynamic);
}

struct ConvSizes {
  int64_t feature_groups, batch_groups;
};

absl::StatusOr<ConvSizes> CheckConvolution(const Inference& in, const DimLabels& l) {
  const Shape &x = in.shape(0), &k = in.shape(1);
  TENON_WANT(x.is_array() && k.is_array() && x.rank() == k.rank() && x.rank() >= 2, "convolution_c1",
             "two arrays of equal rank >= 2", OperandShapes(in));
  auto covers = [&](int64_t a, int64_t b, std::vector<int64_t> spatial) {
    spatial.push_back(a);
    spatial.push_back(b);
    return static_cast<int64_t>(spatial.size()) == x.rank() && InRangeAndUnique(spatial, x.rank());
  };
  TENON_WANT(covers(l.input_batch, l.input_feature, l.input_spatial) &&
                 covers(l.kernel_input_feature, l.kernel_output_feature, l.kernel_spatial) &&
                 covers(l.output_batch, l.output_feature, l.output_spatial),
             "convolution_c2", absl::StrCat("dim_labels that name each of ", x.rank(), " dimensions once"),
             OperandShapes(in));
  const ConvSizes g{in.integer(Attr::kFeatureGroupCount, 1), in.integer(Attr::kBatchGroupCount, 1)};
  TENON_WANT(g.feature_groups >= 1 && g.batch_groups >= 1 && (g.feature_groups == 1 || g.batch_groups == 1),
             "convolution_c3", "positive group counts, at most one of them above 1", g.feature_groups, " and ",
             g.batch_groups);
  const Dim in_features = x.dim(l.input_feature), out_features = k.dim(l.kernel_output_feature);
  TENON_WANT(Divides(g.feature_groups, in_features) == Ternary::kYes &&
                 KnownEqual(FloorDiv(in_features, g.feature_groups), k.dim(l.kernel_input_feature)),
             "convolution_c4", "input features = kernel input features * feature_group_count", OperandShapes(in));
  TENON_WANT(Divides(g.feature_groups, out_features) == Ternary::kYes &&
                 Divides(g.batch_groups, out_features) == Ternary::kYes,
             "convolution_c5", "output features divisible by the group counts", OperandShapes(in));
  TENON_WANT(Divides(g.batch_groups, x.dim(l.input_batch)) == Ternary::kYes, "convolution_c6",
             "a batch divisible by batch_group_count", OperandShapes(in));
  return g;
}

}  // namespace

TENON_INFER(kDot) {
  TENON_ASSIGN_OR_RETURN(DotDims d, CheckDot(in));
  TENON_RETURN_IF_ERROR(CheckContracting(in, d));
  TENON_WANT(in.count() == 2 || in.attrs.has(Attr::kSparsity), "dot_c8", "two operands, or sparsity", in.count());
  TENON_ASSIGN_OR_RETURN(const PrimitiveType type, ResultType(in));
  return DotResult(in, d, type);
}

// lhs' ragged dimension is a batch, a free or a contracting one; the last gives each group its own result.
TENON_INFER(kRaggedDot) {
  TENON_ASSIGN_OR_RETURN(DotDims d, CheckDot(in));
  TENON_RETURN_IF_ERROR(CheckContracting(in, d));
  TENON_ASSIGN_OR_RETURN(const PrimitiveType type, ResultType(in));
  const std::vector<int64_t> ragged = in.ints(Attr::kLhsRaggedDims), group = in.ints(Attr::kRhsGroupDims);
  const Shape& sizes = in.shape(2);
  TENON_WANT(ragged.size() == 1 && InRangeAndUnique(ragged, in.shape(0).rank()), "ragged_dot_c1",
             "one ragged dimension of lhs", Ints(ragged));
  TENON_WANT(sizes.is_array() && sizes.rank() >= 1 && IsIntegral(sizes.element_type()), "ragged_dot_c2",
             "group sizes as an integer array", OperandShapes(in));
  const bool batch = Holds(d.lhs_batch, ragged[0]), contracting = Holds(d.lhs_contracting, ragged[0]);
  const Dim groups = sizes.dim(sizes.rank() - 1);
  if (batch || contracting) {
    TENON_WANT(group.empty(), "ragged_dot_c3", "no group dimension unless a free dimension is ragged", Ints(group));
    Shape plain = DotResult(in, d, type);
    if (batch) return plain;
    DimVector dims(plain.dims().begin(), plain.dims().end());
    dims.insert(dims.begin(), groups);
    return Shape(type, dims);
  }
  TENON_WANT(group.size() == 1 && InRangeAndUnique(group, in.shape(1).rank()) && !Holds(d.rhs_batch, group[0]) &&
                 !Holds(d.rhs_contracting, group[0]),
             "ragged_dot_c4", "one group dimension of rhs, neither batch nor contracting", Ints(group));
  TENON_WANT(KnownEqual(in.shape(1).dim(group[0]), groups), "ragged_dot_c5", "as many groups in rhs as group sizes",
             OperandShapes(in));
  return DotResult(in, d, type, group);
}

TENON_INFER(kScaledDot) {
  TENON_ASSIGN_OR_RETURN(DotDims d, CheckDot(in));
  TENON_RETURN_IF_ERROR(CheckContracting(in, d));
  for (int64_t i = 0; i < 2; ++i) {
    const Shape &x = in.shape(i), &scale = in.shape(2 + i);
    TENON_WANT(IsFloat(scale.element_type()) && (scale.is_scalar() || scale.rank() == x.rank()), "scaled_dot_c1",
               "scales as float scalars or of the operands' rank", OperandShapes(in));
    for (int64_t k = 0; k < scale.rank(); ++k) {
      TENON_WANT(Divides(scale.dim(k), x.dim(k)) == Ternary::kYes, "scaled_dot_c2",
                 "sizes of scales that divide the operand's", OperandShapes(in));
    }
  }
  TENON_ASSIGN_OR_RETURN(const PrimitiveType type, ResultType(in));
  return DotResult(in, d, type);
}

TENON_INFER(kConvolution) {
  const DimLabels& l = in.attrs.get<DimLabels>(Attr::kDimLabels);
  TENON_ASSIGN_OR_RETURN(ConvSizes groups, CheckConvolution(in, l));
  const Shape &x = in.shape(0), &k = in.shape(1);
  Window window;
  window.dims.resize(l.input_spatial.size());
  window = in.attrs.get_or<Window>(Attr::kWindow, window);
  TENON_RETURN_IF_ERROR(CheckWindow(window, static_cast<int64_t>(l.input_spatial.size())));
  TENON_ASSIGN_OR_RETURN(const PrimitiveType type, ResultType(in));
  DimVector dims(x.rank());
  absl::InlinedVector<bool, 6> dynamic(x.rank(), false);
  dims[l.output_batch] = FloorDiv(x.dim(l.input_batch), groups.batch_groups);
  dynamic[l.output_batch] = x.is_dynamic(l.input_batch);
  dims[l.output_feature] = k.dim(l.kernel_output_feature);
  for (size_t i = 0; i < l.input_spatial.size(); ++i) {
    const Dim size = k.dim(l.kernel_spatial[i]);
    TENON_WANT(KnownEqual(size, window.dims[i].size), "convolution_c7",
               absl::StrCat("window size ", size.ToString(), " in spatial dimension ", i), window.dims[i].size);
    dims[l.output_spatial[i]] = WindowedSize(x.dim(l.input_spatial[i]), window.dims[i]);
    dynamic[l.output_spatial[i]] = x.is_dynamic(l.input_spatial[i]);
  }
  return MakeArray(type, dims, dynamic);
}

}  // namespace tenon::infer
