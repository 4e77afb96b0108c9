// Attention of the CPU as CUDA's: which of the two fused kernels, and what each of them takes and gives (PyTorch's sdp_utils.cpp and
// _meta_registrations.py; tests/plugin/test_retarget.py compares with the latter).
#include <array>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "torch_plugin/aten/retarget/rewriter.h"

namespace tenon::aten {
namespace {

constexpr int64_t kMaxFlashHead = 256, kMaskAlignment = 8;
constexpr char kFlash[] = "aten._scaled_dot_product_flash_attention.default";
constexpr char kEfficient[] = "aten._scaled_dot_product_efficient_attention.default";

// The arguments of either of the CPU's overloads, by name. Tensors: values of the graph.
struct Attention {
  ValueId query = -1, key = -1, value = -1, mask = -1;
  FrameworkArg dropout, causal, scale;
  bool has_mask() const { return mask >= 0; }
};

// Of an argument; -1: it is no tensor.
ValueId TensorOf(const Node& node, size_t i) {
  return node.args[i].is_tensor() ? node.operands[static_cast<size_t>(node.args[i].i)] : -1;
}

// `first`: where query stands among the arguments; `rest`: where dropout does.
absl::StatusOr<Attention> ArgumentsOf(const Node& node, size_t first, size_t rest, const Rewriter& to) {
  if (node.args.size() < rest + 4) return to.Refuse(node, absl::StrCat("wanted ", rest + 4, " arguments, got ", node.args.size()));
  const auto tensor = [&](size_t i) { return TensorOf(node, i); };
  Attention a{.query = tensor(first), .key = tensor(first + 1), .value = tensor(first + 2), .mask = tensor(rest + 2),
              .dropout = node.args[rest], .causal = node.args[rest + 1], .scale = node.args[rest + 3]};
  if (a.query < 0 || a.key < 0 || a.value < 0) return to.Refuse(node, "query, key or value is no tensor");
  return a;
}

enum class Kernel { kFlash, kEfficient };

absl::StatusOr<Kernel> KernelFor(const Node& node, const Attention& a, Rewriter& to) {
  const Meta& query = to.meta(a.query);
  if (query.sizes.size() != 4) return to.Refuse(node, "fused attention takes [batch, heads, length, features]");
  const PrimitiveType type = query.dtype;
  const bool half = type == PrimitiveType::kF16 || type == PrimitiveType::kBF16;
  if (!half && type != PrimitiveType::kF32) {
    return to.Refuse(node, absl::StrCat("no fused attention of ", std::string(PrimitiveTypeName(type))));
  }
  const Dim features = query.sizes[3], of_value = to.size(a.value, 3);
  if (half && !a.has_mask() && KnownEqual(features, of_value) && features.is_constant() && features.constant() % 8 == 0 &&
      features.constant() <= kMaxFlashHead) {
    return Kernel::kFlash;
  }
  const int64_t multiple = half ? 8 : 4;  // 16 bytes
  for (const Dim size : {features, of_value}) {
    if (size.is_constant() && size.constant() % multiple == 0) continue;
    return to.Refuse(node, absl::StrCat("fused attention of ", std::string(PrimitiveTypeName(type)), " takes heads of a multiple of ",
                                        multiple, " features, got ", size.ToString()));
  }
  return Kernel::kEfficient;
}

// Numbers the operands of a node as its arguments name them.
class Arguments {
 public:
  void Tensor(ValueId v) {
    if (v < 0) return Other(FrameworkArg::None());
    size_t i = 0;
    while (i < operands.size() && operands[i] != v) ++i;
    if (i == operands.size()) operands.push_back(v);
    Other(FrameworkArg::Tensor(static_cast<int64_t>(i)));
  }
  void Other(FrameworkArg arg) { args.push_back(std::move(arg)); }

