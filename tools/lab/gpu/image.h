// What Load makes of a module: host code, and the tables that the running launch needs. Of the emulator's own files only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tools/lab/gpu/emulator.h"
#include "tools/lab/gpu/shadow.h"

namespace llvm::orc {
class LLJIT;
}

namespace tenon::gpu {

enum class Space : uint8_t { kGeneric = 0, kGlobal = 1, kShared = 3, kConstant = 4, kLocal = 5 };  // as LLVM numbers them
const char* SpaceName(Space space);

// An instruction that the generated code tells the emulator of, by its index.
struct Site {
  std::string instruction, function;
  uint32_t size = 0, align = 1;  // bytes of an access; 0: told at run time
  bool read = false, write = false, atomic = false;
  Space space = Space::kGeneric;
};

// Shared memory is one range per module. Each global has a place of its own, with memory between that is nobody's, aligned to what it
// asks for and no better; the dynamic arrays of a kernel all begin at the last place.
struct SharedGlobal {
  std::string name;
  size_t offset = 0, size = 0;
};
class SharedArena {
 public:
  explicit SharedArena(std::vector<SharedGlobal> globals, size_t dynamic_align);
  ~SharedArena();
  SharedArena(const SharedArena&) = delete;

  char* base() const { return base_; }
  size_t size() const { return size_; }
  const std::vector<SharedGlobal>& globals() const { return globals_; }
  size_t dynamic_offset() const { return dynamic_offset_; }
  const Shadow& shadow() const { return shadow_; }
  // "byte 12 of tile (128 bytes of shared memory)", "4 bytes behind the end of tile ..."
  std::string Describe(size_t offset, size_t dynamic_bytes) const;

 private:
  std::vector<SharedGlobal> globals_;
  size_t dynamic_offset_, size_;
  char* base_;
  Shadow shadow_;
};
inline constexpr int64_t kStaticShared = 48 << 10, kAllShared = 227 << 10;

struct ConstantRange {
  std::string name;
  uintptr_t begin = 0;
  size_t size = 0;
};

struct Kernel {
  std::string name;
  std::vector<uint64_t> param_aligns;  // what pointers are promised to be aligned to; 1: nothing
  std::vector<bool> param_is_pointer;
  std::vector<size_t> shared;                        // indices of the arena's globals that it reaches
  bool blocks = false;                               // some thread may have to wait for another
  int64_t max_threads = 1024, required_threads = 0;  // of a block; nvvm.maxntid, nvvm.reqntid
  void (*entry)(void* const* params) = nullptr;
};

struct EmulatedModule::Image {
  std::vector<Site> sites;
  std::unique_ptr<SharedArena> shared;
  std::vector<ConstantRange> constants;  // by address
  std::vector<Kernel> kernels;
  std::unique_ptr<llvm::orc::LLJIT> jit;
  Image();
  ~Image();
};

}  // namespace tenon::gpu
