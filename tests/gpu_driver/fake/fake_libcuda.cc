// A libcuda.so.1 without a GPU: the functions of backends/gpu/driver/functions.def on the emulator, whose modules are LLVM bitcode in
// LLVM's wrapper (GpuOptions::bitcode). It is as late and as strict as the driver may be: work is done when somebody waits for it, pinned
// memory is read then, freed memory and unloaded modules are gone at once, every call wants a current context, and after a kernel that
// failed every call fails. Only kernels of one parameter, tenon's table, are known.
//
// The environment says, at each call:
//   TENON_FAKE_CUDA_FAIL=cuMemAlloc_v2:2[:3]  that function gives error 2 (the fourth call from now on; "kernel": a kernel, when it runs)
//   TENON_FAKE_CUDA_CAPABILITY=8.6, TENON_FAKE_CUDA_DEVICES=0, TENON_FAKE_CUDA_SEED=7 (EmulatorOptions::order_seed)
//   CUDA_LAUNCH_BLOCKING=1                    launches wait, as the driver's do
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "backends/gpu/driver/functions.h"
#include "tools/lab/gpu/emulated_memory.h"
#include "tools/lab/gpu/emulator.h"

namespace tenon::gpu {
namespace {

using Clock = std::chrono::steady_clock;
using Task = std::function<CuResult()>;

constexpr CuResult kInvalidValue = 1, kInvalidContext = 201, kInvalidHandle = 400, kNotFound = 500, kLaunchOutOfResources = 701;
constexpr uint32_t kBitcodeWrapper = 0x0b17c0de;

struct Stream {
  std::deque<Task> tasks;
  uint64_t given = 0, done = 0;  // tasks, ever
};
struct Event {
  Stream* stream = nullptr;
  uint64_t at = 0;  // tasks of the stream before it
  bool timed = false;
  Clock::time_point time;
};
struct Module {
  std::shared_ptr<EmulatedModule> code;
  bool unloaded = false;
};
struct Function {
  std::shared_ptr<Module> module;
  std::string name;
  int max_dynamic = 48 << 10;
};

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

class Fake {
 public:
  std::recursive_mutex mutex;
  CuResult sticky = kCuSuccess;
  std::map<void*, std::unique_ptr<Stream>> streams;
  std::map<void*, std::unique_ptr<Event>> events;
  std::map<void*, std::shared_ptr<Module>> modules;
  std::map<void*, std::unique_ptr<Function>> functions;
  std::set<CuPointer> allocations;
  std::map<const char*, size_t> pinned;
  int64_t launches = 0;

  // The error that this call gives, by the environment.
  CuResult Injected(const std::string& name) {
    const std::string fail = Environment("TENON_FAKE_CUDA_FAIL");
    if (fail != fail_) fail_ = fail, calls_ = 0;
    const size_t colon = fail.find(':');
    if (colon == fail.npos || fail.substr(0, colon) != name) return kCuSuccess;
    const size_t second = fail.find(':', colon + 1);
    const int64_t skip = second == fail.npos ? 0 : std::stoll(fail.substr(second + 1));
    return calls_++ < skip ? kCuSuccess : std::stoi(fail.substr(colon + 1));
  }

  Stream& Of(void* stream) {
    std::unique_ptr<Stream>& s = streams[stream];
    if (s == nullptr) s = std::make_unique<Stream>();
    return *s;
  }
  CuResult Give(void* stream, Task task) {
    Stream& s = Of(stream);
    s.tasks.push_back(std::move(task));
    ++s.given;
    return kCuSuccess;
  }
  // What the stream was given until its task number `until`.
  CuResult Run(Stream& s, uint64_t until) {
    while (sticky == kCuSuccess && s.done < until) {
      const Task task = std::move(s.tasks.front());
      s.tasks.pop_front();
      ++s.done;
      sticky = task();
    }
    return sticky;
  }
  CuResult Drain(void* stream) {
    Stream& s = Of(stream);
    return Run(s, s.given);
  }
  CuResult DrainAll() {
    for (auto& [key, s] : streams) Run(*s, s->given);
    return sticky;
  }
  bool IsPinned(const void* memory) const {
    const char* at = static_cast<const char*>(memory);
    auto block = pinned.upper_bound(at);
    return block != pinned.begin() && at < (--block)->first + block->second;
  }
  void* Handle() { return reinterpret_cast<void*>(static_cast<uintptr_t>(++handles_ * 16)); }

