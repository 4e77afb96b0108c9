#include "tools/lab/generate/transformer.h"

#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "hlo/builder.h"
#include "hlo/eval/evaluator.h"
#include "passes/pipeline.h"
#include "tools/lab/generate/random_inputs.h"

namespace tenon::lab {
namespace {

using Type = PrimitiveType;

class Step {
 public:
  Step(Module* module, const TransformerOptions& o)
      : o_(o), model_(o.heads * o.head_dim), b_(module->AddComputation("step")) {
    module->set_entry(b_.computation());
  }

  void Build() {
    ids_ = Input("ids", Type::kS32, {o_.batch, o_.sequence});
    targets_ = Input("targets", Type::kS32, {o_.batch, o_.sequence});
    key_mask_ = Input("key_mask", Type::kPred, {o_.batch, o_.cache});
    logit_bias_ = Input("logit_bias", Type::kF32, {o_.sequence, o_.cache});
    position_ = Input("position", Type::kS32, {});
    Instruction* embedding = Input("embedding", Type::kF32, {o_.vocabulary, model_});
    Instruction* h = b_.Binary(Opcode::kAdd, Embed(embedding, ids_), Positions());
    for (int64_t l = 0; l < o_.layers; ++l) h = Layer(l, h);
    Instruction* out = LayerNorm("final", h);
    Loss(embedding, out);
    outputs_.push_back(out);
    b_.computation()->set_root(b_.Tuple(outputs_));
  }

 private:
  Instruction* Input(const std::string& name, Type type, std::vector<int64_t> dims) {
    return b_.Parameter(static_cast<int64_t>(b_.computation()->parameters().size()),
                        Shape::Array(type, dims), name);
  }
  Instruction* Weight(int64_t layer, const char* name, std::vector<int64_t> dims) {
    return Input(absl::StrCat("l", layer, "_", name), Type::kF32, std::move(dims));
  }
  // Constants are made anew at each use, as a tracer makes them.
  Instruction* Like(Instruction* x, double value) { return b_.FullLike(x, value); }
  Instruction* Scaled(Instruction* x, double by) {
    return b_.Binary(Opcode::kMultiply, x, Like(x, by));
  }
  Instruction* Plus(Instruction* x, Instruction* y) { return b_.Binary(Opcode::kAdd, x, y); }
  Instruction* Times(Instruction* x, Instruction* y) { return b_.Binary(Opcode::kMultiply, x, y); }
  Instruction* Minus(Instruction* x, Instruction* y) { return b_.Binary(Opcode::kSubtract, x, y); }

  // Reduced along the last dim, which stays as a dim of the result by broadcasting.
  Instruction* ReduceLast(Instruction* x, Opcode opcode) {
    const double init = opcode == Opcode::kMaximum ? -std::numeric_limits<double>::infinity() : 0;
    return b_.Reduce(x, b_.ScalarConstant(Type::kF32, init), {x->shape().rank() - 1}, opcode);
  }
  Instruction* AlongLast(Instruction* row, Instruction* like) {
    std::vector<int64_t> dims;
    for (int64_t d = 0; d < row->shape().rank(); ++d) dims.push_back(d);
    return b_.Broadcast(row, like->shape().dims(), dims);
  }

  Instruction* Embed(Instruction* table, Instruction* ids) {
    Attributes a;
    a.set(Attr::kOffsetDims, std::vector<int64_t>{ids->shape().rank()});
    a.set(Attr::kCollapsedSliceDims, std::vector<int64_t>{0});
    a.set(Attr::kStartIndexMap, std::vector<int64_t>{0});
    a.set(Attr::kIndexVectorDim, ids->shape().rank());
    a.set(Attr::kSliceSizes, std::vector<Dim>{1, table->shape().dim(1)});
    return b_.Make(Opcode::kGather, {table, ids}, std::move(a));
  }

