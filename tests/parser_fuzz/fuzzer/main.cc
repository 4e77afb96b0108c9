// libFuzzer's entry (preset parser-fuzz).
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/parser_fuzz/finding.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (const auto finding = tenon::ParserFinding({reinterpret_cast<const char*>(data), size})) {
    std::fprintf(stderr, "finding: %s\n", finding->c_str());
    std::abort();
  }
  return 0;
}
