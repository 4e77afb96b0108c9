#include "tools/lab/diff/diff.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hlo/text/text.h"
#include "tools/lab/case_files.h"
#include "tools/lab/diff/diff_match.h"

namespace tenon::lab {
namespace {

using Fields = std::vector<FieldChange>;

std::string Line(const Instruction& i) { return Print(i, {.max_constant_elements = 16}); }

// The text of one attribute: what stands behind its key on the printed line, to the comma that ends
// it.
std::string AttributeText(const Instruction& i, Attr attr) {
  const std::string line = Print(i, {.metadata = false});
  const std::string key = absl::StrCat(", ", std::string(AttrName(attr)), "=");
  const size_t at = line.find(key);
  if (at == std::string::npos) return i.attrs().has(attr) ? "set" : "";
  size_t end = at + key.size();
  int depth = 0;
  bool quoted = false;
  for (; end < line.size(); ++end) {
    const char c = line[end];
    if (c == '"' && line[end - 1] != '\\') quoted = !quoted;
    if (quoted) continue;
    depth += (c == '{' || c == '[' || c == '(') - (c == '}' || c == ']' || c == ')');
    if (depth == 0 && c == ',') break;
  }
  return line.substr(at + key.size(), end - at - key.size());
}

std::string MetadataText(const Instruction& i) {
  const std::string with = Print(i), without = Print(i, {.metadata = false});
  return i.metadata().empty()           ? ""
         : with.size() > without.size() ? with.substr(without.size())
                                        : with;
}

bool SameMetadata(const Metadata& a, const Metadata& b) {
  return a.op_type == b.op_type && a.op_name == b.op_name && a.source_file == b.source_file &&
         a.source_line == b.source_line && a.source_column == b.source_column &&
         a.source_end_line == b.source_end_line && a.source_end_column == b.source_end_column &&
         a.stack_frame_id == b.stack_frame_id && a.module_path == b.module_path &&
         a.unknown == b.unknown;
}

bool SameLayouts(const Shape& a, const Shape& b) {
  if (a.is_array() && b.is_array()) {
    if (a.rank() == b.rank() && a.minor_to_major() != b.minor_to_major()) return false;
    return a.layout_suffix() == b.layout_suffix();
  }
  for (size_t k = 0; k < std::min(a.elements().size(), b.elements().size()); ++k) {
    if (!SameLayouts(a.element(static_cast<int64_t>(k)), b.element(static_cast<int64_t>(k))))
      return false;
  }
  return true;
}

class Differ {
 public:
  Differ(const Module& a, const Module& b, const DiffOptions& options)
      : a_(a), b_(b), o_(options), match_(a, b) {}

  ModuleDiff Run() {
    ModuleDiff diff;
    Header(&diff.fields);
    std::vector<Computation*> order = a_.computations();
    std::reverse(order.begin(), order.end());  // the entry first
    for (const Computation* c : order) diff.computations.push_back(Compare(c, match_.OfA(c)));
    std::vector<Computation*> other = b_.computations();
    std::reverse(other.begin(), other.end());
    for (const Computation* c : other) {
      if (!match_.MatchedB(c)) diff.computations.push_back({.b = c});
    }
    return diff;
  }

 private:
  static void Note(std::string what, std::string a, std::string b, Fields* fields) {
    fields->push_back({std::move(what), std::move(a), std::move(b)});
  }

  void Header(Fields* fields) {
    if (o_.names && a_.name() != b_.name()) Note("module name", a_.name(), b_.name(), fields);
    auto flag = [](bool v) { return std::string(v ? "true" : "false"); };
    if (o_.order && a_.is_scheduled != b_.is_scheduled)
      Note("is_scheduled", flag(a_.is_scheduled), flag(b_.is_scheduled), fields);
    if (a_.aliases != b_.aliases)
      Note("input_output_alias", absl::StrCat(a_.aliases.size()), absl::StrCat(b_.aliases.size()),
           fields);
    if (a_.attributes != b_.attributes) {
      auto text = [](const Module& m) {
        return absl::StrJoin(m.attributes, ", ", [](std::string* out, const auto& kv) {
          absl::StrAppend(out, kv.first, "=", kv.second);
        });
      };
      Note("module attributes", text(a_), text(b_), fields);
    }
    if (o_.layout && a_.entry_layout != b_.entry_layout) {
      auto text = [](const Module& m) {
        if (!m.entry_layout) return std::string();
        return absl::StrCat("{(",
                            absl::StrJoin(m.entry_layout->first, ", ",
                                          [](std::string* out, const Shape& s) {
                                            absl::StrAppend(out, s.ToString(true));
                                          }),
                            ")->", m.entry_layout->second.ToString(true), "}");
      };
      Note("entry_computation_layout", text(a_), text(b_), fields);
    }
  }