 private:
  std::string fail_;
  int64_t calls_ = 0;
  uint64_t handles_ = 100;
};

Fake& TheFake() {
  static auto* fake = new Fake;
  return *fake;
}

thread_local std::vector<void*> current;

// Of a call that wants a context, under the lock.
CuResult Enter(const char* name) {
  Fake& fake = TheFake();
  if (fake.sticky != kCuSuccess) return fake.sticky;
  if (current.empty()) return kInvalidContext;
  return fake.Injected(name);
}

#define ENTER(name)                                             \
  Fake& fake = TheFake();                                       \
  const std::lock_guard<std::recursive_mutex> lock(fake.mutex); \
  if (const CuResult error = Enter(#name); error != kCuSuccess) return error

// The same of what needs no context.
#define START(name)                                             \
  Fake& fake = TheFake();                                       \
  const std::lock_guard<std::recursive_mutex> lock(fake.mutex); \
  if (const CuResult error = fake.Injected(#name); error != kCuSuccess) return error

CuResult Of(const absl::Status& status) {
  if (status.ok()) return kCuSuccess;
  std::fprintf(stderr, "fake libcuda: %s\n", std::string(status.message()).c_str());
  return kCuIllegalAddress;
}

void* Pointer(CuPointer address) { return reinterpret_cast<void*>(address); }

// Rows of bytes between any two memories.
CuResult Give2D(Fake& fake, const CuCopy2D& c, void* stream) {
  const bool from_host = c.from_type == kCuMemoryHost, to_host = c.to_type == kCuMemoryHost;
  if (c.width > c.from_pitch || c.width > c.to_pitch || c.from_pitch > INT32_MAX || c.to_pitch > INT32_MAX) return kInvalidValue;
  const bool early = from_host && !fake.IsPinned(c.from_host);
  auto read = std::make_shared<std::vector<char>>();
  if (early) {
    for (size_t row = 0; row < c.height; ++row) {
      const char* from = static_cast<const char*>(c.from_host) + row * c.from_pitch;
      read->insert(read->end(), from, from + c.width);
    }
  }
  fake.Give(stream, [c, from_host, to_host, early, read]() -> CuResult {
    EmulatedMemory& memory = TheEmulatedMemory();
    for (size_t row = 0; row < c.height; ++row) {
      const char* from = early       ? read->data() + row * c.width
                         : from_host ? static_cast<const char*>(c.from_host) + row * c.from_pitch
                                     : static_cast<const char*>(Pointer(c.from_device)) + row * c.from_pitch;
      char* to = (to_host ? static_cast<char*>(c.to_host) : static_cast<char*>(Pointer(c.to_device))) + row * c.to_pitch;
      const absl::Status status = from_host ? memory.Write(to, from, c.width)
                                  : to_host ? memory.Read(to, from, c.width)
                                            : memory.Copy(to, from, c.width);
      if (!status.ok()) return Of(status);
    }
    return kCuSuccess;
  });
  // Memory that isn't pinned is written before the call returns.
  return to_host && !fake.IsPinned(c.to_host) ? fake.Drain(stream) : kCuSuccess;
}

int Attribute(int which) {
  const std::string capability = Environment("TENON_FAKE_CUDA_CAPABILITY");
  const double number = capability.empty() ? 9.0 : std::stod(capability);
  switch (which) {
    case kCuMajor: return static_cast<int>(number + 0.01);
    case kCuMinor: return static_cast<int>(number * 10 + 0.1) % 10;
    case kCuMultiprocessors: return 132;
    case kCuThreadsPerMultiprocessor: return 2048;
    case kCuBlocksPerMultiprocessor: return 32;
    case kCuSharedPerMultiprocessor: return 228 << 10;
    case kCuSharedPerBlockOptin: return 227 << 10;
    case kCuL2Bytes: return 50 << 20;
    default: return 0;  // clocks: there are none
  }
}

}  // namespace
}  // namespace tenon::gpu

using namespace tenon::gpu;  // NOLINT: C functions

#define API extern "C" __attribute__((visibility("default"))) CuResult

// Of tests: a device that has failed works again.
API FakeCudaReset() {
  Fake& fake = TheFake();
  const std::lock_guard<std::recursive_mutex> lock(fake.mutex);
  fake.sticky = kCuSuccess;
  for (auto& [key, s] : fake.streams) {
    s->tasks.clear();
    s->done = s->given;
  }
  return kCuSuccess;
}
// How many allocations, modules and events live.
API FakeCudaLive(int64_t* allocations, int64_t* modules, int64_t* events) {
  Fake& fake = TheFake();
  const std::lock_guard<std::recursive_mutex> lock(fake.mutex);
  *allocations = static_cast<int64_t>(fake.allocations.size());
  *modules = static_cast<int64_t>(fake.modules.size());
  *events = static_cast<int64_t>(fake.events.size());
  return kCuSuccess;
}

API cuInit(unsigned) {
  START(cuInit);
  return kCuSuccess;
}
API cuDriverGetVersion(int* version) {
  START(cuDriverGetVersion);
  return *version = 13000, kCuSuccess;
}
API cuGetErrorName(CuResult result, const char** name) {
  static const std::map<CuResult, const char*> kNames = {
      {1, "CUDA_ERROR_INVALID_VALUE"},      {2, "CUDA_ERROR_OUT_OF_MEMORY"},           {3, "CUDA_ERROR_NOT_INITIALIZED"},
      {100, "CUDA_ERROR_NO_DEVICE"},        {201, "CUDA_ERROR_INVALID_CONTEXT"},       {218, "CUDA_ERROR_INVALID_PTX"},
      {400, "CUDA_ERROR_INVALID_HANDLE"},   {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"}, {500, "CUDA_ERROR_NOT_FOUND"},
      {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},  {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"}, {719, "CUDA_ERROR_LAUNCH_FAILED"}};
  const auto at = kNames.find(result);
  return at == kNames.end() ? kInvalidValue : (*name = at->second, kCuSuccess);
}
API cuGetErrorString(CuResult result, const char** text) {
  return *text = result == kCuOutOfMemory ? "out of memory" : "an error of the fake driver", kCuSuccess;
}
API cuDeviceGetCount(int* count) {
  START(cuDeviceGetCount);
  const std::string devices = Environment("TENON_FAKE_CUDA_DEVICES");
  return *count = devices.empty() ? 1 : std::stoi(devices), kCuSuccess;
}
API cuDeviceGet(CuDevice* device, int ordinal) {
  START(cuDeviceGet);
  return *device = ordinal, kCuSuccess;
}
API cuDeviceGetName(char* name, int size, CuDevice) {
  START(cuDeviceGetName);
  std::snprintf(name, static_cast<size_t>(size), "emulated GPU");
  return kCuSuccess;
}
API cuDeviceGetAttribute(int* value, int attribute, CuDevice) {
  START(cuDeviceGetAttribute);
  return *value = Attribute(attribute), kCuSuccess;
}
API cuDeviceTotalMem_v2(size_t* bytes, CuDevice) {
  START(cuDeviceTotalMem_v2);
  return *bytes = EmulatedMemory::kRange, kCuSuccess;
}
API cuDevicePrimaryCtxRetain(void** context, CuDevice) {
  START(cuDevicePrimaryCtxRetain);
  return *context = &fake, kCuSuccess;
}
API cuDevicePrimaryCtxRelease_v2(CuDevice) {
  START(cuDevicePrimaryCtxRelease_v2);
  return kCuSuccess;
}
API cuCtxPushCurrent_v2(void* context) {
  START(cuCtxPushCurrent_v2);
  if (context != &fake) return kInvalidContext;
  current.push_back(context);
  return kCuSuccess;
}
API cuCtxPopCurrent_v2(void** context) {
  START(cuCtxPopCurrent_v2);
  if (current.empty()) return kInvalidContext;
  *context = current.back();
  current.pop_back();
  return kCuSuccess;
}
API cuCtxSynchronize() {
  ENTER(cuCtxSynchronize);
  return fake.DrainAll();
}

API cuMemAlloc_v2(CuPointer* memory, size_t bytes) {
  ENTER(cuMemAlloc_v2);
  if (bytes == 0) return kInvalidValue;
  *memory = reinterpret_cast<CuPointer>(TheEmulatedMemory().Allocate(bytes));
  if (*memory == 0) return kCuOutOfMemory;
  fake.allocations.insert(*memory);
  return kCuSuccess;
}
API cuMemFree_v2(CuPointer memory) {
  ENTER(cuMemFree_v2);
  if (fake.allocations.erase(memory) == 0) return kInvalidValue;
  TheEmulatedMemory().Free(Pointer(memory));
  return kCuSuccess;
}
API cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  ENTER(cuMemHostAlloc);
  *memory = std::malloc(bytes);
  fake.pinned[static_cast<const char*>(*memory)] = bytes;
  return kCuSuccess;
}
API cuMemFreeHost(void* memory) {
  ENTER(cuMemFreeHost);
  if (fake.pinned.erase(static_cast<const char*>(memory)) == 0) return kInvalidValue;
  std::free(memory);
  return kCuSuccess;
}
API cuMemcpyHtoDAsync_v2(CuPointer to, const void* from, size_t bytes, void* stream) {
  ENTER(cuMemcpyHtoDAsync_v2);
  const CuCopy2D c{.from_type = kCuMemoryHost, .from_host = from, .from_pitch = bytes, .to_type = kCuMemoryDevice, .to_device = to,
                   .to_pitch = bytes, .width = bytes, .height = 1};
  return bytes > INT32_MAX ? kInvalidValue : Give2D(fake, c, stream);
}
API cuMemcpyDtoHAsync_v2(void* to, CuPointer from, size_t bytes, void* stream) {
  ENTER(cuMemcpyDtoHAsync_v2);
  const CuCopy2D c{.from_type = kCuMemoryDevice, .from_device = from, .from_pitch = bytes, .to_type = kCuMemoryHost, .to_host = to,
                   .to_pitch = bytes, .width = bytes, .height = 1};
  return bytes > INT32_MAX ? kInvalidValue : Give2D(fake, c, stream);
}
API cuMemcpyDtoDAsync_v2(CuPointer to, CuPointer from, size_t bytes, void* stream) {
  ENTER(cuMemcpyDtoDAsync_v2);
  const CuCopy2D c{.from_type = kCuMemoryDevice, .from_device = from, .from_pitch = bytes, .to_type = kCuMemoryDevice, .to_device = to,
                   .to_pitch = bytes, .width = bytes, .height = 1};
  return bytes > INT32_MAX ? kInvalidValue : Give2D(fake, c, stream);
}
API cuMemcpy2DAsync_v2(const CuCopy2D* copy, void* stream) {
  ENTER(cuMemcpy2DAsync_v2);
  return Give2D(fake, *copy, stream);
}

API cuStreamCreate(void** stream, unsigned) {
  ENTER(cuStreamCreate);
  fake.Of(*stream = fake.Handle());
  return kCuSuccess;
}
API cuStreamDestroy_v2(void* stream) {
  ENTER(cuStreamDestroy_v2);
  return fake.streams.erase(stream) == 0 ? kInvalidHandle : kCuSuccess;
}
API cuStreamSynchronize(void* stream) {
  ENTER(cuStreamSynchronize);
  return fake.Drain(stream);
}
API cuStreamWaitEvent(void* stream, void* event, unsigned) {
  ENTER(cuStreamWaitEvent);
  const auto at = fake.events.find(event);
  if (at == fake.events.end()) return kInvalidHandle;
  const Event waited = *at->second;
  if (waited.stream == nullptr) return kCuSuccess;
  return fake.Give(stream, [&fake, waited] { return fake.Run(*waited.stream, waited.at); });
}
API cuEventCreate(void** event, unsigned flags) {
  ENTER(cuEventCreate);
  fake.events[*event = fake.Handle()] = std::make_unique<Event>(Event{.timed = (flags & kCuEventNoTiming) == 0});
  return kCuSuccess;
}
API cuEventRecord(void* event, void* stream) {
  ENTER(cuEventRecord);
  const auto at = fake.events.find(event);
  if (at == fake.events.end()) return kInvalidHandle;
  Stream& s = fake.Of(stream);
  fake.Give(stream, [&fake, event] {
    const auto recorded = fake.events.find(event);
    if (recorded != fake.events.end()) recorded->second->time = Clock::now();
    return kCuSuccess;
  });
  at->second->stream = &s;
  at->second->at = s.given;
  return kCuSuccess;
}
API cuEventSynchronize(void* event) {
  ENTER(cuEventSynchronize);
  const auto at = fake.events.find(event);
  if (at == fake.events.end()) return kInvalidHandle;
  return at->second->stream == nullptr ? kCuSuccess : fake.Run(*at->second->stream, at->second->at);
}
API cuEventElapsedTime(float* ms, void* begin, void* end) {
  ENTER(cuEventElapsedTime);
  const auto a = fake.events.find(begin), b = fake.events.find(end);
  if (a == fake.events.end() || b == fake.events.end() || !a->second->timed || !b->second->timed) return kInvalidHandle;
  *ms = std::chrono::duration<float, std::milli>(b->second->time - a->second->time).count();
  return kCuSuccess;
}
API cuEventDestroy_v2(void* event) {
  ENTER(cuEventDestroy_v2);
  return fake.events.erase(event) == 0 ? kInvalidHandle : kCuSuccess;
}

API cuModuleLoadDataEx(void** module, const void* image, unsigned count, int* options, void** values) {
  ENTER(cuModuleLoadDataEx);
  char* log = nullptr;
  size_t log_bytes = 0;
  for (unsigned i = 0; i < count; ++i) {
    if (options[i] == kCuErrorLog) log = static_cast<char*>(values[i]);
    if (options[i] == kCuErrorLogBytes) log_bytes = reinterpret_cast<size_t>(values[i]);
  }
  uint32_t header[5] = {};
  std::memcpy(header, image, sizeof(header[0]));
  if (header[0] != kBitcodeWrapper) {
    std::snprintf(log, log_bytes, "fake libcuda takes LLVM bitcode, got \"%.30s\"", static_cast<const char*>(image));
    return kCuInvalidPtx;
  }
  std::memcpy(header, image, sizeof(header));
  auto code = EmulatedModule::Load(std::string_view(static_cast<const char*>(image) + header[2], header[3]));
  if (!code.ok()) {
    std::snprintf(log, log_bytes, "%s", std::string(code.status().message()).c_str());
    return kCuInvalidPtx;
  }
  fake.modules[*module = fake.Handle()] = std::make_shared<tenon::gpu::Module>(tenon::gpu::Module{.code = *std::move(code)});
  return kCuSuccess;
}
API cuModuleUnload(void* module) {
  ENTER(cuModuleUnload);
  const auto at = fake.modules.find(module);
  if (at == fake.modules.end()) return kInvalidHandle;
  at->second->unloaded = true;
  fake.modules.erase(at);
  return kCuSuccess;
}
API cuModuleGetFunction(void** function, void* module, const char* name) {
  ENTER(cuModuleGetFunction);
  const auto at = fake.modules.find(module);
  if (at == fake.modules.end()) return kInvalidHandle;
  if (at->second->code->static_shared_bytes(name) < 0) return kNotFound;
  *function = fake.Handle();
  fake.functions[*function] = std::make_unique<tenon::gpu::Function>(tenon::gpu::Function{.module = at->second, .name = name});
  return kCuSuccess;
}
API cuFuncGetAttribute(int* value, int attribute, void* function) {
  ENTER(cuFuncGetAttribute);
  const auto at = fake.functions.find(function);
  if (at == fake.functions.end()) return kInvalidHandle;
  *value = attribute == kCuStaticShared ? static_cast<int>(at->second->module->code->static_shared_bytes(at->second->name)) : 32;
  return kCuSuccess;
}
API cuFuncSetAttribute(void* function, int attribute, int value) {
  ENTER(cuFuncSetAttribute);
  const auto at = fake.functions.find(function);
  if (at == fake.functions.end() || attribute != kCuMaxDynamicShared) return kInvalidHandle;
  at->second->max_dynamic = value;
  return kCuSuccess;
}
API cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void* stream, void** params, void**) {
  ENTER(cuLaunchKernel);
  const auto at = fake.functions.find(function);
  if (at == fake.functions.end()) return kInvalidHandle;
  const tenon::gpu::Function f = *at->second;
  if (gx * gy * gz == 0 || bx * by * bz == 0) return kInvalidValue;
  if (static_cast<int64_t>(shared) + f.module->code->static_shared_bytes(f.name) > std::max(f.max_dynamic, 48 << 10)) return kInvalidValue;
  if (bx * by * bz > 1024) return kLaunchOutOfResources;
  uint64_t table = 0;
  std::memcpy(&table, params[0], sizeof(table));
  const LaunchConfig config{.grid = {gx, gy, gz},
                            .block = {static_cast<int32_t>(bx), static_cast<int32_t>(by), static_cast<int32_t>(bz)},
                            .dynamic_shared_bytes = shared};
  fake.Give(stream, [&fake, f, table, config]() -> CuResult {
    if (const CuResult error = fake.Injected("kernel"); error != kCuSuccess) return error;
    if (f.module->unloaded) return kCuLaunchFailed;
    const std::string seed = Environment("TENON_FAKE_CUDA_SEED");
    ++fake.launches;
    EmulatorOptions options;
    if (!seed.empty()) options.order_seed = std::stoull(seed) + static_cast<uint64_t>(fake.launches);
    uint64_t pointer = table;
    void* kernel_params[] = {&pointer};
    return Of(f.module->code->Launch(f.name, config, kernel_params, options));
  });
  return Environment("CUDA_LAUNCH_BLOCKING") == "1" ? fake.Drain(stream) : kCuSuccess;
}
