// Programs with a device, built by hand: who is asked for what, on which stream, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/program/dim_program.h"
#include "tests/runtime/fakes.h"

namespace tenon::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
constexpr PrimitiveType kF = PrimitiveType::kF32;
constexpr int32_t kSpace = 3;

std::vector<std::string>& Log() {
  static std::vector<std::string> log;
  return log;
}
std::string Name(const void* stream) { return absl::StrCat("stream ", reinterpret_cast<intptr_t>(stream)); }

// Its memory is the host's; it does at once what it is given.
class FakeDevice : public Device {
 public:
  absl::Status Copy(const DeviceCopy& c) override {
    Log().push_back(absl::StrCat("copy ", c.dims[0], " from ", c.from_space, " to ", c.to_space, " on ", Name(c.stream)));
    for (int64_t i = 0; i < c.dims[0]; ++i) {
      static_cast<float*>(c.to)[i * c.to_strides[0]] = static_cast<const float*>(c.from)[i * c.from_strides[0]];
    }
    return absl::OkStatus();
  }
};
class FakeCode : public LoadedCode {
 public:
  static inline bool fails = false;
  // Doubles: pointers in, out; the size is the first of args.
  absl::Status Launch(const KernelLaunch& l) const override {
    Log().push_back(absl::StrCat("launch ", l.kernel, " grid ", l.grid[0], " block ", l.block[0], " shared ", l.shared_bytes, " on ",
                                 Name(l.stream)));
    if (fails) return absl::UnavailableError("no power");
    for (int64_t i = 0; i < l.args[0]; ++i) static_cast<float*>(l.pointers[1])[i] = 2 * static_cast<float*>(l.pointers[0])[i];
    return absl::OkStatus();
  }
};
class FakeDeviceLoader : public CodeLoader {
 public:
  std::string_view target() const override { return "fake"; }
  Device* device() const override { return &device_; }
  absl::StatusOr<std::unique_ptr<LoadedCode>> Load(std::span<const uint8_t>, std::span<const std::string>) override {
    return std::make_unique<FakeCode>();
  }

 private:
  mutable FakeDevice device_;
};

int64_t stream_now = 0, events = 0;

TenonHost HostWithDevice() {
  TenonHost host = *DefaultHost();
  host.spaces = 1 | 1 << kSpace;
  host.device = [](void*, int32_t) { return 0; };
  host.allocate_in = [](void*, int32_t space, void* stream, size_t bytes) {
    Log().push_back(absl::StrCat("allocate ", bytes, " in ", space, " for ", Name(stream)));
    return DefaultHost()->allocate(nullptr, bytes);
  };
  host.deallocate_in = [](void*, int32_t space, void* stream, void* memory, size_t bytes) {
    Log().push_back(absl::StrCat("free ", bytes, " in ", space, " of ", Name(stream)));
    DefaultHost()->deallocate(nullptr, memory, bytes);
  };
  host.stream = [](void*, int32_t) { return reinterpret_cast<void*>(stream_now); };
  host.event_record = [](void*, int32_t, void* stream) {
    Log().push_back(absl::StrCat("record event ", ++events, " on ", Name(stream)));
    return reinterpret_cast<void*>(events);
  };
  host.event_wait = [](void*, int32_t, void* stream, void* event) {
    Log().push_back(absl::StrCat(Name(stream), " waits for event ", reinterpret_cast<intptr_t>(event)));
  };
  host.event_release = [](void*, int32_t, void* event) {
    Log().push_back(absl::StrCat("release event ", reinterpret_cast<intptr_t>(event)));
  };
  return host;
}

