// Attention as a composite (hlo/composite.h) whose body is what ATen's kernel for the CPU computes: sums, softmax and what is between in
// f32 (f64 of f64), rounded once at the end. A provider takes the whole, or the body stands. Forward and backward are two composites, of
// the same scores:
//
//   x = scale q k^T + mask, -inf where causal masks     out = softmax(x) v     lse = log(sum(exp(x)))
//   p = exp(x - lse)     dv = p^T do     ds = p (do v^T - sum(do out))     dq = scale ds k     dk = scale ds^T q
//
// Rows that are masked as a whole have the result 0 and the lse 0, as ATen's. (Not so rows of nothing but NaN: they are NaN, which ATen's
// kernel loses for fewer keys than a vector has.)
#include <cmath>

#include "absl/strings/str_cat.h"
#include "hlo/composite.h"
#include "torch_plugin/aten/lower/op_context.h"

namespace tenon::aten {
namespace {

using enum Opcode;

// Where the operator's arguments stand.
struct Places {
  int64_t query, dropout, causal, mask, scale;
  std::vector<int64_t> tensors;  // but for the mask
  int64_t sums = -1;             // the lse among them
};

// Queries read by `repeats` heads each the same keys and values, if there are fewer heads of these.
struct Heads {
  Dim all, shared;
  int64_t repeats = 1;
};

absl::StatusOr<Heads> HeadsOf(OpContext& op, const Places& at) {
  Heads heads{op.meta(at.query).sizes[1], op.meta(at.query + 1).sizes[1]};
  if (KnownEqual(heads.all, heads.shared)) return heads;
  const int64_t all = heads.all.constant_or(0), shared = heads.shared.constant_or(0);
  if (all <= 0 || shared <= 0 || all % shared != 0) return NotLowered("heads that don't share keys evenly");
  heads.repeats = all / shared;
  return heads;
}

// What ATen refuses stays ATen's to refuse.
absl::Status Check(OpContext& op, const Places& at) {
  if (!op.equals(at.dropout, 0)) return NotLowered("attention with dropout");
  const Meta &q = op.meta(at.query), &k = op.meta(at.query + 1), &v = op.meta(at.query + 2);
  if (!IsFloat(q.dtype) || q.dtype != k.dtype || q.dtype != v.dtype) return NotLowered("attention of several types");
  if (q.sizes.size() != 4 || k.sizes.size() != 4 || v.sizes.size() != 4) return NotLowered("attention of other than four dims");
  const auto equal = [](const Dim& a, const Dim& b) { return KnownEqual(a, b); };
  const bool keyed = std::equal(k.sizes.begin(), k.sizes.end(), v.sizes.begin(), equal);
  if (!keyed || !equal(q.sizes[0], k.sizes[0]) || !equal(q.sizes[3], k.sizes[3])) return NotLowered("attention of sizes that don't fit");
  if (!op.is_none(at.scale) && op.IsSymbolic(op.arg(at.scale))) return NotLowered("attention scaled by a size");
  // -inf times the scale is what ATen masks with.
  const bool scaled = !op.is_none(at.scale);
  if (op.boolean(at.causal) && scaled && !(op.number(at.scale) > 0)) return NotLowered("a causal mask that is scaled to none");
  if (op.is_none(at.mask)) return absl::OkStatus();
  const Meta& mask = op.meta(at.mask);
  if (mask.dtype != q.dtype && mask.dtype != PrimitiveType::kF32) return NotLowered("attention's mask of another type");
  if (mask.sizes.size() != 2 && mask.sizes.size() != 4) return NotLowered("attention's mask of other than two or four dims");
  return absl::OkStatus();
}

// The body, in a computation of its own.
class Body {
 public:
  Body(OpContext& op, const Places& at, const Heads& heads)
      : op_(op), heads_(heads), b_(op.b.module()->AddComputation(at.sums < 0 ? "attention" : "attention_backward")) {
    b_.set_metadata(op.b.metadata());
    for (int64_t i : at.tensors) Add(op.tensor(i));
    if (!op.is_none(at.mask)) mask_ = Math(Add(op.tensor(at.mask)));
    const int64_t first = at.sums < 0 ? 0 : 1;
    query_ = Math(parameters_[first]);
    key_ = Repeated(Math(parameters_[first + 1]));
    value_ = Repeated(Math(parameters_[first + 2]));
    causal_ = op.boolean(at.causal);
    if (!op.is_none(at.scale)) scale_ = op.number(at.scale);
  }

