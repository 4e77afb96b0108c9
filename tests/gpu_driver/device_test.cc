// CudaDevice on the fake libcuda.so.1: memory, copies, streams, and each call that can fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "backends/driver/compile.h"
#include "backends/gpu/driver/copy_pieces.h"
#include "backends/gpu/driver/cuda_device.h"
#include "backends/gpu/emit/image.h"
#include "backends/gpu/gpu.h"
#include "hlo/text/text.h"
#include "passes/spaces/spaces.h"
#include "runtime/program/binding.h"
#include "tests/gpu_driver/fake_cuda.h"

namespace tenon::gpu {
namespace {

using testing::HasSubstr;

std::unique_ptr<CudaDevice> Opened() {
  absl::StatusOr<std::unique_ptr<CudaDevice>> device = CudaDevice::Open(TENON_FAKE_LIBCUDA);
  TENON_CHECK(device.ok(), std::string(device.status().message()));
  return *std::move(device);
}

TEST(CudaOpen, SaysWhatIsMissing) {
  const absl::Status none = CudaDevice::Open("/no/libcuda.so.1").status();
  EXPECT_TRUE(absl::IsUnavailable(none));
  EXPECT_THAT(std::string(none.message()), HasSubstr("CUDA: no driver: /no/libcuda.so.1: cannot open shared object file"));
  const absl::Status other = CudaDevice::Open("libm.so.6").status();
  EXPECT_TRUE(absl::IsUnavailable(other));
  EXPECT_EQ(other.message(), "CUDA: libm.so.6 has no cuInit: the driver is too old");
  {
    const Environment no_devices("TENON_FAKE_CUDA_DEVICES", "0");
    EXPECT_EQ(CudaDevice::Open(TENON_FAKE_LIBCUDA).status(), absl::UnavailableError("CUDA: wanted device 0, the driver has 0"));
  }
  const Fail fail("cuInit:100");
  const absl::Status no_device = CudaDevice::Open(TENON_FAKE_LIBCUDA).status();
  EXPECT_TRUE(absl::IsUnavailable(no_device));
  EXPECT_EQ(no_device.message(), "CUDA: starting the driver: CUDA_ERROR_NO_DEVICE (100): an error of the fake driver");
}

TEST(CudaOpen, EachFailingCallIsNamed) {
  const Live before = LiveOfFake();
  for (const std::string call : {"cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName",
                                 "cuDeviceTotalMem_v2", "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2",
                                 "cuStreamCreate"}) {
    const Fail fail(call + ":999");
    const absl::Status status = CudaDevice::Open(TENON_FAKE_LIBCUDA).status();
    EXPECT_TRUE(absl::IsInternal(status)) << call << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("an error without a name (999)")) << call;
  }
  EXPECT_TRUE(CudaDevice::Open(TENON_FAKE_LIBCUDA).ok());
  EXPECT_EQ(LiveOfFake(), before);
}

TEST(CudaFacts, GiveTheModel) {
  const auto model = [](const char* capability) {
    const Environment set("TENON_FAKE_CUDA_CAPABILITY", capability);
    return ModelOf(Opened()->facts());
  };
  EXPECT_EQ(model("7.5")->name, "sm_75");
  EXPECT_EQ(model("8.0")->name, "sm_80");
  EXPECT_EQ(model("8.7")->name, "sm_86");
  EXPECT_EQ(model("9.0")->name, "sm_90");
  EXPECT_EQ(model("10.3")->name, "sm_100");
  EXPECT_EQ(model("12.1")->name, "sm_120");
  EXPECT_EQ(model("9.0")->sms, 132);
  EXPECT_EQ(model("7.0").status(),
            absl::InvalidArgumentError("GPU emulated GPU has compute capability 7.0: there are plans from sm_75 on"));
  CudaFacts h100 = Opened()->facts();
  h100.memory_clock_khz = 2619000;
  h100.bus_bits = 5120;
  EXPECT_NEAR(ModelOf(h100)->bytes_per_ns, 3352, 1);
}

// ---- copies ----

struct View {
  std::vector<int64_t> strides;
  int64_t begin = 0, size = 0;  // elements before the first, and in all
};

// Dims in a random order, with gaps, now and then backwards or repeated.
View RandomView(const std::vector<int64_t>& dims, bool repeats, std::mt19937& random) {
  View view{.strides = std::vector<int64_t>(dims.size())};
  std::vector<size_t> order(dims.size());
  for (size_t d = 0; d < dims.size(); ++d) order[d] = d;
  std::shuffle(order.begin(), order.end(), random);
  int64_t next = random() % 3 == 0 ? 2 : 1, least = 0, most = 0;
  for (const size_t d : order) {
    view.strides[d] = repeats && random() % 4 == 0 ? 0 : random() % 6 == 0 ? -next : next;
    (view.strides[d] < 0 ? least : most) += view.strides[d] * (dims[d] - 1);
    next = next * dims[d] + static_cast<int64_t>(random() % 3 == 0 ? random() % 4 : 0);
  }
  view.begin = -least;
  view.size = most - least + 1;
  return view;
}

// As a loop over elements does it.
void CopyElements(const DeviceCopy& c, char* to, const char* from) {
  std::vector<int64_t> index(static_cast<size_t>(c.ndim), 0);
  int64_t count = 1;
  for (int32_t d = 0; d < c.ndim; ++d) count *= c.dims[d];
  for (int64_t i = 0; i < count; ++i) {
    int64_t t = 0, f = 0, rest = i;
    for (int32_t d = c.ndim; d-- > 0; rest /= c.dims[d]) t += rest % c.dims[d] * c.to_strides[d], f += rest % c.dims[d] * c.from_strides[d];
    std::memcpy(to + t * c.width, from + f * c.width, static_cast<size_t>(c.width));
  }
}

std::vector<char> RandomBytes(int64_t n, std::mt19937& random) {
  std::vector<char> bytes(static_cast<size_t>(n));
  for (char& b : bytes) b = static_cast<char>(random());
  return bytes;
}

// Of the device's memory, all of it.
void Fill(CudaDevice& device, void* memory, const std::vector<char>& bytes) {
  const int64_t size = static_cast<int64_t>(bytes.size()), one = 1;
  ASSERT_TRUE(device.Copy({.to = memory, .from = bytes.data(), .to_space = 1, .to_strides = &one, .from_strides = &one, .dims = &size,
                           .ndim = 1, .stream = device.stream()}).ok());
}
std::vector<char> Read(CudaDevice& device, const void* memory, size_t size) {
  std::vector<char> bytes(size);
  const int64_t n = static_cast<int64_t>(size), one = 1;
  const absl::Status read = device.Copy({.to = bytes.data(), .from = memory, .from_space = 1, .to_strides = &one, .from_strides = &one,
                                         .dims = &n, .ndim = 1, .stream = device.stream()});
  EXPECT_TRUE(read.ok()) << read;
  return bytes;
}

TEST(CudaCopy, StridedViewsInEveryDirection) {
  const std::unique_ptr<CudaDevice> device = Opened();
  const Live before = LiveOfFake();
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    std::vector<int64_t> dims(random() % 5);
    for (int64_t& d : dims) d = 1 + static_cast<int64_t>(random() % 6);
    const int64_t width = std::vector<int64_t>{1, 2, 4, 8, 16}[random() % 5];
    const View to = RandomView(dims, false, random), from = RandomView(dims, true, random);
    const std::vector<char> source = RandomBytes(from.size * width, random);
    std::vector<char> want = RandomBytes(to.size * width, random), host = want;
    DeviceCopy copy{.to_strides = to.strides.data(), .from_strides = from.strides.data(), .dims = dims.data(),
                    .ndim = static_cast<int32_t>(dims.size()), .width = width, .stream = device->stream()};
    CopyElements(copy, want.data() + to.begin * width, source.data() + from.begin * width);
    void* a = *device->Allocate(source.size());
    void* b = *device->Allocate(want.size());
    Fill(*device, a, source);
    Fill(*device, b, host);
    const int direction = static_cast<int>(random() % 3);  // on the device, from it, to it
    copy.from_space = direction != 2;
    copy.to_space = direction != 1;
    copy.from = (direction == 2 ? source.data() : static_cast<const char*>(a)) + from.begin * width;
    copy.to = (direction == 1 ? host.data() : static_cast<char*>(b)) + to.begin * width;
    const absl::Status status = device->Copy(copy);
    ASSERT_TRUE(status.ok()) << status;
    const std::string what = absl::StrCat("dims ", absl::StrJoin(dims, ","), " to ", absl::StrJoin(to.strides, ","), " from ",
                                          absl::StrJoin(from.strides, ","), " width ", width, " direction ", direction);
    ASSERT_EQ(direction == 1 ? host : Read(*device, b, want.size()), want) << what;
    device->Free(a, device->stream());
    device->Free(b, device->stream());
  }
  EXPECT_EQ(LiveOfFake(), before);
}

