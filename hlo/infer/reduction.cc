// Shape inference of reductions over dimensions and windows.
#include "hlo/infer/context.h"

namespace tenon::infer {
namespace {

struct VariadicInputs {
  int64_t n = 0;
  std::vector<PrimitiveType> accumulators, values;
};

// n arrays of equal dims, then n scalar initial values.
absl::StatusOr<VariadicInputs> SplitInputs(const Inference& in) {
  VariadicInputs v;
  TENON_WANT(in.count() % 2 == 0, "reduction_c1", "as many initial values as arrays", in.count(), " operands");
  v.n = in.count() / 2;
  for (int64_t i = 0; i < v.n; ++i) {
    TENON_WANT(in.shape(i).is_array() && KnownSameDims(in.shape(i), in.shape(0)), "reduction_c2",
               "arrays of equal dimensions", OperandShapes(in));
    TENON_WANT(in.shape(v.n + i).is_scalar(), "reduction_c3", "scalar initial values", OperandShapes(in));
    v.values.push_back(in.shape(i).element_type());
    v.accumulators.push_back(in.shape(v.n + i).element_type());
  }
  return v;
}

absl::StatusOr<Shape> Windowed(const Shape& x, const Window& window) {
  TENON_RETURN_IF_ERROR(CheckWindow(window, x.rank()));
  Shape result = WithType(x, x.element_type());
  for (int64_t i = 0; i < x.rank(); ++i) result.set_dim(i, WindowedSize(x.dim(i), window.dims[i]));
  return result;
}

Window TrivialWindow(int64_t rank) {
  Window w;
  w.dims.resize(rank);
  return w;
}

absl::StatusOr<int64_t> FeatureCheck(const Inference& in) {
  const Shape& x = in.shape(0);
  TENON_WANT(IsFloat(x.element_type()), "batch_norm_c1", "a float array", x.ToString());
  const int64_t feature = in.integer(Attr::kFeatureIndex, -1);
  TENON_WANT(feature >= 0 && feature < x.rank(), "batch_norm_c2",
             absl::StrCat("feature_index in [0, ", x.rank(), ")"), feature);
  return feature;
}

absl::Status IsFeatureVector(const Inference& in, int64_t operand, int64_t feature) {
  const Shape& v = in.shape(operand);
  TENON_WANT(v.is_array() && v.rank() == 1 && v.element_type() == in.shape(0).element_type() &&
                 KnownEqual(v.dim(0), in.shape(0).dim(feature)),
             "batch_norm_c3", absl::StrCat("operand ", operand, " to be a vector over the feature dimension"),
             OperandShapes(in));
  return absl::OkStatus();
}

}  // namespace

TENON_INFER(kReduce) {
  TENON_ASSIGN_OR_RETURN(VariadicInputs v, SplitInputs(in));
  const Shape& x = in.shape(0);
  const std::vector<int64_t> dims = in.ints(Attr::kDimensions);
  TENON_WANT(InRangeAndUnique(dims, x.rank()), "reduce_c1",
             absl::StrCat("different dimensions in [0, ", x.rank(), ")"), Ints(dims));
  TENON_ASSIGN_OR_RETURN(std::vector<PrimitiveType> types,
                         CheckReducer(in.comp(Attr::kToApply), v.accumulators, v.values));
  std::vector<bool> reduced(x.rank(), false);
  for (int64_t d : dims) reduced[d] = true;
  DimVector kept;
  absl::InlinedVector<bool, 6> dynamic;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (reduced[i]) continue;
    kept.push_back(x.dim(i));
    dynamic.push_back(x.is_dynamic(i));
  }
  std::vector<Shape> results;
  for (PrimitiveType t : types) results.push_back(MakeArray(t, kept, dynamic));
  return OneOrTuple(std::move(results));
}

TENON_INFER(kReduceWindow) {
  TENON_ASSIGN_OR_RETURN(VariadicInputs v, SplitInputs(in));
  const Window window = in.attrs.get_or<Window>(Attr::kWindow, TrivialWindow(in.shape(0).rank()));
  TENON_ASSIGN_OR_RETURN(Shape windowed, Windowed(in.shape(0), window));
  TENON_ASSIGN_OR_RETURN(std::vector<PrimitiveType> types,
                         CheckReducer(in.comp(Attr::kToApply), v.accumulators, v.values));
  std::vector<Shape> results;
  for (PrimitiveType t : types) results.push_back(WithType(windowed, t));
  return OneOrTuple(std::move(results));
}

