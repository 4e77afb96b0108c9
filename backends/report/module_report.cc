#include "backends/report/module_report.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "hlo/cost.h"
#include "hlo/text/text.h"

namespace tenon {
namespace {

constexpr int64_t kElementsShown = 8;  // of a constant

std::string_view FamilyText(Family family) {
  switch (family) {
    case Family::kElementwise:
      return "elementwise";
    case Family::kMovement:
      return "movement";
    case Family::kReduction:
      return "reduction";
    case Family::kContraction:
      return "contraction";
    case Family::kIndexing:
      return "indexing";
    case Family::kControl:
      return "control";
    case Family::kRandom:
      return "random";
    case Family::kLinalg:
      return "linalg";
    case Family::kCollective:
      return "collective";
  }
  return "other";
}

// Do the callees of `op` run as graphs of their own, rather than on single elements?
bool ShowsCallees(const Instruction& op) {
  switch (op.opcode()) {
    case Opcode::kFusion:
    case Opcode::kCall:
    case Opcode::kWhile:
    case Opcode::kConditional:
    case Opcode::kAsyncStart:
      return true;
    default:
      return false;
  }
}

std::string LineOf(const Instruction& op) {
  return Print(op, {.metadata = false, .backend_config = true, .max_constant_elements = kElementsShown});
}

Json CostJson(const Cost& cost) {
  return {{"flops", cost.flops}, {"transcendentals", cost.transcendentals}, {"bytes", cost.bytes}};
}

class ModuleWriter {
 public:
  explicit ModuleWriter(const Module& module) : module_(module) {
    if (absl::StatusOr<ModuleCost> cost = AnalyzeCost(module); cost.ok()) {
      cost_ = *std::move(cost);
      for (const InstructionCost& row : cost_.instructions) costs_[row.instruction] = &row;
      has_cost_ = true;
    }
  }

  Json Write() {
    Number(*module_.entry());
    Json json = {{"name", module_.name()}, {"entry", computations_.at(module_.entry())}};
    json["computations"] = std::move(computation_rows_);
    json["instructions"] = std::move(rows_);
    if (has_cost_) {
      json["cost"] = CostJson(cost_.total);
      json["cost"]["peak_bytes"] = cost_.peak_bytes;
      json["cost"]["unknown_trips"] = cost_.unknown_trips;
    }
    return json;
  }

 private:
  // Callees first, so that an instruction can name them.
  int64_t Number(const Computation& c) {
    if (auto it = computations_.find(&c); it != computations_.end()) return it->second;
    std::vector<int64_t> members;
    for (const Instruction* op : c.instructions()) {
      Json calls = Json::array();
      if (ShowsCallees(*op)) {
        for (const Computation* callee : op->called_computations()) calls.push_back(Number(*callee));
      }
      instructions_[op] = static_cast<int64_t>(rows_.size());
      members.push_back(static_cast<int64_t>(rows_.size()));
      rows_.push_back(Row(*op, std::move(calls)));
    }
    // Operands by number: all of the computation have one now, whatever their order.
    for (const Instruction* op : c.instructions()) {
      Json operands = Json::array();
      for (const Instruction* operand : op->operands()) operands.push_back(instructions_.at(operand));
      rows_[instructions_.at(op)]["operands"] = std::move(operands);
    }
    const auto index = static_cast<int64_t>(computation_rows_.size());
    computation_rows_.push_back({{"name", c.name()}, {"root", instructions_.at(c.root())}, {"instructions", members}});
    computations_[&c] = index;
    return index;
  }

  Json Row(const Instruction& op, Json calls) const {
    const Metadata& m = op.metadata();
    Json row = {{"name", op.name()},
                      {"opcode", std::string(OpcodeName(op.opcode()))},
                      {"family", std::string(FamilyText(op.family()))},
                      {"shape", op.shape().ToString()},
                      {"text", LineOf(op)}};
    if (op.opcode() == Opcode::kCustomCall) row["target"] = op.custom_call_target();
    if (!calls.elements().empty()) row["calls"] = std::move(calls);
    if (!m.source_file.empty()) row["source"] = absl::StrCat(m.source_file, ":", m.source_line);
    if (!m.module_path.empty()) row["scope"] = m.module_path;
    if (!m.op_name.empty()) row["op_name"] = m.op_name;
    if (auto it = costs_.find(&op); it != costs_.end()) {
      row["cost"] = CostJson(it->second->cost);
      row["cost"]["executions"] = it->second->executions;
    }
    return row;
  }