  ComputationDiff Compare(const Computation* a, const Computation* b) {
    ComputationDiff d{.a = a, .b = b};
    if (b == nullptr) return d;
    if (o_.names && a->name() != b->name())
      Note("computation name", a->name(), b->name(), &d.fields);
    if (match_.OfA(a->root()) != b->root())
      Note("root", a->root()->name(), b->root()->name(), &d.fields);
    for (const Instruction* i : a->instructions()) {
      const Instruction* other = match_.OfA(i);
      if (other == nullptr) {
        d.changes.push_back({InstructionChange::Kind::kRemoved, i, nullptr, {}});
        continue;
      }
      Fields fields = CompareInstructions(*i, *other);
      if (fields.empty()) {
        ++d.same;
      } else {
        d.changes.push_back({InstructionChange::Kind::kChanged, i, other, std::move(fields)});
      }
    }
    for (const Instruction* i : b->instructions()) {
      if (!match_.MatchedB(i))
        d.changes.push_back({InstructionChange::Kind::kAdded, nullptr, i, {}});
    }
    if (o_.order && a_.is_scheduled && b_.is_scheduled) Order(*a, *b, &d.fields);
    return d;
  }

  // The first instruction that runs at another place among those that both have.
  void Order(const Computation& a, const Computation& b, Fields* fields) {
    std::vector<const Instruction*> x, y;
    for (const Instruction* i : a.instructions()) {
      if (const Instruction* other = match_.OfA(i)) x.push_back(other);
    }
    for (const Instruction* i : b.instructions()) {
      if (match_.MatchedB(i)) y.push_back(i);
    }
    for (size_t k = 0; k < std::min(x.size(), y.size()); ++k) {
      if (x[k] == y[k]) continue;
      return Note(absl::StrCat("schedule from position ", k), x[k]->name(), y[k]->name(), fields);
    }
  }

  Fields CompareInstructions(const Instruction& a, const Instruction& b) {
    Fields f;
    if (o_.names && a.name() != b.name()) Note("name", a.name(), b.name(), &f);
    if (a.opcode() != b.opcode())
      Note("opcode", std::string(OpcodeName(a.opcode())), std::string(OpcodeName(b.opcode())), &f);
    if (a.shape().ToString() != b.shape().ToString()) {
      Note("shape", a.shape().ToString(), b.shape().ToString(), &f);
    } else if (o_.layout && !SameLayouts(a.shape(), b.shape())) {
      Note("layout", a.shape().ToString(true), b.shape().ToString(true), &f);
    }
    for (int64_t k = 0; k < std::max(a.operand_count(), b.operand_count()); ++k) {
      const Instruction* x = k < a.operand_count() ? a.operand(k) : nullptr;
      const Instruction* y = k < b.operand_count() ? b.operand(k) : nullptr;
      if (x != nullptr && y != nullptr && match_.OfA(x) == y) continue;
      Note(absl::StrCat("operand ", k), x == nullptr ? "" : x->name(),
           y == nullptr ? "" : y->name(), &f);
    }
    AttributeChanges(a, b, &f);
    if (a.opcode() == Opcode::kParameter && b.opcode() == Opcode::kParameter &&
        a.parameter_number() != b.parameter_number()) {
      Note("parameter number", absl::StrCat(a.parameter_number()),
           absl::StrCat(b.parameter_number()), &f);
    }
    if (o_.literals && (a.has_literal() != b.has_literal() ||
                        (a.has_literal() && !SameLiteral(a.literal(), b.literal())))) {
      auto text = [](const Instruction& i) {
        std::string t = i.has_literal() ? i.literal().ToString() : "";
        return t.size() > 80 ? t.substr(0, 77) + "..." : t;
      };
      Note("literal", text(a), text(b), &f);
    }
    Control(a, b, &f);
    if (o_.metadata && !SameMetadata(a.metadata(), b.metadata()))
      Note("metadata", MetadataText(a), MetadataText(b), &f);
    return f;
  }

