#include "backends/report/program_report.h"

#include <algorithm>
#include <array>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/execute/step_work.h"
#include "runtime/program/dim_program.h"
#include "runtime/program/kernel_operands.h"

namespace tenon {
namespace {

struct Access {
  std::vector<int32_t> reads, writes;  // values
  std::vector<int32_t> regions;        // that the step runs
};

void AddValue(const View& view, std::vector<int32_t>* to) {
  if (view.value >= 0 && std::find(to->begin(), to->end(), view.value) == to->end()) to->push_back(view.value);
}

struct AccessOf {
  Access operator()(const KernelStep& s) const {
    Access a;
    const KernelOperands operands = OperandsOf(program, s);
    for (const View& v : operands.reads) AddValue(v, &a.reads);
    for (const View& v : operands.results) AddValue(v, &a.writes);
    for (const View& v : operands.extras) AddValue(v, &a.writes);
    return a;
  }
  Access operator()(const FrameworkStep& s) const {
    Access a;
    for (const View& v : s.operands) AddValue(v, &a.reads);
    for (const View& v : s.results) AddValue(v, &a.writes);
    return a;
  }
  Access operator()(const LibraryStep& s) const {
    Access a;
    for (const View& v : s.operands) AddValue(v, &a.reads);
    for (const View& v : s.results) AddValue(v, &a.writes);
    return a;
  }
  Access operator()(const CopyStep& s) const {
    Access a;
    AddValue(s.from, &a.reads);
    AddValue(s.to, &a.writes);
    return a;
  }
  Access operator()(const WhileStep& s) const {
    Access a{.regions = {s.condition, s.body}};
    AddValue(s.predicate, &a.reads);
    return a;
  }
  Access operator()(const ConditionalStep& s) const {
    Access a{.regions = s.branches};
    AddValue(s.index, &a.reads);
    return a;
  }
  const Program& program;
};

class ProgramWriter {
 public:
  explicit ProgramWriter(const Program& program) : p_(program), lives_(program.values.size()) {}

  Json Write() {
    Json json = {{"tier", p_.tier == Program::Tier::kNative ? "native" : "eager_program"},
                       {"reason", p_.tier_reason}};
    Walk(0);
    if (p_.commit_region >= 0) Walk(p_.commit_region);
    json["inputs"] = Inputs();
    json["outputs"] = Outputs();
    json["kernels"] = Kernels();
    json["regions"] = Regions();
    json["order"] = Json::array();
    for (const auto& [region, step] : order_) json["order"].push_back({region, step});
    json["values"] = Values();
    json["memory"] = {{"arena", ArenaIsKnown() ? Json(p_.arena_bytes) : Json(nullptr)},
                      {"code", p_.code_bytes()}};
    json["compile_ms"] = Json::array();
    for (const auto& [phase, ms] : p_.compile_ms) json["compile_ms"].push_back({phase, ms});
    json["remarks"] = Remarks();
    return json;
  }

 private:
  bool ArenaIsKnown() const {
    return p_.arena_bytes >= 0 && absl::c_none_of(p_.values, [](const Value& v) { return v.space == 0 && v.is_placed_per_call(); });
  }

  struct Life {
    int64_t first = -1, last = -1;
    std::vector<std::string> names;  // of the steps that write it
  };

  // The positions of a region's steps and of those that they run, and the lives of what they touch.
  void Walk(int32_t region) {
    for (size_t k = 0; k < p_.regions[region].steps.size(); ++k) {
      const Step& step = p_.regions[region].steps[k];
      const Access access = std::visit(AccessOf{p_}, step.body);
      const auto position = static_cast<int64_t>(order_.size());
      order_.push_back({region, static_cast<int64_t>(k)});
      for (int32_t v : access.reads) Touch(v, position);
      for (int32_t v : access.writes) {
        Touch(v, position);
        std::vector<std::string>& names = lives_[v].names;
        if (std::find(names.begin(), names.end(), step.name) == names.end()) names.push_back(step.name);
      }
      if (access.regions.empty()) continue;
      const std::vector<Life> before = lives_;
      for (int32_t callee : access.regions) Walk(callee);
      if (std::holds_alternative<WhileStep>(step.body)) HoldOverLoop(before, access, position);
    }
  }

