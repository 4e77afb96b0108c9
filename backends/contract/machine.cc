#include "backends/contract/machine.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "backends/contract/digest.h"
#include "hlo/check.h"
#include "hlo/json.h"

namespace tenon {
namespace {

constexpr int64_t kVersion = 1;
constexpr int kShared = 2;               // the first level that all threads share
constexpr double kMostBytesPerNs = 1e5;  // beyond it, and below its inverse, a rate is no machine's
constexpr double kMostMultiplyAdds = 1e4;
constexpr double kMostForkJoinNs = 1e8;
constexpr int kMostThreads = 1 << 14;
constexpr size_t kDigestDigits = 16;

std::string LevelName(int k) { return std::string(MachineModel::kLevelNames[static_cast<size_t>(k)]); }

// Of the fields that the object must have, and no others: the first that is wrong.
absl::Status CheckKeys(const Json& json, const std::string& of, const std::vector<std::string>& keys) {
  if (!json.is_object()) return absl::InvalidArgumentError(absl::StrCat(of, ": wanted an object"));
  for (const std::string& key : keys) {
    if (!json.contains(key)) return absl::InvalidArgumentError(absl::StrCat(of, ": no \"", key, "\""));
  }
  for (const auto& [key, value] : json.items()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      return absl::InvalidArgumentError(absl::StrCat(of, ": unknown \"", key, "\"; known: ", absl::StrJoin(keys, ", ")));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadRate(const Json& json, const std::string& key, double most, double* to) {
  *to = json[key].get<double>();
  if (std::isfinite(*to) && *to >= 1 / most && *to <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(key, ": wanted a number from ", 1 / most, " to ", most, ", got ", json[key].dump()));
}

absl::StatusOr<MemoryLevel> ReadLevel(const Json& json, int k) {
  const std::string name = LevelName(k);
  const bool last = k + 1 == MachineModel::kLevels;
  TENON_RETURN_IF_ERROR(CheckKeys(json, name, {"name", "bytes", "bytes_per_ns", "all_bytes_per_ns"}));
  if (json["name"].get<std::string>() != name) return absl::InvalidArgumentError(absl::StrCat("levels[", k, "]: wanted ", name));
  MemoryLevel level = {.bytes = std::numeric_limits<double>::infinity()};
  if (!last) level.bytes = static_cast<double>(json["bytes"].get<int64_t>());
  if (last && !json["bytes"].is_null()) return absl::InvalidArgumentError("memory: wanted null for \"bytes\"");
  TENON_RETURN_IF_ERROR(ReadRate(json, "bytes_per_ns", kMostBytesPerNs, &level.bytes_per_ns));
  TENON_RETURN_IF_ERROR(ReadRate(json, "all_bytes_per_ns", kMostBytesPerNs, &level.all_bytes_per_ns));
  return level;
}

absl::StatusOr<MachineModel> ReadMachine(const Json& json) {
  if (!json.is_object() || !json.contains("tenon_machine")) return absl::InvalidArgumentError("not a machine file: no \"tenon_machine\"");
  if (const auto version = json["tenon_machine"].get<int64_t>(); version != kVersion) {
    return absl::InvalidArgumentError(absl::StrCat("version ", version, ", wanted ", kVersion, ": write it again by tenon-tune"));
  }
  TENON_RETURN_IF_ERROR(
      CheckKeys(json, "machine file", {"tenon_machine", "name", "isa", "threads", "levels", "multiply_adds_per_ns", "fork_join_ns"}));
  MachineModel model{.name = json["name"].get<std::string>(), .isa = json["isa"].get<std::string>()};
  model.threads = json["threads"].get<int>();
  if (model.threads < 1 || model.threads > kMostThreads) return absl::InvalidArgumentError(absl::StrCat("threads: ", model.threads));
  const auto& levels = json["levels"].elements();
  if (!json["levels"].is_array() || levels.size() != MachineModel::kLevels) {
    return absl::InvalidArgumentError(absl::StrCat("levels: wanted ", "L1, L2, L3, memory"));
  }
  for (int k = 0; k < MachineModel::kLevels; ++k) {
    MemoryLevel& level = model.levels[static_cast<size_t>(k)];
    TENON_ASSIGN_OR_RETURN(level, ReadLevel(levels[static_cast<size_t>(k)], k));
    const double below = k == 0 ? 0 : model.levels[static_cast<size_t>(k) - 1].bytes;
    if (!(level.bytes > below)) return absl::InvalidArgumentError(absl::StrCat(LevelName(k), ": not larger than what is below"));
  }
  TENON_RETURN_IF_ERROR(ReadRate(json, "multiply_adds_per_ns", kMostMultiplyAdds, &model.multiply_adds_per_ns));
  TENON_RETURN_IF_ERROR(ReadRate(json, "fork_join_ns", kMostForkJoinNs, &model.fork_join_ns));
  return model;
}

}  // namespace

double MachineModel::StreamNs(double bytes, int threads) const {
  int k = 0;
  // Each thread has its part of the bytes in caches of its own.
  while (k + 1 < kLevels && bytes > levels[static_cast<size_t>(k)].bytes * (k < kShared ? threads : 1)) ++k;
  const MemoryLevel& level = levels[static_cast<size_t>(k)];
  double rate = level.bytes_per_ns * threads;
  if (k >= kShared) rate = std::min(rate, std::max(level.all_bytes_per_ns, level.bytes_per_ns));
  return bytes / rate;
}

// Asked for each kernel: numbers as they lie, not as text.
std::string MachineModel::Key() const {
  std::string all = absl::StrCat(name, "|", isa, "|", threads, "|");
  const auto add = [&](double number) { all.append(reinterpret_cast<const char*>(&number), sizeof number); };
  for (const MemoryLevel& level : levels) {
    add(level.bytes);
    add(level.bytes_per_ns);
    add(level.all_bytes_per_ns);
  }
  add(multiply_adds_per_ns);
  add(fork_join_ns);
  add(matmul_share);
  return absl::StrCat(name, "#", HexDigest(all).substr(0, kDigestDigits));
}

std::string PrintMachine(const MachineModel& model) {
  std::string levels;
  for (int k = 0; k < MachineModel::kLevels; ++k) {
    const MemoryLevel& level = model.levels[static_cast<size_t>(k)];
    const Json bytes = std::isinf(level.bytes) ? Json() : Json(static_cast<int64_t>(level.bytes));
    const Json json = {
        {"name", LevelName(k)}, {"bytes", bytes}, {"bytes_per_ns", level.bytes_per_ns}, {"all_bytes_per_ns", level.all_bytes_per_ns}};
    absl::StrAppend(&levels, k == 0 ? "" : ",", "\n  ", json.dump());
  }
  return absl::StrCat("{\"tenon_machine\":", kVersion, ",\n \"name\":", Json(model.name).dump(), ",\n \"isa\":", Json(model.isa).dump(),
                      ",\n \"threads\":", model.threads, ",\n \"levels\":[", levels,
                      "],\n \"multiply_adds_per_ns\":", Json(model.multiply_adds_per_ns).dump(),
                      ",\n \"fork_join_ns\":", Json(model.fork_join_ns).dump(), "}\n");
}

absl::StatusOr<MachineModel> ParseMachine(std::string_view text) {
  const std::optional<Json> json = Json::Parse(text);
  if (!json) return absl::InvalidArgumentError("not JSON");
  try {
    return ReadMachine(*json);
  } catch (const JsonError& e) {
    return absl::InvalidArgumentError(e.what());
  }
}

}  // namespace tenon
