#include "hlo/devices.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "hlo/module.h"
#include "hlo/text/lexer.h"

namespace tenon {
namespace {

constexpr int64_t kMaxDevices = int64_t{1} << 24;

absl::string_view Abs(std::string_view s) { return {s.data(), s.size()}; }

// The product of sizes >= 1 within kMaxDevices.
std::optional<int64_t> Product(const std::vector<int64_t>& sizes) {
  int64_t product = 1;
  for (int64_t s : sizes) {
    if (s < 1 || s > kMaxDevices || product > kMaxDevices / s) return std::nullopt;
    product *= s;
  }
  return product;
}

// One text, its cursor and what went wrong.
class GroupParser {
 public:
  explicit GroupParser(std::string_view text) : lex_(text) {}

  absl::StatusOr<ReplicaGroups> Groups() {
    ReplicaGroups out;
    const char first = lex_.Peek();
    const bool read = first == '{' ? Lists(&out) : first == '[' ? Iota(&out) : Mesh(&out);
    return Finished(read, std::move(out));
  }

  absl::StatusOr<std::vector<std::pair<int64_t, int64_t>>> Pairs() {
    std::vector<std::pair<int64_t, int64_t>> pairs;
    std::vector<std::vector<int64_t>> lists;
    absl::flat_hash_set<int64_t> sources, targets;
    bool read = ListOfLists(&lists);
    for (size_t k = 0; read && k < lists.size(); ++k) {
      read = (lists[k].size() == 2 || lex_.Error("pairs {source,target}")) &&
             ((sources.insert(lists[k][0]).second && targets.insert(lists[k][1]).second) ||
              lex_.Error("each source and each target once"));
      if (read) pairs.emplace_back(lists[k][0], lists[k][1]);
    }
    return Finished(read, std::move(pairs));
  }

 private:
  template <typename T>
  absl::StatusOr<T> Finished(bool read, T out) {
    if (read && (lex_.AtEnd() || lex_.Error("the end"))) return out;
    return absl::InvalidArgumentError(lex_.status().message());
  }

  bool Ints(char open, char close, std::vector<int64_t>* out) {
    if (!lex_.Expect(open)) return false;
    if (lex_.Try(close)) return true;
    do {
      const std::optional<int64_t> v = lex_.Int();
      if (!v.has_value()) return false;
      if (*v < 0 || *v >= kMaxDevices) return lex_.Error("a number of a device or of devices");
      out->push_back(*v);
    } while (lex_.Try(','));
    return lex_.Expect(close);
  }

  bool ListOfLists(std::vector<std::vector<int64_t>>* out) {
    if (!lex_.Expect('{')) return false;
    if (lex_.Try('}')) return true;
    do {
      if (!Ints('{', '}', &out->emplace_back())) return false;
    } while (lex_.Try(','));
    return lex_.Expect('}');
  }

  bool Lists(ReplicaGroups* out) {
    if (!ListOfLists(&out->lists)) return false;
    absl::flat_hash_set<int64_t> seen;
    for (const auto& group : out->lists) {
      out->size = std::max(out->size, static_cast<int64_t>(group.size()));
      for (int64_t device : group) {
        if (!seen.insert(device).second) return lex_.Error("each device in one group");
      }
    }
    out->groups = static_cast<int64_t>(out->lists.size());
    return out->groups == 0 || out->size > 0 || lex_.Error("groups of at least one device");
  }

  // [2,4]<=[4,2]T(1,0): `dims` is what the numbers in the order of the reshape and transpose are read as.
  bool IotaTile(std::vector<int64_t>* dims) {
    std::vector<int64_t> from, perm;
    if (!Ints('[', ']', dims) || !lex_.ExpectToken("<=") || !Ints('[', ']', &from)) return false;
    if (lex_.TryWord("T")) {
      if (!Ints('(', ')', &perm)) return false;
      std::vector<int64_t> sorted = perm;
      std::sort(sorted.begin(), sorted.end());
      for (size_t k = 0; k < sorted.size(); ++k) {
        if (sorted.size() != from.size() || sorted[k] != static_cast<int64_t>(k)) {
          return lex_.Error(absl::StrCat("a permutation of ", from.size(), " dimensions"));
        }
      }
    }
    const std::optional<int64_t> a = Product(*dims), b = Product(from);
    return (a.has_value() && a == b) || lex_.Error("sizes of one product on both sides of <=");
  }

  bool Iota(ReplicaGroups* out) {
    std::vector<int64_t> dims;
    if (!IotaTile(&dims)) return false;
    if (dims.size() != 2) return lex_.Error("[groups,size]<=[...]");
    out->groups = dims[0];
    out->size = dims[1];
    return true;
  }

  bool AxisName(std::string* out) {
    lex_.SkipSpace();
    if (lex_.Peek() == '\'') {
      lex_.Expect('\'');
      *out = std::string(lex_.NumberText());
      return !out->empty() ? lex_.Expect('\'') : lex_.Error("an axis' name");
    }
    *out = std::string(lex_.Identifier());
    return !out->empty() || lex_.Error("an axis' name");
  }

  // mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'a','b':(1)2}
  bool Mesh(ReplicaGroups* out) {
    if (!lex_.TryWord("mesh") || !lex_.Expect('[')) return lex_.failed() ? false : lex_.Error("{...}, [...]<=[...] or mesh[...]");
    std::vector<std::pair<std::string, int64_t>> axes;
    do {
      auto& [name, size] = axes.emplace_back();
      if (!AxisName(&name) || !lex_.Expect('=')) return false;
      const std::optional<int64_t> v = lex_.Int();
      if (!v.has_value()) return false;
      size = *v;
    } while (lex_.Try(','));
    if (!lex_.Expect(']')) return false;
    std::vector<int64_t> sizes;
    for (const auto& axis : axes) sizes.push_back(axis.second);
    const std::optional<int64_t> devices = Product(sizes);
    if (!devices.has_value()) return lex_.Error("axes of at least one and at most 2^24 devices");
    if (lex_.Try(',') && !DeviceIds(*devices)) return false;
    out->size = 1;
    if (!lex_.Expect('{')) return false;
    if (!lex_.Try('}')) {
      do {
        if (!AxisOf(axes, &out->size)) return false;
      } while (lex_.Try(','));
      if (!lex_.Expect('}')) return false;
    }
    if (out->size > *devices || *devices % out->size != 0) return lex_.Error("axes of the mesh, each once");
    out->groups = *devices / out->size;
    return true;
  }

  bool DeviceIds(int64_t devices) {
    if (!lex_.TryWord("device_ids") || !lex_.Expect('=')) return lex_.Error("device_ids=(...)");
    const size_t start = lex_.position();
    std::vector<int64_t> ids;
    if (lex_.Expect('(') && lex_.Peek() == '[') {
      std::vector<int64_t> from, perm;
      if (!Ints('[', ']', &from) || (lex_.TryWord("T") && !Ints('(', ')', &perm)) || !lex_.Expect(')')) return false;
      return Product(from) == devices || lex_.Error(absl::StrCat(devices, " devices"));
    }
    lex_.set_position(start);
    if (!Ints('(', ')', &ids)) return false;
    return static_cast<int64_t>(ids.size()) == devices || lex_.Error(absl::StrCat(devices, " devices"));
  }

  // 'a', or a part of it, 'a':(2)4: 4 of its places, 2 places before.
  bool AxisOf(const std::vector<std::pair<std::string, int64_t>>& axes, int64_t* size) {
    std::string name;
    if (!AxisName(&name)) return false;
    const auto it = std::find_if(axes.begin(), axes.end(), [&](const auto& axis) { return axis.first == name; });
    if (it == axes.end()) return lex_.Error(absl::StrCat("an axis of the mesh instead of ", name));
    int64_t part = it->second;
    if (lex_.Try(':')) {
      std::vector<int64_t> before;
      if (!Ints('(', ')', &before)) return false;
      const std::optional<int64_t> v = lex_.Int();
      if (!v.has_value()) return false;
      part = *v;
      if (before.size() != 1 || before[0] < 1 || part < 1 || before[0] > it->second || part > it->second ||
          it->second % (before[0] * part) != 0) {
        return lex_.Error(absl::StrCat("a part of axis ", name));
      }
    }
    if (*size > kMaxDevices / part) return lex_.Error("axes of the mesh, each once");
    *size *= part;
    return true;
  }

  Lexer lex_;
};

int64_t ModuleCount(const Module& module, std::string_view key) {
  for (const auto& [name, value] : module.attributes) {
    int64_t count = 0;
    if (name != key) continue;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), count);
    if (error == std::errc()) return count;
  }
  return 1;
}

// Devices that take part in `op`'s module.
int64_t DevicesOf(const Instruction& op) {
  if (op.parent() == nullptr || op.parent()->module() == nullptr) return 1;
  const Module& module = *op.parent()->module();
  return ModuleCount(module, "replica_count") * ModuleCount(module, "num_partitions");
}

absl::Status Refused(const Instruction& op, std::string_view what) {
  return absl::UnimplementedError(absl::StrCat(Abs(OpcodeName(op.opcode())), " ", op.name(), " between several devices: ", Abs(what),
                                               "; one device runs programs, number 0"));
}

}  // namespace

absl::StatusOr<ReplicaGroups> ParseReplicaGroups(std::string_view text) { return GroupParser(text).Groups(); }

absl::StatusOr<std::vector<std::pair<int64_t, int64_t>>> ParseSourceTargetPairs(std::string_view text) {
  return GroupParser(text).Pairs();
}

absl::Status CheckOneDevice(const Instruction& op) {
  if (op.family() != Family::kCollective) return absl::OkStatus();
  const bool groups = op.info().allows(Attr::kReplicaGroups), pairs = op.info().allows(Attr::kSourceTargetPairs);
  const bool number = op.opcode() == Opcode::kReplicaId || op.opcode() == Opcode::kPartitionId;
  if (groups && op.attrs().has(Attr::kReplicaGroups)) {
    const auto& text = op.attrs().get<std::string>(Attr::kReplicaGroups);
    TENON_ASSIGN_OR_RETURN(const ReplicaGroups parsed, ParseReplicaGroups(text));
    if (parsed.size > 1) return Refused(op, absl::StrCat("replica_groups=", text));
    // With a channel and no global numbers a group is its replicas on every partition.
    const bool on_every_partition = op.attrs().has(Attr::kChannelId) && !op.attrs().get_or<bool>(Attr::kUseGlobalDeviceIds, false);
    if (parsed.size == 1 && !on_every_partition) return absl::OkStatus();
  }
  if (pairs) {
    const auto& text = op.attrs().get<std::string>(Attr::kSourceTargetPairs);
    TENON_ASSIGN_OR_RETURN(const auto parsed, ParseSourceTargetPairs(text));
    for (const auto& [source, target] : parsed) {
      if (source != 0 || target != 0) return Refused(op, absl::StrCat("source_target_pairs=", text));
    }
  }
  if ((groups || pairs || number) && DevicesOf(op) > 1) {
    return Refused(op, absl::StrCat("the module is for ", DevicesOf(op)));
  }
  return absl::OkStatus();
}

}  // namespace tenon
