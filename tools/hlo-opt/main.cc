// hlo-opt: parses, verifies, runs named passes over and prints HLO modules, and shows every stage of their compilation.
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "backends/report/document.h"
#include "tools/hlo-opt/cases.h"
#include "tools/hlo-opt/options.h"
#include "tools/hlo-opt/process.h"

namespace tenon::opt {
namespace {

bool WriteHtml(const Options& o, const std::vector<std::string>& graphs) {
  const std::string title = o.files.size() == 1 ? o.files[0] : std::to_string(o.files.size()) + " files";
  const absl::StatusOr<std::string> html = ReportHtml(ReportDocument(title, graphs));
  if (html.ok() && std::ofstream(o.html, std::ios::binary) << *html) return true;
  std::cerr << o.html << ": " << (html.ok() ? "cannot write the file" : std::string(html.status().message())) << "\n";
  return false;
}

int Run(int argc, char** argv) {
  const Options options = ParseFlags(argc, argv);
  if (options.done != 0) return options.done - 1;
  int cases = 0, failures = 0;
  std::vector<std::string> graphs;
  const auto failed = [&](const std::string& name, const absl::Status& status) {
    ++failures;
    std::cerr << name << ": " << std::string(status.message()) << "\n";
  };
  for (const std::string& path : options.files) {
    const absl::StatusOr<std::vector<Case>> inputs = ReadCases(path, options.split_input);
    if (!inputs.ok()) {
      ++cases;
      failed(path, inputs.status());
      if (options.json)
        std::cout << nlohmann::json{{"file", path},
                                    {"ok", false},
                                    {"error", {{"code", "NOT_FOUND"}, {"message", inputs.status().message()}}}}
                  << "\n";
      continue;
    }
    for (const Case& input : *inputs) {
      // Between printed modules the separator of the input again: the output is an input.
      if (options.split_input && !options.json && !options.time && !options.check_roundtrip && input.number > 0)
        std::cout << "// -----\n";
      ++cases;
      const absl::Status status = Process(input, options, &graphs);
      if (!status.ok()) failed(input.name, status);
    }
  }
  if (options.check_roundtrip && !options.json)
    std::cout << cases - failures << " of " << cases << " files round-trip\n";
  if (!options.html.empty() && !WriteHtml(options, graphs)) ++failures;
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tenon::opt

int main(int argc, char** argv) { return tenon::opt::Run(argc, argv); }
