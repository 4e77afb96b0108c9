#include "tools/gpu-runner/times.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "backends/driver/compile.h"
#include "backends/gpu/driver/cuda_loader.h"
#include "backends/gpu/gpu.h"
#include "hlo/check.h"
#include "hlo/eval/evaluator.h"
#include "hlo/text/text.h"
#include "passes/spaces/spaces.h"
#include "runtime/execute/executable.h"
#include "runtime/host/plain_host.h"
#include "runtime/program/binding.h"
#include "tools/lab/gpu/attention_text.h"
#include "tools/lab/gpu/devices.h"

namespace tenon::runner {
namespace {

using gpu::CudaDevice;

struct Timed {
  const char* name;
  int64_t columns;  // of the array of `megabytes`; the rest are rows
  const char* text;  // TYPE, ROWS, COLUMNS, and sums in f32
};
constexpr char kRegions[] = R"(HloModule m
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] maximum(a, b) }
step { x = f32[ROWS] parameter(0) c = f32[ROWS] parameter(1) s = f32[ROWS] add(x, c) ROOT t = (f32[ROWS], f32[ROWS]) tuple(s, s) }
)";
constexpr Timed kTimed[] = {
    {"copy by a kernel", 4096, R"(ENTRY e { x = TYPE[ROWS,COLUMNS] parameter(0) ROOT r = TYPE[ROWS,COLUMNS] negate(x) })"},
    {"layer norm", 4096, R"(ENTRY e {
  x = TYPE[ROWS,COLUMNS] parameter(0) w = f32[COLUMNS] parameter(1) b = f32[COLUMNS] parameter(2)
  f = f32[ROWS,COLUMNS] convert(x) zero = f32[] constant(0)
  n = f32[] constant(COLUMNS) nb = f32[ROWS] broadcast(n), dimensions={}
  s = f32[ROWS] reduce(f, zero), dimensions={1}, to_apply=add
  m = f32[ROWS] divide(s, nb) mb = f32[ROWS,COLUMNS] broadcast(m), dimensions={0}
  d = f32[ROWS,COLUMNS] subtract(f, mb) q = f32[ROWS,COLUMNS] multiply(d, d)
  v = f32[ROWS] reduce(q, zero), dimensions={1}, to_apply=add
  vn = f32[ROWS] divide(v, nb) eps = f32[] constant(1e-5) eb = f32[ROWS] broadcast(eps), dimensions={}
  ve = f32[ROWS] add(vn, eb) i = f32[ROWS] rsqrt(ve) ib = f32[ROWS,COLUMNS] broadcast(i), dimensions={0}
  wb = f32[ROWS,COLUMNS] broadcast(w), dimensions={1} bb = f32[ROWS,COLUMNS] broadcast(b), dimensions={1}
  o = f32[ROWS,COLUMNS] multiply(d, ib) p = f32[ROWS,COLUMNS] multiply(o, wb) r = f32[ROWS,COLUMNS] add(p, bb)
  ROOT t = TYPE[ROWS,COLUMNS] convert(r) })"},
    {"softmax", 4096, R"(ENTRY e {
  x = TYPE[ROWS,COLUMNS] parameter(0) f = f32[ROWS,COLUMNS] convert(x) low = f32[] constant(-inf)
  m = f32[ROWS] reduce(f, low), dimensions={1}, to_apply=max mb = f32[ROWS,COLUMNS] broadcast(m), dimensions={0}
  d = f32[ROWS,COLUMNS] subtract(f, mb) e = f32[ROWS,COLUMNS] exponential(d) zero = f32[] constant(0)
  s = f32[ROWS] reduce(e, zero), dimensions={1}, to_apply=add sb = f32[ROWS,COLUMNS] broadcast(s), dimensions={0}
  r = f32[ROWS,COLUMNS] divide(e, sb) ROOT t = TYPE[ROWS,COLUMNS] convert(r) })"},
    {"sums of rows", 4096, R"(ENTRY e { x = TYPE[ROWS,COLUMNS] parameter(0) f = f32[ROWS,COLUMNS] convert(x) zero = f32[] constant(0)
  ROOT s = f32[ROWS] reduce(f, zero), dimensions={1}, to_apply=add })"},
    {"sums of columns", 4096, R"(ENTRY e { x = TYPE[ROWS,COLUMNS] parameter(0) f = f32[ROWS,COLUMNS] convert(x) zero = f32[] constant(0)
  ROOT s = f32[COLUMNS] reduce(f, zero), dimensions={0}, to_apply=add })"},
    {"sum of all", 4096, R"(ENTRY e { x = TYPE[ROWS,COLUMNS] parameter(0) f = f32[ROWS,COLUMNS] convert(x) zero = f32[] constant(0)
  ROOT s = f32[] reduce(f, zero), dimensions={0,1}, to_apply=add })"},
    {"transpose", 4096, R"(ENTRY e { x = TYPE[ROWS,COLUMNS] parameter(0) t = TYPE[COLUMNS,ROWS] transpose(x), dimensions={1,0}
  ROOT r = TYPE[COLUMNS,ROWS]{1,0} negate(t) })"},
    {"scan of rows", 1024, R"(ENTRY e { x = TYPE[ROWS,COLUMNS] parameter(0) f = f32[ROWS,COLUMNS] convert(x)
  zero = f32[] constant(0) z = f32[ROWS] broadcast(zero), dimensions={}
  s = (f32[ROWS,COLUMNS], f32[ROWS]) scan(f, z), dimensions={1}, num_carries=1, to_apply=step
  g = f32[ROWS,COLUMNS] get-tuple-element(s), index=0 ROOT r = TYPE[ROWS,COLUMNS] convert(g) })"},
};

