// Modules, computations and instructions.
#include "hlo/text/parser.h"

#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "hlo/infer/context.h"
#include "hlo/text_counts.h"
#include "hlo/verifier.h"

namespace tenon::text {
namespace {

bool IsTableName(std::string_view word) {
  return word == "FileNames" || word == "FunctionNames" || word == "FileLocations" || word == "StackFrames";
}

}  // namespace

bool Parser::Fail(size_t position, const absl::Status& status) {
  // Inference says "label: wanted X, got Y", the verifier "label: where: wanted X, got Y": the place in the text goes in
  // front, what stood there to the end.
  const absl::string_view message = status.message();
  const size_t wanted = message.find("wanted ");
  const size_t got = message.rfind(", got ");
  if (wanted == absl::string_view::npos || got == absl::string_view::npos || got < wanted) {
    return lex_.Error(position, "a valid instruction", {message.data(), message.size()});
  }
  const absl::string_view label = message.substr(0, wanted < 2 ? 0 : wanted - 2);
  return lex_.Error(position, absl::StrCat(message.substr(wanted + 7, got - wanted - 7)),
                    absl::StrCat(message.substr(got + 6), " (", label, ")"));
}

absl::StatusOr<std::unique_ptr<Module>> Parser::ParseModule() {
  module_ = std::make_unique<Module>();
  bool ok;
  if (lex_.TryWord("HloModule")) {
    ok = ModuleHeader() && OriginTables() && Computations();
  } else {
    ok = Headerless();
  }
  if (!ok) {
    return lex_.failed() ? lex_.status() : absl::InvalidArgumentError("line 1, column 1: wanted HLO text, got none");
  }
  module_->set_entry(entry_ != nullptr ? entry_ : last_);
  if (options_.verify) {
    VerifyOptions verify;
    verify.shapes = false;  // every instruction was inferred as it was read
    if (const absl::Status status = Verify(*module_, verify); !status.ok()) {
      const absl::string_view message = status.message();
      Fail(absl::StartsWith(message, "verify_alias:")          ? alias_position_
           : absl::StartsWith(message, "verify_entry_layout:") ? layout_position_
                                                               : entry_position_,
           status);
      return lex_.status();
    }
  }
  return std::move(module_);
}

absl::Status Parser::OutOfRange() {
  lex_.Error(lex_.position(), "dimension expressions within 2^62 (nearby)", "a larger one");
  return lex_.status();
}

absl::StatusOr<Shape> Parser::ParseShapeOnly() {
  Shape shape;
  if (!ParseShape(&shape) || !(lex_.AtEnd() || lex_.Error("the end of the shape"))) return lex_.status();
  return shape;
}

absl::StatusOr<Literal> Parser::ParseLiteralOnly(const Shape& shape) {
  Literal literal;
  if (!ParseLiteral(shape, "literal", &literal) || !(lex_.AtEnd() || lex_.Error("the end of the literal"))) {
    return lex_.status();
  }
  return literal;
}

bool Parser::ModuleHeader() {
  const std::string_view name = lex_.Name();
  if (name.empty()) return lex_.Error("the module's name");
  module_->name() = std::string(name);
  absl::flat_hash_set<absl::string_view> seen;
  while (lex_.Try(',')) {
    const std::string_view key = lex_.Identifier();
    if (key.empty() || !seen.insert(Abs(key)).second) return lex_.Error("another module attribute");
    if (!lex_.Expect('=') || !ModuleAttribute(key)) return false;
  }
  return true;
}

bool Parser::ModuleAttribute(std::string_view key) {
  if (key == "is_scheduled") return Bool(&module_->is_scheduled);
  if (key == "entry_computation_layout") return EntryLayout();
  if (key == "input_output_alias") return AliasList();
  if (key == "symbols") return Symbols();
  const std::optional<std::string_view> value = lex_.Balanced();
  if (!value.has_value()) return false;
  module_->attributes.emplace_back(std::string(key), NormalizeSpace(*value));
  return true;
}

bool Parser::EntryLayout() {
  layout_position_ = lex_.position();
  std::vector<Shape> parameters;
  Shape result;
  if (!lex_.Expect('{') || !lex_.Expect('(')) return false;
  if (!lex_.Try(')')) {
    do {
      if (!ParseShape(&parameters.emplace_back())) return false;
    } while (lex_.Try(','));
    if (!lex_.Expect(')')) return false;
  }
  if (!lex_.ExpectToken("->") || !ParseShape(&result) || !lex_.Expect('}')) return false;
  module_->entry_layout.emplace(std::move(parameters), std::move(result));
  return true;
}

// { {0}: (0, {}, may-alias), {1}: 2 }
bool Parser::AliasList() {
  alias_position_ = lex_.position();
  if (!lex_.Expect('{')) return false;
  if (lex_.Try('}')) return true;
  do {
    InputOutputAlias alias;
    if (!IntList(&alias.output_index) || !lex_.Expect(':')) return false;
    const bool tuple = lex_.Try('(');
    const std::optional<int64_t> parameter = lex_.Int();
    if (!parameter.has_value()) return false;
    alias.parameter = *parameter;
    if (tuple) {
      if (!lex_.Expect(',') || !IntList(&alias.parameter_index)) return false;
      if (lex_.Try(',')) {
        alias.must = lex_.TryWord("must-alias");
        if (!alias.must && !lex_.TryWord("may-alias")) return lex_.Error("may-alias or must-alias");
      }
      if (!lex_.Expect(')')) return false;
    }
    module_->aliases.push_back(std::move(alias));
  } while (lex_.Try(','));
  return lex_.Expect('}');
}

// {s0:[1,1024]%8,s1:[0,inf]~64}: the ranges and divisors of symbols and values to plan for, where they aren't [0, inf], 1 and 256. Ours.
bool Parser::Symbols() {
  // The layout's shapes may have made a symbol with the plain range already.
  if (module_->entry_layout.has_value()) return lex_.Error("symbols before entry_computation_layout");
  if (!lex_.Expect('{')) return false;
  if (lex_.Try('}')) return true;
  absl::flat_hash_set<absl::string_view> seen;
  do {
    const std::string_view name = lex_.Identifier();
    if (name.empty() || !seen.insert(Abs(name)).second) return lex_.Error("another symbol");
    if (!lex_.Expect(':') || !lex_.Expect('[')) return false;
    const std::optional<int64_t> lower = lex_.Int();
    if (!lower.has_value() || !lex_.Expect(',')) return false;
    int64_t upper = INT64_MAX, divisor = 1, typical = kTypicalSize;
    if (!lex_.TryWord("inf")) {
      const std::optional<int64_t> v = lex_.Int();
      if (!v.has_value()) return false;
      upper = *v;
    }
    if (!lex_.Expect(']')) return false;
    if (lex_.Try('%')) {
      const std::optional<int64_t> v = lex_.Int();
      if (!v.has_value()) return false;
      divisor = *v;
    }
    if (lex_.Try('~')) {
      const std::optional<int64_t> v = lex_.Int();
      if (!v.has_value()) return false;
      typical = *v;
    }
    if (*lower < 0 || upper < *lower || divisor < 1 || divisor > infer::kMaxDim || *lower > infer::kMaxDim) {
      return lex_.Error("a range 0 <= lower <= upper and a divisor >= 1");
    }
    if (typical < 1 || typical > infer::kMaxDim) return lex_.Error("a size to plan for >= 1");
    dims().Symbol(name, *lower, upper, divisor, typical);
  } while (lex_.Try(','));
  return lex_.Expect('}');
}

// The FileNames.. tables: a keyword alone, then lines that start with a number. Kept line by line.
bool Parser::OriginTables() {
  while (IsTableName(lex_.PeekIdentifier())) {
    const size_t start = lex_.position();
    const std::string_view word = lex_.Identifier();
    if (lex_.Line().empty() == false) {  // a computation may have such a name too
      lex_.set_position(start);
      return true;
    }
    module_->origin_tables.emplace_back(word);
    for (char c = lex_.Peek(); c >= '0' && c <= '9'; c = lex_.Peek()) {
      module_->origin_tables.emplace_back(lex_.Line());
    }
  }
  return true;
}

// Without "HloModule": computations, or a list of instructions of one computation.
bool Parser::Headerless() {
  const size_t start = lex_.position();
  const std::string_view word = lex_.PeekIdentifier();
  bool computations = word == "ENTRY";
  if (!computations && !AtShape()) {
    const std::string_view name = lex_.Name();
    if (name.empty()) return lex_.Error("HLO text");
    const char next = lex_.Peek();
    computations = next == '{' || next == '(';
    if (next == '(' && ParseOpcode(name).has_value()) {
      // "add(f32[2] x, ...)" is an instruction without name, "add(x: f32[2]) -> ..." a computation.
      lex_.Expect('(');
      computations = !AtShape();
    }
  }
  lex_.set_position(start);
  if (computations) return OriginTables() && Computations();
  Scope scope{module_->AddComputation("main"), nullptr, {}, true};
  entry_ = scope.computation;
  return Body(&scope);
}

bool Parser::Computations() {
  do {
    if (!ParseComputation()) return false;
  } while (!lex_.AtEnd());
  return true;
}

bool Parser::ParseComputation() {
  bool entry = false;
  const size_t start = lex_.position();
  if (lex_.TryWord("ENTRY")) {
    const char next = lex_.Peek();
    entry = next != '{' && next != '(';  // else the computation's name is ENTRY
    if (!entry) lex_.set_position(start);
  }
  lex_.SkipSpace();
  const size_t position = lex_.position();
  const std::string_view name = lex_.Name();
  if (name.empty()) return lex_.Error("a computation");
  if (entry && entry_ != nullptr) return lex_.Error(position, "one ENTRY", absl::StrCat("'", Abs(name), "' too"));
  if (computations_.contains(Abs(name))) {
    return lex_.Error(position, "a new computation", absl::StrCat("'", Abs(name), "' again"));
  }
  Computation* computation = module_->AddComputation(std::string(name));
  std::optional<std::pair<std::vector<Shape>, Shape>> signature;
  if (lex_.Peek() == '(' && !Signature(computation, &signature)) return false;
  if (!lex_.Expect('{')) return false;
  Scope scope{computation, nullptr, {}, false};
  if (!Body(&scope)) return false;
  if (signature.has_value() && !CheckSignature(*computation, *signature, position)) return false;
  if (lex_.Try(',')) {
    if (!lex_.TryWord("execution_thread") || !lex_.Expect('=')) return lex_.Error("execution_thread=");
    std::optional<std::string> thread = lex_.Quoted();
    if (!thread.has_value()) return false;
    computation->execution_thread() = *std::move(thread);
  }
  computations_[Abs(name)] = computation;
  last_ = computation;
  if (entry || entry_ == nullptr) entry_position_ = position;
  if (entry) entry_ = computation;
  return true;
}

// (x: f32[2], y: s32[]) -> f32[2]
bool Parser::Signature(Computation* computation, std::optional<std::pair<std::vector<Shape>, Shape>>* signature) {
  std::vector<Shape> parameters;
  Shape result;
  lex_.Expect('(');
  if (!lex_.Try(')')) {
    do {
      if (lex_.Name().empty()) return lex_.Error("a parameter's name");
      lex_.Try(':');
      if (!ParseShape(&parameters.emplace_back())) return false;
    } while (lex_.Try(','));
    if (!lex_.Expect(')')) return false;
  }
  if (!lex_.ExpectToken("->") || !ParseShape(&result)) return false;
  signature->emplace(std::move(parameters), std::move(result));
  return true;
}

bool Parser::CheckSignature(const Computation& computation, const std::pair<std::vector<Shape>, Shape>& signature,
                            size_t position) {
  if (signature.first.size() != computation.parameters().size()) {
    return lex_.Error(position, absl::StrCat(signature.first.size(), " parameters as the signature says"),
                      absl::StrCat(computation.parameters().size()));
  }
  for (size_t i = 0; i < signature.first.size(); ++i) {
    const Shape& given = computation.parameter(static_cast<int64_t>(i))->shape();
    if (!Shape::Compatible(given, signature.first[i])) {
      return lex_.Error(position, absl::StrCat("parameter ", i, " of ", signature.first[i].ToString()),
                        given.ToString());
    }
  }
  const Shape& root = computation.root()->shape();
  return Shape::Compatible(root, signature.second) ||
         lex_.Error(position, absl::StrCat("a root of ", signature.second.ToString()), root.ToString());
}

bool Parser::Body(Scope* scope) {
  Instruction *root = nullptr, *last = nullptr;
  lex_.SkipSpace();
  const size_t start = lex_.position();
  const bool braces = !scope->make_parameters;
  while (braces ? !lex_.Try('}') : !lex_.AtEnd()) {
    lex_.SkipSpace();
    const size_t position = lex_.position();
    bool is_root = false;
    if (!ParseInstruction(scope, &last, &is_root)) return false;
    if (!is_root) continue;
    if (root != nullptr) return lex_.Error(position, "one ROOT", "another");
    root = last;
  }
  return CloseBody(scope, root, last, start);
}

bool Parser::CloseBody(Scope* scope, Instruction* root, Instruction* last, size_t position) {
  if (last == nullptr) return lex_.Error(position, "an instruction", "an empty computation");
  scope->computation->set_root(root != nullptr ? root : last);
  const auto parameters = scope->computation->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i] == nullptr) {
      return lex_.Error(position, absl::StrCat("parameter(", i, ") in ", scope->computation->name()), "none");
    }
  }
  return true;
}

