#include "backends/gpu/driver/cuda_loader.h"

#include <atomic>
#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "backends/gpu/emit/image.h"
#include "backends/gpu/gpu.h"
#include "hlo/check.h"

namespace tenon::gpu {
namespace {

struct Opened {
  absl::Mutex mutex;
  std::string library ABSL_GUARDED_BY(mutex);
  int ordinal ABSL_GUARDED_BY(mutex) = 0;
  std::atomic<CudaDevice*> device = nullptr;
};
Opened& TheOpened() {
  static auto* opened = new Opened;
  return *opened;
}

// Modules of one image.
class CudaCode : public LoadedCode {
 public:
  explicit CudaCode(CudaDevice* device) : device_(device) {}
  ~CudaCode() override {
    for (void* module : modules_) device_->UnloadModule(module);
  }

  absl::Status Init(const Image& image, std::span<const std::string> symbols) {
    absl::flat_hash_map<std::string, Kernel> by_symbol;
    for (const ImageModule& m : image.modules) {
      TENON_ASSIGN_OR_RETURN(void* const module, device_->LoadModule(m.code.c_str()));
      modules_.push_back(module);
      for (const ImageKernel& k : m.kernels) {
        TENON_ASSIGN_OR_RETURN(const CudaDevice::Function function, device_->FindFunction(module, k.symbol));
        by_symbol[k.symbol] = {k, function};
      }
    }
    for (const std::string& symbol : symbols) {
      const auto at = by_symbol.find(symbol);
      if (at == by_symbol.end()) return absl::DataLossError(absl::StrCat("GPU: the image has no kernel ", symbol));
      kernels_.push_back(at->second);
    }
    return absl::OkStatus();
  }

  absl::Status Launch(const KernelLaunch& launch) const override {
    const Kernel& k = kernels_.at(static_cast<size_t>(launch.kernel));
    std::vector<uint64_t> table;
    table.reserve(static_cast<size_t>(k.image.pointers + k.image.args));
    for (int64_t i = 0; i < k.image.pointers; ++i) table.push_back(reinterpret_cast<uint64_t>(launch.pointers[i]));
    for (int64_t i = 0; i < k.image.args; ++i) table.push_back(static_cast<uint64_t>(launch.args[i]));
    // Arrays that the kernel itself has are in what it wants in all.
    CudaDevice::Grid grid{.grid = launch.grid, .block = launch.block};
    grid.dynamic_shared = std::max<int64_t>(0, launch.shared_bytes - k.function.static_shared);
    constexpr int64_t kWithoutOptIn = 48 << 10;
    if (grid.dynamic_shared > 0 && grid.dynamic_shared + k.function.static_shared > kWithoutOptIn) {
      TENON_RETURN_IF_ERROR(device_->AllowShared(k.function, grid.dynamic_shared));
    }
    return device_->Launch(k.function, k.image.symbol, grid, table, launch.stream);
  }

 private:
  struct Kernel {
    ImageKernel image;
    CudaDevice::Function function;
  };
  CudaDevice* const device_;
  std::vector<void*> modules_;
  std::vector<Kernel> kernels_;
};

class Loader : public CodeLoader {
 public:
  std::string_view target() const override { return kTargetName; }
  Device* device() const override { return TheCudaDevice().value_or(nullptr); }
  absl::StatusOr<std::unique_ptr<LoadedCode>> Load(std::span<const uint8_t> object, std::span<const std::string> symbols) override {
    TENON_ASSIGN_OR_RETURN(CudaDevice* const device, TheCudaDevice());
    TENON_ASSIGN_OR_RETURN(const Image image, ParseImage(object));
    auto code = std::make_unique<CudaCode>(device);
    TENON_RETURN_IF_ERROR(code->Init(image, symbols));
    return code;
  }
};

void* AllocateIn(void*, int32_t, void*, size_t bytes) {
  const absl::StatusOr<CudaDevice*> device = TheCudaDevice();
  if (!device.ok()) return nullptr;
  return (*device)->Allocate(bytes).value_or(nullptr);
}

}  // namespace

absl::StatusOr<CudaDevice*> TheCudaDevice() {
  Opened& opened = TheOpened();
  if (CudaDevice* device = opened.device) return device;
  absl::MutexLock lock(&opened.mutex);
  if (opened.device == nullptr) {
    TENON_ASSIGN_OR_RETURN(std::unique_ptr<CudaDevice> device, CudaDevice::Open(opened.library, opened.ordinal));
    opened.device = device.release();
  }
  return opened.device.load();
}

void UseCuda(std::string library, int ordinal) {
  Opened& opened = TheOpened();
  absl::MutexLock lock(&opened.mutex);
  TENON_CHECK(opened.device == nullptr, "the device is in use");
  opened.library = std::move(library);
  opened.ordinal = ordinal;
}

absl::StatusOr<std::shared_ptr<const Target>> ThisGpu(std::string_view model, bool bitcode) {
  TENON_ASSIGN_OR_RETURN(CudaDevice* const device, TheCudaDevice());
  TENON_ASSIGN_OR_RETURN(GpuModel found, model.empty() ? ModelOf(device->facts()) : FindGpuModel(model));
  return MakeGpu({.model = std::move(found), .loader = CudaLoader(), .bitcode = bitcode});
}

CodeLoader* CudaLoader() {
  static auto* loader = new Loader;
  return loader;
}

const TenonHost* CudaHost(const TenonHost* host) {
  static absl::Mutex mutex;
  static auto* made = new std::map<const TenonHost*, const TenonHost*>;
  absl::MutexLock lock(&mutex);
  const TenonHost*& with = (*made)[host];
  if (with != nullptr) return with;
  auto* h = new TenonHost(*host);
  h->spaces = 1 | uint64_t{1} << kSpace;
  h->device = [](void*, int32_t) { return TheCudaDevice().ok() ? (*TheCudaDevice())->facts().ordinal : -1; };
  h->allocate_in = AllocateIn;
  // What follows is called for what there is of the device.
  h->deallocate_in = [](void*, int32_t, void* stream, void* memory, size_t) { TheOpened().device.load()->Free(memory, stream); };
  h->stream = [](void*, int32_t) { return TheOpened().device.load()->stream(); };
  h->event_record = [](void*, int32_t, void* stream) { return TheOpened().device.load()->RecordEvent(stream); };
  h->event_wait = [](void*, int32_t, void* stream, void* event) { TheOpened().device.load()->WaitEvent(stream, event); };
  h->event_release = [](void*, int32_t, void* event) { TheOpened().device.load()->ReleaseEvent(event); };
  return with = h;
}

}  // namespace tenon::gpu
