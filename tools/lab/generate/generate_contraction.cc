// Contractions, mostly of small integers, so that the sum is the same in every order.
#include <algorithm>

#include "tools/lab/generate/generator.h"

namespace tenon::lab {
namespace {

bool IsFactor(PrimitiveType t) { return t != PrimitiveType::kPred; }

// Marks the result of sums of `terms` products.
void AddProducts(Scope& s, Instruction* y, const Value& a, const Value& b, double terms) {
  const PrimitiveType type = y->shape().element_type();
  const bool floats = IsFloat(ComplexComponent(type));
  const double sum = std::max(1.0, terms) * a.small * b.small;
  const bool exact = a.exact && b.exact && (!floats || sum <= ExactIntegers(type));
  s.Add(y, exact, IsFloat(type) && exact ? sum : kNotSmall);
}

// A result type: mostly the operands', else a wider or other one of the kind.
std::optional<PrimitiveType> ResultType(Scope& s, PrimitiveType a) {
  if (!s.random().OneIn(5)) return std::nullopt;
  return s.Type([&](PrimitiveType t) { return ClassOf(t) == ClassOf(a) && BitWidth(t) >= 16; });
}

bool Dot(Scope& s, Opcode opcode) {
  Random& random = s.random();
  Value any = s.OfRank(1, 4, IsFactor);
  if (random.OneIn(6)) {  // of what was computed before
    if (auto v = s.Find([](const Value& x) { return !x.exact && x.rank() > 0 && IsFloat(x.type()) && BitWidth(x.type()) >= 16; })) any = *v;
  }
  const std::vector<int64_t> order = Shuffled(random, any.rank());
  const int64_t batch = random.OneIn(2) ? 0 : random.Between(0, std::min<int64_t>(2, any.rank()));
  const int64_t contracted = random.Between(random.OneIn(8) ? 0 : std::min<int64_t>(1, any.rank() - batch), any.rank() - batch);
  std::vector<int64_t> lhs_batch(order.begin(), order.begin() + batch);
  std::vector<int64_t> lhs_contracting(order.begin() + batch, order.begin() + batch + contracted);
  // rhs: the same sizes and some of its own, in any order.
  std::vector<Dim> wanted;
  double terms = 1;
  for (int64_t d : lhs_batch) wanted.push_back(any.dim(d));
  for (int64_t d : lhs_contracting) wanted.push_back(any.dim(d)), terms *= s.Most(any.dim(d));
  for (int64_t n = random.Between(0, 2); n > 0; --n) wanted.push_back(random.OneIn(2) ? s.Size() : Dim(random.Between(1, 6)));
  const std::vector<int64_t> place = Shuffled(random, wanted.size());  // wanted[k] is rhs dim place[k]
  std::vector<Dim> dims(wanted.size());
  for (size_t k = 0; k < wanted.size(); ++k) dims[place[k]] = wanted[k];
  double steps = s.Most(any.dims());
  for (size_t k = static_cast<size_t>(batch + contracted); k < wanted.size(); ++k) steps *= s.Most(wanted[k]);
  if (!s.Fits(dims) || !Scope::Affordable(steps)) return false;
  const bool small = any.exact && IsFloat(any.type()) && !random.OneIn(4);
  const Value lhs = small ? s.Small(any) : any;
  Value rhs = s.Shaped(any.type(), dims);
  if (small) rhs = s.Small(rhs);
  Attributes attrs;
  const std::vector<int64_t> rhs_batch(place.begin(), place.begin() + batch);
  const std::vector<int64_t> rhs_contracting(place.begin() + batch, place.begin() + batch + contracted);
  if (batch > 0) attrs.set(Attr::kLhsBatchDims, lhs_batch), attrs.set(Attr::kRhsBatchDims, rhs_batch);
  if (contracted > 0) attrs.set(Attr::kLhsContractingDims, lhs_contracting), attrs.set(Attr::kRhsContractingDims, rhs_contracting);
  std::optional<Shape> declared;
  if (const std::optional<PrimitiveType> type = ResultType(s, any.type())) {
    std::vector<Dim> result;
    for (int64_t d : lhs_batch) result.push_back(any.dim(d));
    const auto free = [&](const std::vector<Dim>& sizes, const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
      for (size_t d = 0; d < sizes.size(); ++d) {
        const auto has = [d](const std::vector<int64_t>& l) { return std::find(l.begin(), l.end(), static_cast<int64_t>(d)) != l.end(); };
        if (!has(a) && !has(b)) result.push_back(sizes[d]);
      }
    };
    free(any.dims(), lhs_batch, lhs_contracting);
    free(dims, rhs_batch, rhs_contracting);
    declared = Shape(*type, result);
  }
  Instruction* y = s.Try(opcode, {lhs.op, rhs.op}, attrs, declared);
  return y != nullptr && (AddProducts(s, y, lhs, rhs, terms), true);
}

bool Convolution(Scope& s, Opcode opcode) {
  Random& random = s.random();
  const PrimitiveType type = s.Type(IsFactor);
  const int64_t spatial = random.Between(0, 3);
  const int64_t feature_groups = random.OneIn(4) ? random.Between(2, 3) : 1;
  const int64_t batch_groups = feature_groups == 1 && random.OneIn(6) ? 2 : 1;
  const int64_t features = random.Between(1, 4), out_features = feature_groups * batch_groups * random.Between(1, 3);
  // Positions of batch, feature, spatial... in each of the three arrays.
  const std::vector<int64_t> in = Shuffled(random, spatial + 2), kernel = Shuffled(random, spatial + 2),
                             out = Shuffled(random, spatial + 2);
  DimLabels labels;
  labels.input_batch = in[0], labels.input_feature = in[1];
  labels.kernel_input_feature = kernel[0], labels.kernel_output_feature = kernel[1];
  labels.output_batch = out[0], labels.output_feature = out[1];
  labels.input_spatial.assign(in.begin() + 2, in.end());
  labels.kernel_spatial.assign(kernel.begin() + 2, kernel.end());
  labels.output_spatial.assign(out.begin() + 2, out.end());
  std::vector<Dim> x_dims(spatial + 2), k_dims(spatial + 2);
  x_dims[in[0]] = batch_groups * random.Between(1, 3);
  if (batch_groups == 1) x_dims[in[0]] = s.SizeOr(x_dims[in[0]].constant());
  x_dims[in[1]] = features * feature_groups;
  k_dims[kernel[0]] = features;
  k_dims[kernel[1]] = out_features;
  Window window;
  double terms = static_cast<double>(features);
  for (int64_t d = 0; d < spatial; ++d) {
    WindowDim w;
    w.size = random.Between(1, 3);
    if (random.OneIn(2)) w.stride = random.Between(1, 3);
    w.padding_low = random.Between(0, 2);
    w.padding_high = random.Between(0, 2);
    if (random.OneIn(5)) w.window_dilation = 2;
    if (random.OneIn(5)) w.base_dilation = 2;
    if (random.OneIn(8)) w.padding_low = -1;
    w.reversed = random.OneIn(6);
    terms *= static_cast<double>(w.size);
    x_dims[in[d + 2]] = s.SizeOr(random.Between(1, 7));
    k_dims[kernel[d + 2]] = w.size;
    window.dims.push_back(w);
  }
  if (!s.Fits(x_dims) || !s.Fits(k_dims)) return false;
  Value x = s.Shaped(type, x_dims), k = s.Shaped(type, k_dims);
  if (IsFloat(type) && !random.OneIn(4)) x = s.Small(x), k = s.Small(k);
  Attributes attrs = With(Attr::kDimLabels, labels);
  if (spatial > 0) attrs.set(Attr::kWindow, window);
  if (feature_groups > 1) attrs.set(Attr::kFeatureGroupCount, feature_groups);
  if (batch_groups > 1) attrs.set(Attr::kBatchGroupCount, batch_groups);
  Instruction* y = s.Try(opcode, {x.op, k.op}, attrs);
  return y != nullptr && (AddProducts(s, y, x, k, terms), true);
}

// lhs[m, k] by groups of rows against rhs[g, k, n], or by groups of columns.
bool RaggedDot(Scope& s, Opcode opcode) {
  Random& random = s.random();
  const PrimitiveType type = s.Type([](PrimitiveType t) { return IsFloat(t) || (IsIntegral(t) && BitWidth(t) <= 32); });
  const int64_t rows = random.Between(1, 9), k = random.Between(1, 9), columns = random.Between(1, 6), groups = random.Between(1, 4);
  const bool contracting = random.OneIn(3);
  const Dim m = s.SizeOr(rows), n = s.SizeOr(columns);
  if (s.WouldBeRefused({m, n})) return false;
  Value lhs = s.Shaped(type, {m, k});
  Value rhs = contracting ? s.Shaped(type, {k, n}) : s.Shaped(type, {groups, k, n});
  if (IsFloat(type)) lhs = s.Small(lhs), rhs = s.Small(rhs);
  // Sizes that add up to at most the ragged dimension's.
  std::vector<int32_t> sizes(groups);
  int64_t left = contracting ? k : Scope::Least(m);
  for (int32_t& size : sizes) size = static_cast<int32_t>(random.Between(0, left)), left -= size;
  Instruction* group_sizes = s.b().Constant(Literal::FromSpan<int32_t>(PrimitiveType::kS32, {groups}, sizes));
  Attributes attrs = With(Attr::kLhsContractingDims, std::vector<int64_t>{1});
  attrs.set(Attr::kRhsContractingDims, std::vector<int64_t>{contracting ? 0 : 1});
  attrs.set(Attr::kLhsRaggedDims, std::vector<int64_t>{contracting ? 1 : 0});
  if (!contracting) attrs.set(Attr::kRhsGroupDims, std::vector<int64_t>{0});
  Instruction* y = s.Try(opcode, {lhs.op, rhs.op, group_sizes}, attrs);
  return y != nullptr && (AddProducts(s, y, lhs, rhs, static_cast<double>(k)), true);
}

bool ScaledDot(Scope& s, Opcode opcode) {
  Random& random = s.random();
  const auto narrow = [](PrimitiveType t) { return IsFloat(t) && t != PrimitiveType::kF8E8M0FNU; };
  const PrimitiveType type = s.Type(narrow);
  const int64_t lhs_rows = random.Between(1, 6), rhs_rows = random.Between(1, 6);
  const int64_t blocks = random.Between(1, 3), block = random.Between(1, 4);
  const Dim m = s.SizeOr(lhs_rows, 1), n = s.SizeOr(rhs_rows, 1);
  const Value lhs = s.Small(s.Shaped(type, {m, blocks * block}));
  const Value rhs = s.Small(s.Shaped(type, {n, blocks * block}));
  // Powers of two, as block scales are.
  Instruction* scales[2];
  for (int k = 0; k < 2; ++k) {
    const int64_t rows = random.OneIn(2) ? (k == 0 ? m : n).constant_or(1) : 1;
    Literal l(Shape::Array(PrimitiveType::kF8E8M0FNU, {rows, blocks}));
    for (int64_t i = 0; i < l.num_elements(); ++i) l.SetFromDouble(i, static_cast<double>(1 << random.Below(3)));
    scales[k] = s.b().Constant(l);
  }
  Attributes attrs = With(Attr::kLhsContractingDims, std::vector<int64_t>{1});
  attrs.set(Attr::kRhsContractingDims, std::vector<int64_t>{1});
  Instruction* y = s.Try(opcode, {lhs.op, rhs.op, scales[0], scales[1]}, attrs, Shape(PrimitiveType::kF32, {m, n}));
  return y != nullptr && (AddProducts(s, y, lhs, rhs, 16.0 * static_cast<double>(blocks * block)), true);
}

constexpr Row kRows[] = {
    {Opcode::kConvolution, Convolution},
    {Opcode::kDot, Dot},
    {Opcode::kRaggedDot, RaggedDot},
    {Opcode::kScaledDot, ScaledDot},
};

}  // namespace

absl::Span<const Row> ContractionRows() { return kRows; }

}  // namespace tenon::lab
