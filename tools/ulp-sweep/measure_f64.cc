#include "tools/ulp-sweep/measure_f64.h"

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_format.h"
#include "tools/ulp-sweep/sweep_f64.h"

namespace tenon::ulp_sweep {
namespace {

constexpr char kHead[] = R"(
# Accuracy of double

Written by `ulp-sweep --f64 --write-docs`; do not edit. The functions of `backends/codegen/math/library.h`, on CPUs by vectors and on GPUs by
threads, the same bits (but for `pow`, which a CPU has of the C library), against the C library's functions of long double, on a sample: any bits, sizes from 2^-60 to 2^12, the interval where the
function varies, neighbours of 1 and of multiples of pi/2, and all special values. Complex numbers of double are the C library's on a CPU.

| function | max ULP | claimed | worst input | inputs |
|---|---|---|---|---|
)";

std::string Where(const math::FnInfo& info, const WorstF64& worst) {
  std::string at = absl::StrFormat("%a", worst.a);
  if (info.arity == 2) absl::StrAppendFormat(&at, ", %a", worst.b);
  return at;
}

void WriteSection(const char* docs, const std::string& section) {
  std::ifstream in(docs);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  const size_t begin = text.find("\n# Accuracy of double"), end = text.find("\n# Accuracy of reductions");
  std::ofstream(docs) << text.substr(0, std::min(begin, end)) << section << (end == std::string::npos ? "" : text.substr(end));
}

}  // namespace

int MeasureF64(std::span<const math::Fn> functions, int64_t inputs, bool write_docs, const char* docs) {
  bool ok = true;
  std::string section = kHead;
  for (const math::Fn fn : functions) {
    const math::FnInfo& info = math::Info(fn);
    const ReferenceF64* reference = ReferenceF64For(fn);
    if (reference == nullptr) continue;
    auto body = JitBody::Create(
        info.arity, [fn](llvm::IRBuilderBase& b, std::span<llvm::Value* const> args) { return math::Emit(b, fn, args); },
        {.is_double = true});
    if (!body.ok()) {
      absl::FPrintF(stderr, "ulp-sweep: %s: %s\n", info.name, std::string(body.status().message()));
      return 2;
    }
    const ResultF64 r = SweepF64(*body, *reference, inputs);
    const bool right = r.mismatches == 0 && r.worst.ulp <= info.max_ulp_f64;
    ok = ok && right;
    absl::PrintF("%-9s max %.4f ULP (claimed %.2f) at %s: got %a, want %La; %d inputs%s\n", info.name, r.worst.ulp, info.max_ulp_f64,
                 Where(info, r.worst), r.worst.got, r.worst.want, r.inputs, right ? "" : "  FAILED");
    if (r.mismatches > 0) {
      const WorstF64& first = r.first_mismatch;
      absl::PrintF("          %d special values wrong, one at %s: got %a, want %La\n", r.mismatches, Where(info, first), first.got,
                   first.want);
    }
    std::fflush(stdout);
    absl::StrAppendFormat(&section, "| %s | %.3f | %.2f | `%s` | %d |\n", info.name, r.worst.ulp, info.max_ulp_f64, Where(info, r.worst),
                          r.inputs);
  }
  if (write_docs) WriteSection(docs, section);
  return ok ? 0 : 1;
}

}  // namespace tenon::ulp_sweep
