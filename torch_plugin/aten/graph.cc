// Printing, and replacing symbols by numbers.
#include "torch_plugin/aten/graph.h"

#include <charconv>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "hlo/text_counts.h"

namespace tenon::aten {
namespace {

void AppendDims(const std::vector<Dim>& dims, char open, char close, std::string* out) {
  out->push_back(open);
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i != 0) out->push_back(',');
    if (dims[i].is_constant()) {
      absl::StrAppend(out, dims[i].constant());
    } else {
      *out += dims[i].ToString();
    }
  }
  out->push_back(close);
}

std::string Quoted(const std::string& s) {
  return ToString(FrameworkArg{.kind = FrameworkArg::Kind::kString, .s = s});
}

void AppendMeta(const Meta& meta, std::string* out) {
  switch (meta.kind) {
    case Meta::Kind::kSymInt: absl::StrAppend(out, "symint ", meta.symint.ToString()); return;
    case Meta::Kind::kNone: *out += "none"; return;
    case Meta::Kind::kOther: absl::StrAppend(out, "other(", Quoted(meta.other), ")"); return;
    case Meta::Kind::kTensor: break;
  }
  *out += PrimitiveTypeName(meta.dtype);
  AppendDims(meta.sizes, '[', ']', out);
  AppendDims(meta.strides, '{', '}', out);
  if (!(meta.offset == Dim())) absl::StrAppend(out, "+", meta.offset.ToString());
  if (meta.device != "cpu") absl::StrAppend(out, " on ", Quoted(meta.device));
}

class Printer {
 public:
  explicit Printer(const Graph& graph) : graph_(graph) {}
  std::string Run();

 private:
  void Name(ValueId v) { absl::StrAppend(&out_, "%", graph_.values[v].name); }
  void Arg(const FrameworkArg& arg, const Node& node);
  void PrintNode(const Node& node);
  void PrintLiteral(const Literal& literal);

  const Graph& graph_;
  std::string out_;
};

void Printer::Arg(const FrameworkArg& arg, const Node& node) {
  if (arg.is_tensor()) {
    Name(node.operands[arg.i]);
    out_ += WindowText(arg);
    return;
  }
  if (arg.kind != FrameworkArg::Kind::kList) {
    out_ += ToString(arg);
    return;
  }
  out_.push_back('[');
  for (size_t i = 0; i < arg.list.size(); ++i) {
    if (i != 0) out_ += ", ";
    Arg(arg.list[i], node);
  }
  out_.push_back(']');
}

void Printer::PrintNode(const Node& node) {
  for (size_t i = 0; i < node.results.size(); ++i) {
    if (i != 0) out_ += ", ";
    Name(node.results[i]);
  }
  if (!node.results.empty()) out_ += " = ";
  out_ += node.op;
  out_.push_back('(');
  for (size_t i = 0; i < node.args.size(); ++i) {
    if (i != 0) out_ += ", ";
    Arg(node.args[i], node);
  }
  out_ += ")";
  for (size_t i = 0; i < node.writes.size(); ++i) {
    out_ += i == 0 ? " writes(" : ", ";
    Name(node.operands[node.writes[i]]);
  }
  out_ += node.writes.empty() ? " -> " : ") -> ";
  if (node.mutates_first) {
    out_ += "alias ";
    Name(node.operands[0]);
  } else if (node.results.empty()) {
    out_ += "none";
  } else {
    for (size_t i = 0; i < node.results.size(); ++i) {
      if (i != 0) out_ += ", ";
      AppendMeta(graph_.meta(node.results[i]), &out_);
    }
  }
  if (!node.module_path.empty() || !node.source.empty()) {
    absl::StrAppend(&out_, " @ ", Quoted(node.module_path), " ", Quoted(node.source));
  }
}

