#include "backends/codegen/math/math.h"

#include <string>
#include <vector>

#include "backends/codegen/math/bodies.h"
#include "backends/codegen/math/library.h"
#include "hlo/check.h"
#include "llvm/IR/Module.h"

namespace tenon::math {
namespace {

constexpr FnInfo kFunctions[] = {
#define TENON_MATH_FN(id, name, arity, emit, libm, max_ulp, max_ulp_f64, notes) \
  {Fn::id, name, arity, libm, max_ulp, max_ulp_f64, notes},
#include "backends/codegen/math/math_functions.def"
#undef TENON_MATH_FN
};

const Body& FloatBody(Fn fn) {
  static const Body kBodies[] = {
#define TENON_MATH_FN(id, name, arity, emit, libm, max_ulp, max_ulp_f64, notes) Body(emit),
#include "backends/codegen/math/math_functions.def"
#undef TENON_MATH_FN
  };
  return kBodies[static_cast<size_t>(fn)];
}

// One call of the function per lane: of the C library, or of library.h's on a GPU, whose threads have no vector registers.
llvm::Value* CallPerLane(llvm::IRBuilderBase& b, std::string_view symbol,
                         std::span<llvm::Value* const> args) {
  llvm::Module* module = b.GetInsertBlock()->getModule();
  llvm::Type* f64 = b.getDoubleTy();
  std::vector<llvm::Type*> params(args.size(), f64);
  llvm::FunctionCallee callee = module->getOrInsertFunction(
      llvm::StringRef(symbol), llvm::FunctionType::get(f64, params, false));
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(args[0]->getType());
  if (!vector) return b.CreateCall(callee, llvm::ArrayRef(args.data(), args.size()));
  llvm::Value* result = llvm::PoisonValue::get(vector);
  for (unsigned lane = 0; lane < vector->getNumElements(); ++lane) {
    std::vector<llvm::Value*> scalars;
    for (llvm::Value* arg : args) scalars.push_back(b.CreateExtractElement(arg, lane));
    result = b.CreateInsertElement(result, b.CreateCall(callee, scalars), lane);
  }
  return result;
}

// pow by vectors takes half as long again as the C library's by lanes (a logarithm of 118 bits without its tables; AVX2).
llvm::Value* Call(llvm::IRBuilderBase& b, std::string_view symbol, std::span<llvm::Value* const> args) {
  const bool threads = b.GetInsertBlock()->getModule()->getTargetTriple().isNVPTX();
  return threads || symbol == "pow" ? CallPerLane(b, symbol, args) : CallLibraryFunction(b, symbol, args);
}

llvm::Value* EmitF64(llvm::IRBuilderBase& b, Fn fn, std::span<llvm::Value* const> args) {
  V x{&b, args[0]};
  if (fn == Fn::kRsqrt) return (1 / Sqrt(x)).v;
  if (fn == Fn::kLogistic) {
    llvm::Value* negated = (-x).v;
    return (1 / (1 + x.With(Call(b, Info(fn).libm, {&negated, 1})))).v;
  }
  return Call(b, Info(fn).libm, args);
}

}  // namespace

std::span<const FnInfo> Functions() { return kFunctions; }

const FnInfo& Info(Fn fn) { return kFunctions[static_cast<size_t>(fn)]; }

std::optional<Fn> FindFunction(std::string_view name) {
  for (const FnInfo& info : kFunctions) {
    if (info.name == name) return info.fn;
  }
  return std::nullopt;
}

bool HasBody(Fn fn, llvm::Type* type) {
  if (llvm::isa<llvm::ScalableVectorType>(type)) return false;
  llvm::Type* element = type->getScalarType();
  return element->isFloatTy() ||
         (element->isDoubleTy() && (fn == Fn::kRsqrt || !Info(fn).libm.empty()));
}

llvm::Value* EmitCoarseErf(llvm::IRBuilderBase& builder, llvm::Value* x) {
  TENON_CHECK(x->getType()->getScalarType()->isFloatTy(), "erf of float");
  llvm::IRBuilderBase::FastMathFlagGuard guard(builder);
  builder.clearFastMathFlags();
  return EmitCoarseErf(V{&builder, x}).v;
}

llvm::Value* Emit(llvm::IRBuilderBase& builder, Fn fn, std::span<llvm::Value* const> args) {
  const FnInfo& info = Info(fn);
  TENON_CHECK(static_cast<int>(args.size()) == info.arity, std::string(info.name));
  llvm::Type* type = args[0]->getType();
  TENON_CHECK(HasBody(fn, type), std::string(info.name));
  TENON_CHECK(args.back()->getType() == type, std::string(info.name));
  llvm::IRBuilderBase::FastMathFlagGuard guard(builder);
  builder.clearFastMathFlags();
  if (type->getScalarType()->isDoubleTy()) return EmitF64(builder, fn, args);
  const Body& body = FloatBody(fn);
  V x{&builder, args[0]};
  return info.arity == 1 ? body.unary(x).v : body.binary(x, {&builder, args[1]}).v;
}

}  // namespace tenon::math