  static bool SameLiteral(const Literal& a, const Literal& b) {
    if (a.shape().is_tuple() || b.shape().is_tuple()) return a == b;
    return a.type() == b.type() && Shape::SameDims(a.shape(), b.shape()) && a.Hash() == b.Hash();
  }

  bool SameValue(const AttrValue& a, const AttrValue& b) const {
    if (a.index() != b.index()) return false;
    if (const auto* c = std::get_if<Computation*>(&a))
      return match_.OfA(*c) == std::get<Computation*>(b);
    if (const auto* list = std::get_if<std::vector<Computation*>>(&a)) {
      const auto& other = std::get<std::vector<Computation*>>(b);
      return std::equal(list->begin(), list->end(), other.begin(), other.end(),
                        [&](Computation* x, Computation* y) { return match_.OfA(x) == y; });
    }
    return a == b;
  }

  bool Ignored(Attr attr) const {
    if (attr == Attr::kBackendConfig) return !o_.backend_config;
    return attr == Attr::kFrontendAttributes || attr == Attr::kOrigin || attr == Attr::kStatistics
               ? !o_.metadata
               : false;
  }

  void AttributeChanges(const Instruction& a, const Instruction& b, Fields* f) {
    std::vector<Attr> keys;
    for (const auto& [attr, value] : a.attrs()) keys.push_back(attr);
    for (const auto& [attr, value] : b.attrs()) {
      if (!a.attrs().has(attr)) keys.push_back(attr);
    }
    for (Attr attr : keys) {
      const AttrValue *x = a.attrs().find(attr), *y = b.attrs().find(attr);
      if (Ignored(attr) || (x != nullptr && y != nullptr && SameValue(*x, *y))) continue;
      Note(std::string(AttrName(attr)), AttributeText(a, attr), AttributeText(b, attr), f);
    }
    if (a.attrs().unknown != b.attrs().unknown) {
      auto text = [](const Instruction& i) {
        return absl::StrJoin(i.attrs().unknown, ", ", [](std::string* out, const auto& kv) {
          absl::StrAppend(out, kv.first, "=", kv.second);
        });
      };
      Note("other attributes", text(a), text(b), f);
    }
  }

  void Control(const Instruction& a, const Instruction& b, Fields* f) {
    absl::flat_hash_set<const Instruction*> x,
        y(b.control_predecessors().begin(), b.control_predecessors().end());
    for (const Instruction* p : a.control_predecessors()) x.insert(match_.OfA(p));
    if (x == y) return;
    auto text = [](const Instruction& i) {
      return absl::StrJoin(
          i.control_predecessors(), ", ",
          [](std::string* out, const Instruction* p) { absl::StrAppend(out, p->name()); });
    };
    Note("control-predecessors", text(a), text(b), f);
  }

