#include "torch_plugin/aten/lower/op_context.h"

#include <algorithm>
#include <complex>

#include "absl/strings/str_cat.h"

namespace tenon::aten {
namespace {

using Kind = FrameworkArg::Kind;
using enum PrimitiveType;


// 0: undefined. Category order of c10: bool < integral < floating < complex.
struct Category {
  std::optional<PrimitiveType> dim, zero, wrapped;
};

std::optional<PrimitiveType> Promote(std::optional<PrimitiveType> a, std::optional<PrimitiveType> b) {
  if (!a) return b;
  if (!b) return a;
  return PromoteTypes(*a, *b);
}

// aten/src/ATen/native/TypeProperties.cpp, combine_categories.
std::optional<PrimitiveType> Combine(std::optional<PrimitiveType> higher, std::optional<PrimitiveType> lower) {
  if (higher && IsComplex(*higher)) return higher;
  if (higher && IsFloat(*higher)) {
    if (lower && IsComplex(*lower)) return *higher == kF64 ? kC128 : kC64;
    return higher;
  }
  if ((higher && *higher == kPred) || (lower && (IsFloat(*lower) || IsComplex(*lower)))) return Promote(higher, lower);
  return higher ? higher : lower;
}

}  // namespace

PrimitiveType OpMath(PrimitiveType type) { return IsHalf(type) ? kF32 : type; }

PrimitiveType PromoteTypes(PrimitiveType a, PrimitiveType b) {
  if (a == b) return a;
  if (IsComplex(a) || IsComplex(b)) {
    auto wide = [](PrimitiveType t) { return t == kC128 || t == kF64; };
    return wide(a) || wide(b) ? kC128 : kC64;
  }
  if (IsFloat(a) && IsFloat(b)) {
    if (IsHalf(a) && IsHalf(b)) return kF32;
    return BitWidth(a) > BitWidth(b) ? a : b;
  }
  if (IsFloat(a)) return a;
  if (IsFloat(b)) return b;
  if (a == kPred) return b;
  if (b == kPred) return a;
  if (IsSigned(a) == IsSigned(b)) return BitWidth(a) > BitWidth(b) ? a : b;
  const PrimitiveType s = IsSigned(a) ? a : b, u = IsSigned(a) ? b : a;
  if (BitWidth(s) > BitWidth(u)) return s;
  return BitWidth(u) == 8 ? kS16 : BitWidth(u) == 16 ? kS32 : kS64;
}

namespace {

// The dims of `meta` from the innermost in memory outwards, size-1 dims left out; nullopt: not a dense permutation.
std::optional<std::vector<int64_t>> DenseOrder(const Meta& meta) {
  std::vector<int64_t> order;
  for (int64_t i = static_cast<int64_t>(meta.sizes.size()) - 1; i >= 0; --i) {
    if (!KnownOne(meta.sizes[i])) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return Less(meta.strides[a], meta.strides[b]) == Ternary::kYes;
  });
  Dim expected = 1;
  for (int64_t i : order) {
    if (!KnownEqual(meta.strides[i], expected)) return std::nullopt;
    expected *= meta.sizes[i];
  }
  return order;
}

}  // namespace

bool IsDense(const Meta& meta) {
  for (Dim d : meta.sizes) {
    if (KnownEqual(d, 0)) return true;
  }
  return DenseOrder(meta).has_value();
}

Permutation LayoutOf(const Meta& meta) {
  for (Dim d : meta.sizes) {
    if (KnownEqual(d, 0)) return {};
  }
  std::optional<std::vector<int64_t>> order = DenseOrder(meta);
  if (!order) return {};
  if (std::is_sorted(order->rbegin(), order->rend())) return {};
  // Size-1 dims go where their stride says; it may be anything, and then so is their place.
  Permutation minor_to_major;
  for (int64_t i = static_cast<int64_t>(meta.sizes.size()) - 1; i >= 0; --i) minor_to_major.push_back(i);
  std::stable_sort(minor_to_major.begin(), minor_to_major.end(), [&](int64_t a, int64_t b) {
    return Less(meta.strides[a], meta.strides[b]) == Ternary::kYes;
  });
  return minor_to_major;
}

