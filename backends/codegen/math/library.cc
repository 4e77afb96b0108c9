#include "backends/codegen/math/library.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/codegen/math/library_bodies.h"
#include "backends/codegen/math/out_of_line.h"
#include "hlo/check.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"

namespace tenon::math {
namespace {

struct Body {
  Body(V (*f)(V)) : unary(f) {}                            // NOLINT: so that a table row can name any kind
  Body(V (*f)(V, V)) : binary(f) {}                        // NOLINT
  Body(ComplexV (*f)(ComplexV)) : complex(f) {}            // NOLINT
  Body(ComplexV (*f)(ComplexV, ComplexV)) : complex2(f) {}  // NOLINT
  V (*unary)(V) = nullptr;
  V (*binary)(V, V) = nullptr;
  ComplexV (*complex)(ComplexV) = nullptr;
  ComplexV (*complex2)(ComplexV, ComplexV) = nullptr;
};

struct Row {
  std::string_view symbol;
  Body body;
};

const Row kRows[] = {
    {"__divdc3", library::Divide}, {"acos", library::Acos}, {"acosh", library::Acosh}, {"asin", library::Asin}, {"asinh", library::Asinh},
    {"atan", library::Atan}, {"atan2", library::Atan2}, {"atanh", library::Atanh}, {"cacos", library::Cacos}, {"cacosh", library::Cacosh},
    {"casin", library::Casin}, {"casinh", library::Casinh}, {"catan", library::Catan}, {"catanh", library::Catanh}, {"cbrt", library::Cbrt},
    {"ccos", library::Ccos}, {"ccosh", library::Ccosh}, {"cexp", library::Cexp}, {"clog", library::Clog}, {"cos", library::Cos},
    {"cosh", library::Cosh}, {"cpow", library::Cpow}, {"csin", library::Csin}, {"csinh", library::Csinh}, {"csqrt", library::Csqrt},
    {"ctan", library::Ctan}, {"ctanh", library::Ctanh}, {"erf", library::Erf}, {"erfc", library::Erfc}, {"exp", library::Exp},
    {"exp2", library::Exp2}, {"expm1", library::Expm1}, {"hypot", library::Hypot}, {"log", library::Log}, {"log10", library::Log10},
    {"log1p", library::Log1p}, {"log2", library::Log2}, {"pow", library::Pow}, {"sin", library::Sin}, {"sinh", library::Sinh},
    {"tan", library::Tan}, {"tanh", library::Tanh},
};

// `declared`'s body under a name of tenon's own: by the C library's name code generators would know it.
llvm::Function* Define(llvm::Function& declared, const Body& body) {
  const std::string name = absl::StrCat("tenon.", declared.getName().str());
  llvm::Module* module = declared.getParent();
  if (llvm::Function* f = module->getFunction(name)) return f;
  llvm::Function* f = llvm::Function::Create(declared.getFunctionType(), llvm::Function::InternalLinkage, name, module);
  f->addFnAttr(llvm::Attribute::NoUnwind);
  llvm::IRBuilder<> b(llvm::BasicBlock::Create(module->getContext(), "entry", f));
  std::vector<V> args;
  for (llvm::Argument& a : f->args()) args.push_back({&b, &a});
  if (body.unary != nullptr || body.binary != nullptr) {
    b.CreateRet((body.unary != nullptr ? body.unary(args[0]) : body.binary(args[0], args[1])).v);
    return f;
  }
  const ComplexV x{args[0], args[1]};
  const ComplexV r = body.complex != nullptr ? body.complex(x) : body.complex2(x, {args[2], args[3]});
  llvm::Value* both = b.CreateInsertValue(llvm::PoisonValue::get(f->getReturnType()), r.re.v, 0);
  b.CreateRet(b.CreateInsertValue(both, r.im.v, 1));
  return f;
}

const Row* Find(std::string_view symbol) {
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.symbol == symbol; });
  return row == std::end(kRows) ? nullptr : row;
}

}  // namespace

llvm::Value* CallLibraryFunction(llvm::IRBuilderBase& b, std::string_view symbol, std::span<llvm::Value* const> args) {
  const Row* row = Find(symbol);
  TENON_CHECK(row != nullptr && (args.size() == 1 ? row->body.unary != nullptr : row->body.binary != nullptr), std::string(symbol));
  llvm::Type* const results[] = {args[0]->getType()};
  return CallOutOfLine(b, symbol, args, results, [&](llvm::IRBuilderBase& in, std::span<llvm::Value* const> own) {
    const V x{&in, own[0]};
    return std::vector<llvm::Value*>{(own.size() == 1 ? row->body.unary(x) : row->body.binary(x, {&in, own[1]})).v};
  })[0];
}

void DefineLibraryFunctions(llvm::Module& module) {
  for (bool more = true; more;) {
    more = false;
    std::vector<llvm::Function*> declared;
    for (llvm::Function& f : module) {
      if (f.isDeclaration() && !f.isIntrinsic()) declared.push_back(&f);
    }
    for (llvm::Function* f : declared) {
      const Row* row = Find(std::string_view(f->getName()));
      if (row == nullptr) continue;
      f->replaceAllUsesWith(Define(*f, row->body));
      f->eraseFromParent();
      more = true;
    }
  }
}

std::span<const std::string_view> LibraryFunctions() {
  static const std::vector<std::string_view> kSymbols = [] {
    std::vector<std::string_view> symbols;
    for (const Row& row : kRows) symbols.push_back(row.symbol);
    return symbols;
  }();
  return kSymbols;
}

}  // namespace tenon::math
