#include "backends/report/document.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "backends/report/module_report.h"
#include "backends/report/program_report.h"
#include "backends/report/view.h"

namespace tenon {
namespace {

ReportJson Parsed(std::string_view text) {
  return text.empty() ? ReportJson(nullptr) : ReportJson::parse(text, nullptr, /*allow_exceptions=*/false);
}

// For the inside of a script element: "<" would let a string end the element.
std::string ForScript(const ReportJson& json) { return absl::StrReplaceAll(DumpReport(json), {{"<", "\\u003c"}}); }

std::string ForText(std::string_view text) {
  return absl::StrReplaceAll(std::string(text), {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

}  // namespace

std::string GraphReport(const Program& program, std::string_view profile) {
  ReportJson json = {{"name", program.name}};
  const ReportJson compiled = Parsed(program.report);
  for (const auto& [key, value] : compiled.items()) json[key] = value;
  json["program"] = ProgramJson(program);
  json["profile"] = Parsed(profile);
  return DumpReport(json);
}

std::string GraphReport(const Module& module, std::string_view why) {
  ReportJson json = {
      {"name", module.name()}, {"module", ModuleJson(module)}, {"program", nullptr}, {"profile", nullptr}};
  if (!why.empty()) json["error"] = why;
  return DumpReport(json);
}

std::string ReportDocument(std::string_view title, const std::vector<std::string>& graphs) {
  ReportJson json = {
      {"schema", "tenon-report"}, {"version", kReportVersion}, {"title", title}, {"generator", "tenon " TENON_VERSION}};
  json["graphs"] = ReportJson::array();
  for (const std::string& graph : graphs) json["graphs"].push_back(Parsed(graph));
  return DumpReport(json);
}

absl::StatusOr<std::string> ReportHtml(std::string_view document) {
  const ReportJson json = ReportJson::parse(document, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("schema", "") != "tenon-report") {
    return absl::InvalidArgumentError("a report: wanted a JSON object with \"schema\": \"tenon-report\"");
  }
  if (json.value("version", 0) != kReportVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("a report: wanted version ", kReportVersion, ", got ", json.value("version", 0)));
  }
  return absl::StrReplaceAll(std::string(ViewPage()), {{"{{title}}", ForText(json.value("title", "module"))},
                                                       {"{{style}}", std::string(ViewStyle())},
                                                       {"{{script}}", std::string(ViewScript())},
                                                       {"{{data}}", ForScript(json)}});
}

}  // namespace tenon
