// Contractions accumulate in the widest type of the result's class: double for floats (rounded once at the end), 64-bit
// wrapping integers, complex<double>. Backends are held to the bound of hlo/tolerance.h, not to these bits.
#include <cstring>

#include "hlo/eval/convert.h"
#include "hlo/eval/internal.h"
#include "hlo/eval/scalar_kernels.h"
#include "hlo/precision.h"

namespace tenon::eval {
namespace {

std::vector<int64_t> Dims(const Literal& l) { return l.shape().constant_dims(); }

PrimitiveType WidestOf(PrimitiveType type) {
  switch (DomainOf(type)) {
    case Domain::kSigned:
      return PrimitiveType::kS64;
    case Domain::kUnsigned:
      return PrimitiveType::kU64;
    case Domain::kFloat:
      return PrimitiveType::kF64;
    case Domain::kComplex:
      return PrimitiveType::kC128;
  }
  return type;
}

// `x` rounded to what the contraction's algorithm takes.
Literal Rounded(const Instruction& contraction, const Literal& x) {
  const std::optional<Precision> precision = OperandPrecision(contraction, x.type());
  if (!precision.has_value()) return x;
  ScalarOpParams params;
  params.exponent_bits = precision->exponent_bits;
  params.mantissa_bits = precision->mantissa_bits;
  Literal rounded(x.shape());
  const void* in[] = {x.bytes()};
  RawKernel(Opcode::kReducePrecision, x.type())(in, rounded.mutable_bytes(), x.num_elements(), params);
  return rounded;
}

// The contraction of operands 0 and 1 as its algorithm takes them.
template <Handler handler>
absl::StatusOr<Literal> WithAlgorithm(Context& context, const Instruction& i, Operands operands) {
  if (!i.attrs().has(Attr::kAlgorithm)) return handler(context, i, operands);
  std::vector<Literal> rounded(operands.begin(), operands.end());
  for (size_t side = 0; side < 2; ++side) rounded[side] = Rounded(i, rounded[side]);
  return handler(context, i, rounded);
}

// `x` in the accumulation type of `result`, its dims in the order given.
template <typename T>
std::vector<T> Widened(const Literal& x, absl::Span<const int64_t> order, PrimitiveType result) {
  const int64_t n = x.num_elements();
  std::vector<int64_t> from_dims = Dims(x);
  std::vector<std::byte> loaded(n * kDomainBytes);
  LoaderOf(x.type())(x.bytes(), loaded.data(), n);
  std::vector<T> wide(n);
  DomainConverter(x.type(), WidestOf(result))(loaded.data(), wide.data(), n);
  Index strides = StridesOf(from_dims), dims, permuted;
  for (int64_t d : order) {
    dims.push_back(from_dims[d]);
    permuted.push_back(strides[d]);
  }
  std::vector<T> out(n);
  CopyStrided(sizeof(T), dims, reinterpret_cast<const std::byte*>(wide.data()), permuted,
              reinterpret_cast<std::byte*>(out.data()), StridesOf(dims));
  return out;
}

template <typename T>
void StoreAll(const std::vector<T>& values, Literal* result) {
  StorerOf(result->type())(values.data(), result->mutable_bytes(), values.size());
}

// f(TypeTag) with the accumulation type.
template <typename F>
absl::StatusOr<Literal> WithAccumulator(PrimitiveType type, F&& f) {
  switch (DomainOf(type)) {
    case Domain::kSigned:
    case Domain::kUnsigned:
      return f(uint64_t{});  // wrapping; sign matters only when a result is widened, and it is not
    case Domain::kFloat:
      return f(double{});
    case Domain::kComplex:
      return f(std::complex<double>{});
  }
  return absl::InternalError("domain");
}

struct Split {
  std::vector<int64_t> batch, contracting, free;
  int64_t batch_size, contracting_size, free_size;
  std::vector<int64_t> Order(bool contracting_last) const {
    std::vector<int64_t> order = batch;
    auto add = [&order](const std::vector<int64_t>& dims) {
      order.insert(order.end(), dims.begin(), dims.end());
    };
    add(contracting_last ? free : contracting);
    add(contracting_last ? contracting : free);
    return order;
  }
};

Split SplitDims(const Literal& x, std::vector<int64_t> batch, std::vector<int64_t> contracting) {
  Split s{std::move(batch), std::move(contracting), {}, 1, 1, 1};
  std::vector<int64_t> dims = Dims(x);
  for (size_t d = 0; d < dims.size(); ++d) {
    if (Contains(s.batch, d)) {
      s.batch_size *= dims[d];
    } else if (Contains(s.contracting, d)) {
      s.contracting_size *= dims[d];
    } else {
      s.free.push_back(d);
      s.free_size *= dims[d];
    }
  }
  return s;
}

// out[m, n] += sum_k a[m, k] * b[k, n]
template <typename T>
void MatMul(const T* a, const T* b, T* out, int64_t m, int64_t k, int64_t n) {
  for (int64_t r = 0; r < m; ++r) {
    for (int64_t c = 0; c < k; ++c) {
      const T x = a[r * k + c];
      const T* row = b + c * n;
      T* to = out + r * n;
      for (int64_t j = 0; j < n; ++j) to[j] += x * row[j];
    }
  }
}

absl::StatusOr<Literal> DotOf(const Instruction& i, const Literal& lhs, const Literal& rhs) {
  Split l = SplitDims(lhs, i.int_list(Attr::kLhsBatchDims), i.int_list(Attr::kLhsContractingDims));
  Split r = SplitDims(rhs, i.int_list(Attr::kRhsBatchDims), i.int_list(Attr::kRhsContractingDims));
  Literal result(i.shape());
  if (l.batch_size != r.batch_size || l.contracting_size != r.contracting_size ||
      l.batch_size * l.free_size * r.free_size != result.num_elements()) {
    return Invalid(i, "sizes of batch, contracting or free dimensions disagree");
  }
  return WithAccumulator(result.type(), [&]<typename T>(T) -> absl::StatusOr<Literal> {
    std::vector<T> a = Widened<T>(lhs, l.Order(true), result.type());
    std::vector<T> b = Widened<T>(rhs, r.Order(false), result.type());
    std::vector<T> out(result.num_elements());
    const int64_t m = l.free_size, k = l.contracting_size, n = r.free_size;
    for (int64_t batch = 0; batch < l.batch_size; ++batch) {
      MatMul(a.data() + batch * m * k, b.data() + batch * k * n, out.data() + batch * m * n, m, k, n);
    }
    StoreAll(out, &result);
    return result;
  });
}

absl::StatusOr<Literal> Dot(Context&, const Instruction& i, Operands operands) {
  if (operands.size() != 2) return Unimplemented(i, "sparsity metadata");
  return DotOf(i, operands[0], operands[1]);
}

// Each operand times its scale; a scale covers an equal block of its operand along every dimension.
absl::StatusOr<Literal> ScaledDot(Context&, const Instruction& i, Operands operands) {
  std::vector<Literal> scaled;
  for (int side = 0; side < 2; ++side) {
    const Literal &x = operands[side], &scale = operands[side + 2];
    std::vector<int64_t> dims = Dims(x), blocks = Dims(scale);
    Index block_strides = StridesOf(blocks);
    Literal wide(Shape::Array(PrimitiveType::kF64, dims));
    std::span<double> out = wide.mutable_data<double>();
    int64_t e = 0;
    ForEachIndex(dims, [&](const Index& index) {
      int64_t at = 0;
      for (size_t d = 0; d < blocks.size(); ++d) {
        at += index[d] / (dims[d] / blocks[d]) * block_strides[d];
      }
      out[e] = x.GetAsDouble(e) * scale.GetAsDouble(at);
      ++e;
    });
    scaled.push_back(std::move(wide));
  }
  return DotOf(i, scaled[0], scaled[1]);
}

// The ragged dimension of lhs falls into consecutive groups. Free: group g meets rhs's slice g. Contracting: group g
// makes its own result. Batch: a plain batched dot.
absl::StatusOr<Literal> RaggedDot(Context&, const Instruction& i, Operands operands) {
  const Literal &lhs = operands[0], &rhs = operands[1], &sizes = operands[2];
  const int64_t ragged = i.int_list(Attr::kLhsRaggedDims)[0];
  std::vector<int64_t> lhs_batch = i.int_list(Attr::kLhsBatchDims),
                       lhs_contracting = i.int_list(Attr::kLhsContractingDims),
                       rhs_batch = i.int_list(Attr::kRhsBatchDims),
                       rhs_contracting = i.int_list(Attr::kRhsContractingDims),
                       group_dims = i.int_list(Attr::kRhsGroupDims);
  if (Contains(lhs_batch, ragged)) return DotOf(i, lhs, rhs);
  if (sizes.shape().rank() != 1) return Unimplemented(i, "group sizes per batch");
  const int64_t extent = lhs.shape().constant_dim(ragged);
  std::vector<int64_t> group_of(extent, -1);
  int64_t at = 0;
  for (int64_t g = 0; g < sizes.num_elements(); ++g) {
    for (int64_t n = sizes.GetAsInt64(g); n > 0 && at < extent; --n) group_of[at++] = g;
  }
  const bool contracting = Contains(lhs_contracting, ragged);
  std::vector<int64_t> rhs_fixed = rhs_contracting;
  rhs_fixed.insert(rhs_fixed.end(), group_dims.begin(), group_dims.end());
  Split l = SplitDims(lhs, lhs_batch, lhs_contracting), r = SplitDims(rhs, rhs_batch, rhs_fixed);
  Literal result(i.shape());
  std::vector<int64_t> lhs_dims = Dims(lhs), rhs_dims = Dims(rhs);
  auto sizes_of = [](const std::vector<int64_t>& dims, const std::vector<int64_t>& which) {
    Index sizes;
    for (int64_t d : which) sizes.push_back(dims[d]);
    return sizes;
  };
  Index batch = sizes_of(lhs_dims, l.batch), lhs_free = sizes_of(lhs_dims, l.free),
        rhs_free = sizes_of(rhs_dims, r.free), inner = sizes_of(lhs_dims, lhs_contracting);
  Index lhs_strides = StridesOf(lhs_dims), rhs_strides = StridesOf(rhs_dims);
  auto offset = [](const Index& index, const std::vector<int64_t>& which, const Index& strides) {
    int64_t o = 0;
    for (size_t k = 0; k < which.size(); ++k) o += index[k] * strides[which[k]];
    return o;
  };
  const int64_t groups = contracting ? sizes.num_elements() : 1;
  auto in_order = [](const std::vector<int64_t>& dims) {
    std::vector<int64_t> order(dims.size());
    for (size_t d = 0; d < order.size(); ++d) order[d] = static_cast<int64_t>(d);
    return order;
  };
  return WithAccumulator(result.type(), [&]<typename T>(T) -> absl::StatusOr<Literal> {
    const std::vector<T> x = Widened<T>(lhs, in_order(lhs_dims), result.type());
    const std::vector<T> y = Widened<T>(rhs, in_order(rhs_dims), result.type());
    std::vector<T> out;
    for (int64_t g = 0; g < groups; ++g) {
      ForEachIndex(batch, [&](const Index& b) {
        ForEachIndex(lhs_free, [&](const Index& m) {
          ForEachIndex(rhs_free, [&](const Index& n) {
            T sum = 0;
            ForEachIndex(inner, [&](const Index& k) {
              const std::vector<int64_t>& which = contracting ? lhs_contracting : l.free;
              const Index& index = contracting ? k : m;
              int64_t position = 0;
              for (size_t d = 0; d < which.size(); ++d) {
                if (which[d] == ragged) position = index[d];
              }
              const int64_t group = group_of[position];
              if (group < 0 || (contracting && group != g)) return;
              int64_t a = offset(b, l.batch, lhs_strides) + offset(m, l.free, lhs_strides) +
                          offset(k, lhs_contracting, lhs_strides);
              int64_t c = offset(b, r.batch, rhs_strides) + offset(n, r.free, rhs_strides) +
                          offset(k, rhs_contracting, rhs_strides);
              if (!contracting) c += group * rhs_strides[group_dims[0]];
              sum += x[a] * y[c];
            });
            out.push_back(sum);
          });
        });
      });
    }
    StoreAll(out, &result);
    return result;
  });
}

// One spatial dimension of a convolution, with its extents in input, kernel and output.
struct Spatial {
  WindowDim window;
  int64_t input, kernel, output;
};

absl::StatusOr<Literal> Convolution(Context&, const Instruction& i, Operands operands) {
  const Literal &x = operands[0], &kernel = operands[1];
  const DimLabels& labels = i.attrs().get<DimLabels>(Attr::kDimLabels);
  const int64_t feature_groups = i.attrs().get_or<int64_t>(Attr::kFeatureGroupCount, 1);
  const int64_t batch_groups = i.attrs().get_or<int64_t>(Attr::kBatchGroupCount, 1);
  const size_t rank = labels.input_spatial.size();
  Window window = i.attrs().get_or<Window>(Attr::kWindow, {});
  window.dims.resize(rank);
  Literal result(i.shape());
  std::vector<int64_t> x_dims = Dims(x), k_dims = Dims(kernel), out_dims = Dims(result);
  // input [batch, spatial..., feature], kernel [output feature, spatial..., input feature]: the innermost loop is dense.
  std::vector<int64_t> x_order = {labels.input_batch}, k_order = {labels.kernel_output_feature},
                       out_order = {labels.output_batch};
  std::vector<Spatial> spatial;
  Index x_spatial, k_spatial, out_spatial;
  for (size_t d = 0; d < rank; ++d) {
    x_order.push_back(labels.input_spatial[d]);
    k_order.push_back(labels.kernel_spatial[d]);
    out_order.push_back(labels.output_spatial[d]);
    spatial.push_back({window.dims[d], x_dims[labels.input_spatial[d]],
                       k_dims[labels.kernel_spatial[d]], out_dims[labels.output_spatial[d]]});
    x_spatial.push_back(spatial[d].input);
    k_spatial.push_back(spatial[d].kernel);
    out_spatial.push_back(spatial[d].output);
  }
  x_order.push_back(labels.input_feature);
  k_order.push_back(labels.kernel_input_feature);
  out_order.push_back(labels.output_feature);
  const int64_t out_batch = out_dims[labels.output_batch];
  const int64_t out_features = out_dims[labels.output_feature];
  const int64_t x_features = x_dims[labels.input_feature];
  const int64_t features = k_dims[labels.kernel_input_feature];  // of one group
  if (features * feature_groups != x_features || out_features % feature_groups != 0 ||
      out_features % batch_groups != 0 || out_batch * batch_groups != x_dims[labels.input_batch]) {
    return Invalid(i, "feature or batch groups disagree with the sizes");
  }
  return WithAccumulator(result.type(), [&]<typename T>(T) -> absl::StatusOr<Literal> {
    std::vector<T> in = Widened<T>(x, x_order, result.type());
    std::vector<T> weights = Widened<T>(kernel, k_order, result.type());
    std::vector<T> out(result.num_elements());  // [batch, spatial..., feature]
    const int64_t x_points = Product(x_spatial), k_points = Product(k_spatial);
    Index x_strides = StridesOf(x_spatial);
    std::vector<int64_t> source(k_points);  // the input point each kernel point meets, or -1
    int64_t point = 0;
    const int64_t out_points = Product(out_spatial);
    ForEachIndex(out_spatial, [&](const Index& o) {
      ForEachIndex(k_spatial, [&](const Index& k) {
        int64_t at = 0;
        for (size_t d = 0; d < rank && at >= 0; ++d) {
          const WindowDim& w = spatial[d].window;
          int64_t p = o[d] * w.stride - w.padding_low + k[d] * w.window_dilation;
          bool hit = p >= 0 && p % w.base_dilation == 0 && p / w.base_dilation < spatial[d].input;
          at = hit ? at + p / w.base_dilation * x_strides[d] : -1;
        }
        // A reversed window meets its points from the far end.
        int64_t stored = 0;
        for (size_t d = 0; d < rank; ++d) {
          int64_t position = spatial[d].window.reversed ? spatial[d].kernel - 1 - k[d] : k[d];
          stored = stored * spatial[d].kernel + position;
        }
        source[stored] = at;
      });
      for (int64_t n = 0; n < out_batch; ++n) {
        for (int64_t f = 0; f < out_features; ++f) {
          const int64_t group = f / (out_features / feature_groups);
          const int64_t batch = n + f / (out_features / batch_groups) * out_batch;
          T sum = 0;
          for (int64_t k = 0; k < k_points; ++k) {
            if (source[k] < 0) continue;
            const T* a = in.data() + (batch * x_points + source[k]) * x_features + group * features;
            const T* b = weights.data() + (f * k_points + k) * features;
            for (int64_t c = 0; c < features; ++c) sum += a[c] * b[c];
          }
          out[(n * out_points + point) * out_features + f] = sum;
        }
      }
      ++point;
    });
    Literal ordered(Shape::Array(result.type(), [&] {
      std::vector<int64_t> dims;
      for (int64_t d : out_order) dims.push_back(out_dims[d]);
      return dims;
    }()));
    StoreAll(out, &ordered);
    std::vector<int64_t> dims = Dims(ordered);
    Index to_strides, strides = StridesOf(out_dims);
    for (int64_t d : out_order) to_strides.push_back(strides[d]);
    CopyStrided(ByteWidth(result.type()), dims, ordered.bytes(), StridesOf(dims),
                result.mutable_bytes(), to_strides);
    return result;
  });
}

constexpr HandlerRow kRows[] = {
    {Opcode::kConvolution, WithAlgorithm<Convolution>},
    {Opcode::kDot, WithAlgorithm<Dot>},
    {Opcode::kRaggedDot, WithAlgorithm<RaggedDot>},
    {Opcode::kScaledDot, ScaledDot},
};

}  // namespace

absl::Span<const HandlerRow> ContractionHandlers() { return kRows; }

}  // namespace tenon::eval
