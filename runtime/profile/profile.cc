#include "runtime/profile/profile.h"

#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <initializer_list>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tenon {
namespace {

// absl::StrFormat ends the process where memory lacks. At most 500 letters.
[[gnu::format(printf, 1, 2)]] std::string Printed(const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return text;
}

double Ratio(double a, double b) { return b > 0 ? a / b : 0; }

// What is derived of a step. Negative: unknown, or has no meaning.
struct Rates {
  double ns, us_per_call, executions, pieces, share = -1, gb_per_s = -1, gflop_per_s = -1, roof = -1;
};

class Reader {
 public:
  Reader(const Profile& profile, const MachineRoof& roof) : p_(profile), roof_(roof) {
    for (const ProfiledProgram& program : p_.programs) all_ns_ += Ns(program.ticks);
  }

  double Ns(uint64_t ticks) const { return p_.Ns(ticks); }
  double all_ns() const { return all_ns_; }

  Rates RatesOf(const ProfiledProgram& program, const ProfiledStep& step) const {
    const auto count = static_cast<double>(step.totals.count), calls = static_cast<double>(program.calls);
    Rates r{.ns = Ns(step.totals.ticks)};
    r.us_per_call = Ratio(r.ns, calls) / 1e3;
    r.executions = Ratio(count, calls);
    r.pieces = Ratio(static_cast<double>(step.totals.pieces), count);
    if (step.control) return r;
    r.share = Ratio(r.ns, all_ns_);
    const double once = Ratio(r.ns, count);
    if (once <= 0) return r;
    if (step.bytes > 0) r.gb_per_s = static_cast<double>(step.bytes) / once;
    if (step.flops > 0) r.gflop_per_s = static_cast<double>(step.flops) / once;
    if (step.bytes > 0 || step.flops > 0) r.roof = roof_.LeastNs(step.bytes, step.flops, step.f64) / once;
    return r;
  }

  // Of a program's runs, what no step of its outermost regions accounts for.
  double BetweenNs(const ProfiledProgram& program) const {
    double ns = Ns(program.ticks);
    for (const ProfiledStep& step : program.steps) {
      if (step.region == 0 || step.region == program.commit_region) ns -= Ns(step.totals.ticks);
    }
    return std::max(0.0, ns);
  }

