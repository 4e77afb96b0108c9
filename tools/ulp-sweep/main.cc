// ulp-sweep: measures the float math bodies against double-precision references over all 2^32
// inputs.
//
//   ulp-sweep [--fn=exp,tanh] [--sample=N] [--threads=N] [--cpu=x86-64-v3] [--markdown |
//   --write-docs]
//   ulp-sweep --f64 ...: the functions of doubles that stand for the C library's (backends/codegen/math/library.h), against long double
//
// Exit status 1: a claim of math_functions.def is exceeded or a special value is wrong. 2: bad
// usage or a failed compile.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "backends/codegen/math/math.h"
#include "tools/ulp-sweep/measure_f64.h"
#include "tools/ulp-sweep/sweep.h"

namespace tenon::ulp_sweep {
namespace {

constexpr int64_t kFullPairs = int64_t{1} << 28;

constexpr char kUsage[] =
    "usage: ulp-sweep [--fn=NAME,...] [--sample=N] [--threads=N] [--cpu=NAME] [--width=N] "
    "[--markdown | --write-docs] [--f64]\n"
    "  --sample=N    one of N neighbouring inputs, chosen with a fixed seed (default 1: all 2^32)\n"
    "  --cpu=NAME    compile for this CPU instead of the host, e.g. x86-64-v3\n"
    "  --markdown    print the table of docs/accuracy.md; --write-docs writes it there, keeping "
    "the rows not measured now\n"
    "  --f64         library.h's functions of doubles, on 2^24 inputs each, or one of N of them\n";

struct Arguments {
  std::vector<math::Fn> functions;
  SweepOptions sweep;
  JitOptions jit;
  bool markdown = false, write_docs = false, f64 = false;
};

struct Row {
  math::FnInfo info;
  SweepResult result;
  double ns;
  int instructions;
  bool ok() const { return result.mismatches == 0 && result.worst.ulp <= info.max_ulp; }
};

absl::StatusOr<Arguments> Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    std::pair<std::string, std::string> flag = absl::StrSplit(argv[i], absl::MaxSplits('=', 1));
    auto& [name, value] = flag;
    int number = 0;
    bool is_number = absl::SimpleAtoi(value, &number) && number > 0;
    if (name == "--fn") {
      for (const std::string& fn : std::vector<std::string>(absl::StrSplit(value, ','))) {
        auto found = math::FindFunction(fn);
        if (!found) return absl::InvalidArgumentError(absl::StrCat("no function named ", fn));
        arguments.functions.push_back(*found);
      }
    } else if (name == "--sample" && is_number) {
      arguments.sweep.stride = number;
    } else if (name == "--threads" && is_number) {
      arguments.sweep.threads = number;
    } else if (name == "--width" && is_number) {
      arguments.jit.width = number;
    } else if (name == "--cpu" && !value.empty()) {
      arguments.jit.cpu = value;
    } else if (name == "--f64" && value.empty()) {
      arguments.f64 = true;
    } else if (name == "--markdown" && value.empty()) {
      arguments.markdown = true;
    } else if (name == "--write-docs" && value.empty()) {
      arguments.markdown = arguments.write_docs = true;
    } else {
      return absl::InvalidArgumentError(absl::StrCat("can't read ", argv[i]));
    }
  }
  if (arguments.functions.empty()) {
    for (const math::FnInfo& info : math::Functions()) arguments.functions.push_back(info.fn);
  }
  arguments.sweep.pairs = kFullPairs / arguments.sweep.stride;
  return arguments;
}

std::string CpuModel() {
  std::ifstream in("/proc/cpuinfo");
  std::string line, name = "unknown", family, model;
  while (std::getline(in, line) && !line.empty()) {
    std::pair<std::string, std::string> field = absl::StrSplit(line, absl::MaxSplits(": ", 1));
    if (field.first.starts_with("model name")) name = field.second;
    if (field.first.starts_with("cpu family")) family = field.second;
    if (field.first.starts_with("model\t\t")) model = field.second;
  }
  return absl::StrCat(name, " (family ", family, ", model ", model, "; LLVM calls it ",
                      llvm::sys::getHostCPUName().str(), ")");
}

absl::StatusOr<Row> Measure(math::Fn fn, const Arguments& arguments) {
  const math::FnInfo& info = math::Info(fn);
  auto body = JitBody::Create(
      info.arity,
      [fn](llvm::IRBuilderBase& b, std::span<llvm::Value* const> args) {
        return math::Emit(b, fn, args);
      },
      arguments.jit);
  if (!body.ok()) return body.status();
  SweepOptions sweep = arguments.sweep;
  if (isatty(STDERR_FILENO)) {
    sweep.progress = [&](double done) {
      absl::FPrintF(stderr, "\r%-9s %3.0f %%", info.name, done * 100);
    };
  }
  const Reference& reference = ReferenceFor(fn);
  double ns = MeasureSpeed(*body, reference);
  SweepResult result = Sweep(*body, reference, sweep);
  if (sweep.progress) absl::FPrintF(stderr, "\r%20s\r", "");
  return Row{info, result, std::min(ns, MeasureSpeed(*body, reference)), body->instructions()};
}

std::string Where(const Row& row, const Worst& worst) {
  std::string at = absl::StrFormat("%a", worst.a);
  if (row.info.arity == 2) absl::StrAppendFormat(&at, ", %a", worst.b);
  return at;
}

