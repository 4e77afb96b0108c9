#include "tools/lab/gpu/image.h"

#include <sys/mman.h>

#include "absl/strings/str_cat.h"
#include "hlo/check.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"

namespace tenon::gpu {
namespace {

constexpr size_t kBank = 128, kRed = 256;

}  // namespace

const char* SpaceName(Space space) {
  switch (space) {
    case Space::kGeneric:
      return "generic";
    case Space::kGlobal:
      return "global";
    case Space::kShared:
      return "shared";
    case Space::kConstant:
      return "constant";
    case Space::kLocal:
      return "local";
  }
  return "?";
}

// Offsets come with `globals` as their alignments.
SharedArena::SharedArena(std::vector<SharedGlobal> globals, size_t dynamic_align) : globals_(std::move(globals)) {
  size_t next = kRed;
  const auto place = [&](size_t align, size_t size) {
    size_t at = next;
    // An odd multiple of what was asked for, so that nobody gets more alignment than that by luck.
    if (align < kBank) at += align;
    at = (at + align - 1) / align * align;
    next = (at + size + kRed + kBank - 1) / kBank * kBank;
    return at;
  };
  for (SharedGlobal& g : globals_) g.offset = place(g.offset, g.size);
  dynamic_offset_ = place(dynamic_align, static_cast<size_t>(kAllShared));
  size_ = (next + 4095) / 4096 * 4096;
  void* memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TENON_CHECK(memory != MAP_FAILED, "no memory for the emulator's shared memory");
  base_ = static_cast<char*>(memory);
  shadow_ = Shadow::Map(size_);
}

SharedArena::~SharedArena() {
  munmap(base_, size_);
  shadow_.Unmap(size_);
}

std::string SharedArena::Describe(size_t offset, size_t dynamic_bytes) const {
  std::string nearest = "in shared memory that nobody has";
  size_t distance = size_;
  const auto look = [&](const std::string& name, size_t begin, size_t size) {
    const std::string what = absl::StrCat(name, " (", size, " bytes of shared memory)");
    if (offset >= begin && offset < begin + size) {
      distance = 0;
      nearest = absl::StrCat("byte ", offset - begin, " of ", what);
    } else if (offset >= begin + size && offset - (begin + size) < distance) {
      distance = offset - (begin + size);
      nearest = absl::StrCat(distance, " bytes behind the end of ", what);
    } else if (offset < begin && begin - offset < distance) {
      distance = begin - offset;
      nearest = absl::StrCat(distance, " bytes before ", what);
    }
  };
  for (const SharedGlobal& g : globals_) look(absl::StrCat("@", g.name), g.offset, g.size);
  look("the dynamic array", dynamic_offset_, dynamic_bytes);
  return nearest;
}

EmulatedModule::Image::Image() = default;
EmulatedModule::Image::~Image() = default;

}  // namespace tenon::gpu
