#include "tests/toy_target/toy.h"

#include <atomic>
#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"
#include "hlo/check.h"
#include "runtime/host/plain_host.h"
#include "tests/toy_target/toy_kernel.h"

namespace tenon::toy {
namespace {

std::atomic<int64_t> fail_work{-1}, live_events{0};
std::atomic<void*> current_stream{nullptr};

absl::Status Work() {
  return fail_work >= 0 && fail_work-- == 0 ? absl::UnavailableError("the toy fell off its table") : absl::OkStatus();
}

class ToyDevice : public Device {
 public:
  explicit ToyDevice(int32_t space) : space_(space) {}

  // Within its memory a copy waits for its turn like a launch; with the host it is done on return.
  absl::Status Copy(const DeviceCopy& copy) override {
    TENON_CHECK(copy.to_space == space_ || copy.from_space == space_, "a copy of another device");
    TENON_CHECK(TheMemory().Owns(copy.to) == (copy.to_space != 0) && TheMemory().Owns(copy.from) == (copy.from_space != 0),
                "a copy's spaces are not its memory's");
    const std::vector<int64_t> dims(copy.dims, copy.dims + copy.ndim), to(copy.to_strides, copy.to_strides + copy.ndim),
        from(copy.from_strides, copy.from_strides + copy.ndim);
    auto task = [=] {
      const absl::Status work = Work();
      return work.ok() ? Elements(copy, dims, to, from) : work;
    };
    if (copy.to_space == copy.from_space) {
      TheMemory().Enqueue(copy.stream, std::move(task));
      return absl::OkStatus();
    }
    const absl::Status before = TheMemory().Drain(copy.stream);
    return before.ok() ? task() : before;
  }

 private:
  static absl::Status Elements(const DeviceCopy& copy, const std::vector<int64_t>& dims, const std::vector<int64_t>& to,
                               const std::vector<int64_t>& from) {
    int64_t count = 1;
    for (int64_t d : dims) count *= d;
    std::vector<std::byte> read(static_cast<size_t>(count * copy.width));
    for (const bool reads : {true, false}) {
      for (int64_t at = 0; at < count; ++at) {
        int64_t offset = 0, rest = at;
        for (size_t d = dims.size(); d-- > 0; rest /= dims[d]) offset += rest % dims[d] * (reads ? from : to)[d];
        const char* address = static_cast<const char*>(reads ? copy.from : copy.to) + offset * copy.width;
        auto* place = reinterpret_cast<std::byte*>(const_cast<char*>(address));
        if ((reads ? copy.from_space : copy.to_space) != 0) {
          TENON_ASSIGN_OR_RETURN(place, TheMemory().At(address, copy.width));
        }
        std::byte* kept = read.data() + at * copy.width;
        if (reads) std::memcpy(kept, place, static_cast<size_t>(copy.width));
        else std::memcpy(place, kept, static_cast<size_t>(copy.width));
      }
    }
    return absl::OkStatus();
  }

  const int32_t space_;
};

class ToyCode : public LoadedCode {
 public:
  explicit ToyCode(std::vector<std::shared_ptr<const ToyKernel>> kernels) : kernels_(std::move(kernels)) {}

  absl::Status Launch(const KernelLaunch& launch) const override {
    const std::shared_ptr<const ToyKernel>& kernel = kernels_.at(static_cast<size_t>(launch.kernel));
    std::vector<void*> pointers(launch.pointers, launch.pointers + PointersOf(*kernel));
    for (const void* p : pointers) {
      if (p != nullptr && !TheMemory().Owns(p)) return absl::InvalidArgumentError("a launch on memory that is not the toy's");
    }
    KernelLaunch kept = launch;
    kept.pointers = nullptr, kept.args = nullptr;  // theirs until we return
    TheMemory().Enqueue(launch.stream, [kernel, kept, pointers = std::move(pointers)] {
      const absl::Status work = Work();
      return work.ok() ? RunGrid(*kernel, pointers, kept) : work;
    });
    return absl::OkStatus();
  }

 private:
  std::vector<std::shared_ptr<const ToyKernel>> kernels_;
};

class ToyLoader : public CodeLoader {
 public:
  ToyLoader(std::string target, int32_t space) : target_(std::move(target)), device_(space) {}
  std::string_view target() const override { return target_; }
  Device* device() const override { return &device_; }
  absl::StatusOr<std::unique_ptr<LoadedCode>> Load(std::span<const uint8_t> object, std::span<const std::string> symbols) override {
    TENON_ASSIGN_OR_RETURN(auto kernels, LoadKernels(object, symbols));
    return std::make_unique<ToyCode>(std::move(kernels));
  }

