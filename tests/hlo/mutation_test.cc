// Seeded mutations of the corpus: no input crashes or hangs the parser, and what it accepts prints and parses again.
#include <cstdlib>
#include <random>

#include "gtest/gtest.h"
#include "hlo/text/text.h"
#include "tests/hlo/text_files.h"

namespace tenon {
namespace {

constexpr size_t kFiles = 10;

std::vector<std::string> Corpus() {
  std::vector<std::string> texts;
  for (const auto& path : TestFiles("text")) texts.push_back(ReadTestFile(path));
  EXPECT_GE(texts.size(), kFiles);
  const std::string labels = ReadTestFile(std::string(TENON_SOURCE_DIR) + "/tests/hlo/labels.hlo");
  for (size_t at = labels.find("r = "); at != std::string::npos; at = labels.find("\nr = ", at + 1)) {
    texts.push_back(labels.substr(at, labels.find("\n//", at) - at));
  }
  return texts;
}

std::string Mutate(const std::vector<std::string>& corpus, std::mt19937_64& rng) {
  auto below = [&](size_t n) { return n == 0 ? 0 : rng() % n; };
  // Whole modules, which are accepted, as often as the one-line cases, which aren't.
  std::string text = corpus[below(2) == 0 ? below(corpus.size()) : below(kFiles)];
  for (size_t edits = 1 + below(3); edits > 0; --edits) {
    const size_t at = below(text.size()), length = 1 + below(40);
    switch (below(7)) {
      case 0:
        if (!text.empty()) text[at] = static_cast<char>(rng());
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(below(text.size()), length));
        break;
      case 3: {  // another file's piece
        const std::string& other = corpus[below(corpus.size())];
        text.insert(at, other.substr(below(other.size()), length));
        break;
      }
      case 4: {
        static constexpr const char* kTokens[] = {"{", "}", "(", ")", "[", "]", "-1", "9223372036854775807", "<=", "?",
                                                  "s0", "%", "\"", ",", "=", "->", "/*", "nan", "{...}", "ROOT ", "0"};
        text.insert(at, kTokens[below(std::size(kTokens))]);
        break;
      }
      case 5: {  // a number becomes another
        const size_t digit = text.find_first_of("0123456789", at);
        if (digit != std::string::npos) text.replace(digit, 1, std::to_string(static_cast<int64_t>(rng() >> below(64))));
        break;
      }
      default:
        text.resize(at);
    }
  }
  return text;
}

// TENON_MUTATION_SEED repeats a run; the seed and the text are printed with a failure.
TEST(Mutation, NeverCrashes) {
  const char* given = std::getenv("TENON_MUTATION_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : 20261121;
  std::mt19937_64 rng(seed);
  const std::vector<std::string> corpus = Corpus();
  ASSERT_GT(corpus.size(), 150u);
  constexpr int kMutations = 100'000;
  int accepted = 0;
  for (int n = 0; n < kMutations; ++n) {
    const std::string text = Mutate(corpus, rng);
    ParseOptions options;
    options.fill_elided_constants = n % 2 == 0;
    options.max_elements = 1 << 20;
    try {
      const auto module = ParseModule(text, options);
      if (!module.ok()) {
        const std::string message(module.status().message());
        ASSERT_EQ(module.status().code(), absl::StatusCode::kInvalidArgument) << message << "\nseed " << seed << "\n" << text;
        continue;
      }
      ++accepted;
      const std::string once = Print(**module);
      const auto again = ParseModule(once);
      ASSERT_TRUE(again.ok()) << again.status() << "\nseed " << seed << "\n" << text << "\nprinted\n" << once;
      ASSERT_EQ(once, Print(**again)) << "seed " << seed << "\n" << text;
    } catch (const std::exception& e) {
      FAIL() << e.what() << "\nseed " << seed << "\n" << text;
    }
  }
  EXPECT_GT(accepted, kMutations / 100);
}

}  // namespace
}  // namespace tenon
