// The running launch: threads as fibres, who waits for what, and the checks that generated code calls. Of the emulator's own files only.
//
// There is one Machine per process, used under TheEmulatedMemory()'s lock. Functions of it that run on a fibre never return into generated
// code after Fail: the fibre is given up where it stands, so nothing on its stack may own memory then (strings are swapped away).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tools/lab/gpu/emulated_memory.h"
#include "tools/lab/gpu/fibre.h"
#include "tools/lab/gpu/image.h"
#include "tools/lab/gpu/random_order.h"

namespace tenon::gpu {

// What a thread of a warp brings to an operation of several lanes, and takes from it (warp_ops.def).
enum class WarpOp : uint32_t {
#define TENON_WARP_OP(name, text) k##name,
#include "tools/lab/gpu/warp_ops.def"
};
const char* WarpOpName(WarpOp op);
enum class BarrierKind : uint32_t { kSync, kPopcount, kAnd, kOr };
struct WarpArgs {
  uint64_t a = 0;
  uint32_t b = 0, c = 0;
  const void* in = nullptr;  // fragments of a matrix product
  void* out = nullptr;
  uint64_t result = 0;  // the low 32 bits, and a predicate in bit 32
};

// cp.async: bytes on their way from global to shared memory. They arrive as late as the program allows.
struct AsyncCopy {
  uintptr_t to, from;
  uint32_t bytes, from_bytes;  // zeros behind from_bytes
  uint32_t site;
};

struct Thread {
  enum class State : uint8_t { kReady, kAtBarrier, kAtWarpOp, kExited };
  Context context;
  State state = State::kReady;
  uint32_t index = 0, lane = 0, warp = 0;
  std::array<uint32_t, 3> id = {};
  uint32_t site = 0;  // where it waits
  uint32_t barrier = 0;
  uint32_t predicate = 0;  // of a reducing barrier: the argument, then the result
  uint32_t mask = 0;       // of an operation of lanes
  WarpOp op = {};
  WarpArgs* args = nullptr;
  absl::InlinedVector<std::pair<uintptr_t, size_t>, 4> locals;  // its allocas that live
  std::vector<AsyncCopy> copies;  // begun and not done, in order; the committed groups of them first, the rest in no group
  std::vector<size_t> groups;     // how many copies each has
};

class Machine {
 public:
  absl::Status Run(const EmulatedModule::Image& image, const Kernel& kernel, const LaunchConfig& config, void* const* params,
                   const EmulatorOptions& options, LaunchCounts* counts);

  // Called by generated code, on a fibre.
  void Access(uintptr_t address, size_t size, uint32_t site);
  uint32_t Barrier(uint32_t id, uint32_t count, BarrierKind kind, uint32_t predicate, bool aligned, uint32_t site);
  uint64_t Collective(WarpOp op, uint32_t mask, WarpArgs& args, uint32_t site);
  void Step(uint32_t site) {
    if (--steps_left_ < 0) [[unlikely]]
      Runaway(site);
  }
  void BeginCopy(const AsyncCopy& copy);  // copy.site is the write's, the site behind it the read's
  void CommitCopies();
  void WaitForCopies(size_t groups);  // all but the last `groups` groups are done then
  void WaitForAllCopies();
  void EnterFunction(const void* frame, uint32_t site);
  void AddLocal(uintptr_t address, size_t size) { current_->locals.emplace_back(address, size); }
  void DropLocals(uint32_t n) { current_->locals.resize(current_->locals.size() - n); }
  [[noreturn]] void Fail(absl::StatusCode code, std::string what, uint32_t site);

  const Thread& current() const { return *current_; }
  const Site& site(uint32_t index) const { return image_->sites[index]; }
  const LaunchConfig& config() const { return *config_; }
  const std::array<uint32_t, 3>& block() const { return block_; }
  uint32_t threads() const { return static_cast<uint32_t>(threads_.size()); }

