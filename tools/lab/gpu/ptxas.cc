#include "tools/lab/gpu/ptxas.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "backends/gpu/emit/image.h"
#include "hlo/check.h"

namespace tenon::gpu {
namespace {

namespace fs = std::filesystem;

bool InPath(std::string_view program) {
  const char* path = std::getenv("PATH");
  for (const std::string& folder : std::vector<std::string>(absl::StrSplit(path == nullptr ? "" : path, ':', absl::SkipEmpty()))) {
    if (access((fs::path(folder) / program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

// A folder that goes with its scope.
class Scratch {
 public:
  Scratch() {
    std::string name = (fs::temp_directory_path() / "tenon_ptxas_XXXXXX").string();
    folder_ = mkdtemp(name.data()) == nullptr ? "" : name;
  }
  ~Scratch() {
    std::error_code ignored;
    if (!folder_.empty()) fs::remove_all(folder_, ignored);
  }
  Scratch(const Scratch&) = delete;
  bool ok() const { return !folder_.empty(); }
  std::string File(std::string_view name) const { return (folder_ / name).string(); }

 private:
  fs::path folder_;
};

struct Told {
  int code = -1;
  std::string text;
};
Told Run(const std::string& command) {
  Told told;
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return told;
  char buffer[4096];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) told.text.append(buffer, n);
  const int status = pclose(pipe);
  told.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return told;
}

// The number in front of `what`, or 0.
int64_t NumberBefore(std::string_view line, std::string_view what) {
  const size_t at = line.find(what);
  if (at == std::string_view::npos) return 0;
  size_t end = at;
  while (end > 0 && line[end - 1] == ' ') --end;
  size_t begin = end;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  int64_t number = 0;
  return absl::SimpleAtoi(absl::string_view(line.data() + begin, end - begin), &number) ? number : 0;
}

}  // namespace

bool HasPtxas() { return InPath("ptxas"); }

std::vector<PtxasKernel> ParsePtxas(std::string_view told) {
  std::vector<PtxasKernel> kernels;
  for (const absl::string_view text : absl::StrSplit(absl::string_view(told.data(), told.size()), '\n')) {
    const std::string_view line(text.data(), text.size());
    if (const size_t at = line.find("Compiling entry function '"); at != std::string_view::npos) {
      const std::string_view rest = line.substr(at + 26);
      kernels.push_back({.name = std::string(rest.substr(0, rest.find('\'')))});
    }
    if (kernels.empty()) continue;
    PtxasKernel& k = kernels.back();
    if (line.find("bytes stack frame") != std::string_view::npos) {
      k.stack = NumberBefore(line, "bytes stack frame");
      k.spill_stores = NumberBefore(line, "bytes spill stores");
      k.spill_loads = NumberBefore(line, "bytes spill loads");
    } else if (line.find("registers") != std::string_view::npos && line.find("Used ") != std::string_view::npos) {
      k.registers = static_cast<int>(NumberBefore(line, "registers"));
      k.barriers = static_cast<int>(NumberBefore(line, "barriers"));
      k.shared = NumberBefore(line, "bytes smem");
    }
  }
  std::sort(kernels.begin(), kernels.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return kernels;
}

std::string ToString(const std::vector<PtxasKernel>& kernels) {
  std::string text = "kernel                 registers  shared  barriers  stack  spilled\n";
  for (const PtxasKernel& k : kernels) {
    const int64_t spilled = k.spill_stores + k.spill_loads;
    absl::StrAppendFormat(&text, "%-22s %9d %7d %9d %6d %8d\n", k.name, k.registers, k.shared, k.barriers, k.stack, spilled);
  }
  return text;
}

absl::StatusOr<Assembled> Assemble(std::string_view ptx, std::string_view architecture, bool disassemble) {
  if (!HasPtxas()) return absl::FailedPreconditionError(kNoPtxas);
  const Scratch scratch;
  if (!scratch.ok()) return absl::InternalError("no folder for temporary files");
  const std::string in = scratch.File("in.ptx"), out = scratch.File("out.cubin");
  std::ofstream(in, std::ios::binary) << ptx;
  const Told told = Run(absl::StrCat("ptxas -v -arch=", std::string(architecture), " -o '", out, "' '", in, "'"));
  if (told.code != 0) return absl::InternalError(absl::StrCat("ptxas -arch=", std::string(architecture), ": ", told.text));
  Assembled assembled{.kernels = ParsePtxas(told.text)};
  if (disassemble && InPath("nvdisasm")) assembled.sass = Run(absl::StrCat("nvdisasm -c '", out, "'")).text;
  else if (disassemble && InPath("cuobjdump")) assembled.sass = Run(absl::StrCat("cuobjdump -sass '", out, "'")).text;
  return assembled;
}

absl::StatusOr<PtxModules> PtxOf(const Program& program) {
  PtxModules found;
  for (const CodeImage& code : program.code) {
    if (code.space == 0 || code.object.empty()) continue;
    TENON_ASSIGN_OR_RETURN(const Image image, ParseImage(code.object));
    if (image.bitcode) return absl::DataLossError("bitcode in place of PTX");
    found.architecture = image.architecture;
    for (const ImageModule& m : image.modules) found.modules.push_back(m.code);
  }
  return found;
}

}  // namespace tenon::gpu
