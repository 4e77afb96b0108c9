#include "hlo/infer/infer.h"

#include <algorithm>

#include "hlo/infer/context.h"

namespace tenon {
namespace infer {

absl::Status Misfit(std::string_view label, std::string_view wanted, std::string_view got) {
  auto text = [](std::string_view s) { return absl::string_view(s.data(), s.size()); };
  return absl::InvalidArgumentError(
      absl::StrCat(text(label), ": wanted ", text(wanted), ", got ", text(got)));
}

std::string OperandShapes(const Inference& in) {
  return absl::StrCat("(", absl::StrJoin(in.operands, ", ", [](std::string* out, const Instruction* i) {
    absl::StrAppend(out, i->shape().ToString());
  }), ")");
}

std::string Ints(absl::Span<const int64_t> values) {
  return absl::StrCat("{", absl::StrJoin(values, ","), "}");
}

absl::StatusOr<Shape> Declared(const Inference& in) {
  const std::string_view name = OpcodeName(in.opcode);
  TENON_WANT(in.declared != nullptr, "declared_c1",
             absl::StrCat("a declared result shape of ", absl::string_view(name.data(), name.size())), "none");
  return *in.declared;
}

absl::Status CheckShapeSize(const Shape& shape) {
  if (shape.is_tuple() || shape.element_type() == PrimitiveType::kBuffer) {
    for (const Shape& e : shape.elements()) TENON_RETURN_IF_ERROR(CheckShapeSize(e));
    return absl::OkStatus();
  }
  TENON_WANT(shape.rank() <= kMaxRank, "shape_c3", absl::StrCat("at most ", kMaxRank, " dimensions"), shape.rank());
  __int128 elements = 1;
  for (Dim d : shape.dims()) {
    const int64_t size = d.constant_or(1);
    TENON_WANT(size >= 0 && size <= kMaxDim, "shape_c1", "dimensions from 0 to 2^48", d.ToString());
    elements *= std::max<int64_t>(size, 1);
    TENON_WANT(elements < (__int128{1} << 53), "shape_c2", "fewer than 2^53 elements", shape.ToString());
  }
  return absl::OkStatus();
}

bool KnownSameDims(const Shape& a, const Shape& b) {
  if (a.rank() != b.rank()) return false;
  for (int64_t i = 0; i < a.rank(); ++i) {
    if (!(a.dim(i) == b.dim(i)) && !KnownEqual(a.dim(i), b.dim(i))) return false;
  }
  return true;
}

bool KnownCompatible(const Shape& a, const Shape& b) {
  if (a.element_type() != b.element_type() || a.elements().size() != b.elements().size()) return false;
  for (size_t i = 0; i < a.elements().size(); ++i) {
    if (!KnownCompatible(a.element(i), b.element(i))) return false;
  }
  return KnownSameDims(a, b);
}

bool InRangeAndUnique(absl::Span<const int64_t> dims, int64_t rank) {
  if (static_cast<int64_t>(dims.size()) > rank) return false;
  absl::InlinedVector<bool, 8> seen(rank, false);
  for (int64_t d : dims) {
    if (d < 0 || d >= rank || seen[d]) return false;
    seen[d] = true;
  }
  return true;
}

bool IsIntegralScalar(const Shape& s) { return s.is_scalar() && IsIntegral(s.element_type()); }

Shape WithType(const Shape& like, PrimitiveType type) {
  Shape result(type, like.dims());
  for (int64_t i = 0; i < like.rank(); ++i) {
    if (like.is_dynamic(i)) result.set_dynamic(i, true);
  }
  return result;
}

Shape MakeArray(PrimitiveType type, absl::Span<const Dim> dims, absl::Span<const bool> dynamic) {
  Shape result(type, dims);
  for (size_t i = 0; i < dynamic.size(); ++i) {
    if (dynamic[i]) result.set_dynamic(i, true);
  }
  return result;
}

Shape OneOrTuple(std::vector<Shape> shapes) {
  return shapes.size() == 1 ? std::move(shapes[0]) : Shape::Tuple(std::move(shapes));
}

absl::Status CheckWindow(const Window& window, int64_t rank) {
  constexpr int64_t kLimit = int64_t{1} << 40;
  TENON_WANT(static_cast<int64_t>(window.dims.size()) == rank, "window_c1",
             absl::StrCat("a window of ", rank, " dimensions"), window.dims.size());
  for (const WindowDim& w : window.dims) {
    TENON_WANT(w.size >= 1 && w.size <= kLimit, "window_c2", "a size from 1 to 2^40", w.size);
    TENON_WANT(w.stride >= 1 && w.stride <= kLimit, "window_c3", "a stride from 1 to 2^40", w.stride);
    TENON_WANT(std::abs(w.padding_low) <= kLimit && std::abs(w.padding_high) <= kLimit, "window_c4",
               "padding within 2^40", w.padding_low, "_", w.padding_high);
    TENON_WANT(w.base_dilation >= 1 && w.base_dilation <= (1 << 13) && w.window_dilation >= 1 &&
                   w.window_dilation <= (1 << 20),
               "window_c5", "dilations from 1 to 2^13 (lhs) and 2^20 (rhs)", w.base_dilation, " and ",
               w.window_dilation);
  }
  return absl::OkStatus();
}

Dim WindowedSize(Dim size, const WindowDim& w) {
  const Dim dilated = w.base_dilation == 1 ? size : Max(0, (size - 1) * w.base_dilation + 1);
  const Dim room = dilated + w.padding_low + w.padding_high - ((w.size - 1) * w.window_dilation + 1);
  return Max(0, FloorDiv(room, w.stride) + 1);
}

absl::Status CheckCallee(const Computation* callee, absl::Span<const Shape> args, std::string_view role) {
  const absl::string_view what(role.data(), role.size());
  TENON_WANT(callee != nullptr && callee->root() != nullptr, "call_c1",
             absl::StrCat("a computation with a root as ", what), "none");
  TENON_WANT(callee->parameters().size() == args.size(), "call_c2",
             absl::StrCat(args.size(), " parameters of ", what, " ", callee->name()),
             callee->parameters().size());
  for (size_t i = 0; i < args.size(); ++i) {
    TENON_WANT(KnownCompatible(args[i], callee->parameter(i)->shape()), "call_c3",
               absl::StrCat("parameter ", i, " of ", what, " ", callee->name(), " to be ", args[i].ToString()),
               callee->parameter(i)->shape().ToString());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<PrimitiveType>> CheckReducer(const Computation* reducer,
                                                        absl::Span<const PrimitiveType> accumulators,
                                                        absl::Span<const PrimitiveType> values) {
  std::vector<Shape> args, results;
  for (PrimitiveType t : accumulators) args.push_back(Shape::Scalar(t));
  results = args;
  for (PrimitiveType t : values) args.push_back(Shape::Scalar(t));
  TENON_RETURN_IF_ERROR(CheckCallee(reducer, args, "the reducer"));
  const Shape wanted = OneOrTuple(std::move(results));
  const Shape& root = reducer->root()->shape();
  // A one-element tuple is the same reducer written the variadic way.
  const bool wrapped = root.is_tuple() && root.elements().size() == 1 && KnownCompatible(root.element(0), wanted);
  TENON_WANT(wrapped || KnownCompatible(root, wanted), "reducer_c1",
             absl::StrCat("reducer ", reducer->name(), " to return ", wanted.ToString()), root.ToString());
  return std::vector<PrimitiveType>(accumulators.begin(), accumulators.end());
}

namespace {

using InferFn = absl::StatusOr<Shape> (*)(const Inference&);
constexpr InferFn kTable[] = {
#define TENON_OP(e, ...) &Infer<Opcode::e>,
#include "hlo/ops.def"
};

absl::Status CheckRequest(const Inference& in) {
  const OpInfo& info = InfoOf(in.opcode);
  const absl::string_view name(info.name.data(), info.name.size());
  TENON_WANT(in.count() >= info.min_operands && (info.max_operands < 0 || in.count() <= info.max_operands),
             "operands_c1",
             info.max_operands == info.min_operands ? absl::StrCat(info.min_operands, " operands of ", name)
             : info.max_operands < 0 ? absl::StrCat(info.min_operands, " or more operands of ", name)
                                     : absl::StrCat(info.min_operands, " to ", info.max_operands, " operands of ", name),
             in.count());
  for (Attr a : info.required) {
    const std::string_view key = AttrName(a);
    TENON_WANT(in.attrs.has(a), "attributes_c1",
               absl::StrCat("attribute ", absl::string_view(key.data(), key.size()), " on ", name), "none");
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace infer

absl::StatusOr<Shape> InferShape(Opcode opcode, absl::Span<Instruction* const> operands, const Attributes& attrs,
                                 const Shape* declared) {
  const infer::Inference in{opcode, operands, attrs, declared};
  TENON_RETURN_IF_ERROR(infer::CheckRequest(in));
  absl::StatusOr<Shape> shape = infer::kTable[static_cast<size_t>(opcode)](in);
  if (!shape.ok()) return shape.status();
  TENON_RETURN_IF_ERROR(infer::CheckShapeSize(*shape));
  TENON_RETURN_IF_ERROR(infer::CheckAttributeTexts(in, *shape));
  return shape;
}

}  // namespace tenon
