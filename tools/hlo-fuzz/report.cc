#include "tools/hlo-fuzz/report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/lab/case_files.h"

namespace tenon::lab {
namespace {

// A refusal without the names and numbers of its module: "custom-call target is not registered".
std::string Reason(const std::string& text) {
  std::string kept;
  size_t from = 0;
  while (from < text.size()) {
    const size_t to = std::min(text.find(' ', from), text.size());
    const std::string word = text.substr(from, to - from);
    const bool name = word.starts_with('"') || (word.find('.') != std::string::npos && word.find('.') + 1 < word.size());
    if (!name && word.find_first_of("0123456789[{") == std::string::npos) kept += (kept.empty() ? "" : " ") + word;
    from = to + 1;
  }
  return kept.substr(0, 100);
}

std::vector<std::pair<std::string, int64_t>> ByCount(const std::map<std::string, int64_t>& counts) {
  std::vector<std::pair<std::string, int64_t>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return sorted;
}

std::string JsonCounts(const std::map<std::string, int64_t>& counts) {
  return absl::StrCat("{", absl::StrJoin(counts, ", ", [](std::string* out, const auto& entry) {
    absl::StrAppend(out, JsonString(entry.first), ": ", entry.second);
  }), "}");
}

std::string Columns(const std::map<std::string, int64_t>& counts) {
  std::string text;
  int column = 0;
  for (const auto& [name, n] : ByCount(counts)) {
    absl::StrAppendFormat(&text, "%-26s%9d%s", name, n, ++column % 4 == 0 ? "\n" : "   ");
  }
  if (column % 4 != 0) text += "\n";
  return text;
}

}  // namespace

void Report::Add(const Record& r) {
  ++modules_;
  ++outcomes_[std::string(OutcomeName(r.outcome))];
  instructions_.push_back(r.instructions);
  elements_ += r.elements;
  bounded_ += r.bounded;
  unjudged_ += r.unjudged;
  for (const auto& [name, n] : r.opcodes) opcodes_[name] += n;
  for (const auto& [name, n] : r.types) types_[name] += n;
  for (const auto& [name, n] : r.symbolic) symbolic_[name] += n;
  calls_ += r.calls;
  refused_calls_ += r.refused_calls;
  if (r.outcome == Outcome::kSame) ++same_;
  if (r.outcome == Outcome::kRefused) ++refused_, ++refusals_[Reason(r.text)];
  if (r.outcome != Outcome::kSame && r.outcome != Outcome::kRefused) failures_.push_back(r);
}

void Report::AddDeath(int64_t k, const std::string& how) {
  ++modules_;
  ++outcomes_["crash or hang"];
  failures_.push_back({.k = k, .outcome = Outcome::kRunError, .text = how});
}

int64_t Report::Quantile(double q) const {
  if (instructions_.empty()) return 0;
  std::vector<int64_t> sorted = instructions_;
  const size_t at = std::min(sorted.size() - 1, static_cast<size_t>(q * static_cast<double>(sorted.size())));
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<int64_t>(at), sorted.end());
  return sorted[at];
}

std::string Report::Line() const {
  return absl::StrFormat("%d modules: %d same, %d refused, %d failed", modules_, same_, refused_, failures());
}

std::string Report::Table(const FuzzOptions& options, double seconds) const {
  std::string text = absl::StrFormat("seed %d, isa %s, threads %s, %d configurations a module, %.1f s\n\n", options.seed,
                                     absl::StrJoin(options.isas, ","), absl::StrJoin(options.threads, ","), options.runs, seconds);
  absl::StrAppendFormat(&text, "modules       %d (%s)\n", modules_, absl::StrJoin(outcomes_, ", ", [](std::string* out, const auto& o) {
                          absl::StrAppend(out, o.second, " ", o.first);
                        }));
  absl::StrAppendFormat(&text, "instructions  median %d, 10%% %d, 90%% %d, largest %d\n", Quantile(0.5), Quantile(0.1), Quantile(0.9),
                        Quantile(1));
  const double n = std::max<double>(1, static_cast<double>(elements_));
  absl::StrAppendFormat(&text, "elements      %d compared: %.2f%% bit by bit, %.2f%% within a bound, %.3f%% not judged\n", elements_,
                        100 * static_cast<double>(elements_ - bounded_) / n, 100 * static_cast<double>(bounded_ - unjudged_) / n,
                        100 * static_cast<double>(unjudged_) / n);
  if (calls_ > 0) {
    absl::StrAppendFormat(&text, "calls         %d judged, %d that break a guard, refused\n", calls_, refused_calls_);
    std::map<std::string, int64_t> shares;
    for (const auto& [name, n] : symbolic_) shares[name] = 1000 * n / modules_;
    absl::StrAppend(&text, "\nmodules of a thousand in which an opcode is of symbolic size\n", Columns(shares));
  }
  absl::StrAppend(&text, "\ninstructions by opcode\n", Columns(opcodes_), "\narrays by element type\n", Columns(types_));
  std::string missing;
  for (Opcode op : GeneratedOpcodes()) {
    if (!opcodes_.contains(std::string(InfoOf(op).name))) absl::StrAppend(&missing, " ", std::string(InfoOf(op).name));
  }
  if (!missing.empty()) absl::StrAppend(&text, "\nnever generated:", missing, "\n");
  if (!refusals_.empty()) text += "\nrefusals\n";
  for (const auto& [reason, count] : ByCount(refusals_)) absl::StrAppendFormat(&text, "%9d  %s\n", count, reason);
  if (!failures_.empty()) text += "\nfailures\n";
  for (const Record& r : failures_) {
    absl::StrAppendFormat(&text, "  --seed=%d --module=%d  %s: %s (%s)\n", options.seed, r.k, OutcomeName(r.outcome),
                          r.text.substr(0, 300), r.configuration);
  }
  return text;
}

std::string Report::Json(const FuzzOptions& options, double seconds) const {
  std::string failed;
  for (const Record& r : failures_) {
    absl::StrAppend(&failed, failed.empty() ? "" : ", ", "{\"module\": ", r.k,
                    ", \"outcome\": ", JsonString(std::string(OutcomeName(r.outcome))),
                    ", \"configuration\": ", JsonString(r.configuration), ", \"text\": ", JsonString(r.text), "}");
  }
  return absl::StrCat("{\"seed\": ", options.seed, ", \"seconds\": ", seconds, ", \"modules\": ", modules_, ", \"outcomes\": ",
                      JsonCounts(outcomes_), ",\n \"instructions\": {\"median\": ", Quantile(0.5), ", \"p10\": ", Quantile(0.1),
                      ", \"p90\": ", Quantile(0.9), ", \"max\": ", Quantile(1), "}, \"elements\": ", elements_, ", \"bounded\": ", bounded_,
                      ", \"unjudged\": ", unjudged_, ", \"calls\": ", calls_, ", \"refused_calls\": ", refused_calls_, ",\n \"symbolic\": ",
                      JsonCounts(symbolic_), ",\n \"opcodes\": ", JsonCounts(opcodes_), ",\n \"types\": ", JsonCounts(types_),
                      ",\n \"refusals\": ", JsonCounts(refusals_), ",\n \"failures\": [", failed, "]}\n");
}

}  // namespace tenon::lab
