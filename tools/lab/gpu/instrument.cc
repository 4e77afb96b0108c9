#include "llvm/IR/Constants.h"
#include "llvm/IR/DebugInfo.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "tools/lab/gpu/prepare.h"

namespace tenon::gpu {
namespace {

using llvm::Value;

Value* PointerOf(llvm::Instruction& i) {
  if (Value* p = llvm::getLoadStorePointerOperand(&i)) return p;
  if (auto* rmw = llvm::dyn_cast<llvm::AtomicRMWInst>(&i)) return rmw->getPointerOperand();
  return llvm::cast<llvm::AtomicCmpXchgInst>(i).getPointerOperand();
}

void CheckAccess(const Marked& m) {
  llvm::IRBuilder<> b(m.instruction);
  auto* memory = llvm::dyn_cast<llvm::MemIntrinsic>(m.instruction);
  if (memory == nullptr) {
    CallHost(b, "tenon_access", b.getVoidTy(), {Generic(b, PointerOf(*m.instruction)), b.getInt32(m.site)});
    return;
  }
  Value* bytes = b.CreateZExtOrTrunc(memory->getLength(), b.getInt64Ty());
  const auto check = [&](Value* pointer, uint32_t site) {
    CallHost(b, "tenon_access_range", b.getVoidTy(), {Generic(b, pointer), bytes, b.getInt32(site)});
  };
  if (auto* transfer = llvm::dyn_cast<llvm::MemTransferInst>(memory)) check(transfer->getRawSource(), m.site + 1);
  check(memory->getRawDest(), m.site);
}

// What traps on the host and is undefined in LLVM IR: a GPU gives some number.
void CheckDivision(const Marked& m) {
  llvm::IRBuilder<> b(m.instruction);
  Value *n = m.instruction->getOperand(0), *d = m.instruction->getOperand(1);
  const bool is_signed = m.instruction->getOpcode() == llvm::Instruction::SDiv || m.instruction->getOpcode() == llvm::Instruction::SRem;
  if (const auto* c = llvm::dyn_cast<llvm::ConstantInt>(d); c != nullptr && !c->isZero() && !c->isMinusOne()) return;
  Value* bad = b.CreateICmpEQ(d, llvm::Constant::getNullValue(d->getType()));
  if (is_signed) {
    const unsigned bits = d->getType()->getScalarSizeInBits();
    Value* least = b.CreateICmpEQ(n, llvm::ConstantInt::get(n->getType(), llvm::APInt::getSignedMinValue(bits)));
    bad = b.CreateOr(bad, b.CreateAnd(least, b.CreateICmpEQ(d, llvm::Constant::getAllOnesValue(d->getType()))));
  }
  if (bad->getType()->isVectorTy()) bad = b.CreateOrReduce(bad);
  CallHost(b, "tenon_divide", b.getVoidTy(), {bad, b.getInt32(m.site)});
}

// Allocas are told while they live. (Fragments of a warp's products come later, and are nobody else's.)
void TellLocals(llvm::Function& f, const llvm::DataLayout& layout) {
  std::vector<llvm::AllocaInst*> allocas;
  for (llvm::Instruction& i : f.getEntryBlock()) {
    if (auto* a = llvm::dyn_cast<llvm::AllocaInst>(&i)) allocas.push_back(a);
  }
  if (allocas.empty()) return;
  for (llvm::AllocaInst* a : allocas) {
    llvm::IRBuilder<> b(a->getNextNode());
    const auto size = a->getAllocationSize(layout);
    if (a->getAddressSpace() != 0) {
      llvm::IRBuilder<> at(a);
      auto* plain = at.CreateAlloca(a->getAllocatedType(), 0, a->getArraySize());
      plain->setAlignment(a->getAlign());
      a->replaceAllUsesWith(at.CreateAddrSpaceCast(plain, a->getType()));
      a->eraseFromParent();
      a = plain;
    }
    CallHost(b, "tenon_local", b.getVoidTy(), {a, b.getInt64(size->getFixedValue())});
  }
  for (llvm::BasicBlock& block : f) {
    auto* back = llvm::dyn_cast<llvm::ReturnInst>(block.getTerminator());
    if (back == nullptr) continue;
    llvm::IRBuilder<> b(back);
    CallHost(b, "tenon_locals_gone", b.getVoidTy(), {b.getInt32(static_cast<uint32_t>(allocas.size()))});
  }
}

void MakeEntry(llvm::Function& kernel) {
  llvm::LLVMContext& context = kernel.getContext();
  llvm::PointerType* pointer = llvm::PointerType::get(context, 0);
  auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(context), {pointer}, false);
  auto* entry = llvm::Function::Create(type, llvm::Function::ExternalLinkage, EntryName(kernel.getName()), *kernel.getParent());
  llvm::IRBuilder<> b(llvm::BasicBlock::Create(context, "entry", entry));
  std::vector<Value*> args;
  for (llvm::Argument& a : kernel.args()) {
    Value* value = b.CreateLoad(pointer, b.CreateConstInBoundsGEP1_32(pointer, entry->getArg(0), a.getArgNo()));
    args.push_back(b.CreateAlignedLoad(a.getType(), value, llvm::Align(1)));
  }
  b.CreateCall(&kernel, args);
  b.CreateRetVoid();
}

}  // namespace

