#include "tools/hlo-run/measure.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "backends/driver/targets.h"
#include "backends/report/document.h"
#include "runtime/host/plain_host.h"
#include "runtime/host/thread_pool.h"
#include "runtime/profile/recorder.h"

namespace tenon::run {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kSecondUs = 1e6;
constexpr int64_t kTraceEvents = 200'000;

// At least 10 runs and at most 1000, for about a second; first some that don't count: memory is mapped, caches and
// clocks settle.
absl::StatusOr<std::vector<double>> TimedRuns(LiteralExecutable::Session& session, int repeat) {
  double first_us = 0;
  TENON_RETURN_IF_ERROR(session.Run(&first_us));
  int runs = repeat;
  if (runs == 0) {
    double us = first_us;
    for (int n = 0; n < 2 && us < kSecondUs / 10; ++n) TENON_RETURN_IF_ERROR(session.Run(&us));
    runs = static_cast<int>(std::clamp(kSecondUs / std::max(us, 1.0), 10.0, 1000.0));
  }
  for (int n = 0; n < runs / 10; ++n) TENON_RETURN_IF_ERROR(session.Run());
  std::vector<double> times(runs);
  for (double& us : times) TENON_RETURN_IF_ERROR(session.Run(&us));
  return times;
}

double Quantile(const std::vector<double>& sorted, double q) {
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(q * static_cast<double>(sorted.size())))];
}

std::string IsaOf(const Options& o) {
  const absl::StatusOr<std::shared_ptr<const Target>> target = MakeHostTarget(o.compile.isa);
  return target.ok() ? (*target)->facts().variant : o.compile.isa;
}

absl::Status Bench(LiteralExecutable::Session& session, const LiteralExecutable& executable, const Options& o,
                   Json* json) {
  TENON_ASSIGN_OR_RETURN(std::vector<double> times, TimedRuns(session, o.repeat));
  std::sort(times.begin(), times.end());
  double sum = 0;
  for (double us : times) sum += us;
  const double mean = sum / static_cast<double>(times.size());
  Json bench = {{"isa", IsaOf(o)},
                {"threads", PoolThreads()},
                {"compile_ms", {{"total", executable.compile_ms()}}},
                {"run_us",
                 {{"runs", times.size()},
                  {"min", times[0]},
                  {"median", Quantile(times, 0.5)},
                  {"p90", Quantile(times, 0.9)},
                  {"mean", mean}}}};
  for (const auto& [phase, ms] : session.executable().program().compile_ms) bench["compile_ms"][phase] = ms;
  if (json != nullptr) {
    (*json)["bench"] = std::move(bench);
    return absl::OkStatus();
  }
  std::printf("%s, %d threads\ncompile %.1f ms:", bench["isa"].get<std::string>().c_str(), PoolThreads(),
              executable.compile_ms());
  for (const auto& [phase, ms] : session.executable().program().compile_ms)
    std::printf(" %s %.2f", phase.c_str(), ms);
  std::printf("\nrun: min %.1f us, median %.1f us, 90%% %.1f us, mean %.1f us of %zu runs\n", times[0],
              Quantile(times, 0.5), Quantile(times, 0.9), mean, times.size());
  return absl::OkStatus();
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  if (std::ofstream(path, std::ios::binary) << text) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cannot write ", path));
}

absl::Status Profile(LiteralExecutable::Session& session, const Options& o, Json* json) {
  TENON_RETURN_IF_ERROR(session.Run());
  session.executable().StatsJson(/*reset=*/true);
  // The page shows what counters and traces of the executable's own know.
  Executable::SetProfiling(!o.html.empty());
  absl::Status status = Recorder::Start(kTraceEvents);
  if (status.ok()) status = TimedRuns(session, o.repeat > 0 ? o.repeat : 20).status();
  const absl::StatusOr<std::unique_ptr<tenon::Profile>> profile = Recorder::Stop();
  Executable::SetProfiling(false);
  TENON_RETURN_IF_ERROR(status);
  TENON_RETURN_IF_ERROR(profile.status());
  if (!o.trace.empty()) TENON_RETURN_IF_ERROR(WriteFile(o.trace, (*profile)->ChromeTrace()));
  const MachineRoof& roof = RoofOf(*PlainHost());
  if (json == nullptr) {
    std::fputs((*profile)->Table(roof, o.rows).c_str(), stdout);
    return absl::OkStatus();
  }
  Json told = Json::parse((*profile)->JsonText(roof));
  Json& program = told["programs"][0];
  Json regions = Json::array();
  for (const Json& region : program["regions"]) regions.push_back(region["runs"]);
  std::vector<Json> steps = program["steps"];
  std::stable_sort(steps.begin(), steps.end(), [](const Json& a, const Json& b) { return a["us"] > b["us"]; });
  (*json)["profile"] = {{"runs", regions[0]},      {"threads", PoolThreads()}, {"isa", IsaOf(o)}, {"regions", std::move(regions)},
                        {"roof", told["roof"]}, {"steps", std::move(steps)}};
  return absl::OkStatus();
}

absl::Status WriteHtml(const LiteralExecutable::Session& session, const Options& o) {
  const Executable& e = session.executable();
  TENON_ASSIGN_OR_RETURN(const std::string html,
                         ReportHtml(ReportDocument(o.file, {GraphReport(e.program(), e.ProfileJson())})));
  return WriteFile(o.html, html);
}

}  // namespace

absl::Status Measure(const LiteralExecutable& executable, absl::Span<const Literal> args, const Options& o,
                     Json* json) {
  TENON_ASSIGN_OR_RETURN(const std::unique_ptr<LiteralExecutable::Session> session, executable.Prepare(args));
  if (o.bench || (o.repeat > 0 && !o.profile)) TENON_RETURN_IF_ERROR(Bench(*session, executable, o, json));
  if (o.profile) TENON_RETURN_IF_ERROR(Profile(*session, o, json));
  return o.html.empty() ? absl::OkStatus() : WriteHtml(*session, o);
}

}  // namespace tenon::run