  Instruction* Positions() {
    Instruction* table = Input("position_embedding", Type::kF32, {o_.cache, model_});
    Instruction* iota = b_.Iota(Shape::Array(Type::kS32, {o_.sequence}), 0);
    Instruction* at = Plus(iota, b_.BroadcastTo(position_, iota->shape().dims()));
    return b_.Broadcast(Embed(table, at), {Dim(o_.batch), Dim(o_.sequence), Dim(model_)}, {1, 2});
  }

  Instruction* LayerNorm(const std::string& name, Instruction* x) {
    const double n = static_cast<double>(model_);
    Instruction* mean = Scaled(ReduceLast(x, Opcode::kAdd), 1 / n);
    Instruction* centered = Minus(x, AlongLast(mean, x));
    Instruction* variance = Scaled(ReduceLast(Times(centered, centered), Opcode::kAdd), 1 / n);
    Instruction* scale = b_.Unary(Opcode::kRsqrt, Plus(variance, Like(variance, 1e-5)));
    Instruction* normal = Times(centered, AlongLast(scale, x));
    Instruction* gamma = Input(absl::StrCat(name, "_gamma"), Type::kF32, {model_});
    Instruction* beta = Input(absl::StrCat(name, "_beta"), Type::kF32, {model_});
    return Plus(Times(normal, b_.BroadcastTo(gamma, x->shape().dims())),
                b_.BroadcastTo(beta, x->shape().dims()));
  }

  // The same with W in 8 bits, column-major, and a scale per input.
  Instruction* QuantizedLinear(int64_t layer, const std::string& name, Instruction* x,
                               int64_t out) {
    const int64_t in = x->shape().constant_dim(2);
    const int64_t next = static_cast<int64_t>(b_.computation()->parameters().size());
    Instruction* stored = b_.Parameter(next, Shape(Type::kS8, {Dim(out), Dim(in)}, {0, 1}),
                                       absl::StrCat("l", layer, "_", name, "_w8"));
    Instruction* scale = Weight(layer, absl::StrCat(name, "_scale").c_str(), {in});
    Instruction* w =
        Times(b_.Convert(stored, Type::kF32), b_.Broadcast(scale, stored->shape().dims(), {1}));
    return b_.Dot(x, w, {}, {}, {2}, {1});
  }

  // y = x W^T + c with W [out, in].
  Instruction* Linear(int64_t layer, const std::string& name, Instruction* x, int64_t out) {
    const int64_t in = x->shape().constant_dim(x->shape().rank() - 1);
    Instruction* w =
        b_.Transpose(Weight(layer, absl::StrCat(name, "_w").c_str(), {out, in}), {1, 0});
    Instruction* y = b_.Dot(x, w, {}, {}, {x->shape().rank() - 1}, {0});
    return Plus(y, b_.BroadcastTo(Weight(layer, absl::StrCat(name, "_b").c_str(), {out}),
                                  y->shape().dims()));
  }

  // Half of each position's features from the position before it.
  Instruction* TokenShift(Instruction* x) {
    const int64_t half = model_ / 2;
    PaddingConfig pad;
    pad.dims = {{}, {.low = 1, .high = -1}, {}};
    Instruction* shifted =
        b_.Pad(b_.SliceDim(x, 2, 0, half), b_.ScalarConstant(Type::kF32, 0), pad);
    return b_.Concatenate({shifted, b_.SliceDim(x, 2, half, model_)}, 2);
  }

  Instruction* SplitHeads(Instruction* x) {
    Instruction* split =
        b_.Reshape(x, {Dim(o_.batch), Dim(o_.sequence), Dim(o_.heads), Dim(o_.head_dim)});
    return b_.Transpose(split, {0, 2, 1, 3});
  }
  Instruction* MergeHeads(Instruction* x) {
    return b_.Reshape(b_.Transpose(x, {0, 2, 1, 3}),
                      {Dim(o_.batch), Dim(o_.sequence), Dim(model_)});
  }

