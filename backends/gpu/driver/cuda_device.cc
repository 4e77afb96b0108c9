#include "backends/gpu/driver/cuda_device.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "backends/gpu/driver/copy_pieces.h"
#include "hlo/check.h"

namespace tenon::gpu {
namespace {

CuPointer Address(const void* memory) { return reinterpret_cast<CuPointer>(memory); }

absl::StatusOr<CudaFacts> FactsOf(const CudaFunctions& cuda, int ordinal, CuDevice* device) {
  CudaFacts facts{.ordinal = ordinal};
  TENON_RETURN_IF_ERROR(cuda.Check(cuda.Init(0), "starting the driver"));
  int count = 0;
  TENON_RETURN_IF_ERROR(cuda.Check(cuda.DeviceGetCount(&count), "counting devices"));
  if (ordinal >= count) return absl::UnavailableError(absl::StrCat("CUDA: wanted device ", ordinal, ", the driver has ", count));
  TENON_RETURN_IF_ERROR(cuda.Check(cuda.DriverGetVersion(&facts.driver), "asking for the driver's version"));
  TENON_RETURN_IF_ERROR(cuda.Check(cuda.DeviceGet(device, ordinal), absl::StrCat("getting device ", ordinal)));
  char name[256] = {};
  TENON_RETURN_IF_ERROR(cuda.Check(cuda.DeviceGetName(name, sizeof(name), *device), "asking for the device's name"));
  facts.name = name;
  size_t bytes = 0;
  TENON_RETURN_IF_ERROR(cuda.Check(cuda.DeviceTotalMem(&bytes, *device), "asking for the device's memory"));
  facts.memory_bytes = static_cast<int64_t>(bytes);
  const std::pair<int, int*> attributes[] = {
      {kCuMajor, &facts.major},
      {kCuMinor, &facts.minor},
      {kCuClockRate, &facts.clock_khz},
      {kCuMemoryClockRate, &facts.memory_clock_khz},
      {kCuBusWidth, &facts.bus_bits},
      {kCuMultiprocessors, &facts.sms},
      {kCuThreadsPerMultiprocessor, &facts.threads_per_sm},
      {kCuBlocksPerMultiprocessor, &facts.blocks_per_sm},
      {kCuSharedPerMultiprocessor, &facts.shared_per_sm},
      {kCuSharedPerBlockOptin, &facts.shared_per_block},
      {kCuL2Bytes, &facts.l2_bytes},
  };
  for (const auto& [attribute, to] : attributes) {
    TENON_RETURN_IF_ERROR(
        cuda.Check(cuda.DeviceGetAttribute(to, attribute, *device), absl::StrCat("asking for the device's attribute ", attribute)));
  }
  return facts;
}

}  // namespace

absl::StatusOr<GpuModel> ModelOf(const CudaFacts& facts) {
  const int capability = facts.major * 10 + facts.minor;
  const GpuModel* best = nullptr;
  for (const GpuModel& model : GpuModels()) {
    if (std::stoi(model.name.substr(3)) <= capability) best = &model;
  }
  if (best == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("GPU ", facts.name, " has compute capability ", facts.major, ".", facts.minor,
                                                   ": there are plans from ", GpuModels()[0].name, " on"));
  }
  GpuModel model = *best;
  model.product = facts.name;
  model.sms = facts.sms;
  model.threads_per_sm = facts.threads_per_sm;
  model.blocks_per_sm = facts.blocks_per_sm;
  model.shared_per_sm = facts.shared_per_sm;
  model.shared_opt_in = std::min<int64_t>(model.shared_opt_in, facts.shared_per_block);
  model.l2_bytes = facts.l2_bytes;
  // Two transfers a clock.
  if (facts.memory_clock_khz > 0 && facts.bus_bits > 0) model.bytes_per_ns = 2.0 * facts.memory_clock_khz * 1e3 * facts.bus_bits / 8 / 1e9;
  return model;
}

// Where the tables of a stream's launches lie: two halves of a range of the device's memory, filled from the same range of the host's. A
// half is used again once the launches that read it are done.
class CudaDevice::Tables {
 public:
  static constexpr size_t kHalf = size_t{256} << 10, kAlign = 256;

  explicit Tables(const CudaFunctions& cuda) : cuda_(cuda) {}
  ~Tables() {
    if (device_ != 0) cuda_.MemFree(device_);
    if (host_ != nullptr) cuda_.MemFreeHost(host_);
    for (void* event : done_) {
      if (event != nullptr) cuda_.EventDestroy(event);
    }
  }
  absl::Status Init() {
    TENON_RETURN_IF_ERROR(cuda_.Check(cuda_.MemAlloc(&device_, 2 * kHalf), "allocating memory for kernels' tables"));
    TENON_RETURN_IF_ERROR(cuda_.Check(cuda_.MemHostAlloc(&host_, 2 * kHalf, 0), "allocating pinned memory for kernels' tables"));
    for (void*& event : done_) TENON_RETURN_IF_ERROR(cuda_.Check(cuda_.EventCreate(&event, kCuEventNoTiming), "making an event"));
    return absl::OkStatus();
  }

