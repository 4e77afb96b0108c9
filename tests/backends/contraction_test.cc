// Random dots and convolutions through the whole backend against the evaluator: dimension numbers, layouts, windows, groups and
// types of every kind. Arguments are small integers (infinities and NaN now and then), so that sums are exact in every type and
// order: results must be equal, not close.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "backends/contract/provider.h"
#include "backends/cpu/plan/target.h"
#include "backends/driver/literal_executable.h"
#include "backends/driver/targets.h"
#include "hlo/builder.h"
#include "hlo/eval/evaluator.h"
#include "hlo/infer/context.h"
#include "hlo/sizes.h"
#include "hlo/text/text.h"
#include "hlo/tolerance.h"
#include "hlo/verifier.h"
#include "passes/freeze/split_frozen.h"
#include "tests/backends/kernel_runner.h"

namespace tenon {
namespace {

using Ints = std::vector<int64_t>;
using P = PrimitiveType;

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t Below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  int64_t In(int64_t low, int64_t high) { return low + Below(high - low + 1); }
  bool OneIn(int64_t n) { return Below(n) == 0; }
  Ints Permutation(int64_t n) {
    Ints p(n);
    for (int64_t i = 0; i < n; ++i) p[i] = i;
    std::shuffle(p.begin(), p.end(), engine_);
    return p;
  }
  // Mostly small, now and then more than a vector, seldom nothing.
  int64_t Size() { return OneIn(40) ? 0 : OneIn(5) ? In(15, 35) : In(1, 5); }

