// host.attention, host.attention_backward: the composites of attention by the library of the host (docs/architecture/contractions.md).
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "backends/contract/provider.h"
#include "hlo/composite.h"

namespace tenon {
namespace {

constexpr std::string_view kForward = "tenon.attention", kBackward = "tenon.attention_backward";

// Where the composite's operands stand: the same in the library's functions.
//   attention            query, key, value [, mask]                         -> out, logsumexp
//   attention_backward   gradient, query, key, value, out, logsumexp [, mask]  -> gradients of query, key, value
struct Call {
  const Instruction& op;
  bool backward = false, causal = false;
  std::optional<double> scale;

  int64_t first() const { return backward ? 1 : 0; }  // the query
  int64_t fixed() const { return backward ? 6 : 3; }  // operands that there always are
  bool masked() const { return op.operand_count() > fixed(); }
  const Shape& query() const { return op.operand(first())->shape(); }
  const Shape& key() const { return op.operand(first() + 1)->shape(); }
  const Shape& value() const { return op.operand(first() + 2)->shape(); }
};

absl::Status ReadAttributes(const Composite& composite, Call* call) {
  for (const auto& [key, text] : composite.attributes) {
    double scale = 0;
    if (key == "is_causal" && (text == "true" || text == "false")) {
      call->causal = text == "true";
    } else if (key == "scale" && absl::SimpleAtod(text, &scale)) {
      call->scale = scale;
    } else {
      return absl::UnimplementedError(absl::StrCat("no attribute ", key, " = ", text));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Call> CallOf(const Instruction& op) {
  TENON_ASSIGN_OR_RETURN(const Composite composite, CompositeOf(op));
  Call call{op};
  call.backward = composite.name == kBackward;
  if (!call.backward && composite.name != kForward) return absl::UnimplementedError("not attention");
  if (composite.version != "1") return absl::UnimplementedError(absl::StrCat("version ", composite.version, " of attention"));
  TENON_RETURN_IF_ERROR(ReadAttributes(composite, &call));
  const int64_t more = op.operand_count() - call.fixed();
  if (more < 0 || more > 1) return absl::UnimplementedError(absl::StrCat(op.operand_count(), " operands"));
  return call;
}

// [batch, heads, length, features], which all have elements: the library divides by what there is.
absl::Status CheckSizes(const Call& call) {
  const Shape &q = call.query(), &k = call.key();
  for (const Shape* shape : {&q, &k, &call.value()}) {
    if (!shape->is_array() || shape->rank() != 4) return absl::UnimplementedError("wanted [batch, heads, length, features]");
    if (shape->element_type() != q.element_type()) return absl::UnimplementedError("operands of several types");
    for (const Dim& d : shape->dims()) {
      if (KnownEqual(d, 0)) return absl::UnimplementedError("nothing to attend to");
    }
  }
  const bool fits = Shape::SameDims(k, call.value()) && KnownEqual(q.dim(0), k.dim(0)) && KnownEqual(q.dim(3), k.dim(3));
  if (!fits) return absl::UnimplementedError("sizes of query, key and value that don't fit");
  const int64_t heads = q.dim(1).constant_or(0), shared = k.dim(1).constant_or(0);
  if (KnownEqual(q.dim(1), k.dim(1)) || (heads > 0 && shared > 0 && heads % shared == 0)) return absl::OkStatus();
  return absl::UnimplementedError("heads that don't share keys evenly");
}

absl::Status CheckMask(const Call& call) {
  if (!call.masked()) return absl::OkStatus();
  const Shape &mask = call.op.operand(call.fixed())->shape(), &q = call.query();
  if (!mask.is_array() || (mask.element_type() != PrimitiveType::kF32 && mask.element_type() != q.element_type())) {
    return absl::UnimplementedError("a mask of another type");
  }
  if (mask.rank() != 2 && mask.rank() != 4) return absl::UnimplementedError(absl::StrCat("a mask of rank ", mask.rank()));
  const Dim wanted[] = {q.dim(0), q.dim(1), q.dim(2), call.key().dim(2)};
  for (int64_t d = 0; d < mask.rank(); ++d) {
    const Dim& size = mask.dim(mask.rank() - 1 - d);
    if (!KnownOne(size) && !KnownEqual(size, wanted[3 - d])) return absl::UnimplementedError("a mask of sizes that don't fit");
  }
  return absl::OkStatus();
}

absl::Status CheckResults(const Call& call) {
  const Shape& q = call.query();
  const PrimitiveType type = q.element_type();
  const Shape sums(type == PrimitiveType::kF64 ? type : PrimitiveType::kF32, {q.dim(0), q.dim(1), q.dim(2)});
  std::vector<std::pair<const Shape*, const Shape*>> equal;
  const Shape& results = call.op.shape();
  if (!results.is_tuple() || results.elements().size() != (call.backward ? 3 : 2)) return absl::UnimplementedError("other results");
  if (call.backward) {
    equal = {{&call.op.operand(0)->shape(), &q}, {&call.op.operand(4)->shape(), &q},       {&call.op.operand(5)->shape(), &sums},
             {&results.element(0), &q},          {&results.element(1), &call.key()}, {&results.element(2), &call.value()}};
  } else {
    equal = {{&results.element(0), &q}, {&results.element(1), &sums}};
  }
  for (const auto& [shape, wanted] : equal) {
    if (Shape::Compatible(*shape, *wanted)) continue;
    return absl::UnimplementedError(absl::StrCat("wanted ", wanted->ToString(), ", got ", shape->ToString()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AttentionTakes(const Instruction& composite, const ContractionSite& site) {
  TENON_ASSIGN_OR_RETURN(const Call call, CallOf(composite));
  TENON_RETURN_IF_ERROR(CheckSizes(call));
  TENON_RETURN_IF_ERROR(CheckMask(call));
  TENON_RETURN_IF_ERROR(CheckResults(call));
  const HostFunction function = call.backward ? HostFunction::kAttentionBackward : HostFunction::kAttention;
  const PrimitiveType type = call.query().element_type();
  if (!HostTakes(function, type)) return absl::UnimplementedError(absl::StrCat("not for ", std::string(PrimitiveTypeName(type))));
  if (!(site.host_functions & Bit(function))) return absl::UnimplementedError("the host has no such function");
  return absl::OkStatus();
}

absl::StatusOr<ProvidedCall> CallAttention(const Instruction& composite) {
  TENON_ASSIGN_OR_RETURN(const Call call, CallOf(composite));
  FrameworkCallSite site{.rule = ResultRule::kOwned, .total = true,
                         .reason = call.backward ? "library: attention's backward" : "library: attention"};
  for (int64_t i = 0; i < call.fixed(); ++i) site.args.push_back(FrameworkArg::Tensor(i));
  site.args.push_back(FrameworkArg::Bool(call.causal));
  site.args.push_back(call.masked() ? FrameworkArg::Tensor(call.fixed()) : FrameworkArg::None());
  site.args.push_back(call.scale ? FrameworkArg::Float(*call.scale) : FrameworkArg::None());
  const HostFunction function = call.backward ? HostFunction::kAttentionBackward : HostFunction::kAttention;
  return ProvidedCall{HostFunctionName(function), std::move(site)};
}

}  // namespace tenon
