#include "tools/lab/gpu/emulated_target.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "backends/gpu/emit/image.h"
#include "backends/gpu/gpu.h"
#include "tools/lab/gpu/emulated_memory.h"

namespace tenon::gpu {
namespace {

ABSL_CONST_INIT absl::Mutex settings_mutex(absl::kConstInit);
EmulatorOptions& Settings() {
  static auto* options = new EmulatorOptions;
  return *options;
}
EmulationCounts& Counts() {
  static auto* counts = new EmulationCounts;
  return *counts;
}

// One at a time: all is done when a call returns.
class EmulatedDevice : public Device {
 public:
  absl::Status Copy(const DeviceCopy& copy) override {
    const std::vector<int64_t> dims(copy.dims, copy.dims + copy.ndim);
    int64_t count = 1;
    for (int64_t d : dims) count *= d;
    // Overlapping views: as if all was read before.
    std::vector<char> read(static_cast<size_t>(count * copy.width));
    for (const bool reads : {true, false}) {
      const int32_t space = reads ? copy.from_space : copy.to_space;
      const int64_t* strides = reads ? copy.from_strides : copy.to_strides;
      for (int64_t at = 0; at < count; ++at) {
        int64_t offset = 0, rest = at;
        for (size_t d = dims.size(); d-- > 0; rest /= dims[d]) offset += rest % dims[d] * strides[d];
        offset *= copy.width;
        char* kept = read.data() + at * copy.width;
        const auto width = static_cast<size_t>(copy.width);
        if (reads) {
          const char* from = static_cast<const char*>(copy.from) + offset;
          if (space == 0)
            std::memcpy(kept, from, width);
          else
            TENON_RETURN_IF_ERROR(TheEmulatedMemory().Read(kept, from, width));
        } else {
          char* to = static_cast<char*>(copy.to) + offset;
          if (space == 0)
            std::memcpy(to, kept, width);
          else
            TENON_RETURN_IF_ERROR(TheEmulatedMemory().Write(to, kept, width));
        }
      }
    }
    return absl::OkStatus();
  }
};

struct Loaded {
  std::shared_ptr<EmulatedModule> module;
  ImageKernel kernel;
};

class EmulatedCode : public LoadedCode {
 public:
  explicit EmulatedCode(std::vector<Loaded> kernels) : kernels_(std::move(kernels)) {}

  absl::Status Launch(const KernelLaunch& launch) const override {
    const Loaded& k = kernels_.at(static_cast<size_t>(launch.kernel));
    std::vector<uint64_t> table;
    for (int64_t i = 0; i < k.kernel.pointers; ++i) table.push_back(reinterpret_cast<uint64_t>(launch.pointers[i]));
    for (int64_t i = 0; i < k.kernel.args; ++i) table.push_back(static_cast<uint64_t>(launch.args[i]));
    EmulatedMemory& memory = TheEmulatedMemory();
    const size_t bytes = table.size() * sizeof(uint64_t);
    void* there = memory.Allocate(bytes);
    if (there == nullptr) return absl::ResourceExhaustedError("emulated GPU: no memory for a kernel's arguments");
    absl::Status status = memory.Write(there, table.data(), bytes);
    EmulatorOptions options;
    {
      absl::MutexLock lock(&settings_mutex);
      options = Settings();
      if (options.order_seed != 0) options.order_seed += static_cast<uint64_t>(Counts().launches);
    }
    LaunchCounts counts;
    void* params[] = {&there};
    LaunchConfig config{.grid = launch.grid, .block = launch.block};
    config.dynamic_shared_bytes = std::max<int64_t>(0, launch.shared_bytes - k.module->static_shared_bytes(k.kernel.symbol));
    if (status.ok()) status = k.module->Launch(k.kernel.symbol, config, params, options, &counts);
    memory.Free(there);
    absl::MutexLock lock(&settings_mutex);
    Counts().launches += 1;
    Counts().loads += counts.loads;
    Counts().stores += counts.stores;
    Counts().fibre_switches += counts.fibre_switches;
    Counts().extra_wavefronts += counts.extra_wavefronts;
    return status;
  }