  // Calls `launch` with the table's address, behind its copy. The lock holds till then: a half is left behind its last launch.
  absl::Status Launch(absl::Span<const uint64_t> table, void* stream, absl::FunctionRef<absl::Status(CuPointer)> launch) {
    const size_t bytes = table.size() * sizeof(uint64_t), room = (bytes + kAlign - 1) / kAlign * kAlign;
    if (room > kHalf) return absl::ResourceExhaustedError(absl::StrCat("CUDA: a kernel with a table of ", bytes, " bytes"));
    absl::MutexLock lock(&mutex_);
    if (used_ + room > kHalf) {
      TENON_RETURN_IF_ERROR(cuda_.Check(cuda_.EventRecord(done_[half_], stream), "recording an event"));
      half_ ^= 1;
      used_ = 0;
      TENON_RETURN_IF_ERROR(cuda_.Check(cuda_.EventSynchronize(done_[half_]), "waiting for kernels"));
    }
    const size_t at = half_ * kHalf + used_;
    used_ += room;
    std::copy(table.begin(), table.end(), reinterpret_cast<uint64_t*>(static_cast<char*>(host_) + at));
    TENON_RETURN_IF_ERROR(
        cuda_.Check(cuda_.MemcpyHtoDAsync(device_ + at, static_cast<char*>(host_) + at, bytes, stream), "copying a kernel's table"));
    return launch(device_ + at);
  }

 private:
  const CudaFunctions& cuda_;
  absl::Mutex mutex_;
  CuPointer device_ = 0;
  void* host_ = nullptr;
  std::array<void*, 2> done_ = {nullptr, nullptr};
  size_t half_ ABSL_GUARDED_BY(mutex_) = 0, used_ ABSL_GUARDED_BY(mutex_) = 0;
};

CudaDevice::CudaDevice(CudaFunctions cuda, CudaFacts facts) : cuda_(cuda), facts_(std::move(facts)) {}

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Open(const std::string& library, int ordinal) {
  TENON_ASSIGN_OR_RETURN(const CudaFunctions cuda, OpenCudaLibrary(library));
  CuDevice number = 0;
  TENON_ASSIGN_OR_RETURN(CudaFacts facts, FactsOf(cuda, ordinal, &number));
  std::unique_ptr<CudaDevice> device(new CudaDevice(cuda, std::move(facts)));
  device->device_ = number;
  TENON_RETURN_IF_ERROR(cuda.Check(cuda.DevicePrimaryCtxRetain(&device->context_, number), "getting the device's context"));
  TENON_RETURN_IF_ERROR(device->Within(
      [&] { return cuda.Check(cuda.StreamCreate(&device->stream_, kCuStreamNonBlocking), "making a stream"); }));
  return device;
}

CudaDevice::~CudaDevice() {
  if (context_ == nullptr) return;
  Within([&] {
    cuda_.CtxSynchronize();
    absl::MutexLock lock(&mutex_);
    tables_.clear();
    if (stream_ != nullptr) cuda_.StreamDestroy(stream_);
    return absl::OkStatus();
  }).IgnoreError();
  cuda_.DevicePrimaryCtxRelease(device_);
}

absl::Status CudaDevice::Within(absl::FunctionRef<absl::Status()> work) const {
  TENON_RETURN_IF_ERROR(cuda_.Check(cuda_.CtxPushCurrent(context_), "making the context current"));
  absl::Status status = work();
  void* popped = nullptr;
  status.Update(cuda_.Check(cuda_.CtxPopCurrent(&popped), "making the former context current"));
  return status;
}

absl::StatusOr<void*> CudaDevice::Allocate(size_t bytes) {
  CuPointer memory = 0;
  TENON_RETURN_IF_ERROR(Within([&] {
    return cuda_.Check(cuda_.MemAlloc(&memory, std::max<size_t>(bytes, 1)), absl::StrCat("allocating ", bytes, " bytes on ", facts_.name));
  }));
  return reinterpret_cast<void*>(memory);
}

void CudaDevice::Free(void* memory, void* stream) {
  if (memory == nullptr) return;
  // What may fail here failed before, and is told where somebody asks for results.
  Within([&] {
    cuda_.StreamSynchronize(stream);
    cuda_.MemFree(Address(memory));
    return absl::OkStatus();
  }).IgnoreError();
}

