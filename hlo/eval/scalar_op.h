// ScalarOp: one elementwise instruction on the elements of its operands. The single definition of every elementwise op:
// whole arrays and the scalar regions of reduce, sort, scatter, ... all run it.
//
// Operands are widened (convert.h), computed on in double / 64-bit integers / complex<double> and rounded once to the
// result type. For + - * / and sqrt that equals rounding in the type itself (53 bits >= 2*24+2); a fused multiply-add is done in it.
#pragma once

#include "absl/status/statusor.h"
#include "hlo/eval/convert.h"
#include "hlo/instruction.h"

namespace tenon::eval {

struct ScalarOpParams {
  int bits = 0;                           // of the first operand's type
  int64_t exponent_bits = 0, mantissa_bits = 0;
  PrimitiveType type = PrimitiveType::kF32, result = PrimitiveType::kF32;
};

class ScalarOp {
 public:
  // Whether `opcode` is computed element by element here.
  static bool Handles(Opcode opcode);
  static bool Handles(const Instruction& i);  // tenon's own pointwise calls too
  static absl::StatusOr<ScalarOp> Resolve(const Instruction& i);

  // `n` elements of each operand in its own type; an operand with stride 0 is one element.
  struct Operand {
    const std::byte* data;
    bool splat = false;
  };
  void Run(absl::Span<const Operand> operands, std::byte* out, int64_t n) const;

  using Kernel = void (*)(const void* const* in, void* out, int64_t n, const ScalarOpParams& p);

 private:
  Kernel kernel_ = nullptr;
  bool raw_ = false;  // the kernel takes elements as stored
  int arity_ = 0;
  Converter loaders_[3] = {};
  int64_t widths_[3] = {}, out_width_ = 0;
  Converter storer_ = nullptr;
  ScalarOpParams params_;
};

}  // namespace tenon::eval
