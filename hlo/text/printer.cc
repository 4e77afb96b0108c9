#include "hlo/text/printer.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "hlo/text/lexer.h"
#include "hlo/text/literal_text.h"

namespace tenon::text {
namespace {

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

bool IsNameChar(char c) { return IsLetter(c) || (c >= '0' && c <= '9') || c == '.' || c == '-'; }

bool IsPrintable(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), IsNameChar) && name.back() != '-';
}

bool IsTopological(const std::vector<Instruction*>& order) {
  absl::flat_hash_set<const Instruction*> done;
  done.reserve(order.size());
  auto all_done = [&](absl::Span<Instruction* const> list) {
    return std::all_of(list.begin(), list.end(), [&](const Instruction* i) { return done.contains(i); });
  };
  for (const Instruction* i : order) {
    if (!all_done(i->operands()) || !all_done(i->control_predecessors())) return false;
    done.insert(i);
  }
  return true;
}

// The symbols of a dimension with a range or divisor of their own.
void CollectSymbols(Dim d, std::map<std::string, const DimExpr*>* symbols) {
  const DimExpr* e = d.expr();
  if (e == nullptr) return;
  if (e->kind == DimExpr::Kind::kSymbol) {
    if (e->lower != 0 || e->upper != INT64_MAX || e->divisor != 1) symbols->emplace(e->symbol, e);
    return;
  }
  for (Dim operand : e->operands) CollectSymbols(operand, symbols);
}

void CollectSymbols(const Shape& s, std::map<std::string, const DimExpr*>* symbols) {
  for (Dim d : s.dims()) CollectSymbols(d, symbols);
  for (const Shape& e : s.elements()) CollectSymbols(e, symbols);
}

}  // namespace

void Printer::Write(const Module& module) {
  in_module_ = true;
  if (options_.canonical) CanonicalNames(module);
  Header(module);
  if (options_.canonical) {
    for (const Computation* c : canonical_order_) {
      out_.push_back('\n');
      Write(*c, c == module.entry());
    }
    return;
  }
  for (const Computation* c : module.computations()) {
    out_.push_back('\n');
    Write(*c, c == module.entry());
  }
}

void Printer::Header(const Module& module) {
  out_.append("HloModule ");
  if (options_.canonical) {
    out_.push_back('m');
  } else {
    PlainName(module.name(), 0);
  }
  if (module.is_scheduled) out_.append(", is_scheduled=true");
  Symbols(module);
  if (!module.aliases.empty()) {
    out_.append(", input_output_alias={ ");
    for (size_t i = 0; i < module.aliases.size(); ++i) {
      const InputOutputAlias& a = module.aliases[i];
      if (i > 0) out_.append(", ");
      Ints(a.output_index);
      out_.append(": (");
      Number(a.parameter);
      out_.append(", ");
      Ints(a.parameter_index);
      out_.append(a.must ? ", must-alias)" : ", may-alias)");
    }
    out_.append(" }");
  }
  if (module.entry_layout.has_value()) {
    out_.append(", entry_computation_layout={(");
    for (size_t i = 0; i < module.entry_layout->first.size(); ++i) {
      if (i > 0) out_.append(", ");
      ShapeText(module.entry_layout->first[i]);
    }
    out_.append(")->");
    ShapeText(module.entry_layout->second);
    out_.push_back('}');
  }
  for (const auto& [key, value] : module.attributes) out_.append(", ").append(key).append("=").append(value);
  out_.push_back('\n');
  if (!options_.metadata || options_.canonical) return;
  for (const std::string& line : module.origin_tables) {
    if (!line.empty() && IsLetter(line[0])) out_.push_back('\n');
    out_.append(line).push_back('\n');
  }
}

void Printer::Symbols(const Module& module) {
  std::map<std::string, const DimExpr*> symbols;
  for (const Computation* c : module.computations()) {
    for (const Instruction* i : c->instructions()) {
      CollectSymbols(i->shape(), &symbols);
      const AttrValue* slice = i->opcode() == Opcode::kSlice ? i->attrs().find(Attr::kSlice) : nullptr;
      if (slice == nullptr) continue;
      for (Dim d : std::get<SliceSpec>(*slice).starts) CollectSymbols(d, &symbols);
      for (Dim d : std::get<SliceSpec>(*slice).limits) CollectSymbols(d, &symbols);
    }
  }
  if (symbols.empty()) return;
  out_.append(", symbols={");
  bool first = true;
  for (const auto& [name, e] : symbols) {
    if (!first) out_.push_back(',');
    first = false;
    absl::StrAppend(&out_, name, ":[", e->lower, ",", e->upper == INT64_MAX ? "inf" : absl::StrCat(e->upper), "]");
    if (e->divisor != 1) absl::StrAppend(&out_, "%", e->divisor);
  }
  out_.push_back('}');
}

// Parameters, then depth first from the root by operand order, then what the root doesn't reach: the numbering depends
// on the graph only, not on names, ids or the order of addition. A schedule is part of the graph.
std::vector<Instruction*> Printer::Order(const Computation& computation) const {
  std::vector<Instruction*> all = computation.instructions();
  const bool keep = !options_.canonical || (computation.module() != nullptr && computation.module()->is_scheduled);
  // What a pass added may stand behind its users; text wants definitions first.
  if (keep) return IsTopological(all) ? std::move(all) : computation.PostOrder();
  std::vector<Instruction*> order;
  absl::flat_hash_set<const Instruction*> visited;
  std::vector<std::pair<Instruction*, size_t>> stack;
  auto visit = [&](Instruction* start) {
    if (!visited.insert(start).second) return;
    stack.emplace_back(start, 0);
    while (!stack.empty()) {
      Instruction* i = stack.back().first;
      const size_t next = stack.back().second++;
      const size_t operands = i->operands().size();
      if (next < operands + i->control_predecessors().size()) {
        Instruction* before = next < operands ? i->operands()[next] : i->control_predecessors()[next - operands];
        if (visited.insert(before).second) stack.emplace_back(before, 0);
      } else {
        order.push_back(i);
        stack.pop_back();
      }
    }
  };
  for (Instruction* p : computation.parameters()) visit(p);
  if (computation.root() != nullptr) visit(computation.root());
  for (Instruction* i : all) visit(i);
  return order;
}