TEST(CudaCopy, OverlappingViewsAreReadFirst) {
  const std::unique_ptr<CudaDevice> device = Opened();
  const Live before = LiveOfFake();
  std::mt19937 random(9);
  const std::vector<char> bytes = RandomBytes(64, random);
  void* memory = *device->Allocate(bytes.size());
  Fill(*device, memory, bytes);
  // A matrix onto its transpose, two elements on.
  const int64_t dims[] = {5, 5}, rows[] = {5, 1}, columns[] = {1, 5};
  std::vector<char> want = bytes;
  DeviceCopy copy{.to_space = 1, .from_space = 1, .to_strides = columns, .from_strides = rows, .dims = dims, .ndim = 2, .width = 2,
                  .stream = device->stream()};
  CopyElements(copy, want.data() + 4, bytes.data());
  copy.to = static_cast<char*>(memory) + 4;
  copy.from = memory;
  ASSERT_TRUE(device->Copy(copy).ok());
  EXPECT_EQ(Read(*device, memory, bytes.size()), want);
  device->Free(memory, device->stream());
  EXPECT_EQ(LiveOfFake(), before);
}

TEST(CudaCopy, FewPieces) {
  const auto pieces = [](std::vector<int64_t> dims, std::vector<int64_t> to, std::vector<int64_t> from) {
    return CutCopy({.to_strides = to.data(), .from_strides = from.data(), .dims = dims.data(), .ndim = static_cast<int32_t>(dims.size()),
                    .width = 4});
  };
  EXPECT_EQ(pieces({2, 3, 4}, {12, 4, 1}, {12, 4, 1}), (std::vector<CopyPiece>{{.width = 96}}));
  EXPECT_EQ(pieces({4, 2, 3}, {1, 12, 4}, {1, 12, 4}), (std::vector<CopyPiece>{{.width = 96}}));  // dense in another order
  EXPECT_EQ(pieces({2, 3, 4}, {12, 4, 1}, {24, 8, 1}),
            (std::vector<CopyPiece>{{.width = 16, .height = 6, .to_pitch = 16, .from_pitch = 32}}));
  EXPECT_EQ(pieces({3, 100}, {100, 1}, {1, 3}).size(), 3u);   // a transpose: a piece for each short row
  EXPECT_EQ(pieces({5, 1000}, {1000, 1}, {0, 1}).size(), 5u);  // repeated: a driver takes no pitch of 0
  EXPECT_EQ(pieces({}, {}, {}), (std::vector<CopyPiece>{{.width = 4}}));
}