// out = 2 * in, there and back; the size is the input's.
Program ThereAndBack() {
  Program p;
  p.name = "device";
  p.regions.push_back({.name = "main"});
  p.inputs.push_back({.dtype = kF, .dims = {~0}, .strides = {1}});
  p.outputs.push_back({.dtype = kF, .dims = {~0}, .strides = {1}});
  p.dim_program = {{DimOp::Kind::kInputDim, 0, 0}, {DimOp::Kind::kMul, ~0, 4}, {DimOp::Kind::kAdd, ~0, 31},
                   {DimOp::Kind::kFloorDiv, ~2, 32}};
  p.code = {{.target = "fake", .space = kSpace, .object = {1}}};
  p.kernels.push_back({.symbol = "twice"});
  p.values = {{.kind = ValueKind::kInput, .bytes = ~1},
              {.kind = ValueKind::kArena, .bytes = ~1, .space = kSpace},
              {.kind = ValueKind::kArena, .offset = 4096, .bytes = ~1, .space = kSpace},
              {.kind = ValueKind::kOutput, .bytes = ~1}};
  p.device_arenas = {{.space = kSpace, .bytes = 8192}};
  const auto view = [](int32_t value) { return View{.value = value, .dtype = kF, .dims = {~0}, .strides = {1}}; };
  KernelStep kernel{.kernel = 0, .operands = {view(1), view(2)}, .num_results = 1, .args = {~0}};
  kernel.launch = LaunchShape{.grid = {~3, 1, 1}, .block = {32, 1, 1}, .shared_bytes = 16};
  p.regions[0].steps = {{.body = CopyStep{view(0), view(1)}, .name = "in"},
                        {.body = std::move(kernel), .name = "twice"},
                        {.body = CopyStep{view(2), view(3)}, .name = "out"}};
  return p;
}

absl::StatusOr<std::shared_ptr<Executable>> Made(Program p, const TenonHost* host) {
  static FakeDeviceLoader device;
  return Executable::Create(std::move(p), CodeLoaders({FakeLoader(), &device}), host);
}

RunResult Twice(Executable& e, int64_t n, std::vector<float>* result) {
  Array in({n}, 3), out({n});
  TenonTensor inputs[] = {in.tensor()}, outputs[] = {out.tensor()};
  Log().clear();
  RunResult run = e.Run(inputs, outputs);
  *result = out.data;
  return run;
}

TEST(Device, WhoIsAskedForWhat) {
  const TenonHost host = HostWithDevice();
  auto made = Made(ThereAndBack(), &host);
  ASSERT_TRUE(made.ok()) << made.status();
  std::vector<float> got;
  events = 0, stream_now = 7;
  ASSERT_EQ(Twice(**made, 100, &got).code, TENON_OK);
  EXPECT_THAT(got, ::testing::Each(6.0f));
  EXPECT_THAT(Log(), ElementsAre("allocate 8192 in 3 for stream 7", "copy 100 from 0 to 3 on stream 7",
                                 "launch 0 grid 4 block 32 shared 16 on stream 7", "copy 100 from 3 to 0 on stream 7",
                                 "record event 1 on stream 7"));
  // The frame's memory again, behind the last run.
  ASSERT_EQ(Twice(**made, 10, &got).code, TENON_OK);
  EXPECT_THAT(got, ::testing::Each(6.0f));
  EXPECT_THAT(Log(), ElementsAre("stream 7 waits for event 1", "release event 1", "copy 10 from 0 to 3 on stream 7",
                                 "launch 0 grid 1 block 32 shared 16 on stream 7", "copy 10 from 3 to 0 on stream 7",
                                 "record event 2 on stream 7"));
  // On another stream: memory of that one.
  stream_now = 8;
  ASSERT_EQ(Twice(**made, 10, &got).code, TENON_OK);
  EXPECT_THAT(Log(), ElementsAre("stream 8 waits for event 2", "release event 2", "free 8192 in 3 of stream 7",
                                 "allocate 8192 in 3 for stream 8", "copy 10 from 0 to 3 on stream 8",
                                 "launch 0 grid 1 block 32 shared 16 on stream 8", "copy 10 from 3 to 0 on stream 8",
                                 "record event 3 on stream 8"));
  // Of nothing nothing is launched or copied.
  ASSERT_EQ(Twice(**made, 0, &got).code, TENON_OK);
  EXPECT_THAT(Log(), ElementsAre("stream 8 waits for event 3", "release event 3", "record event 4 on stream 8"));
  Log().clear();
  made->reset();
  EXPECT_THAT(Log(), ElementsAre("release event 4", "free 8192 in 3 of stream 8"));
}