bool Parser::ParseInstruction(Scope* scope, Instruction** made, bool* is_root) {
  lex_.SkipSpace();
  size_t position = lex_.position();
  if (lex_.TryWord("ROOT")) {
    *is_root = lex_.Peek() != '=';  // else an instruction of that name
    if (!*is_root) lex_.set_position(position);
    lex_.SkipSpace();
    position = lex_.position();
  }
  std::string_view name;
  const bool anonymous = scope->make_parameters && scope->computation->instruction_count() == 0 && AtShape();
  if (!anonymous) {
    name = lex_.Name();
    if (name.empty()) return lex_.Error("an instruction");
    if (!lex_.Try('=')) {
      // "add(f32[2] x, f32[2] y)" alone is an instruction without a name.
      const bool bare = scope->make_parameters && lex_.Peek() == '(' && ParseOpcode(name).has_value();
      if (!bare) return lex_.Error("'='");
      lex_.set_position(position);
      name = {};
    }
  }
  if (!name.empty() && scope->names.contains(Abs(name))) {
    return lex_.Error(position, "a new instruction name", absl::StrCat("'", Abs(name), "' again"));
  }
  *made = RightHandSide(scope, name, position, /*attributes=*/true);
  if (*made == nullptr) return false;
  if (!name.empty()) scope->names[Abs(name)] = *made;
  return true;
}

