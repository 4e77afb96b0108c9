#include "runtime/build_id.h"

#include <link.h>

#include <cstring>

#include "absl/strings/escaping.h"

namespace tenon {
namespace {

// The object that contains the address.
struct Search {
  uintptr_t address;
  std::string id;
};

int Visit(dl_phdr_info* info, size_t, void* data) {
  auto* search = static_cast<Search*>(data);
  bool inside = false;
  for (int k = 0; k < info->dlpi_phnum; ++k) {
    const auto& segment = info->dlpi_phdr[k];
    const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
    inside |= segment.p_type == PT_LOAD && search->address >= begin &&
              search->address < begin + segment.p_memsz;
  }
  for (int k = 0; inside && k < info->dlpi_phnum; ++k) {
    const auto& segment = info->dlpi_phdr[k];
    if (segment.p_type != PT_NOTE) continue;
    const char* at = reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr);
    const char* end = at + segment.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      const auto* note = reinterpret_cast<const ElfW(Nhdr)*>(at);
      const char* name = at + sizeof(*note);
      const char* value = name + (note->n_namesz + 3) / 4 * 4;
      if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 &&
          std::memcmp(name, "GNU", 4) == 0) {
        search->id = absl::BytesToHexString(absl::string_view(value, note->n_descsz));
      }
      at = value + (note->n_descsz + 3) / 4 * 4;
    }
  }
  return inside ? 1 : 0;
}

}  // namespace

std::string BuildIdOf(const void* address) {
  Search search{reinterpret_cast<uintptr_t>(address), ""};
  dl_iterate_phdr(Visit, &search);
  return search.id.empty() ? "unknown" : search.id;
}

}  // namespace tenon
