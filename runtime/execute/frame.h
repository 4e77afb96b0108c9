// Frame: the state of one call of an executable. FramePool: frames kept between calls, so that a
// call finds its arena mapped and its wrappers made.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "runtime/execute/bound_program.h"
#include "runtime/execute/library_step.h"
#include "runtime/execute/shares.h"
#include "runtime/execute/update_overlap.h"
#include "runtime/guarded_memory.h"
#include "runtime/profile/run_trace.h"

namespace tenon {

// Memory from the host, in one space: freed with the object, grown by Reserve. Under TENON_GUARD (guarded_memory.h) each Reserve takes
// memory of exactly the size that is asked for.
class HostBuffer {
 public:
  explicit HostBuffer(const TenonHost* host, int32_t space = 0) : host_(host), space_(space) {}
  ~HostBuffer() { Free(); }
  HostBuffer(const HostBuffer&) = delete;
  // Contents are lost when it grows. Error: kResourceExhausted, "out of memory: wanted N bytes for
  // `what`". `stream`: of a device's memory, that it will be used on.
  absl::Status Reserve(int64_t bytes, const char* what, void* stream = nullptr);
  void Free();
  char* data() const { return data_; }
  int64_t size() const { return size_; }

 private:
  const TenonHost* host_;
  const int32_t space_;
  void* stream_ = nullptr;
  const bool exact_ = GuardOfEnvironment() != MemoryGuard::kOff;
  char* data_ = nullptr;
  int64_t size_ = 0;
};

// A call's intermediate results in one memory. Under TENON_GUARD each has a block of its own.
class FrameArena {
 public:
  FrameArena(const BoundArena* bound, const TenonHost* host, int32_t space = 0);
  // Memory for the values and, by value, their addresses. `dims`: of the dim program; `stream`: as HostBuffer's.
  absl::Status Place(const Program& program, absl::Span<const int64_t> dims, void* stream, std::vector<char*>* base);
  // Addresses of what lies in outputs, whose memory differs from call to call.
  void PlaceLent(const TenonTensor* outputs, std::vector<char*>* base) const;
  void Free() { buffer_.Free(); }
  bool Holds(const char* p) const;
  const std::vector<LentValue>& lent() const { return lent_; }
  int64_t size() const { return buffer_.size(); }
  char* data() const { return buffer_.data(); }
  int64_t used() const { return used_; }  // what the sizes of the last call need

 private:
  absl::Status PlaceApart(const Program& program, absl::Span<const int64_t> dims, void* stream, std::vector<char*>* base);

  const BoundArena& bound_;
  HostBuffer buffer_;
  PlaceMemory memory_;
  // What the addresses were last written for.
  const ArenaPlaces* places_ = nullptr;
  const char* data_ = nullptr;
  std::vector<LentValue> lent_;  // the program's, then those of `places_`
  int64_t used_ = 0;
  std::vector<std::unique_ptr<HostBuffer>> apart_;  // a block for each value, anew for each run
};

class Frame {
 public:
  explicit Frame(const BoundProgram* bound);
  ~Frame();  // gives wrappers back to the host
  Frame(const Frame&) = delete;

  // Before the steps: sizes, memory, addresses of inputs and outputs.
  absl::Status Begin(const TenonTensor* inputs, TenonTensor* outputs);
  // After the steps, however they ended: gives back what is left in slots. The frame can be used
  // again.
  void End();
  // When a run begins, or before the program's arena_step. Errors: out of memory.
  absl::Status PlaceArena() { return arena.Place(bound.program, dims, nullptr, &base); }

  char* Address(const BoundView& v) const {
    return base[v.value] + (v.is_static ? v.byte_offset : Resolve(v.view->byte_offset, dims));
  }
  void SetSlot(int32_t slot, const TenonTensor& tensor);
  void ReleaseSlot(int32_t slot);
  // `bytes` of scratch for a step, in `room` if they fit, else in `scratch`.
  absl::StatusOr<char*> ScratchFor(const FreeMemory& room, int64_t bytes);
  absl::Status ReserveScratch(int64_t bytes) { return scratch.Reserve(bytes, "scratch of a step"); }
  // At least `count` of them, of the kernel being run.
  OpenShare* Shares(int64_t count) {
    if (static_cast<int64_t>(shares_.size()) < count) shares_ = std::vector<OpenShare>(static_cast<size_t>(count));
    return shares_.data();
  }
  int64_t bytes() const { return arena.size() + scratch.size(); }  // of the host's memory
  bool InArena(const char* p) const { return arena.Holds(p); }  // is it the address of an intermediate result?

