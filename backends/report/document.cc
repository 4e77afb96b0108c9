#include "backends/report/document.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "backends/report/module_report.h"
#include "backends/report/program_report.h"
#include "backends/report/view.h"

namespace tenon {
namespace {

Json Parsed(std::string_view text) {
  return Json::Parse(text).value_or(Json());
}

// For the inside of a script element: "<" would let a string end the element.
std::string ForScript(const Json& json) { return absl::StrReplaceAll(json.dump(), {{"<", "\\u003c"}}); }

std::string ForText(std::string_view text) {
  return absl::StrReplaceAll(std::string(text), {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

}  // namespace

std::string GraphReport(const Program& program, std::string_view profile) {
  Json json = {{"name", program.name}};
  const Json compiled = Parsed(program.report);
  for (const auto& [key, value] : compiled.items()) json[key] = value;
  json["program"] = ProgramJson(program);
  json["profile"] = Parsed(profile);
  return json.dump();
}

std::string GraphReport(const Module& module, std::string_view why) {
  Json json = {
      {"name", module.name()}, {"module", ModuleJson(module)}, {"program", nullptr}, {"profile", nullptr}};
  if (!why.empty()) json["error"] = why;
  return json.dump();
}

std::string ReportDocument(std::string_view title, const std::vector<std::string>& graphs) {
  Json json = {
      {"schema", "tenon-report"}, {"version", kReportVersion}, {"title", title}, {"generator", "tenon " TENON_VERSION}};
  json["graphs"] = Json::array();
  for (const std::string& graph : graphs) json["graphs"].push_back(Parsed(graph));
  return json.dump();
}

absl::StatusOr<std::string> ReportHtml(std::string_view document) {
  const Json json = Json::Parse(document).value_or(Json());
  if (json.value("schema", "") != "tenon-report") {
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