// [shape] opcode(operands) [, attributes]
Instruction* Parser::RightHandSide(Scope* scope, std::string_view name, size_t position, bool attributes) {
  Depth depth(this);
  if (!depth.ok()) return nullptr;
  Draft draft;
  draft.position = position;
  draft.name = name;
  if (AtShape() && !ParseShape(&draft.shape.emplace())) return nullptr;
  if (!OpcodeOf(&draft) || !Operands(scope, &draft)) return nullptr;
  if (attributes && !AttributeList(scope, &draft)) return nullptr;
  return Finish(scope, std::move(draft));
}

bool Parser::OpcodeOf(Draft* draft) {
  const std::string_view word = lex_.PeekIdentifier();
  if (const std::optional<Opcode> op = ParseOpcode(word)) {
    draft->opcode = *op;
    lex_.Identifier();
    return true;
  }
  // custom-call-start and the like: an async op around the opcode.
  static constexpr std::pair<std::string_view, Opcode> kSugar[] = {
      {"-start", Opcode::kAsyncStart}, {"-update", Opcode::kAsyncUpdate}, {"-done", Opcode::kAsyncDone}};
  for (const auto& [suffix, op] : kSugar) {
    if (!word.ends_with(suffix)) continue;
    if (const std::optional<Opcode> wrapped = ParseOpcode(word.substr(0, word.size() - suffix.size()))) {
      draft->opcode = op;
      draft->wrapped = *wrapped;
      draft->async_sugar = true;
      lex_.Identifier();
      return true;
    }
  }
  return lex_.Error("an opcode");
}

