#include "backends/contract/provider.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "backends/codegen/index/contraction_index.h"
#include "backends/contract/target.h"
#include "hlo/check.h"
#include "hlo/composite.h"
#include "hlo/own_calls.h"
#include "passes/lower/named_provider.h"
#include "passes/memory/strided_view.h"

namespace tenon {
namespace {

// Not ReLU and ReLU6: the library's make 0 of a NaN.
constexpr uint32_t kOfPacked = Bit(Activation::kGelu) | Bit(Activation::kGeluByErf) | Bit(Activation::kSilu) |
                               Bit(Activation::kHardswish) | Bit(Activation::kSigmoid) | Bit(Activation::kTanh);

constexpr Provider kProviders[] = {
    {"host.matmul", MatmulTakes, Provider::Bias::kAlone, LowerMatmul},
    {"host.convolution", ConvolutionTakes, Provider::Bias::kAlways, LowerConvolution},
    {"host.linear_packed", LinearPackedTakes, Provider::Bias::kAlways, LowerLinearPacked, kOfPacked, /*sums=*/true},
    {"host.conv_packed", ConvPackedTakes, Provider::Bias::kAlways, LowerConvPacked, kOfPacked, /*sums=*/true},
    {"host.attention", AttentionTakes, Provider::Bias::kNever, nullptr, /*activations=*/0, /*sums=*/false, CallAttention},
    {"generated", GeneratedTakes, Provider::Bias::kNever, nullptr},
};

// Rows are for contractions or for composites; `generated`, with kernels, is for both.
bool IsFor(const Provider& p, const Instruction& op) {
  return (p.lower == nullptr && p.call == nullptr) || (p.call != nullptr) == IsComposite(op);
}

// The dim of the result along which a bias lies.
int64_t BiasDim(const Instruction& contraction) {
  if (contraction.opcode() == Opcode::kConvolution) return contraction.attrs().get<DimLabels>(Attr::kDimLabels).output_feature;
  return contraction.shape().rank() == 2 ? 1 : -1;
}

// A vector, the same along all other dims: a broadcast, or a reshape where these have one element.
bool IsSpreadAlong(const Instruction& spread, int64_t dim) {
  if (spread.operand_count() != 1 || spread.operand(0)->shape().rank() != 1) return false;
  if (spread.opcode() == Opcode::kBroadcast) return spread.dimensions() == std::vector<int64_t>{dim};
  return spread.opcode() == Opcode::kReshape && dim >= 0 && KnownEqual(spread.shape().num_elements(), spread.shape().dim(dim));
}

// add(contraction, broadcast(bias)) in either order: the bias. `contraction` stands for it where the add is.
const Instruction* BiasOfAdd(const Instruction& add, const Instruction& contraction, int64_t dim) {
  if (add.opcode() != Opcode::kAdd || !Shape::SameWithLayout(add.shape(), contraction.shape())) return nullptr;
  for (int64_t side = 0; side < 2; ++side) {
    const Instruction* spread = add.operand(1 - side);
    if (add.operand(side) == &contraction && IsSpreadAlong(*spread, dim)) return spread->operand(0);
  }
  return nullptr;
}

const Instruction* BiasAddedTo(const Instruction& contraction, const Instruction& epilogue) {
  if (epilogue.opcode() != Opcode::kFusion) return BiasOfAdd(epilogue, contraction, BiasDim(contraction));
  if (epilogue.operand_count() != 2) return nullptr;
  const Computation& fused = *epilogue.fused_computation();
  for (int64_t side = 0; side < 2; ++side) {
    if (epilogue.operand(side) != &contraction) continue;
    const Instruction* bias = BiasOfAdd(*fused.root(), *fused.parameter(side), BiasDim(contraction));
    return bias == fused.parameter(1 - side) ? epilogue.operand(1 - side) : nullptr;
  }
  return nullptr;
}

// A product of two vectors: one reduction, which threads share; libraries take it for a matrix of one element.
bool IsOneSum(const Instruction& dot, int64_t short_sum) {
  const PrimitiveType type = dot.shape().element_type();
  Dim terms = 1;
  for (int64_t d : dot.int_list(Attr::kLhsContractingDims)) terms *= dot.operand(0)->shape().dim(d);
  return (type == PrimitiveType::kF32 || type == PrimitiveType::kF64) && OfOneType(dot) && KnownOne(dot.shape().num_elements()) &&
         Typical(terms) >= short_sum;
}

// The product of operand `side`'s dims that are neither summed nor batches.
Dim FreeElements(const Instruction& dot, int64_t side, Attr contracting, Attr batches) {
  const Shape& shape = dot.operand(side)->shape();
  Dim elements = 1;
  for (int64_t d = 0; d < shape.rank(); ++d) {
    if (!absl::c_linear_search(dot.int_list(contracting), d) && !absl::c_linear_search(dot.int_list(batches), d)) elements *= shape.dim(d);
  }
  return elements;
}

// A vector, or few, and a matrix that kernels read as it lies: each sum along a row of it (ExpandContractions makes that a reduction),
// or of a matrix that caches hold vectors of columns. Where the library has no code of its own for the machine, it leaves that to one
// thread.
bool IsVectorByMatrix(const Instruction& dot, Dim rows, Dim columns, int64_t few, int64_t short_sum) {
  constexpr int64_t kCached = 16 << 20;
  const PrimitiveType type = dot.shape().element_type();
  const bool wide = type == PrimitiveType::kF32 || type == PrimitiveType::kF64;
  const bool half = type == PrimitiveType::kF16 || type == PrimitiveType::kBF16;
  if (!(half || wide) || !OfOneType(dot)) return false;
  // Of halves libraries are good at two rows already.
  const int64_t matrix = rows.constant_or(few + 1) <= (half ? 1 : few) ? 1 : KnownOne(columns) ? 0 : -1;
  if (matrix < 0 || Typical(matrix == 1 ? columns : rows) < short_sum) return false;
  const Instruction& m = *dot.operand(matrix);
  const std::vector<int64_t> summed = dot.int_list(matrix == 1 ? Attr::kRhsContractingDims : Attr::kLhsContractingDims);
  const int64_t rank = dot.operand(1 - matrix)->shape().rank();
  if (m.shape().rank() != 2 || summed.size() != 1 || rank > 2) return false;
  const StridedView view = ViewByLayout(&m);
  if (KnownOne(view.strides[static_cast<size_t>(summed[0])])) {
    return KnownOne(rows) || KnownOne(columns) || dot.int_list(Attr::kLhsContractingDims)[0] == rank - 1;
  }
  return wide && matrix == 1 && KnownOne(view.strides[static_cast<size_t>(1 - summed[0])]) &&
         Typical(m.shape().byte_size()) <= kCached;
}

// On machines for which the library has no good code. The second operand may have to be brought into another order at each call, which
// some rows must make good: few where kernels pack it. Of one row libraries are good at many such products at least.
bool BeatsMatmul(const Instruction& dot, const ContractionSite& site) {
  constexpr double kWorthwhile = 0.8;
  constexpr int64_t kShort = 16, kRows = 64, kPackedRows = 4, kPackedTerms = 1 << 14;
  if (dot.opcode() != Opcode::kDot || dot.operand_count() != 2) return false;
  if (IsOneSum(dot, kShort)) return true;
  if (site.target->facts().machine.matmul_share > kWorthwhile || !GeneratedTakes(dot, site).ok()) return false;
  const int64_t terms = Typical(TermsOf(dot));
  if (terms < kShort || Typical(dot.shape().num_elements()) == 0) return false;
  const Dim rows = FreeElements(dot, 0, Attr::kLhsContractingDims, Attr::kLhsBatchDims);
  const Dim columns = FreeElements(dot, 1, Attr::kRhsContractingDims, Attr::kRhsBatchDims);
  if (IsVectorByMatrix(dot, rows, columns, site.target->facts().info.rows_as_sums, kShort)) return true;
  int64_t batch = 1;
  for (int64_t d : dot.int_list(Attr::kLhsBatchDims)) batch *= Typical(dot.operand(0)->shape().dim(d));
  if (dot.shape().element_type() != PrimitiveType::kF32 || Typical(columns) < kShort) return false;
  if (Typical(rows) == 1) return batch > 1;
  return Typical(rows) >= (terms <= kPackedTerms ? kPackedRows : kRows);
}

}  // namespace

absl::Span<const Provider> HostProviders() { return kProviders; }

absl::Status CheckProviderName(std::string_view name, absl::Span<const std::shared_ptr<const Target>> targets) {
  std::vector<std::string> known;
  for (const std::shared_ptr<const Target>& target : targets) {
    for (const Provider& p : target->facts().providers) {
      if (p.name == name) return absl::OkStatus();
      if (!absl::c_linear_search(known, p.name)) known.emplace_back(p.name);
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown provider \"", std::string(name), "\"; known: ", absl::StrJoin(known, ", ")));
}

Choice ChooseProvider(const Instruction& contraction, const ContractionSite& site) {
  Choice choice;
  const std::string named = NamedProvider(contraction);
  for (const Provider& p : site.target->facts().providers) {
    if (!IsFor(p, contraction)) continue;
    const bool wanted = p.name == (named.empty() ? site.wanted : named);
    if (!wanted && choice.provider != nullptr) continue;
    if (!wanted && p.lower == LowerMatmul && BeatsMatmul(contraction, site)) {
      choice.refusals.push_back(absl::StrCat(std::string(p.name), ": slower than generated code on this machine"));
      continue;
    }
    if (const absl::Status taken = p.takes(contraction, site); taken.ok()) choice.provider = &p;
    else choice.refusals.push_back(absl::StrCat(std::string(p.name), ": ", std::string(taken.message())));
  }
  return choice;
}

absl::StatusOr<ProvidedCall> ProvideComposite(const Instruction& composite, const ContractionSite& site) {
  const Choice choice = ChooseProvider(composite, site);
  if (choice.provider != nullptr && choice.provider->call != nullptr) return choice.provider->call(composite);
  if (choice.refusals.empty()) return absl::UnimplementedError("generated is asked for");
  return absl::UnimplementedError(absl::StrCat("not ", absl::StrJoin(choice.refusals, "; ")));
}

const Instruction* ContractionOf(const Instruction& op) {
  if (IsContraction(op)) return &op;
  if (op.opcode() != Opcode::kFusion) return nullptr;
  const std::vector<Instruction*>& inside = op.fused_computation()->instructions();
  const auto found = absl::c_find_if(inside, [](const Instruction* i) { return IsContraction(*i); });
  return found == inside.end() ? nullptr : *found;
}

// The library that computes the contraction that `value` is, or is a fusion of; null: none does.
static const Provider* LibraryOf(const Instruction& value, const ContractionSite& site) {
  const Instruction* contraction = ContractionOf(value);
  if (contraction == nullptr) return nullptr;
  const Provider* provider = ChooseProvider(*contraction, site).provider;
  return provider != nullptr && provider->lower != nullptr ? provider : nullptr;
}

bool TakenByLibrary(const Instruction& contraction, const ContractionSite& site) {
  if (!IsContraction(contraction)) return false;
  const Provider* provider = ChooseProvider(contraction, site).provider;
  return provider != nullptr && provider->lower != nullptr;
}

const Instruction* BiasToFold(const Instruction& contraction, const Instruction& epilogue, const ContractionSite& site) {
  const Provider* provider = ChooseProvider(contraction, site).provider;
  if (provider == nullptr || provider->bias == Provider::Bias::kNever || IsKernelGradient(contraction)) return nullptr;
  if (epilogue.opcode() != Opcode::kFusion && provider->bias != Provider::Bias::kAlways) return nullptr;
  // The library rounds once; without excess precision the product is rounded before the bias is added.
  if (!site.excess_precision && BitWidth(contraction.shape().element_type()) < 32) return nullptr;
  const Instruction* bias = BiasAddedTo(contraction, epilogue);
  return bias != nullptr && bias->shape().element_type() == contraction.shape().element_type() ? bias : nullptr;
}

const Instruction* BehindToFold(const Instruction& op, const ContractionSite& site, std::vector<const Instruction*>* inside) {
  const PrimitiveType type = op.shape().element_type();
  if (type != PrimitiveType::kF32 && type != PrimitiveType::kBF16 && type != PrimitiveType::kF16) return nullptr;
  // The library rounds once; without excess precision the product is rounded before.
  if (!site.excess_precision && BitWidth(type) < 32) return nullptr;
  // A view of a product of matrices: [8, 16, 64] of [128, 64].
  const auto under = [](const Instruction& value) -> const Instruction& {
    if (value.opcode() != Opcode::kReshape || value.shape().rank() == 0) return value;
    const Instruction& product = *value.operand(0);
    return product.user_count() == 1 && IsRowMajor(value.shape()) && IsRowMajor(product.shape()) ? product : value;
  };
  if (Activated activated = ActivatedBy(op); activated.value != nullptr && Shape::SameWithLayout(activated.value->shape(), op.shape())) {
    const Instruction& value = under(*activated.value);
    const Provider* provider = LibraryOf(value, site);
    const absl::StatusOr<ContractionOperands> operands = provider == nullptr ? absl::NotFoundError("") : OperandsOf(value);
    const bool plain = &value == activated.value || absl::c_all_of(activated.inside, [&](const Instruction* i) {
      return i->shape().rank() == 0 || Shape::SameDims(i->shape(), op.shape());
    });
    const bool bare = operands.ok() && operands->activation == Activation::kNone && operands->other == nullptr;
    if (bare && plain && (provider->activations & Bit(activated.activation)) != 0) {
      *inside = std::move(activated.inside);
      return activated.value;
    }
  }
  for (Summed& sum : SummedBy(op)) {
    const Instruction& value = under(*sum.value);
    const Provider* provider = LibraryOf(value, site);
    if (provider == nullptr || !provider->sums || sum.value->user_count() != 1) continue;
    // What an add would compute by the way is no value in memory.
    if (IsPointwise(*sum.other) && sum.other->user_count() == 1) continue;
    const absl::StatusOr<ContractionOperands> operands = OperandsOf(value);
    if (!operands.ok() || operands->activation != Activation::kNone || operands->other != nullptr) continue;
    *inside = std::move(sum.inside);
    return sum.value;
  }
  return nullptr;
}

absl::StatusOr<ContractionOperands> OperandsOf(const Instruction& op) {
  ContractionOperands c{.contraction = ContractionOf(op)};
  TENON_CHECK(c.contraction != nullptr, op.name());
  c.lhs = c.contraction->operand(0);
  c.rhs = c.contraction->operand(1);
  if (&op == c.contraction) return c;
  const Instruction* root = op.fused_computation()->root();
  if (const Activated activated = ActivatedBy(*root); activated.value != nullptr) {
    c.activation = activated.activation;
    root = activated.value;
  }
  const auto add_bias = [&](const Instruction* value) {
    c.bias = value == c.contraction ? nullptr : BiasOfAdd(*value, *c.contraction, BiasDim(*c.contraction));
    return value == c.contraction || c.bias != nullptr;
  };
  bool known = add_bias(root);
  const std::vector<Summed> sums = known ? std::vector<Summed>() : SummedBy(*root);
  for (size_t k = 0; k < sums.size() && !known; ++k) {
    known = add_bias(sums[k].value);
    c.other = sums[k].other;
  }
  for (const Instruction** value : {&c.lhs, &c.rhs, &c.bias, &c.other}) {
    if (known && *value == nullptr) continue;
    if (*value == nullptr || (*value)->opcode() != Opcode::kParameter) {
      return absl::UnimplementedError(absl::StrCat(op.name(), ": a library's contraction is fused with more than its bias"));
    }
    *value = op.operand((*value)->parameter_number());
  }
  return c;
}

absl::Status HostHas(HostFunction function, const Instruction& contraction, const ContractionSite& site) {
  if (!OfOneType(contraction)) return absl::UnimplementedError("operands and result of several types");
  const PrimitiveType type = contraction.shape().element_type();
  if (!HostTakes(function, type)) return absl::UnimplementedError(absl::StrCat("not for ", std::string(PrimitiveTypeName(type))));
  if (!(site.host_functions & Bit(function))) return absl::UnimplementedError("the host has no such function");
  return absl::OkStatus();
}

// Sums of halves too: expand-contractions has them kept in f32.
absl::Status GeneratedTakes(const Instruction& contraction, const ContractionSite& site) {
  if (IsComposite(contraction)) return absl::OkStatus();  // its body
  const PrimitiveType type = contraction.shape().element_type();
  const bool half = OfOneType(contraction) && (type == PrimitiveType::kF16 || type == PrimitiveType::kBF16);
  return half || site.target->CanGenerate(contraction) ? absl::OkStatus() : absl::UnimplementedError("no kernel for its types");
}

bool Packs(const Instruction& op, const ContractionSite& site) {
  constexpr int64_t kFewColumns = 8;  // fewer are not worth vectors of their own
  if (!site.wanted.empty() && site.wanted != "generated") return false;
  if (op.shape().element_type() != PrimitiveType::kF32 || !GeneratedTakes(op, site).ok()) return false;
  if (site.target->facts().space != 0 && TakenByLibrary(op, site)) return false;  // no kernel of a device beats its libraries
  if (op.opcode() == Opcode::kDot) return op.shape().rank() == 2 && op.shape().dim(1).constant_or(0) >= kFewColumns;
  const DimLabels& l = op.attrs().get<DimLabels>(Attr::kDimLabels);
  const Window window = op.attrs().get_or<Window>(Attr::kWindow, {});
  if (op.shape().rank() < 4 || IsKernelGradient(op)) return false;
  if (absl::c_any_of(window.dims, [](const WindowDim& w) { return w.base_dilation != 1 || w.reversed; })) return false;
  // Vectors of features must read one group, or each feature its own.
  const int64_t groups = op.attrs().get_or<int64_t>(Attr::kFeatureGroupCount, 1);
  const int64_t in = op.operand(0)->shape().dim(l.input_feature).constant_or(0), out = op.shape().dim(l.output_feature).constant_or(0);
  return (groups == 1 || (groups == in && groups == out)) && out >= kFewColumns;
}

}  // namespace tenon