absl::Status CudaDevice::Synchronize(void* stream) {
  return Within([&] { return cuda_.Check(cuda_.StreamSynchronize(stream), "waiting for a stream"); });
}

absl::Status CudaDevice::CopyPieces(const DeviceCopy& copy) const {
  const auto told = [&](CuResult r, int64_t bytes) {
    const char* direction = copy.from_space == 0 ? " to the device" : copy.to_space == 0 ? " from the device" : " on the device";
    return cuda_.Check(r, absl::StrCat("copying ", bytes, " bytes", direction));
  };
  for (const CopyPiece& p : CutCopy(copy)) {
    char* to = static_cast<char*>(copy.to) + p.to;
    const char* from = static_cast<const char*>(copy.from) + p.from;
    const auto width = static_cast<size_t>(p.width);
    if (p.height > 1) {
      CuCopy2D rows{.from_type = copy.from_space == 0 ? kCuMemoryHost : kCuMemoryDevice,
                    .from_pitch = static_cast<size_t>(p.from_pitch),
                    .to_type = copy.to_space == 0 ? kCuMemoryHost : kCuMemoryDevice,
                    .to_pitch = static_cast<size_t>(p.to_pitch),
                    .width = width,
                    .height = static_cast<size_t>(p.height)};
      (copy.from_space == 0 ? void(rows.from_host = from) : void(rows.from_device = Address(from)));
      (copy.to_space == 0 ? void(rows.to_host = to) : void(rows.to_device = Address(to)));
      TENON_RETURN_IF_ERROR(told(cuda_.Memcpy2DAsync(&rows, copy.stream), p.width * p.height));
    } else if (copy.from_space == 0) {
      TENON_RETURN_IF_ERROR(told(cuda_.MemcpyHtoDAsync(Address(to), from, width, copy.stream), p.width));
    } else if (copy.to_space == 0) {
      TENON_RETURN_IF_ERROR(told(cuda_.MemcpyDtoHAsync(to, Address(from), width, copy.stream), p.width));
    } else {
      TENON_RETURN_IF_ERROR(told(cuda_.MemcpyDtoDAsync(Address(to), Address(from), width, copy.stream), p.width));
    }
  }
  if (copy.from_space != 0 && copy.to_space != 0) return absl::OkStatus();
  return cuda_.Check(cuda_.StreamSynchronize(copy.stream), copy.to_space == 0 ? "copying from the device" : "copying to the device");
}

// By way of memory of its own, dense.
absl::Status CudaDevice::CopyOverlapping(const DeviceCopy& copy) {
  std::vector<int64_t> dense(static_cast<size_t>(copy.ndim));
  int64_t count = 1;
  for (int32_t d = copy.ndim; d-- > 0; count *= copy.dims[d]) dense[static_cast<size_t>(d)] = count;
  TENON_ASSIGN_OR_RETURN(void* const between, Allocate(static_cast<size_t>(count * copy.width)));
  DeviceCopy out = copy, in = copy;
  out.to = between;
  out.to_strides = dense.data();
  in.from = between;
  in.from_strides = dense.data();
  absl::Status status = Within([&] {
    TENON_RETURN_IF_ERROR(CopyPieces(out));
    return CopyPieces(in);
  });
  Free(between, copy.stream);
  return status;
}

absl::Status CudaDevice::Copy(const DeviceCopy& copy) {
  if (copy.from_space != 0 && copy.to_space != 0) {
    const Extent to = ExtentOf(copy.to_strides, copy), from = ExtentOf(copy.from_strides, copy);
    const int64_t apart = static_cast<const char*>(copy.to) - static_cast<const char*>(copy.from);
    if (apart + to.begin < from.end && from.begin < apart + to.end) return CopyOverlapping(copy);
  }
  return Within([&] { return CopyPieces(copy); });
}

void* CudaDevice::RecordEvent(void* stream, bool timed) {
  void* event = nullptr;
  const absl::Status status = Within([&] {
    TENON_RETURN_IF_ERROR(cuda_.Check(cuda_.EventCreate(&event, timed ? 0 : kCuEventNoTiming), "making an event"));
    return cuda_.Check(cuda_.EventRecord(event, stream), "recording an event");
  });
  if (status.ok()) return event;
  ReleaseEvent(event);
  Synchronize(stream).IgnoreError();
  return nullptr;
}

void CudaDevice::WaitEvent(void* stream, void* event) {
  const absl::Status status = Within([&] { return cuda_.Check(cuda_.StreamWaitEvent(stream, event, 0), "waiting for an event"); });
  if (!status.ok()) Within([&] { return cuda_.Check(cuda_.EventSynchronize(event), "waiting for an event"); }).IgnoreError();
}

void CudaDevice::ReleaseEvent(void* event) {
  if (event != nullptr) Within([&] { return cuda_.Check(cuda_.EventDestroy(event), "releasing an event"); }).IgnoreError();
}