void Printer::PrintLiteral(const Literal& literal) {
  std::vector<FrameworkArg> values;
  for (int64_t i = 0; i < literal.num_elements(); ++i) {
    if (literal.type() == PrimitiveType::kPred) {
      values.push_back(FrameworkArg::Bool(literal.GetAsInt64(i) != 0));
    } else if (IsComplex(literal.type())) {
      std::complex<double> c = literal.GetAsComplex(i);
      values.push_back({.kind = FrameworkArg::Kind::kComplex, .f = c.real(), .im = c.imag()});
    } else if (IsFloat(literal.type())) {
      values.push_back(FrameworkArg::Float(literal.GetAsDouble(i)));
    } else {
      values.push_back(FrameworkArg::Int(literal.GetAsInt64(i)));
    }
  }
  absl::StrAppend(&out_, " ", ToString(FrameworkArg::List(std::move(values))));
}

std::string Printer::Run() {
  absl::StrAppend(&out_, "graph ", Quoted(graph_.name), " {\n");
  for (size_t i = 0; i < graph_.symbols.size(); ++i) {
    const Symbol& s = graph_.symbols[i];
    absl::StrAppend(&out_, i == 0 ? "  symbols " : ", ", s.name);
    if (s.lower != 0 || s.upper != INT64_MAX) {
      absl::StrAppend(&out_, " in [", s.lower, ", ", s.upper == INT64_MAX ? "inf" : absl::StrCat(s.upper), "]");
    }
    if (s.typical != kTypicalSize) absl::StrAppend(&out_, " ~ ", s.typical);
  }
  if (!graph_.symbols.empty()) out_ += "\n";
  auto declare = [&](ValueId v, const char* kind, const Literal* literal) {
    out_ += "  ";
    Name(v);
    absl::StrAppend(&out_, " = ", kind, " ");
    AppendMeta(graph_.meta(v), &out_);
    if (literal != nullptr) PrintLiteral(*literal);
    out_ += "\n";
  };
  for (ValueId v : graph_.inputs) declare(v, "input", nullptr);
  for (ValueId v : graph_.constants) declare(v, "constant", nullptr);
  for (const auto& [v, literal] : graph_.literals) declare(v, "literal", &literal);
  for (const Node& node : graph_.nodes) {
    out_ += "  ";
    PrintNode(node);
    out_ += "\n";
  }
  out_ += "  return (";
  for (size_t i = 0; i < graph_.outputs.size(); ++i) {
    if (i != 0) out_ += ", ";
    const GraphOutput& o = graph_.outputs[i];
    if (o.kind == GraphOutput::Kind::kNone) {
      out_ += "none";
    } else if (o.kind == GraphOutput::Kind::kSymInt) {
      absl::StrAppend(&out_, "sym(", o.symint.ToString(), ")");
    } else {
      Name(o.value);
    }
  }
  out_ += ")\n}\n";
  return std::move(out_);
}

// Numbers for symbols. One instance per Specialize call.
class Specializer {
 public:
  Specializer(const Graph& from, const std::vector<std::pair<std::string, int64_t>>& values) : from_(from) {
    for (const auto& [name, value] : values) numbers_[name] = value;
  }
  absl::StatusOr<Graph> Run();

 private:
  absl::Status CheckRanges() const;
  absl::StatusOr<Dim> Value(Dim d) const;
  absl::Status Replace(Meta* meta) const;
  absl::Status Replace(FrameworkArg* arg, const Node& node) const;
  absl::Status Renumber(Node* node) const;

  const Graph& from_;
  absl::flat_hash_map<std::string, int64_t> numbers_;
};

