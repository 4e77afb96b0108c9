#include "backends/codegen/index/contraction_index.h"

#include "absl/algorithm/container.h"
#include "hlo/check.h"

namespace tenon {
namespace {

struct ConvolutionParts {
  explicit ConvolutionParts(const Instruction& op)
      : labels(op.attrs().get<DimLabels>(Attr::kDimLabels)),
        window(op.attrs().get_or<Window>(Attr::kWindow, {})),
        feature_groups(op.attrs().get_or<int64_t>(Attr::kFeatureGroupCount, 1)),
        batch_groups(op.attrs().get_or<int64_t>(Attr::kBatchGroupCount, 1)),
        features(op.operand(1)->shape().dim(labels.kernel_input_feature)) {
    window.dims.resize(labels.input_spatial.size());
  }
  const DimLabels& labels;
  Window window;
  int64_t feature_groups, batch_groups;
  Dim features;  // of one group
};

ContractionIndex MapDot(IndexSpace& space, const Instruction& op, absl::Span<const Index> index,
                        absl::Span<const Index> vars) {
  ContractionIndex r{.terms = {vars.begin(), vars.end()}};
  const std::vector<int64_t> batch[2] = {op.int_list(Attr::kLhsBatchDims),
                                         op.int_list(Attr::kRhsBatchDims)};
  const std::vector<int64_t> contracting[2] = {op.int_list(Attr::kLhsContractingDims),
                                               op.int_list(Attr::kRhsContractingDims)};
  size_t next = batch[0].size();  // result: batch, lhs free, rhs free dims
  for (int side : {0, 1}) {
    IndexTuple& to = side == 0 ? r.lhs : r.rhs;
    to.assign(static_cast<size_t>(op.operand(side)->shape().rank()), nullptr);
    for (size_t i = 0; i < batch[side].size(); ++i) to[batch[side][i]] = index[i];
    size_t var = 0;
    for (size_t i = 0; i < contracting[side].size(); ++i) {
      const bool one = KnownOne(op.operand(0)->shape().dim(contracting[0][i]));
      to[contracting[side][i]] = one ? space.Constant(0) : vars[var++];
    }
    for (Index& i : to) {
      if (i == nullptr) i = index[next++];
    }
  }
  return r;
}

ContractionIndex MapConvolution(IndexSpace& space, const Instruction& op,
                                absl::Span<const Index> index, absl::Span<const Index> vars) {
  const ConvolutionParts c(op);
  const DimLabels& l = c.labels;
  const Shape &x = op.operand(0)->shape(), &out = op.shape();
  ContractionIndex r;
  r.lhs.assign(static_cast<size_t>(x.rank()), nullptr);
  r.rhs.assign(static_cast<size_t>(x.rank()), nullptr);
  size_t next = 0;
  for (size_t d = 0; d < l.input_spatial.size(); ++d) {
    const WindowDim& w = c.window.dims[d];
    Index tap = space.Constant(0);
    if (w.size > 1) {
      tap = vars[next++];
      r.taps.push_back(tap);
    }
    Index e = space.Combine(index[l.output_spatial[d]], w.stride, tap, w.window_dilation);
    e = space.AddConstant(e, -w.padding_low);
    const Dim size = x.dim(l.input_spatial[d]);
    if (w.base_dilation > 1) {
      // Below zero is out of bounds whatever the quotient.
      r.bounds.push_back({e, Max((size - 1) * Dim(w.base_dilation) + 1, 0)});
      r.bounds.push_back({space.Mod(e, w.base_dilation), 1});
      e = space.FloorDiv(e, w.base_dilation);
    } else {
      r.bounds.push_back({e, size});
    }
    r.lhs[l.input_spatial[d]] = e;
    r.rhs[l.kernel_spatial[d]] =
        w.reversed ? space.Combine(tap, -1, space.Constant(w.size - 1), 1) : tap;
  }
  Index feature = space.Constant(0);
  if (!KnownOne(c.features)) {
    feature = vars[next++];
    r.terms.push_back(feature);
  }
  const Dim out_features = out.dim(l.output_feature);
  Index of = index[l.output_feature], batch = index[l.output_batch], in = feature;
  if (c.feature_groups > 1) {
    Index group = space.FloorDiv(of, Max(FloorDiv(out_features, c.feature_groups), 1));
    in = space.Combine(group, c.features, feature, 1);
  }
  if (c.batch_groups > 1) {
    Index group = space.FloorDiv(of, Max(FloorDiv(out_features, c.batch_groups), 1));
    batch = space.Combine(group, out.dim(l.output_batch), batch, 1);
  }
  r.lhs[l.input_batch] = batch;
  r.lhs[l.input_feature] = in;
  r.rhs[l.kernel_input_feature] = feature;
  r.rhs[l.kernel_output_feature] = of;
  return r;
}

}  // namespace

bool IsContraction(const Instruction& op) {
  return op.opcode() == Opcode::kConvolution ||
         (op.opcode() == Opcode::kDot && op.operand_count() == 2);
}

std::vector<Dim> SummedExtents(const Instruction& op) {
  std::vector<Dim> extents;
  if (op.opcode() == Opcode::kConvolution) {
    const ConvolutionParts c(op);
    for (const WindowDim& w : c.window.dims) {
      if (w.size > 1) extents.push_back(w.size);
    }
    if (!KnownOne(c.features)) extents.push_back(c.features);
    return extents;
  }
  for (int64_t d : op.int_list(Attr::kLhsContractingDims)) {
    if (!KnownOne(op.operand(0)->shape().dim(d)))
      extents.push_back(op.operand(0)->shape().dim(d));
  }
  return extents;
}

bool OfOneType(const Instruction& op) {
  return absl::c_all_of(op.operands(), [&](const Instruction* o) { return o->shape().element_type() == op.shape().element_type(); });
}

Dim TermsOf(const Instruction& contraction) {
  Dim terms = 1;
  for (Dim d : SummedExtents(contraction)) terms *= d;
  return terms;
}

bool SumsInParts(const Instruction& op) {
  return op.shape().element_type() == PrimitiveType::kF32 && TermsOf(op).constant_or(kPartTerms + 1) > kPartTerms;
}

ContractionIndex MapContraction(IndexSpace& space, const Instruction& op,
                                absl::Span<const Index> index, absl::Span<const Index> vars) {
  return op.opcode() == Opcode::kConvolution ? MapConvolution(space, op, index, vars)
                                             : MapDot(space, op, index, vars);
}

}  // namespace tenon