bool Parser::Operands(Scope* scope, Draft* draft) {
  if (!lex_.Expect('(')) return false;
  if (draft->opcode == Opcode::kParameter) {
    const std::optional<int64_t> number = lex_.Int();
    if (!number.has_value()) return false;
    if (*number < 0) return lex_.Error("a parameter number");
    draft->parameter_number = *number;
    return lex_.Expect(')');
  }
  if (draft->opcode == Opcode::kConstant) {
    if (!draft->shape.has_value()) return lex_.Error("a shape in front of a constant");
    return ParseLiteral(*draft->shape, draft->name, &draft->literal.emplace()) && lex_.Expect(')');
  }
  if (lex_.Try(')')) return true;
  do {
    Instruction* operand = Operand(scope);
    if (operand == nullptr) return false;
    draft->operands.push_back(operand);
  } while (lex_.Try(','));
  return lex_.Expect(')');
}

// [shape] name, or an instruction written in place.
Instruction* Parser::Operand(Scope* scope) {
  lex_.SkipSpace();
  const size_t position = lex_.position();
  std::optional<Shape> shape;
  if (AtShape() && !ParseShape(&shape.emplace())) return nullptr;
  const size_t after_shape = lex_.position();
  const std::string_view name = lex_.Name();
  if (name.empty()) {
    lex_.Error("an operand");
    return nullptr;
  }
  if (lex_.Peek() == '(') {
    lex_.set_position(shape.has_value() ? position : after_shape);
    return RightHandSide(scope, {}, position, /*attributes=*/false);
  }
  const auto it = scope->names.find(Abs(name));
  if (it != scope->names.end()) {
    if (shape.has_value() && !Shape::Compatible(*shape, it->second->shape())) {
      lex_.Error(position, absl::StrCat(it->second->shape().ToString(), " (the shape of ", Abs(name), ")"),
                 shape->ToString());
      return nullptr;
    }
    return it->second;
  }
  if (!scope->make_parameters || !shape.has_value()) {
    lex_.Error(position, "an instruction defined before", absl::StrCat("'", Abs(name), "'"));
    return nullptr;
  }
  Instruction* parameter = scope->computation->AddParameter(
      static_cast<int64_t>(scope->computation->parameters().size()), *shape, std::string(name));
  scope->names[Abs(name)] = parameter;
  return parameter;
}