  void Touch(int32_t value, int64_t position) {
    Life& life = lives_[value];
    if (life.first < 0) life.first = position;
    life.last = std::max(life.last, position);
  }

  // What was alive before a loop and is touched inside of it is alive until its end; what is read in it before it is
  // written, all the time. (What is written and read later in the same trip only keeps its own range.)
  void HoldOverLoop(const std::vector<Life>& before, const Access& loop, int64_t position) {
    const auto end = static_cast<int64_t>(order_.size()) - 1;
    for (size_t v = 0; v < lives_.size(); ++v) {
      if (lives_[v].last < position || lives_[v].last == before[v].last) continue;
      const bool entered = before[v].first >= 0;
      if (entered || ReadFirst(static_cast<int32_t>(v), lives_[v].first)) {
        lives_[v].first = entered ? lives_[v].first : position;
        lives_[v].last = end;
      }
    }
    for (int32_t v : loop.reads) lives_[v].last = end;  // the predicate
  }

  bool ReadFirst(int32_t value, int64_t position) const {
    const int64_t region = order_[position][0], step = order_[position][1];
    const Access access = std::visit(AccessOf{p_}, p_.regions[region].steps[step].body);
    return std::find(access.writes.begin(), access.writes.end(), value) == access.writes.end();
  }

  static Json Size(SizeRef ref) { return ref >= 0 ? Json(ref) : Json(absl::StrCat("d", ~ref)); }
  static Json Sizes(const std::vector<SizeRef>& refs) {
    Json json = Json::array();
    for (SizeRef r : refs) json.push_back(Size(r));
    return json;
  }
  static std::string ShapeText(PrimitiveType type, const std::vector<SizeRef>& dims) {
    return absl::StrCat(std::string(PrimitiveTypeName(type)), "[",
                        absl::StrJoin(dims, ",",
                                      [](std::string* out, SizeRef r) {
                                        absl::StrAppend(out, r >= 0 ? absl::StrCat(r) : absl::StrCat("d", ~r));
                                      }),
                        "]");
  }

  Json Inputs() const {
    Json json = Json::array();
    for (const InputSpec& in : p_.inputs) {
      static constexpr const char* kKinds[] = {"tensor", "symint", "none", "other"};
      json.push_back({{"name", in.name},
                      {"kind", kKinds[static_cast<int>(in.kind)]},
                      {"shape", ShapeText(in.dtype, in.dims)},
                      {"strides", Sizes(in.strides)},
                      {"mutated", in.mutated}});
    }
    return json;
  }

  Json Outputs() const {
    Json json = Json::array();
    for (const OutputSpec& out : p_.outputs) {
      static constexpr const char* kKinds[] = {"fresh", "slot", "input", "constant", "none", "symint"};
      json.push_back({{"kind", kKinds[static_cast<int>(out.kind)]},
                      {"index", out.index},
                      {"shape", ShapeText(out.dtype, out.dims)},
                      {"strides", Sizes(out.strides)}});
    }
    return json;
  }

  Json Kernels() const {
    Json json = Json::array();
    for (const KernelSpec& k : p_.kernels) {
      json.push_back({{"symbol", k.symbol}, {"plan", k.plan}, {"scratch_bytes", k.scratch_bytes}});
    }
    return json;
  }

  Json Regions() const {
    Json json = Json::array();
    for (const Region& region : p_.regions) {
      Json steps = Json::array();
      for (const Step& step : region.steps) steps.push_back(StepRow(step));
      json.push_back({{"name", region.name}, {"steps", std::move(steps)}});
    }
    return json;
  }

