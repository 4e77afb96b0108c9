// gpu-runner: the kernels that tests make, on this machine's GPU: whether they are right (checks.h), and what they take (times.h). Needs
// no framework: only a driver (backends/gpu/driver).
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "backends/gpu/driver/cuda_loader.h"
#include "hlo/json.h"
#include "tools/gpu-runner/checks.h"
#include "tools/gpu-runner/times.h"
#include "tools/lab/workers.h"

namespace tenon::runner {
namespace {

constexpr char kUsage[] = R"(gpu-runner [flags]: runs the kernels of the tests on a GPU, against the evaluator, and times them.
  --tests=DIR      the folder tests/ of the sources (default: where it was built)
  --out=DIR        results.json and results.md go there (default: .)
  --seconds=N      ends after so long, checks after 70 % of it (default 540)
  --megabytes=N,N  sizes of what is timed (default 64,256)
  --only=checks|times
  --every=N        one check of so many
  --jobs=N         processes that check (default: half of the processors)
  --model=NAME     plans for another GPU (backends/gpu/plan/gpu_model.h): sm_80
  --libcuda=PATH   instead of libcuda.so.1
  --rehearse       the library is the fake of tests/gpu_driver, which takes bitcode; what is timed is small, and no figure is a GPU's
Exit code: 0, all is right; 1, something is wrong, refused by the driver or was not run; 2, bad flags; 3, no GPU.
)";

struct Options {
  std::string tests = TENON_SOURCE_DIR "/tests", out = ".", only, model, libcuda;
  int seconds = 540, every = 1, jobs = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / 2);
  std::vector<int64_t> megabytes = {64, 256};
  bool rehearse = false;
  std::string device() const { return absl::StrCat(rehearse ? "gpu-rehearsed" : "gpu", model.empty() ? "" : ":", model); }
};

bool Parse(int argc, char** argv, Options* o) {
  for (int i = 1; i < argc; ++i) {
    const std::pair<std::string, std::string> flag = absl::StrSplit(argv[i], absl::MaxSplits('=', 1));
    const auto& [name, value] = flag;
    bool good = true;
    if (name == "--tests") o->tests = value;
    else if (name == "--out") o->out = value;
    else if (name == "--seconds") good = absl::SimpleAtoi(value, &o->seconds) && o->seconds > 0;
    else if (name == "--every") good = absl::SimpleAtoi(value, &o->every) && o->every > 0;
    else if (name == "--jobs") good = absl::SimpleAtoi(value, &o->jobs) && o->jobs > 0;
    else if (name == "--only") good = (o->only = value) == "checks" || value == "times";
    else if (name == "--model") o->model = value;
    else if (name == "--libcuda") o->libcuda = value;
    else if (name == "--rehearse") o->rehearse = true;
    else if (name == "--megabytes") {
      o->megabytes.clear();
      for (const auto part : absl::StrSplit(value, ',')) good &= absl::SimpleAtoi(part, &o->megabytes.emplace_back());
    } else good = false;
    if (good) continue;
    std::cerr << "gpu-runner: bad flag " << argv[i] << "\n" << kUsage;
    return false;
  }
  return true;
}

