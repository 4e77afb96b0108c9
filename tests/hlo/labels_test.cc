// Every labelled constraint of shape inference refuses what it should, and says so by its label.
#include <fstream>
#include <set>
#include <sstream>

#include "gtest/gtest.h"
#include "hlo/builder.h"
#include "hlo/infer/infer.h"
#include "hlo/text/text.h"

namespace tenon {
namespace {

struct Case {
  std::string label, text;
};

std::vector<Case> ReadCases() {
  std::ifstream in(std::string(TENON_SOURCE_DIR) + "/tests/hlo/labels.hlo");
  std::vector<Case> cases;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("// label: ")) {
      cases.push_back({line.substr(10), ""});
    } else if (!cases.empty() && !line.starts_with("//")) {
      cases.back().text += line + "\n";
    }
  }
  return cases;
}

TEST(Labels, EachCaseIsRefusedByItsLabel) {
  const std::vector<Case> cases = ReadCases();
  ASSERT_GT(cases.size(), 150u);
  std::set<std::string> seen;
  for (const Case& c : cases) {
    EXPECT_TRUE(seen.insert(c.label).second) << c.label << " twice";
    const auto module = ParseModule(c.text);
    ASSERT_FALSE(module.ok()) << c.label << " accepts " << c.text;
    const std::string message(module.status().message());
    EXPECT_TRUE(message.find("(" + c.label + ")") != std::string::npos) << c.label << ": " << message;
    EXPECT_TRUE(message.starts_with("line 1, column ") && message.find("wanted ") != std::string::npos) << message;
  }
}

// call_c1 can't be written: text has no computation without a root.
TEST(Labels, CallNeedsARoot) {
  Module module;
  Computation* empty = module.AddComputation("empty");
  Attributes attrs;
  attrs.set(Attr::kToApply, empty);
  const auto shape = InferShape(Opcode::kCall, {}, attrs);
  ASSERT_FALSE(shape.ok());
  EXPECT_TRUE(std::string(shape.status().message()).starts_with("call_c1: wanted ")) << shape.status();
}

}  // namespace
}  // namespace tenon
