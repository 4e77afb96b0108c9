// A report as one document: what was compiled (module_report.h), what runs (the Program), what its runs cost (a
// profile), and the page that shows it. docs/architecture/report.md describes the JSON.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "hlo/module.h"
#include "runtime/program/program.h"

namespace tenon {

inline constexpr int kReportVersion = 1;

// One graph's part of a document. `profile`: RunCounters::ProfileJson, or "".
std::string GraphReport(const Program& program, std::string_view profile);
// The same of a module that was not compiled: `why` says why not ("" where nobody asked).
std::string GraphReport(const Module& module, std::string_view why);

// {"schema":"tenon-report","version":1,"title":...,"generator":...,"graphs":[...]}.
std::string ReportDocument(std::string_view title, const std::vector<std::string>& graphs);

// A page that shows `document` and needs nothing else: no network, no fonts, no files. Whatever stands in the
// document's strings is shown as text. InvalidArgument: it is not a document of this version.
absl::StatusOr<std::string> ReportHtml(std::string_view document);

}  // namespace tenon