absl::Status Specializer::CheckRanges() const {
  for (const Symbol& s : from_.symbols) {
    auto it = numbers_.find(s.name);
    if (it == numbers_.end()) {
      return absl::InvalidArgumentError(absl::StrCat("specialize: no value for symbol ", s.name));
    }
    if (it->second < s.lower || it->second > s.upper) {
      return absl::OutOfRangeError(absl::StrCat("specialize: symbol ", s.name, " wanted in [", s.lower, ", ", s.upper,
                                                "], got ", it->second));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Dim> Specializer::Value(Dim d) const {
  if (d.is_constant()) return d;
  TENON_ASSIGN_OR_RETURN(int64_t value, Evaluate(d, [&](std::string_view name) -> absl::StatusOr<int64_t> {
    auto it = numbers_.find(std::string(name));
    if (it == numbers_.end()) {
      return absl::InvalidArgumentError(absl::StrCat("specialize: no value for symbol ", std::string(name)));
    }
    return it->second;
  }));
  return Dim(value);
}

absl::Status Specializer::Replace(Meta* meta) const {
  for (std::vector<Dim>* dims : {&meta->sizes, &meta->strides}) {
    for (Dim& d : *dims) {
      TENON_ASSIGN_OR_RETURN(d, Value(d));
    }
  }
  TENON_ASSIGN_OR_RETURN(meta->offset, Value(meta->offset));
  TENON_ASSIGN_OR_RETURN(meta->symint, Value(meta->symint));
  return absl::OkStatus();
}

absl::Status Specializer::Replace(FrameworkArg* arg, const Node& node) const {
  if (arg->kind == FrameworkArg::Kind::kSymInt) {
    TENON_ASSIGN_OR_RETURN(Dim parsed, from_.dims->Parse(arg->s));
    TENON_ASSIGN_OR_RETURN(Dim value, Value(parsed));
    *arg = FrameworkArg::Int(value.constant());
  } else if (arg->is_tensor()) {
    const Meta& meta = from_.meta(node.operands[arg->i]);
    if (meta.kind != Meta::Kind::kSymInt) return absl::OkStatus();
    TENON_ASSIGN_OR_RETURN(Dim value, Value(meta.symint));
    *arg = FrameworkArg::Int(value.constant());
  }
  for (FrameworkArg& element : arg->list) TENON_RETURN_IF_ERROR(Replace(&element, node));
  return absl::OkStatus();
}

void VisitTensors(std::vector<FrameworkArg>* args, const std::function<void(FrameworkArg*)>& visit) {
  for (FrameworkArg& arg : *args) {
    if (arg.is_tensor()) visit(&arg);
    VisitTensors(&arg.list, visit);
  }
}

// Drops the operands that were SymInts.
absl::Status Specializer::Renumber(Node* node) const {
  for (FrameworkArg& arg : node->args) TENON_RETURN_IF_ERROR(Replace(&arg, *node));
  std::vector<ValueId> operands;
  std::vector<int64_t> renumbered(node->operands.size(), -1);
  VisitTensors(&node->args, [&](FrameworkArg* arg) {
    int64_t& number = renumbered[arg->i];
    if (number < 0) {
      number = static_cast<int64_t>(operands.size());
      operands.push_back(node->operands[arg->i]);
    }
    arg->i = number;
  });
  for (int32_t& operand : node->writes) operand = static_cast<int32_t>(renumbered[operand]);
  node->operands = std::move(operands);
  return absl::OkStatus();
}

absl::StatusOr<Graph> Specializer::Run() {
  TENON_RETURN_IF_ERROR(CheckRanges());
  Graph graph = from_;
  graph.symbols.clear();
  graph.dims = std::make_shared<DimTable>();
  for (GraphValue& value : graph.values) TENON_RETURN_IF_ERROR(Replace(&value.meta));
  for (Node& node : graph.nodes) TENON_RETURN_IF_ERROR(Renumber(&node));
  for (GraphOutput& output : graph.outputs) {
    TENON_ASSIGN_OR_RETURN(output.symint, Value(output.symint));
  }
  return graph;
}

}  // namespace

std::string Print(const Graph& graph) {
  Count(text_counts.graphs_printed);
  return Printer(graph).Run();
}

absl::StatusOr<Graph> Specialize(const Graph& graph, const std::vector<std::pair<std::string, int64_t>>& values) {
  return Specializer(graph, values).Run();
}

}  // namespace tenon::aten