  // x cos + rotate_half(x) sin, angles from the step's position.
  Instruction* Rotary(Instruction* x) {
    const int64_t half = o_.head_dim / 2;
    const Shape table = Shape::Array(Type::kF32, {o_.sequence, o_.head_dim});
    Instruction* at =
        b_.Convert(Plus(b_.Iota(Shape::Array(Type::kS32, {o_.sequence, o_.head_dim}), 0),
                        b_.BroadcastTo(position_, table.dims())),
                   Type::kF32);
    Instruction* feature = b_.Iota(Shape::Array(Type::kF32, {half}), 0);
    Instruction* frequency = b_.Unary(
        Opcode::kExponential, Scaled(feature, -std::log(10000.0) / static_cast<double>(half)));
    Instruction* angle =
        Times(at, b_.BroadcastTo(b_.Concatenate({frequency, frequency}, 0), table.dims()));
    Instruction* low = b_.SliceDim(x, 3, 0, half);
    Instruction* rotated =
        b_.Concatenate({b_.Unary(Opcode::kNegate, b_.SliceDim(x, 3, half, o_.head_dim)), low}, 3);
    Instruction* cosine = b_.BroadcastTo(b_.Unary(Opcode::kCosine, angle), x->shape().dims());
    Instruction* sine = b_.BroadcastTo(b_.Unary(Opcode::kSine, angle), x->shape().dims());
    return Plus(Times(x, cosine), Times(rotated, sine));
  }

  // The bf16 cache times its heads' scales with `fresh` written at the position; the new cache and
  // how far the update moved it are results.
  Instruction* UpdateCache(int64_t layer, const std::string& name, Instruction* fresh) {
    Instruction* stored = Input(absl::StrCat("l", layer, "_", name, "_cache"), Type::kBF16,
                                {o_.batch, o_.heads, o_.cache, o_.head_dim});
    Instruction* zero = b_.ScalarConstantInt(Type::kS32, 0);
    Instruction* scale = Weight(layer, absl::StrCat(name, "_scale").c_str(), {o_.heads});
    Instruction* old =
        Times(b_.Convert(stored, Type::kF32), b_.Broadcast(scale, stored->shape().dims(), {1}));
    Instruction* updated =
        b_.Make(Opcode::kDynamicUpdateSlice, {old, fresh, zero, zero, position_, zero}, {});
    Instruction* moved = b_.Unary(Opcode::kAbs, Minus(updated, old));
    drift_.push_back(b_.Reduce(moved, b_.ScalarConstant(Type::kF32, 0), {2, 3}, Opcode::kAdd));
    Instruction* unscaled =
        b_.Binary(Opcode::kDivide, updated, b_.Broadcast(scale, updated->shape().dims(), {1}));
    outputs_.push_back(b_.Convert(unscaled, Type::kBF16));
    return updated;
  }

  Instruction* Attention(int64_t layer, Instruction* x) {
    Instruction* qkv = Linear(layer, "qkv", TokenShift(x), 3 * model_);
    Instruction* q = Rotary(SplitHeads(b_.SliceDim(qkv, 2, 0, model_)));
    Instruction* k =
        UpdateCache(layer, "key", Rotary(SplitHeads(b_.SliceDim(qkv, 2, model_, 2 * model_))));
    Instruction* v =
        UpdateCache(layer, "value", SplitHeads(b_.SliceDim(qkv, 2, 2 * model_, 3 * model_)));
    Instruction* raw = Scaled(b_.Dot(q, k, {0, 1}, {0, 1}, {3}, {3}),
                              1 / std::sqrt(static_cast<double>(o_.head_dim)));
    Instruction* logits = Plus(raw, b_.Broadcast(logit_bias_, raw->shape().dims(), {2, 3}));
    Instruction* most = ReduceLast(logits, Opcode::kMaximum);
    outputs_.push_back(most);
    Instruction* weight = b_.Unary(Opcode::kExponential, Minus(logits, AlongLast(most, logits)));
    Instruction* masked = b_.Select(Visible(logits), weight, Like(weight, 0));
    Instruction* total = ReduceLast(masked, Opcode::kAdd);
    Instruction* p = b_.Binary(Opcode::kDivide, masked, AlongLast(total, masked));
    // Unused positions may hold anything: 0 * NaN is not 0.
    Instruction* used = b_.Broadcast(key_mask_, v->shape().dims(), {0, 2});
    Instruction* clean = b_.Select(used, v, Like(v, 0));
    return QuantizedLinear(layer, "out", MergeHeads(b_.Dot(p, clean, {0, 1}, {0, 1}, {3}, {2})),
                           model_);
  }