 private:
  std::mt19937_64 engine_;
};

Shape WithRandomLayout(Random& r, PrimitiveType type, const Ints& dims) {
  Shape s = Shape::Array(type, dims);
  if (r.OneIn(2)) return s;
  const Ints p = r.Permutation(static_cast<int64_t>(dims.size()));
  s.set_layout(Permutation(p.begin(), p.end()));
  return s;
}

// Operand and result types: one for all, or a mixture.
std::array<PrimitiveType, 3> Types(Random& r) {
  static constexpr P kOne[] = {P::kF32, P::kF32, P::kF64, P::kBF16, P::kF16, P::kS32,      P::kS8,
                               P::kU16, P::kS64, P::kU8,  P::kS4,   P::kPred, P::kF8E4M3FN, P::kC64};
  static constexpr std::array<P, 3> kMixed[] = {{P::kBF16, P::kBF16, P::kF32}, {P::kS8, P::kS8, P::kS32}, {P::kU8, P::kS8, P::kS32},
                                                {P::kF32, P::kBF16, P::kF16},  {P::kS32, P::kF32, P::kF32}, {P::kPred, P::kPred, P::kPred},
                                                {P::kF32, P::kS16, P::kS8},    {P::kF16, P::kF64, P::kF32}, {P::kPred, P::kS8, P::kU32},
                                                {P::kF8E5M2, P::kF8E4M3FN, P::kF32}, {P::kF8E8M0FNU, P::kF8E8M0FNU, P::kF8E8M0FNU}};
  if (r.OneIn(3)) return kMixed[r.Below(std::size(kMixed))];
  const P type = kOne[r.Below(std::size(kOne))];
  return {type, type, type};
}

Literal SmallIntegers(Random& r, const Shape& shape) {
  Literal l(Shape::Array(shape.element_type(), shape.constant_dims()));
  const PrimitiveType type = shape.element_type();
  const bool specials = IsFloat(type) && BitWidth(type) > 8 && r.OneIn(3);
  const int64_t low = IsSigned(type) || IsFloat(type) ? -2 : 0;
  for (int64_t i = 0; i < l.num_elements(); ++i) {
    if (IsComplex(type)) {
      const float parts[2] = {static_cast<float>(r.In(-2, 2)), static_cast<float>(r.In(-2, 2))};
      std::memcpy(l.mutable_bytes() + i * 8, parts, 8);
    } else if (IsFloat(type)) {
      const double special = r.OneIn(3) ? std::nan("") : r.OneIn(2) ? INFINITY : -INFINITY;
      l.SetFromDouble(i, specials && r.OneIn(20) ? special : static_cast<double>(r.In(-2, 2)));
    } else {
      l.SetFromInt64(i, r.In(low, type == P::kPred ? 1 : 2));
    }
  }
  return l;
}

Instruction* RandomDot(Random& r, Computation* c) {
  const auto [lhs_type, rhs_type, type] = Types(r);
  Ints sizes[4];  // batch, contracting, lhs free, rhs free
  const int64_t most[4] = {2, 2, 2, 2};
  for (int g = 0; g < 4; ++g) {
    for (int64_t n = r.Below(most[g] + 1); n > 0; --n) sizes[g].push_back(r.Size());
  }
  Ints batch[2], contracting[2], dims[2];
  for (int side : {0, 1}) {
    const Ints& free = sizes[2 + side];
    const int64_t rank = static_cast<int64_t>(sizes[0].size() + sizes[1].size() + free.size());
    const Ints place = r.Permutation(rank);
    dims[side].resize(rank);
    int64_t next = 0;
    for (int64_t s : sizes[0]) dims[side][place[next]] = s, batch[side].push_back(place[next++]);
    for (int64_t s : sizes[1]) dims[side][place[next]] = s, contracting[side].push_back(place[next++]);
    for (int64_t s : free) dims[side][place[next++]] = s;
  }
  Ints result = sizes[0];
  for (int side : {0, 1}) {
    for (int64_t d = 0; d < static_cast<int64_t>(dims[side].size()); ++d) {
      auto has = [d](const Ints& list) { return std::find(list.begin(), list.end(), d) != list.end(); };
      if (!has(batch[side]) && !has(contracting[side])) result.push_back(dims[side][d]);
    }
  }
  Builder b(c);
  Attributes attrs;
  attrs.set(Attr::kLhsBatchDims, batch[0]);
  attrs.set(Attr::kRhsBatchDims, batch[1]);
  attrs.set(Attr::kLhsContractingDims, contracting[0]);
  attrs.set(Attr::kRhsContractingDims, contracting[1]);
  Instruction* x = b.Parameter(0, WithRandomLayout(r, lhs_type, dims[0]));
  Instruction* y = b.Parameter(1, WithRandomLayout(r, rhs_type, dims[1]));
  return b.Make(Opcode::kDot, {x, y}, attrs, WithRandomLayout(r, type, result));
}

int64_t Windowed(int64_t size, const WindowDim& w) {
  const int64_t base = size == 0 ? 0 : (size - 1) * w.base_dilation + 1;
  const int64_t room = base + w.padding_low + w.padding_high - ((w.size - 1) * w.window_dilation + 1);
  return room < 0 ? 0 : room / w.stride + 1;
}

WindowDim RandomWindow(Random& r) {
  WindowDim w;
  w.size = r.In(1, 4);
  if (r.OneIn(3)) w.stride = r.In(1, 3);
  if (r.OneIn(2)) w.padding_low = r.In(-2, 3);
  if (r.OneIn(2)) w.padding_high = r.In(-2, 3);
  if (r.OneIn(4)) w.base_dilation = r.In(2, 3);
  if (r.OneIn(4)) w.window_dilation = r.In(2, 3);
  w.reversed = r.OneIn(4);
  return w;
}

Instruction* RandomConvolution(Random& r, Computation* c) {
  const auto [lhs_type, rhs_type, type] = Types(r);
  const int64_t rank = r.OneIn(10) ? 0 : r.In(1, 3);
  const Ints in = r.Permutation(rank + 2), kernel = r.Permutation(rank + 2), out = r.Permutation(rank + 2);
  DimLabels l{.input_batch = in[0], .input_feature = in[1], .kernel_input_feature = kernel[0], .kernel_output_feature = kernel[1],
              .output_batch = out[0], .output_feature = out[1]};
  const int64_t groups = r.OneIn(3) ? r.In(2, 3) : 1;
  const bool by_feature = r.OneIn(2);
  const int64_t feature_groups = by_feature ? groups : 1, batch_groups = by_feature ? 1 : groups;
  const int64_t batch = r.In(1, 3), features = r.OneIn(20) ? 0 : r.In(1, 6);
  const int64_t out_features = groups * (r.OneIn(3) ? r.In(8, 20) : r.In(1, 4));
  Ints x(rank + 2), k(rank + 2), y(rank + 2);
  x[l.input_batch] = batch * batch_groups, y[l.output_batch] = batch;
  x[l.input_feature] = features * feature_groups, k[l.kernel_input_feature] = features;
  k[l.kernel_output_feature] = y[l.output_feature] = out_features;
  Window window;
  const bool whole = r.OneIn(6), taps = !whole && r.OneIn(6);  // what becomes a dot
  for (int64_t d = 0; d < rank; ++d) {
    l.input_spatial.push_back(in[d + 2]);
    l.kernel_spatial.push_back(kernel[d + 2]);
    l.output_spatial.push_back(out[d + 2]);
    const int64_t size = r.OneIn(4) ? r.In(16, 24) : r.In(rank == 3 ? 1 : 0, 9);
    WindowDim w = RandomWindow(r);
    if (whole || taps) w = {.size = whole ? std::max<int64_t>(1, size) : 1, .stride = r.In(1, 3)};
    window.dims.push_back(w);
    x[in[d + 2]] = size, k[kernel[d + 2]] = w.size, y[out[d + 2]] = Windowed(size, w);
  }
  Builder b(c);
  Attributes attrs;
  attrs.set(Attr::kDimLabels, l);
  attrs.set(Attr::kWindow, window);
  attrs.set(Attr::kFeatureGroupCount, feature_groups);
  attrs.set(Attr::kBatchGroupCount, batch_groups);
  Instruction* input = b.Parameter(0, WithRandomLayout(r, lhs_type, x));
  Instruction* weights = b.Parameter(1, WithRandomLayout(r, rhs_type, k));
  return b.Make(Opcode::kConvolution, {input, weights}, attrs, WithRandomLayout(r, type, y));
}

// Ragged along a free, contracting or batch dim; group sizes that don't cover the dim, or more than it.
Instruction* RandomRaggedDot(Random& r, Computation* c) {
  const auto [lhs_type, rhs_type, type] = Types(r);
  const int64_t batch = r.In(1, 3), m = r.In(1, 9), k = r.In(1, 9), n = r.In(1, 20), groups = r.In(1, 4), mode = r.Below(3);
  Builder b(c);
  Attributes attrs;
  auto ints = [&](Attr a, Ints v) { attrs.set(a, std::move(v)); };
  // lhs [batch, k, m], rhs [group,] [k, batch, n]
  ints(Attr::kLhsBatchDims, {0});
  ints(Attr::kLhsContractingDims, {1});
  ints(Attr::kLhsRaggedDims, {mode == 0 ? 2 : mode == 1 ? 1 : 0});
  ints(Attr::kRhsBatchDims, {mode == 0 ? 2 : 1});
  ints(Attr::kRhsContractingDims, {mode == 0 ? 1 : 0});
  if (mode == 0) ints(Attr::kRhsGroupDims, {0});
  const Ints rhs = mode == 0 ? Ints{groups, k, batch, n} : Ints{k, batch, n};
  const Ints result = mode == 1 ? Ints{groups, batch, m, n} : Ints{batch, m, n};
  Instruction* x = b.Parameter(0, WithRandomLayout(r, lhs_type, {batch, k, m}));
  Instruction* y = b.Parameter(1, WithRandomLayout(r, rhs_type, rhs));
  Instruction* sizes = b.Parameter(2, Shape::Array(r.OneIn(2) ? P::kS32 : P::kU64, Ints{groups}));
  return b.Make(Opcode::kRaggedDot, {x, y, sizes}, attrs, WithRandomLayout(r, type, result));
}

Instruction* RandomScaledDot(Random& r, Computation* c) {
  static constexpr P kOperands[] = {P::kF8E4M3FN, P::kF8E5M2, P::kBF16, P::kF32}, kResults[] = {P::kF32, P::kBF16, P::kF64};
  const int64_t m = r.In(1, 9), n = r.In(1, 20), blocks[2] = {r.In(1, 3), r.In(1, 3)}, k = 6 * r.In(1, 3);
  Builder b(c);
  Attributes attrs;
  attrs.set(Attr::kLhsContractingDims, Ints{1});
  attrs.set(Attr::kRhsContractingDims, Ints{0});
  Instruction* x = b.Parameter(0, WithRandomLayout(r, kOperands[r.Below(4)], {m, k}));
  Instruction* y = b.Parameter(1, WithRandomLayout(r, kOperands[r.Below(4)], {k, n}));
  Instruction* sx = b.Parameter(2, Shape::Array(kOperands[r.Below(4)], Ints{m, blocks[0]}));
  Instruction* sy = b.Parameter(3, r.OneIn(3) ? Shape::Scalar(P::kF32) : Shape::Array(kOperands[r.Below(4)], Ints{blocks[1], 1}));
  return b.Make(Opcode::kScaledDot, {x, y, sx, sy}, attrs, WithRandomLayout(r, kResults[r.Below(3)], {m, n}));
}

void CheckRandom(uint64_t seed, Instruction* (*make)(Random&, Computation*), const std::string& isa) {
  Random r(seed);
  Module module("random");
  Computation* entry = module.AddComputation("main");
  module.set_entry(entry);
  Instruction* root = make(r, entry);
  if (r.OneIn(2)) {  // the contraction is not what the caller gets
    Builder b(entry);
    root = b.Binary(root->shape().element_type() == P::kPred ? Opcode::kOr : Opcode::kAdd, root, root);
  }
  entry->set_root(root);
  std::vector<Literal> args;
  for (const Instruction* p : entry->parameters()) args.push_back(SmallIntegers(r, p->shape()));
  const absl::StatusOr<Literal> want = Evaluate(module, args);
  ASSERT_TRUE(want.ok()) << want.status() << "\n" << Print(module);
  const auto compiled = LiteralExecutable::Compile(module, {.isa = isa, .excess_precision = false, .verify_passes = true});
  ASSERT_TRUE(compiled.ok()) << compiled.status() << "\n" << Print(module);
  const absl::StatusOr<std::vector<Literal>> got = (*compiled)->Run(args);
  ASSERT_TRUE(got.ok()) << got.status() << "\n" << Print(module);
  const LiteralDifference d = CompareLiterals((*got)[0], *want);
  EXPECT_TRUE(d.within) << "seed " << seed << " " << isa << ": " << d.what << "\n" << Print(module);
}

// Sizes around those of tiles and blocks of vectors, with what PyTorch's layouts and padding make of them; a bias and a ReLU behind.
// Parameter 1 as [summed..., columns]; sometimes it lies the other way around, as frameworks have weights, and in a narrower type.
Instruction* SecondOperand(Random& r, Builder& b, P type, const Ints& dims) {
  const bool narrow = type == P::kF32 && r.OneIn(5);
  const bool turned = r.OneIn(2);
  Ints lies = dims;
  if (turned) lies = dims.size() == 2 ? Ints{dims[1], dims[0]} : Ints{dims[3], dims[2], dims[0], dims[1]};
  Instruction* w = b.Parameter(1, Shape::Array(narrow ? P::kBF16 : type, lies));
  if (narrow) w = b.Convert(w, type);
  if (turned) w = b.Transpose(w, dims.size() == 2 ? Ints{1, 0} : Ints{2, 3, 1, 0});
  return w;
}

// Images of `side` x `side`, which may be symbolic; its features are the last of the result.
Instruction* RandomTiledConvolution(Random& r, Builder& b, P type, Dim side) {
  const bool depthwise = r.OneIn(3);
  const int64_t in = r.OneIn(3) ? 3 : r.In(1, 20), taps = r.In(1, 5), stride = r.In(1, 2), pad = r.In(0, taps);
  const int64_t features = depthwise ? in * r.In(1, 9) : r.In(1, 100), groups = depthwise ? features : 1, dilation = r.OneIn(4) ? 2 : 1;
  Window window;
  window.dims.assign(2, {.size = taps, .stride = stride, .padding_low = pad, .padding_high = r.In(0, taps), .window_dilation = dilation});
  const Dim out = infer::WindowedSize(side, window.dims[0]);
  DimLabels l{.input_batch = 0, .input_feature = 3, .kernel_input_feature = 2, .kernel_output_feature = 3, .output_batch = 0,
              .output_feature = 3};
  l.input_spatial = l.output_spatial = {1, 2};
  l.kernel_spatial = {0, 1};
  Attributes attrs;
  attrs.set(Attr::kDimLabels, l);
  attrs.set(Attr::kWindow, window);
  attrs.set(Attr::kFeatureGroupCount, groups);
  const DimVector image = {r.In(1, 2), side, side, depthwise ? features : in};
  Instruction* x = b.Parameter(0, Shape(type, image));
  Instruction* k = SecondOperand(r, b, type, {taps, taps, depthwise ? 1 : in, features});
  return b.Make(Opcode::kConvolution, {x, k}, attrs, Shape(type, DimVector{image[0], out, out, features}));
}

// A bias and a ReLU behind, mostly.
Instruction* WithEpilogue(Random& r, Builder& b, Instruction* sums) {
  if (r.OneIn(3)) return sums;
  const P type = sums->shape().element_type();
  const int64_t last = sums->shape().rank() - 1;
  Instruction* bias = b.Parameter(2, Shape::Array(type, Ints{sums->shape().constant_dim(last)}));
  sums = b.Binary(Opcode::kAdd, sums, b.Broadcast(bias, sums->shape().dims(), {last}));
  return b.Binary(Opcode::kMaximum, sums, b.Broadcast(b.ScalarConstant(type, 0), sums->shape().dims(), {}));
}

P TiledType(Random& r) { return r.OneIn(6) ? P::kF64 : r.OneIn(6) ? P::kS32 : P::kF32; }

Instruction* RandomTiled(Random& r, Computation* c) {
  Builder b(c);
  const P type = TiledType(r);
  if (!r.OneIn(3)) return WithEpilogue(r, b, RandomTiledConvolution(r, b, type, r.In(5, 30)));
  const int64_t rows = r.In(1, 40), terms = r.OneIn(6) ? r.In(500, 1100) : r.In(1, 20), features = r.In(1, 150);
  Instruction* x = b.Parameter(0, Shape::Array(type, Ints{rows, terms}));
  return WithEpilogue(r, b, b.Dot(x, SecondOperand(r, b, type, {terms, features}), {}, {}, Ints{1}, Ints{0}));
}

constexpr int kModules = 150;

TEST(RandomContractions, DotsEqualTheEvaluator) {
  const std::vector<std::string> isas = HostIsas();
  for (int i = 0; i < kModules; ++i) CheckRandom(1000 + i, RandomDot, isas[i % isas.size()]);
}

TEST(RandomContractions, ConvolutionsEqualTheEvaluator) {
  const std::vector<std::string> isas = HostIsas();
  for (int i = 0; i < kModules; ++i) CheckRandom(5000 + i, RandomConvolution, isas[i % isas.size()]);
}

TEST(RandomContractions, RaggedDotsEqualTheEvaluator) {
  const std::vector<std::string> isas = HostIsas();
  for (int i = 0; i < kModules / 2; ++i) CheckRandom(7000 + i, RandomRaggedDot, isas[i % isas.size()]);
}

TEST(RandomContractions, ScaledDotsEqualTheEvaluator) {
  const std::vector<std::string> isas = HostIsas();
  for (int i = 0; i < kModules / 4; ++i) CheckRandom(8000 + i, RandomScaledDot, isas[i % isas.size()]);
}

TEST(RandomContractions, TilesEqualTheEvaluator) {
  const std::vector<std::string> isas = HostIsas();
  for (int i = 0; i < 2 * kModules; ++i) CheckRandom(9000 + i, RandomTiled, isas[i % isas.size()]);
}

// One kernel for all sizes of its images, made with some in mind: the same numbers at those and at others, smaller than a tile too.
TEST(RandomContractions, SymbolicImagesEqualTheEvaluator) {
  const std::vector<std::string> isas = HostIsas();
  int tiled = 0;
  for (int i = 0; i < kModules / 2; ++i) {
    Random r(40000 + i);
    Module module("random");
    Computation* entry = module.AddComputation("main");
    module.set_entry(entry);
    Builder b(entry);
    const int64_t typical = r.OneIn(3) ? 7 * r.In(1, 4) : r.In(5, 40);
    entry->set_root(WithEpilogue(r, b, RandomTiledConvolution(r, b, TiledType(r), module.dims().Symbol("s", 1, 64, 1, typical))));
    const std::string isa = isas[i % isas.size()];
    std::vector<std::pair<int64_t, std::vector<Literal>>> calls;
    std::vector<Literal> wanted;
    for (int64_t side : {typical, typical - 1, typical + 1, typical + r.In(2, 9), r.In(1, 4), r.In(1, 40)}) {
      const auto known = WithSizes(module, {{"s", side}});
      if (!known.ok()) continue;  // smaller than the window
      std::vector<Literal> args;
      for (const Instruction* p : (*known)->entry()->parameters()) args.push_back(SmallIntegers(r, p->shape()));
      const absl::StatusOr<Literal> want = Evaluate(**known, args);
      ASSERT_TRUE(want.ok()) << want.status();
      wanted.push_back(*want);
      calls.emplace_back(side, std::move(args));
    }
    const std::string text = Print(module);
    const absl::StatusOr<KernelRunner> runner = KernelRunner::Make(DenseRequest(WrapEntryAsFusion(module)), {.isa = isa});
    ASSERT_TRUE(runner.ok()) << runner.status() << text;
    const std::string plan = runner->kernel().info().plan_text;
    tiled += ParseKernelPlan(plan, &module.dims())->unroll > 1;
    for (size_t k = 0; k < calls.size(); ++k) {
      const auto got = runner->Run(calls[k].second, {.pieces = r.In(1, 4), .symbols = {{"s", calls[k].first}}});
      ASSERT_TRUE(got.ok()) << got.status();
      const LiteralDifference d = CompareLiterals((*got)[0], wanted[k]);
      EXPECT_TRUE(d.within) << "seed " << i << " " << isa << " s = " << calls[k].first << " " << plan << ": " << d.what << "\n" << text;
    }
  }
  EXPECT_GT(tiled, kModules / 4);
}

// Multiply-adds in the code of a 3x3 convolution, padded by one, of images of `side` x `side`.
int64_t MultiplyAdds(const std::string& symbols, const std::string& side, bool depthwise) {
  const std::string image = absl::StrCat("f32[1,", side, ",", side, ",16]"), kernel = absl::StrCat("f32[3,3,", depthwise ? 1 : 16, ",16]");
  const auto module = ParseModule(absl::StrCat(
      "HloModule borders", symbols, "\nENTRY main {\n  x = ", image, " parameter(0)\n  k = ", kernel, " parameter(1)\n  ROOT c = ", image,
      " convolution(x, k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f, feature_group_count=", depthwise ? 16 : 1, "\n}\n"));
  if (!module.ok()) return ADD_FAILURE() << module.status(), 0;
  const auto runner = KernelRunner::Make(DenseRequest(WrapEntryAsFusion(**module)), {.keep_text = true});
  if (!runner.ok()) return ADD_FAILURE() << runner.status(), 0;
  int64_t found = 0;
  const std::string& text = runner->assembly();
  for (size_t at = 0; (at = text.find("vfmadd", at)) != std::string::npos; ++at) ++found;
  return found;
}

// Whatever code an image has at its borders and in its last tile, one of symbolic sizes has for those that it was planned for.
TEST(SymbolicImages, HaveTheCodeOfTheirTypicalSize) {
  if (!MakeCpuTarget("avx512").ok()) GTEST_SKIP() << "tiles are those of AVX-512";
  for (bool depthwise : {false, true}) {
    for (int side : {7, 17, 28}) {
      const int64_t known = MultiplyAdds("", absl::StrCat(side), depthwise);
      const int64_t symbolic = MultiplyAdds(absl::StrCat(", symbols={s:[1,64]~", side, "}"), "s", depthwise);
      EXPECT_GT(known, 15) << side;
      EXPECT_GE(symbolic, known) << side << (depthwise ? " depthwise" : "");
    }
  }
}

// Any tile, any block and any share of the rows: the same numbers, or refused by name.
TEST(RandomContractions, AnyFittingTileGivesTheSameValues) {
  const std::vector<std::string> isas = HostIsas();
  int ran = 0, refused = 0, packed = 0;
  for (int i = 0; i < 2 * kModules; ++i) {
    Random r(20000 + i);
    Module module("random");
    Computation* entry = module.AddComputation("main");
    module.set_entry(entry);
    entry->set_root(RandomTiled(r, entry));
    std::vector<Literal> args;
    for (const Instruction* p : entry->parameters()) args.push_back(SmallIntegers(r, p->shape()));
    const absl::StatusOr<Literal> want = Evaluate(module, args);
    ASSERT_TRUE(want.ok()) << want.status();
    const std::string text = Print(module), isa = isas[i % isas.size()];
    const KernelRequest request = DenseRequest(WrapEntryAsFusion(module));
    const auto planned = PlanCpuKernel(request, *MakeCpuTarget(isa), true);
    ASSERT_TRUE(planned.ok()) << planned.status() << text;
    KernelPlan plan = *ParseKernelPlan((*planned)->info().plan_text, &module.dims());
    if (plan.kind != PlanKind::kContraction) continue;  // one result
    if (!r.OneIn(4)) plan.lanes = 1 << r.In(0, 4);
    plan.block = plan.lanes * (plan.lanes > 1 ? r.In(1, 6) : 1) + (r.OneIn(9) ? 1 : 0);
    if (plan.tile_loop >= 0 || r.OneIn(9)) plan.unroll = static_cast<int>(r.In(1, 15));
    plan.rows = plan.tile_loop >= 0 && r.OneIn(2) ? plan.unroll * r.In(1, 3) + (r.OneIn(9) ? 1 : 0) : 0;
    if (r.OneIn(9)) plan.split = static_cast<int>(r.In(0, 3));
    if (r.OneIn(4)) plan.packed = !plan.packed;
    if (plan.packed) plan.scratch_bytes = r.OneIn(9) ? 64 : int64_t{1} << 20;
    const absl::StatusOr<KernelRunner> runner = KernelRunner::Make(request, {.isa = isa, .plan = plan});
    if (!runner.ok()) {
      EXPECT_TRUE(absl::IsInvalidArgument(runner.status())) << runner.status();
      ++refused;
      continue;
    }
    const auto got = runner->Run(args, {.pieces = r.In(1, 4)});
    ASSERT_TRUE(got.ok()) << got.status();
    const LiteralDifference d = CompareLiterals((*got)[0], *want);
    EXPECT_TRUE(d.within) << "seed " << i << " " << isa << " " << ToString(plan) << ": " << d.what << "\n" << text;
    ++ran;
    packed += plan.packed;
  }
  EXPECT_GT(ran, kModules);
  EXPECT_GT(refused, 10);
  EXPECT_GT(packed, 20);
}

// Rows by columns of `terms` each, as frameworks keep weights: [columns, terms].
KernelPlan PlanOfProduct(int64_t rows, int64_t columns, int64_t terms) {
  Module module("product");
  Computation* entry = module.AddComputation("main");
  module.set_entry(entry);
  Builder b(entry);
  Instruction* x = b.Parameter(0, Shape::Array(P::kF32, {rows, terms}));
  Instruction* w = b.Parameter(1, Shape::Array(P::kF32, {columns, terms}));
  entry->set_root(b.Dot(x, w, {}, {}, {1}, {1}));
  const auto planned = PlanCpuKernel(DenseRequest(WrapEntryAsFusion(module)), *MakeCpuTarget("avx512", /*compile_only=*/true), true);
  EXPECT_TRUE(planned.ok()) << planned.status();
  return *ParseKernelPlan((*planned)->info().plan_text, &module.dims());
}

// Two vectors of columns, one for few rows, more where the other operand is large itself.
TEST(PackedScratch, IsLittleBesideTheOtherOperand) {
  const std::vector<std::tuple<int64_t, int64_t, int64_t, int64_t>> cases = {
      {128, 768, 3072, 2}, {256, 256, 1024, 2}, {64, 512, 2048, 1}, {16, 1024, 1024, 1},
      {8192, 1024, 1024, 4}, {256, 256, 256, 2}, {16, 512, 128, 1}};
  for (const auto& [rows, columns, terms, vectors] : cases) {
    const KernelPlan plan = PlanOfProduct(rows, columns, terms);
    EXPECT_TRUE(plan.packed) << rows << " " << terms;
    EXPECT_EQ(plan.block, 16 * vectors) << rows << " " << terms;
    EXPECT_EQ(plan.scratch_bytes, terms * plan.block * 4);
  }
}

// A first cache of eight ways keeps eight rows that are multiples of a page apart.
TEST(PackedScratch, TilesHaveNoMoreRowsThanTheirSetsHold) {
  for (const int64_t terms : {1024, 3072}) EXPECT_LE(PlanOfProduct(256, 256, terms).unroll, 8) << terms;
  for (const int64_t terms : {1040, 512, 3088}) EXPECT_GT(PlanOfProduct(256, 32, terms).unroll, 8) << terms;
}

// What is frozen is computed once, and contractions with it are packed: the same numbers.
TEST(RandomContractions, FrozenOnesEqualTheEvaluator) {
  const std::vector<std::string> isas = HostIsas();
  int packed = 0;
  for (int i = 0; i < kModules; ++i) {
    Random r(30000 + i);
    Module module("random");
    Computation* entry = module.AddComputation("main");
    module.set_entry(entry);
    Instruction* root = i % 3 == 0 ? RandomDot(r, entry) : i % 3 == 1 ? RandomConvolution(r, entry) : RandomTiled(r, entry);
    entry->set_root(root);
    std::vector<Literal> args;
    for (const Instruction* p : entry->parameters()) args.push_back(SmallIntegers(r, p->shape()));
    const absl::StatusOr<Literal> want = Evaluate(module, args);
    ASSERT_TRUE(want.ok()) << want.status();
    const std::string text = Print(module), isa = isas[i % isas.size()];
    std::vector<bool> frozen(args.size(), true);
    frozen[0] = r.OneIn(5);
    const auto target = *MakeHostTarget("");
    const ContractionSite site{.target = target.get(), .host_functions = kPlainFunctions};
    FrozenSplit split = SplitFrozen(module, frozen, [&](const Instruction& op) { return PackedFor(op, site); });
    ASSERT_TRUE(Verify(module).ok()) << Verify(module) << text << Print(module);
    packed += split.packed > 0;
    const CompileOptions options{.isa = isa, .excess_precision = false, .verify_passes = true};
    if (split.once != nullptr) {
      ASSERT_TRUE(Verify(*split.once).ok()) << Verify(*split.once) << text << Print(*split.once);
      const auto once = LiteralExecutable::Compile(*split.once, options);
      ASSERT_TRUE(once.ok()) << once.status() << Print(*split.once);
      const auto values = (*once)->Run(args);
      ASSERT_TRUE(values.ok()) << values.status();
      for (const Literal& value : *values) args.push_back(value);
    }
    const auto rest = LiteralExecutable::Compile(module, options);
    ASSERT_TRUE(rest.ok()) << rest.status() << Print(module);
    const auto got = (*rest)->Run(args);
    ASSERT_TRUE(got.ok()) << got.status();
    const LiteralDifference d = CompareLiterals((*got)[0], *want);
    EXPECT_TRUE(d.within) << "seed " << i << " " << isa << ": " << d.what << "\n" << text << Print(module);
  }
  EXPECT_GT(packed, kModules / 8);
}

}  // namespace
}  // namespace tenon
