// Reductions apply to_apply element by element in row-major order of what is reduced, each application rounded to its
// type, many results at a time.
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "hlo/eval/internal.h"
#include "hlo/eval/region.h"

namespace tenon::eval {
namespace {

std::vector<int64_t> Dims(const Literal& l) { return l.shape().constant_dims(); }

absl::StatusOr<Literal> Pack(const Instruction& i, std::vector<Literal> results) {
  if (i.shape().is_tuple()) return Literal::Tuple(std::move(results));
  return std::move(results[0]);
}

Shape ElementShape(const Instruction& i, int64_t k) {
  return i.shape().is_tuple() ? i.shape().element(k) : i.shape();
}

void GatherLanes(const Literal& x, const int64_t* offsets, int64_t lanes, std::byte* to) {
  const int64_t width = ByteWidth(x.type());
  for (int64_t l = 0; l < lanes; ++l) {
    std::memcpy(to + l * width, x.bytes() + offsets[l] * width, width);
  }
}

// Accumulators of a few variadic operands, and one lane-wise application of a region to them.
class Accumulator {
 public:
  Accumulator(Region& region, Operands inputs, Operands inits)
      : region_(region), inputs_(inputs), inits_(inits) {
    for (size_t k = 0; k < inputs.size(); ++k) {
      values_.emplace_back(Region::kMaxLanes * kDomainBytes);
      next_.emplace_back(Region::kMaxLanes * kDomainBytes);
    }
  }

  void Reset(int64_t lanes) {
    for (size_t k = 0; k < inputs_.size(); ++k) {
      const int64_t width = ByteWidth(inits_[k].type());
      for (int64_t l = 0; l < lanes; ++l) {
        std::memcpy(values_[k].data() + l * width, inits_[k].bytes(), width);
      }
    }
  }

  // value[l] = region(value[l], input[offsets[l]])
  absl::Status Apply(const int64_t* offsets, int64_t lanes) {
    return ApplyTo(offsets, lanes, values_);
  }

  // The same for the listed lanes only.
  absl::Status ApplySome(const int64_t* offsets, absl::Span<const int64_t> active) {
    for (size_t k = 0; k < inputs_.size(); ++k) {
      const int64_t width = ByteWidth(inits_[k].type());
      compact_.resize(inputs_.size(), std::vector<std::byte>(Region::kMaxLanes * kDomainBytes));
      for (size_t a = 0; a < active.size(); ++a) {
        std::memcpy(compact_[k].data() + a * width, values_[k].data() + active[a] * width, width);
      }
    }
    TENON_RETURN_IF_ERROR(ApplyTo(offsets, active.size(), compact_));
    for (size_t k = 0; k < inputs_.size(); ++k) {
      const int64_t width = ByteWidth(inits_[k].type());
      for (size_t a = 0; a < active.size(); ++a) {
        std::memcpy(values_[k].data() + active[a] * width, compact_[k].data() + a * width, width);
      }
    }
    return absl::OkStatus();
  }

  const std::byte* value(size_t k) const { return values_[k].data(); }

 private:
  absl::Status ApplyTo(const int64_t* offsets, int64_t lanes,
                       std::vector<std::vector<std::byte>>& values) {
    absl::InlinedVector<ScalarOp::Operand, 8> args;
    absl::InlinedVector<std::byte*, 4> outs;
    for (auto& v : values) {
      args.push_back({v.data()});
      outs.push_back(v.data());
    }
    for (size_t k = 0; k < inputs_.size(); ++k) {
      GatherLanes(inputs_[k], offsets, lanes, next_[k].data());
      args.push_back({next_[k].data()});
    }
    return region_.Run(args, outs, lanes);
  }