// A start op's shape in the one form that inference knows, ((operands), result, contexts...). XLA's texts also have (operand, result,
// contexts...) and the result alone.
void Parser::NestOperands(Draft* draft) {
  Shape& shape = *draft->shape;
  std::vector<Shape> operands, elements;
  for (const Instruction* operand : draft->operands) operands.push_back(operand->shape());
  const Shape nested = Shape::Tuple(operands);
  const auto starts_with = [&](const Shape& first) {
    return shape.is_tuple() && shape.elements().size() >= 2 && infer::KnownCompatible(shape.element(0), first);
  };
  if (starts_with(nested)) return;
  if (operands.size() == 1 && starts_with(operands[0])) {
    elements.assign(shape.elements().begin(), shape.elements().end());
    elements[0] = nested;
  } else {
    elements = {nested, shape};
  }
  shape = Shape::Tuple(std::move(elements));
}

// custom-call-start(...): the wrapped op moves into a computation of its own.
bool Parser::WrapAsync(Scope* scope, Draft* draft) {
  if (draft->opcode != Opcode::kAsyncStart) return true;
  // "calls" is the wrapped fusion's; elsewhere it names the computation that wraps already.
  if (draft->attrs.has(Attr::kCalls) && !InfoOf(draft->wrapped).allows(Attr::kCalls)) return true;
  Computation* body = module_->AddComputation("async_computation");
  std::vector<Instruction*> parameters;
  for (Instruction* operand : draft->operands) {
    parameters.push_back(body->AddParameter(static_cast<int64_t>(parameters.size()), operand->shape()));
  }
  std::optional<Shape> result;
  if (draft->shape.has_value()) {
    NestOperands(draft);
    result = draft->shape->element(1);
  }
  Attributes outer;
  for (const auto& [attr, value] : draft->attrs) {
    if (!InfoOf(draft->wrapped).allows(attr) || attr == Attr::kFrontendAttributes) outer.set(attr, value);
  }
  for (const auto& [attr, value] : outer) draft->attrs.erase(attr);
  absl::StatusOr<Shape> inferred =
      InferShape(draft->wrapped, parameters, draft->attrs, result.has_value() ? &*result : nullptr);
  if (!inferred.ok()) return Fail(draft->position, inferred.status());
  Instruction* root = body->Add(draft->wrapped, result.has_value() ? *result : *inferred, parameters);
  root->mutable_attrs() = std::move(draft->attrs);
  body->set_root(root);
  outer.set(Attr::kCalls, body);
  draft->attrs = std::move(outer);
  return true;
}