  std::vector<Instruction*> Forward() {
    Instruction* x = Scores();
    Instruction* maximum = b_.Reduce(x, Number(-INFINITY), {3}, kMaximum);
    // Nothing is left where all is masked: zeros are divided by 1.
    Instruction* shift = b_.Select(Is(maximum, -INFINITY), b_.FullLike(maximum, 0), maximum);
    Instruction* exp = b_.Unary(kExponential, b_.Binary(kSubtract, x, AlongKeys(shift, x)));
    Instruction* sum = b_.Reduce(exp, Number(0), {3}, kAdd);
    Instruction* divisor = b_.Select(Is(sum, 0), b_.FullLike(sum, 1), sum);
    Instruction* weights = b_.Binary(kDivide, exp, AlongKeys(divisor, exp));
    return {Product(weights, value_, 3, 2), b_.Binary(kAdd, shift, b_.Unary(kLog, divisor))};
  }

  std::vector<Instruction*> Backward() {
    Instruction *gradient = Math(parameters_[0]), *out = Math(parameters_[4]), *sums = parameters_[5];
    Instruction* x = Scores();
    Instruction* p = b_.Unary(kExponential, b_.Binary(kSubtract, x, AlongKeys(sums, x)));
    if (causal_) p = b_.Select(Seen(p), p, b_.FullLike(p, 0));  // whatever the sums are
    Instruction* delta = b_.Reduce(b_.Binary(kMultiply, gradient, out), Number(0), {3}, kAdd);
    Instruction* dp = Product(gradient, value_, 3, 3);
    Instruction* ds = b_.Binary(kMultiply, p, b_.Binary(kSubtract, dp, AlongKeys(delta, dp)));
    return {Scaled(Product(ds, key_, 3, 2)), Shared(Scaled(Product(ds, query_, 2, 2))), Shared(Product(p, gradient, 2, 2))};
  }

  // The composite call of it, with results as the metas say, their layouts too.
  Values Call(std::vector<Instruction*> results, std::string_view name) {
    for (size_t k = 0; k < results.size(); ++k) {
      const Meta& meta = op_.result(static_cast<int64_t>(k));
      results[k] = b_.Convert(results[k], meta.dtype);
      if (const Permutation layout = LayoutOf(meta); !layout.empty()) results[k]->mutable_shape().set_layout(layout);
    }
    b_.computation()->set_root(b_.Tuple(results));
    Attributes attrs;
    attrs.set(Attr::kToApply, b_.computation());
    Instruction* call = op_.b.Make(kCall, operands_, std::move(attrs));
    call->set_name(op_.b.module()->UniqueInstructionName(std::string(name)));
    Composite composite{.name = absl::StrCat("tenon.", std::string(name)), .version = "1"};
    if (causal_) composite.attributes.emplace_back("is_causal", "true");
    if (scale_) composite.attributes.emplace_back("scale", absl::StrCat(DoubleText(*scale_), " : f64"));
    MarkComposite(call, composite);
    Values values;
    for (size_t k = 0; k < results.size(); ++k) values.push_back(op_.b.GetTupleElement(call, static_cast<int64_t>(k)));
    return values;
  }

 private:
  static std::string DoubleText(double x) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.17g", x);
    return text;
  }

  Instruction* Add(Instruction* operand) {
    parameters_.push_back(b_.Parameter(static_cast<int64_t>(operands_.size()), operand->shape()));
    operands_.push_back(operand);
    return parameters_.back();
  }