absl::StatusOr<double> CudaDevice::Milliseconds(void* begin, void* end) {
  float ms = 0;
  TENON_RETURN_IF_ERROR(Within([&] {
    TENON_RETURN_IF_ERROR(cuda_.Check(cuda_.EventSynchronize(end), "waiting for an event"));
    return cuda_.Check(cuda_.EventElapsedTime(&ms, begin, end), "reading the time between two events");
  }));
  return ms;
}

absl::StatusOr<void*> CudaDevice::LoadModule(const char* code) {
  void* module = nullptr;
  std::string log(size_t{16} << 10, '\0');
  int options[] = {kCuErrorLog, kCuErrorLogBytes};
  void* values[] = {log.data(), reinterpret_cast<void*>(log.size())};
  CuResult result = kCuSuccess;
  const absl::Status status = Within([&] {
    result = cuda_.ModuleLoadDataEx(&module, code, 2, options, values);
    return cuda_.Check(result, "loading a module");
  });
  if (status.ok()) return module;
  log.resize(log.find('\0'));
  return absl::Status(status.code(), absl::StrCat(std::string(status.message()), log.empty() ? "" : "\n", log));
}

void CudaDevice::UnloadModule(void* module) {
  Within([&] {
    cuda_.CtxSynchronize();
    return cuda_.Check(cuda_.ModuleUnload(module), "unloading a module");
  }).IgnoreError();
}

absl::StatusOr<CudaDevice::Function> CudaDevice::FindFunction(void* module, const std::string& symbol) {
  Function f;
  TENON_RETURN_IF_ERROR(Within([&] {
    TENON_RETURN_IF_ERROR(cuda_.Check(cuda_.ModuleGetFunction(&f.handle, module, symbol.c_str()), absl::StrCat("finding kernel ", symbol)));
    TENON_RETURN_IF_ERROR(cuda_.Check(cuda_.FuncGetAttribute(&f.registers, kCuRegisters, f.handle), "asking for a kernel's registers"));
    return cuda_.Check(cuda_.FuncGetAttribute(&f.static_shared, kCuStaticShared, f.handle), "asking for a kernel's shared memory");
  }));
  return f;
}

absl::Status CudaDevice::AllowShared(const Function& function, int64_t dynamic_bytes) {
  if (dynamic_bytes + function.static_shared > facts_.shared_per_block) {
    return absl::ResourceExhaustedError(absl::StrCat("CUDA: a kernel wants ", dynamic_bytes + function.static_shared,
                                                     " bytes of shared memory, ", facts_.name, " has ", facts_.shared_per_block));
  }
  return Within([&] {
    return cuda_.Check(cuda_.FuncSetAttribute(function.handle, kCuMaxDynamicShared, static_cast<int>(dynamic_bytes)),
                       absl::StrCat("allowing a kernel ", dynamic_bytes, " bytes of shared memory"));
  });
}

absl::StatusOr<CudaDevice::Tables*> CudaDevice::TablesOf(void* stream) {
  absl::MutexLock lock(&mutex_);
  std::unique_ptr<Tables>& tables = tables_[stream];
  if (tables == nullptr) {
    auto made = std::make_unique<Tables>(cuda_);
    TENON_RETURN_IF_ERROR(made->Init());
    tables = std::move(made);
  }
  return tables.get();
}

absl::Status CudaDevice::Launch(const Function& function, const std::string& name, const Grid& grid, absl::Span<const uint64_t> table,
                                void* stream) {
  constexpr int64_t kMost[] = {std::numeric_limits<int32_t>::max(), 65535, 65535};
  const std::string what = absl::StrCat("launching ", name, ", grid (", absl::StrJoin(grid.grid, ","), ") block (",
                                        absl::StrJoin(grid.block, ","), ")");
  for (size_t d = 0; d < 3; ++d) {
    if (grid.grid[d] > kMost[d]) return absl::ResourceExhaustedError(absl::StrCat("CUDA: ", what, ": no GPU takes so many blocks"));
  }
  return Within([&]() -> absl::Status {
    TENON_ASSIGN_OR_RETURN(Tables* const tables, TablesOf(stream));
    return tables->Launch(table, stream, [&](CuPointer there) {
      void* params[] = {&there};
      const auto u = [](int64_t n) { return static_cast<unsigned>(n); };
      return cuda_.Check(cuda_.LaunchKernel(function.handle, u(grid.grid[0]), u(grid.grid[1]), u(grid.grid[2]), u(grid.block[0]),
                                            u(grid.block[1]), u(grid.block[2]), u(grid.dynamic_shared), stream, params, nullptr),
                         what);
    });
  });
}

}  // namespace tenon::gpu
