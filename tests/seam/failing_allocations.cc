#include "tests/seam/failing_allocations.h"

#include <elf.h>
#include <execinfo.h>
#include <link.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

thread_local bool armed = false;
int64_t allocations = 0, fails_at = 0;
bool and_all_later = false;

struct Code {
  uintptr_t begin = 0, end = 0;
};

// The functions of Abseil's tables in a library, found in its symbol table.
void AddTables(const std::string& path, uintptr_t base, std::vector<Code>* to) {
  std::ifstream file(path, std::ios::binary);
  const std::string image{std::istreambuf_iterator<char>(file), {}};
  if (image.size() < sizeof(Elf64_Ehdr)) return;
  const auto& header = *reinterpret_cast<const Elf64_Ehdr*>(image.data());
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(image.data() + header.e_shoff);
  for (int k = 0; k < header.e_shnum; ++k) {
    if (sections[k].sh_type != SHT_SYMTAB) continue;
    const auto* symbols = reinterpret_cast<const Elf64_Sym*>(image.data() + sections[k].sh_offset);
    const char* names = image.data() + sections[sections[k].sh_link].sh_offset;
    for (size_t s = 0; s < sections[k].sh_size / sizeof(Elf64_Sym); ++s) {
      if (ELF64_ST_TYPE(symbols[s].st_info) != STT_FUNC || std::strstr(names + symbols[s].st_name, "raw_hash_") == nullptr) continue;
      to->push_back({base + symbols[s].st_value, base + symbols[s].st_value + symbols[s].st_size});
    }
  }
}

// The data of the library of Abseil's tables.
Code tables_data;

int AddForeign(dl_phdr_info* info, size_t, void* to) {
  auto* code = static_cast<std::vector<Code>*>(to);
  const std::string_view name = info->dlpi_name;
  if (name.find("libtenon.so") != name.npos) AddTables(info->dlpi_name, info->dlpi_addr, code);
  for (int k = 0; k < info->dlpi_phnum; ++k) {
    const auto& p = info->dlpi_phdr[k];
    if (name.find("libabsl_raw_hash_set") != name.npos && p.p_type == PT_LOAD) {
      if (tables_data.begin == 0) tables_data.begin = info->dlpi_addr + p.p_vaddr;
      tables_data.end = info->dlpi_addr + p.p_vaddr + p.p_memsz;
    }
    if (name.find("libLLVM") == name.npos) continue;
    if (p.p_type != PT_LOAD || (p.p_flags & PF_X) == 0) continue;
    code->push_back({info->dlpi_addr + p.p_vaddr, info->dlpi_addr + p.p_vaddr + p.p_memsz});
  }
  return 0;
}

// By where it begins.
const std::vector<Code>& ForeignCode() {
  static const auto* code = [] {
    auto* found = new std::vector<Code>;
    dl_iterate_phdr(AddForeign, found);
    std::sort(found->begin(), found->end(), [](const Code& a, const Code& b) { return a.begin < b.begin; });
    return found;
  }();
  return *code;
}

bool InsideForeignCode() {
  void* frames[128];
  const int count = backtrace(frames, 128);
  const std::vector<Code>& code = ForeignCode();
  for (int k = 0; k < count; ++k) {
    const auto at = reinterpret_cast<uintptr_t>(frames[k]);
    const auto after = std::upper_bound(code.begin(), code.end(), at, [](uintptr_t x, const Code& c) { return x < c.begin; });
    if (after != code.begin() && at < std::prev(after)->end) return true;
  }
  return false;
}

bool Fails() {
  if (!armed) return false;
  const int64_t number = ++allocations;
  if (number < fails_at || (number > fails_at && !and_all_later)) return false;
  return !InsideForeignCode();
}

// A table whose first allocation fails in a function that it is inlined into, so that no frame tells, frees the constant that stands
// for an empty one.
void Free(void* memory) {
  const auto at = reinterpret_cast<uintptr_t>(memory);
  if (at < tables_data.begin || at >= tables_data.end) std::free(memory);
}

void* Allocate(size_t bytes, size_t alignment) {
  if (Fails()) throw std::bad_alloc();
  void* memory = alignment <= alignof(std::max_align_t) ? std::malloc(bytes == 0 ? 1 : bytes)
                                                        : std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes, 1); }
void* operator new[](size_t bytes) { return Allocate(bytes, 1); }
void* operator new(size_t bytes, std::align_val_t alignment) { return Allocate(bytes, static_cast<size_t>(alignment)); }
void* operator new[](size_t bytes, std::align_val_t alignment) { return Allocate(bytes, static_cast<size_t>(alignment)); }
// Sanitizers have their own of those that do not throw; ours must come in pairs.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return Fails() ? nullptr : std::malloc(bytes == 0 ? 1 : bytes); }
void* operator new[](size_t bytes, const std::nothrow_t& t) noexcept { return operator new(bytes, t); }
void* operator new(size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  const auto at = static_cast<size_t>(alignment);
  return Fails() ? nullptr : std::aligned_alloc(at, (bytes + at) / at * at);
}
void* operator new[](size_t bytes, std::align_val_t alignment, const std::nothrow_t& t) noexcept {
  return operator new(bytes, alignment, t);
}
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete[](void* memory) noexcept { Free(memory); }
void operator delete(void* memory, size_t) noexcept { Free(memory); }
void operator delete[](void* memory, size_t) noexcept { Free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { Free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { Free(memory); }

namespace seam {

void FailAllocation(int64_t number, bool later) {
  allocations = 0, fails_at = number, and_all_later = later;
  armed = true;
}

int64_t StopFailing() {
  armed = false;
  return allocations;
}

void FindForeignCode() {
  void* frames[4];
  backtrace(frames, 4);  // loads what it needs
  ForeignCode();
}

bool KnowsWhoAllocates() { return ForeignCode().size() >= 100; }

Disarmed::Disarmed() : before_(std::exchange(armed, false)) {}
Disarmed::~Disarmed() { armed = before_; }

}  // namespace seam