// select picks one element of each window of the operand; the window's source value is combined there by scatter.
TENON_INFER(kSelectAndScatter) {
  const Shape &x = in.shape(0), &source = in.shape(1), &init = in.shape(2);
  const PrimitiveType t = x.element_type();
  TENON_WANT(x.is_array() && source.element_type() == t && init.is_scalar() && init.element_type() == t,
             "select_and_scatter_c1", "operand, source and a scalar of one type", OperandShapes(in));
  const Shape args[] = {Shape::Scalar(t), Shape::Scalar(t)};
  const Computation* select = in.comp(Attr::kSelect);
  TENON_RETURN_IF_ERROR(CheckCallee(select, args, "select"));
  TENON_WANT(KnownCompatible(select->root()->shape(), Shape::Scalar(PrimitiveType::kPred)), "select_and_scatter_c2",
             "select to return pred[]", select->root()->shape().ToString());
  TENON_RETURN_IF_ERROR(CheckReducer(in.comp(Attr::kScatter), {t}, {t}).status());
  const Window window = in.attrs.get_or<Window>(Attr::kWindow, TrivialWindow(x.rank()));
  TENON_ASSIGN_OR_RETURN(Shape windowed, Windowed(x, window));
  TENON_WANT(KnownSameDims(windowed, source), "select_and_scatter_c3",
             absl::StrCat("a source of ", windowed.ToString()), source.ToString());
  return WithType(x, t);
}

// to_apply(slices..., carries...) -> (outputs..., carries...), stepped along one dimension that slices don't have.
TENON_INFER(kScan) {
  const int64_t carries = in.integer(Attr::kNumCarries, in.count() / 2);
  TENON_WANT(carries >= 0 && carries <= in.count(), "scan_c1", absl::StrCat("num_carries in [0, ", in.count(), "]"),
             carries);
  const std::vector<int64_t> dims = in.ints(Attr::kDimensions);
  TENON_WANT(dims.size() == 1 && dims[0] >= 0, "scan_c2", "one dimension", Ints(dims));
  const int64_t dim = dims[0], inputs = in.count() - carries;
  std::vector<Shape> args;
  Dim length = 0;
  for (int64_t i = 0; i < in.count(); ++i) {
    const Shape& s = in.shape(i);
    if (i >= inputs) {
      args.push_back(s);
      continue;
    }
    TENON_WANT(s.is_array() && dim < s.rank() && (i == 0 || KnownEqual(s.dim(dim), length)), "scan_c3",
               absl::StrCat("inputs of equal size in dimension ", dim), OperandShapes(in));
    length = s.dim(dim);
    DimVector slice(s.dims().begin(), s.dims().end());
    slice.erase(slice.begin() + dim);
    args.push_back(Shape(s.element_type(), slice));
  }
  TENON_WANT(inputs > 0, "scan_c4", "at least one input", OperandShapes(in));
  const Computation* body = in.comp(Attr::kToApply);
  TENON_RETURN_IF_ERROR(CheckCallee(body, args, "to_apply"));
  const Shape& root = body->root()->shape();
  const std::vector<Shape> parts =
      root.is_tuple() ? std::vector<Shape>(root.elements().begin(), root.elements().end()) : std::vector<Shape>{root};
  TENON_WANT(static_cast<int64_t>(parts.size()) >= carries, "scan_c5",
             absl::StrCat("to_apply to return at least ", carries, " carries"), root.ToString());
  const int64_t outputs = static_cast<int64_t>(parts.size()) - carries;
  std::vector<Shape> results;
  for (int64_t i = 0; i < outputs; ++i) {
    TENON_WANT(parts[i].is_array() && dim <= parts[i].rank(), "scan_c6",
               absl::StrCat("outputs of rank ", dim, " or more"), parts[i].ToString());
    DimVector whole(parts[i].dims().begin(), parts[i].dims().end());
    whole.insert(whole.begin() + dim, length);
    results.push_back(Shape(parts[i].element_type(), whole));
  }
  for (int64_t i = 0; i < carries; ++i) {
    TENON_WANT(KnownCompatible(parts[outputs + i], args[inputs + i]), "scan_c7",
               absl::StrCat("carry ", i, " to stay ", args[inputs + i].ToString()), parts[outputs + i].ToString());
    results.push_back(args[inputs + i]);
  }
  return OneOrTuple(std::move(results));
}

TENON_INFER(kBatchNormTraining) {
  TENON_ASSIGN_OR_RETURN(const int64_t feature, FeatureCheck(in));
  for (int64_t i = 1; i < 3; ++i) TENON_RETURN_IF_ERROR(IsFeatureVector(in, i, feature));
  const Shape& x = in.shape(0);
  const Shape vector(x.element_type(), {x.dim(feature)});
  return Shape::Tuple({WithType(x, x.element_type()), vector, vector});
}

TENON_INFER(kBatchNormInference) {
  TENON_ASSIGN_OR_RETURN(const int64_t feature, FeatureCheck(in));
  for (int64_t i = 1; i < 5; ++i) TENON_RETURN_IF_ERROR(IsFeatureVector(in, i, feature));
  return WithType(in.shape(0), in.shape(0).element_type());
}

TENON_INFER(kBatchNormGrad) {
  TENON_ASSIGN_OR_RETURN(const int64_t feature, FeatureCheck(in));
  for (int64_t i = 1; i < 4; ++i) TENON_RETURN_IF_ERROR(IsFeatureVector(in, i, feature));
  const Shape& x = in.shape(0);
  TENON_WANT(KnownCompatible(in.shape(4), x), "batch_norm_c4", "a gradient of the operand's shape", OperandShapes(in));
  const Shape vector(x.element_type(), {x.dim(feature)});
  return Shape::Tuple({WithType(x, x.element_type()), vector, vector});
}

}  // namespace tenon::infer