  std::vector<FrameworkArg> args;
  std::vector<ValueId> operands;
};

const std::string& NameOf(const Rewriter& to, ValueId v) { return to.from().values[static_cast<size_t>(v)].name; }

// The mask as the kernel wants it: a row for each head and query, whose rows begin where eight elements do.
absl::StatusOr<ValueId> MaskFor(const Node& node, const Attention& a, Rewriter& to) {
  if (!a.has_mask()) return -1;
  const std::string name = NameOf(to, a.mask);
  ValueId mask = a.mask;
  const Dim batch = to.size(a.query, 0), heads = to.size(a.query, 1), rows = to.size(a.query, 2), columns = to.size(a.key, 2);
  const Dim length = to.meta(mask).sizes.back();
  if (!length.is_constant()) return to.Refuse(node, absl::StrCat("a mask of ", length.ToString(), " columns, which may need padding"));
  if (const int64_t beyond = length.constant() % kMaskAlignment; beyond != 0 && length.constant() > 1) {
    std::vector<Dim> padded = to.meta(mask).sizes;
    padded.back() = length + (kMaskAlignment - beyond);
    const Meta wide = to.Dense(to.meta(mask).dtype, padded);
    Meta narrow = wide;
    narrow.sizes.back() = length;
    const ValueId pad = to.NewValue(name, "padded", wide);
    to.AddOne(node, "aten.constant_pad_nd.default",
              {FrameworkArg::Tensor(0), FrameworkArg::IntList({0, kMaskAlignment - beyond}), FrameworkArg::Float(0)}, {mask}, pad);
    const int64_t last = static_cast<int64_t>(narrow.sizes.size()) - 1;
    const ValueId cut = to.NewValue(name, "cut", narrow);
    mask = to.AddOne(node, "aten.slice.Tensor",
                     {FrameworkArg::Tensor(0), FrameworkArg::Int(last), FrameworkArg::Int(0), SizeArg(length), FrameworkArg::Int(1)},
                     {pad}, cut);
  }
  const std::array<Dim, 4> wanted = {batch, heads, rows, columns};
  Meta expanded{.dtype = to.meta(mask).dtype, .sizes = {wanted.begin(), wanted.end()}, .strides = {}, .device = to.device()};
  const Meta& given = to.meta(mask);
  const size_t missing = 4 - std::min<size_t>(4, given.sizes.size());
  bool same = missing == 0;
  FrameworkArg sizes = FrameworkArg::List({});
  for (size_t d = 0; d < 4; ++d) {
    const bool there = d >= missing && KnownEqual(given.sizes[d - missing], wanted[d]);
    same &= there;
    expanded.strides.push_back(there ? given.strides[d - missing] : Dim(0));
    sizes.list.push_back(SizeArg(wanted[d]));
  }
  if (same) return mask;
  const ValueId wide = to.NewValue(name, "expanded", std::move(expanded));
  return to.AddOne(node, "aten.expand.default", {FrameworkArg::Tensor(0), std::move(sizes), FrameworkArg::Bool(false)}, {mask}, wide);
}

// Of the forward's second result, which is the backward's operand.
Meta LogSumExp(Kernel kernel, const Attention& a, bool wanted, Rewriter& to) {
  const Dim batch = to.size(a.query, 0), heads = to.size(a.query, 1), rows = to.size(a.query, 2);
  if (kernel == Kernel::kFlash) return to.Dense(PrimitiveType::kF32, {batch, heads, rows});
  return to.Dense(PrimitiveType::kF32, {batch, heads, wanted ? CeilDiv(rows, 32) * 32 : Dim(0)});
}

Meta SymInt(Dim size) { return {.kind = Meta::Kind::kSymInt, .sizes = {}, .strides = {}, .symint = size}; }
Meta Undefined() { return {.kind = Meta::Kind::kNone, .sizes = {}, .strides = {}}; }

// As torch.empty_like would: dense, its dims in the order of `like`'s strides. Those of run-time sizes keep the CPU's.
void LieLike(const Meta& like, Meta* meta) {
  std::vector<size_t> order(like.strides.size());
  for (size_t d = 0; d < order.size(); ++d) {
    order[d] = d;
    if (!like.strides[d].is_constant()) return;
  }
  absl::c_stable_sort(order, [&](size_t a, size_t b) { return like.strides[a].constant() > like.strides[b].constant(); });
  Dim stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    meta->strides[order[i]] = stride;
    stride *= meta->sizes[order[i]];
  }
}

Node With(const Node& node, std::string op, Arguments arguments, std::vector<ValueId> results) {
  return {.op = std::move(op), .args = std::move(arguments.args), .operands = std::move(arguments.operands), .results = std::move(results),
          .writes = {}, .module_path = node.module_path, .source = node.source};
}

}  // namespace

