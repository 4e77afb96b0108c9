#include "backends/codegen/emit/library_calls.h"

#include <mutex>
#include <tuple>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "backends/codegen/emit/elementwise.h"
#include "backends/codegen/emit/emit_types.h"
#include "backends/codegen/fused/region.h"
#include "hlo/own_calls.h"
#include "llvm/IR/Module.h"

namespace tenon {
namespace {

// What the table of bodies makes of it: asked once for each opcode and type, by emitting it.
bool EmitsCall(const Instruction& op) {
  llvm::LLVMContext context;
  llvm::Module module("probe", context);
  std::vector<llvm::Type*> types;
  for (const Instruction* o : op.operands()) types.push_back(RegisterType(context, o->shape().element_type()));
  llvm::Function* f = llvm::Function::Create(llvm::FunctionType::get(llvm::Type::getVoidTy(context), types, false),
                                             llvm::Function::ExternalLinkage, "probe", module);
  llvm::IRBuilder<> b(llvm::BasicBlock::Create(context, "entry", f));
  std::vector<llvm::Value*> args;
  for (llvm::Argument& a : f->args()) args.push_back(&a);
  (void)EmitElementwise(b, op, args, EmitOptions{});
  b.CreateRetVoid();
  return absl::c_any_of(module.functions(), [](const llvm::Function& g) { return g.isDeclaration() && !g.isIntrinsic(); });
}

bool BodyCallsLibrary(const Instruction& op) {
  if (!HasElementwiseBody(op)) return false;
  using Key = std::tuple<Opcode, PrimitiveType, PrimitiveType, int64_t>;
  static std::mutex mutex;
  static auto* known = new absl::flat_hash_map<Key, bool>;
  const Key key{op.opcode(), op.operand(op.operand_count() - 1)->shape().element_type(), op.shape().element_type(), op.operand_count()};
  const std::lock_guard lock(mutex);
  const auto [at, fresh] = known->try_emplace(key, false);
  if (fresh) at->second = EmitsCall(op);
  return at->second;
}

}  // namespace

bool CallsLibrary(const Instruction& op) {
  if (op.opcode() != Opcode::kMap && IsPointwise(op) && BodyCallsLibrary(op)) return true;
  const auto in = [](const Computation* c) {
    return absl::c_any_of(c->instructions(), [](const Instruction* i) { return CallsLibrary(*i); });
  };
  for (const auto& [attr, value] : op.attrs()) {
    if (const auto* c = std::get_if<Computation*>(&value); c != nullptr && in(*c)) return true;
    if (const auto* all = std::get_if<std::vector<Computation*>>(&value); all != nullptr && absl::c_any_of(*all, in)) return true;
  }
  return false;
}

}  // namespace tenon