// What arithmetic bounds.
struct Computed {
  const char* name;
  std::vector<int64_t> dims;
  double flops;
  std::string text;  // TYPE
  std::vector<const char*> types = {"f32", "bf16"};
};
Computed Product(int64_t rows, int64_t terms, int64_t columns) {
  const std::string text = absl::StrCat(R"(HloModule m
ENTRY e { a = TYPE[)", rows, ",", terms, "] parameter(0) b = TYPE[", terms, ",", columns, "] parameter(1) ROOT r = TYPE[", rows, ",",
                                        columns, "] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0} }");
  return {"matrix product", {rows, terms, columns}, 2.0 * static_cast<double>(rows) * static_cast<double>(terms * columns), text};
}
// Products with what a mask hides are counted, too.
Computed Attention(int64_t batch, int64_t queries, int64_t head, bool causal = false) {
  gpu::AttentionSizes sizes{.type = "TYPE", .batch = batch, .queries = queries, .keys = queries, .terms = head, .columns = head};
  if (causal) sizes.mask = gpu::AttentionMask::kCausal;
  const std::string text = gpu::AttentionText(sizes);
  return {causal ? "causal attention" : "attention", {batch, queries, head},
          4.0 * static_cast<double>(batch * queries) * static_cast<double>(queries * head), text, {"f32", "bf16", "f16"}};
}
std::vector<Computed> AllComputed(bool rehearsal) {
  if (rehearsal) return {Product(64, 64, 64), Attention(1, 32, 16), Attention(1, 32, 16, true)};
  return {Product(512, 1024, 1024),  Product(4096, 4096, 4096), Product(16, 4096, 4096),       Attention(64, 1024, 64),
          Attention(16, 4096, 128), Attention(64, 1024, 64, true), Attention(16, 4096, 128, true)};
}

// Arrays in the device's memory, and a program on them.
class Runs {
 public:
  static absl::StatusOr<std::unique_ptr<Runs>> Make(const std::string& text, const TimeOptions& options) {
    TENON_ASSIGN_OR_RETURN(CudaDevice* const device, gpu::TheCudaDevice());
    auto runs = std::make_unique<Runs>();
    runs->device_ = device;
    TENON_ASSIGN_OR_RETURN(std::unique_ptr<Module> module, ParseModule(text));
    MoveSignature(*module, gpu::kSpace);
    CompileOptions compile{.excess_precision = true};
    compile.evaluate = ConstantFolder();
    TENON_ASSIGN_OR_RETURN(const gpu::LabDevice lab_device, gpu::FindDevice(options.device));
    compile.targets.push_back(lab_device.target);
    for (const Instruction* p : module->entry()->parameters()) TENON_RETURN_IF_ERROR(runs->Add(p->shape(), &runs->inputs_));
    for (const Shape& leaf : FlattenShape(module->entry()->root()->shape())) TENON_RETURN_IF_ERROR(runs->Add(leaf, &runs->outputs_));
    Binding binding = BindingOf(*module);
    TENON_ASSIGN_OR_RETURN(Program program, CompileToProgram(std::move(module), std::move(binding), compile));
    for (const Region& region : program.regions) {
      for (const Step& step : region.steps) {
        const auto* kernel = std::get_if<KernelStep>(&step.body);
        runs->launches_ += kernel != nullptr && kernel->launch.has_value();
        if (kernel == nullptr || !kernel->launch) return absl::FailedPreconditionError(absl::StrCat("step ", step.name, " is no launch"));
      }
    }
    TENON_ASSIGN_OR_RETURN(runs->executable_,
                           Executable::Create(std::move(program), LoadersOf(compile), gpu::CudaHost(PlainHost())));
    return runs;
  }
  ~Runs() {
    for (const Array& a : arrays_) device_->Free(a.memory, device_->stream());
  }

  int64_t bytes() const { return bytes_; }
  int64_t launches() const { return launches_; }
  absl::Status Run() {
    std::vector<TenonTensor> in = inputs_, out = outputs_;
    for (size_t i = 0; i < arrays_.size(); ++i) {
      TenonTensor& t = i < in.size() ? in[i] : out[i - in.size()];
      t.data = arrays_[i].memory;
      t.sizes = arrays_[i].sizes.data();
      t.strides = arrays_[i].strides.data();
    }
    const RunResult result = executable_->Run(in.data(), out.data());
    return result.code == TENON_OK ? absl::OkStatus() : absl::Status(result.kind, result.error);
  }

 private:
  struct Array {
    void* memory = nullptr;
    std::vector<int64_t> sizes, strides;
  };
  absl::Status Add(const Shape& shape, std::vector<TenonTensor>* to) {
    const int64_t bytes = shape.byte_size().constant();
    Array array{.sizes = shape.constant_dims()};
    for (Dim d : shape.strides()) array.strides.push_back(d.constant());
    TENON_ASSIGN_OR_RETURN(array.memory, device_->Allocate(static_cast<size_t>(bytes)));
    to->push_back({.dtype = static_cast<int32_t>(shape.element_type()), .ndim = static_cast<int32_t>(array.sizes.size())});
    arrays_.push_back(std::move(array));
    bytes_ += bytes;
    // Bytes that are numbers in every type, none of them a NaN.
    const std::vector<char> values(static_cast<size_t>(bytes), 0x3c);
    const int64_t one = 1;
    return device_->Copy({.to = arrays_.back().memory, .from = values.data(), .to_space = gpu::kSpace, .to_strides = &one,
                          .from_strides = &one, .dims = &bytes, .ndim = 1, .stream = device_->stream()});
  }

  CudaDevice* device_ = nullptr;
  std::vector<Array> arrays_;
  std::vector<TenonTensor> inputs_, outputs_;
  std::shared_ptr<Executable> executable_;
  int64_t bytes_ = 0, launches_ = 0;
};

// Microseconds of one `work` among several: medians by events, behind some that warm up.
absl::StatusOr<double> Median(CudaDevice& device, const TimeOptions& options, const std::function<absl::Status()>& work) {
  std::vector<double> samples;
  for (int n = -3; n < options.samples; ++n) {
    void* begin = device.RecordEvent(device.stream(), /*timed=*/true);
    absl::Status status;
    for (int k = 0; k < options.runs && status.ok(); ++k) status = work();
    void* end = device.RecordEvent(device.stream(), /*timed=*/true);
    if (status.ok() && (begin == nullptr || end == nullptr)) status = absl::InternalError("no events");
    absl::StatusOr<double> ms = 0;
    if (status.ok()) ms = device.Milliseconds(begin, end);
    device.ReleaseEvent(begin);
    device.ReleaseEvent(end);
    TENON_RETURN_IF_ERROR(status);
    TENON_RETURN_IF_ERROR(ms.status());
    if (n >= 0) samples.push_back(*ms * 1e3 / options.runs);
  }
  std::nth_element(samples.begin(), samples.begin() + static_cast<int64_t>(samples.size() / 2), samples.end());
  return samples[samples.size() / 2];
}

// cuMemcpyDtoD that reads and writes `bytes` in all.
absl::StatusOr<double> CopyTime(int64_t bytes, const TimeOptions& options) {
  TENON_ASSIGN_OR_RETURN(CudaDevice* const device, gpu::TheCudaDevice());
  const int64_t half = bytes / 2, one = 1;
  TENON_ASSIGN_OR_RETURN(void* const from, device->Allocate(static_cast<size_t>(half)));
  const absl::StatusOr<void*> to = device->Allocate(static_cast<size_t>(half));
  absl::StatusOr<double> us = 0;
  if (!to.ok()) {
    us = to.status();
  } else {
    us = Median(*device, options, [&] {
      return device->Copy({.to = *to, .from = from, .to_space = gpu::kSpace, .from_space = gpu::kSpace, .to_strides = &one,
                           .from_strides = &one, .dims = &half, .ndim = 1, .stream = device->stream()});
    });
    device->Free(*to, device->stream());
  }
  device->Free(from, device->stream());
  return us;
}

std::string TextOf(const Timed& timed, const TimeOptions& options, int64_t bytes, Timing* timing) {
  const int64_t columns = options.rehearsal ? timed.columns / 64 : timed.columns;
  const int64_t width = timing->type == "f32" ? 4 : 2, rows = std::max<int64_t>(bytes / width / columns, 1);
  timing->dims = {rows, columns};
  return absl::StrReplaceAll(absl::StrCat(kRegions, timed.text), {{"TYPE", timing->type},
                                                                 {"ROWS", absl::StrCat(rows)},
                                                                 {"COLUMNS", absl::StrCat(columns)}});
}

absl::Status Time(const std::string& text, const TimeOptions& options, Timing* timing) {
  TENON_ASSIGN_OR_RETURN(CudaDevice* const device, gpu::TheCudaDevice());
  TENON_ASSIGN_OR_RETURN(const std::unique_ptr<Runs> runs, Runs::Make(text, options));
  timing->bytes = runs->bytes();
  timing->launches = runs->launches();
  TENON_ASSIGN_OR_RETURN(timing->us, Median(*device, options, [&] { return runs->Run(); }));
  TENON_RETURN_IF_ERROR(device->Synchronize(device->stream()));
  TENON_ASSIGN_OR_RETURN(timing->copy_us, CopyTime(timing->bytes, options));
  return absl::OkStatus();
}

void Tell(const Timing& t, const TimeOptions& options) {
  std::string told = t.error.empty() ? "ran" : t.error;
  if (t.error.empty() && !options.rehearsal) {
    told = t.flops > 0 ? absl::StrFormat("%.1f us, %.1f TFLOP/s", t.us, t.tflop_per_s())
                       : absl::StrFormat("%.1f us, %.0f GB/s, %.0f %% of a copy", t.us, t.gb_per_s(), 100 * t.to_copy());
  }
  options.tell(absl::StrCat(t.name, " ", t.type, "[", absl::StrJoin(t.dims, ","), "]: ", told));
}

}  // namespace

std::vector<Timing> RunTimes(const TimeOptions& options) {
  std::vector<Timing> timings;
  const auto time = [&](const std::string& text, Timing t) {
    absl::Status status;
    try {
      status = Time(text, options, &t);
    } catch (const InternalError& e) {
      status = absl::InternalError(e.what());
    }
    t.error = status.ok() ? "" : std::string(status.message());
    Tell(t, options);
    timings.push_back(std::move(t));
  };
  for (const Computed& computed : AllComputed(options.rehearsal)) {
    for (const char* type : computed.types) {
      if (options.time_is_up()) return timings;
      time(absl::StrReplaceAll(computed.text, {{"TYPE", type}}),
           {.name = computed.name, .type = type, .dims = computed.dims, .flops = computed.flops});
    }
  }
  for (const int64_t megabytes : options.megabytes) {
    const int64_t bytes = megabytes << (options.rehearsal ? 10 : 20);
    for (const Timed& timed : kTimed) {
      for (const char* type : {"f32", "bf16"}) {
        if (options.time_is_up()) return timings;
        Timing t{.name = timed.name, .type = type};
        const std::string text = TextOf(timed, options, bytes, &t);
        time(text, std::move(t));
      }
    }
  }
  return timings;
}

}  // namespace tenon::runner
