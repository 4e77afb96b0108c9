#include "backends/cpu/jit/jit.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "llvm/Object/ELFObjectFile.h"
#include "llvm/Object/ObjectFile.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"

namespace tenon {
namespace {

void InitializeHost() {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
}

const absl::flat_hash_set<std::string>& AllowedImports() {
  static const auto* set = new absl::flat_hash_set<std::string>{
#define TENON_IMPORT(s) #s,
#include "runtime/imports.def"
  };
  return *set;
}

// Undefined symbols that are not on the list, each with the kernels (text sections) whose relocations want it.
absl::Status CheckImports(llvm::StringRef object_bytes, const std::string& name) {
  auto buffer = llvm::MemoryBufferRef(object_bytes, name);
  llvm::Expected<std::unique_ptr<llvm::object::ObjectFile>> object = llvm::object::ObjectFile::createObjectFile(buffer);
  if (!object) return absl::InternalError(absl::StrCat("unreadable object: ", llvm::toString(object.takeError())));
  for (const llvm::object::SectionRef& section : (*object)->sections()) {
    for (const llvm::object::RelocationRef& relocation : section.relocations()) {
      const auto symbol = relocation.getSymbol();
      if (symbol == (*object)->symbol_end()) continue;
      llvm::Expected<uint32_t> flags = symbol->getFlags();
      llvm::Expected<llvm::StringRef> symbol_name = symbol->getName();
      if (!flags || !symbol_name) {
        llvm::consumeError(flags.takeError());
        llvm::consumeError(symbol_name.takeError());
        continue;
      }
      if ((*flags & llvm::object::SymbolRef::SF_Undefined) == 0 || AllowedImports().contains(symbol_name->str())) continue;
      std::string from = name;
      if (auto relocated = section.getRelocatedSection(); relocated && *relocated != (*object)->section_end()) {
        if (llvm::Expected<llvm::StringRef> n = (*relocated)->getName()) from = n->str();
        else llvm::consumeError(n.takeError());
      }
      return absl::InternalError(absl::StrCat("generated code of ", from, " imports \"", symbol_name->str(),
                                              "\", which is not in runtime/imports.def"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

ModuleRequest ObjectRequest(const CpuTarget& target, std::string name) {
  ModuleRequest request{.target = {target.triple, target.cpu, target.features, /*jit=*/true, InitializeHost}, .name = std::move(name)};
  request.check = [name = request.name](std::span<const char> object) {
    return CheckImports(llvm::StringRef(object.data(), object.size()), name);
  };
  return request;
}

void AppendObject(std::vector<uint8_t>* image, std::span<const uint8_t> object) {
  for (int i = 0; i < 8; ++i) image->push_back(static_cast<uint8_t>(uint64_t{object.size()} >> (8 * i)));
  image->insert(image->end(), object.begin(), object.end());
}

absl::StatusOr<std::vector<std::span<const uint8_t>>> SplitImage(std::span<const uint8_t> image) {
  std::vector<std::span<const uint8_t>> objects;
  while (!image.empty()) {
    uint64_t size = 0;
    if (image.size() < 8) return absl::DataLossError("code image: truncated size");
    for (int i = 0; i < 8; ++i) size |= uint64_t{image[i]} << (8 * i);
    image = image.subspan(8);
    if (size > image.size()) {
      return absl::DataLossError(absl::StrCat("code image: an object of ", size, " bytes, ", image.size(), " left"));
    }
    objects.push_back(image.subspan(0, size));
    image = image.subspan(size);
  }
  return objects;
}

}  // namespace tenon