 private:
  const Profile& p_;
  const MachineRoof& roof_;
  double all_ns_ = 0;
};

Json OrNull(double x) { return x < 0 ? Json() : Json(x); }

Json RoofJson(const MachineRoof& roof) {
  Json levels = Json::array();
  for (size_t k = 0; k < roof.levels.size(); ++k) {
    const MachineRoof::Level& l = roof.levels[k];
    levels.push_back({{"name", l.name}, {"bytes", k + 1 == roof.levels.size() ? Json() : Json(l.bytes)}, {"gb_per_s", l.gb_per_s}});
  }
  Json json = {{"threads", roof.threads}, {"f32_gflop_per_s", roof.f32_gflop_per_s}};
  json["levels"] = std::move(levels);
  return json;
}

Json StepJson(const Reader& reader, const ProfiledProgram& program, const ProfiledStep& step, size_t number) {
  const Rates r = reader.RatesOf(program, step);
  Json row = step.described;
  row["region"] = step.region;
  row["step"] = number;
  row["count"] = step.totals.count;
  row["ns"] = r.ns;
  row["us"] = r.us_per_call;
  row["executions"] = r.executions;
  row["pieces"] = r.pieces;
  row["busy_ns"] = reader.Ns(step.totals.busy);
  row["share"] = OrNull(r.share);
  row["gb_per_s"] = OrNull(r.gb_per_s);
  row["gflop_per_s"] = OrNull(r.gflop_per_s);
  row["roof"] = OrNull(r.roof);
  return row;
}

// 12.3M: three digits and a unit, at most 7 letters.
std::string Count(double n) {
  static constexpr std::pair<double, char> kUnits[] = {{1e15, 'P'}, {1e12, 'T'}, {1e9, 'G'}, {1e6, 'M'}, {1e3, 'k'}};
  for (const auto& [size, unit] : kUnits) {
    if (n >= size) return Printed("%.*f%c", n >= 100 * size ? 0 : n >= 10 * size ? 1 : 2, n / size, unit);
  }
  return Printed("%.4g", n);
}
std::string Percent(double share) { return share < 0 ? "" : Printed("%.1f%%", 100 * share); }
std::string Rate(double rate) { return rate < 0 ? "" : Printed("%.1f", rate); }

// Right-aligned columns, then what the step is.
std::string Columns(std::initializer_list<std::string> columns, const std::string& rest) {
  static constexpr size_t kWidths[] = {7, 11, 9, 11, 7, 9, 9, 9, 9, 7};
  std::string line;
  size_t k = 0;
  for (const std::string& column : columns) {
    const size_t width = kWidths[k];
    absl::StrAppend(&line, k++ == 0 ? "" : " ", std::string(width - std::min(width, column.size()), ' '), column);
  }
  return absl::StrCat(line, "  ", rest, "\n");
}

std::string Kind(const std::string& kind, const std::string& rest) {
  return absl::StrCat(kind, std::string(12 - std::min<size_t>(12, kind.size()), ' '), rest);
}

std::string Heading() {
  return Columns({"share", "total ms", "count", "mean us", "pieces", "bytes", "GB/s", "flops", "GFLOP/s", "roof"}, Kind("kind", "step"));
}

std::string Row(const Reader& reader, const ProfiledProgram& program, const ProfiledStep& step) {
  const Rates r = reader.RatesOf(program, step);
  const double once = Ratio(r.ns, static_cast<double>(step.totals.count));
  const std::string op = step.described.value("op", ""), source = step.described.value("source", "");
  std::string what = op;
  absl::StrAppend(&what, op.empty() ? "" : " ", step.described.value("name", ""));
  if (!source.empty()) absl::StrAppend(&what, "  [", source, "]");
  return Columns({Percent(r.share), Printed("%.3f", r.ns / 1e6), absl::StrCat(step.totals.count), Printed("%.2f", once / 1e3),
                  r.pieces > 0 ? Printed("%.3g", r.pieces) : "", step.bytes > 0 ? Count(static_cast<double>(step.bytes)) : "",
                  Rate(r.gb_per_s), step.flops > 0 ? Count(static_cast<double>(step.flops)) : "", Rate(r.gflop_per_s), Percent(r.roof)},
                 Kind(step.described.value("kind", ""), what));
}

std::string Line(double share, double ns, const std::string& what) {
  return absl::StrCat(Printed("%7s %11.3f ", Percent(share).c_str(), ns / 1e6), what, "\n");
}

void AppendProgram(const Reader& reader, const ProfiledProgram& program, int64_t rows, std::string* table) {
  const auto calls = static_cast<double>(program.calls);
  const double us = Ratio(reader.Ns(program.ticks), calls) / 1e3;
  absl::StrAppend(table, program.name, Printed(": %.0f calls, %.2f us each, %zu steps\n", calls, us, program.steps.size()), Heading());
  std::vector<const ProfiledStep*> order;
  for (const ProfiledStep& step : program.steps) order.push_back(&step);
  std::stable_sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->totals.ticks > b->totals.ticks; });
  const size_t shown = rows > 0 ? std::min(order.size(), static_cast<size_t>(rows)) : order.size();
  double rest = 0;
  for (size_t k = 0; k < order.size(); ++k) {
    if (k < shown) absl::StrAppend(table, Row(reader, program, *order[k]));
    if (k >= shown && !order[k]->control) rest += reader.Ns(order[k]->totals.ticks);
  }
  const auto line = [&](double ns, const std::string& what) { absl::StrAppend(table, Line(Ratio(ns, reader.all_ns()), ns, what)); };
  if (shown < order.size()) line(rest, absl::StrCat("in ", order.size() - shown, " more"));
  line(reader.BetweenNs(program), "between steps");
  for (size_t r = 1; r < program.regions.size(); ++r) {
    const std::string& name = program.region_names[r];
    absl::StrAppend(table, "region ", name.empty() ? absl::StrCat("r", r) : name,
                    Printed(": %.4g runs a call\n", Ratio(static_cast<double>(program.regions[r]), calls)));
  }
  absl::StrAppend(table, "\n");
}

std::string RoofLine(const MachineRoof& roof) {
  std::string line = Printed("roof: %d threads, %.1f GFLOP/s f32; reading", roof.threads, roof.f32_gflop_per_s);
  for (size_t k = 0; k < roof.levels.size(); ++k) {
    absl::StrAppend(&line, Printed("%s %.1f GB/s %s", k == 0 ? "" : ",", roof.levels[k].gb_per_s, roof.levels[k].name.c_str()));
  }
  return line + "\n";
}

std::vector<int32_t> ThreadsOf(const std::vector<ProfiledEvent>& events, bool callers) {
  std::set<int32_t> threads;
  for (const ProfiledEvent& e : events) {
    if (!callers || e.event.kind == TraceEvent::Kind::kCall) threads.insert(e.event.thread);
  }
  return {threads.begin(), threads.end()};
}

}  // namespace

