// Builder: makes instructions in one computation with inferred shapes. The way passes, lowering and tests write HLO.
//
// Operands must fit (same dims for elementwise ops: there is no implicit broadcast except BroadcastTo); a misfit is our
// bug and fails a check whose message is shape inference's. Metadata set by set_metadata() is put on every instruction
// made after it.
#pragma once

#include <optional>
#include <string_view>

#include "hlo/module.h"

namespace tenon {

class Builder {
 public:
  explicit Builder(Computation* computation) : c_(computation) {}
  Computation* computation() const { return c_; }
  Module* module() const { return c_->module(); }
  void set_metadata(Metadata m) { metadata_ = std::move(m); }
  const Metadata& metadata() const { return metadata_; }

  Instruction* Parameter(int64_t number, const Shape& shape, std::string name = "");
  Instruction* Constant(Literal literal);
  Instruction* ScalarConstant(PrimitiveType type, double value);
  Instruction* ScalarConstantInt(PrimitiveType type, int64_t value);
  // A scalar constant broadcast to `like`'s dims.
  Instruction* FullLike(Instruction* like, double value);
  Instruction* Full(PrimitiveType type, absl::Span<const Dim> dims, double value);
  // A size as a scalar: a constant, or of an expression the last of 0, 1, ..., size, of which no kernel makes more than it reads.
  Instruction* SizeValue(Dim size, PrimitiveType type);
  // The size that an integral scalar is, if it is a constant or what SizeValue makes of an expression.
  static std::optional<Dim> SizeOf(const Instruction* value);

  Instruction* Unary(Opcode opcode, Instruction* x);
  Instruction* Binary(Opcode opcode, Instruction* a, Instruction* b);
  Instruction* Compare(Instruction* a, Instruction* b, std::string_view direction);  // "EQ" ...
  Instruction* Select(Instruction* pred, Instruction* on_true, Instruction* on_false);
  Instruction* Clamp(Instruction* lo, Instruction* x, Instruction* hi);
  Instruction* Convert(Instruction* x, PrimitiveType type);  // x itself if it has the type
  Instruction* BitcastConvert(Instruction* x, PrimitiveType type);

  // HLO broadcast: operand dim i becomes result dim dimensions[i].
  Instruction* Broadcast(Instruction* x, absl::Span<const Dim> dims, absl::Span<const int64_t> dimensions);
  // NumPy/ATen rule: align trailing dims, size-1 dims repeat. x itself if nothing changes.
  Instruction* BroadcastTo(Instruction* x, absl::Span<const Dim> dims);
  Instruction* Reshape(Instruction* x, absl::Span<const Dim> dims);  // x itself if equal
  Instruction* Transpose(Instruction* x, absl::Span<const int64_t> permutation);  // x itself if identity
  Instruction* Slice(Instruction* x, absl::Span<const Dim> starts, absl::Span<const Dim> limits,
                     absl::Span<const int64_t> strides);
  Instruction* SliceDim(Instruction* x, int64_t dim, Dim start, Dim limit, int64_t stride = 1);
  Instruction* Concatenate(absl::Span<Instruction* const> xs, int64_t dim);
  Instruction* Pad(Instruction* x, Instruction* value, PaddingConfig padding);
  Instruction* Reverse(Instruction* x, absl::Span<const int64_t> dims);
  Instruction* Iota(const Shape& shape, int64_t dim);
  Instruction* Copy(Instruction* x);

  // One operand and init; to_apply is a scalar computation of `opcode` (kAdd, kMaximum, kMultiply, kMinimum, kAnd, kOr).
  Instruction* Reduce(Instruction* x, Instruction* init, absl::Span<const int64_t> dims, Opcode opcode);
  Instruction* Reduce(absl::Span<Instruction* const> xs, absl::Span<Instruction* const> inits,
                      absl::Span<const int64_t> dims, Computation* to_apply);
  Instruction* ReduceWindow(Instruction* x, Instruction* init, Window window, Opcode opcode);
  Instruction* Dot(Instruction* lhs, Instruction* rhs, absl::Span<const int64_t> lhs_batch,
                   absl::Span<const int64_t> rhs_batch, absl::Span<const int64_t> lhs_contracting,
                   absl::Span<const int64_t> rhs_contracting, std::optional<PrimitiveType> result_type = std::nullopt);

  Instruction* Tuple(absl::Span<Instruction* const> xs);
  Instruction* GetTupleElement(Instruction* x, int64_t index);
  Instruction* CustomCall(std::string_view target, const Shape& shape, absl::Span<Instruction* const> operands,
                          std::string backend_config_json = "", bool side_effect = false);
  Instruction* CustomCall(std::string_view target, const Shape& shape, absl::Span<Instruction* const> operands, FrameworkCallRef site,
                          bool side_effect);
  // Any opcode: attributes given, shape inferred.
  Instruction* Make(Opcode opcode, absl::Span<Instruction* const> operands, Attributes attrs,
                    std::optional<Shape> shape = std::nullopt);

  // The module's shared two-parameter scalar computation of `opcode` over `type` (made on first use).
  Computation* ScalarComputation(Opcode opcode, PrimitiveType type);

 private:
  Instruction* Finish(Instruction* made);
  Computation* c_;
  Metadata metadata_;
};

}  // namespace tenon