  // Keys that a query may see: written, not in the future.
  Instruction* Visible(Instruction* logits) {
    const std::vector<int64_t> square = {o_.sequence, o_.cache};
    Instruction* row = Plus(b_.Iota(Shape::Array(Type::kS32, square), 0),
                            b_.BroadcastTo(position_, Shape::Array(Type::kS32, square).dims()));
    Instruction* column = b_.Iota(Shape::Array(Type::kS32, square), 1);
    Instruction* causal =
        b_.Broadcast(b_.Compare(column, row, "LE"), logits->shape().dims(), {2, 3});
    Instruction* written = b_.Broadcast(key_mask_, logits->shape().dims(), {0, 3});
    return b_.Binary(Opcode::kAnd, causal, written);
  }

  // Keeps nine of ten: random bits below 0.9 * 2^32.
  Instruction* Dropout(Instruction* x) {
    Attributes uniform;
    uniform.set(Attr::kDistribution, std::string("rng_uniform"));
    Instruction* bits =
        b_.Make(Opcode::kRng,
                {b_.ScalarConstantInt(Type::kU32, 0), b_.ScalarConstantInt(Type::kU32, 0xFFFFFFFF)},
                std::move(uniform), Shape(Type::kU32, x->shape().dims()));
    Instruction* threshold =
        b_.BroadcastTo(b_.ScalarConstantInt(Type::kU32, 0xE6666666), x->shape().dims());
    return b_.Select(b_.Compare(bits, threshold, "LT"), Scaled(x, 1 / 0.9), Like(x, 0));
  }

  Instruction* Gelu(Instruction* x) {
    Instruction* cubic = Plus(x, Scaled(Times(x, Times(x, x)), 0.044715));
    Instruction* t = b_.Unary(Opcode::kTanh, Scaled(cubic, std::sqrt(2 / M_PI)));
    return Times(Scaled(x, 0.5), Plus(t, Like(t, 1)));
  }

  Instruction* Layer(int64_t l, Instruction* h) {
    h = Plus(h, Dropout(Attention(l, LayerNorm(absl::StrCat("l", l, "_ln1"), h))));
    Instruction* up = Gelu(Linear(l, "up", LayerNorm(absl::StrCat("l", l, "_ln2"), h), o_.hidden));
    return Plus(h, Dropout(Linear(l, "down", up, model_)));
  }

  // Cross entropy per sequence; padding targets (negative) don't count.
  void Loss(Instruction* embedding, Instruction* h) {
    Instruction* logits = b_.Dot(h, b_.Transpose(embedding, {1, 0}), {}, {}, {2}, {0});
    Instruction* most = ReduceLast(logits, Opcode::kMaximum);
    Instruction* shifted = Minus(logits, AlongLast(most, logits));
    Instruction* sum = ReduceLast(b_.Unary(Opcode::kExponential, shifted), Opcode::kAdd);
    Instruction* log_p = Minus(shifted, AlongLast(b_.Unary(Opcode::kLog, sum), logits));
    Instruction* classes = b_.Iota(Shape(Type::kS32, logits->shape().dims()), 2);
    Instruction* hit = b_.Compare(classes, AlongLast(targets_, logits), "EQ");
    Instruction* picked = ReduceLast(b_.Select(hit, log_p, Like(log_p, 0)), Opcode::kAdd);
    Instruction* counts = b_.Convert(b_.Compare(targets_, Like(targets_, 0), "GE"), Type::kF32);
    Instruction* n = ReduceLast(counts, Opcode::kAdd);
    Instruction* loss =
        b_.Unary(Opcode::kNegate,
                 b_.Binary(Opcode::kDivide, ReduceLast(Times(picked, counts), Opcode::kAdd), n));
    outputs_.insert(outputs_.begin(), loss);
    outputs_.insert(outputs_.begin() + 1, b_.Concatenate(drift_, 1));
  }

