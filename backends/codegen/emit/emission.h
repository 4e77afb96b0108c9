// What a row of elementwise.cc's table gets: the op, its register operands, the operands' and the
// result's element types. Internal to the elementwise*.cc files.
#pragma once

#include <span>

#include "backends/codegen/emit/emit_types.h"
#include "backends/codegen/math/math.h"
#include "hlo/instruction.h"

namespace tenon {

struct Emission {
  llvm::IRBuilderBase& b;
  const Instruction& op;
  std::span<llvm::Value* const> args;
  const EmitOptions& options;

  llvm::Value* x() const { return args[0]; }
  llvm::Value* y() const { return args[1]; }
  PrimitiveType type() const {
    return op.operand(op.opcode() == Opcode::kSelect ? 1 : 0)->shape().element_type();
  }
  PrimitiveType result() const { return op.shape().element_type(); }
  bool is_float() const { return IsFloat(type()); }
  bool is_signed() const { return IsSigned(type()); }
  int bits() const { return BitWidth(type()); }
  llvm::Value* Int(uint64_t c) const {
    return llvm::ConstantInt::get(x()->getType(), c, /*IsSigned=*/false, /*ImplicitTrunc=*/true);
  }
  llvm::Value* Float(double c) const { return llvm::ConstantFP::get(x()->getType(), c); }
  llvm::Value* Unary(llvm::Intrinsic::ID id) const { return b.CreateUnaryIntrinsic(id, x()); }
  llvm::Value* Binary(llvm::Intrinsic::ID id, llvm::Value* p, llvm::Value* q) const {
    return b.CreateBinaryIntrinsic(id, p, q);
  }
  llvm::Value* Math(math::Fn fn) const { return math::Emit(b, fn, args); }
};

// elementwise_convert.cc
llvm::Value* EmitConvert(const Emission& e);
llvm::Value* EmitBitcastConvert(const Emission& e);
llvm::Value* EmitReducePrecision(const Emission& e);
llvm::Value* EmitStochasticConvert(const Emission& e);
bool HasReducePrecision(PrimitiveType type);

// elementwise_complex.cc: ops on complex operands; nullptr if there is none.
using ElementwiseBody = llvm::Value* (*)(const Emission&);
ElementwiseBody ComplexBody(Opcode opcode);

}  // namespace tenon