std::string Profile::JsonText(const MachineRoof& roof) const {
  const Reader reader(*this, roof);
  Json json = {{"wall_ns", reader.Ns(end - begin)}, {"inside_ns", reader.Ns(inside)},          {"unfinished", unfinished},
               {"events", events.size()},           {"dropped", dropped},                      {"threads", ThreadsOf(events, false).size()},
               {"roof", RoofJson(roof)}};
  json["programs"] = Json::array();
  for (const ProfiledProgram& program : programs) {
    Json region_rows = Json::array(), step_rows = Json::array();
    for (size_t r = 0; r < program.regions.size(); ++r)
      region_rows.push_back({{"name", program.region_names[r]}, {"runs", program.regions[r]}});
    for (size_t k = 0, first = 0; k < program.steps.size(); ++k) {
      if (program.steps[k].region != program.steps[first].region) first = k;
      step_rows.push_back(StepJson(reader, program, program.steps[k], k - first));
    }
    Json row = {{"name", program.name}, {"calls", program.calls}, {"ns", reader.Ns(program.ticks)}};
    row["regions"] = std::move(region_rows);
    row["steps"] = std::move(step_rows);
    json["programs"].push_back(std::move(row));
  }
  return json.dump();
}

std::string Profile::Table(const MachineRoof& roof, int64_t rows) const {
  const Reader reader(*this, roof);
  std::vector<const ProfiledProgram*> order;
  for (const ProfiledProgram& program : programs) order.push_back(&program);
  std::stable_sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->ticks > b->ticks; });
  std::string table;
  for (const ProfiledProgram* program : order) AppendProgram(reader, *program, rows, &table);
  const double wall = reader.Ns(end - begin), in = reader.Ns(inside);
  absl::StrAppend(&table, RoofLine(roof),
                  Printed("recorded %.3f ms: %.3f ms (%s) in tenon's programs, %.3f ms (%s) outside\n", wall / 1e6, in / 1e6,
                                  Percent(Ratio(in, wall)).c_str(), (wall - in) / 1e6, Percent(Ratio(wall - in, wall)).c_str()));
  if (unfinished > 0) absl::StrAppend(&table, unfinished, " calls went on after the end and are not in here\n");
  if (dropped > 0) absl::StrAppend(&table, "the timeline lacks ", dropped, " events for which there was no room; the table has them\n");
  return table;
}

std::string Profile::ChromeTrace() const {
  static constexpr const char* kCategories[] = {"call", "step", "launch", "piece"};
  const std::string pid = absl::StrCat(getpid());
  const auto micros = [&](uint64_t ticks) { return Printed("%.3f", Ns(ticks) / 1e3); };
  std::string text = "{\"traceEvents\":[";
  const char* comma = "";
  const std::vector<int32_t> callers = ThreadsOf(events, true);
  for (int32_t thread : ThreadsOf(events, false)) {
    const bool calls = std::binary_search(callers.begin(), callers.end(), thread);
    absl::StrAppend(&text, comma, R"({"ph":"M","name":"thread_name","pid":)", pid, ",\"tid\":", thread, R"(,"args":{"name":")",
                    calls ? "calls tenon " : "pool ", thread, "\"}}");
    comma = ",\n";
  }
  // Texts that repeat: of each program its name, of each step name, kind and arguments.
  std::vector<std::string> names;
  std::vector<std::vector<std::pair<std::string, std::string>>> steps(programs.size());
  for (size_t p = 0; p < programs.size(); ++p) {
    names.push_back(Json(programs[p].name).dump());
    for (const ProfiledStep& s : programs[p].steps) {
      Json arguments = {{"program", programs[p].name}, {"bytes", s.bytes}, {"flops", s.flops}};
      for (const char* key : {"kind", "op", "source"}) arguments[key] = s.described.value(key, "");
      steps[p].emplace_back(Json(s.described.value("name", "")).dump(), arguments.dump());
    }
  }
  for (const auto& [program, e] : events) {
    const bool call = e.kind == TraceEvent::Kind::kCall;
    const uint64_t from = std::max(e.begin, begin);
    absl::StrAppend(&text, comma, R"({"ph":"X","cat":")", kCategories[static_cast<int>(e.kind)], "\",\"name\":",
                    call ? names[program] : steps[program][e.step].first, ",\"pid\":", pid, ",\"tid\":", e.thread);
    absl::StrAppend(&text, ",\"ts\":", micros(from - begin), ",\"dur\":", micros(std::max(e.end, from) - from));
    if (!call) absl::StrAppend(&text, ",\"args\":", steps[program][e.step].second);
    absl::StrAppend(&text, "}");
    comma = ",\n";
  }
  absl::StrAppend(&text, R"(],"displayTimeUnit":"ns","otherData":{"recorder":"tenon","dropped":)", dropped, "}}\n");
  return text;
}

}  // namespace tenon
