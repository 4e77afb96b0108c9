#include "torch_plugin/aten/graph_builder.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "hlo/check.h"
#include "torch_plugin/aten/op_table.h"

namespace tenon::aten {
namespace {

constexpr int kMaxDepth = 64;  // of lists in lists, as in the text

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsNameChar(char c) { return IsNameStart(c) || IsDigit(c) || c == '.'; }
bool IsOpChar(char c) { return IsNameChar(c) || c == ':'; }
bool IsWordChar(char c) { return IsNameChar(c) || c == ':' || c == '-'; }  // of a layout, device or memory format

bool All(std::string_view text, bool (*in)(char)) { return !text.empty() && std::all_of(text.begin(), text.end(), in); }

absl::Status Wanted(std::string_view what, std::string_view came) {
  return absl::InvalidArgumentError(absl::StrCat("wanted ", std::string(what), ", got '", std::string(came.substr(0, 60)), "'"));
}

}  // namespace

absl::Status AddWritten(ValueId value, Node* node) {
  const auto found = std::find(node->operands.begin(), node->operands.end(), value);
  if (found == node->operands.end()) return absl::InvalidArgumentError("writes(...) wants tensors that the operator is given");
  node->writes.push_back(static_cast<int32_t>(found - node->operands.begin()));
  return absl::OkStatus();
}

absl::Status GraphBuilder::Open() const {
  return finished_ ? absl::FailedPreconditionError("the graph has its return: nothing can be added to it") : absl::OkStatus();
}

absl::Status GraphBuilder::AddSymbol(std::string_view name, int64_t lower, int64_t upper, int64_t typical) {
  TENON_RETURN_IF_ERROR(Open());
  if (!All(name, IsNameChar) || !IsNameStart(name.front())) return Wanted("a symbol's name", name);
  for (const Symbol& other : graph_.symbols) {
    if (other.name == name) return absl::InvalidArgumentError(absl::StrCat("symbol ", other.name, " is declared twice"));
  }
  if (upper < lower) return absl::InvalidArgumentError(absl::StrCat("symbol ", std::string(name), " has an empty range"));
  if (typical <= 0) typical = kTypicalSize;
  graph_.dims->Symbol(name, lower, upper, /*divisor=*/1, typical);
  graph_.symbols.push_back({.name = std::string(name), .lower = lower, .upper = upper, .typical = typical});
  return absl::OkStatus();
}

absl::StatusOr<Dim> GraphBuilder::Expression(std::string_view text) const {
  for (size_t i = 0; i < text.size();) {
    if (!IsNameStart(text[i])) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < text.size() && (IsNameStart(text[end]) || IsDigit(text[end]))) ++end;
    const std::string_view word = text.substr(i, end - i);
    const bool function = end < text.size() && text[end] == '(';
    const bool known = std::any_of(graph_.symbols.begin(), graph_.symbols.end(), [&](const Symbol& s) { return s.name == word; });
    if (!function && !known) return absl::InvalidArgumentError(absl::StrCat("symbol ", std::string(word), " is not declared"));
    i = end;
  }
  return graph_.dims->Parse(text);
}

absl::StatusOr<ValueId> GraphBuilder::Lookup(std::string_view name) const {
  const auto it = by_name_.find(absl::string_view(name.data(), name.size()));
  if (it == by_name_.end()) return absl::InvalidArgumentError(absl::StrCat("unknown value %", std::string(name)));
  return it->second;
}

absl::StatusOr<ValueId> GraphBuilder::Define(std::string_view name, Meta meta, int32_t node, int32_t result) {
  if (!All(name, IsNameChar)) return Wanted("a value's name, of letters, digits, '_' and '.'", name);
  const ValueId id = static_cast<ValueId>(graph_.values.size());
  if (!by_name_.emplace(std::string(name), id).second) {
    return absl::InvalidArgumentError(absl::StrCat("value %", std::string(name), " is defined twice"));
  }
  graph_.values.push_back({.name = std::string(name), .meta = std::move(meta), .node = node, .result = result});
  return id;
}

