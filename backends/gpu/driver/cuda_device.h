// CudaDevice: one GPU by CUDA's driver: its memory, streams, events, copies and launches. Thread-safe.
//
// It uses the device's primary context, which is that of CUDA's runtime and so of PyTorch, and makes it current for the length of each
// call. Work on a stream may be still to come when a call returns; what it meets, a later call of that stream tells (IsSticky).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "backends/gpu/driver/functions.h"
#include "backends/gpu/plan/gpu_model.h"
#include "runtime/execute/device.h"

namespace tenon::gpu {

struct CudaFacts {
  std::string name;   // "NVIDIA H100 80GB HBM3"
  int ordinal = 0;    // as the driver counts
  int driver = 0;     // 13000: the version of CUDA that the driver has, 13.0
  int major = 0, minor = 0;  // compute capability
  int64_t memory_bytes = 0;
  int clock_khz = 0, memory_clock_khz = 0, bus_bits = 0;  // 0: the driver doesn't say
  int sms = 0, threads_per_sm = 0, blocks_per_sm = 0, shared_per_sm = 0, l2_bytes = 0;
  int shared_per_block = 0;  // with the opt-in
};

// The row of GpuModels for the capability, or the next lower one's, with the device's own numbers. InvalidArgument: it is older than all.
absl::StatusOr<GpuModel> ModelOf(const CudaFacts& facts);

class CudaDevice : public Device {
 public:
  // `library`: OpenCudaLibrary's. Unavailable: no driver, no such device.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Open(const std::string& library = "", int ordinal = 0);
  ~CudaDevice() override;  // nothing of it is in use
  CudaDevice(const CudaDevice&) = delete;

  const CudaFacts& facts() const { return facts_; }
  const CudaFunctions& functions() const { return cuda_; }
  // The stream of who has none of his own. It doesn't wait for stream null.
  void* stream() const { return stream_; }

  // Aligned to 256. ResourceExhausted: says how much was wanted.
  absl::StatusOr<void*> Allocate(size_t bytes);
  // Waits for what the stream was given before.
  void Free(void* memory, void* stream);
  absl::Status Copy(const DeviceCopy& copy) override;
  absl::Status Synchronize(void* stream);
  // Null: the work on the stream is done.
  void* RecordEvent(void* stream, bool timed = false);
  void WaitEvent(void* stream, void* event);
  void ReleaseEvent(void* event);
  // Between two timed events, waiting for the second.
  absl::StatusOr<double> Milliseconds(void* begin, void* end);

  // A module of PTX, or what the library takes besides, that ends in a 0. InvalidArgument: refused, with the driver's log.
  absl::StatusOr<void*> LoadModule(const char* code);
  void UnloadModule(void* module);  // waits for all work
  struct Function {
    void* handle = nullptr;
    int registers = 0, static_shared = 0;
  };
  absl::StatusOr<Function> FindFunction(void* module, const std::string& symbol);
  // So that launches may have that many bytes of dynamic shared memory.
  absl::Status AllowShared(const Function& function, int64_t dynamic_bytes);
  // Copies `table` to the device's memory and starts the function with its address. `name`: for messages.
  struct Grid {
    std::array<int64_t, 3> grid = {1, 1, 1};
    std::array<int32_t, 3> block = {1, 1, 1};
    int64_t dynamic_shared = 0;
  };
  absl::Status Launch(const Function& function, const std::string& name, const Grid& grid, absl::Span<const uint64_t> table, void* stream);

 private:
  class Tables;
  CudaDevice(CudaFunctions cuda, CudaFacts facts);
  // With the context current; its error, or what `work` returns.
  absl::Status Within(absl::FunctionRef<absl::Status()> work) const;
  absl::Status CopyPieces(const DeviceCopy& copy) const;
  absl::Status CopyOverlapping(const DeviceCopy& copy);
  absl::StatusOr<Tables*> TablesOf(void* stream);

  const CudaFunctions cuda_;
  CudaFacts facts_;
  CuDevice device_ = 0;
  void* context_ = nullptr;
  void* stream_ = nullptr;
  absl::Mutex mutex_;
  absl::flat_hash_map<void*, std::unique_ptr<Tables>> tables_ ABSL_GUARDED_BY(mutex_);  // by stream
};

}  // namespace tenon::gpu