// ---- streams ----

TEST(CudaStreams, EventsOrderThem) {
  const std::unique_ptr<CudaDevice> device = Opened();
  const Live before = LiveOfFake();
  void* other = nullptr;
  void* context = nullptr;
  ASSERT_EQ(device->functions().DevicePrimaryCtxRetain(&context, 0), kCuSuccess);
  ASSERT_EQ(device->functions().CtxPushCurrent(context), kCuSuccess);
  ASSERT_EQ(device->functions().StreamCreate(&other, kCuStreamNonBlocking), kCuSuccess);
  ASSERT_EQ(device->functions().CtxPopCurrent(&context), kCuSuccess);
  void* a = *device->Allocate(4);
  void* b = *device->Allocate(4);
  Fill(*device, a, {1, 2, 3, 4});
  Fill(*device, b, {5, 6, 7, 8});
  // a := b on the other stream, late; then a is read on the first one.
  const int64_t four = 4, one = 1;
  ASSERT_TRUE(device->Copy({.to = a, .from = b, .to_space = 1, .from_space = 1, .to_strides = &one, .from_strides = &one, .dims = &four,
                            .ndim = 1, .stream = other}).ok());
  EXPECT_EQ(Read(*device, a, 4), (std::vector<char>{1, 2, 3, 4}));  // nothing orders them: the fake is as late as it may be
  void* event = device->RecordEvent(other);
  ASSERT_NE(event, nullptr);
  device->WaitEvent(device->stream(), event);
  EXPECT_EQ(Read(*device, a, 4), (std::vector<char>{5, 6, 7, 8}));
  device->ReleaseEvent(event);
  void* begin = device->RecordEvent(other, /*timed=*/true);
  void* end = device->RecordEvent(other, /*timed=*/true);
  const absl::StatusOr<double> ms = device->Milliseconds(begin, end);
  ASSERT_TRUE(ms.ok()) << ms.status();
  EXPECT_GE(*ms, 0);
  device->ReleaseEvent(begin);
  device->ReleaseEvent(end);
  device->Free(a, other);
  device->Free(b, other);
  EXPECT_EQ(LiveOfFake(), before);
  {
    const Fail fail("cuEventCreate:2");
    EXPECT_EQ(device->RecordEvent(other), nullptr);  // it has waited instead
  }
}

