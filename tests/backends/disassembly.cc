#include "tests/backends/disassembly.h"

#include "absl/strings/str_cat.h"
#include "hlo/check.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/MCAsmInfo.h"
#include "llvm/MC/MCContext.h"
#include "llvm/MC/MCDisassembler/MCDisassembler.h"
#include "llvm/MC/MCInst.h"
#include "llvm/MC/MCInstPrinter.h"
#include "llvm/MC/MCInstrInfo.h"
#include "llvm/MC/MCRegisterInfo.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Object/ObjectFile.h"
#include "llvm/Support/TargetSelect.h"

namespace tenon {
namespace {

// An instruction belongs to the ISA if LLVM's disassembler for exactly that CPU level decodes and
// names it.
const char* CpuOf(const std::string& isa) {
  return isa == "sse4" ? "x86-64-v2" : isa == "avx2" ? "x86-64-v3" : "x86-64-v4";
}

bool IsAbove(const std::string& isa, llvm::ArrayRef<uint8_t> bytes) {
  size_t i = 0;
  while (i < bytes.size() && (bytes[i] == 0x66 || bytes[i] == 0xf2 || bytes[i] == 0xf3 ||
                              bytes[i] == 0x2e || bytes[i] == 0x64))
    ++i;
  if (i == bytes.size()) return false;
  // In 64-bit mode C4 and C5 are VEX and 62 is EVEX, nothing else.
  const bool vex = bytes[i] == 0xc4 || bytes[i] == 0xc5, evex = bytes[i] == 0x62;
  if (isa == "sse4") return vex || evex;
  return isa == "avx2" && evex;
}

}  // namespace

std::string FirstInstructionAbove(const std::string& isa, std::span<const uint8_t> object) {
  llvm::InitializeNativeTargetDisassembler();
  const llvm::Triple triple("x86_64-pc-linux-gnu");
  std::string error;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, error);
  TENON_CHECK(target != nullptr, error);
  std::unique_ptr<llvm::MCRegisterInfo> registers(target->createMCRegInfo(triple));
  llvm::MCTargetOptions options;
  std::unique_ptr<llvm::MCAsmInfo> asm_info(target->createMCAsmInfo(*registers, triple, options));
  std::unique_ptr<llvm::MCInstrInfo> instructions(target->createMCInstrInfo());
  std::unique_ptr<llvm::MCSubtargetInfo> subtarget(target->createMCSubtargetInfo(
      triple, "x86-64-v4", "+avx512bf16,+avx512fp16,+avx512vnni,+avx512vbmi"));
  llvm::MCContext context(triple, asm_info.get(), registers.get(), subtarget.get());
  std::unique_ptr<llvm::MCDisassembler> disassembler(
      target->createMCDisassembler(*subtarget, context));
  std::unique_ptr<llvm::MCInstPrinter> printer(
      target->createMCInstPrinter(triple, 0, *asm_info, *instructions, *registers));
  auto file = llvm::object::ObjectFile::createObjectFile(llvm::MemoryBufferRef(
      llvm::StringRef(reinterpret_cast<const char*>(object.data()), object.size()), "object"));
  TENON_CHECK(static_cast<bool>(file), llvm::toString(file.takeError()));
  for (const llvm::object::SectionRef& section : (*file)->sections()) {
    if (!section.isText()) continue;
    llvm::StringRef text = llvm::cantFail(section.getContents());
    llvm::ArrayRef<uint8_t> bytes(reinterpret_cast<const uint8_t*>(text.data()), text.size());
    for (uint64_t at = 0; at < bytes.size();) {
      llvm::MCInst instruction;
      uint64_t size = 0;
      if (disassembler->getInstruction(instruction, size, bytes.slice(at), at, llvm::nulls()) !=
              llvm::MCDisassembler::Success ||
          size == 0) {
        return absl::StrCat("undecodable at ", at);
      }
      if (IsAbove(isa, bytes.slice(at, size))) {
        std::string line;
        llvm::raw_string_ostream stream(line);
        printer->printInst(&instruction, at, "", *subtarget, stream);
        return absl::StrCat("not in ", CpuOf(isa), ":", line);
      }
      at += size;
    }
  }
  return "";
}

absl::Status WidenTailMask(llvm::Module& module, int by) {
  bool found = false;
  for (llvm::Function& f : module) {
    for (llvm::Instruction& i : llvm::instructions(f)) {
      auto* compare = llvm::dyn_cast<llvm::ICmpInst>(&i);
      if (compare == nullptr || !compare->getType()->isVectorTy() ||
          compare->getPredicate() != llvm::CmpInst::ICMP_ULT)
        continue;
      llvm::IRBuilder<> b(compare);
      llvm::Value* limit = compare->getOperand(1);
      compare->setOperand(1,
                          b.CreateAdd(limit, llvm::ConstantInt::getSigned(limit->getType(), by)));
      found = true;
    }
  }
  return found ? absl::OkStatus() : absl::NotFoundError("no lane mask");
}

}  // namespace tenon
