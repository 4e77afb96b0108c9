#include "hlo/text/printer.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "absl/strings/str_cat.h"
#include "hlo/canonical_order.h"
#include "hlo/text/lexer.h"
#include "hlo/text/literal_text.h"
#include "hlo/text_counts.h"

namespace tenon::text {
namespace {

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

bool IsNameChar(char c) { return IsLetter(c) || (c >= '0' && c <= '9') || c == '.' || c == '-'; }

bool IsPrintable(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), IsNameChar) && name.back() != '-';
}

// The symbols of a dimension with a range, divisor or typical value of their own.
void CollectSymbols(Dim d, std::map<std::string, const DimExpr*>* symbols) {
  const DimExpr* e = d.expr();
  if (e == nullptr) return;
  if (e->kind == DimExpr::Kind::kSymbol) {
    const bool plain = e->lower == 0 && e->upper == INT64_MAX && e->divisor == 1 && e->typical == kTypicalSize;
    if (!plain) symbols->emplace(e->symbol, e);
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
    if (e->typical != kTypicalSize) absl::StrAppend(&out_, "~", e->typical);
  }
  out_.push_back('}');
}

std::vector<Instruction*> Printer::Order(const Computation& computation) const {
  if (options_.canonical) return CanonicalOrder(computation);
  // What a pass added may stand behind its users; text wants definitions first.
  std::vector<Instruction*> all = computation.instructions();
  return IsTopological(all) ? std::move(all) : computation.PostOrder();
}

void Printer::CanonicalNames(const Module& module) {
  canonical_order_ = CanonicalOrder(module);
  for (size_t k = 0; k < canonical_order_.size(); ++k) computation_numbers_[canonical_order_[k]] = static_cast<int64_t>(k);
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
  Count(text_counts.modules_printed);
  text::Printer printer(options);
  printer.Write(module);
  return printer.Take();
}

std::string Print(const Computation& computation, const PrintOptions& options) {
  Count(text_counts.modules_printed);
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