  Region& region_;
  Operands inputs_, inits_;
  std::vector<std::vector<std::byte>> values_, next_, compact_;
};

absl::StatusOr<Literal> Reduce(Context& context, const Instruction& i, Operands operands) {
  const size_t count = operands.size() / 2;
  Operands inputs = operands.subspan(0, count), inits = operands.subspan(count);
  TENON_ASSIGN_OR_RETURN(Region region, Region::Make(context, *i.to_apply()));
  std::vector<int64_t> dims = Dims(inputs[0]);
  Index strides = StridesOf(dims), kept, kept_strides, reduced, reduced_strides;
  for (size_t d = 0; d < dims.size(); ++d) {
    bool is_reduced = Contains(i.dimensions(), d);
    (is_reduced ? reduced : kept).push_back(dims[d]);
    (is_reduced ? reduced_strides : kept_strides).push_back(strides[d]);
  }
  std::vector<Literal> results;
  for (size_t k = 0; k < count; ++k) {
    Shape shape = ElementShape(i, k);
    for (size_t d = 0; d < kept.size(); ++d) shape.set_dim(d, kept[d]);
    results.emplace_back(shape);
  }
  Accumulator accumulator(region, inputs, inits);
  const int64_t total = Product(kept);
  const bool any = Product(reduced) > 0;
  Index kept_index(kept.size(), 0);
  std::vector<int64_t> bases(Region::kMaxLanes), offsets(Region::kMaxLanes);
  for (int64_t at = 0; at < total; at += Region::kMaxLanes) {
    const int64_t lanes = std::min(Region::kMaxLanes, total - at);
    for (int64_t l = 0; l < lanes; ++l) {
      bases[l] = Offset(kept_index, kept_strides);
      Next(kept, &kept_index);
    }
    accumulator.Reset(lanes);
    if (any) {
      Index r(reduced.size(), 0);
      do {
        const int64_t offset = Offset(r, reduced_strides);
        for (int64_t l = 0; l < lanes; ++l) offsets[l] = bases[l] + offset;
        TENON_RETURN_IF_ERROR(accumulator.Apply(offsets.data(), lanes));
      } while (Next(reduced, &r));
    }
    for (size_t k = 0; k < count; ++k) {
      const int64_t width = ByteWidth(results[k].type());
      std::memcpy(results[k].mutable_bytes() + at * width, accumulator.value(k), lanes * width);
    }
  }
  return Pack(i, std::move(results));
}

Window WindowOf(const Instruction& i, int64_t rank) {
  Window window = i.attrs().get_or<Window>(Attr::kWindow, {});
  if (window.dims.empty()) window.dims.resize(rank);
  return window;
}

// The operand position of a window element, or -1 where padding or a hole of base dilation lies.
int64_t Position(const WindowDim& w, int64_t out, int64_t in_window, int64_t size) {
  int64_t p = out * w.stride - w.padding_low + in_window * w.window_dilation;
  if (p < 0 || p % w.base_dilation != 0) return -1;
  p /= w.base_dilation;
  return p < size ? p : -1;
}

int64_t WindowOffset(const Window& window, absl::Span<const int64_t> dims,
                     absl::Span<const int64_t> strides, absl::Span<const int64_t> out,
                     absl::Span<const int64_t> in_window) {
  int64_t offset = 0;
  for (size_t d = 0; d < dims.size(); ++d) {
    int64_t p = Position(window.dims[d], out[d], in_window[d], dims[d]);
    if (p < 0) return -1;
    offset += p * strides[d];
  }
  return offset;
}

Index WindowSizes(const Window& window) {
  Index sizes;
  for (const WindowDim& w : window.dims) sizes.push_back(w.size);
  return sizes;
}

absl::StatusOr<Literal> ReduceWindow(Context& context, const Instruction& i, Operands operands) {
  const size_t count = operands.size() / 2;
  Operands inputs = operands.subspan(0, count), inits = operands.subspan(count);
  TENON_ASSIGN_OR_RETURN(Region region, Region::Make(context, *i.to_apply()));
  std::vector<int64_t> dims = Dims(inputs[0]);
  Index strides = StridesOf(dims);
  Window window = WindowOf(i, dims.size());
  Index sizes = WindowSizes(window);
  std::vector<Literal> results;
  for (size_t k = 0; k < count; ++k) results.emplace_back(ElementShape(i, k));
  std::vector<int64_t> out_dims = Dims(results[0]);
  Accumulator accumulator(region, inputs, inits);
  const int64_t total = results[0].num_elements();
  Index next_out(out_dims.size(), 0);
  std::vector<Index> lane_out(Region::kMaxLanes);
  std::vector<int64_t> active, offsets;
  for (int64_t at = 0; at < total; at += Region::kMaxLanes) {
    const int64_t lanes = std::min(Region::kMaxLanes, total - at);
    for (int64_t l = 0; l < lanes; ++l) {
      lane_out[l] = next_out;
      Next(out_dims, &next_out);
    }
    accumulator.Reset(lanes);
    Index w(sizes.size(), 0);
    do {
      active.clear();
      offsets.clear();
      for (int64_t l = 0; l < lanes; ++l) {
        int64_t offset = WindowOffset(window, dims, strides, lane_out[l], w);
        if (offset < 0) continue;
        active.push_back(l);
        offsets.push_back(offset);
      }
      if (!active.empty()) {
        TENON_RETURN_IF_ERROR(accumulator.ApplySome(offsets.data(), active));
      }
    } while (Next(sizes, &w));
    for (size_t k = 0; k < count; ++k) {
      const int64_t width = ByteWidth(results[k].type());
      std::memcpy(results[k].mutable_bytes() + at * width, accumulator.value(k), lanes * width);
    }
  }
  return Pack(i, std::move(results));
}

absl::StatusOr<Literal> SelectAndScatter(Context& context, const Instruction& i,
                                         Operands operands) {
  const Literal &x = operands[0], &source = operands[1], &init = operands[2];
  TENON_ASSIGN_OR_RETURN(
      Region select, Region::Make(context, *i.attrs().get<Computation*>(Attr::kSelect)));
  TENON_ASSIGN_OR_RETURN(
      Region scatter, Region::Make(context, *i.attrs().get<Computation*>(Attr::kScatter)));
  std::vector<int64_t> dims = Dims(x), source_dims = Dims(source);
  Index strides = StridesOf(dims);
  Window window = WindowOf(i, dims.size());
  Index sizes = WindowSizes(window);
  Literal result(i.shape());
  std::byte* out = result.mutable_bytes();
  const int64_t width = ByteWidth(x.type());
  CopyStrided(width, dims, init.bytes(), Index(dims.size(), 0), out, strides);
  if (source.num_elements() == 0) return result;
  Index s(source_dims.size(), 0);
  int64_t source_offset = 0;
  do {
    int64_t chosen = -1;
    Index w(sizes.size(), 0);
    do {
      int64_t candidate = WindowOffset(window, dims, strides, s, w);
      if (candidate < 0) continue;
      bool keep = false;
      if (chosen >= 0) {
        std::byte answer;
        std::byte* answer_at = &answer;
        TENON_RETURN_IF_ERROR(select.Run(
            {{x.bytes() + chosen * width}, {x.bytes() + candidate * width}}, {answer_at}, 1));
        keep = answer != std::byte{0};
      }
      if (!keep) chosen = candidate;
    } while (Next(sizes, &w));
    if (chosen >= 0) {
      std::byte* at = out + chosen * width;
      TENON_RETURN_IF_ERROR(scatter.Run({{source.bytes() + source_offset * width}, {at}}, {at}, 1));
    }
    ++source_offset;
  } while (Next(source_dims, &s));
  return result;
}

// Inputs, then carries; to_apply takes one element of each input and the carries, and gives the outputs' elements and
// the new carries. Results: outputs, then final carries.
absl::StatusOr<Literal> Scan(Context& context, const Instruction& i, Operands operands) {
  const int64_t carries = i.attrs().get_or<int64_t>(
      Attr::kNumCarries, static_cast<int64_t>(operands.size()) / 2);
  const int64_t inputs = static_cast<int64_t>(operands.size()) - carries;
  const bool reverse = i.attrs().get_or<bool>(Attr::kReverse, false);
  const int64_t parts = i.shape().is_tuple() ? i.shape().elements().size() : 1;
  const int64_t outputs = parts - carries;
  if (inputs < 1 || outputs < 0 || i.dimensions().size() != 1) return Invalid(i, "operand counts");
  const Computation& body = *i.to_apply();
  const int64_t dim = i.dimensions()[0], steps = operands[0].shape().constant_dim(dim);
  std::vector<Literal> results;
  for (int64_t k = 0; k < outputs; ++k) results.emplace_back(ElementShape(i, k));
  std::vector<Literal> carried(operands.begin() + inputs, operands.end());
  // Element `step` along dim, one dimension less.
  auto slab = [dim](const Literal& l, int64_t step, Index* dims, Index* strides) {
    for (int64_t d = 0; d < l.shape().rank(); ++d) {
      if (d == dim) continue;
      dims->push_back(l.shape().constant_dim(d));
      strides->push_back(StridesOf(Dims(l))[d]);
    }
    return StridesOf(Dims(l))[dim] * step * ByteWidth(l.type());
  };
  for (int64_t n = 0; n < steps; ++n) {
    const int64_t step = reverse ? steps - 1 - n : n;
    std::vector<Literal> args;
    for (int64_t k = 0; k < inputs; ++k) {
      Literal arg(body.parameter(k)->shape());
      Index dims, strides;
      int64_t offset = slab(operands[k], step, &dims, &strides);
      CopyStrided(ByteWidth(arg.type()), dims, operands[k].bytes() + offset, strides,
                  arg.mutable_bytes(), StridesOf(dims));
      args.push_back(std::move(arg));
    }
    for (const Literal& c : carried) args.push_back(c);
    TENON_ASSIGN_OR_RETURN(Literal out, context.Call(body, args));
    if (!out.shape().is_tuple()) out = Literal::Tuple({std::move(out)});
    for (int64_t k = 0; k < outputs; ++k) {
      Index dims, strides;
      int64_t offset = slab(results[k], step, &dims, &strides);
      CopyStrided(ByteWidth(results[k].type()), dims, out.elements()[k].bytes(), StridesOf(dims),
                  results[k].mutable_bytes() + offset, strides);
    }
    for (int64_t c = 0; c < carries; ++c) carried[c] = out.elements()[outputs + c];
  }
  results.insert(results.end(), carried.begin(), carried.end());
  return Pack(i, std::move(results));
}

// Sums over every dimension but the feature one, in double.
template <typename F>
std::vector<double> PerFeature(const std::vector<int64_t>& dims, int64_t feature, F&& term) {
  std::vector<double> sums(dims[feature], 0.0);
  const int64_t inner = Product(absl::MakeSpan(dims).subspan(feature + 1));
  for (int64_t e = 0, n = Product(dims); e < n; ++e) {
    int64_t f = e / inner % dims[feature];
    sums[f] += term(e, f);
  }
  return sums;
}

Literal FromDoubles(const Shape& shape, const std::vector<double>& values) {
  Literal l(shape);
  for (size_t k = 0; k < values.size(); ++k) l.SetFromDouble(k, values[k]);
  return l;
}

absl::StatusOr<Literal> BatchNormTraining(Context&, const Instruction& i, Operands operands) {
  const Literal &x = operands[0], &scale = operands[1], &offset = operands[2];
  const int64_t feature = i.attrs().get<int64_t>(Attr::kFeatureIndex);
  const double epsilon = i.attrs().get<double>(Attr::kEpsilon);
  std::vector<int64_t> dims = Dims(x);
  const double count = static_cast<double>(x.num_elements()) / std::max<int64_t>(dims[feature], 1);
  std::vector<double> mean =
      PerFeature(dims, feature, [&](int64_t e, int64_t) { return x.GetAsDouble(e); });
  for (double& m : mean) m /= count;
  std::vector<double> variance = PerFeature(dims, feature, [&](int64_t e, int64_t f) {
    double d = x.GetAsDouble(e) - mean[f];
    return d * d;
  });
  for (double& v : variance) v /= count;
  Literal y(i.shape().element(0));
  PerFeature(dims, feature, [&](int64_t e, int64_t f) {
    y.SetFromDouble(e, (x.GetAsDouble(e) - mean[f]) / std::sqrt(variance[f] + epsilon) *
                               scale.GetAsDouble(f) +
                           offset.GetAsDouble(f));
    return 0.0;
  });
  return Literal::Tuple({std::move(y), FromDoubles(i.shape().element(1), mean),
                         FromDoubles(i.shape().element(2), variance)});
}

// dx = scale * rstd / n * (n dy - sum(dy) - xhat * sum(dy * xhat))
absl::StatusOr<Literal> BatchNormGrad(Context&, const Instruction& i, Operands operands) {
  const Literal &x = operands[0], &scale = operands[1], &mean = operands[2],
                &variance = operands[3], &dy = operands[4];
  const int64_t feature = i.attrs().get<int64_t>(Attr::kFeatureIndex);
  const double epsilon = i.attrs().get<double>(Attr::kEpsilon);
  std::vector<int64_t> dims = Dims(x);
  const double count = static_cast<double>(x.num_elements()) / std::max<int64_t>(dims[feature], 1);
  auto rstd = [&](int64_t f) { return 1.0 / std::sqrt(variance.GetAsDouble(f) + epsilon); };
  auto normal = [&](int64_t e, int64_t f) {
    return (x.GetAsDouble(e) - mean.GetAsDouble(f)) * rstd(f);
  };
  std::vector<double> d_offset =
      PerFeature(dims, feature, [&](int64_t e, int64_t) { return dy.GetAsDouble(e); });
  std::vector<double> d_scale = PerFeature(
      dims, feature, [&](int64_t e, int64_t f) { return dy.GetAsDouble(e) * normal(e, f); });
  Literal dx(i.shape().element(0));
  PerFeature(dims, feature, [&](int64_t e, int64_t f) {
    dx.SetFromDouble(e, scale.GetAsDouble(f) * rstd(f) / count *
                            (count * dy.GetAsDouble(e) - d_offset[f] - normal(e, f) * d_scale[f]));
    return 0.0;
  });
  return Literal::Tuple({std::move(dx), FromDoubles(i.shape().element(1), d_scale),
                         FromDoubles(i.shape().element(2), d_offset)});
}

constexpr HandlerRow kRows[] = {
    {Opcode::kReduce, Reduce},
    {Opcode::kReduceWindow, ReduceWindow},
    {Opcode::kSelectAndScatter, SelectAndScatter},
    {Opcode::kScan, Scan},
    {Opcode::kBatchNormTraining, BatchNormTraining},
    {Opcode::kBatchNormGrad, BatchNormGrad},
};

}  // namespace

absl::Span<const HandlerRow> ReductionHandlers() { return kRows; }

}  // namespace tenon::eval
