#include "backends/codegen/math/out_of_line.h"

#include "absl/strings/str_cat.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/raw_ostream.h"

namespace tenon::math {
namespace {

std::string NameOf(std::string_view name, std::span<llvm::Value* const> args) {
  std::string text = absl::StrCat("tenon.", std::string(name));
  llvm::raw_string_ostream stream(text);
  for (const llvm::Value* a : args) {
    auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(a->getType());
    stream << "." << (vector ? vector->getNumElements() : 1u);
    a->getType()->getScalarType()->print(stream);
  }
  return text;
}

}  // namespace

std::vector<llvm::Value*> CallOutOfLine(
    llvm::IRBuilderBase& b, std::string_view name, std::span<llvm::Value* const> args, std::span<llvm::Type* const> results,
    llvm::function_ref<std::vector<llvm::Value*>(llvm::IRBuilderBase&, std::span<llvm::Value* const>)> body) {
  llvm::Function* caller = b.GetInsertBlock()->getParent();
  llvm::Module* module = caller->getParent();
  const std::string symbol = NameOf(name, args);
  const llvm::ArrayRef<llvm::Type*> result_types(results.data(), results.size());
  llvm::Type* result = results.size() == 1 ? results[0] : llvm::StructType::get(b.getContext(), result_types);
  llvm::Function* f = module->getFunction(symbol);
  if (f == nullptr) {
    std::vector<llvm::Type*> parameters;
    for (const llvm::Value* a : args) parameters.push_back(a->getType());
    f = llvm::Function::Create(llvm::FunctionType::get(result, parameters, false), llvm::Function::InternalLinkage, symbol, module);
    f->addFnAttr(llvm::Attribute::NoUnwind);
    // Vectors are passed in the registers that the caller has for them, and spilled as they are there.
    for (const char* attribute : {"prefer-vector-width", "min-legal-vector-width", "frame-pointer"}) {
      if (caller->hasFnAttribute(attribute)) f->addFnAttr(caller->getFnAttribute(attribute));
    }
    llvm::IRBuilder<> inside(llvm::BasicBlock::Create(b.getContext(), "entry", f));
    std::vector<llvm::Value*> own;
    for (llvm::Argument& a : f->args()) own.push_back(&a);
    const std::vector<llvm::Value*> values = body(inside, own);
    llvm::Value* returned = results.size() == 1 ? values[0] : llvm::PoisonValue::get(result);
    for (unsigned k = 0; results.size() > 1 && k < values.size(); ++k) returned = inside.CreateInsertValue(returned, values[k], k);
    inside.CreateRet(returned);
  }
  llvm::Value* call = b.CreateCall(f, llvm::ArrayRef(args.data(), args.size()));
  std::vector<llvm::Value*> values;
  for (unsigned k = 0; k < results.size(); ++k) values.push_back(results.size() == 1 ? call : b.CreateExtractValue(call, k));
  return values;
}

llvm::Value* AnyLane(llvm::IRBuilderBase& b, llvm::Value* condition) {
  return condition->getType()->isVectorTy() ? b.CreateOrReduce(condition) : condition;
}

}  // namespace tenon::math
