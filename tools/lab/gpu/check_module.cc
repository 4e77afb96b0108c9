#include "absl/strings/str_cat.h"
#include "hlo/check.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Intrinsics.h"
#include "tools/lab/gpu/prepare.h"

namespace tenon::gpu {
namespace {

using llvm::Intrinsic::ID;

absl::Status Refuse(const llvm::Function& f, const std::string& what) {
  return absl::UnimplementedError(absl::StrCat(f.getName().str(), ": ", what));
}

// What the code generator of NVPTX has an instruction, or a few, for. Everything else would become a call of libm.
bool HasInstruction(ID id) {
  switch (id) {
    case llvm::Intrinsic::arithmetic_fence:  // of rounding: no instruction
    case llvm::Intrinsic::sqrt:
    case llvm::Intrinsic::fma:
    case llvm::Intrinsic::fmuladd:
    case llvm::Intrinsic::minnum:
    case llvm::Intrinsic::maxnum:
    case llvm::Intrinsic::minimum:
    case llvm::Intrinsic::maximum:
    case llvm::Intrinsic::minimumnum:
    case llvm::Intrinsic::maximumnum:
    case llvm::Intrinsic::floor:
    case llvm::Intrinsic::ceil:
    case llvm::Intrinsic::trunc:
    case llvm::Intrinsic::rint:
    case llvm::Intrinsic::nearbyint:
    case llvm::Intrinsic::roundeven:
    case llvm::Intrinsic::round:
    case llvm::Intrinsic::fabs:
    case llvm::Intrinsic::copysign:
    case llvm::Intrinsic::canonicalize:
    case llvm::Intrinsic::is_fpclass:
    case llvm::Intrinsic::fptosi_sat:
    case llvm::Intrinsic::fptoui_sat:
    case llvm::Intrinsic::ctpop:
    case llvm::Intrinsic::ctlz:
    case llvm::Intrinsic::cttz:
    case llvm::Intrinsic::bitreverse:
    case llvm::Intrinsic::bswap:
    case llvm::Intrinsic::fshl:
    case llvm::Intrinsic::fshr:
    case llvm::Intrinsic::abs:
    case llvm::Intrinsic::smin:
    case llvm::Intrinsic::smax:
    case llvm::Intrinsic::umin:
    case llvm::Intrinsic::umax:
    case llvm::Intrinsic::scmp:
    case llvm::Intrinsic::ucmp:
    case llvm::Intrinsic::sadd_sat:
    case llvm::Intrinsic::uadd_sat:
    case llvm::Intrinsic::ssub_sat:
    case llvm::Intrinsic::usub_sat:
    case llvm::Intrinsic::sshl_sat:
    case llvm::Intrinsic::ushl_sat:
    case llvm::Intrinsic::sadd_with_overflow:
    case llvm::Intrinsic::uadd_with_overflow:
    case llvm::Intrinsic::ssub_with_overflow:
    case llvm::Intrinsic::usub_with_overflow:
    case llvm::Intrinsic::smul_with_overflow:
    case llvm::Intrinsic::umul_with_overflow:
    case llvm::Intrinsic::vector_reduce_add:
    case llvm::Intrinsic::vector_reduce_mul:
    case llvm::Intrinsic::vector_reduce_and:
    case llvm::Intrinsic::vector_reduce_or:
    case llvm::Intrinsic::vector_reduce_xor:
    case llvm::Intrinsic::vector_reduce_smin:
    case llvm::Intrinsic::vector_reduce_smax:
    case llvm::Intrinsic::vector_reduce_umin:
    case llvm::Intrinsic::vector_reduce_umax:
    case llvm::Intrinsic::vector_reduce_fadd:
    case llvm::Intrinsic::vector_reduce_fmul:
    case llvm::Intrinsic::vector_reduce_fmin:
    case llvm::Intrinsic::vector_reduce_fmax:
    case llvm::Intrinsic::vector_reduce_fminimum:
    case llvm::Intrinsic::vector_reduce_fmaximum:
    case llvm::Intrinsic::vector_insert:
    case llvm::Intrinsic::vector_extract:
    case llvm::Intrinsic::vector_interleave2:
    case llvm::Intrinsic::vector_deinterleave2:
    case llvm::Intrinsic::vector_reverse:
    case llvm::Intrinsic::ptrmask:
    case llvm::Intrinsic::expect:
    case llvm::Intrinsic::memcpy:
    case llvm::Intrinsic::memcpy_inline:
    case llvm::Intrinsic::memmove:
    case llvm::Intrinsic::memset:
    case llvm::Intrinsic::memset_inline:
    case llvm::Intrinsic::trap:
    case llvm::Intrinsic::debugtrap:
      return true;
    default:
      return false;
  }
}

absl::Status CheckCall(const llvm::Function& f, const llvm::CallBase& call) {
  if (call.isInlineAsm()) return Refuse(f, "inline assembly");
  const llvm::Function* callee = call.getCalledFunction();
  if (callee == nullptr) return Refuse(f, "call through a pointer");
  const std::string name = callee->getName().str();
  if (callee->isIntrinsic()) {
    if (callee->getName().starts_with("llvm.nvvm.")) return absl::OkStatus();
    if (HasInstruction(callee->getIntrinsicID()) || SaysNothing(llvm::cast<llvm::IntrinsicInst>(call))) return absl::OkStatus();
    return Refuse(f, absl::StrCat("call of ", name, ", which NVPTX has no instruction for"));
  }
  if (callee->isDeclaration()) return Refuse(f, absl::StrCat("call of ", name, ", a function from outside"));
  if (IsKernel(*callee)) return Refuse(f, absl::StrCat("call of the kernel ", name));
  return absl::OkStatus();
}

bool KnownSpace(unsigned space) { return space == 0 || space == 1 || space == 3 || space == 4 || space == 5; }

absl::Status CheckPointer(const llvm::Function& f, const llvm::Value* pointer) {
  const unsigned space = pointer->getType()->getPointerAddressSpace();
  if (KnownSpace(space)) return absl::OkStatus();
  return Refuse(f, absl::StrCat("access to address space ", space));
}

absl::Status CheckInstruction(const llvm::Function& f, const llvm::Instruction& i) {
  if (const auto* call = llvm::dyn_cast<llvm::CallBase>(&i)) return CheckCall(f, *call);
  if (const auto* a = llvm::dyn_cast<llvm::AllocaInst>(&i); a != nullptr && !a->isStaticAlloca()) {
    return Refuse(f, "alloca of a size that is known at run time only, or outside of the first block");
  }
  if (const llvm::Value* pointer = llvm::getLoadStorePointerOperand(&i)) return CheckPointer(f, pointer);
  if (const auto* rmw = llvm::dyn_cast<llvm::AtomicRMWInst>(&i)) return CheckPointer(f, rmw->getPointerOperand());
  if (const auto* cas = llvm::dyn_cast<llvm::AtomicCmpXchgInst>(&i)) return CheckPointer(f, cas->getPointerOperand());
  return absl::OkStatus();
}

absl::Status CheckKernel(const llvm::Function& f) {
  if (!f.getReturnType()->isVoidTy() || f.isVarArg())
    return Refuse(f, "a kernel that returns something, or takes any number of parameters");
  for (const llvm::Argument& a : f.args()) {
    const llvm::Type* t = a.getType();
    const bool pointer = t->isPointerTy() && t->getPointerAddressSpace() <= 1 && !a.hasByValAttr();
    if (!pointer && !t->isFloatingPointTy() && !(t->isIntegerTy() && t->getIntegerBitWidth() <= 64)) {
      return Refuse(f, absl::StrCat("parameter ", a.getArgNo(), " is neither a number nor a pointer to global memory"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckGlobal(const llvm::GlobalVariable& g) {
  const auto refuse = [&](const std::string& what) { return absl::UnimplementedError(absl::StrCat("@", g.getName().str(), ": ", what)); };
  if (g.getName().starts_with("llvm.")) return absl::OkStatus();  // lists of what is used
  if (g.getAddressSpace() == 3) {
    const bool blank = !g.hasInitializer() || llvm::isa<llvm::UndefValue>(g.getInitializer());
    return blank ? absl::OkStatus() : refuse("shared memory with an initial value");
  }
  if (!KnownSpace(g.getAddressSpace()) || g.getAddressSpace() == 5) return refuse("a global in this address space");
  if (!g.hasInitializer()) return refuse("a global from outside");
  return g.isConstant() || g.getAddressSpace() == 4 ? absl::OkStatus() : refuse("a global that kernels may write");
}

}  // namespace

bool IsKernel(const llvm::Function& f) { return f.getCallingConv() == llvm::CallingConv::PTX_Kernel; }

bool SaysNothing(const llvm::IntrinsicInst& call) {
  switch (call.getIntrinsicID()) {
    case llvm::Intrinsic::prefetch:
    case llvm::Intrinsic::donothing:
      return true;
    default:
      return call.isAssumeLikeIntrinsic() && call.getType()->isVoidTy();
  }
}

absl::Status CheckModule(const llvm::Module& module) {
  if (!module.getTargetTriple().isNVPTX() || !module.getTargetTriple().isArch64Bit()) {
    return absl::InvalidArgumentError(absl::StrCat("a module for \"", module.getTargetTriple().str(), "\", not for nvptx64"));
  }
  if (!module.getModuleInlineAsm().empty()) return absl::UnimplementedError("assembly beside the module's functions");
  if (!module.alias_empty() || !module.ifunc_empty()) return absl::UnimplementedError("aliases");
  for (const llvm::GlobalVariable& g : module.globals()) TENON_RETURN_IF_ERROR(CheckGlobal(g));
  for (const llvm::Function& f : module) {
    if (f.isDeclaration()) continue;
    for (const char* attribute : {"denormal-fp-math", "denormal-fp-math-f32"}) {
      const llvm::StringRef mode = f.getFnAttribute(attribute).getValueAsString();
      if (!mode.empty() && mode != "ieee" && mode != "ieee,ieee") return Refuse(f, absl::StrCat(attribute, "=", mode.str()));
    }
    if (IsKernel(f)) TENON_RETURN_IF_ERROR(CheckKernel(f));
    for (const llvm::Instruction& i : llvm::instructions(f)) TENON_RETURN_IF_ERROR(CheckInstruction(f, i));
  }
  return absl::OkStatus();
}

}  // namespace tenon::gpu