// What text may leave out.
void Parser::FillIn(Draft* draft) {
  Attributes& attrs = draft->attrs;
  const Shape* first = draft->operands.empty() ? nullptr : &draft->operands[0]->shape();
  switch (draft->opcode) {
    case Opcode::kBroadcast:
      if (first != nullptr && first->is_scalar() && !attrs.has(Attr::kDimensions)) {
        attrs.set(Attr::kDimensions, std::vector<int64_t>());
      }
      return;
    case Opcode::kMap:
      if (first != nullptr && !attrs.has(Attr::kDimensions)) {
        std::vector<int64_t> all(first->rank());
        std::iota(all.begin(), all.end(), 0);
        attrs.set(Attr::kDimensions, std::move(all));
      }
      return;
    case Opcode::kTopk:
      if (!attrs.has(Attr::kLargest)) attrs.set(Attr::kLargest, true);
      return;
    default:
      return;
  }
}

Instruction* Parser::Finish(Scope* scope, Draft draft) {
  FillIn(&draft);
  if (draft.async_sugar && !WrapAsync(scope, &draft)) return nullptr;
  if (draft.opcode == Opcode::kParameter) {
    const auto number = static_cast<size_t>(draft.parameter_number);
    const auto parameters = scope->computation->parameters();
    if (number < parameters.size() && parameters[number] != nullptr) {
      lex_.Error(draft.position, "each parameter number once", absl::StrCat(number, " again"));
      return nullptr;
    }
    if (number >= parameters.size()) {
      const size_t grown = number + 1 - parameters.size();
      if (grown > lex_.text().size() - std::min(lex_.text().size(), parameter_slots_)) {
        lex_.Error(draft.position, "parameter numbers without gaps", absl::StrCat(number));
        return nullptr;
      }
      parameter_slots_ += grown;
    }
  }
  if (!draft.shape.has_value() || options_.verify) {
    absl::StatusOr<Shape> inferred = InferShape(draft.opcode, draft.operands, draft.attrs,
                                                draft.shape.has_value() ? &*draft.shape : nullptr);
    if (!inferred.ok()) {
      Fail(draft.position, inferred.status());
      return nullptr;
    }
    if (!draft.shape.has_value()) {
      draft.shape = *std::move(inferred);
    } else if (!infer::KnownCompatible(*inferred, *draft.shape)) {
      const std::string_view op = OpcodeName(draft.opcode);
      lex_.Error(draft.position, absl::StrCat(Abs(op), " to have shape ", inferred->ToString()),
                 draft.shape->ToString());
      return nullptr;
    }
  }
  auto made = std::make_unique<Instruction>(draft.opcode, *std::move(draft.shape), draft.operands,
                                            std::string(draft.name));
  made->mutable_attrs() = std::move(draft.attrs);
  made->metadata() = std::move(draft.metadata);
  if (draft.literal.has_value()) made->set_literal(*std::move(draft.literal));
  if (draft.parameter_number >= 0) made->set_parameter_number(draft.parameter_number);
  Instruction* i = scope->computation->Add(std::move(made));
  for (Instruction* before : draft.control_predecessors) i->AddControlPredecessor(before);
  return i;
}

}  // namespace tenon::text

namespace tenon {

absl::StatusOr<std::unique_ptr<Module>> ParseModule(std::string_view text, const ParseOptions& options) {
  Count(text_counts.modules_parsed);
  text::Parser parser(text, options);
  try {
    return parser.ParseModule();
  } catch (const InternalError& e) {
    if (std::string_view(e.what()).find("dimension") == std::string_view::npos) throw;
    return parser.OutOfRange();
  }
}

absl::StatusOr<Shape> ParseShape(std::string_view text, DimTable* dims) {
  text::Parser parser(text, {}, dims);
  try {
    return parser.ParseShapeOnly();
  } catch (const InternalError& e) {
    if (std::string_view(e.what()).find("dimension") == std::string_view::npos) throw;
    return parser.OutOfRange();
  }
}

absl::StatusOr<Literal> ParseLiteral(const Shape& shape, std::string_view text) {
  return text::Parser(text, {}).ParseLiteralOnly(shape);
}

}  // namespace tenon
