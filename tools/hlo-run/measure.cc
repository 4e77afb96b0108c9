#include "tools/hlo-run/measure.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "backends/cpu/plan/target.h"
#include "backends/report/document.h"
#include "runtime/host/thread_pool.h"

namespace tenon::run {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kSecondUs = 1e6;

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
  const absl::StatusOr<CpuTarget> target = MakeCpuTarget(o.compile.isa);
  return target.ok() ? target->isa : o.compile.isa;
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

// Rows of the profile with what is derived: times per run and execution, speeds, shares. Steps that run regions hold
// the time of what they run, so they have no share.
Json ProfileRows(const Json& profile) {
  std::vector<Json> rows;
  double total = 0;
  const double runs = std::max(1.0, profile["regions"].empty() ? 1.0 : profile["regions"][0].get<double>());
  for (const Json& step : profile["steps"]) {
    Json row = step;
    const double ns = step["ns"], count = step["count"], once = count > 0 ? ns / count : 0;
    const bool control = step["kind"] == "while" || step["kind"] == "conditional";
    row["us"] = ns / runs / 1e3;
    row["executions"] = count / runs;
    row["gb_per_s"] = once > 0 && !control ? step["bytes"].get<double>() / once : 0;
    row["gflop_per_s"] = once > 0 && !control ? step["flops"].get<double>() / once : 0;
    if (!control) total += ns;
    rows.push_back(std::move(row));
  }
  for (Json& row : rows) {
    const bool control = row["kind"] == "while" || row["kind"] == "conditional";
    row["share"] = control || total == 0 ? Json(nullptr) : Json(row["ns"].get<double>() / total);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Json& a, const Json& b) { return a["us"] > b["us"]; });
  return rows;
}

void PrintProfile(const Json& profile, const Json& rows, const Program& program, int limit) {
  double us = 0;
  for (const Json& row : rows) us += row["share"].is_null() ? 0 : row["us"].get<double>();
  std::printf("%zu steps, %.1f us a run in them, mean of %s profiled runs\n", rows.size(), us,
              profile["regions"][0].dump().c_str());
  std::printf("%7s %11s %9s %11s %9s %11s %9s  %s\n", "share", "us", "runs", "bytes", "GB/s", "flops", "GFLOP/s",
              "step");
  double rest = 0;
  int shown = 0;
  for (const Json& row : rows) {
    if (limit > 0 && shown == limit) {
      rest += row["share"].is_null() ? 0 : row["us"].get<double>();
      continue;
    }
    ++shown;
    const std::string what =
        row.value("op", row.contains("kernel") ? program.kernels[row["kernel"].get<size_t>()].symbol
                                               : row["kind"].get<std::string>());
    const std::string source = row["source"];
    std::printf("%7s %11.2f %9.4g %11s %9.2f %11.4g %9.2f  %s %s%s\n",
                row["share"].is_null() ? "" : absl::StrFormat("%.1f%%", 100 * row["share"].get<double>()).c_str(),
                row["us"].get<double>(), row["executions"].get<double>(),
                absl::StrCat(row["bytes"].get<int64_t>()).c_str(), row["gb_per_s"].get<double>(),
                row["flops"].get<double>(), row["gflop_per_s"].get<double>(), what.c_str(),
                row["name"].get<std::string>().c_str(), source.empty() ? "" : absl::StrCat("  [", source, "]").c_str());
  }
  if (shown < static_cast<int>(rows.size())) std::printf("%19.2f  in %zu more\n", rest, rows.size() - shown);
  for (size_t r = 1; r < program.regions.size(); ++r) {
    std::printf("region %s: %.4g runs a run\n",
                program.regions[r].name.empty() ? absl::StrCat("r", r).c_str() : program.regions[r].name.c_str(),
                profile["regions"][r].get<double>() / std::max(1.0, profile["regions"][0].get<double>()));
  }
}

absl::Status Profile(LiteralExecutable::Session& session, const Options& o, Json* json) {
  TENON_RETURN_IF_ERROR(session.Run());
  session.executable().StatsJson(/*reset=*/true);
  Executable::SetProfiling(true);
  const absl::StatusOr<std::vector<double>> times = TimedRuns(session, o.repeat > 0 ? o.repeat : 20);
  Executable::SetProfiling(false);
  TENON_RETURN_IF_ERROR(times.status());
  const Json profile = Json::parse(session.executable().ProfileJson());
  Json rows = ProfileRows(profile);
  if (json == nullptr)
    PrintProfile(profile, rows, session.executable().program(), o.rows);
  else
    (*json)["profile"] = {{"runs", profile["regions"][0]},
                          {"threads", PoolThreads()},
                          {"isa", IsaOf(o)},
                          {"regions", profile["regions"]},
                          {"steps", std::move(rows)}};
  return absl::OkStatus();
}

absl::Status WriteHtml(const LiteralExecutable::Session& session, const Options& o) {
  const Executable& e = session.executable();
  TENON_ASSIGN_OR_RETURN(const std::string html,
                         ReportHtml(ReportDocument(o.file, {GraphReport(e.program(), e.ProfileJson())})));
  if (std::ofstream(o.html, std::ios::binary) << html) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cannot write ", o.html));
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
