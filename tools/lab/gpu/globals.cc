// What each kernel reaches, and where shared memory lies.
#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/InstIterator.h"
#include "tools/lab/gpu/prepare.h"

namespace tenon::gpu {
namespace {

// Functions whose instructions use `v`, also by way of constant expressions.
void UsersOf(const llvm::Value* v, llvm::SmallPtrSetImpl<const llvm::Function*>* functions) {
  for (const llvm::User* user : v->users()) {
    if (const auto* i = llvm::dyn_cast<llvm::Instruction>(user)) {
      functions->insert(i->getFunction());
    } else if (llvm::isa<llvm::Constant>(user)) {
      UsersOf(user, functions);
    }
  }
}

// A kernel and all that it calls.
llvm::SmallSetVector<const llvm::Function*, 8> Reached(const llvm::Function& kernel) {
  llvm::SmallSetVector<const llvm::Function*, 8> reached;
  reached.insert(&kernel);
  for (size_t k = 0; k < reached.size(); ++k) {
    for (const llvm::Instruction& i : llvm::instructions(*reached[k])) {
      const auto* call = llvm::dyn_cast<llvm::CallBase>(&i);
      if (call != nullptr && call->getCalledFunction() != nullptr) reached.insert(call->getCalledFunction());
    }
  }
  return reached;
}

// "16,16" -> 256; 0: says nothing.
int64_t Threads(const llvm::Function& f, llvm::StringRef attribute) {
  const std::string value = f.getFnAttribute(attribute).getValueAsString().str();
  if (value.empty()) return 0;
  int64_t product = 1;
  for (const absl::string_view part : absl::StrSplit(value, ',')) {
    int64_t n = 0;
    product *= absl::SimpleAtoi(part, &n) ? n : 1;
  }
  return product;
}

Kernel Describe(const llvm::Function& f) {
  Kernel kernel;
  kernel.name = f.getName().str();
  for (const llvm::Argument& a : f.args()) {
    kernel.param_is_pointer.push_back(a.getType()->isPointerTy());
    kernel.param_aligns.push_back(a.getParamAlign().valueOrOne().value());
  }
  if (const int64_t most = Threads(f, "nvvm.maxntid"); most > 0) kernel.max_threads = std::min(kernel.max_threads, most);
  kernel.required_threads = Threads(f, "nvvm.reqntid");
  return kernel;
}

}  // namespace

void PlaceShared(llvm::Module& module, EmulatedModule::Image* image) {
  std::vector<llvm::GlobalVariable*> fixed, dynamic;
  std::vector<SharedGlobal> places;
  size_t dynamic_align = 1;
  const llvm::DataLayout& layout = module.getDataLayout();
  for (llvm::GlobalVariable& g : module.globals()) {
    if (g.getAddressSpace() != 3) continue;
    const size_t align = layout.getValueOrABITypeAlignment(g.getAlign(), g.getValueType()).value();
    const size_t size = layout.getTypeAllocSize(g.getValueType());
    if (!g.hasInitializer() && size == 0) {
      dynamic.push_back(&g);
      dynamic_align = std::max(dynamic_align, align);
    } else {
      fixed.push_back(&g);
      places.push_back({g.getName().str(), align, size});
    }
  }
  image->shared = std::make_unique<SharedArena>(std::move(places), dynamic_align);

  for (const llvm::Function& f : module) {
    if (f.isDeclaration() || !IsKernel(f)) continue;
    Kernel kernel = Describe(f);
    const auto reached = Reached(f);
    kernel.blocks = std::any_of(reached.begin(), reached.end(), [](const llvm::Function* r) { return MayWait(*r); });
    for (size_t k = 0; k < fixed.size(); ++k) {
      llvm::SmallPtrSet<const llvm::Function*, 8> users;
      UsersOf(fixed[k], &users);
      if (std::any_of(users.begin(), users.end(), [&](const llvm::Function* u) { return reached.contains(u); })) kernel.shared.push_back(k);
    }
    image->kernels.push_back(std::move(kernel));
  }

  const auto replace = [&](llvm::GlobalVariable* g, size_t offset) {
    const auto address = reinterpret_cast<uint64_t>(image->shared->base() + offset);
    llvm::Constant* value = llvm::ConstantInt::get(llvm::Type::getInt64Ty(module.getContext()), address);
    g->replaceAllUsesWith(llvm::ConstantExpr::getIntToPtr(value, g->getType()));
    g->eraseFromParent();
  };
  for (size_t k = 0; k < fixed.size(); ++k) replace(fixed[k], image->shared->globals()[k].offset);
  for (llvm::GlobalVariable* g : dynamic) replace(g, image->shared->dynamic_offset());
}

}  // namespace tenon::gpu
