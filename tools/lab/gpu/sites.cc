#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/Analysis/CFG.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/ModuleSlotTracker.h"
#include "llvm/Support/raw_ostream.h"
#include "tools/lab/gpu/prepare.h"

namespace tenon::gpu {
namespace {

constexpr size_t kLongest = 200;  // of an instruction's text

class Marker {
 public:
  Marker(llvm::Module& module, std::vector<Site>* sites) : layout_(module.getDataLayout()), slots_(&module), sites_(sites) {}

  void Mark(llvm::Function& f) {
    function_ = &f;
    slots_.incorporateFunction(f);
    if (!IsKernel(f)) marks_.functions.push_back({&*f.getEntryBlock().getFirstInsertionPt(), Text("its beginning")});
    llvm::SmallVector<std::pair<const llvm::BasicBlock*, const llvm::BasicBlock*>> edges;
    llvm::FindFunctionBackedges(f, edges);
    llvm::SmallPtrSet<const llvm::BasicBlock*, 8> headers;
    for (const auto& [from, to] : edges) headers.insert(to);
    for (llvm::BasicBlock& b : f) {
      if (!headers.contains(&b)) continue;
      std::string name = "the loop of ";
      llvm::raw_string_ostream stream(name);
      b.printAsOperand(stream, false, slots_);
      marks_.loops.push_back({&*b.getFirstInsertionPt(), Text(name)});
    }
    for (llvm::Instruction& i : llvm::instructions(f)) MarkInstruction(i);
  }
  Marks Take() { return std::move(marks_); }

 private:
  uint32_t Text(std::string text) {
    sites_->push_back({std::move(text), function_->getName().str()});
    return static_cast<uint32_t>(sites_->size() - 1);
  }
  uint32_t Instruction(const llvm::Instruction& i) {
    std::string text;
    llvm::raw_string_ostream stream(text);
    i.print(stream, slots_);
    text.erase(0, text.find_first_not_of(' '));
    if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
    return Text(std::move(text));
  }
  // Returns the site, whose kind the caller sets.
  Site& Access(llvm::Instruction& i, const llvm::Value* pointer, uint64_t size, llvm::Align align) {
    const uint32_t index = Instruction(i);
    marks_.accesses.push_back({&i, index});
    Site& s = (*sites_)[index];
    s.size = static_cast<uint32_t>(size);
    s.align = static_cast<uint32_t>(align.value());
    s.space = static_cast<Space>(pointer->getType()->getPointerAddressSpace());
    return s;
  }
  uint64_t Size(llvm::Type* type) const { return layout_.getTypeStoreSize(type); }

  void MarkInstruction(llvm::Instruction& i) {
    if (auto* load = llvm::dyn_cast<llvm::LoadInst>(&i)) {
      Site& s = Access(i, load->getPointerOperand(), Size(i.getType()), load->getAlign());
      s.read = true;
      s.atomic = load->isAtomic();
    } else if (auto* store = llvm::dyn_cast<llvm::StoreInst>(&i)) {
      Site& s = Access(i, store->getPointerOperand(), Size(store->getValueOperand()->getType()), store->getAlign());
      s.write = true;
      s.atomic = store->isAtomic();
    } else if (auto* rmw = llvm::dyn_cast<llvm::AtomicRMWInst>(&i)) {
      Site& s = Access(i, rmw->getPointerOperand(), Size(i.getType()), rmw->getAlign());
      s.read = s.write = s.atomic = true;
    } else if (auto* cas = llvm::dyn_cast<llvm::AtomicCmpXchgInst>(&i)) {
      Site& s = Access(i, cas->getPointerOperand(), Size(cas->getNewValOperand()->getType()), cas->getAlign());
      s.read = s.write = s.atomic = true;
    } else if (auto* memory = llvm::dyn_cast<llvm::MemIntrinsic>(&i)) {
      // Of a transfer, the site behind the destination's is the source's.
      Access(i, memory->getRawDest(), 0, memory->getDestAlign().valueOrOne()).write = true;
      if (auto* transfer = llvm::dyn_cast<llvm::MemTransferInst>(&i)) {
        Access(i, transfer->getRawSource(), 0, transfer->getSourceAlign().valueOrOne()).read = true;
        marks_.accesses.pop_back();
      }
    } else if (auto* call = llvm::dyn_cast<llvm::CallInst>(&i)) {
      MarkCall(*call);
    } else if (i.isIntDivRem()) {
      marks_.divisions.push_back({&i, Instruction(i)});
    }
  }

  void MarkCall(llvm::CallInst& call) {
    const llvm::Function* callee = call.getCalledFunction();
    if (!callee->isIntrinsic()) return;
    const uint32_t index = Instruction(call);
    marks_.intrinsics.push_back({&call, index});
    llvm::StringRef name = callee->getName();
    if (name.contains(".cp.async.") && name.contains(".shared.global.")) {
      name.consume_back(".s");
      const uint32_t bytes = name.ends_with("16") ? 16 : name.ends_with("8") ? 8 : 4;
      const uint32_t source = Instruction(call);  // the site behind the destination's
      Site &to = (*sites_)[index], &from = (*sites_)[source];
      to.size = to.align = from.align = bytes;
      to.write = from.read = true;
      to.space = Space::kShared;
      from.space = Space::kGlobal;
    }
    if (name.starts_with("llvm.nvvm.ldmatrix.")) {
      Site& s = (*sites_)[index];
      s.size = s.align = 16;
      s.read = true;
      s.space = static_cast<Space>(call.getArgOperand(0)->getType()->getPointerAddressSpace());
    }
  }

  const llvm::DataLayout& layout_;
  llvm::ModuleSlotTracker slots_;
  std::vector<Site>* sites_;
  llvm::Function* function_ = nullptr;
  Marks marks_;
};

}  // namespace

Marks MarkSites(llvm::Module& module, EmulatedModule::Image* image) {
  Marker marker(module, &image->sites);
  for (llvm::Function& f : module) {
    if (!f.isDeclaration()) marker.Mark(f);
  }
  return marker.Take();
}

}  // namespace tenon::gpu