 private:
  const std::string target_;
  mutable ToyDevice device_;
};

class ToyPlanned : public PlannedKernel {
 public:
  ToyPlanned(PlannedToy planned, std::string key) : planned_(std::move(planned)), fingerprint_(absl::StrCat(key, "\n", planned_.text)) {}
  const KernelInfo& info() const override { return planned_.info; }
  const std::string& fingerprint() const override { return fingerprint_; }
  const std::string& text() const { return planned_.text; }

 private:
  PlannedToy planned_;
  std::string fingerprint_;
};

TargetFacts FactsOf(std::string name, int32_t space) {
  TargetFacts facts{.name = name, .variant = "interpreted", .key = absl::StrCat(name, "-1"), .space = space};
  facts.info.name = std::move(name);
  facts.info.vector_bytes = 4;
  return facts;
}

class Toy : public Target {
 public:
  Toy(std::string name, int32_t space) : Target(FactsOf(name, space)), loader_(new ToyLoader(name, space)) {}

  bool CanGenerate(const Instruction& op) const override { return CanInterpret(op).ok(); }
  bool ReducesInAnyOrder(const Instruction&) const override { return false; }
  absl::StatusOr<LaunchPlan> Plan(const Instruction& op, const ValueViews& views, bool) const override {
    TENON_ASSIGN_OR_RETURN(PlannedToy planned, PlanToy(RequestOf(op, views)));
    auto kernel = std::make_shared<ToyPlanned>(std::move(planned), facts().key);
    return LaunchPlan{.may_overwrite = kernel->info().may_overwrite, .target = kernel};
  }
  absl::StatusOr<std::vector<uint8_t>> Emit(const EmitRequest& request) const override {
    std::vector<uint8_t> image;
    for (size_t k = 0; k < request.kernels.size(); ++k) {
      const auto* kernel = dynamic_cast<const ToyPlanned*>(request.kernels[k].get());
      TENON_CHECK(kernel != nullptr, absl::StrCat("kernel ", request.symbols[k], " is of another target"));
      AppendKernel(request.symbols[k], kernel->text(), &image);
    }
    return image;
  }
  CodeLoader* loader() const override { return loader_; }

 private:
  CodeLoader* const loader_;  // lives as long as the process
};

// An event is its stream: who waits for it waits for all that the stream was given.
struct Event {
  void* stream;
};

}  // namespace

std::shared_ptr<const Target> MakeToy(std::string name, int32_t space) {
  static auto* made = new std::map<std::pair<std::string, int32_t>, std::shared_ptr<const Target>>;
  std::shared_ptr<const Target>& toy = (*made)[{name, space}];
  if (toy == nullptr) toy = std::make_shared<Toy>(name, space);
  return toy;
}

void SetStream(void* stream) { current_stream = stream; }
int64_t LiveEvents() { return live_events; }
void FailWork(int64_t n) { fail_work = n; }

const TenonHost* ToyHost() {
  static const TenonHost host = [] {
    TenonHost h = *PlainHost();
    h.spaces = 1 | uint64_t{1} << kSpace;
    h.device = [](void*, int32_t space) { return space - kSpace; };
    h.allocate_in = [](void*, int32_t, void*, size_t bytes) { return TheMemory().Allocate(bytes); };
    h.deallocate_in = [](void*, int32_t, void* stream, void* memory, size_t) {
      (void)TheMemory().Drain(stream);  // an error was told, or nobody asks for it any more
      TheMemory().Free(memory);
    };
    h.stream = [](void*, int32_t) -> void* { return current_stream; };
    h.event_record = [](void*, int32_t, void* stream) -> void* {
      ++live_events;
      return new Event{stream};
    };
    h.event_wait = [](void*, int32_t, void* stream, void* event) {
      void* other = static_cast<Event*>(event)->stream;
      TheMemory().Enqueue(stream, [other] { return TheMemory().Drain(other); });
    };
    h.event_release = [](void*, int32_t, void* event) {
      --live_events;
      delete static_cast<Event*>(event);
    };
    return h;
  }();
  return &host;
}

}  // namespace tenon::toy