  const TransformerOptions o_;
  const int64_t model_;
  Builder b_;
  Instruction *ids_ = nullptr, *targets_ = nullptr, *key_mask_ = nullptr, *logit_bias_ = nullptr,
              *position_ = nullptr;
  std::vector<Instruction*> outputs_, drift_;
};

}  // namespace

std::unique_ptr<Module> TransformerStep(const TransformerOptions& options) {
  auto module = std::make_unique<Module>("transformer_step");
  Step(module.get(), options).Build();
  return module;
}

std::vector<Literal> TransformerInputs(const Module& step, const TransformerOptions& o,
                                       uint64_t seed) {
  Random random(seed);
  constexpr int64_t kPosition = 3, kOneQuery = 5;
  const int64_t written = kPosition + o.sequence;
  std::vector<Literal> inputs;
  for (const Instruction* p : step.entry()->parameters()) {
    Literal l(p->shape());
    const std::string& name = p->name();
    const int64_t n = l.num_elements();
    for (int64_t i = 0; i < n; ++i) {
      if (name == "position") {
        l.SetFromInt64(i, kPosition);
      } else if (name == "ids") {
        // The last token of the vocabulary occurs, and padding beyond it.
        l.SetFromInt64(i, i % o.sequence == 2                ? o.vocabulary - 1
                          : i % o.sequence == o.sequence - 1 ? o.vocabulary + 5
                                                             : random.Below(o.vocabulary));
      } else if (name == "targets") {
        l.SetFromInt64(i, i % o.sequence == o.sequence - 1 ? -1 : random.Below(o.vocabulary));
      } else if (name == "key_mask") {
        l.SetFromInt64(i, i % o.cache < written ? 1 : 0);
      } else if (name == "logit_bias") {
        l.SetFromDouble(i, i / o.cache == kOneQuery ? -300 - random.Unit() : random.Unit() - 0.5);
      } else if (absl::EndsWith(name, "_cache")) {
        const int64_t at = i / o.head_dim % o.cache,
                      sequence = i / (o.head_dim * o.cache * o.heads);
        const bool unused = at >= written && sequence == o.batch - 1;
        l.SetFromDouble(i,
                        unused ? std::numeric_limits<double>::quiet_NaN() : 2 * random.Unit() - 1);
      } else if (absl::EndsWith(name, "_w8")) {
        l.SetFromInt64(i, random.Between(-127, 127));
      } else if (absl::EndsWith(name, "out_scale")) {
        l.SetFromDouble(i, (0.5 + random.Unit()) / 500);
      } else if (absl::EndsWith(name, "_gamma") || absl::EndsWith(name, "_scale")) {
        l.SetFromDouble(i, 0.75 + 0.5 * random.Unit());
      } else {
        const int64_t fan_in = p->shape().rank() == 2 ? p->shape().constant_dim(1) : 16;
        l.SetFromDouble(i, (2 * random.Unit() - 1) * std::sqrt(3.0 / static_cast<double>(fan_in)));
      }
    }
    inputs.push_back(std::move(l));
  }
  return inputs;
}

absl::StatusOr<Case> OptimizedTransformer(const TransformerOptions& options) {
  Case c{TransformerStep(options), {}};
  c.arguments = TransformerInputs(*c.module, options);
  PassContext context;
  context.evaluate = [](const Instruction& i, absl::Span<const Literal> operands) {
    return EvaluateInstruction(i, operands);
  };
  PipelineOptions pipeline;
  pipeline.verify = true;
  for (const std::string& name : DefaultPipeline()) {
    if (name == "assign-layout") break;
    pipeline.passes.push_back(name);
  }
  TENON_RETURN_IF_ERROR(RunPipeline(*c.module, context, pipeline).status());
  return c;
}

}  // namespace tenon::lab