  PrimitiveType type() const { return OpMath(parameters_[1]->shape().element_type()); }
  Instruction* Math(Instruction* x) { return b_.Convert(x, type()); }
  Instruction* Number(double n) { return b_.ScalarConstant(type(), n); }
  Instruction* Is(Instruction* x, double n) { return b_.Compare(x, b_.FullLike(x, n), "EQ"); }
  Instruction* AlongKeys(Instruction* row, Instruction* like) { return b_.Broadcast(row, like->shape().dims(), {0, 1, 2}); }
  Instruction* Product(Instruction* a, Instruction* b, int64_t summed_of_a, int64_t summed_of_b) {
    return b_.Dot(a, b, {0, 1}, {0, 1}, {summed_of_a}, {summed_of_b});
  }

  Instruction* Scaled(Instruction* x) {
    if (scale_) return b_.Binary(kMultiply, x, b_.FullLike(x, *scale_));
    const Dim features = query_->shape().dim(3);
    if (features.is_constant()) return b_.Binary(kMultiply, x, b_.FullLike(x, 1 / std::sqrt(static_cast<double>(features.constant()))));
    Instruction* root = b_.Unary(kSqrt, b_.SizeValue(features, type()));
    return b_.Binary(kDivide, x, b_.BroadcastTo(root, x->shape().dims()));
  }

  // Keys up to the query's own place, from the first on, however many there are.
  Instruction* Seen(Instruction* x) {
    const Shape places(PrimitiveType::kS32, x->shape().dims());
    return b_.Compare(b_.Iota(places, 2), b_.Iota(places, 3), "GE");
  }

  Instruction* Scores() {
    Instruction* x = Scaled(Product(query_, key_, 3, 3));
    if (mask_ != nullptr) x = b_.Binary(kAdd, x, b_.BroadcastTo(mask_, x->shape().dims()));
    return causal_ ? b_.Select(Seen(x), x, b_.FullLike(x, -INFINITY)) : x;
  }

  // [batch, shared heads, ...] -> [batch, heads, ...], and sums over those that share.
  Instruction* Repeated(Instruction* x) {
    if (heads_.repeats == 1) return x;
    const Shape& s = x->shape();
    Instruction* repeated = b_.Broadcast(x, {s.dim(0), s.dim(1), Dim(heads_.repeats), s.dim(2), s.dim(3)}, {0, 1, 3, 4});
    return b_.Reshape(repeated, {s.dim(0), heads_.all, s.dim(2), s.dim(3)});
  }
  Instruction* Shared(Instruction* x) {
    if (heads_.repeats == 1) return x;
    const Shape& s = x->shape();
    Instruction* apart = b_.Reshape(x, {s.dim(0), heads_.shared, Dim(heads_.repeats), s.dim(2), s.dim(3)});
    return b_.Reduce(apart, Number(0), {2}, kAdd);
  }

  OpContext& op_;
  const Heads heads_;
  Builder b_;
  std::vector<Instruction*> operands_, parameters_;
  Instruction *query_ = nullptr, *key_ = nullptr, *value_ = nullptr, *mask_ = nullptr;
  bool causal_ = false;
  std::optional<double> scale_;
};

}  // namespace

Lowering LowerAttention(OpContext& op) {
  const Places at{.query = 0, .dropout = 3, .causal = 4, .mask = 5, .scale = 6, .tensors = {0, 1, 2}};
  TENON_RETURN_IF_ERROR(Check(op, at));
  TENON_ASSIGN_OR_RETURN(const Heads heads, HeadsOf(op, at));
  Body body(op, at, heads);
  return body.Call(body.Forward(), "attention");
}

Lowering LowerAttentionBackward(OpContext& op) {
  const Places at{.query = 1, .dropout = 6, .causal = 7, .mask = 8, .scale = 9, .tensors = {0, 1, 2, 3, 4, 5}, .sums = 5};
  TENON_RETURN_IF_ERROR(Check(op, at));
  TENON_ASSIGN_OR_RETURN(const Heads heads, HeadsOf(op, at));
  Body body(op, at, heads);
  return body.Call(body.Backward(), "attention_backward");
}

}  // namespace tenon::aten