absl::Status GraphBuilder::CheckMeta(const Meta& meta) const {
  if (meta.kind != Meta::Kind::kTensor) return absl::OkStatus();
  if (!IsArrayType(meta.dtype)) return Wanted("the dtype of a tensor", PrimitiveTypeName(meta.dtype));
  if (meta.sizes.size() != meta.strides.size()) {
    return absl::InvalidArgumentError(absl::StrCat("wanted ", meta.sizes.size(), " strides, got ", meta.strides.size()));
  }
  for (Dim size : meta.sizes) {
    if (size.is_constant() && size.constant() < 0) {
      return absl::InvalidArgumentError(absl::StrCat("a size is negative: ", size.constant()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ValueId> GraphBuilder::AddInput(std::string_view name, Meta meta) {
  TENON_RETURN_IF_ERROR(Open());
  TENON_RETURN_IF_ERROR(CheckMeta(meta));
  TENON_ASSIGN_OR_RETURN(const ValueId id, Define(name, std::move(meta), -1, 0));
  graph_.inputs.push_back(id);
  return id;
}

absl::StatusOr<ValueId> GraphBuilder::AddConstant(std::string_view name, Meta meta) {
  TENON_RETURN_IF_ERROR(Open());
  if (meta.kind != Meta::Kind::kTensor) return absl::InvalidArgumentError("a constant must be a tensor");
  TENON_RETURN_IF_ERROR(CheckMeta(meta));
  TENON_ASSIGN_OR_RETURN(const ValueId id, Define(name, std::move(meta), -1, 0));
  graph_.constants.push_back(id);
  return id;
}

absl::StatusOr<ValueId> GraphBuilder::AddLiteral(std::string_view name, Meta meta, Literal literal) {
  TENON_RETURN_IF_ERROR(Open());
  if (meta.kind != Meta::Kind::kTensor) return absl::InvalidArgumentError("a constant must be a tensor");
  TENON_RETURN_IF_ERROR(CheckMeta(meta));
  TENON_ASSIGN_OR_RETURN(const ValueId id, Define(name, std::move(meta), -1, 0));
  graph_.literals.emplace_back(id, std::move(literal));
  return id;
}

absl::Status GraphBuilder::CheckValue(int64_t value) const {
  if (value >= 0 && value < static_cast<int64_t>(graph_.values.size())) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("wanted a value of the graph, which has ", graph_.values.size(), ", got number ", value));
}

absl::Status GraphBuilder::CheckArg(const FrameworkArg& arg, int depth) const {
  using Kind = FrameworkArg::Kind;
  switch (arg.kind) {
    case Kind::kDtype:
      if (!IsArrayType(arg.dtype)) return Wanted("the dtype of a tensor", PrimitiveTypeName(arg.dtype));
      break;
    case Kind::kLayout:
    case Kind::kDevice:
    case Kind::kMemoryFormat:
      if (!All(arg.s, IsWordChar)) return Wanted("a layout, device or memory format by torch's name", arg.s);
      break;
    case Kind::kSymInt:
      TENON_RETURN_IF_ERROR(Expression(arg.s).status());
      break;
    default:
      break;
  }
  if (depth > kMaxDepth) return absl::InvalidArgumentError("lists nested too deeply");
  if (arg.is_tensor() && !IsWindow(arg)) {
    return absl::InvalidArgumentError("a view of a tensor wants strides, or sizes, as many strides, an offset");
  }
  for (const FrameworkArg& element : arg.list) TENON_RETURN_IF_ERROR(CheckArg(element, depth + 1));
  return absl::OkStatus();
}

// What an operator writes is a tensor, and a result, one of the last, is what it holds then.
absl::Status GraphBuilder::CheckWrites(const Node& node, const std::vector<Meta>& metas) const {
  if (node.writes.size() > metas.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(node.writes.size(), " operands are written, wanted a result for each, got ", metas.size()));
  }
  for (size_t w = 0; w < node.writes.size(); ++w) {
    const size_t result = metas.size() - node.writes.size() + w;
    const Meta &old = graph_.meta(node.operands[node.writes[w]]), &made = metas[result];
    if (old.kind == Meta::Kind::kOther) continue;  // "any tensor"
    if (old.kind != Meta::Kind::kTensor) return absl::InvalidArgumentError("writes(...) wants tensors that the operator is given");
    if (made.kind != Meta::Kind::kTensor || made.dtype != old.dtype || made.sizes != old.sizes || made.strides != old.strides) {
      return absl::InvalidArgumentError(
          absl::StrCat("result ", result, " is what a written operand holds; wanted its dtype, sizes and strides"));
    }
  }
  return absl::OkStatus();
}

absl::Status GraphBuilder::NumberOperands(Node* node) const {
  absl::flat_hash_map<ValueId, int64_t> numbers;
  const auto number = [&](const auto& self, std::vector<FrameworkArg>& args) -> absl::Status {
    for (FrameworkArg& arg : args) {
      if (arg.is_tensor()) {
        TENON_RETURN_IF_ERROR(CheckValue(arg.i));
        const ValueId value = static_cast<ValueId>(arg.i);
        const auto [it, fresh] = numbers.emplace(value, static_cast<int64_t>(node->operands.size()));
        if (fresh) node->operands.push_back(value);
        arg.i = it->second;
      }
      TENON_RETURN_IF_ERROR(self(self, arg.list));
    }
    return absl::OkStatus();
  };
  return number(number, node->args);
}

absl::StatusOr<std::vector<ValueId>> GraphBuilder::AddNode(Node node, absl::Span<const std::string_view> names, std::vector<Meta> metas) {
  TENON_RETURN_IF_ERROR(Open());
  if (!All(node.op, IsOpChar) || !IsNameStart(node.op.front())) return Wanted("an operator's overload, \"aten.add.Tensor\"", node.op);
  for (const FrameworkArg& arg : node.args) TENON_RETURN_IF_ERROR(CheckArg(arg, 0));
  if (node.mutates_first) {
    if (node.operands.empty() || names.size() > 1 || !metas.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(node.op, ": an operator that mutates its first tensor has one, and at most that as a result"));
    }
    if (names.size() == 1) metas.push_back(graph_.meta(node.operands[0]));
  } else {
    if (metas.size() != names.size()) {
      return absl::InvalidArgumentError(absl::StrCat(node.op, ": ", names.size(), " names for ", metas.size(), " results"));
    }
    for (const Meta& meta : metas) TENON_RETURN_IF_ERROR(CheckMeta(meta));
    TENON_RETURN_IF_ERROR(CheckWrites(node, metas));
    node.mutates_first = IsInPlace(node.op) && names.size() == 1 && !node.operands.empty();
  }
  for (size_t i = 0; i < names.size(); ++i) {
    TENON_ASSIGN_OR_RETURN(
        const ValueId id,
        Define(names[i], std::move(metas[i]), static_cast<int32_t>(graph_.nodes.size()), static_cast<int32_t>(i)));
    node.results.push_back(id);
  }
  std::vector<ValueId> results = node.results;
  graph_.nodes.push_back(std::move(node));
  return results;
}

absl::Status GraphBuilder::AddOutput(GraphOutput output) {
  TENON_RETURN_IF_ERROR(Open());
  if (output.kind == GraphOutput::Kind::kValue) {
    TENON_RETURN_IF_ERROR(CheckValue(output.value));
    const Meta& meta = graph_.meta(output.value);
    if (meta.kind == Meta::Kind::kSymInt) output = {.kind = GraphOutput::Kind::kSymInt, .symint = meta.symint};
    if (meta.kind == Meta::Kind::kNone) output = {.kind = GraphOutput::Kind::kNone};
  }
  graph_.outputs.push_back(output);
  return absl::OkStatus();
}

absl::Status GraphBuilder::Finish() {
  TENON_RETURN_IF_ERROR(Open());
  finished_ = true;
  return absl::OkStatus();
}

}  // namespace tenon::aten
