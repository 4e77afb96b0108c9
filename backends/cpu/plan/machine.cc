#include "backends/cpu/plan/machine.h"

#include <array>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "hlo/check.h"

namespace tenon {
namespace {

constexpr double kEndless = std::numeric_limits<double>::infinity();

// Of a processor nobody measured: what plans were made for before there were models. A vector instruction of 0.3 ns on any of them.
MachineModel Generic(std::string_view isa) {
  MachineModel model{.isa = std::string(isa)};
  model.multiply_adds_per_ns = (isa == "avx512" ? 16 : isa == "avx2" ? 8 : 4) / 0.3;
  return model;
}

using Levels = std::array<MemoryLevel, MachineModel::kLevels>;

struct Row {
  std::string_view processor, isa;
  double matmul_share;
  Levels levels;
  double multiply_adds_per_ns;  // 0: nobody ran tenon-tune there, and times are those of the generic machine
  double fork_join_ns;
};

// By tenon-tune. Intel's: a VM of two cores of a Xeon with AMX, rates from the best of runs beside other work, threads' hand-over of quiet
// ones; its 480 MB of L3 were the host's, and so are 64 here.
constexpr Row kRows[] = {
    {"znver4", "avx512", 0.76, {}, 0, 0},
    {"znver5", "avx512", 0.5, {}, 0, 0},
    {kAmx, "avx512", 1, {{{48 << 10, 410, 820}, {2 << 20, 110, 220}, {64 << 20, 29, 58}, {kEndless, 15, 21}}}, 88, 6500},
    {kAmx, "avx2", 1, {{{48 << 10, 220, 440}, {2 << 20, 95, 190}, {64 << 20, 20, 40}, {kEndless, 12, 17}}}, 41, 6500},
};

struct MachineFile {
  absl::Status status;
  std::string text;  // empty: there is none that can be used
};

const MachineFile& TheFile() {
  static const auto* file = new MachineFile([]() -> MachineFile {
    const char* path = std::getenv("TENON_MACHINE");
    if (path == nullptr || *path == 0) return {};
    const auto refused = [&](std::string_view why) -> MachineFile {
      return {absl::InvalidArgumentError(absl::StrCat("TENON_MACHINE=", path, ": ", std::string(why), "; the built-in table is used")), ""};
    };
    std::ifstream in(path, std::ios::binary);
    std::ostringstream text;
    if (!in || !(text << in.rdbuf())) return refused("cannot be read");
    if (const auto model = ParseMachine(text.str()); !model.ok()) return refused(std::string(model.status().message()));
    return {absl::OkStatus(), text.str()};
  }());
  return *file;
}

}  // namespace

MachineModel MachineOf(std::string_view processor, std::string_view isa) {
  MachineModel model = Generic(isa);
  for (const Row& row : kRows) {
    if (row.processor != processor || row.isa != isa) continue;
    model.name = row.processor;
    model.matmul_share = row.matmul_share;
    if (row.multiply_adds_per_ns == 0) continue;
    model.threads = 2;
    model.levels = row.levels;
    model.multiply_adds_per_ns = row.multiply_adds_per_ns;
    model.fork_join_ns = row.fork_join_ns;
  }
  return model;
}

absl::StatusOr<MachineModel> MachineFrom(std::string_view text, std::string_view processor, std::string_view isa) {
  TENON_ASSIGN_OR_RETURN(MachineModel model, ParseMachine(text));
  const MachineModel known = MachineOf(processor, isa);
  if (model.isa != isa) return known;
  model.matmul_share = known.matmul_share;
  return model;
}

MachineModel HostMachine(std::string_view processor, std::string_view isa) {
  if (TheFile().text.empty()) return MachineOf(processor, isa);
  return *MachineFrom(TheFile().text, processor, isa);
}

absl::Status MachineFileStatus() { return TheFile().status; }

}  // namespace tenon