class Clock {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

Json ToJson(const Checks& checks) {
  Json json = {{"right", checks.right}, {"not_run", checks.not_run}, {"refused", Json::array()}, {"wrong", Json::array()}};
  for (const auto& [key, list] : {std::pair("refused", &checks.refusals), std::pair("wrong", &checks.wrong)}) {
    for (const CheckResult& r : *list) {
      json[key].push_back({{"name", r.name}, {"outcome", std::string(lab::OutcomeName(r.outcome))}, {"text", r.text}});
    }
  }
  return json;
}

Json ToJson(const std::vector<Timing>& timings) {
  Json json = Json::array();
  for (const Timing& t : timings) {
    json.push_back({{"name", t.name}, {"type", t.type}, {"dims", t.dims}, {"bytes", t.bytes}, {"launches", t.launches}, {"us", t.us},
                    {"gb_per_s", t.gb_per_s()}, {"tflop_per_s", t.tflop_per_s()}, {"copy_us", t.copy_us}, {"to_copy", t.to_copy()},
                    {"error", t.error}});
  }
  return json;
}

std::string Markdown(const gpu::CudaFacts& gpu, const Options& o, const Checks& checks, const std::vector<Timing>& timings) {
  std::string text = absl::StrFormat(
      "## %s%s\n\nsm_%d%d, driver of CUDA %d.%d, %d multiprocessors at %d MHz, memory at %d MHz by %d bits, %d GiB.%s\n\n",
      o.rehearse ? "Rehearsal: " : "", gpu.name, gpu.major, gpu.minor, gpu.driver / 1000, gpu.driver % 1000 / 10, gpu.sms,
      gpu.clock_khz / 1000, gpu.memory_clock_khz / 1000, gpu.bus_bits, gpu.memory_bytes >> 30,
      o.rehearse ? " The emulator ran it: no figure here is a GPU's." : "");
  absl::StrAppend(&text, "Against the evaluator: ", checks.right, " modules right, ", checks.wrong.size(), " wrong, ", checks.refused,
                  " refused, ", checks.not_run, " not run.\n\n");
  for (const CheckResult& r : checks.wrong) {
    absl::StrAppend(&text, "* wrong: ", r.name, ": ", std::string(lab::OutcomeName(r.outcome)), ": ", r.text.substr(0, r.text.find('\n')),
                    "\n");
  }
  if (timings.empty()) return text;
  absl::StrAppend(&text, "\n| what | array | launches | µs | GB/s | of cuMemcpyDtoD | TFLOP/s |\n|---|---|---|---|---|---|---|\n");
  for (const Timing& t : timings) {
    const std::string array = absl::StrCat(t.type, "[", absl::StrJoin(t.dims, ","), "]");
    if (t.error.empty() && o.rehearse)
      absl::StrAppendFormat(&text, "| %s | %s | %d | | | | ran |\n", t.name, array, t.launches);
    else if (t.error.empty() && t.flops > 0)
      absl::StrAppendFormat(&text, "| %s | %s | %d | %.1f | | | %.1f |\n", t.name, array, t.launches, t.us, t.tflop_per_s());
    else if (t.error.empty())
      absl::StrAppendFormat(&text, "| %s | %s | %d | %.1f | %.0f | %.0f %% | |\n", t.name, array, t.launches, t.us, t.gb_per_s(),
                            100 * t.to_copy());
    else
      absl::StrAppendFormat(&text, "| %s | %s | | | | | %s |\n", t.name, array, t.error);
  }
  return text;
}

// Why there is no GPU, or nothing. Another process asks: one that has asked may not fork.
std::string NoGpu() {
  std::string why;
  lab::RunWorkers(
      {.jobs = 1, .count = 1},
      [](int64_t) {
        const absl::StatusOr<gpu::CudaDevice*> device = gpu::TheCudaDevice();
        return device.ok() ? "" : absl::StrReplaceAll(device.status().message(), {{"\n", " "}});
      },
      [&](int64_t, const std::string& line) { why = line; }, [&](int64_t, const std::string& how) { why = how; }, [] {});
  return why;
}

int Main(int argc, char** argv) {
  Options o;
  if (!Parse(argc, argv, &o)) return 2;
  const Clock clock;
  const auto tell = [&](const std::string& line) {
    std::printf("%6.1f s  %s\n", clock.seconds(), line.c_str());
    std::fflush(stdout);
  };
  gpu::UseCuda(o.libcuda);
  if (const std::string none = NoGpu(); !none.empty()) return std::cerr << "gpu-runner: " << none << "\n", 3;

  Checks checks;
  if (o.only != "times") {
    checks = RunChecks({.device = o.device(), .tests = o.tests, .every = o.every, .jobs = o.jobs, .seconds = 0.7 * o.seconds,
                        .tell = tell});
  }
  // From here on this process has the GPU, and may not fork.
  const absl::StatusOr<gpu::CudaDevice*> device = gpu::TheCudaDevice();
  if (!device.ok()) return std::cerr << "gpu-runner: " << std::string(device.status().message()) << "\n", 3;
  const gpu::CudaFacts& facts = (*device)->facts();
  tell(absl::StrCat(facts.name, ", sm_", facts.major, facts.minor, o.rehearse ? " (a rehearsal)" : ""));
  std::vector<Timing> timings;
  if (o.only != "checks") {
    TimeOptions times{.device = o.device(), .megabytes = o.megabytes, .rehearsal = o.rehearse,
                      .time_is_up = [&] { return clock.seconds() > o.seconds; }, .tell = tell};
    if (o.rehearse) times.samples = 1, times.runs = 2;
    timings = RunTimes(times);
  }

  const Json json = {{"device", facts.name}, {"rehearsal", o.rehearse}, {"capability", {facts.major, facts.minor}},
                     {"driver", facts.driver}, {"multiprocessors", facts.sms}, {"clock_khz", facts.clock_khz},
                     {"memory_clock_khz", facts.memory_clock_khz}, {"bus_bits", facts.bus_bits}, {"seconds", clock.seconds()},
                     {"checks", ToJson(checks)}, {"times", ToJson(timings)}};
  std::filesystem::create_directories(o.out);
  const bool written = (std::ofstream(o.out + "/results.json") << json.dump() << "\n") &&
                       (std::ofstream(o.out + "/results.md") << Markdown(facts, o, checks, timings));
  if (!written) return std::cerr << "gpu-runner: cannot write to " << o.out << "\n", 1;
  bool failed = !checks.wrong.empty() || checks.not_run > 0;
  for (const Timing& t : timings) failed |= !t.error.empty();
  tell(absl::StrCat(failed ? "FAILED: " : "done: ", checks.right, " right, ", checks.wrong.size(), " wrong, ", checks.refused, " refused, ",
                    checks.not_run, " not run, ", timings.size(), " timed; ", o.out, "/results.md"));
  return failed ? 1 : 0;
}

}  // namespace
}  // namespace tenon::runner

int main(int argc, char** argv) { return tenon::runner::Main(argc, argv); }