llvm::CallInst* CallHost(llvm::IRBuilderBase& b, llvm::StringRef name, llvm::Type* result, llvm::ArrayRef<Value*> args) {
  std::vector<llvm::Type*> types;
  for (Value* a : args) types.push_back(a->getType());
  llvm::Module* module = b.GetInsertBlock()->getModule();
  llvm::FunctionCallee callee = module->getOrInsertFunction(name, llvm::FunctionType::get(result, types, false));
  llvm::CallInst* call = b.CreateCall(callee, args);
  for (unsigned k = 0; k < args.size(); ++k) {
    if (args[k]->getType()->isIntegerTy(1)) call->addParamAttr(k, llvm::Attribute::ZExt);
  }
  return call;
}

Value* Generic(llvm::IRBuilderBase& b, Value* pointer) {
  llvm::PointerType* generic = llvm::PointerType::get(pointer->getContext(), 0);
  return pointer->getType() == generic ? pointer : b.CreateAddrSpaceCast(pointer, generic);
}

void Instrument(llvm::Module& module, const Marks& marks) {
  for (const Marked& m : marks.accesses) CheckAccess(m);
  for (const Marked& m : marks.divisions) CheckDivision(m);
  const auto tell = [](const Marked& m, llvm::StringRef what) {
    llvm::IRBuilder<> b(m.instruction);
    CallHost(b, what, b.getVoidTy(), {b.getInt32(m.site)});
  };
  for (const Marked& m : marks.loops) tell(m, "tenon_step");
  for (const Marked& m : marks.functions) tell(m, "tenon_enter");
  for (llvm::Function& f : module) {
    if (!f.isDeclaration()) TellLocals(f, module.getDataLayout());
  }
}

std::string EntryName(llvm::StringRef kernel) { return "tenon_kernel_" + kernel.str(); }

void MakeHostModule(llvm::Module& module) {
  llvm::StripDebugInfo(module);
  std::vector<llvm::Function*> kernels, functions;
  for (llvm::Function& f : module) {
    if (f.isDeclaration()) continue;
    functions.push_back(&f);
    if (IsKernel(f)) kernels.push_back(&f);
  }
  for (llvm::Function* f : functions) {
    // What was said of them held without the calls that they make now.
    f->setAttributes(llvm::AttributeList());
    f->setCallingConv(llvm::CallingConv::C);
    f->setComdat(nullptr);
    f->setSection("");
    f->setVisibility(llvm::GlobalValue::DefaultVisibility);
    f->setLinkage(llvm::GlobalValue::InternalLinkage);
    for (llvm::Instruction& i : llvm::instructions(*f)) {
      auto* call = llvm::dyn_cast<llvm::CallInst>(&i);
      if (call == nullptr || call->getCalledFunction()->isDeclaration()) continue;
      call->setAttributes(llvm::AttributeList());
      call->setCallingConv(llvm::CallingConv::C);
    }
  }
  for (llvm::Function* f : kernels) MakeEntry(*f);
  for (llvm::GlobalVariable& g : llvm::make_early_inc_range(module.globals())) {
    if (g.getName().starts_with("llvm.")) {
      g.eraseFromParent();
      continue;
    }
    // Each has an address of its own that can be asked for.
    if (!g.hasName()) g.setName("constant");
    g.setComdat(nullptr);
    g.setSection("");
    g.setUnnamedAddr(llvm::GlobalValue::UnnamedAddr::None);
    g.setVisibility(llvm::GlobalValue::DefaultVisibility);
    g.setLinkage(llvm::GlobalValue::ExternalLinkage);
  }
  for (llvm::NamedMDNode& n : llvm::make_early_inc_range(module.named_metadata())) module.eraseNamedMetadata(&n);
}

}  // namespace tenon::gpu
