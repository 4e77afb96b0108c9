// What the evaluator refuses by name (tests/ops/**/*_refused.hlo), the CPU backend refuses in the same words: it never computes it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "backends/driver/literal_executable.h"
#include "hlo/text/text.h"

namespace tenon {
namespace {

TEST(Refused, InTheEvaluatorsWords) {
  int refused = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(std::string(TENON_SOURCE_DIR) + "/tests/ops")) {
    if (!entry.path().stem().string().ends_with("_refused")) continue;
    std::ifstream in(entry.path());
    const std::string text(std::istreambuf_iterator<char>(in), {});
    const size_t error = text.find("// error: ");
    ASSERT_NE(error, std::string::npos) << entry.path();
    const std::string words = text.substr(error + 10, text.find('\n', error) - error - 10);
    const auto module = ParseModule(text);
    ASSERT_TRUE(module.ok()) << entry.path() << ": " << module.status();
    const auto executable = LiteralExecutable::Compile(**module, {});
    EXPECT_FALSE(executable.ok()) << entry.path();
    EXPECT_NE(executable.status().message().find(words), std::string::npos) << entry.path() << ": " << executable.status();
    ++refused;
  }
  EXPECT_GE(refused, 9);
}

}  // namespace
}  // namespace tenon