Node OpContext::ElementNode(int64_t k) const {
  Node element{.op = std::string(row_.element), .operands = node_.operands, .results = {node_.results[k]},
               .module_path = node_.module_path, .source = node_.source};
  for (const FrameworkArg& a : node_.args) {
    const bool list = a.kind == Kind::kList;
    TENON_CHECK(!list || k < static_cast<int64_t>(a.list.size()), node_.op + ": lists of different lengths");
    element.args.push_back(list ? a.list[k] : a);
  }
  return element;
}

const FrameworkArg& OpContext::arg(int64_t i) const {
  TENON_CHECK(i < arg_count(), node_.op + ": the graph gives too few arguments");
  return node_.args[i];
}

bool OpContext::is_none(int64_t i) const {
  if (i >= arg_count() || node_.args[i].is_none()) return true;
  return node_.args[i].is_tensor() && shared_.graph.meta(value_id(i)).kind == Meta::Kind::kNone;
}

bool OpContext::is_tensor(int64_t i) const {
  return i < arg_count() && node_.args[i].is_tensor() && shared_.graph.meta(value_id(i)).kind == Meta::Kind::kTensor;
}

Instruction* OpContext::element(const FrameworkArg& a) const {
  if (a.is_none()) return nullptr;
  TENON_CHECK(a.is_tensor(), node_.op + ": wanted a tensor, got " + ToString(a));
  Instruction* value = shared_.values[node_.operands[a.i]];
  TENON_CHECK(value != nullptr, node_.op + ": operand has no value");
  return value;
}

Instruction* OpContext::tensor(int64_t i) const { return element(arg(i)); }

const Meta& OpContext::meta(int64_t i) const {
  TENON_CHECK(is_tensor(i), node_.op + ": wanted a tensor");
  return shared_.graph.meta(value_id(i));
}

std::vector<Instruction*> OpContext::tensors(int64_t i) const {
  const FrameworkArg& list = arg(i);
  TENON_CHECK(list.kind == Kind::kList, node_.op + ": wanted a list of tensors");
  std::vector<Instruction*> out;
  for (const FrameworkArg& a : list.list) out.push_back(element(a));
  return out;
}

namespace {
Dim ToDim(const FrameworkArg& a, const Graph& graph, const Node& node) {
  if (a.kind == Kind::kInt || a.kind == Kind::kBool) {
    // Python's sys.maxsize stands for "to the end"; Dims hold 62 bits.
    return Dim(std::clamp<int64_t>(a.i, -(int64_t{1} << 61), int64_t{1} << 61));
  }
  if (a.kind == Kind::kSymInt) {
    absl::StatusOr<Dim> parsed = graph.dims->Parse(a.s);
    TENON_CHECK(parsed.ok(), node.op + ": " + std::string(parsed.status().message()));
    return *parsed;
  }
  TENON_CHECK(a.is_tensor(), node.op + ": wanted an integer, got " + ToString(a));
  const Meta& meta = graph.meta(node.operands[a.i]);
  TENON_CHECK(meta.kind == Meta::Kind::kSymInt, node.op + ": wanted an integer, got a tensor");
  return meta.symint;
}
}  // namespace

bool OpContext::IsSymbolic(const FrameworkArg& a) const {
  return (a.kind == Kind::kSymInt || a.is_tensor()) && !ToDim(a, shared_.graph, node_).is_constant();
}
Dim OpContext::dim(int64_t i) const { return ToDim(arg(i), shared_.graph, node_); }
int64_t OpContext::integer(int64_t i) const {
  if (arg(i).kind == Kind::kInt) return arg(i).i;
  return dim(i).constant();
}

double OpContext::number(int64_t i) const {
  const FrameworkArg& a = arg(i);
  if (a.kind == Kind::kFloat) return a.f;
  return static_cast<double>(integer(i));
}