absl::Status RetargetAttention(const Node& node, int32_t number, Rewriter& to) {
  absl::StatusOr<Attention> a = ArgumentsOf(node, 0, 3, to);
  if (!a.ok()) return a.status();
  const absl::StatusOr<Kernel> kernel = KernelFor(node, *a, to);
  if (!kernel.ok()) return kernel.status();
  if (node.results.size() != 2) return to.Refuse(node, absl::StrCat("wanted 2 results, got ", node.results.size()));
  const ValueId out = node.results[0], sums = node.results[1];
  const std::string name = NameOf(to, out);
  const bool wanted = to.IsUsed(sums);
  to.meta(sums) = LogSumExp(*kernel, *a, wanted, to);
  const auto extra = [&](std::string_view what, Meta meta) { return to.NewValue(name, what, std::move(meta)); };
  Arguments arguments;
  for (const ValueId v : {a->query, a->key, a->value}) arguments.Tensor(v);
  std::vector<ValueId> results = {out, sums};
  if (*kernel == Kernel::kFlash) {
    for (FrameworkArg arg : {a->dropout, a->causal, FrameworkArg::Bool(false), a->scale}) arguments.Other(std::move(arg));
    results.push_back(extra("cum_seq_q", Undefined()));
    results.push_back(extra("cum_seq_k", Undefined()));
    results.push_back(extra("max_q", SymInt(to.size(a->query, 2))));
    results.push_back(extra("max_k", SymInt(to.size(a->key, 2))));
    results.push_back(extra("rng_state", to.Dense(PrimitiveType::kU64, {2})));
    results.push_back(extra("unused", to.Dense(PrimitiveType::kU64, {})));
    results.push_back(extra("debug_attn_mask", to.Dense(to.meta(a->query).dtype, {0})));
    to.Add(With(node, kFlash, std::move(arguments), results));
  } else {
    const absl::StatusOr<ValueId> mask = MaskFor(node, *a, to);
    if (!mask.ok()) return mask.status();
    arguments.Tensor(*mask);
    for (FrameworkArg arg : {FrameworkArg::Bool(wanted), a->dropout, a->causal, a->scale}) arguments.Other(std::move(arg));
    results.push_back(extra("philox_seed", to.Dense(PrimitiveType::kS64, {})));
    results.push_back(extra("philox_offset", to.Dense(PrimitiveType::kS64, {})));
    to.Add(With(node, kEfficient, std::move(arguments), results));
  }
  to.became[number] = {.op = *kernel == Kernel::kFlash ? kFlash : kEfficient, .results = std::move(results)};
  return absl::OkStatus();
}