void PrintRow(const Row& row) {
  const Worst& worst = row.result.worst;
  absl::PrintF(
      "%-9s max %.3f ULP (claimed %.2f) at %s: got %a, want %.17g; %.2f ns/elem, %d IR "
      "instructions, %d inputs%s\n",
      row.info.name, worst.ulp, row.info.max_ulp, Where(row, worst), worst.got, worst.want, row.ns,
      row.instructions, row.result.inputs, row.ok() ? "" : "  FAILED");
  if (row.result.mismatches > 0) {
    const Worst& first = row.result.first_mismatch;
    absl::PrintF("          %d special values wrong, one at %s: got %a, want %.17g\n",
                 row.result.mismatches, Where(row, first), first.got, first.want);
  }
  std::fflush(stdout);
}

constexpr char kDocsIntroduction[] = R"(# Accuracy of the math functions

Written by `ulp-sweep --write-docs`; do not edit. Each float body is compared with glibc's double
function (logistic, rsqrt: the formula in double; erfinv: Newton's method on erf and erfc).
"all" in the column of inputs: all 2^32, which includes NaNs, infinities, subnormals and signed
zeros; a number: one input from each of that many equal ranges, or so many pairs, three quarters of
them from hard regions; and all special values or pairs of them. 0.5 ULP is correct rounding.

Nothing is flushed to zero; special values are those of C's libm. The tests measure a sample and
fail above the claim (`backends_test`, all inputs under the label slow). AVX2, narrower vectors and
scalars give the same bits. double has bodies of its own (below); bf16 and f16 go through float.

)";

constexpr char kDocsTableHead[] =
    "| function | max ULP | claimed | worst input | inputs | ns/element | IR instructions | method "
    "|\n"
    "|---|---|---|---|---|---|---|---|\n";

constexpr char kDocs[] = TENON_SOURCE_DIR "/docs/accuracy.md";

// The function's row in the present document; empty if it has none.
std::string OldDocsLine(std::string_view name) {
  std::ifstream in(kDocs);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(absl::StrCat("| ", std::string(name), " |"))) return line + "\n";
  }
  return "";
}

// What follows the table: measured by --f64 and by tools/dev/reduction_accuracy.py.
std::string OtherDocs() {
  std::ifstream in(kDocs);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  const size_t at = text.find("\n# Accuracy of ");
  return at == std::string::npos ? "" : text.substr(at);
}

std::string MarkdownRow(const Row& row) {
  std::string inputs =
      row.result.inputs >= int64_t{1} << 32 ? "all" : absl::StrCat(row.result.inputs);
  return absl::StrFormat("| %s | %.3f | %.2f | `%s` | %s | %.2f | %d | %s |\n", row.info.name,
                         row.result.worst.ulp, row.info.max_ulp, Where(row, row.result.worst),
                         inputs, row.ns, row.instructions,
                         absl::StrReplaceAll(std::string(row.info.notes), {{"|", "\\|"}}));
}

std::string Markdown(const std::vector<Row>& rows, const Arguments& arguments) {
  std::string out = kDocsIntroduction;
  absl::StrAppendFormat(&out,
                        "Measured on: %s, %d lanes, one core, 16K elements in cache. The machine "
                        "was shared: take ns/element as an upper bound.\n\n",
                        CpuModel(),
                        arguments.jit.width ? arguments.jit.width : HostWidth(arguments.jit.cpu));
  if (arguments.sweep.stride > 1)
    absl::StrAppendFormat(&out, "**Sampled: one input in %d.**\n\n", arguments.sweep.stride);
  out += kDocsTableHead;
  for (const math::FnInfo& info : math::Functions()) {
    auto row =
        std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.info.fn == info.fn; });
    absl::StrAppend(&out, row == rows.end() ? OldDocsLine(info.name) : MarkdownRow(*row));
  }
  return out;
}

void WriteDocs(const std::vector<Row>& rows, const Arguments& arguments) {
  const std::string text = Markdown(rows, arguments) + OtherDocs();  // both read the old document
  std::ofstream(kDocs) << text;
}

int Main(int argc, char** argv) {
  auto arguments = Parse(argc, argv);
  if (!arguments.ok()) {
    absl::FPrintF(stderr, "ulp-sweep: %s\n%s", std::string(arguments.status().message()), kUsage);
    return 2;
  }
  if (arguments->f64) return MeasureF64(arguments->functions, (int64_t{1} << 24) / arguments->sweep.stride, arguments->write_docs, kDocs);
  std::vector<Row> rows;
  bool ok = true;
  for (math::Fn fn : arguments->functions) {
    auto row = Measure(fn, *arguments);
    if (!row.ok()) {
      absl::FPrintF(stderr, "ulp-sweep: %s: %s\n", math::Info(fn).name,
                    std::string(row.status().message()));
      return 2;
    }
    if (!arguments->markdown || arguments->write_docs) PrintRow(*row);
    ok = ok && row->ok();
    rows.push_back(*row);
    if (arguments->write_docs) WriteDocs(rows, *arguments);  // each row at once: a sweep is long
  }
  if (arguments->markdown && !arguments->write_docs) std::cout << Markdown(rows, *arguments);
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace tenon::ulp_sweep

int main(int argc, char** argv) { return tenon::ulp_sweep::Main(argc, argv); }