// ---- launches ----

// r = -x of f32[4]: its code, and the kernel's name. A table is the addresses of x and r.
struct Negate {
  std::string code, symbol;
};
Negate MakeNegate() {
  auto module = ParseModule("HloModule m\nENTRY e {\n x = f32[4] parameter(0)\n ROOT r = f32[4] negate(x)\n}");
  MoveSignature(**module, kSpace);
  CompileOptions options;
  options.targets.push_back(MakeGpu({.model = *FindGpuModel("sm_90"), .bitcode = true}));
  const Binding binding = BindingOf(**module);
  const absl::StatusOr<Program> program = CompileToProgram(*std::move(module), binding, options);
  TENON_CHECK(program.ok(), std::string(program.status().message()));
  for (const CodeImage& code : program->code) {
    if (code.space == 0) continue;
    const absl::StatusOr<Image> image = ParseImage(code.object);
    TENON_CHECK(image.ok() && image->modules.size() == 1 && image->modules[0].kernels[0].pointers == 2, "one kernel of two operands");
    return {image->modules[0].code, image->modules[0].kernels[0].symbol};
  }
  TENON_CHECK(false, "no code of the GPU");
}

// Each has a table of its own until it has run, however late that is: more launches than there is room for tables.
TEST(CudaLaunches, TablesStayUntilTheyWereRead) {
  const std::unique_ptr<CudaDevice> device = Opened();
  const Negate negate = MakeNegate();
  void* module = *device->LoadModule(negate.code.c_str());
  const CudaDevice::Function function = *device->FindFunction(module, negate.symbol);
  constexpr size_t kLaunches = 5000, kArray = 16;
  std::vector<float> values(kLaunches * 4);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  std::vector<char> bytes(kLaunches * kArray);
  std::memcpy(bytes.data(), values.data(), bytes.size());
  char* in = static_cast<char*>(*device->Allocate(bytes.size()));
  char* out = static_cast<char*>(*device->Allocate(bytes.size()));
  Fill(*device, in, bytes);
  for (size_t n = 0; n < kLaunches; ++n) {
    const uint64_t table[] = {reinterpret_cast<uint64_t>(in + n * kArray), reinterpret_cast<uint64_t>(out + n * kArray)};
    const absl::Status launched = device->Launch(function, negate.symbol, {.block = {32, 1, 1}}, table, device->stream());
    ASSERT_TRUE(launched.ok()) << launched;
  }
  const std::vector<char> read = Read(*device, out, bytes.size());
  std::vector<float> got(values.size());
  std::memcpy(got.data(), read.data(), read.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], -values[i]) << "launch " << i / 4;
  device->Free(in, device->stream());
  device->Free(out, device->stream());
  device->UnloadModule(module);
}