bool OpContext::equals(int64_t i, double n) const {
  if (is_none(i)) return false;
  if (arg(i).kind == Kind::kComplex) return arg(i).f == n && arg(i).im == 0;
  return number(i) == n;
}

std::string OpContext::string(int64_t i) const {
  TENON_CHECK(arg(i).kind == Kind::kString, node_.op + ": wanted a string");
  return arg(i).s;
}

std::vector<Dim> OpContext::dims(int64_t i) const {
  const FrameworkArg& list = arg(i);
  if (list.kind != Kind::kList) return {dim(i)};
  std::vector<Dim> out;
  for (const FrameworkArg& a : list.list) out.push_back(ToDim(a, shared_.graph, node_));
  return out;
}

std::vector<int64_t> OpContext::integers(int64_t i) const {
  std::vector<int64_t> out;
  for (Dim d : dims(i)) out.push_back(d.constant());
  return out;
}

int64_t OpContext::axis(int64_t i, int64_t rank) const {
  const int64_t given = integer(i);
  const int64_t wrapped = given < 0 ? given + std::max<int64_t>(rank, 1) : given;
  TENON_CHECK(wrapped >= 0 && wrapped < std::max<int64_t>(rank, 1), node_.op + ": dim out of range");
  return wrapped;
}

std::vector<int64_t> OpContext::axes(int64_t i, int64_t rank) const {
  std::vector<int64_t> out;
  if (!is_none(i)) out = integers(i);
  if (out.empty()) {
    for (int64_t d = 0; d < rank; ++d) out.push_back(d);
    return out;
  }
  for (int64_t& d : out) {
    if (d < 0) d += std::max<int64_t>(rank, 1);
    TENON_CHECK(d >= 0 && d < std::max<int64_t>(rank, 1), node_.op + ": dim out of range");
  }
  std::sort(out.begin(), out.end());
  if (rank == 0) out.clear();
  return out;
}

PrimitiveType OpContext::Common(std::initializer_list<int64_t> positions) const {
  Category c;
  const PrimitiveType real = shared_.options.default_dtype, complex = real == kF64 ? kC128 : kC64;
  for (int64_t i : positions) {
    if (is_none(i)) continue;
    if (is_tensor(i)) {
      const Meta& m = meta(i);
      std::optional<PrimitiveType>& into = m.sizes.empty() ? c.zero : c.dim;
      into = Promote(into, m.dtype);
    } else {
      const FrameworkArg& a = arg(i);
      PrimitiveType type = a.kind == Kind::kFloat ? real : a.kind == Kind::kBool ? kPred : a.kind == Kind::kComplex ? complex : kS64;
      c.wrapped = Promote(c.wrapped, type);
    }
  }
  std::optional<PrimitiveType> common = Combine(c.dim, Combine(c.zero, c.wrapped));
  TENON_CHECK(common.has_value(), node_.op + ": no operand to promote");
  const bool to_float = row_.promotion == Promotion::kIntToFloat && !IsFloat(*common) && !IsComplex(*common);
  return to_float ? real : *common;
}

namespace {
Instruction* ComplexConstant(Builder& b, PrimitiveType type, std::complex<double> value) {
  Literal literal(Shape::Scalar(type));
  if (type == kC64) {
    literal.mutable_data<std::complex<float>>()[0] = std::complex<float>(value);
  } else {
    literal.mutable_data<std::complex<double>>()[0] = value;
  }
  return b.Constant(std::move(literal));
}
}  // namespace