 private:
  const std::vector<Loaded> kernels_;
};

class EmulatedLoader : public CodeLoader {
 public:
  std::string_view target() const override { return kEmulatedName; }
  Device* device() const override { return &device_; }
  absl::StatusOr<std::unique_ptr<LoadedCode>> Load(std::span<const uint8_t> object, std::span<const std::string> symbols) override {
    TENON_ASSIGN_OR_RETURN(const Image image, ParseImage(object));
    if (!image.bitcode) return absl::InvalidArgumentError("emulated GPU: wanted an image of bitcode, got PTX");
    std::map<std::string, Loaded> by_symbol;
    for (const ImageModule& m : image.modules) {
      TENON_ASSIGN_OR_RETURN(const std::shared_ptr<EmulatedModule> module, EmulatedModule::Load(m.code));
      for (const ImageKernel& k : m.kernels) by_symbol[k.symbol] = {module, k};
    }
    std::vector<Loaded> kernels;
    for (const std::string& symbol : symbols) {
      const auto at = by_symbol.find(symbol);
      if (at == by_symbol.end()) return absl::DataLossError(absl::StrCat("emulated GPU: the image has no kernel ", symbol));
      kernels.push_back(at->second);
    }
    return std::make_unique<EmulatedCode>(std::move(kernels));
  }

 private:
  mutable EmulatedDevice device_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Target>> MakeEmulatedGpu(std::string_view name, std::function<void(llvm::Function&)> sabotage) {
  static auto* loader = new EmulatedLoader;
  std::string_view model = "sm_90";
  if (name.starts_with(kEmulatedName))
    name.remove_prefix(std::string_view(kEmulatedName).size());
  else
    return absl::InvalidArgumentError(absl::StrCat("wanted gpu-emulated or gpu-emulated:MODEL, got \"", std::string(name), "\""));
  if (name.starts_with(":"))
    model = name.substr(1);
  else if (!name.empty())
    return absl::InvalidArgumentError(absl::StrCat("wanted gpu-emulated:MODEL, got \"", kEmulatedName, std::string(name), "\""));
  const bool ptx = model.ends_with(",ptx");
  if (ptx) model.remove_suffix(4);
  TENON_ASSIGN_OR_RETURN(GpuModel found, FindGpuModel(model));
  return MakeGpu({.model = std::move(found), .name = kEmulatedName, .loader = loader, .bitcode = true, .ptx_besides = ptx,
                  .sabotage = std::move(sabotage)});
}

const TenonHost* EmulatedHost(const TenonHost* host) {
  static absl::Mutex mutex;
  static auto* made = new std::map<const TenonHost*, const TenonHost*>;
  absl::MutexLock lock(&mutex);
  const TenonHost*& emulated = (*made)[host];
  if (emulated != nullptr) return emulated;
  auto* h = new TenonHost(*host);
  h->spaces = 1 | uint64_t{1} << kSpace;
  h->device = [](void*, int32_t) { return 0; };
  h->allocate_in = [](void*, int32_t, void*, size_t bytes) { return TheEmulatedMemory().Allocate(bytes); };
  h->deallocate_in = [](void*, int32_t, void*, void* memory, size_t) { TheEmulatedMemory().Free(memory); };
  h->stream = [](void*, int32_t) -> void* { return nullptr; };
  h->event_record = [](void*, int32_t, void*) -> void* { return nullptr; };
  h->event_wait = [](void*, int32_t, void*, void*) {};
  h->event_release = [](void*, int32_t, void*) {};
  return emulated = h;
}

void SetEmulation(const EmulatorOptions& options) {
  absl::MutexLock lock(&settings_mutex);
  Settings() = options;
}

EmulationCounts CountsOfEmulation() {
  absl::MutexLock lock(&settings_mutex);
  return Counts();
}

}  // namespace tenon::gpu