  const BoundProgram& bound;
  std::vector<int64_t> dims;       // the dim program's slots
  std::vector<int64_t> metas;      // dims and strides of symbolic views, by BoundView::meta
  std::vector<char*> base;         // per value
  std::vector<TenonTensor> slots;  // tensor NULL: empty
  std::vector<void*> caches;       // the host's wrappers
  std::vector<void*> pointers;     // of the kernel being run
  std::vector<int64_t> args;       // of the kernel or the launch group being run, those that are symbolic
  std::vector<GroupedKernel> grouped;  // of the launch group being run, as the next; never grow in a run
  std::vector<int64_t> work_ends;
  std::vector<TenonTensor> operands, results;  // of the framework call being made
  std::vector<int64_t> numbers;                // likewise
  FrameArena arena;  // of the host's memory
  HostBuffer scratch;
  // Of a device (BoundProgram::devices).
  struct OnDevice {
    FrameArena arena;
    void* stream = nullptr;  // of this call
    void* done = nullptr;    // an event of the host's, behind what the last call did; null: nothing to wait for
    OnDevice(const BoundDevice& device, const TenonHost* host) : arena(&device.arena, host, device.space) {}
  };
  std::vector<std::unique_ptr<OnDevice>> devices;
  // A run has come to its end: its calls gave what was expected of them. Before that inputs are not written in place where a call follows,
  // so that the run can be done again otherwise.
  bool proven = false;
  bool updates_apart = false;  // in this run new values of inputs are made in `updates`, and copied home by the commit region
  bool wrote_inputs = false;  // in this run the caller's inputs may have new values: it must not be done again
  std::vector<std::unique_ptr<HostBuffer>> updates;  // by BoundProgram::update_values: where they cannot be made in the inputs' memory
  alignas(64) std::atomic<int64_t> error_word{0};
  library::RunState library_state;
  std::vector<LibrarySizes> library_sizes;  // by BoundLibrary::sizes

  // Of this call.
  const TenonTensor* inputs = nullptr;
  TenonTensor* outputs = nullptr;
  uint8_t* owned = nullptr;  // inputs whose references are ours to give back; NULL: none
  int num_threads = 0;       // 0: not asked yet
  RunTrace trace;            // of a profiled run

 private:
  absl::Status PlaceDevices();
  absl::Status PlaceUpdates();
  void ResolveMetas();
  void Resolve1(const BoundView& view);

  UpdateOverlap overlap_;
  std::vector<OpenShare> shares_;
};

// Keeps at most as many frames as ran at once since the last trim. Frames idle for some seconds are
// freed by whichever executable runs next (or by TrimIdle). Thread-safe.
class FramePool {
 public:
  explicit FramePool(const BoundProgram* bound);
  ~FramePool();

  std::unique_ptr<Frame> Take();
  void Give(std::unique_ptr<Frame> frame);
  int64_t idle_frames() const;

  // Frees the frames of every pool in the process that weren't used for `seconds`.
  static void TrimIdle(double seconds);
  // Around fork(): no lock of any pool may be held by another thread when the child is made.
  static void LockAll();
  static void UnlockAll();

 private:
  std::vector<std::unique_ptr<Frame>> TakeIdle(uint64_t before);
  void MaybeTrimOthers(uint64_t now);

  const BoundProgram* bound_;
  std::atomic<Frame*> hot_{nullptr};  // the frame of the single-threaded case
  std::atomic<uint64_t> last_use_;
  mutable std::mutex mutex_;  // held across a fork: runtime/fork.h
  std::vector<std::unique_ptr<Frame>> idle_;
};

}  // namespace tenon