Instruction* OpContext::NumberConstant(const FrameworkArg& a, PrimitiveType type) const {
  if (a.kind == Kind::kComplex && IsComplex(type)) return ComplexConstant(b, type, {a.f, a.im});
  const bool real = a.is_tensor() && shared_.graph.meta(node_.operands[a.i]).kind == Meta::Kind::kTensor;  // a SymFloat
  if (real) return b.Convert(element(a), type);
  if (a.kind == Kind::kFloat) {
    if (IsIntegral(type)) return b.ScalarConstantInt(type, static_cast<int64_t>(a.f));
    if (type == kPred) return b.ScalarConstantInt(type, a.f != 0);
    return b.ScalarConstant(type, a.f);
  }
  TENON_CHECK(a.kind == Kind::kInt || a.kind == Kind::kBool || a.kind == Kind::kSymInt || a.is_tensor(),
              node_.op + ": wanted a number, got " + ToString(a));
  const Dim given = a.kind == Kind::kInt ? Dim(0) : ToDim(a, shared_.graph, node_);
  if (!given.is_constant()) return SizeValue(given, type);
  const int64_t value = a.kind == Kind::kInt ? a.i : given.constant();
  if (type == kPred) return b.ScalarConstantInt(type, value != 0);
  if (IsComplex(type)) return ComplexConstant(b, type, static_cast<double>(value));
  return b.ScalarConstantInt(type, value);
}

Instruction* OpContext::SizeValue(Dim size, PrimitiveType type) const {
  return b.SizeValue(size, type);
}

Instruction* OpContext::Operand(int64_t i, PrimitiveType type, absl::Span<const Dim> dims,
                                std::optional<PrimitiveType> round_to) const {
  Instruction* x;
  if (is_tensor(i)) {
    x = tensor(i);
    if (round_to && *round_to != type && x->shape().element_type() != *round_to) x = b.Convert(x, *round_to);
    x = b.Convert(x, type);
  } else if (round_to && *round_to != type && IsSymbolic(arg(i))) {
    x = b.Convert(b.Convert(NumberConstant(arg(i), *round_to), *round_to), type);
  } else if (round_to && *round_to != type) {
    // Rounded here, so that the constant stays one literal.
    FrameworkArg rounded = FrameworkArg::Float(Literal::Scalar(*round_to, number(i)).GetAsDouble(0));
    x = NumberConstant(rounded, type);
  } else {
    x = NumberConstant(arg(i), type);
  }
  return b.BroadcastTo(x, dims);
}

Instruction* OpContext::Along(Instruction* x, Instruction* like, std::initializer_list<int64_t> at) const {
  return b.Broadcast(x, like->shape().dims(), std::vector<int64_t>(at));
}

Instruction* OpContext::Cast(Instruction* x, PrimitiveType to) const {
  const PrimitiveType from = x->shape().element_type();
  const bool narrow = IsIntegral(to) && BitWidth(to) < 32;
  if (narrow && IsComplex(from)) x = b.Unary(Opcode::kReal, x);
  if (narrow && (IsComplex(from) || IsFloat(from))) x = b.Convert(x, IsUnsigned(to) ? PrimitiveType::kS64 : PrimitiveType::kS32);
  return b.Convert(x, to);
}

Values OpContext::One(Instruction* x) const { return {b.Convert(x, result_type())}; }

void OpContext::Check(Instruction* pred, std::string exception, std::string message) {
  absl::StrAppend(&message, " (", node_.op);
  if (!node_.source.empty()) absl::StrAppend(&message, " at ", node_.source);
  message += ")";
  const size_t k = shared_.binding.checks.size();
  shared_.binding.checks.push_back({std::move(exception), std::move(message)});
  b.CustomCall("tenon.check", Shape::Scalar(kPred), {pred}, absl::StrCat("{\"check\":", k, "}"), /*side_effect=*/true);
}

Instruction* OpContext::FlatInput(ValueId input, Dim extent) {
  const Graph& graph = shared_.graph;
  const auto it = std::find(graph.inputs.begin(), graph.inputs.end(), input);
  TENON_CHECK(it != graph.inputs.end(), node_.op + ": not an input");
  const Meta& m = graph.meta(input);
  const int64_t number = static_cast<int64_t>(shared_.binding.parameters.size());
  shared_.binding.parameters.push_back({.index = it - graph.inputs.begin(),
                                        .dtype = m.dtype,
                                        .sizes = m.sizes,
                                        .strides = m.strides,
                                        .flat_storage = true});
  return b.Parameter(number, Shape(m.dtype, {extent}), graph.values[input].name + ".flat");
}

}  // namespace tenon::aten