 private:
  struct NamedBarrier {
    uint32_t count = 0;  // who it waits for; 0: nobody is there
    BarrierKind kind = {};
    std::vector<uint32_t> waiting;
  };
  // Lanes of one warp that wait for the rest of their mask.
  struct Group {
    WarpOp op;
    uint32_t mask, site, arrived;
  };
  struct Warp {
    uint32_t lanes = 0, exited = 0;
    absl::InlinedVector<Group, 2> groups;
    uint64_t time = 0;  // of the last barrier of all of its lanes
  };

  // machine.cc
  absl::Status Prepare(void* const* params);
  absl::Status RunBlocks();
  void RunBlock(int64_t block);
  void MakeThreads();
  static void ThreadMain();
  static void SerialMain();
  [[noreturn]] void Runaway(uint32_t site);
  std::string Place(uint32_t site) const;

  // schedule.cc
  void Enqueue(absl::Span<uint32_t> threads);
  void Wait(Thread::State state, uint32_t site);
  void SwitchToNext();
  absl::Status Stuck() const;
  std::string DescribeThreads(absl::Span<const uint32_t> threads) const;
  void ReleaseBarrier(NamedBarrier& barrier, bool aligned, uint32_t site);
  void Synchronize(absl::Span<const uint32_t> threads);
  void WidenClocks();

  // warp_ops.cc
  void Complete(WarpOp op, uint32_t mask, uint32_t warp, uint32_t site);

  // access.cc
  void AccessGlobal(uintptr_t address, size_t size, const Site& s, uint32_t site);
  void AccessShared(uintptr_t address, size_t size, const Site& s, uint32_t site);
  void AccessElsewhere(uintptr_t address, size_t size, const Site& s, uint32_t site);
  void CheckWritten(const Shadow& shadow, size_t offset, size_t size, const Site& s, uint32_t site, bool shared);
  void CheckRace(const Shadow& shadow, size_t offset, size_t size, const Site& s, uint32_t site, bool shared);
  [[noreturn]] void FailAccess(absl::StatusCode code, const char* what, uintptr_t address, size_t size, const Site& s, uint32_t site,
                               std::string more = "");
  std::string DescribeAddress(uintptr_t address) const;
  std::string DescribeAccess(uint64_t s) const;
  bool InShared(uintptr_t address) const { return address - shared_base_ < shared_size_; }

  // async_copies.cc
  void FinishCopies(size_t n);

  // counts.cc
  void CountBlock();
  struct Recorded {
    uintptr_t address;
    uint32_t size;
  };

  // Of the launch.
  const EmulatedModule::Image* image_ = nullptr;
  const Kernel* kernel_ = nullptr;
  const LaunchConfig* config_ = nullptr;
  const EmulatorOptions* options_ = nullptr;
  LaunchCounts* counts_ = nullptr;
  void* const* params_ = nullptr;
  EmulatedMemory* memory_ = nullptr;
  absl::Status error_;
  int64_t steps_left_ = 0;
  RandomOrder order_{0};
  uintptr_t shared_base_ = 0;
  size_t shared_size_ = 0;
  std::vector<SharedGlobal> shared_;                                        // what the kernel may touch, its dynamic array last
  std::vector<EmulatedMemory::Allocation> last_;                            // by site: the allocation it touched last
  std::vector<std::pair<uint64_t, std::array<uint32_t, 3>>> block_starts_;  // by time
  std::vector<std::vector<std::vector<Recorded>>> recorded_;                // by site, by thread of the block

  // Of the block.
  std::array<uint32_t, 3> block_ = {};
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::array<NamedBarrier, 16> barriers_;
  std::vector<uint32_t> ready_;  // a ring: [head, head + count)
  size_t ready_head_ = 0, ready_count_ = 0;
  uint32_t exited_ = 0;
  Thread* current_ = nullptr;

  // Time never goes back: shadows outlive launches.
  uint64_t now_ = 1;
  uint64_t launch_start_ = 0, block_start_ = 0, last_barrier_ = 0;
  std::vector<uint64_t> clocks_;  // thread x clock_width_: see Order::clocks
  uint32_t clock_width_ = 32;
  bool clocks_used_ = false;

  Stacks stacks_;
  Context home_;
  Context serial_;  // of the fibre that runs all threads of a kernel in which none waits
};

// Of this process.
Machine& TheMachine();

}  // namespace tenon::gpu