TEST(Device, FailuresAreTold) {
  TenonHost host = HostWithDevice();
  auto made = Made(ThereAndBack(), &host);
  ASSERT_TRUE(made.ok()) << made.status();
  std::vector<float> got;
  FakeCode::fails = true;
  const RunResult run = Twice(**made, 10, &got);
  FakeCode::fails = false;
  EXPECT_EQ(run.code, TENON_ERROR);
  EXPECT_EQ(run.error, "twice: no power");
  EXPECT_EQ(run.kind, absl::StatusCode::kUnavailable);
  EXPECT_EQ(Twice(**made, 10, &got).code, TENON_OK);
  host.allocate_in = [](void*, int32_t, void*, size_t) -> void* { return nullptr; };
  made = Made(ThereAndBack(), &host);
  EXPECT_EQ(Twice(**made, 10, &got).error, "out of memory: wanted 8192 bytes for intermediate results in memory space 3");
}

TEST(Device, HostsSayWhatTheyHave) {
  EXPECT_EQ(DefaultHost()->spaces, 1);
  EXPECT_EQ(DefaultHost()->device(nullptr, kSpace), -1);
  EXPECT_THAT(std::string(Made(ThereAndBack(), DefaultHost()).status().message()),
              HasSubstr("program device wants memory space 3, which this host does not have"));
  TenonHost host = HostWithDevice();
  host.device = [](void*, int32_t) { return -1; };
  EXPECT_THAT(std::string(Made(ThereAndBack(), &host).status().message()), HasSubstr("no device of memory space 3 now"));
  EXPECT_THAT(std::string(Executable::Create(ThereAndBack(), FakeLoader(), &host).status().message()),
              HasSubstr("code of target fake, of which there is no code loader"));
}

// A step on memory that is not its target's: refused before it runs.
TEST(Device, WrongSpacesAreRefused) {
  const auto refused = [](const std::function<void(Program&)>& spoil) {
    Program p = ThereAndBack();
    spoil(p);
    return std::string(p.Validate().message());
  };
  EXPECT_THAT(refused([](Program&) {}), IsEmpty());
  const auto kernel = [](Program& p) -> KernelStep& { return std::get<KernelStep>(p.regions[0].steps[1].body); };
  EXPECT_THAT(refused([&](Program& p) { kernel(p).operands[0].value = 0; }), HasSubstr("lies in memory space 0, and the step works on 3"));
  EXPECT_THAT(refused([&](Program& p) { kernel(p).launch.reset(); }), HasSubstr("a device's kernel without a launch"));
  EXPECT_THAT(refused([](Program& p) { p.values[1].space = 0; }), HasSubstr("step works on 3"));
  EXPECT_THAT(refused([](Program& p) { p.values[1].space = 4; }), HasSubstr("memory space 4, which no target of the program has"));
  EXPECT_THAT(refused([](Program& p) { p.values[0].space = kSpace; }), HasSubstr("it is in memory space 3, and what it stands for in 0"));
  EXPECT_THAT(refused([](Program& p) { p.device_arenas[0].space = 0; }), HasSubstr("memory space 0 is no device's"));
  EXPECT_THAT(refused([](Program& p) { p.regions[0].steps.push_back(FrameworkCall("test.add", {MakeView(1, kF, {4})}, MakeView(1, kF, {4}),
                                                                                  ResultRule::kOut)); }),
              HasSubstr("and the step works on 0"));
  EXPECT_THAT(refused([](Program& p) {
                p.code.push_back({.target = "other", .space = 5});
                p.device_arenas.push_back({.space = 5, .bytes = 8192});
                p.values[2].space = 5;
              }),
              HasSubstr("step works on 3"));
  EXPECT_THAT(refused([](Program& p) {
                p.code.push_back({.target = "other", .space = 5});
                p.device_arenas.push_back({.space = 5, .bytes = 8192});
                p.values.push_back({.kind = ValueKind::kArena, .bytes = 64, .space = 5});
                p.regions[0].steps.push_back({.body = CopyStep{MakeView(2, kF, {4}), MakeView(4, kF, {4})}, .name = "across"});
              }),
              HasSubstr("a copy from memory space 3 to 5, not by way of the host's"));
}

}  // namespace
}  // namespace tenon::testing