  const Module& module_;
  ModuleCost cost_;
  bool has_cost_ = false;
  absl::flat_hash_map<const Instruction*, const InstructionCost*> costs_;
  absl::flat_hash_map<const Instruction*, int64_t> instructions_;
  absl::flat_hash_map<const Computation*, int64_t> computations_;
  Json::Array rows_, computation_rows_;
};

// Calls take(symbol, text) for each part of `text` from a line that starts a kernel to the line `end`, which is part of
// it.
template <typename Symbol, typename Take>
void Cut(const std::string& text, std::string_view end, Symbol&& symbol_of, Take&& take) {
  std::string symbol, part;
  for (size_t from = 0; from < text.size();) {
    const size_t newline = std::min(text.find('\n', from), text.size() - 1);
    const std::string_view line(text.data() + from, newline - from);
    if (symbol.empty()) symbol = std::string(symbol_of(line));
    if (!symbol.empty()) absl::StrAppend(&part, std::string(line), "\n");
    if (!symbol.empty() && line.substr(0, end.size()) == end) {
      take(symbol, std::move(part));
      symbol.clear();
      part.clear();
    }
    from = newline + 1;
  }
}

// "@k1 = alias void (...), ptr @k0" -> k1, k0
std::optional<std::pair<std::string, std::string>> Alias(std::string_view line) {
  const size_t is = line.find(" = alias "), of = line.rfind('@');
  if (line.substr(0, 1) != "@" || is == line.npos || of < is) return std::nullopt;
  return std::pair(std::string(line.substr(1, is - 1)), std::string(line.substr(of + 1)));
}

// "define void @k0(" -> k0
std::string_view DefinedFunction(std::string_view line) {
  if (line.substr(0, 7) != "define ") return {};
  const size_t at = line.find('@'), open = line.find('(');
  return at == line.npos || open == line.npos || open < at ? std::string_view() : line.substr(at + 1, open - at - 1);
}

// ".visible .entry k0(" -> k0
std::string_view Entry(std::string_view line) {
  constexpr std::string_view kEntry = ".visible .entry ";
  if (!line.starts_with(kEntry)) return {};
  line.remove_prefix(kEntry.size());
  return line.substr(0, line.find('('));
}

// "k0:    # @k0" -> k0
std::string_view Label(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == line.npos || colon == 0 || line[0] == '.' || line[0] == '\t' || line[0] == '#') return {};
  return line.substr(0, colon);
}

}  // namespace

Json ModuleJson(const Module& module) { return ModuleWriter(module).Write(); }

StageSink KernelCode::Sink() {
  const uint32_t wanted =
      1u << static_cast<int>(StageKind::kOptimizedLlvm) | 1u << static_cast<int>(StageKind::kAssembly);
  return {.take =
              [this](const Stage& stage) {
                if (stage.kind == StageKind::kOptimizedLlvm) {
                  for (const absl::string_view line : absl::StrSplit(stage.text, '\n')) {
                    if (auto alias = Alias({line.data(), line.size()})) same_.insert(*std::move(alias));
                  }
                  Cut(stage.text, "}", DefinedFunction,
                      [&](const std::string& k, std::string t) { kernels_[k].llvm = std::move(t); });
                } else {
                  const auto keep = [&](const std::string& k, std::string t) { kernels_[k].assembly = std::move(t); };
                  if (stage.file.ends_with(".ptx")) {
                    Cut(stage.text, "}", Entry, keep);
                  } else {
                    Cut(stage.text, ".Lfunc_end", Label, keep);
                  }
                }
              },
          .wanted = wanted};
}

Json KernelCode::ToJson() const {
  Json json = Json::object();
  const auto add = [&](const std::string& symbol, const Texts& texts) {
    json[symbol] = {{"llvm", texts.llvm}, {"assembly", texts.assembly}};
  };
  for (const auto& [symbol, texts] : kernels_) add(symbol, texts);
  for (const auto& [symbol, other] : same_) add(symbol, kernels_.at(other));
  return json;
}

void ModuleReport::Input(const Module& module, const TargetInfo& target) {
  json_["target"] = {{"name", target.name},
                     {"threads", target.threads},
                     {"bytes_per_ns", target.bytes_per_ns},
                     {"flops_per_ns", target.flops_per_ns}};
  json_["input"] = ModuleJson(module);
}

void ModuleReport::Occupied(const std::string& symbol, const Occupancy& o) {
  json_["occupancy"][symbol] = {
      {"blocks", o.blocks}, {"threads", o.threads}, {"most_threads", o.most_threads}, {"multiprocessors", o.multiprocessors}};
}

std::string ModuleReport::Finish(const Module& module, const std::vector<PassTiming>& passes, const KernelCode& code) {
  json_["module"] = ModuleJson(module);
  json_["passes"] = Json::array();
  for (const PassTiming& p : passes)
    json_["passes"].push_back({{"name", p.name}, {"ms", p.ms}, {"changed", p.changed}});
  json_["code"] = code.ToJson();
  return json_.dump();
}

}  // namespace tenon