  Json StepRow(const Step& step) const {
    static constexpr const char* kKinds[] = {"kernel", "call", "copy", "library", "while", "conditional"};
    const Access access = std::visit(AccessOf{p_}, step.body);
    const StepWork work = WorkOf(step);
    Json row = {{"kind", kKinds[step.body.index()]},
                      {"name", step.name},
                      {"source", step.source},
                      {"reads", access.reads},
                      {"writes", access.writes},
                      {"bytes", work.bytes},
                      {"flops", work.flops},
                      {"estimated_ns", step.estimated_ns}};
    if (!access.regions.empty()) row["regions"] = access.regions;
    if (const auto* kernel = std::get_if<KernelStep>(&step.body)) {
      row["kernel"] = kernel->kernel;
      if (kernel->launch) {
        const std::array<SizeRef, 3>& grid = kernel->launch->grid;
        const std::array<int32_t, 3>& block = kernel->launch->block;
        row["grid"] = {Size(grid[0]), Size(grid[1]), Size(grid[2])};
        row["block"] = {block[0], block[1], block[2]};
        row["shared_bytes"] = kernel->launch->shared_bytes;
      } else {
        row["range"] = {Size(kernel->begin), Size(kernel->end)};
        row["grain"] = kernel->grain;
      }
    } else if (const auto* call = std::get_if<FrameworkStep>(&step.body)) {
      row["op"] = call->overload;
      row["reason"] = call->reason;
    } else if (const auto* library = std::get_if<LibraryStep>(&step.body)) {
      row["op"] = library->function;
      row["reason"] = absl::StrCat("library: ", library->function);
    }
    return row;
  }

  Json Values() const {
    Json json = Json::array();
    for (size_t v = 0; v < p_.values.size(); ++v) {
      static constexpr const char* kKinds[] = {"input", "constant", "arena", "output", "slot", "error_word", "update", "lent"};
      const Value& value = p_.values[v];
      Json row = {{"kind", kKinds[static_cast<int>(value.kind)]},
                        {"index", value.index},
                        {"name", NameOf(value, lives_[v])},
                        {"bytes", Size(value.bytes)},
                        {"first", lives_[v].first},
                        {"last", lives_[v].last}};
      const bool in_arena = value.kind == ValueKind::kArena && !value.is_placed_per_call();
      if (in_arena || value.kind == ValueKind::kLent) row["offset"] = Size(value.offset);
      if (value.space != 0) row["space"] = value.space;
      json.push_back(std::move(row));
    }
    return json;
  }

  std::string NameOf(const Value& value, const Life& life) const {
    const std::string written = absl::StrJoin(life.names, ", ");
    switch (value.kind) {
      case ValueKind::kInput: {
        const std::string& name = p_.inputs[value.index].name;
        return name.empty() ? absl::StrCat("input ", value.index) : name;
      }
      case ValueKind::kConstant:
        return absl::StrCat("constant ", value.index);
      case ValueKind::kErrorWord:
        return "error word";
      case ValueKind::kUpdate:
        return absl::StrCat("update of input ", value.index, written.empty() ? "" : ": ", written);
      case ValueKind::kOutput:
        return absl::StrCat("output ", value.index, written.empty() ? "" : ": ", written);
      default:
        return written;
    }
  }

  Json Remarks() const {
    Json json = Json::array();
    for (const std::string& remark : p_.remarks) {
      Json parsed = Json::Parse(remark).value_or(Json());
      if (!parsed.is_object()) parsed = {{"pass", "lower"}, {"kind", "note"}, {"reason", remark}};
      json.push_back(std::move(parsed));
    }
    return json;
  }

  const Program& p_;
  std::vector<Life> lives_;
  std::vector<std::array<int64_t, 2>> order_;
};

}  // namespace

Json ProgramJson(const Program& program) { return ProgramWriter(program).Write(); }

}  // namespace tenon