// Computations in the order of first call from the entry, callees first; unreachable ones are left out.
void Printer::CanonicalNames(const Module& module) {
  struct Frame {
    const Computation* computation;
    std::vector<const Computation*> callees;
    size_t next = 0;
  };
  auto frame = [&](const Computation* c) {
    Frame f{c, {}};
    for (const Instruction* i : Order(*c)) {
      for (const Computation* callee : i->called_computations()) f.callees.push_back(callee);
    }
    return f;
  };
  absl::flat_hash_set<const Computation*> visited;
  std::vector<Frame> stack;
  if (module.entry() == nullptr) return;
  visited.insert(module.entry());
  stack.push_back(frame(module.entry()));
  while (!stack.empty()) {
    Frame& top = stack.back();
    if (top.next < top.callees.size()) {
      const Computation* callee = top.callees[top.next++];
      if (visited.insert(callee).second) stack.push_back(frame(callee));
    } else {
      computation_numbers_[top.computation] = static_cast<int64_t>(canonical_order_.size());
      canonical_order_.push_back(top.computation);
      stack.pop_back();
    }
  }
}

void Printer::Write(const Computation& computation, bool entry) {
  const std::vector<Instruction*> order = Order(computation);
  if (options_.canonical) {
    int64_t next = 0;
    instruction_numbers_.clear();
    for (const Instruction* i : order) instruction_numbers_[i] = next++;
  }
  if (entry) out_.append("ENTRY ");
  Name(computation);
  out_.append(" {\n");
  for (const Instruction* i : order) {
    out_.append(i == computation.root() ? "  ROOT " : "  ");
    Write(*i);
    out_.push_back('\n');
  }
  out_.push_back('}');
  if (!computation.execution_thread().empty()) {
    out_.append(", execution_thread=\"").append(Escape(computation.execution_thread())).append("\"");
  }
  out_.push_back('\n');
}

void Printer::Write(const Instruction& i) {
  Name(i);
  out_.append(" = ");
  ShapeText(i.shape());
  out_.push_back(' ');
  out_.append(OpcodeName(i.opcode()));
  out_.push_back('(');
  Operands(i);
  out_.push_back(')');
  AttributeList(i);
}

void Printer::Operands(const Instruction& i) {
  if (i.opcode() == Opcode::kParameter) return Number(i.parameter_number());
  if (i.opcode() == Opcode::kConstant) {
    const Literal& l = i.literal();
    const int64_t limit = options_.max_constant_elements;
    if (limit < 0 || !l.shape().is_array() || l.num_elements() <= limit) return AppendLiteral(l, &out_);
    out_.append("{...");
    // A hash of the content keeps the canonical form a faithful key.
    if (options_.canonical) absl::StrAppend(&out_, absl::Hex(l.Hash()));
    out_.push_back('}');
    return;
  }
  for (int64_t k = 0; k < i.operand_count(); ++k) {
    if (k > 0) out_.append(", ");
    if (options_.operand_shapes) {
      ShapeText(i.operand(k)->shape());
      out_.push_back(' ');
    }
    Name(*i.operand(k));
  }
}

void Printer::Name(const Instruction& i) {
  if (!options_.canonical) return PlainName(i.name(), i.id());
  out_.push_back('v');
  const auto it = instruction_numbers_.find(&i);
  Number(it == instruction_numbers_.end() ? i.id() : it->second);
}

void Printer::Name(const Computation& c) {
  if (!options_.canonical) return PlainName(c.name(), 0);
  const auto it = computation_numbers_.find(&c);
  if (it == computation_numbers_.end()) return PlainName(c.name(), 0);
  out_.push_back('c');
  Number(it->second);
}

// A name of other characters than the grammar's prints with '_' for each, and the id to keep it apart from others.
void Printer::PlainName(std::string_view name, int64_t id) {
  if (IsPrintable(name)) {
    if (options_.percent || !IsLetter(name[0])) out_.push_back('%');
    out_.append(name);
    return;
  }
  if (options_.percent) out_.push_back('%');
  out_.push_back('_');
  for (char c : name) out_.push_back(IsNameChar(c) ? c : '_');
  absl::StrAppend(&out_, ".", id);
}

void Printer::Number(int64_t value) {
  char buffer[24];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  out_.append(buffer, end - buffer);
}

}  // namespace tenon::text

namespace tenon {

std::string Print(const Module& module, const PrintOptions& options) {
  text::Printer printer(options);
  printer.Write(module);
  return printer.Take();
}

std::string Print(const Computation& computation, const PrintOptions& options) {
  text::Printer printer(options);
  printer.Write(computation, computation.module() != nullptr && computation.module()->entry() == &computation);
  return printer.Take();
}

std::string Print(const Instruction& instruction, const PrintOptions& options) {
  text::Printer printer(options);
  printer.Write(instruction);
  return printer.Take();
}

}  // namespace tenon
