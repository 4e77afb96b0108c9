// The fuzzer's corpus without the fuzzer, and its dictionary, which derives from the tables of hlo/.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "hlo/opcode.h"
#include "hlo/primitive_type.h"
#include "tests/parser_fuzz/finding.h"

namespace tenon {
namespace {

namespace fs = std::filesystem;
const fs::path kFolder = fs::path(TENON_SOURCE_DIR) / "tests" / "parser_fuzz";

std::string ReadFile(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

TEST(ParserFuzz, TheCorpusHasNoFinding) {
  int files = 0, accepted = 0;
  for (const auto& entry : fs::directory_iterator(kFolder / "corpus")) {
    const std::string text = ReadFile(entry.path());
    const auto finding = ParserFinding(text);
    EXPECT_FALSE(finding) << entry.path() << ": " << *finding;
    accepted += ParseModule(text).ok();
    ++files;
  }
  EXPECT_GT(files, 200);
  EXPECT_GT(accepted, 30);  // a corpus of refused text alone would reach no printer
  EXPECT_LT(accepted, files);
}

TEST(ParserFuzz, SeesAPrinterThatLies) {
  const std::string text = "ENTRY e {\n  x = f32[2]{0} parameter(0)\n  ROOT y = f32[2]{0} negate(x)\n}\n";
  EXPECT_FALSE(ParserFinding(text));
  auto with = [&](const char* from, const char* to) {
    return ParserFinding(text, [=](const Module& m, const PrintOptions& o) { return absl::StrReplaceAll(Print(m, o), {{from, to}}); });
  };
  EXPECT_TRUE(with("negate", "abs"));
  EXPECT_TRUE(with("ROOT", "ROOTS"));
  int calls = 0;
  EXPECT_TRUE(ParserFinding(text, [&](const Module& m, const PrintOptions& o) {
    return absl::StrCat(Print(m, o), ++calls % 2 ? "" : "\n");  // another text each time
  }));
}

// Every word that the grammar knows, and the punctuation and shapes that go with it.
std::string Dictionary() {
  std::set<std::string> words;
  for (int op = 0; op < kNumOpcodes; ++op) words.insert(absl::StrCat(std::string(InfoOf(static_cast<Opcode>(op)).name), "("));
  for (int t = 0; t <= static_cast<int>(PrimitiveType::kBuffer); ++t) {
    words.emplace(PrimitiveTypeName(static_cast<PrimitiveType>(t)));
  }
#define TENON_ATTR(e, key, kind) words.insert(key "=");
#include "hlo/attrs.def"
  for (const char* other : {"HloModule m", "ENTRY", "ROOT", "%", "->", "=", "{", "}", "(", ")", "[", "]", ", ", ":", "<=", "?", "{1,0}",
                            "{0}", "[2,3]{1,0}", "f32[]", "s32[4]{0}", "inf", "-inf", "nan", "-0", "1e-05", "true", "false", "0x1p-3",
                            "{...}", "/*index=5*/", "//", "\\\"", "size=3x3 ", "pad=0_1x0_1", "stride=2x2 ", "b01f_01io->b01f",
                            "metadata={op_name=", "backend_config=", "frontend_attributes={", "sharding={", "control-predecessors={",
                            "is_scheduled=true", "entry_computation_layout={", "T(8,128)", "S(1)", "direction=LT", "s0"}) {
    words.emplace(other);
  }
  std::string text = "# Words of HLO text for libFuzzer, derived from ops.def, types.def and attrs.def.\n";
  for (const std::string& word : words) absl::StrAppend(&text, "\"", absl::StrReplaceAll(word, {{"\"", "\\\""}}), "\"\n");
  return text;
}

TEST(ParserFuzz, TheDictionaryIsWhatTheTablesSay) {
  const fs::path file = kFolder / "hlo.dict";
  if (std::getenv("TENON_UPDATE") != nullptr) std::ofstream(file) << Dictionary();
  EXPECT_EQ(ReadFile(file), Dictionary()) << "TENON_UPDATE=1 writes it anew";
}

}  // namespace
}  // namespace tenon