  const Module &a_, &b_;
  const DiffOptions o_;
  Matching match_;
};

std::string FieldsJson(const Fields& fields) {
  return absl::StrCat("[",
                      absl::StrJoin(fields, ", ",
                                    [](std::string* out, const FieldChange& f) {
                                      absl::StrAppend(out, "{\"what\": ", JsonString(f.what),
                                                      ", \"a\": ", JsonString(f.a),
                                                      ", \"b\": ", JsonString(f.b), "}");
                                    }),
                      "]");
}

void FieldsText(const Fields& fields, const char* indent, std::string* out) {
  for (const FieldChange& f : fields) {
    absl::StrAppend(out, indent, f.what, ": ", f.a.empty() ? "(none)" : f.a, " -> ",
                    f.b.empty() ? "(none)" : f.b, "\n");
  }
}

int64_t Count(const ModuleDiff& d, InstructionChange::Kind kind) {
  int64_t n = 0;
  for (const ComputationDiff& c : d.computations) {
    if (c.b == nullptr && kind == InstructionChange::Kind::kRemoved) n += c.a->instruction_count();
    if (c.a == nullptr && kind == InstructionChange::Kind::kAdded) n += c.b->instruction_count();
    n += std::count_if(c.changes.begin(), c.changes.end(),
                       [&](const InstructionChange& i) { return i.kind == kind; });
  }
  return n;
}

}  // namespace

bool Ignore(std::string_view what, DiffOptions* o) {
  const std::pair<std::string_view, bool*> flags[] = {
      {"names", &o->names},       {"metadata", &o->metadata},
      {"layout", &o->layout},     {"backend_config", &o->backend_config},
      {"literals", &o->literals}, {"order", &o->order}};
  for (const auto& [name, flag] : flags) {
    if (what == name) return *flag = false, true;
  }
  return false;
}

bool ModuleDiff::equal() const {
  return fields.empty() && std::all_of(computations.begin(), computations.end(),
                                       [](const ComputationDiff& c) { return c.equal(); });
}
int64_t ModuleDiff::removed() const { return Count(*this, InstructionChange::Kind::kRemoved); }
int64_t ModuleDiff::added() const { return Count(*this, InstructionChange::Kind::kAdded); }
int64_t ModuleDiff::changed() const { return Count(*this, InstructionChange::Kind::kChanged); }

std::string ModuleDiff::ToText(std::string_view name_a, std::string_view name_b) const {
  if (equal()) return "";
  std::string out = absl::StrCat("--- ", std::string(name_a), "\n+++ ", std::string(name_b), "\n");
  FieldsText(fields, "  ", &out);
  for (const ComputationDiff& c : computations) {
    if (c.equal()) continue;
    if (c.b == nullptr || c.a == nullptr) {
      const bool removed = c.b == nullptr;
      const Computation& whole = removed ? *c.a : *c.b;
      absl::StrAppend(&out, "@@ computation ", whole.name(), removed ? " removed" : " added",
                      " @@\n");
      for (const Instruction* i : whole.instructions())
        absl::StrAppend(&out, removed ? "- " : "+ ", Line(*i), "\n");
      continue;
    }
    absl::StrAppend(&out, "@@ computation ", c.a->name(), ": ", c.same, " of ",
                    c.a->instruction_count(), " the same @@\n");
    FieldsText(c.fields, "  ", &out);
    for (const InstructionChange& i : c.changes) {
      if (i.a != nullptr) absl::StrAppend(&out, "- ", Line(*i.a), "\n");
      if (i.b != nullptr) absl::StrAppend(&out, "+ ", Line(*i.b), "\n");
      FieldsText(i.fields, "    ", &out);
    }
  }
  return out;
}

std::string ModuleDiff::ToJson() const {
  std::string out =
      absl::StrCat("{\"equal\": ", equal() ? "true" : "false", ", \"removed\": ", removed(),
                   ", \"added\": ", added(), ", \"changed\": ", changed(),
                   ", \"fields\": ", FieldsJson(fields), ", \"computations\": [");
  bool first = true;
  for (const ComputationDiff& c : computations) {
    if (c.equal()) continue;
    absl::StrAppend(
        &out, first ? "" : ", ", "{\"a\": ", c.a == nullptr ? "null" : JsonString(c.a->name()),
        ", \"b\": ", c.b == nullptr ? "null" : JsonString(c.b->name()), ", \"same\": ", c.same,
        ", \"fields\": ", FieldsJson(c.fields), ", \"changes\": [");
    first = false;
    for (size_t k = 0; k < c.changes.size(); ++k) {
      const InstructionChange& i = c.changes[k];
      constexpr const char* kKinds[] = {"removed", "added", "changed"};
      absl::StrAppend(&out, k > 0 ? ", " : "", "{\"kind\": \"", kKinds[static_cast<int>(i.kind)],
                      "\", \"a\": ", i.a == nullptr ? "null" : JsonString(i.a->name()),
                      ", \"b\": ", i.b == nullptr ? "null" : JsonString(i.b->name()),
                      ", \"fields\": ", FieldsJson(i.fields), "}");
    }
    absl::StrAppend(&out, "]}");
  }
  return out + "]}";
}

ModuleDiff Diff(const Module& a, const Module& b, const DiffOptions& options) {
  return Differ(a, b, options).Run();
}

}  // namespace tenon::lab