absl::Status RetargetAttentionBackward(const Node& node, int32_t number, Rewriter& to) {
  // grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, attn_mask, scale
  absl::StatusOr<Attention> a = ArgumentsOf(node, 1, 6, to);
  if (!a.ok()) return a.status();
  const absl::StatusOr<Kernel> kernel = KernelFor(node, *a, to);
  if (!kernel.ok()) return kernel.status();
  if (node.results.size() != 3) return to.Refuse(node, absl::StrCat("wanted 3 results, got ", node.results.size()));
  const ValueId grad = TensorOf(node, 0), out = TensorOf(node, 4), sums = TensorOf(node, 5);
  if (grad < 0 || out < 0 || sums < 0) return to.Refuse(node, "grad_out, out or logsumexp is no tensor");
  const std::string name = NameOf(to, node.results[0]);
  // The forward's random numbers: its results, if it is in this graph; nobody reads them without dropout.
  ValueId state = -1, second = -1;
  const int32_t maker = to.from().values[static_cast<size_t>(sums)].node;
  if (const auto forward = to.became.find(maker); maker >= 0 && forward != to.became.end()) {
    const bool flash = forward->second.op == kFlash;
    if (flash != (*kernel == Kernel::kFlash)) return to.Refuse(node, absl::StrCat("its forward is ", forward->second.op));
    state = forward->second.results[flash ? 6 : 2];
    second = forward->second.results[flash ? 7 : 3];
  } else {
    if (maker >= 0) return to.Refuse(node, absl::StrCat("its logsumexp is made by ", to.from().nodes[static_cast<size_t>(maker)].op));
    const bool drops = a->dropout.kind != FrameworkArg::Kind::kFloat || a->dropout.f != 0;
    if (drops) return to.Refuse(node, "dropout whose forward is in another graph");
    to.meta(sums) = LogSumExp(*kernel, *a, true, to);
    const bool flash = *kernel == Kernel::kFlash;
    const auto zeros = [&](std::string_view what, std::vector<int64_t> sizes) {
      const PrimitiveType type = flash ? PrimitiveType::kU64 : PrimitiveType::kS64;
      const ValueId v = to.NewValue(name, what, to.Dense(type, {sizes.begin(), sizes.end()}));
      return to.AddOne(node, "aten.zeros.default",
                       {FrameworkArg::IntList(sizes), {.kind = FrameworkArg::Kind::kDtype, .dtype = type}, FrameworkArg::None(),
                        {.kind = FrameworkArg::Kind::kDevice, .s = to.device()}, FrameworkArg::None()},
                       {}, v);
    };
    state = zeros(flash ? "rng_state" : "philox_seed", flash ? std::vector<int64_t>{2} : std::vector<int64_t>{});
    second = zeros(flash ? "unused" : "philox_offset", {});
  }
  Arguments arguments;
  for (const ValueId v : {grad, a->query, a->key, a->value}) arguments.Tensor(v);
  if (*kernel == Kernel::kFlash) {
    for (const ValueId v : {out, sums}) arguments.Tensor(v);
    for (int i = 0; i < 2; ++i) arguments.Other(FrameworkArg::None());
    arguments.Other(SizeArg(to.size(a->query, 2)));
    arguments.Other(SizeArg(to.size(a->key, 2)));
    arguments.Other(a->dropout);
    arguments.Other(a->causal);
    arguments.Tensor(state);
    arguments.Tensor(second);
    arguments.Other(a->scale);
    const std::array<ValueId, 3> of = {a->query, a->key, a->value};
    for (size_t i = 0; i < of.size(); ++i) LieLike(to.meta(of[i]), &to.meta(node.results[i]));
    to.Add(With(node, "aten._scaled_dot_product_flash_attention_backward.default", std::move(arguments), node.results));
    return absl::OkStatus();
  }
  const absl::StatusOr<ValueId> mask = MaskFor(node, *a, to);
  if (!mask.ok()) return mask.status();
  arguments.Tensor(*mask);
  for (const ValueId v : {out, sums, state, second}) arguments.Tensor(v);
  arguments.Other(a->dropout);
  FrameworkArg wanted = FrameworkArg::List({});
  for (const bool want : {true, true, true, false}) wanted.list.push_back(FrameworkArg::Bool(want));
  arguments.Other(std::move(wanted));
  arguments.Other(a->causal);
  arguments.Other(a->scale);
  std::vector<ValueId> results = node.results;
  results.push_back(to.NewValue(name, "grad_bias", Undefined()));
  to.Add(With(node, "aten._scaled_dot_product_efficient_attention_backward.default", std::move(arguments), std::move(results)));
  return absl::OkStatus();
}

}  // namespace tenon::aten