// A module is unloaded behind the launches that it was given.
TEST(CudaLaunches, UnloadingWaits) {
  const std::unique_ptr<CudaDevice> device = Opened();
  const Negate negate = MakeNegate();
  void* module = *device->LoadModule(negate.code.c_str());
  const CudaDevice::Function function = *device->FindFunction(module, negate.symbol);
  void* in = *device->Allocate(16);
  void* out = *device->Allocate(16);
  Fill(*device, in, std::vector<char>(16, 1));
  const uint64_t table[] = {reinterpret_cast<uint64_t>(in), reinterpret_cast<uint64_t>(out)};
  ASSERT_TRUE(device->Launch(function, negate.symbol, {.block = {32, 1, 1}}, table, device->stream()).ok());
  device->UnloadModule(module);
  const absl::Status status = device->Synchronize(device->stream());
  EXPECT_TRUE(status.ok()) << status;
  device->Free(in, device->stream());
  device->Free(out, device->stream());
  const absl::Status many = device->Launch(function, "k", {.grid = {int64_t{1} << 31, 1, 1}}, table, device->stream());
  EXPECT_TRUE(absl::IsResourceExhausted(many));
  EXPECT_THAT(std::string(many.message()), HasSubstr("CUDA: launching k, grid (2147483648,1,1) block (1,1,1): no GPU takes so many"));
}

TEST(CudaLaunches, SharedMemoryBeyondTheDevices) {
  const std::unique_ptr<CudaDevice> device = Opened();
  const Negate negate = MakeNegate();
  void* module = *device->LoadModule(negate.code.c_str());
  const CudaDevice::Function function = *device->FindFunction(module, negate.symbol);
  EXPECT_TRUE(device->AllowShared(function, 200 << 10).ok());
  const absl::Status status = device->AllowShared(function, 300 << 10);
  EXPECT_EQ(status, absl::ResourceExhaustedError("CUDA: a kernel wants 307200 bytes of shared memory, emulated GPU has 232448"));
  device->UnloadModule(module);
}

TEST(CudaMemory, SaysHowMuchWasWanted) {
  const std::unique_ptr<CudaDevice> device = Opened();
  const Fail fail("cuMemAlloc_v2:2");
  const absl::Status status = device->Allocate(1000).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_EQ(status.message(), "CUDA: allocating 1000 bytes on emulated GPU: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory");
}

TEST(CudaModules, ARefusedOneComesWithTheLog) {
  const std::unique_ptr<CudaDevice> device = Opened();
  const absl::Status status = device->LoadModule(".version 9.9\n.target sm_999\n").status();
  EXPECT_TRUE(absl::IsInternal(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("CUDA: loading a module: CUDA_ERROR_INVALID_PTX (218)"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("\nfake libcuda takes LLVM bitcode, got \".version 9.9"));
  const Fail fail("cuModuleLoadDataEx:222");
  EXPECT_THAT(std::string(device->LoadModule("").status().message()), HasSubstr("the driver is older than the PTX"));
}

}  // namespace
}  // namespace tenon::gpu
