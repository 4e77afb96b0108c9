// What the functions of shape inference share: the request, labelled errors, and questions about dimensions.
//
// Infer<op> is declared here for every row of ops.def: an opcode without its function is a linker error. A check is one
// TENON_WANT with a literal label; docs/hlo.md explains each label and tools/dev/check_labels.py compares the two.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hlo/computation.h"
#include "hlo/infer/infer.h"

namespace tenon::infer {

struct Inference {
  Opcode opcode;
  absl::Span<Instruction* const> operands;
  const Attributes& attrs;
  const Shape* declared;  // null: the text gave none

  const Shape& shape(int64_t i) const { return operands[i]->shape(); }
  int64_t count() const { return static_cast<int64_t>(operands.size()); }
  std::vector<int64_t> ints(Attr a) const { return attrs.get_or<std::vector<int64_t>>(a, {}); }
  std::vector<Dim> dims(Attr a) const { return attrs.get_or<std::vector<Dim>>(a, {}); }
  int64_t integer(Attr a, int64_t otherwise) const { return attrs.get_or<int64_t>(a, otherwise); }
  std::string ident(Attr a) const { return attrs.get_or<std::string>(a, ""); }
  Computation* comp(Attr a) const { return attrs.get_or<Computation*>(a, nullptr); }
};

template <Opcode op>
absl::StatusOr<Shape> Infer(const Inference& in);
#define TENON_OP(e, ...) \
  template <>            \
  absl::StatusOr<Shape> Infer<Opcode::e>(const Inference& in);
#include "hlo/ops.def"

absl::Status Misfit(std::string_view label, std::string_view wanted, std::string_view got);

// "(f32[2], f32[])" of all operands, for messages.
std::string OperandShapes(const Inference& in);
std::string Ints(absl::Span<const int64_t> values);

// The shape an op states itself because its operands don't determine it.
absl::StatusOr<Shape> Declared(const Inference& in);

// Largest dimension and attribute number that arithmetic on shapes admits: sums and small products stay below 2^62.
inline constexpr int64_t kMaxDim = int64_t{1} << 48;
inline constexpr int64_t kMaxRank = 128;  // recursion over dimensions stays shallow
// Refuses shapes whose dimensions or bytes are out of range. Zero-sized dimensions don't excuse the others.
absl::Status CheckShapeSize(const Shape& shape);

// Type and dims proven equal, tuples leaf by leaf; layouts and dynamic marks are not looked at.
bool KnownCompatible(const Shape& a, const Shape& b);
bool KnownSameDims(const Shape& a, const Shape& b);
bool InRangeAndUnique(absl::Span<const int64_t> dims, int64_t rank);
bool IsIntegralScalar(const Shape& s);
// Bits of an element as XLA lays it out: a pred takes a byte, an s4 four bits.
inline int StoredBits(PrimitiveType t) { return t == PrimitiveType::kPred ? 8 : BitWidth(t); }

// `type` with the dims and the dynamic marks of `like`, without layout.
Shape WithType(const Shape& like, PrimitiveType type);
// An array from dims and matching dynamic marks.
Shape MakeArray(PrimitiveType type, absl::Span<const Dim> dims, absl::Span<const bool> dynamic = {});
// One shape alone, or the tuple of several.
Shape OneOrTuple(std::vector<Shape> shapes);

// The size of a window's result along one dimension, |attributes| <= 2^40 (checked by CheckWindow).
Dim WindowedSize(Dim size, const WindowDim& w);
absl::Status CheckWindow(const Window& window, int64_t rank);

// Attributes kept as text say what XLA's grammar for them has (labels attribute_c*). `result`: the instruction's shape.
absl::Status CheckAttributeTexts(const Inference& in, const Shape& result);

// Of a custom-call of tenon's own (own_calls.h).
absl::StatusOr<Shape> PointwiseCall(const Inference& in);

// The computation's parameters accept these shapes (labels call_c*).
absl::Status CheckCallee(const Computation* callee, absl::Span<const Shape> args, std::string_view role);
// A computation of 2n scalars (accumulators, then values) to one scalar or an n-tuple of them.
absl::StatusOr<std::vector<PrimitiveType>> CheckReducer(const Computation* reducer,
                                                        absl::Span<const PrimitiveType> accumulators,
                                                        absl::Span<const PrimitiveType> values);

}  // namespace tenon::infer

#define TENON_INFER(e) \
  template <>          \
  absl::StatusOr<Shape> Infer<Opcode::e>(const Inference& in)
#define TENON_WANT(condition, label, wanted, ...)                                 \
  do {                                                                            \
    if (!(condition)) return Misfit(label, absl::StrCat(wanted), absl::StrCat(__VA_ARGS__)); \
  } while (false)
